"""judge-audit-mcp on stdin's draws, one a line: its probes, at their defaults. Runs in judge-audit-mcp's environment.

``judge-audit probe length_confound judge.jsonl --gold human.jsonl`` calls the same function, and so do
``judge-audit probe verbosity judge.jsonl`` and ``sycophancy``, whose file has the scores of outputs as they are, and
padded or with a hint. What a probe does not call clean counts.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from judge_audit_mcp.models import SEV_CLEAN
from judge_audit_mcp.probes import PROBES

VARIANTS = {"verbosity": "padded", "sycophancy": "hinted"}


def write(file, rows):
    """Write rows as JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def edited(folder, edits):
    """Yield each probe with the file of the scores of edited outputs, and of the outputs as they are."""
    for (probe, variant), (scores, plain) in zip(VARIANTS.items(), edits, strict=True):
        both = {"": plain, variant: scores}.items()
        rows = ({"item_id": f"{i}", "variant": v, "score": x} for v, scores in both for i, x in enumerate(scores))
        yield probe, probe, [write(Path(folder, f"{probe}.jsonl"), rows)]


def lengths(folder, numbers):
    """Yield the probe of length, with the files of the judge's scores and of people's."""
    judge = zip(numbers["ids"], numbers["scores"], numbers["lengths"], strict=True)
    rows = [{"item_id": item, "score": score, "output_len": length} for item, score, length in judge]
    gold = [{"item_id": i, "human_score": score} for i, score in zip(numbers["ids"], numbers["people"], strict=True)]
    files = write(Path(folder, "judge.jsonl"), rows), write(Path(folder, "gold.jsonl"), gold)
    yield "verbosity", "length_confound", files


with TemporaryDirectory() as folder:
    for line in sys.stdin:
        numbers, flags = json.loads(line), []
        for name, probe, files in edited(folder, numbers["edits"]) if "edits" in numbers else lengths(folder, numbers):
            (finding,) = PROBES[probe](*files).findings
            flags += [name] if finding.severity != SEV_CLEAN else []
        print(json.dumps(flags), flush=True)
