"""juryrig on stdin's draws, one a line: its audits of a live judge, default thresholds. Runs in juryrig's environment.

The planted judge answers its questions: pairs in both orders, and scores of padded outputs, here from 0 to 1. Of a draw
with ``edits``, the scores of edited outputs and of the outputs as they are, those are its answers to any text to which
juryrig adds something.
"""

import json
import sys

from juryrig import position_bias, prompt_injection_bias, verbosity_bias
from juryrig.judge import Judgment
from live import first_wins, score, text

ADDING = {"verbosity": verbosity_bias, "injection": prompt_injection_bias}
PLAIN = "An output."


class Planted:
    """The planted judge as juryrig asks it."""

    name = "planted"

    def __init__(self, numbers):
        """Keep the draw."""
        self.numbers = numbers

    def judge(self, *, prompt, response, rubric):
        """Score from 0 to 1."""
        return Judgment((score(self.numbers, response) - 1) / 4)

    def compare(self, *, prompt, a, b, rubric):
        """Choose A or B; the second candidate of the item stands first in the swapped order."""
        return "A" if first_wins(self.numbers, a, b, int(a[5])) else "B"


class Edited(Planted):
    """Drawn scores of edited outputs, and of the outputs as they are; the prompt is the place of the output."""

    def judge(self, *, prompt, response, rubric):
        """Score from 0 to 1."""
        edited, plain = self.numbers
        return Judgment(((plain if response == PLAIN else edited)[int(prompt)] - 1) / 4)


for line in sys.stdin:
    numbers = json.loads(line)
    if "edits" in numbers:
        outputs = [(f"{i}", PLAIN) for i in range(len(numbers["edits"][0][0]))]
        asked = zip(ADDING.items(), numbers["edits"], strict=True)
        flags = {name: audit(Edited(scores), outputs, "quality").flagged for (name, audit), scores in asked}
    elif numbers["pairwise"]:
        places = range(len(numbers["ids"]))
        pairs = [(f"Question {i}", text(numbers, i, 0), text(numbers, i, 1)) for i in places]
        flags = {"position": position_bias(Planted(numbers), pairs, "quality").flagged}
    else:
        outputs = [(f"Question {i}", text(numbers, i)) for i in range(len(numbers["ids"]))]
        flags = {"verbosity": verbosity_bias(Planted(numbers), outputs, "q").flagged}
    print(json.dumps([name for name, flagged in flags.items() if flagged]), flush=True)
