"""A judge that says which of several candidates is best, as a DSPy program (Zhou et al., EMNLP 2024)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dspy
import numpy as np
from dspy import lm15

from evalbias.lm.contract import measuring, resolve_lm
from evalbias.lm.judgment import judgment_request, read_judgment
from evalbias.lm.types import FloatArray, MeasuringLM
from evalbias.measures.calibration import (
    Comparisons,
    Order,
    batch_offsets,
    calibrate_comparisons,
    decisions,
    gaps,
    rotations,
    win_share,
)
from evalbias.programs.adapter import PASSED_SETTINGS, text_field
from evalbias.programs.context_errors import name_overlong_items
from evalbias.programs.criterion import Criterion
from evalbias.programs.pointwise import check_batch_options
from evalbias.programs.prompt import Message, comparison_instructions, comparison_labels, comparison_messages
from evalbias.programs.saving import read_state

STATE_KEY = "evalbias_pairwise"
DEBIASING = (None, "permutation")
CALIBRATIONS = (None, "contextual", "batch")
INSTRUCTION_PLACES = ("first", "last")
CONTENT_FREE = "[N/A]"
MIN_COVERAGE = 1e-3
"""A judge that gives its answers less probability than this has not answered."""

MOST_CANDIDATES = 26
FEWEST_COMPARISONS = 10
"""Comparisons that batch calibration needs."""


class PairwiseJudge(dspy.Module):  # type: ignore[misc]
    """Compares two or more candidates on one criterion.

    Args:
        criterion: What is judged.
        ties: Whether "Tie" is an answer too.
        debias: ``"permutation"`` asks in every rotation of the candidates (of two: both orders) and averages.
        calibration: What the positions have by themselves is taken off: ``"contextual"`` measures it on a content-free
            input, ``"batch"`` as the mean over a batch. None takes nothing off.
        min_coverage: Comparisons whose answers have less probability are undefined.
        instruction: Where it stands: ``"first"``, as in the paper, or ``"last"``, behind the candidates. Wordings that
            are compared on the same pairs then share all but themselves, which is much faster.

    The prompt is one ``dspy.Predict``, ``predict``: its instructions and demonstrations are what optimizers change. The
    line that names the answers is not part of them.

    Attributes:
        offsets: What ``calibrate`` found, by number of answers; ``batch`` calibration of single calls needs it.
    """

    def __init__(
        self,
        criterion: Criterion,
        *,
        ties: bool = False,
        debias: str | None = None,
        calibration: str | None = None,
        min_coverage: float = MIN_COVERAGE,
        instruction: str = "first",
    ) -> None:
        super().__init__()
        if instruction not in INSTRUCTION_PLACES:
            raise ValueError(f"instruction={instruction!r} is unknown: choose one of {INSTRUCTION_PLACES}.")
        if debias not in DEBIASING:
            raise ValueError(f"debias={debias!r} is unknown: choose one of {DEBIASING}.")
        if calibration not in CALIBRATIONS:
            raise ValueError(f"calibration={calibration!r} is unknown: choose one of {CALIBRATIONS}.")
        self.criterion = criterion
        self.ties = ties
        self.debias = debias
        self.calibration = calibration
        self.min_coverage = min_coverage
        self.instruction = instruction
        self.offsets: dict[int, list[float]] = {}
        instructions = comparison_instructions(criterion)
        self.predict = dspy.Predict(
            dspy.Signature("source: str, candidates: list[str] -> preference: str", instructions)
        )

    def forward(self, source: str, candidates: Sequence[str]) -> dspy.Prediction:
        """Compare the candidates of one source.

        Returns:
            ``preference`` (index of the best candidate; None for a tie and where undefined), ``probability`` (of the
            first candidate), ``probabilities`` (by candidate), ``tie`` (probability of a tie, 0 where it is no answer),
            ``win_share`` (probability that the first candidate wins, a tie counting half; see
            ``evalbias.measures.calibration.win_share``),
            ``gap`` (lead over the next answer), ``consistent`` (whether all orders prefer the same; None in one order),
            ``positions`` (by order, probabilities by position) and ``coverage``. Undefined values are NaN.

        Raises:
            ValueError: An empty source or candidate, fewer than two candidates, or equal ones.
        """
        orders, asked = self._asked(source, candidates)
        with dspy.context(adapter=self._adapter()):
            answers = [self.predict(source=source, candidates=shown) for shown in asked]
        return self._single(answers, orders)

    async def aforward(self, source: str, candidates: Sequence[str]) -> dspy.Prediction:
        """As ``forward``, awaited."""
        orders, asked = self._asked(source, candidates)
        with dspy.context(adapter=self._adapter()):
            answers = [await self.predict.acall(source=source, candidates=shown) for shown in asked]
        return self._single(answers, orders)

    def _asked(self, source: str, candidates: Sequence[str]) -> tuple[list[Order], list[list[str]]]:
        """The orders, and the candidates in each."""
        candidates = check_candidates(source, candidates)
        orders = self._orders(len(candidates))
        return orders, [[candidates[i] for i in order] for order in orders]

    def _single(self, answers: Sequence[dspy.Prediction], orders: Sequence[Order]) -> dspy.Prediction:
        logprobs = np.array([[answer["logprobs"] for answer in answers]], dtype=np.float64)
        offsets = self._single_offsets(len(orders[0]), resolve_lm(None, self.predict))
        return self._predictions(logprobs, orders, offsets)[0]

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: MeasuringLM | None = None,
        progress: Callable[[int], None] | None = None,
        **threads: Any,
    ) -> list[dspy.Prediction]:
        """Compare many: prompts are rendered once and sent to the model together.

        Args:
            examples: With ``source`` and ``candidates``; the numbers of candidates may differ.
            lm: In place of the judge's own or DSPy's configured model.
            progress: Called with the number of judgments done.
            **threads: What ``dspy.Module.batch`` takes (``num_threads`` and others); one call needs no threads.

        Returns:
            One prediction an example, in order, as ``forward`` gives it; ``batch`` calibration is over these examples.
        """
        check_batch_options(threads)
        model = measuring(resolve_lm(lm, self.predict))
        done: dict[int, dspy.Prediction] = {}
        sizes = [len(check_candidates(e.source, e.candidates)) for e in examples]
        for count in sorted(set(sizes)):
            where = [i for i, size in enumerate(sizes) if size == count]
            orders = self._orders(count)
            logprobs = self.answer_logprobs([examples[i] for i in where], orders, model)
            if progress is not None:
                progress(logprobs.shape[0] * logprobs.shape[1])
            offsets = self._offsets(count, logprobs, model)
            done.update(zip(where, self._predictions(logprobs, orders, offsets), strict=True))
        return [done[i] for i in range(len(examples))]

    def calibrate(self, examples: Sequence[dspy.Example], *, lm: MeasuringLM | None = None) -> None:
        """Fix the ``batch`` calibration at what these examples show, for single calls and for later batches."""
        model = measuring(resolve_lm(lm, self.predict))
        for count in {len(e.candidates) for e in examples}:
            part = [e for e in examples if len(e.candidates) == count]
            self.offsets[count] = batch_offsets(self.answer_logprobs(part, self._orders(count), model)).tolist()

    def messages(self, example: Mapping[str, Any]) -> list[Message]:
        """The prompt of one comparison in the order given."""
        return self._adapter().format(self.predict.signature, self.predict.demos, example)

    def _orders(self, count: int) -> list[Order]:
        return rotations(count, every=self.debias == "permutation")

    def answer_logprobs(self, examples: Sequence[dspy.Example], orders: Sequence[Order], lm: MeasuringLM) -> FloatArray:
        """(n, r, c + t) log-probabilities of the answers, for examples of as many candidates as the orders have."""
        labels = comparison_labels(len(orders[0]), ties=self.ties)
        prompts = [
            self.messages({"source": e.source, "candidates": [e.candidates[i] for i in order]})
            for e in examples
            for order in orders
        ]
        asked = [example for example in examples for _ in orders]
        found = name_overlong_items(lambda some: lm.choice_logprobs(some, labels), prompts, asked).logprobs
        return np.asarray(found.reshape(len(examples), len(orders), len(labels)), dtype=np.float64)

    def content_free(self, count: int) -> dspy.Example:
        """So many candidates without content."""
        return dspy.Example(source=CONTENT_FREE, candidates=[CONTENT_FREE] * count)

    def _offsets(self, count: int, logprobs: FloatArray, lm: MeasuringLM) -> FloatArray | None:
        if self.calibration == "batch":
            return np.array(self.offsets[count]) if count in self.offsets else fit_batch_offsets(logprobs)
        return self._single_offsets(count, lm)

    def _single_offsets(self, count: int, lm: Any) -> FloatArray | None:
        if self.calibration is None:
            return None
        if self.calibration == "batch":
            if count not in self.offsets:
                raise ValueError("Batch calibration needs a batch: call judge.calibrate(examples) or judge.batch(...).")
            return np.array(self.offsets[count])
        labels = comparison_labels(count, ties=self.ties)
        prompt = self.messages(self.content_free(count))
        return np.asarray(measuring(lm).choice_logprobs([prompt], labels).logprobs[0])

    def aggregate(self, logprobs: FloatArray, orders: Sequence[Order], offsets: FloatArray | None) -> Comparisons:
        """Probabilities from what ``answer_logprobs`` gave, with the judge's own threshold of coverage."""
        return calibrate_comparisons(logprobs, orders, offsets=offsets, min_coverage=self.min_coverage)

    def _predictions(
        self, logprobs: FloatArray, orders: Sequence[Order], offsets: FloatArray | None
    ) -> list[dspy.Prediction]:
        found = self.aggregate(logprobs, orders, offsets)
        count = len(orders[0])
        lead, best = gaps(found.probabilities), decisions(found.probabilities)
        shares = win_share(found.probabilities, ties=self.ties)
        done = []
        for i, row in enumerate(found.probabilities):
            alone = [decisions(found.positions[i, r : r + 1])[0] for r in range(len(orders))]
            done.append(
                dspy.Prediction(
                    preference=best[i] if best[i] != count else None,
                    probability=float(row[0]),
                    probabilities=row[:count].tolist(),
                    tie=float(row[count]) if self.ties else 0.0,
                    win_share=float(shares[i]),
                    gap=float(lead[i]),
                    consistent=_consistent(alone, orders) if len(orders) > 1 else None,
                    positions=found.positions[i].tolist(),
                    coverage=float(found.coverage[i]),
                )
            )
        return done

    def _adapter(self) -> ComparisonAdapter:
        return ComparisonAdapter(self.criterion, self.ties, last=self.instruction == "last")

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The program's state and what it judges; no model and no key."""
        own = {name: getattr(self, name) for name in ("ties", "debias", "calibration", "min_coverage", "instruction")}
        own["offsets"] = {str(count): values for count, values in self.offsets.items()}
        return {**super().dump_state(json_mode), STATE_KEY: {"criterion": asdict(self.criterion), **own}}

    def load_state(self, state: dict[str, Any], **kwargs: Any) -> None:
        """Take over a saved judge: criterion, options, instructions and demonstrations."""
        own = dict(state[STATE_KEY])
        self.criterion = Criterion(**own.pop("criterion"))
        self.offsets = {int(count): values for count, values in own.pop("offsets").items()}
        for name, value in own.items():
            setattr(self, name, value)
        super().load_state({k: v for k, v in state.items() if k != STATE_KEY}, **kwargs)


