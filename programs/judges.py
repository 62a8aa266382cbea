"""Judges that score: prompt, answers and calibration as one DSPy program."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, TypeVar

import dspy
import numpy as np
from dspy import lm15
from dspy.utils.callback import with_callbacks

from evalbias.data.cells import number
from evalbias.data.items import item_name
from evalbias.lm.contract import Sampling, aask, ask, awrite, measuring, resolve_lm, write, written
from evalbias.lm.types import ChoiceLogprobs, MeasuringLM, PromptRefused, chunk_of, settled, stacked, unanswered
from evalbias.measures.arrays import FloatArray
from evalbias.measures.corrections import LikelihoodCalibration
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import check_no_metric, label_of, text_problem, usable_item
from evalbias.programs.prompts import Message, item_text, judge_head, likelihood_messages
from evalbias.programs.saved import (
    CriterionSetting,
    Predictor,
    Program,
    SamplingSetting,
    Setting,
    load_program,
    saved_criterion,
)
from evalbias.values import get_logger

# Adapter that turns a judge's signature, demonstrations and inputs into one judgment.
#
# A measured answer does not depend on sampling settings, so only ``cache`` and ``rollout_id`` of a call's settings are
# passed to the model; ``direct`` scoring decodes greedily, and ``sampled`` scoring has settings of its own.


PASSED_SETTINGS = ("cache", "rollout_id")
MAX_SCORE_TOKENS = 8
"""Largest number of tokens that direct scoring generates."""

_GREEDY = lm15.Config(temperature=0.0, max_tokens=MAX_SCORE_TOKENS)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?!\d)(?![\w.]*\d)")


class JudgmentAdapter(dspy.Adapter):  # type: ignore[misc]
    """Adapter that asks for the score's distribution (``expected``, ``sampled``) or a written score (``direct``)."""

    def __init__(self, criterion: Criterion, scoring: str, sampling: Sampling | None = None) -> None:
        super().__init__()
        self.criterion = criterion
        self.scoring = scoring
        self.sampling = sampling

    def format(self, signature: Any, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[Message]:
        """Return the messages of one judgment."""
        return self.prompts(signature, demos, [inputs])[0]

    def prompts(
        self, signature: Any, demos: Sequence[Mapping[str, Any]], items: Sequence[Mapping[str, Any]]
    ) -> list[list[Message]]:
        """Return the messages of one judgment per item; the demonstrations are rendered once."""
        shown = [(text_field(d, "source"), text_field(d, "output"), self._label(d)) for d in demos]
        head = judge_head(self.criterion, demos=shown, instructions=signature.instructions)
        return [[*head, self._item_message(item)] for item in items]

    def _item_message(self, item: Mapping[str, Any]) -> Message:
        text = item_text(self.criterion, text_field(item, "source"), text_field(item, "output"))
        return {"role": "user", "content": text}

    def _label(self, demo: Mapping[str, Any]) -> str:
        named = f"demonstration {item_name(demo)!r:.80}"
        score = number(demo.get("score"), f"The score of the {named}", texts=True)
        if math.isnan(score):
            raise ValueError(
                f"The {named} has no score: label the training set with evalbias.programs.labeled(examples, criterion)."
            )
        try:
            return label_of(score, self.criterion)
        except ValueError as error:
            raise ValueError(f"The {named} has no label. {error}") from error

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask for one judgment; see ``dspy.Adapter``."""
        messages, options = self.format(signature, demos, inputs), call_options(lm_kwargs)
        if self.scoring == "direct":
            return [written_score(self.criterion, write(lm, messages, _GREEDY, **options))]
        return expected_scores(self.criterion, ask(lm, messages, self.criterion.labels, self.sampling, **options))

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask for one judgment asynchronously; see ``dspy.Adapter``."""
        messages, options = self.format(signature, demos, inputs), call_options(lm_kwargs)
        if self.scoring == "direct":
            return [written_score(self.criterion, await awrite(lm, messages, _GREEDY, **options))]
        answer = await aask(lm, messages, self.criterion.labels, self.sampling, **options)
        return expected_scores(self.criterion, answer)


def call_options(lm_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a call that are DSPy's own, not the model's."""
    return {name: lm_kwargs[name] for name in PASSED_SETTINGS if name in lm_kwargs}


def text_field(item: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a text that is not empty.

    Raises:
        ValueError: The field is missing, empty, not a text, or holds a lone surrogate.
    """
    value = item.get(name)
    check_no_metric(value, "judge_metric")
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name!r} is {value!r:.80} in {_named(item)}: give a text that is not empty.")
    if problem := text_problem(value):
        raise ValueError(f"{name!r} of {_named(item)} {problem}: write the character whole, or remove it.")
    return value


def _named(item: Mapping[str, Any]) -> str:
    return f"the item {item['id']!r:.80}" if item.get("id") is not None else f"{str(dict(item))[:80]!r}..."


def expected_scores(criterion: Criterion, answer: ChoiceLogprobs) -> list[dict[str, Any]]:
    """Return the fields of a prediction for each row; the score is the expectation (Ohi et al. 2024, eq 7).

    Score and mode are NaN if no label has any probability.
    """
    rows = zip(answer.probabilities, answer.coverage, strict=True)
    return [
        _expected(criterion, dict(zip(criterion.labels, p.tolist(), strict=True)), float(c), answer.samples)
        for p, c in rows
    ]


def _expected(
    criterion: Criterion, distribution: dict[str, float], coverage: float, samples: int | None
) -> dict[str, Any]:
    score = sum(value * distribution[label] for value, label in zip(criterion.values, criterion.labels, strict=True))
    mode = math.nan if math.isnan(score) else float(max(distribution, key=distribution.__getitem__))
    return {"score": score, "distribution": distribution, "mode": mode, "coverage": coverage, "samples": samples}


def written_score(criterion: Criterion, text: str) -> dict[str, Any]:
    """Read the first whole number of a text as the score; NaN without a number or if it is off the scale."""
    match = _NUMBER.search(text)
    score = float(match.group()) if match and match.group() in criterion.labels else math.nan
    return {"score": score, "distribution": None, "mode": score, "coverage": math.nan, "samples": None}


# Items that a model cannot be asked about, such as too long ones: left undefined and reported, or an error.


Answer = TypeVar("Answer")
Refused = Literal["undefined", "raise"]

logger = get_logger(__name__)


def answer_items(
    ask: Callable[[Sequence[Any]], Sequence[Answer]],
    prompts: Sequence[Any],
    examples: Sequence[dspy.Example],
    *,
    refused: Refused = "undefined",
) -> tuple[dict[int, Answer], dict[int, str]]:
    """Ask for all prompts; one that the model refuses costs its own answer alone, and no prompt is answered twice.

    Args:
        ask: Method of the model that takes a list of prompts.
        prompts: Prompts, one per example.
        examples: Examples with ``id``, ``ids`` or ``source``.
        refused: ``"undefined"`` to log refused items by name and go on, or ``"raise"``.

    Returns:
        Index of an item -> its answer, and index of a refused item -> a sentence that names it and the reason.

    Raises:
        PromptRefused: A prompt is refused and ``refused`` is ``"raise"``; the message names its item.
        ValueError: ``refused`` is unknown.
    """
    if refused == "raise":
        return dict(enumerate(name_refused_items(ask, prompts, examples))), {}
    if refused != "undefined":
        raise ValueError(f"refused={refused!r} is unknown: choose 'undefined' or 'raise'.")
    answers, reasons = settled(ask, prompts)
    sentences = {i: f"{_prompt_of(examples[i])} {reason}" for i, reason in sorted(reasons.items())}
    if sentences:
        distinct = list(dict.fromkeys(sentences.values()))
        more = f" The same holds for {len(distinct) - 1} more." if len(distinct) > 1 else ""
        logger.warning("%s Its judgment is undefined.%s", distinct[0], more)
    return answers, sentences


def answer_choices(
    model: MeasuringLM,
    prompts: Sequence[Any],
    choices: Sequence[str],
    examples: Sequence[dspy.Example],
    *,
    refused: Refused = "undefined",
) -> ChoiceLogprobs:
    """Return the log-probabilities of choices after every prompt, NaN after one that the model refuses.

    Arguments and errors are those of ``answer_items``.
    """
    answers, _ = answer_items(
        lambda some: model.choice_logprobs(some, choices).rows(), prompts, examples, refused=refused
    )
    return stacked([answers[i] if i in answers else unanswered(choices) for i in range(len(prompts))], choices)


def name_refused_items(
    ask: Callable[[Sequence[Any]], Answer], prompts: Sequence[Any], examples: Sequence[dspy.Example]
) -> Answer:
    """Call the model, and name the item if a prompt is refused; the model itself knows positions only.

    Args:
        ask: Call of the model with a list of prompts.
        prompts: Prompts, one per example.
        examples: Examples with ``id``, ``ids`` or ``source``.

    Raises:
        PromptRefused: A prompt is refused, for example because it is too long; the message names its item.
    """
    try:
        return ask(prompts)
    except PromptRefused as error:
        names = {i: _prompt_of(examples[i]) for i in error.refused}
        raise type(error)(error.refused, error.answered, names) from error


def _prompt_of(example: dspy.Example) -> str:
    """Name the prompt about an item by its id, about a pair by its ids, any other by the beginning of its source."""
    if example.get("ids"):
        return f"The prompt of the pair {tuple(example.ids)!r:.80}"
    if example.get("id") is not None:
        return f"The prompt of the item {example.id!r:.80}"
    return f"The prompt of the item with the source {str(example.get('source'))[:60]!r}..."


# LS, the log-likelihood of an output given its source and the task (Ohi et al. 2024, eq 1), of a criterion's items.


REDUCTIONS = ("sum", "mean")


def likelihood_scores(
    examples: Sequence[dspy.Example],
    criterion: Criterion,
    lm: MeasuringLM,
    *,
    reduction: str = "sum",
    refused: Refused = "undefined",
) -> FloatArray:
    """Measure (n,) LS, ``log P(output | source, task)`` in nats (Ohi et al. 2024, eq 1); NaN if refused.

    Args:
        examples: Items with ``source`` and ``output``; the same text is scored once.
        criterion: Its task is the description d of eq 1.
        lm: Model whose likelihood is measured.
        reduction: ``"sum"`` over the output's tokens, or ``"mean"`` as in the paper's code.
        refused: See ``PointwiseJudge.batch``.
    """
    return likelihoods_and_refusals(examples, criterion, lm, reduction=reduction, refused=refused)[0]


def likelihoods_and_refusals(
    examples: Sequence[dspy.Example],
    criterion: Criterion,
    lm: MeasuringLM,
    *,
    reduction: str,
    refused: Refused = "undefined",
) -> tuple[FloatArray, dict[int, str]]:
    """Measure (n,) LS as ``likelihood_scores`` does, and return why it is refused by index of an item."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction={reduction!r} is unknown: choose one of {REDUCTIONS}.")
    texts = [(e.source, e.output) for e in examples]
    unique = dict(zip(texts, examples, strict=True))
    questions = [(likelihood_messages(criterion, source), output) for source, output in unique]
    answers, reasons = answer_items(lm.loglikelihood, questions, list(unique.values()), refused=refused)
    keys = list(unique)
    known = {keys[i]: a.total if reduction == "sum" else a.mean for i, a in answers.items()}
    why = {keys[i]: reason for i, reason in reasons.items()}
    values = np.array([known.get(text, np.nan) for text in texts], dtype=np.float64)
    return values, {i: why[text] for i, text in enumerate(texts) if text in why}


# Likelihood calibration of a judge: its place among the saved settings, and what it does to predictions.


class LikelihoodCalibrationSetting(Setting[LikelihoodCalibration | None]):
    """The likelihood calibration of a judge, which is fitted; None if there is none."""

    since_later = True

    def dump(self, value: LikelihoodCalibration | None) -> Any:
        """Return the fields."""
        return None if value is None else asdict(value)

    def load(self, saved: Any, current: LikelihoodCalibration | None) -> LikelihoodCalibration | None:
        """Return the calibration with these fields."""
        if saved is None:
            return None
        bounds = saved.get("bounds")  # a list in JSON; missing in older files
        return LikelihoodCalibration(**{**saved, "bounds": None if bounds is None else tuple(bounds)})

    def reset(self, value: LikelihoodCalibration | None) -> LikelihoodCalibration | None:
        """Return no calibration."""
        return None


def calibrated_fields(
    fields: Sequence[Mapping[str, Any]],
    examples: Sequence[dspy.Example],
    calibration: LikelihoodCalibration,
    *,
    criterion: Criterion,
    lm: Any,
    refused: Refused = "undefined",
) -> list[dict[str, Any]]:
    """Correct the scores of predictions for the likelihood of what was judged.

    Args:
        fields: Fields of one prediction per example.
        examples: Examples with ``source`` and ``output``.
        calibration: Correction.
        criterion: The judge's criterion.
        lm: The judge's model, which also measures the likelihoods.
        refused: See ``PointwiseJudge.batch``.

    Returns:
        The fields with the corrected ``score``, and with ``raw_score`` and ``likelihood`` (LS in nats) besides. Where
        the likelihood is refused, ``score`` is NaN and ``undefined`` says why.

    Raises:
        NotImplementedError: The model reports no likelihoods.
    """
    try:
        likelihoods, reasons = likelihoods_and_refusals(
            examples, criterion, measuring(lm), reduction=calibration.reduction, refused=refused
        )
    except NotImplementedError as error:
        raise NotImplementedError(
            f"The judge of {criterion.name} corrects its scores for likelihood, which this model does not report. "
            f"{error} Or set judge.likelihood_calibration = None for uncorrected scores."
        ) from error
    raw = np.array([row["score"] for row in fields], dtype=np.float64)
    scores = calibration(raw, likelihoods, scale=criterion.scale)
    return [
        {
            **({"undefined": reasons[i]} if i in reasons else {}),
            **row,  # a judgment that was refused itself keeps its own reason
            "score": float(score),
            "raw_score": row["score"],
            "likelihood": float(likelihood),
        }
        for i, (row, score, likelihood) in enumerate(zip(fields, scores, likelihoods, strict=True))
    ]


# Report the judgments of a batch to DSPy's callbacks, as if each had been a call of its own.
#
# DSPy's tracing (MLflow's autolog and other tools) sees programs through callbacks around every call. A batch asks the
# model without calling the program once per item, so its judgments would be invisible.


def tell_callbacks(
    program: dspy.Module, inputs: Sequence[Mapping[str, Any]], predictions: Sequence[dspy.Prediction]
) -> None:
    """Report each judgment with its inputs and prediction; the time of the call is not reported.

    Args:
        program: Program that judged.
        inputs: (n,) arguments of each call.
        predictions: (n,) results.
    """
    if not (dspy.settings.callbacks or program.callbacks):
        return
    for arguments, prediction in zip(inputs, predictions, strict=True):
        _tell(program, arguments, prediction)


def _tell(program: dspy.Module, arguments: Mapping[str, Any], prediction: dspy.Prediction) -> None:
    @with_callbacks  # type: ignore[untyped-decorator]
    def call(instance: dspy.Module, *args: Any, **kwargs: Any) -> dspy.Prediction:
        """Return the prediction; the arguments are named as those of ``dspy.Module.__call__``."""
        return prediction

    call(program, **arguments)


# The pointwise judge, a DSPy program that scores one output at a time.


SCORINGS = ("expected", "sampled", "direct")


class PointwiseJudge(Program):
    """Scores an output against one criterion.

    Args:
        criterion: Quality to score, with its scale.
        scoring: ``"expected"`` measures the probability of every label and takes the expectation
            (Ohi et al. 2024, eq 7); ``"sampled"`` estimates the probabilities from repeated answers, for models that
            report none; ``"direct"`` is the baseline that reads the number the model writes.
        sampling: How often and how ``"sampled"`` scoring asks. Defaults to ``Sampling()``: 20 answers at temperature 1.
        likelihood_calibration: Correction of every score for the likelihood of the output under the judge's own model,
            as ``LikelihoodMitigation`` fits it. None corrects nothing. It holds for the instructions and demonstrations
            that it was fitted with.

    The prompt is one ``dspy.Predict``, ``predict``; optimizers change its instructions and demonstrations.

    Raises:
        ValueError: ``scoring`` is unknown, or ``sampling`` is given for another scoring than ``"sampled"``.

    Examples:
        >>> judge = PointwiseJudge(Criterion("politeness", "is the reply polite?"))
        >>> judge(source="Where is it?", output="Over there, sir.").score  # doctest: +SKIP
        4.2
    """

    kind = "pointwise judge"
    criterion = CriterionSetting()
    scoring = Setting(*SCORINGS)
    sampling = SamplingSetting()
    likelihood_calibration = LikelihoodCalibrationSetting()

    def __init__(
        self,
        criterion: Criterion,
        *,
        scoring: str = "expected",
        sampling: Sampling | None = None,
        likelihood_calibration: LikelihoodCalibration | None = None,
    ) -> None:
        super().__init__(
            criterion=criterion,
            scoring=scoring,
            sampling=sampling,
            likelihood_calibration=likelihood_calibration,
        )
        self.predict = Predictor(dspy.Signature("source: str, output: str -> score: float", criterion.instructions))

    def forward(self, source: str, output: str) -> dspy.Prediction:
        """Judge one output.

        Returns:
            A prediction with ``score`` (expectation, on the criterion's scale), ``distribution`` (label -> probability,
            normalized over the labels), ``mode`` (value of the most probable label), ``coverage`` (total probability
            of the labels) and ``samples`` (None). Undefined values are NaN; ``direct`` scoring has no distribution and
            no coverage. ``sampled`` scoring estimates the distribution from ``samples`` answers, of which the share
            ``coverage`` was readable: the score's standard error is the distribution's standard deviation over
            ``sqrt(samples * coverage)``.

            With a likelihood calibration, ``score`` is corrected, and the prediction also has ``raw_score``, which is
            not, and ``likelihood``, LS in nats. Where LS is undefined, so is the score.

        Raises:
            ValueError: The source or the output is empty.
            NoProbabilities: The model reports no probabilities.
            PromptRefused: The model refuses the prompt, for example because it is too long.
            NotImplementedError: The judge is calibrated, and the model reports no likelihoods.
        """
        with dspy.context(adapter=self._adapter()):
            prediction = self.predict(source=source, output=output)
        return self._calibrated(prediction, source, output)

    async def aforward(self, source: str, output: str) -> dspy.Prediction:
        """Judge one output asynchronously; see ``forward``."""
        with dspy.context(adapter=self._adapter()):
            prediction = await self.predict.acall(source=source, output=output)
        return await asyncio.to_thread(self._calibrated, prediction, source, output)

    def _calibrated(self, prediction: dspy.Prediction, source: str, output: str) -> dspy.Prediction:
        """Correct one prediction for likelihood, if the judge is calibrated."""
        if self.likelihood_calibration is None:
            return prediction
        item = dspy.Example(source=source, output=output)
        (fields,) = self._corrected([prediction.toDict()], [item], resolve_lm(None, self.predict), "raise")
        return dspy.Prediction(**fields)

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: MeasuringLM | None = None,
        progress: Callable[[int], None] | None = None,
        chunk: int | None = None,
        refused: Refused = "undefined",
        **options: Any,
    ) -> list[dspy.Prediction]:
        """Judge many outputs in few calls of the model.

        Each judgment is reported to DSPy's callbacks, such as MLflow's tracing, as if it were a call of its own.

        Args:
            examples: Examples with ``source`` and ``output``.
            lm: Model to ask. Defaults to the judge's own model, then to the one that DSPy is configured with.
            progress: Function that is called after every chunk with the number of judgments just done.
            chunk: Number of prompts in one call of the model. Defaults to 256, or more for a model that answers more
                at the same time.
            refused: ``"undefined"`` leaves items undefined that the model cannot take, for example because they are too
                long, logs their ids and keeps the reason in the prediction's ``undefined``; ``"raise"`` raises.
            **options: Arguments of ``dspy.Module.batch`` (``num_threads`` and others); accepted and not needed,
                but for ``return_failed_examples``.

        Returns:
            One prediction per example, in order, with the fields of ``forward``.

        Raises:
            NotImplementedError: The judge is calibrated, and the model reports no likelihoods.
            ValueError: An example is no ``dspy.Example``, or lacks a text; the message names it.
        """
        check_batch_options(options)
        predictions: list[dspy.Prediction] = []
        examples = [usable_item(e, i) for i, e in enumerate(examples)]
        lm = resolve_lm(lm, self.predict)
        size = chunk or chunk_of(lm)
        for start in range(0, len(examples), size):
            part = examples[start : start + size]
            rows = self._scores(lm, part, refused)
            done = [dspy.Prediction(**row) for row in self._corrected(rows, part, lm, refused)]
            tell_callbacks(self, [{"source": e["source"], "output": e["output"]} for e in part], done)
            predictions += done
            if progress is not None:
                progress(len(part))
        return predictions

    def _scores(self, lm: Any, examples: Sequence[dspy.Example], refused: Refused) -> list[dict[str, Any]]:
        """Return the fields of a prediction for each example; those of a refused one also say why."""
        prompts = self._prompts(examples)
        if self.scoring == "direct":
            texts, reasons = answer_items(
                lambda some: written(lm, some, max_tokens=MAX_SCORE_TOKENS), prompts, examples, refused=refused
            )
            rows = [written_score(self.criterion, texts.get(i, "")) for i in range(len(prompts))]
        else:
            model, labels = measuring(lm, self.sampling), self.criterion.labels
            answers, reasons = answer_items(
                lambda some: model.choice_logprobs(some, labels).rows(), prompts, examples, refused=refused
            )
            rows = [
                row
                for i in range(len(prompts))
                for row in expected_scores(self.criterion, answers[i] if i in answers else unanswered(labels))
            ]
        return [{**row, "undefined": reasons[i]} if i in reasons else row for i, row in enumerate(rows)]

    def _corrected(
        self, rows: Sequence[dict[str, Any]], examples: Sequence[dspy.Example], lm: Any, refused: Refused
    ) -> Sequence[dict[str, Any]]:
        if self.likelihood_calibration is None:
            return rows
        return calibrated_fields(
            rows, examples, self.likelihood_calibration, criterion=self.criterion, lm=lm, refused=refused
        )

    def messages(self, example: dspy.Example) -> list[Message]:
        """Return the prompt of one judgment."""
        return self._prompts([example])[0]

    def _prompts(self, examples: Sequence[dspy.Example]) -> list[list[Message]]:
        return self._adapter().prompts(self.predict.signature, self.predict.demos, examples)

    def _adapter(self) -> JudgmentAdapter:
        return JudgmentAdapter(self.criterion, self.scoring, self.sampling)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> PointwiseJudge:
        """Construct the judge whose ``dump_state`` is given."""
        judge = cls(saved_criterion(state))
        judge.load_state(state)
        judge.check_demos()
        return judge

    def check_demos(self) -> None:
        """Refuse demonstrations that no prompt can show.

        Raises:
            ValueError: A text is missing or empty, or the score has no label; the message names the demonstration.
        """
        self._prompts([])


def check_batch_options(options: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for options that ``dspy.Module.batch`` does not have, or that change what it returns."""
    unknown = sorted(set(options) - set(inspect.signature(dspy.Module.batch).parameters))
    if unknown:
        raise TypeError(f"batch() got unexpected keyword arguments: {unknown}.")
    if options.get("return_failed_examples"):
        raise TypeError("return_failed_examples is not needed: what the model refuses has a prediction that says why.")


def load_judge(path: str | os.PathLike[str]) -> PointwiseJudge:
    """Load a pointwise judge from the JSON file that ``judge.save(path)`` wrote.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not hold a pointwise judge.
    """
    return load_program(path, PointwiseJudge)
