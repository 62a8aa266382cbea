"""DSPy's decision outputs (``Noul``, ``Choice``, ``Score``) and decision requests: closed questions to any model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import dspy

from evalbias.lm import dspy_seam as seam
from evalbias.lm.cache import as_measuring, model_identity
from evalbias.lm.decision_servers import Passed, state_text
from evalbias.lm.dspy_seam import Choice, DecisionState, Noul, Score, decision_type, in_thread
from evalbias.lm.types import Answers, ChoiceLogprobs, Decision, MeasuringLM, Message, Question, Refused, chunk_of

# Outputs that are decided, and what was decided.


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
    """Return a decision as a number: P(yes), the mean level, or the mean of options that are numbers; others as is."""
    if isinstance(value, Noul):
        return float(value.value) if value.probability is None else value.probability
    if isinstance(value, Choice):
        shares = decided_shares(value)
        with suppress(TypeError, ValueError):
            return sum(float(label) * share for label, share in shares)
        return value.value
    return value.value if isinstance(value, Score) else value


def decided_shares(value: Any) -> list[tuple[Any, float]]:
    """Return the options of a choice with their probabilities; what is chosen with 1 where there are none."""
    if isinstance(value, Choice):
        return [*(value.probabilities or {value.value: 1.0}).items()]
    return [(value, 1.0)]


# Judges whose output is decided.


def decision_output(kind: str, labels: Sequence[str], meanings: Sequence[str]) -> Any:
    """Return DSPy's type of an output that is decided: ``noul`` (no, then yes), ``score`` (levels) or ``choice``."""
    if kind == "noul":
        return Noul[(False, meanings[0]), (True, meanings[1])]
    if kind == "score":
        return Score[tuple(meanings)]
    return Choice[tuple(zip(labels, meanings, strict=True))]


def evidence_of(kind: str, labels: Sequence[str], p: Sequence[float]) -> dict[str, Any]:
    """Return the probabilities of an output's options as DSPy's adapters decode them."""
    if kind == "noul":
        return {"noul": p[1]}
    keys = range(len(p)) if kind == "score" else labels
    return {"probabilities": dict(zip(keys, p, strict=True)), "confidence": max(p)}


def check_decisions(predict: dspy.Predict) -> None:
    """Raise ValueError for settings of decisions that DSPy refuses, or that ask another question than the judge's."""
    DecisionState(predict.signature, predict.fields)
    for name, settings in predict.fields.items():
        if other := sorted({"instructions", "criteria"} & set(settings)):
            raise ValueError(
                f"predict.fields[{name!r}] has {other[0]!r}, but a judge's question is its instruction and criterion: "
                "change these."
            )


def decided_place(kind: str, labels: Sequence[str], p: Sequence[float], settings: Mapping[str, Any]) -> int:
    """Return which option DSPy decides for: by its threshold, its cuts or its weights, as in ``Predict.fields``."""
    if kind == "noul":
        return int(p[1] >= settings.get("threshold", 0.5))
    if kind == "score":
        mean = sum(place * share for place, share in enumerate(p)) / sum(p)
        return sum(mean >= cut for cut in settings.get("cuts", [place + 0.5 for place in range(len(p) - 1)]))
    weights, best = settings.get("weights", {}), max(range(len(p)), key=p.__getitem__)
    return max(range(len(p)), key=lambda place: (p[place] * weights.get(labels[place], 1.0), place == best, -place))


# Decision requests.


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
    """Return DSPy's evidence for each output of a decision request, and its options' total probability, ``coverage``.

    A model that takes closed questions gets them; any other is asked which option follows a prompt.
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
    except dspy.LMInvalidRequestError as error:  # which knows the model only
        item = ", ".join(f"{name}={state_text(value)[:60]!r}" for name, value in state["inputs"].items())
        text = f"No decision about the item {item}: {error.message}"
        raise type(error)(message=text, model=error.model, status=error.status) from error
    evidence = {}
    for place, question in enumerate(posed):
        coverage = None if read[place].renormalized else float(read[place].coverage[0])
        shares = evidence_of(question.kind, question.choices, read[place].probabilities[0].tolist())
        evidence[question.name] = {**shares, "coverage": coverage}
    return evidence


def question_in(state: Any, name: str, question: Mapping[str, Any]) -> Decision:
    """Return a question of DSPy's decision requests, with its labels and their meanings, None where they have none."""
    kind, criteria = question["type"], question.get("criteria")  # None only where a boolean has no descriptions
    options = criteria
    if kind == "noul":
        options = {label: (criteria or {}).get(label) for label in ("false", "true")}
    if kind == "score":
        options = {str(level): meaning for level, meaning in enumerate(criteria)}
    return Decision(state, tuple(options), kind, question["instructions"], tuple(options.values()), name)


