"""Shared prefixes of models that cannot run packs: a trunk runs once, and its state is repeated for what follows.

A pack needs attention, which can be masked. A layer that passes a state from token to token (linear attention, Mamba,
convolutions) or that counts places (ALiBi) can only run consecutive tokens. Its cache after a shared prefix, the
*trunk*, serves every row that begins with it: trunks run one by one, and the rests of the rows in batches, padded on
the right, where no token looks.

    rows         trunks        batches
    a b c d      a b           c d     after a b
    a b c e      a b c         e .
    a b f g                    f g
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from evalbias.lm.transfer import sent
from evalbias.lm.trie import Ids

SHORTEST, SAVING = 16, 64
"""Smallest number of tokens in a trunk, and of tokens that it saves: each is a forward pass of its own."""


@dataclass
class Trunk:
    """Consecutive tokens that some rows share.

    Attributes:
        rows: The rows, of which the first holds the tokens.
        start: Position of the first token.
        stop: Position after the last token.
        parent: Number of the trunk before this one.
        leaves: Rows whose remaining tokens run in batches after this trunk.
        last: Number of the last trunk that begins after this one; its own number if there is none.
    """

    rows: range
    start: int
    stop: int
    parent: int
    leaves: list[int] = field(default_factory=list)
    last: int = 0


@dataclass(frozen=True)
class Stretch:
    """Tokens that ran together.

    Attributes:
        hidden: (b, w, d) hidden states.
        start: Position of the first of the w tokens.
        rows: The rows to whom each of the b sequences belongs.
    """

    hidden: torch.Tensor
    start: int
    rows: tuple[Sequence[int], ...]


def trunks(rows: Sequence[Ids], lengths: Sequence[int]) -> list[Trunk]:
    """Return the trunks of sorted rows in the order in which they run; the first is empty.

    Args:
        rows: Distinct, non-empty rows in sorted order.
        lengths: Length of the prefix that each row shares with the row before, from ``trie.shared``.
    """
    done = [Trunk(range(len(rows)), 0, 0, 0)]
    waiting = [(done[0].rows, 0)] if rows else []
    while waiting:
        group, parent = waiting.pop()
        if len(group) == 1:
            done[parent].leaves.append(group[0])
            continue
        stop = min(lengths[row] for row in group[1:])
        start = done[parent].stop
        if stop - start >= SHORTEST and (len(group) - 1) * (stop - start) >= SAVING:
            done.append(Trunk(group, start, stop, parent))
            parent = len(done) - 1
        cuts = [group.start, *(row for row in group[1:] if lengths[row] == stop), group.stop]
        waiting += [(range(a, b), parent) for a, b in itertools.pairwise(cuts)][::-1]
    for number, trunk in enumerate(done):
        trunk.last = number
        done[trunk.parent].last = number
    return done


def run(
    body: Any, rows: Sequence[Ids], lengths: Sequence[int], batch_tokens: int, device: torch.device
) -> Iterator[Stretch]:
    """Run every row, each trunk once.

    Args:
        body: Decoder of the model.
        rows: Distinct, non-empty rows in sorted order.
        lengths: Length of the prefix that each row shares with the row before.
        batch_tokens: Largest number of tokens in a batch, those of its trunk included.
        device: Device of the model.
    """
    plan = trunks(rows, lengths)
    states: dict[int, Any] = {}  # number of a trunk -> cache after it
    for number, trunk in enumerate(plan):
        if trunk.stop:
            ids = sent(rows[trunk.rows[0]][trunk.start : trunk.stop], device)[None]
            hidden, states[number] = _forward(body, ids, copy.deepcopy(states.get(trunk.parent)))
            yield Stretch(hidden, trunk.start, (trunk.rows,))
        left = sorted((row for row in trunk.leaves if len(rows[row]) > trunk.stop), key=lambda row: len(rows[row]))
        while left:
            count = 1
            while count < len(left) and (count + 1) * len(rows[left[count]]) <= batch_tokens:
                count += 1
            batch, left = left[:count], left[count:]
            rests = np.zeros((count, len(rows[batch[-1]]) - trunk.stop), dtype=np.int64)  # (b, w)
            for place, row in enumerate(batch):
                rests[place, : len(rows[row]) - trunk.stop] = rows[row][trunk.stop :]
            hidden, _ = _forward(body, sent(rests, device), _repeated(states.get(number), count))
            yield Stretch(hidden, trunk.stop, tuple((row,) for row in batch))
        for done in [done for done in states if plan[done].last <= number]:
            del states[done]


def _forward(body: Any, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    """Return the (b, w, d) hidden states of (b, w) tokens after a state, and the state after them."""
    given = {} if state is None else {state[0]: state[1]}
    outputs = body(input_ids=ids, use_cache=True, **given)
    name = "cache_params" if hasattr(outputs, "cache_params") else "past_key_values"  # the former in Mamba
    return outputs.last_hidden_state, (name, getattr(outputs, name))


def _repeated(state: Any, count: int) -> Any:
    """Return a copy of a state for each of several rows."""
    if state is None:
        return None
    name, cache = copy.deepcopy(state)
    cache.reorder_cache(torch.zeros(count, dtype=torch.long))
    return name, cache
