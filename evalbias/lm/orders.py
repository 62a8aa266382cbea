"""Closed questions with their options in reversed order, or negated, and repairs of the answers to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from evalbias.lm.cache import as_measuring, model_identity
from evalbias.lm.decisions import decided
from evalbias.lm.dspy_seam import in_thread
from evalbias.lm.types import Answers, ChoiceLogprobs, Decision, MeasuringLM, Question
from evalbias.measures.arrays import TINY, normalized
from evalbias.measures.forecasts import on_curve


def has_order(question: Question, wordings: Sequence[str] = ()) -> TypeGuard[Decision]:
    """Return whether a question has options in an order; those of yes/no have fixed names, so it needs a negation."""
    return isinstance(question, Decision) and (question.kind != "noul" or len(wordings) > 0)


def with_reversed_options(question: Question, wordings: Sequence[str] = ()) -> Question:
    """Return a question whose last option, or highest level, comes first; demonstrations count levels as it does.

    A yes/no question becomes its negation: the other one of two ``wordings``, whose yes is the first one's no.
    ``in_order_of`` puts the answer back. Without an order (``has_order``), the question is returned as it is.
    """
    if not has_order(question, wordings):
        return question
    state: Any = question.prompt
    last = len(question.choices) - 1
    if question.kind == "noul":
        if question.instructions not in wordings:
            raise ValueError(
                f"The question is {question.instructions!r:.80}, and a negation is known of {wordings[0]!r:.80}: "
                "compile the repair again."
            )
        question = replace(question, instructions=wordings[1 - wordings.index(question.instructions)])
    if question.kind in ("score", "noul") and isinstance(state, Mapping) and "demos" in state:
        state = {**state, "demos": [_recounted(demo, question.name, last) for demo in state["demos"]]}
    return replace(question, prompt=state, choices=question.choices[::-1], meanings=question.meanings[::-1])


def _recounted(demo: Mapping[str, Any], name: str, last: int) -> dict[str, Any]:
    """Return a demonstration whose level, from 0, is counted from the other end."""
    level = demo.get(name)
    if isinstance(level, Mapping):  # a decision that DSPy returned
        level = level.get("value")
    return {**demo, name: type(level)(last - level)} if isinstance(level, int | float) else dict(demo)


def in_order_of(question: Any, answer: Any) -> Any:
    """Return an answer with its (n, c) options in the order of a question; a refusal is returned as it is."""
    if not isinstance(answer, ChoiceLogprobs):
        return answer
    columns = [answer.choices.index(choice) for choice in question.choices]
    return replace(answer, choices=question.choices, logprobs=answer.logprobs[:, columns])


class ReversedOptions(MeasuringLM):
    """A model that is asked closed questions with their options in reversed order, and answers by option as before.

    A choice is sent with its last option first, a score with its highest level first. For more than two options, this
    is one of the orders that there are; the options between the ends move least. Yes/no questions are negated where
    their wordings are known. Others, and questions that are not closed, have no options in an order and are sent as
    they are. Judges ask it like any other model (``lm``), and so do DSPy's predictors with decision outputs.

    Args:
        lm: Model or client that takes closed questions; ValueError for another one.
        wordings: The instructions of a yes/no question and of its negation; ValueError where another one is asked.
    """

    supports_decision_requests = True

    def __init__(self, lm: Any, wordings: Sequence[str] = ()) -> None:
        self._lm, self.wordings = as_measuring(lm), tuple(wordings)
        if not self._lm.decides:
            raise ValueError(f"{self._lm.model} takes no closed questions, so there are no options in an order.")
        self.model, self.decides = self._lm.model, True
        self.answers_alone, self.in_flight = self._lm.answers_alone, getattr(self._lm, "in_flight", 0)

    def provenance(self) -> dict[str, Any]:
        return {**model_identity(self._lm), "options": ["reversed", *self.wordings]}

    def forget(self) -> None:
        self._lm.forget()

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        turned = [with_reversed_options(one, self.wordings) for one in questions]
        self._lm.answer(turned, _InOrder(questions, answers))

    def __call__(self, *, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a decision request of DSPy."""
        return decided(self, state, questions)

    async def acall(self, *, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        answers: dict[str, Any] = await in_thread(decided, self, state, questions)
        return answers


@dataclass(frozen=True)
class Repair:
    """Repair of the answers to closed questions: of the order of options, and of the probabilities.

    Attributes:
        both_orders: Ask with the options as declared and reversed, and average the probabilities: twice the questions.
        offsets: Log-probability that an answer has by its place among the options, which is subtracted; () for none.
        wordings: Instructions of a yes/no question and of its negation, which is its reversed order; () for none.
        passing: Options whose probability together is recalibrated.
        curve: Points of the recalibration (``measures.forecasts.on_curve``); () for none.
    """

    both_orders: bool = False
    offsets: tuple[float, ...] = ()
    wordings: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if len(self.wordings) not in (0, 2) or not all(isinstance(one, str) for one in self.wordings + self.passing):
            raise ValueError(f"wordings={self.wordings!r:.80}: give those of the question and of its negation, or ().")
        rises = np.diff(np.array(self.curve or [], dtype=np.float64).reshape(-1, 2), axis=0)
        if bool(self.curve) != bool(self.passing) or not ((rises[:, 0] > 0) & (rises[:, 1] >= 0)).all():
            raise ValueError(f"curve={self.curve!r:.80}: give points that rise, and the options that are `passing`.")


class RepairedOptions(ReversedOptions):
    """A model whose answers to closed questions are repaired; see ``Repair``."""

    def __init__(self, lm: Any, repair: Repair) -> None:
        super().__init__(lm, repair.wordings)
        self.repair = repair

    def provenance(self) -> dict[str, Any]:
        return {**model_identity(self._lm), "repair": asdict(self.repair)}

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        sides: list[dict[int, Any]] = [{}, {}]
        self._lm.answer(questions, sides[0])
        if self.repair.both_orders and any(has_order(one, self.wordings) for one in questions):
            super().answer(questions, sides[1])
        for place, question in enumerate(questions):
            given = [side[place] for side in sides if place in side]
            refused = [one for one in given if not isinstance(one, ChoiceLogprobs)]
            answers[place] = (refused or given)[0]
            if has_order(question, self.wordings) and not refused:
                answers[place] = self._repaired(given)
            if self.repair.curve and isinstance(question, Decision) and not refused:
                answers[place] = self._recalibrated(answers[place])

    def _repaired(self, given: Sequence[ChoiceLogprobs]) -> ChoiceLogprobs:
        """Return the mean of one question's answers, less the offsets; the second one is to the reversed options."""
        offsets = np.array(self.repair.offsets or [0.0] * len(given[0].choices))
        if len(offsets) != len(given[0].choices):
            raise ValueError(f"A repair for {len(offsets)} options cannot be used for {len(given[0].choices)}.")
        rows = [normalized(one.logprobs - own) for one, own in zip(given, (offsets, offsets[::-1]), strict=False)]
        mass = 1.0 if given[0].renormalized else np.mean([one.coverage for one in given], axis=0)[:, None]
        with np.errstate(divide="ignore"):
            logprobs = np.log(np.mean(rows, axis=0) * mass)
        return replace(given[0], logprobs=logprobs)

    def _recalibrated(self, given: ChoiceLogprobs) -> ChoiceLogprobs:
        """Return an answer whose passing options have the probability on the curve, and the others the rest."""
        high = np.isin(given.choices, self.repair.passing)
        if not 0 < high.sum() == len(self.repair.passing) < len(high):
            raise ValueError(f"A repair of the options {self.repair.passing} cannot be used for {given.choices}.")
        p = np.maximum(given.probabilities, TINY)  # options without probability share theirs evenly
        sides = [np.where(one, p, 0.0) / (p * one).sum(axis=1, keepdims=True) for one in (high, ~high)]  # (n, c)
        q = on_curve((p * high).sum(axis=1, keepdims=True) / p.sum(axis=1, keepdims=True), self.repair.curve)
        mass = 1.0 if given.renormalized else given.coverage[:, None]
        return replace(given, logprobs=np.log(np.where(high, q * sides[0], (1 - q) * sides[1]) * mass))


class _InOrder(dict[int, Any]):
    """Answers to reversed questions, which go on as they come in the order of those that were asked."""

    def __init__(self, questions: Sequence[Question], answers: Answers) -> None:
        super().__init__()
        self._questions, self._answers = questions, answers

    def __setitem__(self, place: int, answer: Any) -> None:
        super().__setitem__(place, answer)
        self._answers[place] = in_order_of(self._questions[place], answer)
