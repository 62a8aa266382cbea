"""A judge that scores one output at a time, as a DSPy program."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dspy

from evalbias.lm.contract import measuring, resolve_lm, written
from evalbias.lm.types import MeasuringLM, chunk_of
from evalbias.programs.adapter import MAX_SCORE_TOKENS, JudgmentAdapter, expected_scores, written_score
from evalbias.programs.context_errors import name_overlong_items
from evalbias.programs.criterion import Criterion
from evalbias.programs.prompt import Message
from evalbias.programs.saving import read_state

STATE_KEY = "evalbias"
SCORINGS = ("expected", "direct")


class PointwiseJudge(dspy.Module):  # type: ignore[misc]
    """Scores an output against one criterion.

    Args:
        criterion: What is judged.
        scoring: ``"expected"`` measures the probability of every label and takes the expectation
            (Ohi et al. 2024, eq 7); ``"direct"`` is the baseline that reads the number the model writes.

    The prompt is one ``dspy.Predict``, ``predict``: its instructions and demonstrations are what optimizers change.

    Examples:
        >>> judge = PointwiseJudge(Criterion("politeness", "is the reply polite?"))
        >>> judge(source="Where is it?", output="Over there, sir.").score  # doctest: +SKIP
        4.2
    """

    def __init__(self, criterion: Criterion, *, scoring: str = "expected") -> None:
        super().__init__()
        if scoring not in SCORINGS:
            raise ValueError(f"scoring={scoring!r} is unknown: choose one of {SCORINGS}.")
        self.criterion = criterion
        self.scoring = scoring
        self.predict = dspy.Predict(dspy.Signature("source: str, output: str -> score: float", criterion.instructions))

    def forward(self, source: str, output: str) -> dspy.Prediction:
        """Judge one output.

        Returns:
            ``score`` (the expectation, on the criterion's scale), ``distribution`` (label -> share of the labels'
            probability), ``mode`` (the likeliest label's value), ``coverage`` (probability that any label follows).
            Undefined values are NaN; ``direct`` scoring has no distribution and no coverage.

        Raises:
            ValueError: An empty source or output.
        """
        with dspy.context(adapter=self._adapter()):
            return self.predict(source=source, output=output)

    async def aforward(self, source: str, output: str) -> dspy.Prediction:
        """As ``forward``, awaited."""
        with dspy.context(adapter=self._adapter()):
            return await self.predict.acall(source=source, output=output)

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: MeasuringLM | None = None,
        progress: Callable[[int], None] | None = None,
        chunk: int | None = None,
        **threads: Any,
    ) -> list[dspy.Prediction]:
        """Judge many outputs: prompts are rendered once and sent to the model together.

        Args:
            examples: With ``source`` and ``output``.
            lm: In place of the judge's own or DSPy's configured model.
            progress: Called with the number of judgments done after every chunk.
            chunk: Prompts to a call of the model. None takes 256, more where it answers many at the same time.
            **threads: What ``dspy.Module.batch`` takes (``num_threads`` and others); one call needs no threads.

        Returns:
            One prediction an example, in order, as ``forward`` gives it.
        """
        check_batch_options(threads)
        done: list[dspy.Prediction] = []
        lm = resolve_lm(lm, self.predict)
        size = chunk or chunk_of(lm)
        for start in range(0, len(examples), size):
            part = examples[start : start + size]
            rows = name_overlong_items(lambda prompts: self._scores(lm, prompts), self._prompts(part), part)
            done += [dspy.Prediction(**row) for row in rows]
            if progress is not None:
                progress(len(part))
        return done

    def _scores(self, lm: Any, prompts: Sequence[list[Message]]) -> list[dict[str, Any]]:
        if self.scoring == "direct":
            return [written_score(self.criterion, text) for text in written(lm, prompts, max_tokens=MAX_SCORE_TOKENS)]
        return expected_scores(self.criterion, measuring(lm).choice_logprobs(prompts, self.criterion.labels))

    def messages(self, example: dspy.Example) -> list[Message]:
        """The prompt of one judgment."""
        return self._prompts([example])[0]

    def _prompts(self, examples: Sequence[dspy.Example]) -> list[list[Message]]:
        return self._adapter().prompts(self.predict.signature, self.predict.demos, examples)

    def _adapter(self) -> JudgmentAdapter:
        return JudgmentAdapter(self.criterion, self.scoring)

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The program's state and what it judges; no model and no key."""
        state: dict[str, Any] = super().dump_state(json_mode)
        return {**state, STATE_KEY: {"criterion": asdict(self.criterion), "scoring": self.scoring}}

    def load_state(self, state: dict[str, Any], **kwargs: Any) -> None:
        """Take over a saved judge: criterion, scoring, instructions and demonstrations."""
        own = state[STATE_KEY]
        self.criterion = Criterion(**{**own["criterion"], "scale": tuple(own["criterion"]["scale"])})
        self.scoring = own["scoring"]
        super().load_state({k: v for k, v in state.items() if k != STATE_KEY}, **kwargs)


def check_batch_options(threads: Mapping[str, Any]) -> None:
    """Refuse what is no argument of ``dspy.Module.batch``."""
    unknown = sorted(set(threads) - set(inspect.signature(dspy.Module.batch).parameters))
    if unknown:
        raise TypeError(f"batch() got unexpected keyword arguments: {unknown}.")


def load_judge(path: str | os.PathLike[str]) -> PointwiseJudge:
    """Read a judge that ``judge.save(path)`` wrote (JSON).

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no saved judge.
    """
    judge = PointwiseJudge(Criterion("placeholder", "replaced by the state"))
    judge.load_state(read_state(path, STATE_KEY, "judge"))
    return judge
