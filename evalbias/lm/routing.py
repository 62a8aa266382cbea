"""Which of several servers of one model answers which prompt, so that each finds prefixes in its cache.

Sorted prompts are the leaves of a trie. The trie is cut into subtrees, each as large as possible, but not larger than
one server's share of the call: what begins alike stays together, and a prefix that more prompts share than one server
should answer is computed by several servers. Each subtree goes to a server by rendezvous hashing of the prefix that
sets it apart (Thaler and Ravishankar 1998, "Using name-based mappings to increase hit rates"), so that a later call
or another process sends prompts of the same prefix to the same server. No server takes more than ``SLACK`` times its
share (Mirrokni et al. 2018, "Consistent hashing with bounded loads").
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evalbias.lm.tokens import common

BLOCK = 64
"""Length in bytes by which prefixes are compared: 16 tokens, which servers cache as one block."""

SLACK = 1.25
"""Largest load of a server as a multiple of the mean."""


@dataclass(frozen=True)
class Group:
    """Sorted prompts that begin alike.

    Attributes:
        start: Number of the first prompt in sorted order.
        stop: Number after the last prompt.
        prefix: Prefix by which the group is placed.
    """

    start: int
    stop: int
    prefix: bytes


def route(keys: Sequence[bytes], servers: Sequence[str], loads: Sequence[int]) -> list[list[int]]:
    """Return the numbers of the prompts that each server answers, in the order of their keys.

    Args:
        keys: Prompts as bytes, in any order.
        servers: Names of the servers, at least one.
        loads: Number of requests that each server is answering already.
    """
    order = sorted(range(len(keys)), key=keys.__getitem__)
    if len(servers) == 1:
        return [order]
    found = groups([keys[number] for number in order], math.ceil(len(keys) / len(servers)))
    limit = math.ceil(SLACK * (sum(loads) + len(keys)) / len(servers))
    placed: list[list[Group]] = [[] for _ in servers]
    totals = list(loads)
    for group in sorted(found, key=lambda group: group.start - group.stop):  # large ones first, while there is room
        size = group.stop - group.start
        ranked = rendezvous(group.prefix, servers)
        server = next((s for s in ranked if totals[s] + size <= limit), min(ranked, key=totals.__getitem__))
        placed[server].append(group)
        totals[server] += size
    return [
        [
            order[place]
            for group in sorted(own, key=lambda group: group.start)
            for place in range(group.start, group.stop)
        ]
        for own in placed
    ]


def groups(keys: Sequence[bytes], most: int) -> list[Group]:
    """Cut the trie of sorted prompts into the largest subtrees of at most ``most`` prompts.

    Prompts are compared by blocks. A subtree's prefix ends with the first block that sets it apart from its siblings.
    Where all prompts are one subtree, it is what they share: of a single prompt all of it.

    Example:
        >>> [(g.start, g.stop) for g in groups([b"a" * 64 + b"b" * 64, b"a" * 64 + b"c" * 64, b"d" * 64], 2)]
        [(0, 2), (2, 3)]
    """
    return list(_cut(keys, most)) if keys else []


def _cut(keys: Sequence[bytes], most: int) -> Iterator[Group]:
    shared = np.array([0, *(common(a, b) for a, b in itertools.pairwise(keys))]) // BLOCK  # (n,) with the prompt before
    whole = len(keys[0]) // BLOCK if len(keys) == 1 else int(shared[1:].min()) - 1
    todo = [(0, len(keys), whole)]
    while todo:
        start, stop, depth = todo.pop()
        if stop - start <= max(most, 1):
            yield Group(start, stop, keys[start][: (depth + 1) * BLOCK])
            continue
        within = shared[start + 1 : stop]
        depth = int(within.min())
        cuts = [start, *(start + 1 + np.flatnonzero(within == depth)).tolist(), stop]
        todo += [(a, b, depth) for a, b in itertools.pairwise(cuts)]


def rendezvous(prefix: bytes, servers: Sequence[str]) -> list[int]:
    """Return the servers in the order of preference of a prefix: a random order that the prefix decides.

    A server that leaves changes the first choice of its own prefixes only.
    """
    digest = hashlib.blake2b(prefix, digest_size=16).digest()
    weights = [hashlib.blake2b(digest + name.encode(), digest_size=8).digest() for name in servers]
    return sorted(range(len(servers)), key=weights.__getitem__, reverse=True)
