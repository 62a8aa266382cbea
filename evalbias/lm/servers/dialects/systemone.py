"""``POST /v1/systemone``: vLLM from 0.32 on, SGLang, and the hosted decision models that take the same requests."""

from __future__ import annotations

from evalbias.lm.servers.answers import part
from evalbias.lm.servers.dialects.question import NAME, QUESTION, QuestionDialect, answer_of
from evalbias.lm.types import ChoiceLogprobs


class SystemOne(QuestionDialect):
    """A server that answers questions about a ``state``.

    vLLM reports as ``label_mass`` how probable the options are together; without it, the coverage is NaN.
    """

    name = "systemone"

    async def ask(self, text: str, choices: tuple[str, ...]) -> ChoiceLogprobs:
        """Ask one ``choice`` question; see ``QuestionDialect``."""
        question = {"type": "choice", "instructions": QUESTION, "criteria": dict.fromkeys(choices)}
        body = {"model": self._model, "state": text, "questions": {NAME: question}}
        answer = await self._post("/v1/systemone", body)
        shares = part(answer, "answers", NAME, "probabilities", kind=dict)
        diagnostics = part(answer, kind=dict).get("diagnostics")
        coverage = None if diagnostics is None else part(diagnostics, NAME, "label_mass")
        return answer_of(choices, shares, coverage)
