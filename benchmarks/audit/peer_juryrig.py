"""juryrig on stdin's draws, one a line: its audits of a live judge, default thresholds. Runs in juryrig's environment.

The planted judge answers its questions: pairs in both orders, and scores of padded outputs, here from 0 to 1.
"""

import json
import sys

from juryrig import position_bias, verbosity_bias
from juryrig.judge import Judgment
from live import first_wins, score, text


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


for line in sys.stdin:
    numbers = json.loads(line)
    judge, places = Planted(numbers), range(len(numbers["ids"]))
    if numbers["pairwise"]:
        pairs = [(f"Question {i}", text(numbers, i, 0), text(numbers, i, 1)) for i in places]
        flags = {"position": position_bias(judge, pairs, "quality").flagged}
    else:
        flags = {"verbosity": verbosity_bias(judge, [(f"Question {i}", text(numbers, i)) for i in places], "q").flagged}
    print(json.dumps([name for name, flagged in flags.items() if flagged]), flush=True)
