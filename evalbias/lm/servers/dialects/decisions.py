"""``POST /v1/decisions``, in OpenAI's form and in SGLang's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalbias.lm.refusals import HARMLESS
from evalbias.lm.servers.answers import part
from evalbias.lm.servers.dialects.base import Endpoint
from evalbias.lm.servers.dialects.question import NAME, QUESTION, QuestionDialect, answer_of
from evalbias.lm.servers.errors import Declined, StatusError, Unreadable
from evalbias.lm.types import ChoiceLogprobs


class Decisions(QuestionDialect):
    """A server that answers a list of questions about an ``input``.

    OpenAI reports the options' shares only, so the coverage is NaN, and may decline a question. SGLang names the fields
    of a question differently and reports as ``label_mass`` how probable the options are together.
    """

    name = "decisions"

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._sglang = False  # found out by ``probe``

    @classmethod
    async def probe(cls, endpoint: Endpoint) -> QuestionDialect:
        """Ask one short question in OpenAI's form, and in SGLang's if that is refused; see ``Dialect``."""
        try:
            return await super().probe(endpoint)
        except StatusError as error:
            if error.status not in (400, 422):
                raise
        dialect = cls(endpoint)
        dialect._sglang = True
        await dialect.ask(HARMLESS, ("1", "2"))
        return dialect

    async def ask(self, text: str, choices: tuple[str, ...]) -> ChoiceLogprobs:
        """Ask one ``choice`` question; see ``QuestionDialect``."""
        question = _sglang_question(choices) if self._sglang else _openai_question(choices)
        body = {"model": self._model, "input": text, "questions": [question]}
        answer = await self._post("/v1/decisions", body)
        if self._sglang:
            given = part(answer, "answers", NAME, kind=dict)
            return answer_of(choices, part(given, "probabilities", kind=dict), part(given, "label_mass"))
        given = part(answer, "answers", 0, kind=dict)
        if given.get("type") == "refusal":
            raise Declined("the model declined the question")
        return answer_of(choices, _shares(part(given, "probabilities", kind=list)))


def _openai_question(choices: Sequence[str]) -> dict[str, Any]:
    options = [{"value": choice} for choice in choices]
    return {"type": "choice", "name": NAME, "instructions": QUESTION, "choices": options}


def _sglang_question(choices: Sequence[str]) -> dict[str, Any]:
    return {"type": "choice", "id": NAME, "question": QUESTION, "options": [{"name": choice} for choice in choices]}


def _shares(entries: Sequence[Any]) -> Mapping[str, Any]:
    """Return OpenAI's list of values and probabilities as a mapping.

    Raises:
        Unreadable: A value is repeated, or an entry has another form.
    """
    shares = {part(entry, "value", kind=str): part(entry, "probability") for entry in entries}
    if len(shares) < len(entries):
        raise Unreadable("the probabilities name an option twice")
    return shares
