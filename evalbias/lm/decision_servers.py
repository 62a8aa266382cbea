"""Servers that answer closed questions with probabilities, and write nothing: what is sent, and how answers are read.

The server words the final prompt itself, and a chat model behind it is read by the letters that stand before the
options. The numbers are therefore those of another prompt than the one that a token endpoint scores.
"""

from __future__ import annotations

import itertools
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dspy
import numpy as np

from evalbias.lm import types
from evalbias.lm.calls import HARMLESS
from evalbias.lm.dialect import Dialect, Endpoint, spelling_refused
from evalbias.lm.fingerprint import DIGITS, SAMPLE_QUESTION, sample_of
from evalbias.lm.reading import Unreadable, answer_of, part, probability
from evalbias.lm.render import Prepared, as_text
from evalbias.lm.tokens import check_choices
from evalbias.lm.transport import CLOUDFLARE, StatusError
from evalbias.lm.types import Answers, ChoiceLogprobs, Choices, Decided, Decision, Decisions, Question, Refused
from evalbias.measures.arrays import FloatArray

MOST_OPTIONS, LEVELS = 255, 10  # options of a choice, and levels of a score, that an endpoint takes at most
MASSES = ("coverage", "x_label_mass", "label_mass")
"""Names for how probable the options are together: of ``DecidingLM``, of SGLang, of vLLM and ``/v1/decisions``."""

# A question as each endpoint takes it.


def state_text(state: Any) -> str:
    """Return a state, or a description, as one text: JSON where it is none."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False, default=str)


def _described(question: Decision, key: str) -> list[dict[str, Any]]:
    """Return each option under a key, with its description where it has one."""
    options = question.options.items()
    return [{key: label} if meaning is None else {key: label, "description": meaning} for label, meaning in options]


def _levels(question: Decision) -> list[Any]:
    return [label if meaning is None else meaning for label, meaning in question.options.items()]


def _yes_and_no(question: Decision, yes: str, no: str) -> dict[str, Any]:
    """Return the descriptions of yes and no under an endpoint's words for them, where they have one."""
    meanings = dict(zip((no, yes), question.options.values(), strict=True))
    return {word: meanings[word] for word in (yes, no) if meanings[word] is not None}


def systemone_form(question: Decision) -> dict[str, Any]:
    """Return a question in the form of ``/v1/systemone``, which is also that of DSPy's decision requests."""
    form = {"type": question.kind, "instructions": question.instructions}
    if question.kind == "noul":
        described = _yes_and_no(question, "true", "false")
        return form | ({"criteria": described} if described else {})
    return form | {"criteria": question.options if question.kind == "choice" else _levels(question)}


def openai_form(question: Decision) -> dict[str, Any]:
    """Return a question in OpenAI's form; its yes/no question has no descriptions, so they follow the instructions."""
    instructions = state_text(question.instructions)
    if question.kind == "noul":
        lines = [f"{word}: {state_text(said)}" for word, said in _yes_and_no(question, "Yes", "No").items()]
        return {"type": "predicate", "instructions": "\n".join([instructions, *lines])}
    key, name = ("levels", "label") if question.kind == "score" else ("choices", "value")
    return {"type": question.kind, "instructions": instructions, key: _described(question, name)}


def sglang_form(question: Decision) -> dict[str, Any]:
    """Return a question in SGLang's form of ``/v1/decisions``."""
    form: dict[str, Any] = {"type": question.kind, "question": state_text(question.instructions)}
    if question.kind == "choice":
        return form | {"options": _described(question, "name")}
    if question.kind == "score":
        return form | {"levels": [*map(state_text, _levels(question))]}
    said = _yes_and_no(question, "yes", "no")
    return {**form, "type": "yes_no", **{word: state_text(meaning) for word, meaning in said.items()}}


# Its answer, in the form of any of them.


def named_questions(questions: Sequence[Decision]) -> dict[str, Decision]:
    """Return the questions of a request by name, with a number where an earlier one has the same."""
    named: dict[str, Decision] = {}
    for question in questions:
        numbered = (f"{question.name}_{number}" for number in itertools.count(2))
        named[next(name for name in itertools.chain([question.name], numbered) if name not in named)] = question
    return named


