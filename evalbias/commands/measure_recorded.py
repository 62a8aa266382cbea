"""Self-bias of recorded loops: tables, plots, and tests of the last round against the first and between loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.commands.run import print_result
from evalbias.commands.terminal import say
from evalbias.data.columns import parse_mapping
from evalbias.data.refinements import Refinements, load_refinements
from evalbias.data.score_pairs import load_quantile_map
from evalbias.evaluation import LoopScores, compare_loops, doublings, summarize_loop
from evalbias.evaluation.conclusions import conclude_self
from evalbias.measures import QuantileMap
from evalbias.measures.arrays import FloatArray
from evalbias.report.html.run_page import write_report
from evalbias.report.self_bias import (
    differences_plot,
    loops_table,
    pairs_table,
    scores_plot,
    self_bias_table,
    trajectory_plot,
)
from evalbias.runs.fingerprint import digest, file_digest
from evalbias.runs.folder import RESULT, SETTINGS, RunFolder
from evalbias.runs.values import read_json

OWN, EXPECTED, BY = "self_score", "expected", "iteration"
"""Default names of the fields."""
INPUTS = ("source", "concepts")
"""Fields of a recorded output that tell, besides its id, which input it answers to."""


@dataclass(frozen=True)
class Rounds(LoopScores):
    """The scores of a loop's file or folder.

    Attributes:
        sha256: Hash of the data.
        by: What the rounds are numbered by, ``"iteration"`` or ``"k"``.
        outside: Number of expected scores outside the range to which the quantile map was fitted.
        texts: (n,) input and last output of each item, where the loop recorded them.
    """

    sha256: str
    by: str
    outside: int = 0
    texts: Sequence[dspy.Example] = ()


def measure_recorded(
    data: Sequence[Path],
    *,
    columns: list[str] | None,
    own: str,
    expected: str,
    by: str,
    map_file: Path | None,
    resamples: int,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure recorded loops, print the result, and leave a folder.

    Raises:
        ValueError: Own and expected scores are one field, or a loop has no item with both.
    """
    if own == expected:
        raise ValueError(
            f"--own and --expected both name {own!r}, and a loop would seem to have no Bias: name the field of each."
        )
    _check_one_kind(data, own, expected, by)
    to_mqm, map_sha256 = (None, None) if map_file is None else load_quantile_map(map_file)
    mapping = parse_mapping(columns or ())
    loops = [
        _from_run(path, to_mqm) if path.is_dir() else _from_file(path, mapping, own, expected, by, to_mqm)
        for path in data
    ]
    if len({loop.by for loop in loops}) > 1:
        raise ValueError("Some of the runs refine and some draw the best of k: measure them one kind at a time.")
    by = loops[0].by
    names = [loop.name for loop in loops]
    loops = [
        replace(loop, name=f"{loop.name} ({n})") if names.count(loop.name) > 1 else loop
        for n, loop in enumerate(loops, start=1)
    ]
    for path, loop in zip(data, loops, strict=True):
        if np.isnan(loop.own - loop.expected).all():
            raise ValueError(f"{path} has no output with both an own and an expected score.")
    settings = {
        "command": "measure self",
        "data": [str(path) for path in data],
        "data_sha256": [loop.sha256 for loop in loops],
        **({"map": mapping} if mapping else {}),
        "seed": seed,
        "own": own,
        "expected": expected,
        "by": by,
        "map_sha256": map_sha256,
        "resamples": resamples,
    }
    with RunFolder(out, settings) as folder:
        summaries = [
            summarize_loop(x.name, x.own, x.expected, numbers=x.numbers, n_resamples=resamples, seed=seed)
            for x in loops
        ]
        trajectory_plot(summaries, folder.path / "trajectory.png", rounds=by)
        for loop in loops:
            _plot(folder, loop, by, alone=len(loops) == 1)
        pairs = compare_loops(loops, n_resamples=resamples, seed=seed)
        conclusions = [conclude_self(summary, rounds=by) for summary in summaries]
        result: dict[str, Any] = {"loops": summaries, "pairs": pairs, "conclusions": conclusions}
        if to_mqm is not None:
            result["outside_map"] = {loop.name: loop.outside for loop in loops}
            _report_outside(loops, to_mqm)
        folder.write_result(result)
        write_report(folder.path, result, examples=loops[0].texts)
        alone = len(summaries) == 1
        shown: list[Any] = [self_bias_table(summaries[0], rounds=by) if alone else loops_table(summaries, rounds=by)]
        if pairs:
            shown.append(pairs_table(pairs, rounds=by))
        elif not alone:
            shown.append("The loops are not compared: no two have an item and a round in common.")
        print_result(result, as_json, [*shown, *conclusions], folder)


