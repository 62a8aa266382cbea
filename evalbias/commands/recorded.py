"""Self-bias of recorded loops: the table, the plots and the test of the last round against the first."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from evalbias.data.refinements import load_refinements
from evalbias.lm.types import FloatArray
from evalbias.measures import compare_self_bias, trajectory
from evalbias.report.run import RunFolder, plain
from evalbias.report.self_bias import differences_plot, scores_plot, trajectory_plot
from evalbias.report.tables import self_bias_table


def measured_self(
    data: Path, *, own: str, expected: str, by: str, resamples: int, seed: int, out: Path | None, as_json: bool
) -> None:
    """Measure, print, and leave a folder.

    Raises:
        ValueError: No item has both scores.
    """
    name, numbers, sha256, mine, worth = _finished(data) if data.is_dir() else _recorded(data, own, expected, by)
    difference = mine - worth
    if (difference != difference).all():
        raise ValueError(f"{data} has no output with both an own and an expected score.")
    settings = {"command": "measure self", "data": str(data), "data_sha256": sha256, "seed": seed}
    settings |= {"own": own, "expected": expected, "by": by, "resamples": resamples}
    folder = RunFolder(out or Path("runs") / f"measure-self-{sha256[:10]}-{own}-{expected}", settings)
    steps = trajectory(mine, worth, numbers=numbers, n_resamples=resamples, seed=seed)
    bias, skewness = compare_self_bias(difference[-1], difference[0], n_resamples=resamples, seed=seed)
    trajectory_plot({name: steps}, folder.path / "trajectory.png", rounds=by)
    scores_plot(mine[-1], worth[-1], folder.path / "scores.png")
    names = (f"{by} {numbers[0]}", f"{by} {numbers[-1]}")
    differences_plot(difference[0], difference[-1], folder.path / "differences.png", names=names)
    result: dict[str, Any] = {"rounds": steps, "last_against_first": {"bias": bias, "skewness": skewness}}
    folder.write_result(result)
    if as_json:
        sys.stdout.write(json.dumps(plain(result)) + "\n")
        return
    console = Console()
    console.print(self_bias_table(steps, bias, skewness, rounds=by))
    console.print(f"run folder: {folder.path}", soft_wrap=True)


Rounds = tuple[str, Sequence[int], str, FloatArray, FloatArray]
"""(name, numbers of the rounds, hash of the data, own scores (t, n), expected scores (t, n))."""


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
    return found.name, found.numbers, found.sha256, found.scores(own), found.scores(expected)


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
    return folder.name, range(len(own)), hashlib.sha256(file.read_bytes()).hexdigest(), own, worth
