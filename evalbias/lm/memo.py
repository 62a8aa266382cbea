"""Likelihoods that are asked once: neither a judge's criterion nor its demonstrations change them."""

from __future__ import annotations

from collections.abc import Sequence

from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, MeasuringLM, Prompt


class LikelihoodMemo:
    """A measuring LM that remembers every likelihood it told, in memory.

    Args:
        lm: Whose likelihoods are meant.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        self._lm = lm
        self._told: dict[str, LogLikelihood] = {}

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context; see ``MeasuringLM``."""
        keys = [repr(pair) for pair in pairs]
        unseen = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in self._told}
        if unseen:
            self._told.update(zip(unseen, self._lm.loglikelihood(list(unseen.values())), strict=True))
        return [self._told[key] for key in keys]

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt, asked every time; see ``MeasuringLM``."""
        return self._lm.choice_logprobs(prompts, choices)
