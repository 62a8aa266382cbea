"""The judge that compares outputs, debiased and calibrated for position (Zhou et al., EMNLP 2024)."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dspy
import numpy as np

from evalbias.lm.cache import resolve_lm
from evalbias.lm.contract import Reasoning, Sampling
from evalbias.lm.types import ChoiceLogprobs, MeasuringLM
from evalbias.measures import position_calibration
from evalbias.measures.arrays import FloatArray
from evalbias.measures.pairs import win_shares
from evalbias.measures.position_calibration import Order, PositionOffsets, decisions, gaps
from evalbias.programs import prompts
from evalbias.programs.criterion import Criterion, asked_about
from evalbias.programs.items import FIELDS, check_candidates, preference_label, read_pair
from evalbias.programs.judges import Judge, RefusedItems, Row
from evalbias.programs.prompts import Fields, Inputs, Language, Message
from evalbias.programs.saved import Predictor, Setting, number_within, one_of

CALIBRATIONS = ("batch", "pride")  # fitted to comparisons without labels
DEBIASING = (None, "permutation")
FEWEST_COMPARISONS = 10  # smallest number of comparisons for a fit to the comparisons that it corrects
CANDIDATES = "candidates"  # the field that takes the place of the judged input
NEARLY_ALL, FEWEST_CHOICES = 0.9, 20  # share of choices of one position that leads to a warning, and fewest choices
MIN_COVERAGE = 1e-3  # default for the total probability of the answers below which a comparison is undefined


class OnePlace(UserWarning):
    """A judge chose one position in nearly all comparisons, so its choices say little about the texts."""


Corrections = dict[int, PositionOffsets]  # fitted correction by number of candidates


def corrections_of(saved: Mapping[str, dict[str, Any]]) -> Corrections:
    """Read the corrections from JSON data."""
    corrections: Corrections = {}
    for count, fields in saved.items():
        numbers = {name: tuple(float(value) for value in values) for name, values in fields.items()}
        corrections[int(count)] = PositionOffsets(**numbers)
        if len(numbers["offsets"]) not in (int(count), int(count) + 1):  # one more for a tie
            raise TypeError(f"{len(numbers['offsets'])} offsets for {count} candidates")
    return corrections


class PairwiseJudge(Judge):
    """Compares two or more candidates on one criterion.

    The prompt is one ``dspy.Predict``, ``predict``; optimizers change its instructions and demonstrations. In an
    instruction, ``{answers}`` stands for the answers; where it is missing, a line that names them follows.

    Args:
        criterion: Quality on which the candidates are compared; or a ``dspy.Signature`` of yours, whose output field
            names it (see ``asked_about``), and whose instructions, inputs and descriptions are kept.
        inputs: Input field -> its label in the prompt, in order; the ``judged`` input, by default the last, appears
            once for each candidate. Defaults to ``source`` and ``output`` under the labels of the criterion.
        judged: The field of ``inputs`` whose place the candidates take.
        ties: Offer "Tie" as an answer.
        debias: ``"permutation"`` asks in every rotation of the candidates (both orders of a pair) and averages. None
            asks only in the order of ``candidates``.
        calibration: Correction for position, at one prompt per comparison: ``"batch"`` divides the answers by their
            geometric mean over a batch, ``"pride"`` by the positions' prior. None corrects nothing.
        min_coverage: Smallest total probability of the answers, in [0, 1]; comparisons below it are undefined.
        instruction: Wording of the question. Defaults to a question about the criterion's name and definition, and a
            line "Answer with {answers}."
        instruction_place: ``"last"``, after the candidates, as in the paper: different wordings then share the prompt's
            prefix, which is much faster. Or ``"first"`` in the prompt, as the embedded judge was trained; see
            ``evalbias.evaluation.answers.instruction_place_for``.
        scoring: ``"expected"`` measures the probability of every answer; ``"sampled"`` estimates the probabilities from
            repeated answers, for models that report no probabilities.
        sampling: Settings of ``"sampled"`` scoring. Defaults to ``Sampling()``: 20 answers at temperature 1.
        reasoning: Let the model write reasons before it answers, as ``PointwiseJudge`` does.
        language: Language of the prompt around the criterion and the texts, ``"en"`` or ``"ja"``; also of the labels
            and the task of a criterion that has the default ones.
        cue: Whether a prompt ends with "Better", the criterion's name and a colon; see ``PointwiseJudge``.

    Attributes:
        corrections: Correction by number of candidates, as fitted by ``calibrate``. Single calls with ``batch``
            or ``pride`` calibration need them. Setting another ``calibration`` discards them.
    """

    kind = "pairwise judge"
    label_fields = FIELDS
    scoring = Setting[str](one_of("expected", "sampled"))
    ties = Setting[bool](one_of(False, True))
    debias = Setting[str | None](one_of(*DEBIASING))
    calibration = Setting[str | None](one_of(None, *CALIBRATIONS), resets=("corrections",))
    min_coverage = Setting[float](number_within(0, 1))
    instruction_place = Setting[str](one_of("first", "last"))
    corrections = Setting[Corrections](
        dump=lambda value: {str(count): asdict(correction) for count, correction in value.items()},
        load=corrections_of,
        unlearned=dict,
    )

    def __init__(
        self,
        criterion: Criterion | type[dspy.Signature],
        *,
        inputs: Mapping[str, str] | None = None,
        judged: str | None = None,
        ties: bool = False,
        debias: str | None = None,
        calibration: str | None = None,
        min_coverage: float = MIN_COVERAGE,
        instruction: str | None = None,
        instruction_place: str = "last",
        scoring: str = "expected",
        sampling: Sampling | None = None,
        reasoning: bool | Reasoning = False,
        language: str = "en",
        cue: bool = True,
    ) -> None:
        super().__init__()
        about = asked_about(criterion, inputs, judged, scores=False)
        self.language, self.criterion, self.inputs, self.judged = language, about.criterion, about.inputs, about.judged
        self.criterion = prompts.in_language(about.criterion, language)
        self.scoring, self.sampling, self.reasoning, self.cue = scoring, sampling, reasoning, cue
        self.debias, self.calibration, self.min_coverage = debias, calibration, min_coverage
        self.ties, self.instruction_place, self.corrections = ties, instruction_place, {}
        phrases = prompts.LANGUAGES[language]
        wording = f"{about.wording or prompts.filled(phrases.comparison, self.criterion)}\n{phrases.answers}"
        fields = {name: (str, about.field(name)) for name in self.inputs}
        fields = {CANDIDATES if n == self.judged else n: value for n, value in fields.items()}
        signature = {**fields, CANDIDATES: (list[str], dspy.InputField()), "preference": (str, dspy.OutputField())}
        self.predict = Predictor(dspy.Signature(signature, wording if instruction is None else instruction))

    def forward(self, *texts: Any, **fields: Any) -> dspy.Prediction:
        """Compare ``candidates``, a list of texts, beside the judge's other ``inputs``; undefined numbers are NaN.

        * ``preference``: index of the best candidate; None for a tie and where undefined.
        * ``probability``: probability of the first candidate.
        * ``probabilities``: probability of each candidate.
        * ``tie``: probability of a tie; 0 if "Tie" is not an answer.
        * ``win_share``: probability that the first candidate wins, where all share a tie equally.
        * ``gap``: lead of the most probable answer over the next.
        * ``consistent``: True if all orders prefer the same candidate; None with a single order, or where undefined.
        * ``positions``: for each order, the probabilities by position.
        * ``coverage``: total probability of the answers, the lowest over the orders.
        * ``reasons``: texts that the model wrote before it answered, in all orders; only from a judge with reasoning.
        * ``samples``: number of answers to each prompt from which the probabilities are estimated; None where measured.

        Raises:
            ValueError: An input or a candidate is empty, two candidates are equal, or there are fewer than two.
            PromptRefused: The model cannot take a prompt, for example because it is too long.
            NoProbabilities: The model reports no probabilities.
        """
        return self._judged(texts, fields)

    def _check(self, items: Sequence[dspy.Example], lm: Any) -> None:
        """Refuse comparisons that need a calibration which was not fitted and cannot be fitted to them."""
        self.measuring(lm)
        sizes = Counter(len(item["candidates"]) for item in items)
        for count, comparisons in sizes.items():
            if (kind := self.calibration) is None or count in self.corrections:
                continue
            if kind == "pride" and len(self._orders(count)) < count:
                raise ValueError(
                    f"calibration={kind!r} is not fitted, which takes every order of the candidates: first call "
                    f"judge.calibrate(examples), on examples of {count} candidates."
                )
            if comparisons < FEWEST_COMPARISONS:
                raise ValueError(
                    f"{kind.capitalize()} calibration over {comparisons} comparisons would remove the preference "
                    f"itself: give {FEWEST_COMPARISONS} or more, or first call judge.calibrate(examples), on examples "
                    f"of {count} candidates."
                )

    def one_place(self, choices: Mapping[int, int]) -> str:
        """Warn if one position has nearly all ``choices`` (position -> number) and nothing corrects for position."""
        place, number = max(choices.items(), key=lambda item: item[1], default=(0, 0))
        if self.debias or self.calibration or number < max(FEWEST_CHOICES, NEARLY_ALL * sum(choices.values())):
            return ""
        return (
            f"The judge of {self.criterion.name} chose place {prompts.LETTERS[place]} in nine of ten comparisons or "
            "more: unless the better text stands there as often, its choices say little. Ask in both orders: "
            "debias='permutation' (--debias permutation)."
        )

    def _warned(self, predictions: list[dspy.Prediction], lm: Any) -> list[dspy.Prediction]:
        """Also warn of a judge that nearly always chooses the same position."""
        if warning := self.one_place(Counter(p.preference for p in predictions if p.preference is not None)):
            warnings.warn(warning, OnePlace, stacklevel=1)
        return super()._warned(predictions, lm)

    def read(self, example: Any, index: int | None = None) -> dspy.Example:
        return read_pair(example, index, self.inputs, self.judged)

    def own(self, item: Fields) -> Inputs:
        names = [CANDIDATES if name == self.judged else name for name in self.inputs]
        return {name: item[name] for name in names}

    def labels(self, inputs: Inputs) -> tuple[str, ...]:
        count = len(inputs["candidates"])
        return prompts.comparison_labels(count, ties=self.ties, language=self.language)

    def prompt(self, instructions: str, demos: Sequence[Message], inputs: Inputs) -> list[Message]:
        instruction = prompts.with_answers(instructions, self.labels(inputs), self.language)
        if self.instruction_place == "first":
            return [{"role": "system", "content": instruction}, *demos, {"role": "user", "content": self.text(inputs)}]
        question = prompts.LANGUAGES[self.language].question.format(instruction=instruction)
        return [*demos, {"role": "user", "content": self.text(inputs, "", question)}]  # as in Zhou et al., appendix A

    def _questions(self, item: dspy.Example) -> list[Inputs]:
        return [self._in_order(item, order) for order in self._orders(len(item["candidates"]))]

    def _in_order(self, item: dspy.Example, order: Order) -> Inputs:
        return {**self.own(item), CANDIDATES: [item[CANDIDATES][i] for i in order]}

    def _orders(self, count: int) -> list[Order]:
        return position_calibration.rotations(count, every=self.debias == "permutation")

    def _texts(self, inputs: Inputs) -> list[tuple[str, str]]:
        phrases, texts = prompts.LANGUAGES[self.language], list[tuple[str, str]]()
        for name, label in self.inputs.items():
            if name == self.judged:
                letters = zip(prompts.LETTERS, inputs[CANDIDATES], strict=False)
                texts += [(phrases.candidate.format(label=label, letter=letter), text) for letter, text in letters]
            else:
                texts.append((label, inputs[name]))
        return texts

    def _cue(self, phrases: Language) -> str:
        return prompts.filled(phrases.better, self.criterion)

    def _closed(self, instructions: str, labels: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
        return "choice", prompts.with_answers(instructions, labels, self.language), ()

    def _labeled(self, demo: Fields, name: str) -> tuple[Inputs, str]:
        candidates = demo.get("candidates") or demo.get("outputs")
        if not candidates:
            raise ValueError(f"T{name[1:]} has no candidates: give pairs.")
        label, answers = preference_label(demo), prompts.comparison_labels(len(candidates), ties=self.ties)
        if label not in answers:
            fault = "has no label" if label is None else f"is labeled {label!r:.80}"
            raise ValueError(
                f"T{name[1:]} {fault}, but the judge answers {', '.join(answers)}: label it, or leave it out."
            )
        others = [field for field in self.inputs if field != self.judged]
        texts = check_candidates({**demo, CANDIDATES: candidates}, name, others)
        own_labels = dict(zip(answers, self.labels({"candidates": texts}), strict=True))  # in the judge's language
        return self.own({**demo, CANDIDATES: texts}), own_labels[label]

    def _row(self, answer: ChoiceLogprobs) -> Row:
        """Return the log-probabilities of the answers by position, and the most probable answer."""
        logprobs = answer.logprobs[0]  # (c + t,)
        labels = prompts.comparison_labels(len(logprobs) - int(self.ties), ties=self.ties)
        best = None if np.isnan(logprobs).any() else labels[int(logprobs.argmax())]
        coverage = float(answer.coverage[0])
        reasons = {"reasons": list(answer.reasons)} if self.reasoning else {}
        row = {"preference": best, "logprobs": logprobs.tolist(), "coverage": coverage, "samples": answer.samples}
        return {**row, **reasons}

    def _predictions(
        self, items: Sequence[dspy.Example], rows: Sequence[Sequence[Any]], lm: Any, refused: RefusedItems
    ) -> list[dspy.Prediction]:
        done: dict[int, dspy.Prediction] = {}
        sizes = [len(item["candidates"]) for item in items]
        for count in sorted(set(sizes)):
            # 1. The log-probabilities by position of all comparisons with ``count`` candidates.
            places = [i for i, size in enumerate(sizes) if size == count]
            orders = self._orders(count)
            logprobs = np.array([[row["logprobs"] for row in rows[i]] for i in places], dtype=np.float64)  # (n, r, c+t)
            # 2. Correct for position, and average by candidate.
            correction = self._correction(logprobs, orders)
            comparisons = position_calibration.calibrate_comparisons(
                logprobs, orders, correction=correction, min_coverage=self.min_coverage
            )
            averaged, positions = comparisons.probabilities, comparisons.positions  # (n, c+t), (n, r, c+t)
            lead, best, wins = gaps(averaged), decisions(averaged), win_shares(averaged, ties=self.ties)
            for n, place in enumerate(places):
                why = [row["undefined"] for row in rows[place] if "undefined" in row]
                reasons = [text for row in rows[place] for text in row.get("reasons", ())]
                done[place] = dspy.Prediction(
                    preference=best[n] if best[n] != count else None,
                    probability=float(averaged[n, 0]),
                    probabilities=averaged[n, :count].tolist(),
                    tie=float(averaged[n, count]) if self.ties else 0.0,
                    win_share=float(wins[n, 0]),
                    gap=float(lead[n]),
                    consistent=_consistent(positions[n], orders),
                    positions=positions[n].tolist(),
                    coverage=float(np.min([row["coverage"] for row in rows[place]])),
                    samples=rows[place][0]["samples"],
                    **({"reasons": reasons} if self.reasoning else {}),
                    **({"undefined": why[0]} if why else {}),
                )
        return [done[i] for i in range(len(items))]

    def calibrate(self, examples: Sequence[dspy.Example], *, lm: MeasuringLM | None = None) -> int:
        """Fit the ``batch`` or ``pride`` calibration to examples without labels, and keep it.

        Return the number of prompts asked: in every rotation for ``pride``. ``CalibrationError``, a ``ValueError``, if
        the examples do not determine the calibration; ``ValueError`` if it is of another kind.
        """
        model, kind = resolve_lm(lm, self.predict), self.calibration
        self.measuring(model)
        if kind is None:
            raise ValueError(f"calibration=None is not fitted: choose one of {CALIBRATIONS}, then call calibrate.")
        examples = [self.read(e, i) for i, e in enumerate(examples)]
        fitted, prompts_asked = {}, 0
        for count in {len(e.candidates) for e in examples}:
            part = [e for e in examples if len(e.candidates) == count]
            orders = position_calibration.rotations(count, every=True) if kind == "pride" else self._orders(count)
            logprobs = self.answer_logprobs(part, orders, model)
            fitted[count] = fit_correction(kind, logprobs, orders, min_coverage=self.min_coverage)
            prompts_asked += len(part) * len(orders)
        self.corrections = self.corrections | fitted
        return prompts_asked

    def answer_logprobs(self, examples: Sequence[dspy.Example], orders: Sequence[Order], lm: Any) -> FloatArray:
        """Return log-probabilities of n examples of c candidates in r orders: (n, r, c + t), NaN where refused."""
        rows = self._ask([(e, self._in_order(e, order)) for e in examples for order in orders], lm, refused="undefined")
        return np.array([row["logprobs"] for row in rows], dtype=np.float64).reshape(len(examples), len(orders), -1)

    def _correction(self, logprobs: FloatArray, orders: Sequence[Order]) -> PositionOffsets | None:
        """Return the correction, fitted before or to these comparisons; None without calibration."""
        count, kind = len(orders[0]), self.calibration
        if kind is None or count in self.corrections:
            return self.corrections.get(count)
        if not (np.exp(logprobs).sum(axis=2) >= self.min_coverage).any():
            return None  # all comparisons are undefined anyway
        return fit_correction(kind, logprobs, orders, min_coverage=self.min_coverage)

    def measuring(self, lm: Any) -> Any:
        """Return the model to ask; ``ValueError`` if the judge is calibrated and the probabilities are estimates."""
        model = super().measuring(lm)
        if self.calibration is not None and getattr(model, "sampling", None) is not None:
            raise ValueError(
                f"calibration={self.calibration!r} needs measured probabilities: an answer that none of a few sampled "
                "ones names has no log-probability to subtract. Use debias='permutation', or a model that measures."
            )
        return model


def _consistent(positions: FloatArray, orders: Sequence[Order]) -> bool | None:
    """True if all orders (rows of ``positions``) prefer the same candidate or none; None for one order or undefined."""
    if len(orders) == 1 or np.isnan(positions).any():
        return None
    preferred = set()
    for best, order in zip(decisions(positions), orders, strict=True):
        preferred.add(order[best] if best is not None and best < len(order) else None)
    return len(preferred) == 1


class CalibrationError(ValueError):
    """The comparisons do not determine a calibration."""


def fit_correction(
    calibration: str, logprobs: FloatArray, orders: Sequence[Order], *, min_coverage: float
) -> PositionOffsets:
    """Fit one of ``CALIBRATIONS`` to (n, r, c + t) log-probabilities without labels; NaN where undefined.

    Each of the r orders holds the candidate at each position; ``pride`` takes all rotations. Prompts below
    ``min_coverage`` are left out. ``CalibrationError`` if no comparison is defined.
    """
    count = len(orders[0])
    covered = np.exp(logprobs).sum(axis=2, keepdims=True) >= min_coverage
    kept = np.where(covered, logprobs, np.nan)
    if calibration == "pride":
        prior = position_calibration.position_prior(kept, orders)
        offsets = position_calibration.prior_offsets(prior, ties=kept.shape[2] > count)
    else:
        offsets = position_calibration.batch_offsets(kept)
    if np.isnan(offsets).any():
        raise CalibrationError(
            f"None of {len(kept)} comparisons has a defined, positive probability of every answer: calibration="
            f"{calibration!r} cannot be fitted. Give other comparisons, or a lower min_coverage."
        )
    return PositionOffsets(tuple(offsets.tolist()))
