"""The table of the finished rows, and what it says in total."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.likelihood_bias.table import markdown
from benchmarks.mitigation.measure import MAX_LOSS
from evalbias.evaluation.words import p_equals
from evalbias.optimizers.selection import LEVEL
from evalbias.values import number as read_number

Row = Mapping[str, Any]
HEADINGS = (
    "judge",
    "data set, criterion",
    "form",
    "likelihood bias",
    "BiasScore",
    "performance",
    "against the given one",
)


def read_rows(folder: Path) -> list[Row]:
    """Read every finished row of a folder, in the order of their names."""
    files = sorted(folder.glob("*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def report(rows: Sequence[Row]) -> str:
    """Return the section as Markdown."""
    done = [row for row in rows if "tried" in row]
    settings = sorted({_settings(row) for row in done})
    return "\n\n".join(
        [
            "## Compiling the likelihood bias out of real judges",
            "*Given* is the judge without demonstrations, *paper* the demonstrations of highest RS, *compiled* what "
            f"`LikelihoodMitigation` returned, *with loss* what it returned where `max_loss={MAX_LOSS:g}` allows a "
            "fall in performance, if that is another judge. All estimates are of test items whose inputs took part in "
            "nothing, with 95 % intervals over inputs. Likelihood bias is the likelihood effect; where every item has "
            "a single rating, it is the z-scored BiasScore (z), which confounds noise in the ratings with bias. "
            "*Likelihood alone* and *length alone* rank by more or by less of it, whichever people prefer in the "
            f"training items. {'; '.join(settings)}.",
            markdown(HEADINGS, [line for row in done for line in lines(row)]),
            *(f"{row['judge']} on {row['set']} was not run: {row['why_not']}." for row in rows if "why_not" in row),
            summary(done),
        ]
    )


def lines(row: Row) -> list[list[str]]:
    """Return a row's lines: the judge in its three forms, then the two baselines that read no text."""
    title = f"{row['set']}, {row['criterion']} ({row['items']['test']} outputs of {row['inputs']['test']} inputs)"
    forms = [("given", "given"), ("paper", row["paper"]), ("compiled", row["chosen"])]
    if row["chosen_with_loss"] != row["chosen"]:
        forms.append(("with loss", row["chosen_with_loss"]))
    judges = [
        [row["judge"], title, f"{form}: {name}" if form in ("compiled", "with loss") else form, *_cells(row, name)]
        for form, name in forms
        if name is not None
    ]
    alone = [[row["judge"], title, name, "", "", _interval(e), ""] for name, e in row["alone"].items()]
    return [*judges, *alone]


def _cells(row: Row, name: str) -> list[str]:
    tried = row["tried"][name]
    bias, *others = tried["estimates"].items()
    mark = " (z)" if bias[0] == "bias_score_z" else ""
    published, performance = (e for _, e in others)
    against = ""
    if name != "given":
        loss = tried["loss"] or "no loss"
        smaller, agrees = (p_equals(read_number(tried[name])) for name in ("p_smaller", "p_agrees"))
        against = f"less biased {smaller}, agrees better {agrees}; {loss}"
    return [_interval(bias[1]) + mark, _text(published["value"], "+.2f"), _interval(performance), against]


def summary(rows: Sequence[Row]) -> str:
    """Count in how many rows the compiled judge keeps what it promises."""
    with_paper = [row for row in rows if row["paper"] is not None]
    harmed = [row for row in with_paper if row["tried"][row["paper"]]["loss"].startswith("loses")]
    above = [row for row in with_paper if _above(row)]
    unbeaten = [row for row in rows if "not significantly better" in row["against_baselines"]]
    points = [
        f"Compiled: {_kept(rows, 'chosen')}",
        f"Compiled where a loss of {MAX_LOSS:g} is allowed: {_kept(rows, 'chosen_with_loss')}",
        f"The paper's method loses performance significantly in {len(harmed)} of {len(with_paper)} rows.",
        f"In {len(above)} of {len(with_paper)} rows, the given judge, one of its calibrated forms or the compiled "
        "judge has no more bias than the paper's method and no lower performance.",
        f"In {len(unbeaten)} of {len(rows)} rows, the judge does not agree with people significantly better than "
        "likelihood alone or length alone.",
    ]
    return "\n".join(f"- {point}" for point in points)


def _kept(rows: Sequence[Row], form: str) -> str:
    compiled = [row for row in rows if row[form] != "given"]
    kept = f"the given judge was kept in {len(rows) - len(compiled)} of {len(rows)} rows."
    if not compiled:
        return kept
    lost = [_name(row) for row in compiled if row["tried"][row[form]]["loss"].startswith("loses")]
    halved = [row for row in compiled if _bias(row, row[form]) <= _bias(row, "given") / 2]
    gained = [row for row in compiled if read_number(row["tried"][row[form]]["p_agrees"]) < LEVEL]
    return (
        f"{kept} In the other {len(compiled)}, the bias was at least halved in {len(halved)}, and performance was "
        f"gained significantly in {len(gained)} and lost significantly in {len(lost)}"
        f"{': ' + ', '.join(lost) if lost else ''}."
    )


def _above(row: Row) -> bool:
    bias, performance = _bias(row, row["paper"]), _performance(row, row["paper"])
    return any(
        _bias(row, name) <= bias and _performance(row, name) >= performance
        for name in row["tried"]
        if name in ("given", row["chosen"]) or name.startswith("likelihood calibration")
    )


def _settings(row: Row) -> str:
    return f"{row['judge']}: {row['lm']['model']}, {row['lm']['dtype']}, k = {row['k']}, seed {row['seed']}"


def _name(row: Row) -> str:
    return f"{row['judge']} on {row['set']} {row['criterion']}"


def _bias(row: Row, name: str) -> float:
    first = next(iter(row["tried"][name]["estimates"].values()))
    return abs(read_number(first["value"]))


def _performance(row: Row, name: str) -> float:
    return read_number(row["tried"][name]["estimates"]["performance"]["value"])


def _interval(estimate: Mapping[str, Any]) -> str:
    value, low, high = (_text(estimate[key], "+.2f") for key in ("value", "low", "high"))
    return value if value == low == high else f"{value} [{low}, {high}]"


def _text(value: Any, form: str) -> str:
    found = read_number(value)
    return "undefined" if math.isnan(found) else format(round(found, 2) + 0.0, form)  # no minus before a zero