def _plot(folder: RunFolder, loop: Rounds, by: str, *, alone: bool) -> None:
    places = {
        kind: folder.path / f"{kind}.png" if alone else folder.file(kind, loop.name, ".png")
        for kind in ("scores", "differences")
    }
    scores_plot(loop.own[-1], loop.expected[-1], places["scores"])
    difference = loop.own - loop.expected
    names = (f"{by} {loop.numbers[0]}", f"{by} {loop.numbers[-1]}")
    differences_plot(difference[0], difference[-1], places["differences"], names=names)


def _check_one_kind(data: Sequence[Path], own: str, expected: str, by: str) -> None:
    folders = [path for path in data if path.is_dir()]
    if folders and len(folders) < len(data):
        raise ValueError("Run folders and files of recorded loops are measured one kind at a time.")
    if folders and (own, expected, by) != (OWN, EXPECTED, BY):
        raise ValueError(f"{folders[0]} is a run folder: --own, --expected and --by are for recorded loops.")


def _from_file(
    data: Path, mapping: Mapping[str, str], own: str, expected: str, by: str, to_mqm: QuantileMap | None
) -> Rounds:
    """Read a recorded loop; a map is applied to its expected scores.

    Raises:
        ValueError: The file lacks one of the fields.
    """
    loop = load_refinements(data, by=by, mapping=mapping)
    fields = {name for items in loop.records.values() for record in items.values() for name in record}
    for name in (own, expected):
        if name not in fields:
            raise ValueError(
                f"{data} has no field {name!r}, only {sorted(fields)!s:.500}: choose with --own and --expected."
            )
    items = tuple(digest([item, *map(_first(loop, item).get, INPUTS)]) for item in loop.ids)
    scores, outside = _mapped(loop.scores(expected), to_mqm, expected)
    last = loop.records[loop.numbers[-1]]
    texts = [dspy.Example({**_first(loop, item), **last.get(item, {})}) for item in loop.ids]
    return Rounds(loop.name, loop.numbers, items, loop.scores(own), scores, loop.sha256, by, outside, texts)


def _mapped(scores: FloatArray, to_mqm: QuantileMap | None, metric: str) -> tuple[FloatArray, int]:
    """Return the scores on the scale of the map, and how many were outside the range it was fitted to.

    Raises:
        ValueError: The map was fitted to another metric.
    """
    if to_mqm is None:
        return scores, 0
    to_mqm.check_metric(metric)
    return to_mqm(scores.ravel()).reshape(scores.shape), to_mqm.outside(scores.ravel())


def _report_outside(loops: Sequence[Rounds], to_mqm: QuantileMap) -> None:
    for loop in loops:
        if loop.outside:
            say(
                f"{loop.name}: {loop.outside} of {(~np.isnan(loop.expected)).sum()} scores of {to_mqm.metric!r} lie "
                f"outside the map's {to_mqm.source[0]:g} to {to_mqm.source[-1]:g} and take its nearest MQM score."
            )


def _first(loop: Refinements, item: str) -> Mapping[str, Any]:
    return next(records[item] for records in loop.records.values() if item in records)


def _from_run(folder: Path, to_mqm: QuantileMap | None) -> Rounds:
    """Read the folder that evalbias refine left; a map is applied to the quality.

    Raises:
        ValueError: The folder holds no finished loop, or own scores and quality are on different scales.
    """
    file = folder / RESULT
    if not file.exists() or "ranges" not in (result := read_json(file)):
        raise ValueError(f"{folder} holds no finished run of evalbias refine.")
    ranges = result["ranges"]
    own, quality = (np.array(result[side], dtype=np.float64) for side in ("own", "quality"))  # null becomes NaN
    if to_mqm is None and ranges["own"] != ranges["quality"]:
        (low, high), (worst, best) = ranges["own"], ranges["quality"]
        raise ValueError(
            f"{folder} has no Bias: own scores lie in {low:g} to {high:g}, and the quality in {worst:g} to {best:g}. "
            "Map the quality with --quantile-map FILE, pairs of the metric's scores and human MQM scores."
        )
    if to_mqm is not None and ranges["own"] == ranges["quality"]:
        raise ValueError(
            f"The quality in {folder} is on the scale of its own scores already: leave --quantile-map out."
        )
    numbers = tuple(range(len(own)))
    by = result.get("by", "iteration")  # runs of earlier versions only refined
    if by == "k":  # row i is the best of i + 1
        numbers = doublings(len(own))
        rows = np.array(numbers) - 1
        own, quality = own[rows], quality[rows]
    settings = read_json(folder / SETTINGS)
    quality, outside = _mapped(quality, to_mqm, settings.get("metric", {}).get("name", "an unnamed metric"))
    items = tuple(digest([settings["data_sha256"], loop["id"]]) for loop in result["loops"])
    return Rounds(folder.name, numbers, items, own, quality, file_digest(file), by, outside)
