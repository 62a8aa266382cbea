"""judgekeeper on stdin's draws of verdicts, one a line: ``check_table``. Runs in judgekeeper's environment.

It takes one label an item, here the first rater's, and has no check of length: it says whether the judge can be used.
"""

import json
import sys

from judgekeeper import check_table

for line in sys.stdin:
    numbers = json.loads(line)
    named = ["fail", "pass"]
    rows = [
        {"id": item, "verdict": named[int(score)], "label": named[int(ratings[0])]}
        for item, score, ratings in zip(numbers["ids"], numbers["scores"], numbers["ratings"], strict=True)
    ]
    level = check_table(rows)["verdict"]["level"]
    print(json.dumps([level] if level == "not_trustworthy" else []), flush=True)
