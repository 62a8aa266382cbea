"""Decision endpoints: servers that take closed questions about a state, and return the probability of every option.

The server words the final prompt itself, and a chat model behind it is read by the letters that stand before the
options. The numbers are therefore those of another prompt than the one that a token endpoint scores.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from evalbias.lm import forms
from evalbias.lm.calls import HARMLESS
from evalbias.lm.dialect import Dialect, Endpoint, spelling_refused
from evalbias.lm.fingerprint import DIGITS, SAMPLE_QUESTION, sample_of
from evalbias.lm.forms import LEVELS, answer_of, mass_in, names_of, openai_form, sglang_form, sglang_shares, state_text
from evalbias.lm.reading import Unreadable, part
from evalbias.lm.render import Prepared, as_text
from evalbias.lm.tokens import check_choices
from evalbias.lm.transport import CLOUDFLARE, StatusError, refusal_by
from evalbias.lm.types import STATUSES, ChoiceLogprobs, Choices, Decided, Decision, Decisions, Question, Refused
from evalbias.measures.arrays import FloatArray


class DecisionDialect(Dialect):
    """A server that answers closed questions with probabilities, and writes nothing."""

    capabilities = "closed questions with the probability of every option, no likelihoods, no texts"
    needs_tokenizer = False
    likelihoods = False
    texts = False
    decides = True
    most_options: ClassVar[int] = 255
    owner_options: ClassVar[Mapping[str, int]] = {"vllm": 26}  # ``owned_by`` -> options that its letters allow
    owner_bytes: ClassVar[Mapping[str, int]] = {"library": 1 << 16}  # Ollama refuses longer states

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._options = self.owner_options.get(endpoint.owned_by or "", self.most_options)
        self._bytes = self.owner_bytes.get(endpoint.owned_by or "")

    async def probe(self) -> None:
        await self._ask_one(Decision(HARMLESS, ("1", "2")))

    async def sample(self) -> FloatArray:
        """Return the sample of the answers to a fixed question."""
        return sample_of(np.exp((await self._ask_one(Decision(SAMPLE_QUESTION, DIGITS))).logprobs[0]))

    async def _ask_one(self, question: Decision) -> ChoiceLogprobs:
        (answer,) = await self._answers((question,))
        if isinstance(answer, Refused):
            raise Unreadable(f"a short question {answer.reason}")
        return answer

    def _checked(self, question: Question) -> Prepared | Refused:
        if isinstance(question, Choices) and not isinstance(question, Decision):  # a prompt, which becomes the state
            question = Decision(as_text(question.prompt).text.rstrip(), question.choices)
        asked = question if isinstance(question, Decisions) else Decisions((question,))  # type: ignore[arg-type]
        for one in asked.questions:
            check_choices(one.choices)
            most, options = (LEVELS, "levels") if one.kind == "score" else (self._options, "options")
            if len(one.choices) > most:
                raise ValueError(
                    f"The question {one.name!r:.80} has {len(one.choices)} {options}, and {self._model} takes at most "
                    f"{most}: give the criterion a shorter scale, or compare fewer candidates."
                )
        if self._bytes is not None and (size := max(self._size((one,)) for one in asked.questions)) > self._bytes:
            return Refused(f"takes a request of {size} bytes, but the server takes {self._bytes}.", too_long=True)
        state = state_text(asked.questions[0].prompt)
        return spelling_refused([state]) or Prepared(asked, asked, state.encode("utf-8", "surrogatepass"))

    async def _decide(self, asked: Decisions) -> Decided:
        """Ask all questions in one request, or, where it is too long or refused, each in a request of its own."""
        if self._bytes is None or self._size(asked.questions) <= self._bytes:
            try:
                return Decided(tuple(await self._answers(asked.questions)))
            except StatusError as error:
                if len(asked.questions) == 1 or error.status not in STATUSES:
                    raise
        answers: list[ChoiceLogprobs | Refused] = []
        for one in asked.questions:
            try:
                answers += await self._answers((one,))
            except StatusError as error:
                answered = any(isinstance(answer, ChoiceLogprobs) for answer in answers)
                if error.status not in STATUSES or (one is asked.questions[-1] and not answered):
                    raise
                answers.append(refusal_by(self._model, error))
        return Decided(tuple(answers))

    def _size(self, questions: Sequence[Decision]) -> int:
        return len(json.dumps(self._body(questions)))  # bytes, as JSON is sent in ASCII

    @abstractmethod
    def _body(self, questions: Sequence[Decision]) -> dict[str, Any]:
        """Return the request that asks questions about one state."""

    @abstractmethod
    async def _answers(self, questions: Sequence[Decision]) -> list[ChoiceLogprobs | Refused]:
        """Return the answers to questions about one state."""


class SystemOne(DecisionDialect):
    """``POST /v1/systemone``: hosted decision models, vLLM from 0.32 on, SGLang, Ollama and llama.cpp.

    vLLM (``label_mass``) and SGLang (``x_label_mass``) report how probable the options are together; without, the
    coverage is NaN.
    """

    name = "systemone"
    most_questions = 64

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._path = "" if endpoint.connection.base_url.startswith(CLOUDFLARE) else "/v1/systemone"

    def _opened(self, answer: Any) -> Any:
        return answer.get("result", answer) if not self._path and isinstance(answer, dict) else answer

    def _body(self, questions: Sequence[Decision]) -> dict[str, Any]:
        by_name = {name: forms.systemone_form(one) for name, one in zip(names_of(questions), questions, strict=True)}
        return {"model": self._model, "state": questions[0].prompt, "questions": by_name}

    async def _answers(self, questions: Sequence[Decision]) -> list[ChoiceLogprobs | Refused]:
        answer = await self._post(self._path, self._body(questions))
        diagnostics = part(part(answer, kind=dict).get("diagnostics") or {}, kind=dict)
        found: list[ChoiceLogprobs | Refused] = []
        for name, one in zip(names_of(questions), questions, strict=True):
            given, more = part(answer, "answers", name, kind=dict), part(diagnostics.get(name) or {}, kind=dict)
            found.append(answer_of(one.choices, forms.systemone_shares(one, given), mass_in(more | given)))
        return found


class DecisionsEndpoint(DecisionDialect):
    """``POST /v1/decisions``, in OpenAI's form and in SGLang's: a list of questions about an ``input``.

    OpenAI reports the options' shares only, so the coverage is NaN, and may decline a question. SGLang names the fields
    of a question differently, and reports as ``label_mass`` how probable the options are together, but not for
    decision models. A state that is no text is sent as its JSON.
    """

    name = "decisions"
    most_questions = 400
    owner_options: ClassVar[Mapping[str, int]] = {"sglang": 26}

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._sglang = False  # found out by ``probe``

    async def probe(self) -> None:
        """Ask one short question in OpenAI's form, and in SGLang's if that is refused."""
        try:
            await super().probe()
        except StatusError as error:
            if error.status not in (400, 422):
                raise
            self._sglang = True
            await super().probe()

    def _body(self, questions: Sequence[Decision]) -> dict[str, Any]:
        form = sglang_form if self._sglang else openai_form
        asked = [form(name, one) for name, one in zip(names_of(questions), questions, strict=True)]
        return {"model": self._model, "input": state_text(questions[0].prompt), "questions": asked}

    async def _answers(self, questions: Sequence[Decision]) -> list[ChoiceLogprobs | Refused]:
        names, answer = names_of(questions), await self._post("/v1/decisions", self._body(questions))
        read = sglang_shares if self._sglang else forms.openai_shares
        found: list[ChoiceLogprobs | Refused] = []
        for place, (name, one) in enumerate(zip(names, questions, strict=True)):
            given = part(answer, "answers", name if self._sglang else place, kind=dict)
            if given.get("type") == "refusal":
                found.append(Refused(f"is refused by {self._model}: the model declined the question."))
            else:
                found.append(answer_of(one.choices, read(one, given), mass_in(given)))
        return found
