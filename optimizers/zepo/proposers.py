"""Where new instructions come from.

A wording must keep the criterion's name. The line that names the answers is no part of it and cannot be lost.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from dspy import lm15

from evalbias.programs.criterion import Criterion

ATTEMPTS = 4
"""Requests for one wording before it is given up."""


@dataclass(frozen=True)
class Proposal:
    """New wordings, and what was turned down on the way.

    Attributes:
        instructions: At most as many as were asked for; none known, none twice.
        rejected: (reason, text) of every wording that was turned down.
    """

    instructions: tuple[str, ...]
    rejected: tuple[tuple[str, str], ...] = ()


class Proposer(Protocol):
    """Makes instructions from one that does well. The same seed gives the same proposals."""

    def __call__(
        self, criterion: Criterion, instruction: str, count: int, *, known: Collection[str], seed: int
    ) -> Proposal:
        """Up to ``count`` wordings that keep the criterion's name and are not ``known``."""
        ...


def fault(text: str, criterion: Criterion, known: Collection[str]) -> str | None:
    """Why a wording cannot be used; None if it can."""
    if not text.strip():
        return "empty"
    if not re.search(rf"(?<!\w){re.escape(criterion.title)}(?!\w)", text, re.IGNORECASE):
        return f"without the name {criterion.title!r}"
    return "known already" if text in known else None


class LMParaphraser:
    """Any ``dspy.LM`` rewords the instruction.

    Args:
        lm: Who rewords; a model of another kind than the judge may do it better.
        temperature: The paper's is .9.
        max_tokens: Of one wording.
    """

    def __init__(self, lm: Any, *, temperature: float = 0.9, max_tokens: int = 200) -> None:
        self.lm = lm
        self.temperature = temperature
        self.max_tokens = max_tokens

    def __call__(
        self, criterion: Criterion, instruction: str, count: int, *, known: Collection[str], seed: int
    ) -> Proposal:
        """See ``Proposer``; a broken wording is asked for again, with another seed."""
        return _gathered(
            lambda attempt: self._reworded(criterion, instruction, seed * 10_007 + attempt), criterion, count, known
        )

    def _reworded(self, criterion: Criterion, instruction: str, seed: int) -> str:
        asked = (
            "Below is an instruction for somebody who judges texts. Say the same in other words: be inventive in "
            f'wording and structure, keep the meaning, and keep the words "{criterion.title}" as they are. Do not '
            "mention how to answer. Write the new instruction on one line and nothing else.\n\n"
            f"Instruction: {instruction}\n\nNew instruction:"
        )
        config = lm15.Config(temperature=self.temperature, max_tokens=self.max_tokens, seed=seed)
        request = lm15.Request(model=str(self.lm.model), messages=(lm15.Message.user(asked),), config=config)
        return _first_line(self.lm(request).text or "")


def _first_line(answer: str) -> str:
    """The first line that says something, without a heading or quotation marks of its own."""
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    bare = re.sub(r"^(new )?instruction:", "", lines[0], flags=re.IGNORECASE) if lines else ""
    return bare.strip("\"' ")


class GrammarParaphraser:
    """Wordings put together from parts: no model, no network; the words are the demo's and what a small judge knows.

    Args:
        parts: One tuple of alternatives for each place; a wording takes one from each. ``{source}``,
            ``{output}``, ``{name}`` and ``{definition}`` stand for the criterion's.
    """

    def __init__(self, parts: Iterable[Iterable[str]]) -> None:
        self.parts = [tuple(options) for options in parts]

    def __call__(
        self, criterion: Criterion, instruction: str, count: int, *, known: Collection[str], seed: int
    ) -> Proposal:
        """See ``Proposer``; the instruction it starts from does not matter."""
        rng = random.Random(seed)
        told = {
            "output": criterion.output_label.lower(),
            "source": criterion.source_label.lower(),
            "name": criterion.title,
            "definition": criterion.definition,
        }
        return _gathered(
            lambda _: " ".join(rng.choice(options) for options in self.parts).format(**told), criterion, count, known
        )


def _gathered(draw: Callable[[int], str], criterion: Criterion, count: int, known: Collection[str]) -> Proposal:
    """Draw until there are enough wordings that can be used, or the attempts are spent."""
    found: list[str] = []
    rejected: list[tuple[str, str]] = []
    for attempt in range(count * ATTEMPTS):
        if len(found) == count:
            break
        text = draw(attempt)
        wrong = fault(text, criterion, {*known, *found})
        if wrong:
            rejected.append((wrong, text))
        else:
            found.append(text)
    return Proposal(tuple(found), tuple(rejected))
