"""Estimates of a model's probabilities from repeated answers, for models that report none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalbias.lm.reading import named_choice
from evalbias.lm.types import ChoiceLogprobs, Prompt
from evalbias.runs.fingerprint import digest

MOST_SAMPLES, MOST_TOKENS = 10_000, 1_000_000
"""Limits of what a file of settings can make a judge ask for."""


@dataclass(frozen=True)
class Sampling:
    """Settings for asking a model the same question repeatedly, to estimate the probabilities of its answers.

    Args:
        samples: Number k of answers, at least 2. A share p of them has the standard error ``sqrt(p (1 - p) / k)``.
        temperature: Sampling temperature, greater than 0. 1 estimates the model's own probabilities; the model's
            defaults apply to other sampling settings, such as ``top_p``.
        max_tokens: Token limit of each answer; models that reason before they answer need a high one.
        seed: Seed of the answers. Models that take a seed give the same answers again.

    Raises:
        ValueError: A value is outside its range.
    """

    samples: int = 20
    temperature: float = 1.0
    max_tokens: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if not (2 <= self.samples <= MOST_SAMPLES and self.temperature > 0 and 1 <= self.max_tokens <= MOST_TOKENS):
            raise ValueError(
                f"{self} cannot be drawn: give 2 to {MOST_SAMPLES} samples, a temperature above 0, and a limit of 1 to "
                f"{MOST_TOKENS} tokens."
            )

    def seeds(self, prompt: Prompt, rollout_id: int | None = None) -> list[int]:
        """Return one seed for each answer to a prompt; different prompts and rollouts have different seeds."""
        key = digest([prompt, self.seed, rollout_id], 16)
        return [int(seed) for seed in np.random.default_rng(int(key, 16)).integers(2**31, size=self.samples)]


def estimate(rows: Sequence[Sequence[str]], choices: Sequence[str], samples: int) -> ChoiceLogprobs:
    """Estimate the probabilities of choices after n prompts as their shares of the answers.

    Args:
        rows: The k answers to each of n prompts.
        choices: Texts of the choices; see ``named_choice`` for how an answer is read.
        samples: Number k of answers to each prompt.

    Returns:
        Logarithms of the shares, shape (n, c), -inf where no answer names the choice. Answers that name no choice count
        in k, so that the coverage is the share of readable answers.

    Example:
        >>> answer = estimate([["A", "B.", "A", "Both."]], ["A", "B"], 4)
        >>> answer.coverage, answer.probabilities.round(3)
        (array([0.75]), array([[0.667, 0.333]]))
    """
    counts = [Counter(named_choice(text, choices) for text in row) for row in rows]
    shares = np.array([[count[choice] / samples for choice in choices] for count in counts]).reshape(-1, len(choices))
    with np.errstate(divide="ignore"):  # a choice that was never drawn
        return ChoiceLogprobs(tuple(choices), np.log(shares), samples=samples)
