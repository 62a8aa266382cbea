"""The recorded loops, measured again: every model and language pair, best of k, and constrained generation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.self_bias.published import BEST_OF_K, HUMAN
from evalbias.data.refinements import load_refinements
from evalbias.evaluation import LoopSummary, summarize_loop
from evalbias.evaluation.formatting import mark
from evalbias.measures import SelfBias, measure_self_bias
from evalbias.programs.feedback.concepts import coverage
from evalbias.programs.feedback.mqm import read_feedback


def recorded(folder: Path, *, n_resamples: int = 2_000) -> str:
    """All tables; ``folder`` is ``self_bias_recorded``."""
    return "\n\n".join([_human(folder), _translation(folder, n_resamples), _best_of_k(folder), _concepts(folder)])


def _human(folder: Path) -> str:
    rows = []
    for model, published in HUMAN.items():
        found = load_refinements(folder / f"mt/{model}__yor-en.jsonl")
        own, person = found.scores("self_score"), found.scores("human_score")
        for number, (bias, skewness) in zip((0, 10), published, strict=True):
            here = measure_self_bias(own[number], person[number])
            rows.append([model, number, _pair(here), f"{bias:.1f} / .{round(1000 * skewness)}", here.n])
    title = "Own MQM against a person's, Yoruba to English:"
    return table(title, ("model", "iteration", "Bias / Dskew", "published", "n"), rows)


def _translation(folder: Path, n_resamples: int) -> str:
    rows = []
    for file in sorted((folder / "mt").iterdir()):
        found = load_refinements(file)
        name = file.name.partition(".jsonl")[0]
        quality = found.scores("bleurt_mapped")
        loop = summarize_loop(name, found.scores("self_score"), quality, n_resamples=n_resamples, seed=0)
        read = np.array([[_read(found.records[k][item]) for item in found.ids] for k in found.numbers])
        both = ~np.isnan(read[0] + read[-1])
        ends = [measure_self_bias(read[at][both], quality[at][both]).bias for at in (0, -1)]
        told = f"{ends[0]:.2f} -> {ends[1]:.2f} ({both.sum()})", f"{np.isnan(read).mean():.1%}"
        rows.append([*name.split("__"), found.numbers[-1], *_rise(loop), *told])
    title = "Own MQM against BLEURT mapped onto MQM, the first output -> the last iteration:"
    headings = ("model", "pair", "last", "Bias", "Dskew", "quality", "Bias, read by us (items)", "undefined")
    note = (
        "\\* p < .05, † p < .06, last against first (paired permutation test). The first are of the recorded "
        "scores, which count substrings. Read by us, an empty output is undefined, so is feedback that names no "
        "severity, breaks off or was blocked; that Bias is over the items defined at both ends."
    )
    return f"{table(title, headings, rows)}\n\n{note}"


def _read(record: Mapping[str, Any]) -> float:
    """The own score of a recorded output as our loops would have it."""
    if not (record["output"] or "").strip():
        return math.nan
    return read_feedback(record["feedback_text"] or "").score


def _rise(loop: LoopSummary) -> list[str]:
    cells = []
    for name in ("bias", "skewness", "expected"):
        first, last = (loop.rounds[at][name].value for at in (0, -1))
        sign = "" if name == "expected" else mark(loop.change[name].p_value)
        cells.append(f"{first:.2f} -> {last:.2f}{sign}")
    return cells


def _best_of_k(folder: Path) -> str:
    rows = []
    file = next(path for path in sorted((folder / "best_of_k").iterdir()) if "__pool" not in path.name)
    found = load_refinements(file, by="k")
    for place, k in enumerate(found.numbers):
        field = "self_score_crit10" if k == 1 else "self_score"  # what the published figures were made with
        here = measure_self_bias(found.scores(field)[place], found.scores("bleurt_mapped")[place])
        bias, skewness = BEST_OF_K[k]
        rows.append([k, _pair(here), f"{bias:.1f} / .{round(1000 * skewness)}", here.n])
    title = "Best of k by its own score, DeepSeek-MoE, Yoruba to English (critical errors weigh -10 at k = 1):"
    return table(title, ("k", "Bias / Dskew", "published", "n"), rows)


def _concepts(folder: Path) -> str:
    rows = []
    for file in sorted((folder / "commongen").iterdir()):
        found = load_refinements(file)
        for number in (found.numbers[0], found.numbers[-1]):
            records = [found.records[number][item] for item in found.ids]
            own = np.array([np.nan if r["self_all_covered"] is None else r["self_all_covered"] for r in records])
            shares = np.array([coverage(r["concepts"], r["output"]) for r in records])
            true = measure_self_bias(own, (shares == 1).astype(float))
            told = f"{np.nanmean(own):.2f}", f"{(shares == 1).mean():.2f}", f"{shares.mean():.2f}"
            rows.append([file.name.partition(".jsonl")[0], number, *told, f"{true.bias:.2f} / {true.skewness:.2f}"])
    title = "CommonGen Hard: what the model believes to have covered, and what it has:"
    headings = ("model", "iteration", "believes all covered", "all covered", "mean share covered", "Bias / Dskew")
    return table(title, headings, rows)


def _pair(found: SelfBias) -> str:
    return f"{found.bias:.2f} / {found.skewness:.3f}"


def table(title: str, headings: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """In Markdown."""
    lines = [headings, ["---"] * len(headings), *([str(cell) for cell in row] for row in rows)]
    return "\n".join([title, "", *("| " + " | ".join(line) + " |" for line in lines)])
