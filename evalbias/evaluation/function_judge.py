"""Judges that are not ours: any Python function or DSPy module that scores an item or chooses between two outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.item_facts import item_facts, likelihood_provenance
from evalbias.evaluation.judge_call import call_of, read_choice, read_score
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.recorded_judge import QUALITY, as_criterion, by_position
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.programs.criterion import Criterion
from evalbias.programs.usable import candidates_of
from evalbias.runs.visible import get_logger

FunctionJudge = Callable[..., Any]

logger = get_logger(__name__)


def function_scores(
    examples: Sequence[dspy.Example],
    judge: FunctionJudge,
    *,
    criterion: str | Criterion = QUALITY,
    scale: tuple[float, float] | None = None,
    better: str = "better",
    likelihood_lm: MeasuringLM | None = None,
    reduction: str = "sum",
    num_threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Judged:
    """Have a function or DSPy module score items, or choose between the two outputs of pairs in both orders.

    Args:
        examples: Items with ``source`` and ``output``, or pairs with ``source`` and ``candidates`` or ``outputs``.
        judge: A function of one example, a DSPy module that is called with the fields ``source`` and ``output`` (or
            ``candidates``), or a DSPy metric, which is given the item as the example and a prediction with ``output``.
            It returns a number, or a prediction with ``score``. Of a pair it returns the index of the better output, 0
            or 1, -1 or ``"tie"`` for a tie, None for no answer, or a prediction with ``winner`` or ``preference``.
        criterion: Criterion of the human scores; its task defines LS.
        scale: Lowest and highest score that the judge can give, if known.
        better: Field of people's choice between the candidates of a pair.
        likelihood_lm: Model whose likelihood defines LS; None measures none.
        reduction: Reduction of token log-probabilities to LS.
        num_threads: Calls at the same time; the function must allow it.
        progress: Called with 1 after every call.

    Returns:
        The answers. An item on which the judge raises an exception, or gives a score outside ``scale``, is undefined,
        with the error in ``reasons``.

    Raises:
        ValueError: There are no items, the judge takes other inputs, or it answered none of them.

    Examples:
        >>> judged = function_scores([dspy.Example(output="a"), dspy.Example(output="abc")], lambda e: len(e.output))
        >>> judged.answers.tolist()
        [1.0, 3.0]
    """
    if not examples:
        raise ValueError("There are no items: give at least one.")
    pairwise = all(candidates_of(e) for e in examples)
    ask, judged_on = call_of(judge, pairwise=pairwise), as_criterion(criterion)
    facts = item_facts(
        examples,
        judged_on,
        pairwise=pairwise,
        scorer=likelihood_lm,
        reduction=reduction,
        better=better,
        required=False,
    )
    questions = _pairs(examples) if pairwise else list(examples)
    reasons: dict[str, str] = {}

    def answer(place: int) -> float:
        example, name = questions[place], facts.ids[place % len(examples)]
        try:
            value = ask(example)
            return read_choice(value) if pairwise else read_score(value, scale)
        except Exception as error:  # another's code may raise anything; the item is reported by its id
            reasons[name] = f"{type(error).__name__}: {error}"
            return math.nan
        finally:
            if progress is not None:
                progress(1)

    values = _in_threads(answer, len(questions), num_threads)
    _tell_failures(values, reasons)
    if pairwise:
        given, swapped = values.reshape(2, -1)
        other = np.where((swapped == 0) | (swapped == 1), 1 - swapped, swapped)  # an index into the pair as it stands
        values = by_position(np.stack([given, other]))
    return Judged(
        ids=facts.ids,
        criterion=judged_on.name,
        answers=values,
        covariates=facts.covariates,
        inputs=facts.inputs,
        ties=pairwise and values.shape[2] == 3,
        writers=facts.writers,
        scale=scale,
        reasons=reasons,
        judgments=len(questions),
        provenance=likelihood_provenance(judged_on, likelihood_lm, reduction),
    )


def _in_threads(answer: Callable[[int], float], count: int, num_threads: int) -> FloatArray:
    """Return (count,) answers to the questions, asked several at a time."""
    pool = ThreadPoolExecutor(num_threads)
    try:
        futures = [pool.submit(copy_context().run, answer, place) for place in range(count)]
        return np.array([future.result() for future in futures])
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C no further item is begun


def _tell_failures(values: FloatArray, reasons: Mapping[str, str]) -> None:
    """Log how many items the judge failed on, and why on the first.

    Raises:
        ValueError: It answered none.
    """
    if np.isnan(values).all():
        first = next((f"on the item {name!r:.80} it raised {why}" for name, why in reasons.items()), None)
        why = first or "it returned None or NaN every time"
        raise ValueError(f"The judge answered no item: {why.removesuffix('.')}.")
    if reasons:
        name, why = next(iter(reasons.items()))
        logger.warning("The judge failed on %d items, which are undefined; on %.80r: %s", len(reasons), name, why)


def _pairs(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Return every pair as it stands, then every pair in the other order."""
    given = [e.copy(candidates=list(candidates_of(e)), outputs=list(candidates_of(e))) for e in examples]
    return given + [e.copy(candidates=e.candidates[::-1], outputs=e.outputs[::-1]) for e in given]