def decision_messages(question: Decision) -> list[Message]:
    """Render the prompt of a question about DSPy's ``instructions``, ``input_fields``, ``inputs``, any ``demos``."""
    state: Any = question.prompt
    options = [*question.options.items()][:: -1 if question.kind == "noul" else 1]  # true comes first
    lines = [str(state["instructions"]), "", str(state["input_fields"]), ""]
    lines.append(f"{question.name}: {state_text(question.instructions)}")
    lines += [f"- {label}" if meaning is None else f"- {label}: {state_text(meaning)}" for label, meaning in options]
    lines.append(f"Answer with {' or '.join(label for label, _ in options)}.")
    messages: list[Message] = [{"role": "system", "content": "\n".join(lines)}]
    for demo in state.get("demos", ()):
        if demo.get(question.name) is not None:  # else it is an example of other outputs
            inputs = {field: demo[field] for field in state["inputs"] if field in demo}
            messages.append({"role": "user", "content": _item(inputs, question.name)})
            messages.append({"role": "assistant", "content": _label(demo[question.name], question)})
    return [*messages, {"role": "user", "content": _item(state["inputs"], question.name)}]


def _item(inputs: Mapping[str, Any], name: str) -> str:
    return "\n".join([*(f"{field}: {state_text(value)}" for field, value in inputs.items()), f"{name}:"])


def _label(value: Any, question: Decision) -> str:
    """Return the option that a demonstration shows; a decision that DSPy returned counts by its value."""
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
    """A model as a predictor takes it that leaves decision requests to its adapter, which asks the ``client``."""

    def __init__(self, client: Any) -> None:
        super().__init__(model=client.model)
        self.client = client

    def __deepcopy__(self, memo: Any) -> ClientLM:
        """Return a model that asks the same client: DSPy's optimizers copy a model for each attempt."""
        return ClientLM(self.client)


# Options in reversed order.


def with_reversed_options(question: Question) -> Question:
    """Return a question whose last option, or highest level, comes first; demonstrations count levels as it does.

    ``in_order_of`` puts the answer back. A question without an order, as that of yes/no, is returned as it is.
    """
    if not isinstance(question, Decision) or question.kind == "noul":  # whose options have fixed names
        return question
    state: Any = question.prompt
    if question.kind == "score" and isinstance(state, Mapping) and "demos" in state:
        demos = [{**demo} for demo in state["demos"]]
        for demo in demos:  # levels are counted from 0
            level = demo.get(question.name)
            level = level.get("value") if isinstance(level, Mapping) else level  # a decision that DSPy returned
            if isinstance(level, int | float):
                demo[question.name] = type(level)(len(question.choices) - 1 - level)
        state = {**state, "demos": demos}
    return replace(question, prompt=state, choices=question.choices[::-1], meanings=question.meanings[::-1])


def in_order_of(question: Any, answer: Any) -> Any:
    """Return an answer with its (n, c) options in the order of a question; a refusal is returned as it is."""
    if not isinstance(answer, ChoiceLogprobs):
        return answer
    columns = [answer.choices.index(choice) for choice in question.choices]
    return replace(answer, choices=question.choices, logprobs=answer.logprobs[:, columns])


class ReversedOptions(MeasuringLM):
    """A model that is asked closed questions with their options in reversed order, and answers by option as before.

    A choice is sent with its last option first, a score with its highest level first; the options between the ends move
    least. Yes/no questions, and questions that are not closed, are sent as they are. Judges ask it like any other model
    (``lm``), and so do DSPy's predictors with decision outputs. ValueError for a model that takes no closed questions.
    """

    supports_decision_requests = True

    def __init__(self, lm: Any) -> None:
        self._lm = as_measuring(lm)
        if not self._lm.decides:
            raise ValueError(f"{self._lm.model} takes no closed questions, so there are no options in an order.")
        self.model, self.decides = self._lm.model, True
        self.answers_alone, self.chunk = self._lm.answers_alone, chunk_of(self._lm)

    def provenance(self) -> dict[str, Any]:
        return {**model_identity(self._lm), "options": ["reversed"]}

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        def pass_on(place: int, answer: Any) -> None:
            answers[place] = in_order_of(questions[place], answer)

        self._lm.answer([with_reversed_options(question) for question in questions], Passed(pass_on))

    def __call__(self, **request: Any) -> dict[str, Any]:
        """Answer a decision request of DSPy."""
        return decided(self, **request)

    async def acall(self, **request: Any) -> Any:
        return await in_thread(decided, self, **request)
