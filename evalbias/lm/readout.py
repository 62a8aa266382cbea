"""Log-probabilities of wanted tokens, read off the hidden states of a causal model."""

from __future__ import annotations

from typing import Any

import torch

from evalbias.lm.head import Head
from evalbias.lm.rows import Reads
from evalbias.measures.arrays import FloatArray

MAX_LOGITS = 1 << 26
"""Number of logits in memory at once, 256 MiB in float32; all positions of a large vocabulary would take far more."""


class Readout:
    """Output layer and log-softmax of one model, in float32, at the positions that are read.

    Args:
        model: A causal transformers model.
    """

    def __init__(self, model: Any) -> None:
        self._head = Head(model)
        self._vocabulary = model.config.get_text_config().vocab_size

    def __call__(self, hidden: torch.Tensor, reads: Reads, logprobs: list[FloatArray]) -> None:
        """Write the log-probabilities that are read at (m, d) hidden states into ``logprobs``.

        Raises:
            FloatingPointError: The model returned NaN or infinite logits for a sequence.
        """
        places = list(reads)
        step = max(1, MAX_LOGITS // self._vocabulary)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            logits = self._head(hidden[torch.tensor(part, device=hidden.device)])  # (p, V)
            targets = [(row, *read) for row, place in enumerate(part) for read in reads[place]]
            finite = torch.isfinite(logits).all(dim=1)  # (p,)
            if not bool(finite.all()):
                bad = int((~finite).nonzero()[0])
                item = next(sequence for row, _, sequence, _ in targets if row == bad)
                raise FloatingPointError(
                    f"The model returned NaN or infinite logits for item {item}: try dtype='float32'."
                )
            index = torch.tensor([[row, token] for row, token, _, _ in targets], device=hidden.device)  # (t, 2)
            values = logits[index[:, 0], index[:, 1]] - logits.logsumexp(dim=-1)[index[:, 0]]  # (t,)
            for value, (_, _, sequence, place) in zip(values.cpu().double().numpy(), targets, strict=True):
                logprobs[sequence][place] = value
