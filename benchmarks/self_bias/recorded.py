"""Measure the recorded loops again: every model and language pair, best of k, and constrained generation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.self_bias.published import ALL_COVERED, BEST_OF_K, HUMAN
from evalbias.data.loops import Refinements, load_refinements
from evalbias.evaluation import LoopSummary, summarize_loop
from evalbias.evaluation.words import UNDEFINED, mark
from evalbias.measures import SelfBias, measure_self_bias
from evalbias.programs.concepts import MATCHINGS, coverage, read_missing
from evalbias.programs.feedback import read_feedback


def recorded(folder: Path, *, n_resamples: int = 2_000) -> str:
    """Return all tables of the recordings in a folder."""
    return "\n\n".join([_human(folder), _translation(folder, n_resamples), _best_of_k(folder), _concepts(folder)])


def _human(folder: Path) -> str:
    rows = []
    for model, published in HUMAN.items():
        recording = load_refinements(folder / f"mt/{model}__yor-en.jsonl")
        own, human = recording.scores("self_score"), recording.scores("human_score")
        for number, figures in zip((0, 10), published, strict=True):
            ours = measure_self_bias(own[number], human[number])
            rows.append([model, number, _pair(ours), _published(figures), ours.n])
    title = "Own MQM score against a human rater's, Yoruba to English:"
    return table(title, ("model", "iteration", "Bias / Dskew", "published", "n"), rows)


def _translation(folder: Path, n_resamples: int) -> str:
    rows = []
    for file in sorted((folder / "mt").iterdir()):
        recording = load_refinements(file)
        quality = recording.scores("bleurt_mapped")
        loop = summarize_loop(recording.name, recording.scores("self_score"), quality, n_resamples=n_resamples, seed=0)
        parsed = np.array([[_parsed(recording.records[k][item]) for item in recording.ids] for k in recording.numbers])
        both = ~np.isnan(parsed[0] + parsed[-1])
        first, last = (measure_self_bias(parsed[at][both], quality[at][both]).bias for at in (0, -1))
        cells = f"{first:.2f} -> {last:.2f} ({both.sum()})", f"{np.isnan(parsed).mean():.1%}"
        rows.append([*recording.name.split("__"), recording.numbers[-1], *_changes(loop), *cells])
    title = "Own MQM score against BLEURT mapped onto the MQM scale, first output -> last iteration:"
    headings = ("model", "pair", "last", "Bias", "Dskew", "quality", "Bias, our parser (items)", "undefined")
    note = (
        "\\* p < .05, † p < .06, last against first (paired permutation test). Bias and Dskew use the recorded own "
        "scores, which count substrings. For our parser, a score is undefined if the output is empty, or if its "
        "feedback names no severity, breaks off or was blocked; that Bias is over the items that are defined in both "
        "rounds."
    )
    return f"{table(title, headings, rows)}\n\n{note}"


def _parsed(record: Mapping[str, Any]) -> float:
    """Return the own score of a recorded output as our loops would parse it."""
    if not (record["output"] or "").strip():
        return math.nan
    return read_feedback(record["feedback_text"] or "").score


def _changes(loop: LoopSummary) -> list[str]:
    cells = []
    for name in ("bias", "skewness", "expected"):
        sign = "" if name == "expected" else mark(loop.change[name].p_value)
        cells.append(first_to_last(loop, name) + sign)
    return cells


def _best_of_k(folder: Path) -> str:
    rows = []
    file = next(path for path in sorted((folder / "best_of_k").iterdir()) if "__pool" not in path.name)
    recording = load_refinements(file, by="k")
    for index, k in enumerate(recording.numbers):
        field = "self_score_crit10" if k == 1 else "self_score"  # the published figures used these fields
        ours = measure_self_bias(recording.scores(field)[index], recording.scores("bleurt_mapped")[index])
        rows.append([k, _pair(ours), _published(BEST_OF_K[k]), ours.n])
    title = "Best of k by the model's own score, DeepSeek-MoE, Yoruba to English (critical errors weigh -10 at k = 1):"
    return table(title, ("k", "Bias / Dskew", "published", "n"), rows)


def _concepts(folder: Path) -> str:
    rows = []
    for recording in _commongen(folder):
        for number in (recording.numbers[0], recording.numbers[-1]):
            records = [recording.records[number][item] for item in recording.ids]
            recorded_scores = recording.scores("self_all_covered")[recording.numbers.index(number)]
            own = np.array([_believes(r) for r in records])
            row = [recording.name, number, f"{np.nanmean(own):.2f} ({np.isnan(own).sum()})"]
            for matching in MATCHINGS:
                shares = np.array([coverage(r["concepts"], r["output"], matching=matching) for r in records])
                covered = (shares == 1).astype(float)
                published = f" ({ALL_COVERED[recording.name][number]:.2f})" if matching == "substring" else ""
                row += [f"{covered.mean():.2f}{published}", f"{shares.mean():.2f}"]
                row += [_pair(measure_self_bias(scores, covered)) for scores in (own, recorded_scores)]
            rows.append(row)
    title = "CommonGen Hard: outputs that the model believes cover all concepts, and those that do:"
    counted = ("all covered", "mean share", "Bias / Dskew", "with recorded scores")
    headings = [f"{matching}: {cell}" for matching in MATCHINGS for cell in counted]
    headings[0] += " (published)"
    total, unread = sum(len(r.ids) * len(r.numbers) for r in _commongen(folder)), unreadable_answers(folder)
    note = (
        f"{len(unread)} of {total} answers, of all iterations, could not be read and are left out; running the "
        'benchmark prints up to ten of them. "Substring" is the paper\'s count, in which "thrown" covers "throw"; in '
        '"lemma", "caught" covers "catch", and "catch" does not cover "cat".'
    )
    return f"{table(title, ('model', 'iteration', 'believes all covered (undefined)', *headings), rows)}\n\n{note}"


def unreadable_answers(folder: Path) -> list[str]:
    """Return the recorded answers on missing concepts that cannot be read, in the order of the iterations."""
    return [
        record["feedback_text"] or ""
        for recording in _commongen(folder)
        for number in recording.numbers
        for record in recording.records[number].values()
        if np.isnan(_believes(record))
    ]


def _commongen(folder: Path) -> list[Refinements]:
    return [load_refinements(file) for file in sorted((folder / "commongen").iterdir())]


def _believes(record: Mapping[str, Any]) -> float:
    """Return 1 if the answer says that all concepts are covered, 0 if it names some, NaN if it is unreadable."""
    missing = read_missing(record["feedback_text"] or "", record["concepts"])
    return math.nan if missing is None else float(not missing)


def _pair(ours: SelfBias) -> str:
    return f"{ours.bias:.2f} / {ours.skewness:.3f}"


def _published(figures: tuple[float, float]) -> str:
    return f"{figures[0]:.1f} / .{round(1000 * figures[1])}"


def first_to_last(loop: LoopSummary, name: str, form: str = ".2f") -> str:
    """Return an estimate of a loop's first and last round, in a format."""
    first, last = (loop.rounds[at][name].value for at in (0, -1))
    return " -> ".join(UNDEFINED if math.isnan(value) else f"{value:{form}}" for value in (first, last))


def table(title: str, headings: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table under a title."""
    lines = [headings, ["---"] * len(headings), *([str(cell) for cell in row] for row in rows)]
    return "\n".join([title, "", *("| " + " | ".join(line) + " |" for line in lines)])