class ComparisonAdapter(dspy.Adapter):  # type: ignore[misc]
    """Asks which candidate is best; a prediction holds the answers' log-probabilities by position."""

    def __init__(self, criterion: Criterion, ties: bool, *, last: bool = False) -> None:
        super().__init__()
        self.criterion = criterion
        self.ties = ties
        self.last = last

    def format(self, signature: Any, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[Message]:
        """The messages of one comparison."""
        return comparison_messages(
            self.criterion,
            text_field(inputs, "source"),
            inputs["candidates"],
            labels=self._labels(inputs),
            demos=[(text_field(d, "source"), d["candidates"], str(d["preference"])) for d in demos],
            instructions=signature.instructions,
            last=self.last,
        )

    def _labels(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        return comparison_labels(len(inputs["candidates"]), ties=self.ties)

    def _request(self, lm: Any, signature: Any, demos: Any, inputs: Any) -> lm15.Request:
        return judgment_request(lm.model, self.format(signature, demos, inputs), self._labels(inputs))

    def _read(self, response: lm15.Response, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = read_judgment(response, self._labels(inputs))
        best = int(found.logprobs[0].argmax())
        return [{"preference": found.choices[best], "logprobs": found.logprobs[0].tolist()}]

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """One comparison; see ``dspy.Adapter``."""
        passed = {k: lm_kwargs[k] for k in PASSED_SETTINGS if k in lm_kwargs}
        return self._read(lm(self._request(lm, signature, demos, inputs), **passed), inputs)

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """One comparison, asynchronously; see ``dspy.Adapter``."""
        passed = {k: lm_kwargs[k] for k in PASSED_SETTINGS if k in lm_kwargs}
        return self._read(await lm.acall(self._request(lm, signature, demos, inputs), **passed), inputs)


def fit_batch_offsets(logprobs: FloatArray) -> FloatArray:
    """``batch_offsets`` of a batch that tells something.

    Raises:
        ValueError: Fewer comparisons than ``FEWEST_COMPARISONS``.
    """
    if len(logprobs) < FEWEST_COMPARISONS:
        raise ValueError(
            f"Batch calibration over {len(logprobs)} comparisons would take the preference itself off: give "
            f"{FEWEST_COMPARISONS} or more, or fix it before with judge.calibrate(examples)."
        )
    return batch_offsets(logprobs)


def check_candidates(source: str, candidates: Sequence[str]) -> list[str]:
    """The candidates of one source.

    Raises:
        ValueError: Fewer than two or more than 26, an empty text, or two equal ones.
    """
    named = f"{source[:60]!r}..." if isinstance(source, str) else repr(source)
    if isinstance(candidates, str) or not 2 <= len(candidates) <= MOST_CANDIDATES:
        raise ValueError(
            f"The source {named} has the candidates {candidates!r}: give a list of 2 to {MOST_CANDIDATES} texts."
        )
    for text in (source, *candidates):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"A text of the source {named} is {text!r}: a judge needs texts that are not empty.")
    if len(set(candidates)) < len(candidates):
        raise ValueError(
            f"Two candidates of the source {named} are equal: there is nothing to compare, give each once."
        )
    return list(candidates)


def _consistent(alone: Sequence[int | None], orders: Sequence[Order]) -> bool:
    """Whether the orders, each by itself, prefer the same candidate (or all of them none)."""
    chosen = set()
    for best, order in zip(alone, orders, strict=True):
        chosen.add(order[best] if best is not None and best < len(order) else None)
    return len(chosen) == 1


def load_pairwise_judge(path: Any) -> PairwiseJudge:
    """Read a judge that ``judge.save(path)`` wrote (JSON).

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no saved pairwise judge.
    """
    judge = PairwiseJudge(Criterion("placeholder", "replaced by the state"))
    judge.load_state(read_state(path, STATE_KEY, "pairwise judge"))
    return judge
