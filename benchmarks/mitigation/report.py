"""The table of the finished rows, and what it says in total."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.likelihood_bias.table import markdown
from evalbias.runs.values import number as read_number

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
            "`LikelihoodMitigation` returned. All estimates are of test items whose inputs took part in nothing, with "
            "95 % intervals over inputs. Likelihood bias is the likelihood effect; where every item has a single "
            "rating, it is the z-scored BiasScore (z), which confounds noise in the ratings with bias. "
            f"{'; '.join(settings)}.",
            markdown(HEADINGS, [line for row in done for line in lines(row)]),
            *(f"{row['judge']} on {row['set']} was not run: {row['why_not']}." for row in rows if "why_not" in row),
            summary(done),
        ]
    )


def lines(row: Row) -> list[list[str]]:
    """Return a row's lines: the judge in its three forms, then the two baselines that read no text."""
    title = f"{row['set']}, {row['criterion']} ({row['items']['test']} outputs of {row['inputs']['test']} inputs)"
    forms = [("given", "given"), ("paper", row["paper"]), ("compiled", row["chosen"])]
    found = [
        [row["judge"], title, f"compiled: {name}" if form == "compiled" else form, *_cells(row, name)]
        for form, name in forms
        if name is not None
    ]
    alone = [[row["judge"], title, name, "", "", _interval(e), ""] for name, e in row["alone"].items()]
    return [*found, *alone]


def _cells(row: Row, name: str) -> list[str]:
    tried = row["tried"][name]
    bias, *others = tried["estimates"].items()
    mark = " (z)" if bias[0] == "bias_score_z" else ""
    published, performance = (e for _, e in others)
    against = (
        "" if name == "given" else f"p less biased {_text(tried['p_smaller'], '.3f')}; {tried['loss'] or 'no loss'}"
    )
    return [_interval(bias[1]) + mark, _text(published["value"], "+.2f"), _interval(performance), against]


def summary(rows: Sequence[Row]) -> str:
    """Count in how many rows the compiled judge keeps what it promises."""
    compiled = [row for row in rows if row["chosen"] != "given"]
    lost = [_name(row) for row in rows if row["tried"][row["chosen"]]["loss"].startswith("loses")]
    halved = [row for row in compiled if _bias(row, row["chosen"]) <= _bias(row, "given") / 2]
    with_paper = [row for row in rows if row["paper"] is not None]
    harmed = [row for row in with_paper if row["tried"][row["paper"]]["loss"].startswith("loses")]
    above = [row for row in with_paper if _above(row)]
    unbeaten = [row for row in rows if "not significantly better" in row["against_baselines"]]
    return (
        f"In {len(rows) - len(compiled)} of {len(rows)} rows the given judge was kept. Of {len(compiled)} compiled "
        f"judges, {len(halved)} have at most half of the given one's bias, and {len(lost)} lose performance "
        f"significantly{': ' + ', '.join(lost) if lost else ''}; the paper's method loses it in {len(harmed)} of "
        f"{len(with_paper)} rows. In {len(above)} of these, the given judge or one of its calibrated forms has no "
        f"more bias than the paper's method and no lower performance. In {len(unbeaten)} rows the judge does not agree "
        "with people significantly better than likelihood alone or length alone."
    )


def _above(row: Row) -> bool:
    bias, performance = _bias(row, row["paper"]), _performance(row, row["paper"])
    return any(
        _bias(row, name) <= bias and _performance(row, name) >= performance
        for name in row["tried"]
        if name == "given" or name.startswith("likelihood calibration")
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
    return f"{value} [{low}, {high}]"


def _text(value: Any, form: str) -> str:
    found = read_number(value)
    return "undefined" if found != found else format(found, form)
