"""What outputs are worth to a source that knows better than the loop: every different output is asked about once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalbias.programs.feedback.source import FeedbackSource, validated
from evalbias.runs.fingerprint import describe, digest
from evalbias.runs.journal import Journal


class CachedScorer:
    """Scores of outputs, remembered.

    Args:
        source: Who is asked.
        log: A JSONL file that keeps the scores, so that a stopped run asks nothing again; None keeps them in memory.
            Scores of another source that stand there are left alone.

    Attributes:
        failed: Item -> what the source raised; its outputs are undefined (NaN), and asked about again by a later run.
    """

    def __init__(self, source: FeedbackSource, log: Path | None = None) -> None:
        self.source = source
        self.failed: dict[str, str] = {}
        self._log = log
        self._by = digest(describe(source))
        told = [r for r in (Journal(log).read() if log is not None else []) if r["by"] == self._by]
        self._known = {(r["item"], r["output"]): math.nan if r["score"] is None else r["score"] for r in told}

    def __call__(self, example: Mapping[str, Any], output: str) -> float:
        """The score of an output for an example with ``id``; NaN where it is undefined."""
        key = (digest(dict(example.items())), output)
        if not output.strip():
            return math.nan
        if key not in self._known:
            try:
                self._known[key] = validated(self.source, self.source(example, output)).score
            except Exception as error:  # any source of the user's may raise anything; the item is reported by its id
                self.failed[str(example["id"])] = f"{type(error).__name__}: {error}"
                return math.nan
            self._keep(key)
        return self._known[key]

    def _keep(self, key: tuple[str, str]) -> None:
        if self._log is None:
            return
        score = self._known[key]
        record = {"item": key[0], "output": key[1], "by": self._by, "score": None if math.isnan(score) else score}
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
