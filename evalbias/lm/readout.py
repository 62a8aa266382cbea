"""Log-probabilities of wanted tokens, read off the hidden states of a causal model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from evalbias.lm.head import Head
from evalbias.lm.rows import Reads
from evalbias.lm.transfer import sent
from evalbias.measures.arrays import FloatArray

MAX_LOGITS = 1 << 26
"""Number of logits in memory at once, 256 MiB in float32; all positions of a large vocabulary would take far more."""


Target = tuple[int, int]
"""(sequence, index among its scored tokens) of a log-probability."""
Pending = list[tuple[torch.Tensor, list[Target]]]
"""(t,) log-probabilities on the model's device, NaN where the logits were not finite, and to whom they belong."""
Read = Callable[[torch.Tensor, Reads], None]
"""Computes the log-probabilities that are read at (m, d) hidden states."""


class Readout:
    """Output layer and log-softmax of one model, in float32, at the positions that are read.

    Log-probabilities stay on the model's device until a run is over, so that the host never waits for a pack: it
    prepares the next one while a GPU computes.

    Args:
        model: A causal transformers model.
    """

    def __init__(self, model: Any) -> None:
        self._head = Head(model)
        self._vocabulary = model.config.get_text_config().vocab_size

    @contextmanager
    def into(self, logprobs: list[FloatArray]) -> Iterator[Read]:
        """Yield a function to read with; what it has read is in ``logprobs`` after the ``with`` block.

        If memory runs out within the block, what was read before is kept.

        Raises:
            FloatingPointError: The model returned NaN or infinite logits for a sequence.
        """
        pending: Pending = []

        def read(hidden: torch.Tensor, reads: Reads) -> None:
            pending.extend(self._read(hidden, reads))

        try:
            yield read
        except torch.OutOfMemoryError:
            _collect(pending, logprobs)
            raise
        _collect(pending, logprobs)

    def _read(self, hidden: torch.Tensor, reads: Reads) -> Iterator[tuple[torch.Tensor, list[Target]]]:
        places = list(reads)
        step = max(1, MAX_LOGITS // self._vocabulary)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            logits = self._head(hidden.index_select(0, sent(np.array(part), hidden.device)))  # (p, V)
            wanted = [(row, *read) for row, place in enumerate(part) for read in reads[place]]
            index = sent(np.array([(row, token) for row, token, _, _ in wanted]), logits.device)  # (t, 2)
            rows, tokens = index[:, 0], index[:, 1]
            values = logits[rows, tokens] - logits.logsumexp(dim=-1)[rows]  # (t,)
            usable = torch.isfinite(logits).all(dim=1)[rows]  # (t,)
            values = torch.where(usable, values, torch.nan)
            yield values, [(sequence, place) for _, _, sequence, place in wanted]


def _collect(pending: Pending, logprobs: list[FloatArray]) -> None:
    """Copy the pending log-probabilities to the host in one transfer, and write them into ``logprobs``."""
    if not pending:
        return
    values = torch.cat([part for part, _ in pending]).cpu().double().numpy()  # the only wait of a run
    targets = [target for _, part in pending for target in part]
    for value, (sequence, place) in zip(values, targets, strict=True):
        if np.isnan(value):
            raise FloatingPointError(
                f"The model returned NaN or infinite logits for item {sequence}: try dtype='float32'."
            )
        logprobs[sequence][place] = value
