"""The pointwise judge, a DSPy program that scores one output at a time."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dspy

from evalbias.lm.contract import measuring, resolve_lm, written
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.types import MeasuringLM, chunk_of, unanswered
from evalbias.measures.likelihood_calibration import LikelihoodCalibration
from evalbias.programs.adapter import MAX_SCORE_TOKENS, JudgmentAdapter, expected_scores, written_score
from evalbias.programs.calibrated import LikelihoodCalibrationSetting, calibrated_fields
from evalbias.programs.callbacks import tell_callbacks
from evalbias.programs.criterion import Criterion
from evalbias.programs.predictor import Predictor
from evalbias.programs.prompt import Message
from evalbias.programs.refused import Refused, answer_items
from evalbias.programs.saving import load_program
from evalbias.programs.scoring import SamplingSetting
from evalbias.programs.settings import CriterionSetting, Program, Setting, saved_criterion
from evalbias.programs.usable import usable_item

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
