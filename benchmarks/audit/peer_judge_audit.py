"""judge-audit on stdin's draws, one a line: ``audit`` of scores beside human scores. Runs in judge-audit's environment.

Its report prints the coefficient of the length with its t statistic and no verdict: an absolute t above 1.96 counts.
"""

import json
import sys

from judge_audit import audit

for line in sys.stdin:
    numbers = json.loads(line)
    columns = {"score": numbers["scores"], "quality": numbers["people"], "length": numbers["lengths"]}
    found = audit({**columns, "scale": numbers["scale"]})["bias"]["verbosity"]
    print(json.dumps(["verbosity"] if abs(found["t_stat"]) > 1.96 else []), flush=True)
