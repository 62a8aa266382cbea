"""Closed questions with their options in reversed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalbias.lm.cache import as_measuring, model_identity
from evalbias.lm.decisions import decided
from evalbias.lm.dspy_seam import in_thread
from evalbias.lm.types import Answers, ChoiceLogprobs, Decision, MeasuringLM, Question, chunk_of


def with_reversed_options(question: Question) -> Question:
    """Return a question whose last option, or highest level, comes first; demonstrations count levels as it does.

    ``in_order_of`` puts the answer back. A question without an order, as that of yes/no, is returned as it is.
    """
    if not isinstance(question, Decision) or question.kind == "noul":  # whose options have fixed names
        return question
    state: Any = question.prompt
    if question.kind == "score" and isinstance(state, Mapping) and "demos" in state:
        last = len(question.choices) - 1
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
    is one of the orders that there are; the options between the ends move least. Yes/no questions, and questions that
    are not closed, have no options in an order and are sent as they are. Judges ask it like any other model (``lm``),
    and so do DSPy's predictors with decision outputs.

    Args:
        lm: Model or client that takes closed questions; ValueError for another one.
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
        turned = [with_reversed_options(question) for question in questions]
        self._lm.answer(turned, _InOrder(questions, answers))

    def __call__(self, *, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a decision request of DSPy."""
        return decided(self, state, questions)

    async def acall(self, *, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        answers: dict[str, Any] = await in_thread(decided, self, state, questions)
        return answers


class _InOrder(dict[int, Any]):
    """Answers to reversed questions, which go on as they come in the order of those that were asked."""

    def __init__(self, questions: Sequence[Question], answers: Answers) -> None:
        super().__init__()
        self._questions, self._answers = questions, answers

    def __setitem__(self, place: int, answer: Any) -> None:
        super().__setitem__(place, answer)
        self._answers[place] = in_order_of(self._questions[place], answer)
