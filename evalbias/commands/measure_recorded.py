"""Self-bias of recorded loops: the tables, the plots and the test of the last round against the first."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from evalbias.data.refinements import load_refinements
from evalbias.evaluation import summarize_loop
from evalbias.lm.types import FloatArray
from evalbias.report.self_bias import differences_plot, loops_table, scores_plot, self_bias_table, trajectory_plot
from evalbias.runs.folder import RunFolder
from evalbias.runs.values import to_json


@dataclass(frozen=True)
class Rounds:
    """A loop's scores.

    Attributes:
        name: Of the file or folder.
        numbers: (t,) of the rounds.
        sha256: Of the data.
        own: (t, n) own scores.
        expected: (t, n) what the outputs were worth.
    """

    name: str
    numbers: Sequence[int]
    sha256: str
    own: FloatArray
    expected: FloatArray


def measured_self(
    data: Sequence[Path],
    *,
    own: str,
    expected: str,
    by: str,
    resamples: int,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure, print, and leave a folder.

    Raises:
        ValueError: A loop without an item that has both scores.
    """
    _of_one_kind(data, own, expected, by)
    loops = [_finished(path) if path.is_dir() else _recorded(path, own, expected, by) for path in data]
    called = [loop.name for loop in loops]
    loops = [
        replace(loop, name=f"{loop.name} ({n})") if called.count(loop.name) > 1 else loop
        for n, loop in enumerate(loops, start=1)
    ]
    for path, loop in zip(data, loops, strict=True):
        if np.isnan(loop.own - loop.expected).all():
            raise ValueError(f"{path} has no output with both an own and an expected score.")
    hashes = [loop.sha256 for loop in loops]
    settings = {"command": "measure self", "data": [str(path) for path in data], "data_sha256": hashes, "seed": seed}
    settings |= {"own": own, "expected": expected, "by": by, "resamples": resamples}
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:10]
    folder = RunFolder(out or Path("runs") / f"measure-self-{digest}", settings)
    found = [
        summarize_loop(x.name, x.own, x.expected, numbers=x.numbers, n_resamples=resamples, seed=seed) for x in loops
    ]
    trajectory_plot([(x.name, x.rounds) for x in found], folder.path / "trajectory.png", rounds=by)
    for x in loops:
        places = {kind: folder.path / f"{kind}.png" for kind in ("scores", "differences")}
        if len(loops) > 1:
            places = {kind: folder.file(kind, x.name, ".png") for kind in places}
        scores_plot(x.own[-1], x.expected[-1], places["scores"])
        difference = x.own - x.expected
        names = (f"{by} {x.numbers[0]}", f"{by} {x.numbers[-1]}")
        differences_plot(difference[0], difference[-1], places["differences"], names=names)
    result: dict[str, Any] = {"loops": found}
    folder.write_result(result)
    if as_json:
        sys.stdout.write(json.dumps(to_json(result)) + "\n")
        return
    console = Console()
    console.print(self_bias_table(found[0], rounds=by) if len(found) == 1 else loops_table(found, rounds=by))
    console.print(f"run folder: {folder.path}", soft_wrap=True)


OWN, EXPECTED, BY = "self_score", "expected", "iteration"
"""What the fields are called unless the user says otherwise."""


def _of_one_kind(data: Sequence[Path], own: str, expected: str, by: str) -> None:
    folders = [path for path in data if path.is_dir()]
    if folders and len(folders) < len(data):
        raise ValueError("Run folders hold shares of a range, recorded loops points: measure them one kind at a time.")
    if folders and (own, expected, by) != (OWN, EXPECTED, BY):
        raise ValueError(f"{folders[0]} is a run folder: --own, --expected and --by are for recorded loops.")


def _recorded(data: Path, own: str, expected: str, by: str) -> Rounds:
    """Of a file.

    Raises:
        ValueError: It lacks one of the fields.
    """
    found = load_refinements(data, by=by)
    fields = {name for of in found.records.values() for record in of.values() for name in record}
    for name in (own, expected):
        if name not in fields:
            raise ValueError(f"{data} has no field {name!r}, only {sorted(fields)}: choose with --own and --expected.")
    return Rounds(found.name, found.numbers, found.sha256, found.scores(own), found.scores(expected))


def _finished(folder: Path) -> Rounds:
    """Of a folder that evalbias refine left: both scores as shares of their ranges, since they differ.

    Raises:
        ValueError: The folder holds no finished loop.
    """
    file = folder / "result.json"
    if not file.exists() or "ranges" not in (told := json.loads(file.read_text(encoding="utf-8"))):
        raise ValueError(f"{folder} holds no finished run of evalbias refine.")
    scaled = []
    for side in ("own", "worth"):
        low, high = told["ranges"][side]
        scaled.append((np.array(told[side], dtype=np.float64) - low) / (high - low))  # null becomes NaN
    own, worth = scaled
    return Rounds(folder.name, range(len(own)), hashlib.sha256(file.read_bytes()).hexdigest(), own, worth)
