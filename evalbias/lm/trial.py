"""The trial of a model at load: whether ways to share prefixes give the answers of texts that run by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from evalbias.lm.layer_masks import narrowed
from evalbias.lm.rows import Row, rows_of
from evalbias.lm.tokens import Scored
from evalbias.measures.arrays import FloatArray

PACK_SIZES = (300, 100)
"""Sizes in tokens of the packs to try, both smaller than the texts together; the second cuts most texts."""

WINDOW = 24
"""Width in tokens of sliding windows during the trial, less than the texts' length."""

AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-3}
"""Largest mean difference in nats that rounding makes."""
AGREEMENT_16_BIT = 0.1
"""The same for 16 bits, as a share of the log-probabilities' standard deviation.

It was .038 with Gemma 3 270M in bfloat16 and at most .01 with two layers; ignored masks and positions make .2 and more.
"""

Run = Callable[[Sequence[Row], list[FloatArray]], None]
"""Runs rows and writes their log-probabilities into the arrays, one for each sequence."""


def disagreement(model: Any, longest: int, alone: Run, ways: Sequence[Run]) -> str:
    """Return what is wrong with the answers of some ways to run a model, or an empty string.

    Args:
        model: The model.
        longest: Length in tokens of the longest text that may share a prefix.
        alone: Runs every text by itself.
        ways: Ways to share prefixes.
    """
    texts = _texts(model.config.get_text_config().vocab_size, longest)
    rows, answers = rows_of(texts), []
    try:
        with torch.inference_mode(), narrowed(model, WINDOW):
            for run in (alone, *ways):
                logprobs = [np.full(len(s.ids) - s.start, np.nan) for s in texts]
                run(rows, logprobs)
                answers.append(np.concatenate(logprobs))
    except Exception as error:  # any model's own code: what fails is done without
        return f"{type(error).__name__}: {error}"
    difference = max(float(np.abs(answers[0] - answer).mean()) for answer in answers[1:])
    agreed = difference <= AGREEMENT.get(model.dtype, AGREEMENT_16_BIT * float(answers[0].std()))
    return "" if agreed else f"its answers differ by {difference:.2g} nats"


def _texts(vocabulary: int, longest: int) -> list[Scored]:
    """Return texts with a common prefix, so long that the last one of a pack stands far from its own prefix."""
    rng, own = np.random.default_rng(0), max(2, min(64, longest - 40))
    trunk = tuple(rng.integers(0, vocabulary, min(40, longest - own)).tolist())
    return [Scored((*trunk, *rng.integers(0, vocabulary, own).tolist()), len(trunk)) for _ in range(4)]
