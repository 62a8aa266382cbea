"""What a command works on: items, criteria, and how human scores become labels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from evalbias import data
from evalbias.data import world
from evalbias.programs.criteria import BINS, PRESETS, SYNTHETIC
from evalbias.programs.criterion import Criterion


@dataclass(frozen=True)
class Task:
    """Items on two sides of a split, and what they are judged on.

    Attributes:
        spec: The data as the user named them.
        sha256: Of the data.
        criteria: At least one.
        bins: How human scores become labels; see ``label_of``.
        train: Where demonstrations come from.
        test: Where bias is measured.
    """

    spec: str
    sha256: str
    criteria: tuple[Criterion, ...]
    bins: Sequence[float] | None
    train: list[Any]
    test: list[Any]


def load_items(spec: str) -> tuple[list[Any], str]:
    """The items of a data set, and its hash; what was left out is said on stderr."""
    found = data.load_spec(spec)
    if found.left_out:
        typer.echo(found.summary(), err=True)
    return list(found), found.sha256


def open_task(
    spec: str, criteria: list[str] | None, scale: str, *, seed: int, split_by: str, limit: int | None
) -> Task:
    """The task that a command's options name; ``limit`` draws so many items before the split."""
    items, sha256 = load_items(spec)
    if limit is not None and limit < len(items):
        items = random.Random(seed).sample(items, limit)
    dataset = data.parse_spec(spec)[0]
    train, test = data.split(items, seed=seed, by=split_by)
    return Task(spec, sha256, _criteria(dataset, criteria, scale), BINS.get(dataset), train, test)


def only_candidates(task: Task, file: Path) -> Task:
    """The task with only those training items whose ids the file lists, one a line.

    Raises:
        ValueError: An id is none of the training items'.
    """
    ids = dict.fromkeys(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    unknown = ids.keys() - {str(e.id) for e in task.train}
    if unknown:
        raise ValueError(
            f"{file} lists {min(unknown)!r}, which is no training item of this split ({len(unknown)} such ids): "
            "give the seed and the data that the list was made for."
        )
    return replace(task, train=[e for e in task.train if str(e.id) in ids])


def demo_task(seed: int) -> Task:
    """Fresh items of the synthetic world, of which the embedded judge has seen none."""
    train, test = world.examples(400, seed=2 * seed + 1_000_001), world.examples(300, seed=2 * seed + 1_000_002)
    return Task("synthetic world", "generated", (SYNTHETIC,), None, train, test)


def _criteria(dataset: str, names: list[str] | None, scale: str) -> tuple[Criterion, ...]:
    """The data set's own criteria by name, or new ones by definition."""
    presets = {c.name: c for c in PRESETS.get(dataset, ())}
    if not names:
        if not presets:
            raise typer.BadParameter("items.jsonl has no criteria of its own: give --criterion 'name: definition'.")
        return tuple(presets.values())
    low, _, high = scale.partition("-")
    if not (low.isdigit() and high.isdigit()):
        raise typer.BadParameter(f"--scale {scale}: write it as 1-5.")
    return tuple(presets.get(n) or Criterion.parse(n, scale=(int(low), int(high))) for n in names)
