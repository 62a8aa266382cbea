"""Dialects of servers that answer closed questions with probabilities, and write no text.

The server writes the final prompt itself; if a chat model is behind it, the model is read by the letters before the
options. The numbers are therefore those of another prompt than a token endpoint scores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from evalbias.lm.calls import HARMLESS
from evalbias.lm.decisions import (
    LEVELS,
    Form,
    is_nameless,
    named_questions,
    openai_form,
    read_answers,
    state_text,
    systemone_form,
)
from evalbias.lm.dialect import Dialect, Endpoint, spelling_refused
from evalbias.lm.fingerprint import DIGITS, SAMPLE_QUESTION, sample_of
from evalbias.lm.reading import Unreadable, part
from evalbias.lm.render import Prepared, as_text
from evalbias.lm.tokens import check_choices
from evalbias.lm.transport import CLOUDFLARE
from evalbias.lm.types import ChoiceLogprobs, Choices, Decided, Decision, Decisions, Refused
from evalbias.measures.arrays import FloatArray

MOST_OPTIONS = 255  # most options of a choice that an endpoint takes


class DecisionDialect(Dialect):
    """A server that takes closed questions about a state, and returns the probability of every option."""

    capabilities = "closed questions with the probability of every option, no likelihoods, no texts"
    needs_tokenizer = False
    likelihoods = False
    texts = False
    decides = True
    path: str
    form: Callable[[Decision], Form]  # makes the form in which a question is sent

    async def probe(self) -> None:
        await self._ask_one(Decision(HARMLESS, ("1", "2")))

    async def sample(self) -> FloatArray:
        return sample_of(np.exp((await self._ask_one(Decision(SAMPLE_QUESTION, DIGITS))).logprobs[0]))

    async def _ask_one(self, question: Decision) -> ChoiceLogprobs:
        (answer,) = (await self._decide(Decisions((question,)))).answers
        if isinstance(answer, Refused):
            raise Unreadable(f"a short question {answer.reason}")
        return answer

    def _checked(self, question: Any) -> Prepared | Refused:
        if isinstance(question, Choices) and not isinstance(question, Decision):  # a prompt, which becomes the state
            question = Decision(as_text(question.prompt).text.rstrip(), question.choices)
        posed = question if isinstance(question, Decisions) else Decisions((question,))
        for decision in posed.questions:
            check_choices(decision.choices)
            most, options = (LEVELS, "levels") if decision.kind == "score" else (MOST_OPTIONS, "options")
            if len(decision.choices) > most:
                raise ValueError(
                    f"The question {decision.name!r:.80} has {len(decision.choices)} {options}, and {self._model} "
                    f"takes at most {most}: give the criterion a shorter scale, or compare fewer candidates."
                )
        state = state_text(posed.questions[0].prompt)
        return spelling_refused([state]) or Prepared(posed, posed, state.encode("utf-8", "surrogatepass"))

    async def _decide(self, decisions: Decisions) -> Decided:
        named = named_questions(decisions.questions)
        forms = {name: self.form(question) for name, question in named.items()}
        answer = part(await self._post(self.path, self._body(decisions.questions[0].prompt, forms)), kind=dict)
        reported = part(answer, "answers")
        if isinstance(reported, list) and is_nameless(reported):
            self.most_questions = 1  # from now on, because several answers could not be matched to questions
        elif isinstance(reported, dict):  # vLLM has the mass of the options beside the answers
            beside = part(answer.get("diagnostics") or {}, kind=dict)
            reported = {
                name: part(beside.get(name) or {}, kind=dict) | part(own, kind=dict) for name, own in reported.items()
            }
        return read_answers(reported, named, forms, model=self._model)

    @abstractmethod
    def _body(self, state: Any, forms: Mapping[str, Form]) -> dict[str, Any]:
        """Return the request that asks named questions about a state."""


class SystemOne(DecisionDialect):
    """``POST /v1/systemone``: hosted decision models, vLLM from 0.32 on, SGLang, Ollama and llama.cpp.

    vLLM (``label_mass``) and SGLang (``x_label_mass``) report the total probability of the options; without it, the
    coverage is NaN.
    """

    name = "systemone"
    most_questions = 64
    form = staticmethod(systemone_form)

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.path = "" if endpoint.connection.base_url.startswith(CLOUDFLARE) else "/v1/systemone"

    def _opened(self, answer: Any) -> Any:
        return answer.get("result", answer) if not self.path and isinstance(answer, dict) else answer

    def _body(self, state: Any, forms: Mapping[str, Form]) -> dict[str, Any]:
        return {"model": self._model, "state": state, "questions": forms}


class DecisionsEndpoint(DecisionDialect):
    """OpenAI's ``POST /v1/decisions``: a list of questions about an ``input``, any of which it may decline.

    It reports the options' shares only, so the coverage is NaN. A server whose answers name no question gets a single
    question per request. A state that is not a text is sent as JSON.
    """

    name = "decisions"
    path = "/v1/decisions"
    most_questions = 400
    form = staticmethod(openai_form)

    def _body(self, state: Any, forms: Mapping[str, Form]) -> dict[str, Any]:
        posed = [{"name": name, **form} for name, form in forms.items()]
        return {"model": self._model, "input": state_text(state), "questions": posed}