def read_answers(
    answers: Any, named: Mapping[str, Decision], forms: Mapping[str, Mapping[str, Any]], *, model: str
) -> Decided:
    """Return the answers to the questions of a request, or raise ``Unreadable``; ``forms`` are these as sent.

    The place of an answer in a list shows nothing: only the answer to a single question may lack its name.
    """
    if isinstance(answers, list) and len(answers) == len(forms) == 1 and is_nameless(answers):
        answers = dict.fromkeys(forms, answers[0])
    if isinstance(answers, list):
        pairs = [(part(answer, "name", kind=str), answer) for answer in answers]
    else:
        pairs = [*part(answers, kind=dict).items()]
    if sorted(name for name, _ in pairs) != sorted(forms):
        raise Unreadable(f"its answers are to {[name for name, _ in pairs]!r:.200}, the questions {[*forms]!r:.200}")
    read = dict[str, ChoiceLogprobs | Refused]()
    for name, answer in pairs:
        kind, asked = part(answer, kind=dict).get("type"), forms[name]["type"]
        if kind not in (None, "refusal", asked):
            raise Unreadable(f"the answer to {name!r:.80} is of the type {kind!r:.80}, the question of {asked!r}")
        if kind == "refusal":
            read[name] = Refused(f"is refused by {model}: the model declined the question.")
        else:
            mass = next((answer[key] for key in MASSES if answer.get(key) is not None), None)
            read[name] = answer_of(named[name].choices, _shares(named[name], answer), mass)
    return Decided(tuple(read[name] for name in named))


def is_nameless(answers: Sequence[Any]) -> bool:
    """Return whether an answer of a list does not say to which question it is."""
    return any(part(answer, kind=dict).get("name") is None for answer in answers)


