"""Closed questions: DSPy's decision outputs and requests, and their forms for endpoints and clients."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import dspy

from evalbias.lm import dspy_seam as seam
from evalbias.lm.dspy_seam import Choice, Noul, Score, decision_type, in_thread
from evalbias.lm.reading import Unreadable, answer_of, part, probability
from evalbias.lm.types import Answers, ChoiceLogprobs, Decided, Decision, Decisions, Message, Question, Refused

LEVELS = 10  # most levels of a score that an endpoint takes
MASSES = ("coverage", "x_label_mass", "label_mass")
"""Names of the options' total probability: in ``DecidingLM``, in SGLang, in vLLM and ``/v1/decisions``."""

# Form of a question for each endpoint.

Form = dict[str, Any]  # a question as an endpoint's JSON has it


def state_text(state: Any) -> str:
    """Return a state or description as a text: unchanged if it is a text, else as JSON."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False, default=str)


def _yes_and_no(question: Decision, yes: str, no: str) -> dict[str, Any]:
    """Return the descriptions of yes and no, as far as they have one, by an endpoint's words for yes and no."""
    meanings = dict(zip((no, yes), question.options.values(), strict=True))
    return {word: meanings[word] for word in (yes, no) if meanings[word] is not None}


def systemone_form(question: Decision) -> Form:
    """Return a question in the form of ``/v1/systemone``, which is also that of DSPy's decision requests."""
    form = {"type": question.kind, "instructions": question.instructions}
    if question.kind == "noul":
        described = _yes_and_no(question, "true", "false")
        return form | ({"criteria": described} if described else {})
    levels = [label if meaning is None else meaning for label, meaning in question.options.items()]
    return form | {"criteria": question.options if question.kind == "choice" else levels}


def openai_form(question: Decision) -> Form:
    """Return a question in OpenAI's form; its yes/no question has no descriptions, so they follow the instructions."""
    instructions = state_text(question.instructions)
    if question.kind == "noul":
        lines = [f"{word}: {state_text(meaning)}" for word, meaning in _yes_and_no(question, "Yes", "No").items()]
        return {"type": "predicate", "instructions": "\n".join([instructions, *lines])}
    key, name = ("levels", "label") if question.kind == "score" else ("choices", "value")
    options = question.options.items()
    described = [
        {name: label} if meaning is None else {name: label, "description": meaning} for label, meaning in options
    ]
    return {"type": question.kind, "instructions": instructions, key: described}


# Answers of endpoints, in any of these forms.


def named_questions(questions: Sequence[Decision]) -> dict[str, Decision]:
    """Return the questions of a request by name, with a number added to repeated names."""
    named: dict[str, Decision] = {}
    for question in questions:
        numbered = (f"{question.name}_{number}" for number in itertools.count(2))
        named[next(name for name in itertools.chain([question.name], numbered) if name not in named)] = question
    return named


def read_answers(answers: Any, named: Mapping[str, Decision], forms: Mapping[str, Form], *, model: str) -> Decided:
    """Return the answers to the questions of a request, or raise ``Unreadable``; ``forms`` are the sent questions.

    Answers in a list may be in any order: only the answer to a single question may lack its name.
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
        kind, expected = part(answer, kind=dict).get("type"), forms[name]["type"]
        if kind not in (None, "refusal", expected):
            raise Unreadable(f"the answer to {name!r:.80} is of the type {kind!r:.80}, the question of {expected!r}")
        if kind == "refusal":
            read[name] = Refused(f"is refused by {model}: the model declined the question.")
        else:
            mass = next((answer[key] for key in MASSES if answer.get(key) is not None), None)
            read[name] = answer_of(named[name].choices, _shares(named[name], answer), mass)
    return Decided(tuple(read[name] for name in named))


def is_nameless(answers: Sequence[Any]) -> bool:
    """Return whether any answer in a list lacks the name of its question."""
    return any(part(answer, kind=dict).get("name") is None for answer in answers)


def _shares(question: Decision, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reported probability of each label."""
    labels = question.choices
    if question.kind == "noul":
        yes = probability(part(answer, "noul" if "noul" in answer else "probability"))  # OpenAI's name is the latter
        return dict(zip(labels, (1.0 - yes, yes), strict=True))
    shares = part(answer, "probabilities")
    if isinstance(shares, list):  # OpenAI's
        key = "label" if question.kind == "score" else "value"
        by_label = {part(entry, key, kind=str): part(entry, "probability") for entry in shares}
        if len(by_label) < len(shares):
            raise Unreadable("the probabilities name an option twice")
        return by_label
    shares = {str(name): share for name, share in part(shares, kind=dict).items()}
    if question.kind == "score" and {*shares} == {*map(str, range(len(labels)))}:  # levels by number, from 0
        return {label: shares[str(level)] for level, label in enumerate(labels)}
    return shares


