"""A writer without a model: wordings from the grammar, in whatever form DSPy's optimizers ask for them.

With it every search draws from the same wordings, so that only how they choose is compared.
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
    """Answers every request with the next wording."""

    def __init__(self, proposer: GrammarParaphraser, criterion: Criterion) -> None:
        self._wordings = (
            text for seed in itertools.count() for text in proposer(criterion, "", 1, known=(), seed=seed).instructions
        )

    def complete(self, request: lm15.Request) -> lm15.Response:
        """The wording as every field that is asked for, in the form that DSPy's adapter asked for."""
        asked = (request.messages[-1].text or "").rpartition("Respond with")[2]
        wording = next(self._wordings)
        if "JSON object" in asked:
            answer = json.dumps(dict.fromkeys(JSON_FIELD.findall(asked), wording))
        else:
            fields = [name for name in FIELD.findall(asked) if name != "completed"]
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
        """Nothing to keep."""
        return {}


def grammar_writer(proposer: GrammarParaphraser, criterion: Criterion) -> dspy.LM:
    """The writer as DSPy wants it."""
    return dspy.LM("local/grammar", engine=GrammarEngine(proposer, criterion), cache=False)
