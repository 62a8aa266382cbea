"""judge-audit-mcp on stdin's draws, one a line: its probe length_confound. Runs in judge-audit-mcp's environment.

``judge-audit probe length_confound judge.jsonl --gold human.jsonl`` calls the same function; what it does not call
clean counts.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from judge_audit_mcp.models import SEV_CLEAN
from judge_audit_mcp.probes import PROBES


def write(file, rows):
    """Write rows as JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


with TemporaryDirectory() as folder:
    for line in sys.stdin:
        numbers = json.loads(line)
        judge = zip(numbers["ids"], numbers["scores"], numbers["lengths"], strict=True)
        rows = [{"item_id": item, "score": score, "output_len": length} for item, score, length in judge]
        human = zip(numbers["ids"], numbers["people"], strict=True)
        gold = [{"item_id": item, "human_score": score} for item, score in human]
        files = write(Path(folder, "judge.jsonl"), rows), write(Path(folder, "gold.jsonl"), gold)
        (finding,) = PROBES["length_confound"](*files).findings
        print(json.dumps(["verbosity"] if finding.severity != SEV_CLEAN else []), flush=True)