def _shares(question: Decision, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reported probability of each label."""
    labels = question.choices
    if question.kind == "noul":  # P(yes) of /v1/systemone and OpenAI, both of SGLang
        yes = next((answer[key] for key in ("noul", "probability") if answer.get(key) is not None), None)
        if yes is None:
            return {
                label: part(answer, "probabilities", word) for label, word in zip(labels, ("no", "yes"), strict=True)
            }
        return dict(zip(labels, (1.0 - probability(yes), probability(yes)), strict=True))
    shares = part(answer, "probabilities")
    if isinstance(shares, list):  # OpenAI's
        key = "label" if question.kind == "score" else "value"
        by_label = {part(entry, key, kind=str): part(entry, "probability") for entry in shares}
        if len(by_label) < len(shares):
            raise Unreadable("the probabilities name an option twice")
        return by_label
    shares = {str(name): share for name, share in part(shares, kind=dict).items()}
    if question.kind == "score":  # a level is named by its number from 0, its description or its label
        for names in (map(str, range(len(labels))), map(state_text, question.options.values())):
            places = dict(zip(labels, names, strict=True))
            if {*places.values()} == {*shares}:
                return {label: shares[name] for label, name in places.items()}
    return shares


# Several questions about one state go in one request.


class Passed(dict[int, Any]):
    """The answers of a call, each of which ``pass_on`` gets with its place as it comes."""

    def __init__(self, pass_on: Callable[[int, Any], None]) -> None:
        super().__init__()
        self._pass_on = pass_on

    def __setitem__(self, place: int, answer: Any) -> None:
        super().__setitem__(place, answer)
        self._pass_on(place, answer)


def together(questions: Sequence[Question], answers: Answers, most: int) -> tuple[list[Any], Passed]:
    """Return the requests of a call and where their answers go: decisions about one state are one, of ``most`` each.

    The tokens of a request count for the first of its questions that has an answer.
    """
    groups: dict[Any, list[int]] = {}  # a question's place, or the state and number of a request -> places
    for place, question in enumerate(questions):
        key: Any = place
        if isinstance(question, Decision):
            state = json.dumps(question.prompt, default=str)
            key = next(key for number in itertools.count() if len(groups.get(key := (state, number), ())) < most)
        groups.setdefault(key, []).append(place)
    requests = [
        Decisions(tuple(questions[place] for place in places)) if isinstance(key, tuple) else questions[key]  # type: ignore[misc]
        for key, places in groups.items()
    ]
    places_of = [*groups.values()]

    def pass_on(number: int, answer: Any) -> None:
        usage = getattr(answer, "usage", None)
        of_each = answer.answers if isinstance(answer, Decided) else [answer] * len(places_of[number])
        for place, own in zip(places_of[number], of_each, strict=True):
            if isinstance(answer, Decided) and isinstance(own, ChoiceLogprobs):
                own, usage = replace(own, usage=usage), None
            answers[place] = own

    return requests, Passed(pass_on)


# The endpoints, as dialects of servers.


class DecisionDialect(Dialect):
    """A server that takes closed questions about a state, and returns the probability of every option."""

    capabilities = "closed questions with the probability of every option, no likelihoods, no texts"
    needs_tokenizer = False
    likelihoods = False
    texts = False
    decides = True
    path: str
    form: Callable[[Decision], dict[str, Any]]  # of a question as it is sent

    async def probe(self) -> None:
        await self._ask_one(Decision(HARMLESS, ("1", "2")))

    async def sample(self) -> FloatArray:
        """Return the sample of the answers to a fixed question."""
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
        for one in posed.questions:
            check_choices(one.choices)
            most, options = (LEVELS, "levels") if one.kind == "score" else (MOST_OPTIONS, "options")
            if len(one.choices) > most:
                raise ValueError(
                    f"The question {one.name!r:.80} has {len(one.choices)} {options}, and {self._model} takes at most "
                    f"{most}: give the criterion a shorter scale, or compare fewer candidates."
                )
        state = state_text(posed.questions[0].prompt)
        return spelling_refused([state]) or Prepared(posed, posed, state.encode("utf-8", "surrogatepass"))

    async def _decide(self, decisions: Decisions) -> Decided:
        named = named_questions(decisions.questions)
        forms = {name: self.form(question) for name, question in named.items()}
        answer = part(await self._post(self.path, self._body(decisions.questions[0].prompt, forms)), kind=dict)
        reported = part(answer, "answers")
        if isinstance(reported, list) and is_nameless(reported):
            self.most_questions = 1  # from now on, since nothing tells the answers to several apart
        elif isinstance(reported, dict):  # vLLM has the mass of the options beside the answers
            beside = part(answer.get("diagnostics") or {}, kind=dict)
            reported = {
                name: part(beside.get(name) or {}, kind=dict) | part(own, kind=dict) for name, own in reported.items()
            }
        return read_answers(reported, named, forms, model=self._model)

    @abstractmethod
    def _body(self, state: Any, forms: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the request that asks named questions about a state."""


class SystemOne(DecisionDialect):
    """``POST /v1/systemone``: hosted decision models, vLLM from 0.32 on, SGLang, Ollama and llama.cpp.

    vLLM (``label_mass``) and SGLang (``x_label_mass``) report how probable the options are together; without, the
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

    def _body(self, state: Any, forms: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        return {"model": self._model, "state": state, "questions": forms}


class DecisionsEndpoint(DecisionDialect):
    """``POST /v1/decisions``, in OpenAI's form and in SGLang's: a list of questions about an ``input``.

    OpenAI reports the options' shares only, so the coverage is NaN, and may decline a question. SGLang names the fields
    of a question differently, and reports as ``label_mass`` how probable the options are together, but not for
    decision models. A server whose answers name no question is asked one question in a request. A state that is no text
    is sent as its JSON.
    """

    name = "decisions"
    path = "/v1/decisions"
    most_questions = 400
    form = staticmethod(openai_form)

    async def probe(self) -> None:
        """Ask one short question in OpenAI's form, and in SGLang's if that is refused."""
        try:
            await super().probe()
        except StatusError as error:
            if error.status not in (400, 422):
                raise
            self.form = sglang_form
            await super().probe()

    def _body(self, state: Any, forms: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        key = "id" if self.form is sglang_form else "name"
        posed = [{key: name, **form} for name, form in forms.items()]
        return {"model": self._model, "input": state_text(state), "questions": posed}


# DSPy's clients of such servers, which take decision requests and no others.


def decides(lm: Any) -> bool:
    """Return whether a client takes decision requests and no others, such as ``dspy.TypeSafe``."""
    return getattr(lm, "supports_decision_requests", False) is True and not isinstance(lm, dspy.BaseLM)


def answering_models(client: Any, after: Any) -> list[str]:
    """Return the models that answered a client's decision requests after an entry of its history, as that tells."""
    entries = itertools.takewhile(lambda entry: entry is not after, reversed(getattr(client, "history", ())))
    responses = [entry.get("response") for entry in entries][::-1]
    return list(dict.fromkeys(str(response["model"]) for response in responses if isinstance(response, dict)))


def client_error(error: Exception, model: str) -> dspy.LMError:
    """Return the error of a decision client as one of DSPy's: an invalid request where its status may mean that."""
    status = getattr(error, "status", None)
    kind = dspy.LMInvalidRequestError if status in types.STATUSES else dspy.LMError
    return kind(message=str(error), model=model, status=status)
