"""Scores of a loop's outputs by a source outside the loop; every distinct output is scored once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalbias.programs.feedback.source import FeedbackSource, validated
from evalbias.runs.fingerprint import describe, digest
from evalbias.runs.journal import Journal
from evalbias.runs.values import number


class CachedScorer:
    """A feedback source whose scores are remembered.

    Args:
        source: Source to ask.
        log: JSONL file that keeps the scores, so that a stopped run asks nothing again; None keeps them in memory.
            Scores of another source in the same file are ignored.

    Attributes:
        failed: Item -> error that the source raised. Its outputs are undefined (NaN); a later run asks again.
    """

    def __init__(self, source: FeedbackSource, log: Path | None = None) -> None:
        self.source = source
        self.failed: dict[str, str] = {}
        self._journal = None if log is None else Journal(log)
        self._identity = digest(describe(source))
        records = self._journal.read("item", "output", "by", "score") if self._journal else []
        self._scores = {(r["item"], r["output"]): number(r["score"]) for r in records if r["by"] == self._identity}

    def __call__(self, example: Mapping[str, Any], output: str) -> float:
        """Return the score of an output for an example with ``id``; NaN where it is undefined."""
        key = (digest(dict(example.items()), 64), output)
        if not output.strip():
            return math.nan
        if (older := (key[0][:16], output)) in self._scores:  # older logs have the first 16 digits
            return self._scores[older]
        if key not in self._scores:
            try:
                score = validated(self.source, self.source(example, output)).score
            except Exception as error:  # a user's source may raise anything; the item is reported by its id
                self.failed[str(example["id"])] = f"{type(error).__name__}: {error}"
                return math.nan
            self._scores[key] = score
            if self._journal:
                self._journal.append([{"item": key[0], "output": output, "by": self._identity, "score": score}])
        return self._scores[key]
