"""DSPy's decision outputs (``Noul``, ``Choice``, ``Score``): each is one prompt after which options are measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dspy

from evalbias.lm.dspy_seam import calling_predictor, in_thread, is_decision, judgment_request, read_judgment
from evalbias.lm.forms import state_text
from evalbias.lm.types import ChoiceLogprobs, Decision, MeasuringLM, Message, Refused

BOOLEAN = ("true", "false")  # options of a ``Noul`` question


class DecidingLM(dspy.LM):  # type: ignore[misc]
    """A ``dspy.LM`` whose engine measures judgments, and which therefore answers decision requests.

    A decision's ``probabilities`` are the options' measured probabilities, normalized over the options, and its
    ``confidence`` is the largest of them. Keep decisions in a signature of their own: beside other outputs the model
    writes all of them, and the probabilities that it writes are not measured. An item that the model cannot take raises
    DSPy's own error, which names the item; ``dspy.Evaluate`` counts it as one failure.
    """

    @property
    def supports_decision_requests(self) -> bool:
        """True if the predictor that is being called has decision outputs only, and outside of a call."""
        predictor = calling_predictor()
        if predictor is None:
            return True
        outputs = predictor.signature.output_fields
        return all(is_decision(field) or name in predictor.fields for name, field in outputs.items())

    def __call__(self, prompt: Any = None, **kwargs: Any) -> Any:
        """Answer a prompt, a request, or a decision request (``state=..., questions=...``); see ``dspy.LM``."""
        if "questions" not in kwargs:
            return super().__call__(prompt, **kwargs)
        if self.decides:
            return decided(self, **kwargs)
        with _named(kwargs["state"]):
            return {name: self._measured(kwargs["state"], name, one) for name, one in kwargs["questions"].items()}

    def _measured(self, state: Mapping[str, Any], name: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return DSPy's evidence for one output, and the options' total probability as ``coverage``."""
        options = list(options_of(question))
        request = judgment_request(self.model, decision_messages(state, name, question), options)
        return _evidence(read_judgment(self(request), options), question)

    async def acall(self, prompt: Any = None, **kwargs: Any) -> Any:
        if "questions" not in kwargs:
            return await super().acall(prompt, **kwargs)
        return await in_thread(self, prompt, **kwargs)


def decided(lm: MeasuringLM, state: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a decision request by a model that takes closed questions."""
    decisions = [question_in(state, name, question) for name, question in questions.items()]
    answers: dict[int, Any] = {}
    lm.answer(decisions, answers)
    with _named(state):
        for answer in answers.values():
            if isinstance(answer, Refused):
                raise dspy.LMInvalidRequestError(message=f"The prompt {answer.reason}", model=lm.model)
    return {name: _evidence(answers[place], questions[name]) for place, name in enumerate(questions)}


def question_in(state: Any, name: str, question: Mapping[str, Any]) -> Decision:
    """Return a question of DSPy's decision requests; the labels of a yes/no question are false and true."""
    options = options_of(question)
    if question["type"] == "noul":
        options = {label: options[label] for label in reversed(BOOLEAN)}
    return Decision(state, tuple(options), question["type"], question["instructions"], tuple(options.values()), name)


def decision_messages(state: Mapping[str, Any], name: str, question: Mapping[str, Any]) -> list[Message]:
    """Render the prompt of one question, about the output ``name``.

    ``state`` is DSPy's ``instructions``, ``input_fields``, ``inputs`` (field -> value) and ``demos``, if any;
    ``question`` its ``instructions``, ``type`` and ``criteria``.
    """
    options = options_of(question)
    lines = [str(state["instructions"]), "", str(state["input_fields"]), ""]
    lines.append(f"{name}: {state_text(question['instructions'])}")
    lines += [
        f"- {label}" if meaning is None else f"- {label}: {state_text(meaning)}" for label, meaning in options.items()
    ]
    lines.append(f"Answer with {' or '.join(options)}.")
    messages: list[Message] = [{"role": "system", "content": "\n".join(lines)}]
    for demo in state.get("demos", ()):
        if demo.get(name) is not None:  # else it is an example of other outputs
            inputs = {field: demo[field] for field in state["inputs"] if field in demo}
            messages.append({"role": "user", "content": _item(inputs, name)})
            messages.append({"role": "assistant", "content": _label(demo[name], name, question)})
    return [*messages, {"role": "user", "content": _item(state["inputs"], name)}]


def options_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a question, each with its meaning or None: labels of a choice, levels of a score."""
    criteria: Any = question.get("criteria")  # None only where a boolean has no descriptions
    if question["type"] == "noul":
        return {label: (criteria or {}).get(label) for label in BOOLEAN}
    if question["type"] == "score":
        return {str(level): meaning for level, meaning in enumerate(criteria)}
    return dict(criteria)


def _evidence(answer: ChoiceLogprobs, question: Mapping[str, Any]) -> dict[str, Any]:
    shares = dict(zip(answer.choices, answer.probabilities[0].tolist(), strict=True))
    coverage = None if answer.renormalized else float(answer.coverage[0])
    if question["type"] == "noul":
        return {"noul": shares[BOOLEAN[0]], "coverage": coverage}
    return {"probabilities": shares, "confidence": max(shares.values()), "coverage": coverage}


@contextmanager
def _named(state: Mapping[str, Any]) -> Iterator[None]:
    """Name the item in DSPy's error of a refused prompt, which knows the model only."""
    try:
        yield
    except dspy.LMInvalidRequestError as error:
        item = ", ".join(f"{name}={state_text(value)[:60]!r}" for name, value in state["inputs"].items())
        text = f"No decision about the item {item}: {error.message}"
        raise type(error)(message=text, model=error.model, status=error.status) from error


def _item(inputs: Mapping[str, Any], name: str) -> str:
    return "\n".join([*(f"{field}: {state_text(value)}" for field, value in inputs.items()), f"{name}:"])


def _label(value: Any, name: str, question: Mapping[str, Any]) -> str:
    """Return the option that a demonstration shows; a decision that DSPy returned counts by its value."""
    if isinstance(value, Mapping):
        value = value.get("value")
    label = str(value)
    if question["type"] == "noul":
        label = label.lower()
    elif question["type"] == "score" and isinstance(value, int | float) and math.isfinite(value):
        label = str(math.floor(value + 0.5))  # the nearest level
    options = options_of(question)
    if label not in options:
        raise ValueError(
            f"A demonstration's {name} is {value!r:.80}: give one of {', '.join(options)}, or leave it out."
        )
    return label
