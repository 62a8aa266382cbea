"""Adapter that turns a comparison into one judgment request, and the check of what is compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dspy
import numpy as np

from evalbias.data.item_names import item_name
from evalbias.data.surrogates import lone_surrogate
from evalbias.lm.asking import aask, ask
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.types import ChoiceLogprobs
from evalbias.programs.adapter import call_options, check_no_metric, text_field
from evalbias.programs.criterion import Criterion
from evalbias.programs.pair_labels import preference_label
from evalbias.programs.prompt import LETTERS, Message, comparison_labels, comparison_messages


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


def check_candidates(source: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates of one source as a list.

    Raises:
        ValueError: There are fewer than 2 or more than 26 candidates, a text is empty or holds a lone
            surrogate, or two candidates are equal.
    """
    check_no_metric(source, "preference_metric")
    texts = candidate_texts(source, candidates)
    if len(set(texts)) < len(texts):
        raise ValueError(f"Two candidates of the source {_named(source)} are equal: give each candidate once.")
    return texts


def candidate_texts(source: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates of one source, of which some may be equal, as a list.

    Raises:
        ValueError: There are fewer than 2 or more than 26 candidates, or a text is empty or holds a lone surrogate.
    """
    named = _named(source)
    listed = isinstance(candidates, Collection) and not isinstance(candidates, str)
    if not listed or not 2 <= len(candidates) <= len(LETTERS):
        most = len(LETTERS)
        raise ValueError(f"The source {named} has the candidates {candidates!r:.80}: give a list of 2 to {most} texts.")
    for text in (source, *candidates):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"A text of the source {named} is {text!r:.80}: give texts that are not empty.")
        if problem := lone_surrogate(text):
            raise ValueError(f"A text of the source {named} holds {problem}: write the character whole, or remove it.")
    return list(candidates)


def _named(source: Any) -> str:
    return f"{source[:60]!r}..." if isinstance(source, str) else repr(source)
