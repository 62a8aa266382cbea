"""judgecal on stdin's draws, one a line: its probes of bias and its card. Runs in judgecal's environment.

It plans its own questions, such as an output against a padded copy of itself, and the planted judge answers them.
"""

import json
import sys

from judgecal.core import Judgment, PairwiseItem
from judgecal.probes import ProbeConfig, analyze_suite, plan_suite
from judgecal.report import build_card
from live import first_wins, text

PROBES = ("position", "verbosity", "self_preference")
NAMES = {f"{probe}{'_bias' if probe != 'self_preference' else ''}_detected": probe for probe in PROBES}
SWAPPED = ("swap", "pad_first")


def items(numbers):
    """Pairs with people's choice as the label."""
    for index, item in enumerate(numbers["ids"]):
        a, b = numbers["people"][index]
        label = "A" if a > b else "B" if b > a else "tie"
        texts = {f"response_{name}": text(numbers, index, side) for side, name in enumerate("ab")}
        authors = dict(zip(("author_a", "author_b"), numbers["writers"][index], strict=True))
        yield PairwiseItem(item_id=item, prompt=f"Question {item}", label=label, **texts, **authors)


def answered(numbers, request):
    """Let the planted judge answer one request."""
    meta = request.meta
    first = first_wins(numbers, meta["first_text"], meta["second_text"], int(meta["condition"] in SWAPPED))
    return Judgment(request.custom_id, "first" if first else "second", None, meta)


for line in sys.stdin:
    numbers = json.loads(line)
    config = ProbeConfig(judge_author=numbers["own"])
    planned = plan_suite(list(items(numbers)), PROBES, config)
    judgments = [answered(numbers, request) for request in planned]
    card = build_card(analyze_suite(judgments, PROBES, config), {"name": "planted"})
    print(json.dumps(sorted(NAMES[flag] for flag in card.overall_flags if flag in NAMES)), flush=True)