# Several questions about the same state go into one request.


class Passed(dict[int, Any]):
    """Answers of a call; ``pass_on`` receives each with its place as it comes."""

    def __init__(self, pass_on: Callable[[int, Any], None]) -> None:
        super().__init__()
        self._pass_on = pass_on

    def __setitem__(self, place: int, answer: Any) -> None:
        super().__setitem__(place, answer)
        self._pass_on(place, answer)


def by_state(questions: Sequence[Question], answers: Answers, most: int) -> tuple[list[Any], Passed]:
    """Return a call's requests, each with up to ``most`` decisions about the same state, and the target of answers.

    The tokens of a request count for its first answered question.
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


# Decision outputs and their values.


def is_decision(field: Any) -> bool:
    """Return whether an output field is declared as one of DSPy's decisions, with its options."""
    declared = any(
        isinstance(kind, type) and issubclass(kind, Noul | Score | Choice)
        for kind in (field.annotation, *field.metadata)
    )
    return declared and decision_type(field) is not None


def is_yes_or_no(field: Any) -> bool:
    """Return whether an output field is a decision between yes and no."""
    return is_decision(field) and issubclass(decision_type(field), Noul)


def is_decided(value: Any) -> bool:
    """Return whether a value of a prediction is one of DSPy's decisions."""
    return isinstance(value, Noul | Score | Choice)


def decided_number(value: Any) -> Any:
    """Return a decision as a number: P(yes), the mean level, or the mean of numeric options; others unchanged."""
    if isinstance(value, Noul):
        return float(value.value) if value.probability is None else value.probability
    if isinstance(value, Choice):
        shares = decided_shares(value)
        with suppress(TypeError, ValueError):
            return sum(float(label) * share for label, share in shares)
        return value.value
    return value.value if isinstance(value, Score) else value


def decided_shares(value: Any) -> list[tuple[Any, float]]:
    """Return (option, probability) of a choice; without probabilities, the chosen option with 1."""
    if isinstance(value, Choice):
        return [*(value.probabilities or {value.value: 1.0}).items()]
    return [(value, 1.0)]


# Decision requests.


class DecidingLM(dspy.LM):  # type: ignore[misc]
    """A ``dspy.LM`` whose engine measures judgments, and which therefore answers decision requests.

    A decision's ``probabilities`` are the options' measured probabilities, normalized over the options, and its
    ``confidence`` is the largest of them. Give decisions their own signature: beside other outputs the model
    writes all of them, and the probabilities that it writes are not measured. An item that the model cannot take raises
    DSPy's own error, which names the item; ``dspy.Evaluate`` counts it as one failure.
    """

    @property
    def supports_decision_requests(self) -> bool:
        """True if the predictor that is being called has decision outputs only, and outside of a call."""
        predictor = seam.calling_predictor()
        outputs = {} if predictor is None else predictor.signature.output_fields
        return all(is_decision(field) or name in predictor.fields for name, field in outputs.items())

    def __call__(self, prompt: Any = None, **kwargs: Any) -> Any:
        """Answer a prompt, a request, or a decision request (``state=..., questions=...``); see ``dspy.LM``."""
        return decided(self, **kwargs) if "questions" in kwargs else super().__call__(prompt, **kwargs)

    async def acall(self, prompt: Any = None, **kwargs: Any) -> Any:
        if "questions" not in kwargs:
            return await super().acall(prompt, **kwargs)
        return await in_thread(self, prompt, **kwargs)


