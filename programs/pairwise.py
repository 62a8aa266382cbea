"""Judges that compare two outputs, debiased and calibrated for position."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dspy
import numpy as np

from evalbias.data.items import item_name
from evalbias.lm.contract import Sampling, aask, ask, measuring, resolve_lm
from evalbias.lm.types import ChoiceLogprobs, MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.measures.position_calibration import (
    Comparisons,
    Correction,
    Order,
    PositionMap,
    PositionOffsets,
    batch_offsets,
    calibrate_comparisons,
    decisions,
    first_shares,
    fit_position_map,
    gaps,
    position_prior,
    prior_offsets,
    rotations,
    win_probabilities,
)
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import candidate_texts, check_candidates, preference_label, usable_pair
from evalbias.programs.judges import (
    Refused,
    answer_choices,
    call_options,
    check_batch_options,
    tell_callbacks,
    text_field,
)
from evalbias.programs.prompts import Message, comparison_instructions, comparison_labels, comparison_messages
from evalbias.programs.saved import (
    CriterionSetting,
    NumberSetting,
    Predictor,
    Program,
    SamplingSetting,
    Setting,
    load_program,
    saved_criterion,
)

# The predictions of a pairwise judge, made of calibrated comparisons.


def predictions(
    comparisons: Comparisons, orders: Sequence[Order], *, ties: bool, samples: int | None
) -> list[dspy.Prediction]:
    """Return one prediction per comparison; for the fields, see ``PairwiseJudge.forward``.

    Args:
        comparisons: Calibrated comparisons of n pairs, or of more candidates each.
        orders: The orders in which the candidates were shown.
        ties: Whether the last answer is a tie.
        samples: Number of answers from which the probabilities are estimated; None where they are measured.
    """
    count = len(orders[0])
    lead, best = gaps(comparisons.probabilities), decisions(comparisons.probabilities)
    wins = win_probabilities(comparisons.probabilities, ties=ties)
    return [
        dspy.Prediction(
            preference=best[i] if best[i] != count else None,
            probability=float(row[0]),
            probabilities=row[:count].tolist(),
            tie=float(row[count]) if ties else 0.0,
            win_share=float(wins[i, 0]),
            gap=float(lead[i]),
            consistent=_consistent(comparisons.positions[i], orders),
            positions=comparisons.positions[i].tolist(),
            coverage=float(comparisons.coverage[i]),
            samples=samples,
        )
        for i, row in enumerate(comparisons.probabilities)
    ]


def _consistent(positions: FloatArray, orders: Sequence[Order]) -> bool | None:
    """True if every order (a row of ``positions``) prefers the same candidate, or none of them prefers any.

    None with one order, or where an order is undefined.
    """
    if len(orders) == 1 or np.isnan(positions).any():
        return None
    preferred = set()
    for best, order in zip(decisions(positions), orders, strict=True):
        preferred.add(order[best] if best is not None and best < len(order) else None)
    return len(preferred) == 1


# Adapter that turns a comparison into one judgment request, and the check of what is compared.


class ComparisonAdapter(dspy.Adapter):  # type: ignore[misc]
    """Adapter that asks which candidate is best; a prediction holds the answers' log-probabilities by position."""

    def __init__(
        self, criterion: Criterion, ties: bool, *, last: bool = False, sampling: Sampling | None = None
    ) -> None:
        super().__init__()
        self.criterion = criterion
        self.ties = ties
        self.last = last
        self.sampling = sampling

    def format(self, signature: Any, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[Message]:
        """Return the messages of one comparison."""
        return self.prompt(signature, demos, inputs)

    def prompt(self, signature: Any, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[Message]:
        """Return the messages of one comparison without telling DSPy's callbacks, which see calls of ``format``."""
        return comparison_messages(
            self.criterion,
            text_field(inputs, "source"),
            inputs["candidates"],
            labels=self._labels(inputs),
            demos=self.shown(demos),
            instructions=signature.instructions,
            last=self.last,
        )

    def _labels(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        return comparison_labels(len(inputs["candidates"]), ties=self.ties)

    def shown(self, demos: Sequence[Mapping[str, Any]]) -> list[tuple[str, Sequence[str], str]]:
        """Return each demonstration's source, candidates and answer.

        Raises:
            ValueError: A demonstration cannot be shown; the message names it.
        """
        return [self._shown(demo) for demo in demos]

    def _shown(self, demo: Mapping[str, Any]) -> tuple[str, Sequence[str], str]:
        """Return a demonstration's source, candidates and answer."""
        candidates = demo.get("candidates") or demo.get("outputs")
        if not candidates:
            raise ValueError(f"The demonstration {item_name(demo)!r:.80} has no candidates: give pairs.")
        label, answers = preference_label(demo), comparison_labels(len(candidates), ties=self.ties)
        if label not in answers:
            fault = "has no label" if label is None else f"is labeled {label!r:.80}"
            raise ValueError(
                f"The demonstration {item_name(demo)!r:.80} {fault}, but the judge answers {', '.join(answers)}: label "
                "it, or leave it out."
            )
        source = text_field(demo, "source")
        return source, candidate_texts(source, candidates), label

    def _read(self, answer: ChoiceLogprobs) -> list[dict[str, Any]]:
        row = answer.logprobs[0]  # (c + t,)
        best = None if np.isnan(row).any() else answer.choices[int(row.argmax())]
        return [{"preference": best, "logprobs": row.tolist(), "samples": answer.samples}]

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask for one comparison; see ``dspy.Adapter``."""
        messages, options = self.format(signature, demos, inputs), call_options(lm_kwargs)
        return self._read(ask(lm, messages, self._labels(inputs), self.sampling, **options))

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask for one comparison asynchronously; see ``dspy.Adapter``."""
        messages, options = self.format(signature, demos, inputs), call_options(lm_kwargs)
        return self._read(await aask(lm, messages, self._labels(inputs), self.sampling, **options))


# Calibration of a pairwise judge for position: its kinds, how they are fitted, and how a judge keeps them.


FITTED = ("batch", "pride", "calibraeval")
"""Kinds that are fitted to comparisons; they need no labels."""
EVERY_ORDER = ("pride", "calibraeval")
"""Kinds whose fit asks every comparison in every rotation of the candidates."""
CALIBRATIONS = (None, "contextual", *FITTED)
FEWEST_COMPARISONS = 10
"""Smallest number of comparisons for a fit to the comparisons that it corrects, and for a map."""

Corrections = dict[int, PositionOffsets | PositionMap]
"""Fitted correction by number of candidates."""


def calibrations_of(count: int) -> tuple[str | None, ...]:
    """Return the kinds that comparisons of so many candidates can have; ``calibraeval`` is for pairs."""
    return CALIBRATIONS if count == 2 else tuple(kind for kind in CALIBRATIONS if kind != "calibraeval")


class CalibrationError(ValueError):
    """The comparisons given do not determine a calibration."""


class CalibrationSetting(Setting[str | None]):
    """The kind of calibration. What was fitted for one kind is forgotten when another is set."""

    def __set__(self, program: Any, value: str | None) -> None:
        """Set the kind."""
        changed = program.settings.values.get(self.name) != value
        super().__set__(program, value)
        if changed:
            program.settings.values["corrections"] = {}


class CorrectionsSetting(Setting[Corrections]):
    """The fitted corrections of a judge."""

    def dump(self, value: Corrections) -> Any:
        """Return the fields of each correction, with text keys, as JSON has them."""
        return {str(count): asdict(correction) for count, correction in value.items()}

    def load(self, saved: Any, current: Corrections) -> Corrections:
        """Return the corrections with these fields."""
        return {int(count): _correction(int(count), fields) for count, fields in saved.items()}

    def reset(self, value: Corrections) -> Corrections:
        """Return no corrections."""
        return {}


def _correction(count: int, fields: dict[str, Any]) -> PositionOffsets | PositionMap:
    numbers = {name: tuple(float(value) for value in values) for name, values in fields.items()}
    if "offsets" not in numbers:
        return PositionMap(**numbers)
    if len(numbers["offsets"]) not in (count, count + 1):  # one more for a tie
        raise TypeError(f"{len(numbers['offsets'])} offsets for {count} candidates")
    return PositionOffsets(**numbers)


def fit_correction(
    calibration: str, logprobs: FloatArray, orders: Sequence[Order], *, min_coverage: float
) -> PositionOffsets | PositionMap:
    """Fit a calibration to comparisons without labels.

    Args:
        calibration: One of ``FITTED``.
        logprobs: Log-probabilities of the answers, shape (n, r, c + t); NaN where undefined.
        orders: Index of the candidate at each position, for each of the r orders; all rotations for a kind in
            ``EVERY_ORDER``.
        min_coverage: Smallest total probability of the answers; prompts below it are left out.

    Raises:
        CalibrationError: Too few comparisons are defined, there are more candidates than the kind takes, or the orders
            contradict each other.
    """
    count = len(orders[0])
    covered = np.exp(logprobs).sum(axis=2, keepdims=True) >= min_coverage
    kept = np.where(covered, logprobs, np.nan)
    if calibration == "calibraeval":
        return _position_map(kept, count)
    if calibration == "pride":
        offsets = prior_offsets(position_prior(kept, orders), ties=kept.shape[2] > count)
    else:
        offsets = batch_offsets(kept)
    if np.isnan(offsets).any():
        raise CalibrationError(
            f"None of {len(kept)} comparisons has a defined, positive probability of every answer: calibration="
            f"{calibration!r} cannot be fitted. Give other comparisons, or a lower min_coverage."
        )
    return PositionOffsets(tuple(offsets.tolist()))


def _position_map(logprobs: FloatArray, count: int) -> PositionMap:
    if count != 2:
        raise CalibrationError(f"calibration='calibraeval' maps pairs, not {count} candidates: use 'pride' for those.")
    shares = first_shares(logprobs)  # (n, 2)
    usable = int((~np.isnan(shares)).all(axis=1).sum())
    if usable < FEWEST_COMPARISONS:
        raise CalibrationError(
            f"{usable} of {len(shares)} pairs are defined in both orders, too few to fit a map: give "
            f"{FEWEST_COMPARISONS} or more."
        )
    position_map = fit_position_map(shares[:, 0], shares[:, 1])
    if position_map is None:
        raise CalibrationError(
            f"The two orders contradict each other in too many of {usable} pairs: no monotone map is better than the "
            "constant 1/2. Use debias='permutation'."
        )
    return position_map


def fit_within(
    calibration: str, logprobs: FloatArray, orders: Sequence[Order], *, min_coverage: float
) -> Correction | None:
    """Fit a calibration to the comparisons that it corrects; None if all of them are undefined anyway.

    Raises:
        ValueError: There are fewer comparisons than ``FEWEST_COMPARISONS``, or they were not asked in every order.
        CalibrationError: See ``fit_correction``.
    """
    if calibration in EVERY_ORDER and len(orders) < len(orders[0]):
        raise ValueError(
            f"calibration={calibration!r} is not fitted, which takes every order of the candidates: call "
            "judge.calibrate(examples) first."
        )
    if len(logprobs) < FEWEST_COMPARISONS:
        name = calibration.capitalize()
        raise ValueError(
            f"{name} calibration over {len(logprobs)} comparisons would remove the preference itself: give "
            f"{FEWEST_COMPARISONS} or more, or call judge.calibrate(examples) first."
        )
    if not (np.exp(logprobs).sum(axis=2) >= min_coverage).any():
        return None
    return fit_correction(calibration, logprobs, orders, min_coverage=min_coverage)


# The pairwise judge, a DSPy program that says which of several candidates is best (Zhou et al., EMNLP 2024).


DEBIASING = (None, "permutation")
INSTRUCTION_PLACES = ("first", "last")
SCORINGS = ("expected", "sampled")
CONTENT_FREE = "[N/A]"
MIN_COVERAGE = 1e-3
"""Default for the total probability of the answers below which a comparison is undefined."""


class PairwiseJudge(Program):
    """Compares two or more candidates on one criterion.

    Args:
        criterion: Quality on which the candidates are compared.
        ties: Offer "Tie" as an answer.
        debias: ``"permutation"`` asks in every rotation of the candidates (both orders of a pair) and averages. None
            asks in the given order only.
        calibration: Correction for position, at one prompt per comparison. ``"contextual"`` divides by the answers to a
            content-free input, ``"batch"`` by their geometric mean over a batch, ``"pride"`` by the positions' prior;
            ``"calibraeval"`` maps the probabilities of a pair so that both orders agree. None corrects nothing.
        min_coverage: Smallest total probability of the answers, in [0, 1]; comparisons below it are undefined.
        instruction: Wording of the question, without the line that names the answers. Defaults to a question about the
            criterion's name and definition.
        instruction_place: Place of the instruction in the prompt: ``"first"``, as in the paper, or ``"last"``, after
            the candidates. With ``"last"``, different wordings share the prompt's prefix, which is much faster.
        scoring: ``"expected"`` measures the probability of every answer; ``"sampled"`` estimates the probabilities from
            repeated answers, for models that report none.
        sampling: How often and how ``"sampled"`` scoring asks. Defaults to ``Sampling()``: 20 answers at temperature 1.

    The prompt is one ``dspy.Predict``, ``predict``; optimizers change its instructions and demonstrations. The line
    that names the answers is not part of the instructions.

    Attributes:
        corrections: Correction by number of candidates, as fitted by ``calibrate``. Single calls with ``batch``,
            ``pride`` or ``calibraeval`` calibration need them. Setting another ``calibration`` discards them.

    Raises:
        ValueError: An option is unknown or outside its range, or ``sampling`` is given for another scoring than
            ``"sampled"``.
    """

    kind = "pairwise judge"
    criterion = CriterionSetting()
    ties = Setting(False, True)
    debias = Setting(*DEBIASING)
    calibration = CalibrationSetting(*CALIBRATIONS)
    min_coverage = NumberSetting(0, 1)
    instruction_place = Setting(*INSTRUCTION_PLACES)
    scoring = Setting(*SCORINGS)
    sampling = SamplingSetting()
    corrections = CorrectionsSetting()

    def __init__(
        self,
        criterion: Criterion,
        *,
        ties: bool = False,
        debias: str | None = None,
        calibration: str | None = None,
        min_coverage: float = MIN_COVERAGE,
        instruction: str | None = None,
        instruction_place: str = "first",
        scoring: str = "expected",
        sampling: Sampling | None = None,
    ) -> None:
        super().__init__(
            criterion=criterion,
            ties=ties,
            debias=debias,
            calibration=calibration,
            min_coverage=min_coverage,
            instruction_place=instruction_place,
            scoring=scoring,
            sampling=sampling,
            corrections={},
        )
        instructions = comparison_instructions(criterion) if instruction is None else instruction
        self.predict = Predictor(dspy.Signature("source: str, candidates: list[str] -> preference: str", instructions))

    def forward(self, source: str, candidates: Sequence[str]) -> dspy.Prediction:
        """Compare the candidates of one source.

        Returns:
            A prediction with these fields; undefined numbers are NaN:

            * ``preference``: index of the best candidate; None for a tie and where undefined.
            * ``probability``: probability of the first candidate.
            * ``probabilities``: probability of each candidate.
            * ``tie``: probability of a tie; 0 if "Tie" is not an answer.
            * ``win_share``: probability that the first candidate wins, where all share a tie equally.
            * ``gap``: lead of the most probable answer over the next.
            * ``consistent``: whether all orders prefer the same candidate; None with one order, or where undefined.
            * ``positions``: for each order, the probabilities by position.
            * ``coverage``: total probability of the answers, the lowest over the orders.
            * ``samples``: number of answers to each prompt from which the probabilities are estimated, of which the
              share ``coverage`` was readable; None where they are measured.

        Raises:
            ValueError: The source or a candidate is empty, two candidates are equal, or there are fewer than two.
            PromptRefused: The model cannot take a prompt, for example because it is too long.
            NoProbabilities: The model reports no probabilities.
        """
        orders, reordered = self._reordered(source, candidates)
        self._measuring(resolve_lm(None, self.predict))
        with dspy.context(adapter=self._adapter()):
            answers = [self.predict(source=source, candidates=texts) for texts in reordered]
        return self._single(answers, orders)

    async def aforward(self, source: str, candidates: Sequence[str]) -> dspy.Prediction:
        """Compare the candidates of one source asynchronously; see ``forward``."""
        orders, reordered = self._reordered(source, candidates)
        self._measuring(resolve_lm(None, self.predict))
        with dspy.context(adapter=self._adapter()):
            answers = [await self.predict.acall(source=source, candidates=texts) for texts in reordered]
        return await asyncio.to_thread(self._single, answers, orders)  # contextual calibration asks the model once more

    def _reordered(self, source: str, candidates: Sequence[str]) -> tuple[list[Order], list[list[str]]]:
        """Return the orders to ask in, and the candidates in each.

        Raises:
            ValueError: The candidates cannot be compared, or the calibration is not fitted to as many.
        """
        candidates = check_candidates(source, candidates)
        fits = self.sampling is None  # with sampled answers, ``_measuring`` refuses the calibration
        if fits and self.calibration in FITTED and len(candidates) not in self.corrections:
            raise ValueError(
                f"{self.calibration.capitalize()} calibration needs a batch: first call judge.calibrate(examples), on "
                f"examples of {len(candidates)} candidates."
            )
        orders = self._orders(len(candidates))
        return orders, [[candidates[i] for i in order] for order in orders]

    def _single(self, answers: Sequence[dspy.Prediction], orders: Sequence[Order]) -> dspy.Prediction:
        logprobs = np.array([[answer["logprobs"] for answer in answers]], dtype=np.float64)
        correction = self._fixed_correction(len(orders[0]), resolve_lm(None, self.predict))
        comparisons = self.aggregate(logprobs, orders, correction)
        return predictions(comparisons, orders, ties=self.ties, samples=answers[0]["samples"])[0]

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: MeasuringLM | None = None,
        progress: Callable[[int], None] | None = None,
        refused: Refused = "undefined",
        **options: Any,
    ) -> list[dspy.Prediction]:
        """Compare the candidates of many sources in one call of the model for each number of candidates.

        Each comparison is reported to DSPy's callbacks, such as MLflow's tracing, as if it were a call of its own.

        Args:
            examples: Examples with ``source`` and ``candidates`` (or ``outputs``); their numbers may differ.
            lm: Model to ask. Defaults to the judge's own model, then to the one that DSPy is configured with.
            progress: Function that is called with the number of judgments just done.
            refused: ``"undefined"`` leaves comparisons undefined that the model cannot take, for example because they
                are too long, and logs their ids; ``"raise"`` raises.
            **options: Arguments of ``dspy.Module.batch`` (``num_threads`` and others); accepted and not needed,
                but for ``return_failed_examples``.

        Returns:
            One prediction per example, in order, with the fields of ``forward``. A calibration that ``calibrate`` has
            not fitted is fitted to these examples; ``pride`` and ``calibraeval`` then need every order (permutation).
        """
        check_batch_options(options)
        model = resolve_lm(lm, self.predict)
        done: dict[int, dspy.Prediction] = {}
        examples = [usable_pair(e, i) for i, e in enumerate(examples)]
        sizes = [len(e.candidates) for e in examples]
        for count in sorted(set(sizes)):
            indices = [i for i, size in enumerate(sizes) if size == count]
            orders = self._orders(count)
            part = [examples[i] for i in indices]
            answers = self._answers(part, orders, model, refused=refused)
            if progress is not None:
                progress(len(answers.logprobs))
            logprobs = _by_order(answers, orders)
            correction = self._fixed_correction(count, model)
            if correction is None and self.calibration is not None:
                correction = fit_within(self.calibration, logprobs, orders, min_coverage=self.min_coverage)
            comparisons = self.aggregate(logprobs, orders, correction)
            rows = predictions(comparisons, orders, ties=self.ties, samples=answers.samples)
            done.update(zip(indices, rows, strict=True))
        ordered = [done[i] for i in range(len(examples))]
        tell_callbacks(self, [{"source": e.source, "candidates": e.candidates} for e in examples], ordered)
        return ordered

    def calibrate(self, examples: Sequence[dspy.Example], *, lm: MeasuringLM | None = None) -> int:
        """Fit the ``batch``, ``pride`` or ``calibraeval`` calibration to examples and keep it; labels are not used.

        Returns:
            Number of prompts asked: every rotation of each example for ``pride`` and ``calibraeval``; for ``batch``
            those of ``batch``.

        Raises:
            CalibrationError: The examples do not determine the calibration. It is a ``ValueError``.
            ValueError: The judge's calibration is not fitted.
        """
        model, kind = resolve_lm(lm, self.predict), self.calibration
        self._measuring(model)
        if kind not in FITTED:
            raise ValueError(f"calibration={kind!r} is not fitted: choose one of {FITTED}, then call calibrate.")
        examples = [usable_pair(e, i) for i, e in enumerate(examples)]
        fitted, prompts = {}, 0
        for count in {len(e.candidates) for e in examples}:
            part = [e for e in examples if len(e.candidates) == count]
            orders = rotations(count, every=True) if kind in EVERY_ORDER else self._orders(count)
            logprobs = self.answer_logprobs(part, orders, model)
            fitted[count] = fit_correction(kind, logprobs, orders, min_coverage=self.min_coverage)
            prompts += len(part) * len(orders)
        self.corrections |= fitted
        return prompts

    def messages(self, example: Mapping[str, Any]) -> list[Message]:
        """Return the prompt of one comparison, with the candidates in the given order."""
        return self._adapter().prompt(self.predict.signature, self.predict.demos, example)

    def _orders(self, count: int) -> list[Order]:
        return rotations(count, every=self.debias == "permutation")

    def answer_logprobs(self, examples: Sequence[dspy.Example], orders: Sequence[Order], lm: Any) -> FloatArray:
        """Return the log-probabilities of the answers to n examples of c candidates in r orders: (n, r, c + t).

        NaN for a comparison that the model cannot take, for example because it is too long.
        """
        return _by_order(self._answers(examples, orders, lm), orders)

    def _answers(
        self, examples: Sequence[dspy.Example], orders: Sequence[Order], lm: Any, *, refused: Refused = "undefined"
    ) -> ChoiceLogprobs:
        """Return the answers to n examples in r orders, as n * r rows."""
        model = self._measuring(lm)
        labels = comparison_labels(len(orders[0]), ties=self.ties)
        prompts = [
            self.messages({"source": e.source, "candidates": [e.candidates[i] for i in order]})
            for e in examples
            for order in orders
        ]
        items = [example for example in examples for _ in orders]  # one per prompt
        return answer_choices(model, prompts, labels, items, refused=refused)

    def content_free(self, count: int) -> dspy.Example:
        """Return an example with ``count`` candidates without content."""
        return dspy.Example(source=CONTENT_FREE, candidates=[CONTENT_FREE] * count)

    def _fixed_correction(self, count: int, lm: Any) -> Correction | None:
        """Return the correction that does not depend on a batch; None if there is none."""
        if self.calibration != "contextual":
            return self.corrections.get(count)
        labels = comparison_labels(count, ties=self.ties)
        prompt = self.messages(self.content_free(count))
        return PositionOffsets(tuple(self._measuring(lm).choice_logprobs([prompt], labels).logprobs[0].tolist()))

    def _measuring(self, lm: Any) -> Any:
        """Return the model to ask.

        Raises:
            ValueError: The judge is calibrated and the model's probabilities are estimates.
        """
        model = measuring(lm, self.sampling)
        if self.calibration is not None and getattr(model, "sampling", None) is not None:
            raise ValueError(
                f"calibration={self.calibration!r} needs measured probabilities: an answer that none of a few sampled "
                "ones names has no log-probability to subtract. Use debias='permutation', or a model that measures."
            )
        return model

    def aggregate(self, logprobs: FloatArray, orders: Sequence[Order], correction: Correction | None) -> Comparisons:
        """Correct the result of ``answer_logprobs`` for position and average over the orders."""
        return calibrate_comparisons(logprobs, orders, correction=correction, min_coverage=self.min_coverage)

    def _adapter(self) -> ComparisonAdapter:
        last = self.instruction_place == "last"
        return ComparisonAdapter(self.criterion, self.ties, last=last, sampling=self.sampling)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> PairwiseJudge:
        """Construct the judge whose ``dump_state`` is given."""
        judge = cls(saved_criterion(state))
        judge.load_state(state)
        judge.check_demos()
        return judge

    def check_demos(self) -> None:
        """Refuse demonstrations that no prompt can show.

        Raises:
            ValueError: A text is missing or empty, or the label is no answer; the message names the demonstration.
        """
        self._adapter().shown(self.predict.demos)


def _by_order(answers: ChoiceLogprobs, orders: Sequence[Order]) -> FloatArray:
    """Return the log-probabilities of n * r rows as (n, r, c + t)."""
    return answers.logprobs.reshape(-1, len(orders), len(answers.choices))


def load_pairwise_judge(path: str | os.PathLike[str]) -> PairwiseJudge:
    """Load a pairwise judge from the JSON file that ``judge.save(path)`` wrote.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not hold a pairwise judge.
    """
    return load_program(path, PairwiseJudge)
