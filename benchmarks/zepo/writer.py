"""A writer without a model: it answers DSPy's optimizers with wordings from the grammar, in the format they ask for.

All searches then draw from the same wordings and differ only in how they choose.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import dspy
from dspy import lm15

from evalbias.optimizers import GrammarParaphraser
from evalbias.programs import Criterion

FIELD = re.compile(r"\[\[ ## (\w+) ## \]\]")
JSON_FIELD = re.compile(r"`(\w+)`")


class GrammarEngine:
    """Engine that answers every request with the next wording."""

    def __init__(self, proposer: GrammarParaphraser, criterion: Criterion) -> None:
        self._wordings = (
            text for seed in itertools.count() for text in proposer(criterion, "", 1, known=(), seed=seed).instructions
        )

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the next wording as the value of every requested field, in the format of DSPy's adapter."""
        output_format = (request.messages[-1].text or "").rpartition("Respond with")[2]
        wording = next(self._wordings)
        if "JSON object" in output_format:
            answer = json.dumps(dict.fromkeys(JSON_FIELD.findall(output_format), wording))
        else:
            fields = [name for name in FIELD.findall(output_format) if name != "completed"]
            text = "".join(f"[[ ## {name} ## ]]\n{wording}\n\n" for name in dict.fromkeys(fields))
            answer = f"{text}[[ ## completed ## ]]"
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(answer),
            finish_reason="stop",
            usage=lm15.Usage(input_tokens=0, output_tokens=0, total_tokens=0),
        )

    def dump_state(self) -> dict[str, Any]:
        """Return an empty state: the engine has none."""
        return {}


def grammar_writer(proposer: GrammarParaphraser, criterion: Criterion) -> dspy.LM:
    """Return the writer as a DSPy language model."""
    return dspy.LM("local/grammar", engine=GrammarEngine(proposer, criterion), cache=False)
