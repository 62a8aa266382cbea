"""Any ``dspy.LM`` that answers measured judgments, as a ``MeasuringLM`` (choices only: it cannot tell likelihoods)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from evalbias.lm.judgment import judgment_request, read_judgment
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, MeasuringLM, Prompt


def measuring(lm: Any) -> MeasuringLM:
    """The model itself when it measures, else the model behind DSPy's judgment contract.

    Raises:
        TypeError: No language model at all.
    """
    if isinstance(lm, MeasuringLM):
        return lm
    if not callable(lm) or not hasattr(lm, "model"):
        raise TypeError(f"{lm!r} is no language model: configure one with dspy.configure(lm=...) or pass lm=.")
    return ContractLM(lm)


class ContractLM:
    """Measured choices from a server, one request a prompt, several in flight."""

    def __init__(self, lm: Any, *, in_flight: int = 16) -> None:
        self._lm = lm
        self._in_flight = in_flight

    @property
    def model(self) -> str:
        """The model string of the wrapped LM."""
        return str(self._lm.model)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt; see ``MeasuringLM``."""

        def ask(prompt: Prompt) -> ChoiceLogprobs:
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            return read_judgment(self._lm(judgment_request(self.model, messages, choices)), choices)

        with ThreadPoolExecutor(self._in_flight) as pool:
            rows = list(pool.map(ask, prompts))
        logprobs = np.concatenate([r.logprobs for r in rows]) if rows else np.empty((0, len(choices)))
        return ChoiceLogprobs(tuple(choices), logprobs, renormalised=any(r.renormalised for r in rows))

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Refused: the contract has no likelihoods."""
        raise NotImplementedError(
            f"{self.model} tells no likelihoods of given texts: name a local model for them "
            "(likelihood_lm=LocalLM(...), or --likelihood-lm on the command line)."
        )
