"""evalaudit on stdin's draws of pairs, one a line: ``audit`` with choices and lengths. Runs in evalaudit's environment.

Its documentation asks for people's choices beside the judge's; pairs that people rate alike have none and are left out.
"""

import json
import sys

import pandas as pd
from evalaudit import audit

NAMES = {"length": "verbosity", "position": "position"}

for line in sys.stdin:
    numbers = json.loads(line)
    kept = [index for index, (a, b) in enumerate(numbers["people"]) if a != b]
    judge = {
        "preferences": ["A" if numbers["odds"][index][0] > 0 else "B" for index in kept],
        "lengths": [numbers["lengths"][index] for index in kept],
        "human_preferences": [
            "A" if numbers["people"][index][0] > numbers["people"][index][1] else "B" for index in kept
        ],
    }
    both = [
        {"pair_id": item, "option_a": first, "option_b": second, "winner": first if odds > 0 else second}
        for item, orders in zip(numbers["ids"], numbers["odds"], strict=True)
        for odds, first, second in zip(orders, "xy", "yx", strict=True)
    ]
    report = audit(judge=judge, comparisons=pd.DataFrame(both))
    warned = {NAMES[finding.check] for finding in report.findings if finding.severity != "info"}
    print(json.dumps(sorted(warned)), flush=True)
