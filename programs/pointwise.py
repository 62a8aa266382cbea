"""The judge that scores one output at a time, and corrections of its scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dspy
import numpy as np

from evalbias.data.items import number
from evalbias.lm.cache import measuring
from evalbias.lm.contract import Reasoning, Sampling
from evalbias.lm.decisions import LEVELS
from evalbias.lm.types import ChoiceLogprobs
from evalbias.measures.corrections import LEVEL, ScoreCorrection, Slope, level_features
from evalbias.programs import prompts
from evalbias.programs.criterion import Criterion, asked_about
from evalbias.programs.items import check_item, label_of, length_feature, own_inputs, read_item, text_length
from evalbias.programs.judges import Judge, RefusedItems, Row, likelihoods_and_refusals
from evalbias.programs.prompts import Fields, Inputs, Language, Message
from evalbias.programs.saved import Predictor, Setting, instance_of, one_of

# Corrections of its scores.

LIKELIHOOD, LENGTH = "likelihood", "length"
"""Features of an output for which a judge can correct its scores."""


def correction_of(saved: Any) -> ScoreCorrection:
    """Read a correction from JSON data; raises ``ValueError`` or an error in ``MALFORMED`` for data of another form."""
    slopes = {}
    for name, slope in saved["slopes"].items():
        numbers = {key: number(slope[key], f"{name!r:.80}: {key!r}", required=True) for key in ("slope", "center")}
        bounds = slope["bounds"]
        if bounds is not None:
            low, high = bounds
            bounds = tuple(number(end, f"{name!r:.80}: 'bounds'", required=True) for end in (low, high))
        slopes[name] = Slope(**{**slope, **numbers, "bounds": bounds})
    shift = number(saved["shift"], "'shift'", required=True)
    return ScoreCorrection(**{**saved, "slopes": slopes, "shift": shift})


def _check_correction(name: str, value: Any) -> None:
    instance_of(ScoreCorrection | None, "a ScoreCorrection or None")(name, value)
    if value and value.pairs:
        raise ValueError(f"{name}: it was learned on comparisons, and this judge scores: learn one on scores.")
    known = (LIKELIHOOD, LENGTH)
    if value and (other := [feature for feature in value.slopes if feature not in known and LEVEL not in feature]):
        raise ValueError(
            f"{name}: a judge cannot tell {other[0]!r:.80} of an output, only {LIKELIHOOD} and {LENGTH}: call the "
            "correction with its scores and your own numbers."
        )


class PointwiseJudge(Judge):
    r"""Scores an output against one criterion.

    The prompt is one ``dspy.Predict``, ``predict``; optimizers change its instructions and demonstrations.

    Args:
        criterion: Quality to score, with its scale; or a ``dspy.Signature`` of yours, whose output field is scored (see
            ``asked_about``), and whose instructions, inputs and descriptions are kept.
        inputs: Input field -> its label in the prompt, in order. Defaults to ``source`` and ``output`` under the labels
            of the criterion.
        judged: The field of ``inputs`` that is judged. Defaults to the last one.
        scoring: ``"expected"`` takes the expectation over the measured probabilities of all labels (Ohi et al. 2024, eq
            7); ``"sampled"`` estimates them from repeated answers, for models that report none.
        sampling: How often and how ``"sampled"`` scoring asks. Defaults to ``Sampling()``: 20 answers at temperature 1.
        correction: Correction of every score for the output's likelihood under the judge's own model, as
            ``LikelihoodMitigation`` fits it, or its length, as ``learn_correction`` and 'evalbias correct' do, or for
            the probabilities of the levels, as ``Align`` does; for the prompt that it was fitted with.
        reasoning: Let the model write reasons before it answers, and average the probabilities measured after each:
            True, or ``evalbias.Reasoning(samples=...)``. Sampled scoring takes a single answer after each.
        language: Language of the prompt around the criterion and the texts, ``"en"`` or ``"ja"``; also of the labels
            and the task of a criterion that has the default ones.
        cue: Whether a prompt ends with the criterion's name and a colon, after which a model without chat template
            continues. Without, it ends with the texts; models that follow instructions agree better with people by one
            or by the other, so measure it (``Align`` tries both).

    Examples:
        >>> judge = PointwiseJudge(Criterion("politeness", "is the reply polite?"))
        >>> judge(source="Where is it?", output="Over there, sir.").score  # doctest: +SKIP
        4.2
        >>> class Support(dspy.Signature):
        ...     "Check an answer against its context."
        ...     context: str = dspy.InputField()
        ...     answer: str = dspy.InputField()
        ...     supported: bool = dspy.OutputField(desc="does the context say it?")
        >>> PointwiseJudge(Support).text({"context": "It is noon.", "answer": "It is night."})
        'Context: It is noon.\nAnswer: It is night.\nSupported:'
    """

    kind = "pointwise judge"
    falling = False  # whether the prompt lists the highest score first, as a probe does
    label_fields = ("score", "scores")
    scoring = Setting[str](one_of("expected", "sampled"))
    correction = Setting[ScoreCorrection | None](
        _check_correction,
        dump=lambda value: value and {n: v for n, v in asdict(value).items() if n != "reading" or v},
        load=lambda saved: saved and correction_of(saved),
        unlearned=lambda: None,
    )

    def __init__(
        self,
        criterion: Criterion | type[dspy.Signature],
        *,
        inputs: Mapping[str, str] | None = None,
        judged: str | None = None,
        scoring: str = "expected",
        sampling: Sampling | None = None,
        correction: ScoreCorrection | None = None,
        reasoning: bool | Reasoning = False,
        language: str = "en",
        cue: bool = True,
    ) -> None:
        super().__init__()
        about = asked_about(criterion, inputs, judged, scores=True)
        self.language, self.criterion, self.inputs, self.judged = language, about.criterion, about.inputs, about.judged
        self.criterion = prompts.in_language(about.criterion, language)
        self.scoring, self.sampling, self.reasoning, self.cue = scoring, sampling, reasoning, cue
        self.correction = correction
        wording = about.wording or prompts.filled(prompts.LANGUAGES[language].scoring, self.criterion)
        fields = {name: (str, about.field(name)) for name in self.inputs}
        output = dspy.OutputField(desc=self.criterion.definition)
        self.predict = Predictor(
            dspy.Signature({**fields, "score": (float, output)}, f"{wording}\n{self.answer_format}")
        )

    @property
    def _kind(self) -> str:
        """Kind of the closed question: "noul" for yes or no, "score" for a level, "choice" for many labels."""
        if self._is_yes_or_no or self.criterion.labels == ("0", "1"):
            return "noul"
        return "score" if len(self.criterion.labels) <= LEVELS else "choice"

    @property
    def _is_yes_or_no(self) -> bool:
        phrases = prompts.LANGUAGES[self.language]
        return self.criterion.labels == (phrases.no, phrases.yes)

    @property
    def answer_format(self) -> str:
        """End of the initial instruction, which names the answers; keep it when you write your own instruction."""
        labels, phrases = self.labels({}), prompts.LANGUAGES[self.language]
        levels = [f"{label}: {meaning}" for label, meaning in zip(labels, self.criterion.levels, strict=False)]
        line = (phrases.falling if self.falling else phrases.scale).format(low=labels[0], high=labels[-1])
        if self.criterion.answers:  # yes comes first in English, as the best answer does where they are reversed
            ordered = labels[::-1] if self.falling != self._is_yes_or_no else labels
            line = prompts.with_answers(phrases.answers, ordered, self.language)
        return "\n".join([*levels[:: -1 if self.falling else 1], line])

    def forward(self, *texts: str, **fields: str) -> dspy.Prediction:
        """Judge an output, passed by the judge's ``inputs``; undefined values of the prediction are NaN.

        It has ``score`` (expectation, on the criterion's scale), ``distribution`` (label -> probability, normalized
        over the labels), ``mode`` (value of the most probable label), ``coverage`` (total probability of the labels)
        and ``samples`` (None). Sampled scoring estimates them from ``samples`` answers, of which the share ``coverage``
        was readable: the score's standard error is the distribution's standard deviation over ``sqrt(samples *
        coverage)``. A correction changes ``score`` and adds ``raw_score``, without it, and, where it is for likelihood,
        ``likelihood``, LS in nats. With reasoning, ``reasons`` are the texts that the model wrote.

        Raises:
            ValueError: An input is missing or empty.
            TypeError: The call names an input that the judge does not have.
            NoProbabilities: The model reports no probabilities.
            PromptRefused: The model refuses the prompt, for example because it is too long.
            NotImplementedError: The judge corrects for likelihood, and the model does not report it.
        """
        return self._judged(texts, fields)

    def read(self, example: Any, index: int | None = None) -> dspy.Example:
        return read_item(example, index, self.inputs, self.judged)

    def own(self, item: Fields) -> Inputs:
        return own_inputs(item, self.inputs, self.judged)

    def labels(self, inputs: Inputs) -> tuple[str, ...]:
        return self.criterion.labels

    def prompt(self, instructions: str, demos: Sequence[Message], inputs: Inputs) -> list[Message]:
        head = {"role": "system", "content": instructions}
        return [head, *demos, {"role": "user", "content": self.text(inputs)}]

    def _texts(self, inputs: Inputs) -> list[tuple[str, str]]:
        return [(label, inputs[name]) for name, label in self.inputs.items()]

    def _cue(self, phrases: Language) -> str:
        return phrases.score.format(name=prompts.heading(self.criterion))

    def _wire(self, label: str) -> Any:
        """Return the number of a level from 0, or whether the answer is yes, as DSPy's demonstrations have them."""
        place = self.criterion.labels.index(label)
        return {"noul": bool(place), "score": place}.get(self._kind, label)

    def _closed(self, instructions: str, labels: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
        levels, kind = self.criterion.levels, self._kind
        if levels or kind == "noul":  # else the wording names the ends of the scale
            instructions = instructions.removesuffix(f"\n{self.answer_format}")
        return kind, instructions, levels

    def _labeled(self, demo: Fields, name: str) -> tuple[Inputs, str]:
        check_item(demo, name, self.inputs, self.judged)
        value: Any = demo.get("score")
        if value in self.criterion.answers:
            return self.own(demo), value
        score = number(value, f"The score of {name}", texts=True)
        if math.isnan(score):
            raise ValueError(
                f"T{name[1:]} has no score: label the training set with evalbias.programs.labeled(examples, criterion)."
            )
        try:
            label = label_of(score, self.criterion)
        except ValueError as error:
            raise ValueError(f"T{name[1:]} has no label. {error}") from error
        return self.own(demo), label

    def _row(self, answer: ChoiceLogprobs) -> Row:
        """Return the fields of an expectation (Ohi et al. 2024, eq 7; NaN without probability)."""
        criterion, probabilities = self.criterion, answer.probabilities[0]
        distribution = dict(zip(criterion.labels, probabilities.tolist(), strict=True))
        # score = sum over labels of value * P(label)
        score = sum(value * p for value, p in zip(criterion.values, distribution.values(), strict=True))
        mode = math.nan if math.isnan(score) else float(criterion.values[int(np.argmax(probabilities))])
        row = {"score": score, "distribution": distribution, "mode": mode, "coverage": float(answer.coverage[0])}
        return {**row, "samples": answer.samples} | ({"reasons": list(answer.reasons)} if self.reasoning else {})

    def _predictions(
        self, items: Sequence[dspy.Example], rows: Sequence[Sequence[Any]], lm: Any, refused: RefusedItems
    ) -> list[dspy.Prediction]:
        scored = [row for (row,) in rows]
        if (correction := self.correction) is None:
            return [row if isinstance(row, dspy.Prediction) else dspy.Prediction(**row) for row in scored]
        lengths = np.array([text_length(e.output, correction.length) for e in items], dtype=np.float64)
        features = {LENGTH: length_feature(lengths)}
        reasons = dict[int, str]()
        if any(LEVEL in feature for feature in correction.slopes):
            if drawn := max((row.get("samples") or 0 for row in scored), default=0):
                raise ValueError(
                    f"The judge of {self.criterion.name} reads its scores by the model's probabilities of the levels, "
                    f"and these are counted over {drawn} answers: take a model that reports probabilities, align the "
                    "judge with this one, or set judge.correction = None for scores as they are."
                )
            shares = np.array([list(row["distribution"].values()) for row in scored])
            features |= level_features(shares, self.criterion.scale)
        if LIKELIHOOD in correction.slopes:
            try:
                likelihoods, reasons = likelihoods_and_refusals(
                    items, self.criterion, measuring(lm), correction.reduction, refused=refused
                )
                features[LIKELIHOOD] = likelihoods[:, 0]
            except NotImplementedError as error:
                raise NotImplementedError(
                    f"The judge of {self.criterion.name} corrects its scores for likelihood, which this model does not "
                    f"report. {error} Or set judge.correction = None for uncorrected scores."
                ) from error
        raw = np.array([row["score"] for row in scored], dtype=np.float64)
        corrected = correction(raw, features, scale=self.criterion.scale)
        done = []
        for i, row in enumerate(scored):
            why = {"undefined": reasons[i]} if i in reasons else {}  # a refused judgment keeps its own reason
            numbers = {"score": float(corrected[i]), "raw_score": row["score"]}
            if LIKELIHOOD in features:
                numbers["likelihood"] = float(features[LIKELIHOOD][i])
            done.append(dspy.Prediction(**{**why, **dict(row), **numbers}))
        return done