def decided(lm: Any, state: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
    """Return DSPy's evidence for each output of a decision request, with its options' total probability, ``coverage``.

    A model that takes closed questions gets them; any other is asked for the option that follows a prompt.
    """
    posed, read = [question_in(state, *named) for named in questions.items()], dict[int, Any]()
    try:
        if lm.decides:
            lm.answer(posed, read)
        for place, question in enumerate(posed if not lm.decides else ()):
            request = seam.judgment_request(lm.model, decision_messages(question), question.choices)
            read[place] = seam.read_judgment(lm(request), question.choices)
        for answer in read.values():
            if isinstance(answer, Refused):
                raise dspy.LMInvalidRequestError(message=f"The prompt {answer.reason}", model=lm.model)
    except dspy.LMInvalidRequestError as error:  # it names the model only
        item = ", ".join(f"{name}={state_text(value)[:60]!r}" for name, value in state["inputs"].items())
        text = f"No decision about the item {item}: {error.message}"
        raise type(error)(message=text, model=error.model, status=error.status) from error
    evidence = {}
    for place, question in enumerate(posed):
        coverage = None if read[place].renormalized else float(read[place].coverage[0])
        p = dict(zip(question.choices, read[place].probabilities[0].tolist(), strict=True))
        shares = {"noul": p["true"]} if question.kind == "noul" else {"probabilities": p, "confidence": max(p.values())}
        evidence[question.name] = {**shares, "coverage": coverage}
    return evidence


def question_in(state: Any, name: str, question: Mapping[str, Any]) -> Decision:
    """Return a question of DSPy's decision requests, with its labels and their meanings; None without a meaning."""
    kind = question["type"]
    criteria: Any = question.get("criteria")  # None only where a boolean has no descriptions
    options = criteria
    if kind == "noul":
        options = {label: (criteria or {}).get(label) for label in ("false", "true")}
    if kind == "score":
        options = {str(level): meaning for level, meaning in enumerate(criteria)}
    return Decision(state, tuple(options), kind, question["instructions"], tuple(options.values()), name)


def decision_messages(question: Decision) -> list[Message]:
    """Render a question's prompt from DSPy's ``instructions``, ``input_fields``, ``inputs`` and optional ``demos``."""
    state: Any = question.prompt
    options = [*question.options.items()][:: -1 if question.kind == "noul" else 1]  # true comes first
    lines = [str(state["instructions"]), "", str(state["input_fields"]), ""]
    lines.append(f"{question.name}: {state_text(question.instructions)}")
    lines += [f"- {label}" if meaning is None else f"- {label}: {state_text(meaning)}" for label, meaning in options]
    lines.append(f"Answer with {' or '.join(label for label, _ in options)}.")
    messages: list[Message] = [{"role": "system", "content": "\n".join(lines)}]
    for demo in state.get("demos", ()):
        if demo.get(question.name) is not None:  # else it demonstrates other outputs
            inputs = {field: demo[field] for field in state["inputs"] if field in demo}
            messages.append({"role": "user", "content": _item(inputs, question.name)})
            messages.append({"role": "assistant", "content": _label(demo[question.name], question)})
    return [*messages, {"role": "user", "content": _item(state["inputs"], question.name)}]


def _item(inputs: Mapping[str, Any], name: str) -> str:
    return "\n".join([*(f"{field}: {state_text(value)}" for field, value in inputs.items()), f"{name}:"])


def _label(value: Any, question: Decision) -> str:
    """Return the option in a demonstration; a decision that DSPy returned counts by its value."""
    if isinstance(value, Mapping):
        value = value.get("value")
    label = str(value).lower() if question.kind == "noul" else str(value)
    if question.kind == "score" and isinstance(value, int | float) and math.isfinite(value):
        label = str(math.floor(value + 0.5))  # the nearest level
    if label not in question.choices:
        options = ", ".join(question.choices)
        raise ValueError(f"A demonstration's {question.name} is {value!r:.80}: give one of {options}, or leave it out.")
    return label


class ClientLM(dspy.BaseLM):  # type: ignore[misc]
    """Model for a predictor whose adapter sends its decision requests to ``client``."""

    def __init__(self, client: Any) -> None:
        super().__init__(model=client.model)
        self.client = client

    def __deepcopy__(self, memo: Any) -> ClientLM:
        """Return a model that asks the same client: DSPy's optimizers copy a model for each attempt."""
        return ClientLM(self.client)


# DSPy's clients of such servers, which take only decision requests.


def decides(lm: Any) -> bool:
    """Return whether a client takes only decision requests, such as ``dspy.TypeSafe``."""
    return getattr(lm, "supports_decision_requests", False) is True and not isinstance(lm, dspy.BaseLM)


def answering_models(client: Any, after: Any) -> list[str]:
    """Return the models that answered a client's decision requests after ``after``, according to its history."""
    entries = itertools.takewhile(lambda entry: entry is not after, reversed(getattr(client, "history", ())))
    responses = [entry.get("response") for entry in entries][::-1]
    return list(dict.fromkeys(str(response["model"]) for response in responses if isinstance(response, dict)))
