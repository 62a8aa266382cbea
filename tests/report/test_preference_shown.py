"""The table and the plots of a fairness search."""

import dataclasses
import math

import numpy as np
import pytest
from commands import printed
from fakes import PARTS, Comparer, Wording, pair, rated
from matplotlib import image

from evalbias import data
from evalbias.evaluation.position import measure_preference
from evalbias.evaluation.rows import rows
from evalbias.optimizers.zepo import ZEPO, Epochs, GrammarParaphraser
from evalbias.optimizers.zepo.sensitivity import CurvePoint
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.report.preference import consistency_bars, curve_plot, history_plot
from evalbias.report.tables import preference_table, rows_table

C = Criterion("quality", "is it good?")


@pytest.fixture(scope="module")
def searched():
    train, test = data.split(rated(documents=24), seed=0, by="input", test_fraction=0.5)
    judge = PairwiseJudge(C)
    zepo = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(2), halving=True)
    compiled = zepo.compile(judge, trainset=data.pairs(train, limit=100, seed=0), lm=Wording(first=6.5))
    return compiled, rows(judge, compiled, test, lm=Wording(first=6.5), limit=60, n_resamples=999)


def test_four_rows_and_what_the_search_took(searched):
    compiled, found = searched
    text = printed(rows_table(found, compiled.report))
    lines = {name: next(x for x in text.splitlines() if x.startswith(f"│ {name} ")) for name in reversed(found)}
    for name, row in found.items():
        cells = [cell.strip() for cell in lines[name].split("│")[2:-1]]
        if "permutation" in lines[name] and "permutation" not in name:
            continue
        assert cells[0] == f"{row.preference.decision_rates[0]:.2f}"
        assert cells[2] == f"{row.preference.position_consistency:.2f}"
        assert cells[4].rstrip("*†") == f"{row.agreement.spearman.value:+.2f}"
    assert f"{compiled.report.judgments} judgments" in text
    assert compiled.report.tried[compiled.report.best].instruction in text


def test_what_a_table_cannot_show_is_said(searched):
    compiled, found = searched
    few = {}
    for name, row in found.items():
        spearman = dataclasses.replace(row.agreement.spearman, groups=4, undefined_groups=2)
        few[name] = dataclasses.replace(row, agreement=dataclasses.replace(row.agreement, spearman=spearman))
    text = " ".join(printed(rows_table(few, compiled.report)).split())
    assert "too few documents for a significant difference" in text
    assert "2 documents without a correlation" in text
    bare = {name: dataclasses.replace(row, agreement=None, test=None) for name, row in found.items()}
    assert "Spearman" not in printed(rows_table(bare, compiled.report))


def test_a_measurement_and_what_is_undefined():
    pairs = [pair(1, 2), pair(3, 1)]
    text = printed(preference_table("quality", measure_preference(PairwiseJudge(C), pairs, lm=Comparer())))
    assert "2 pairs" in text
    mute = printed(preference_table("quality", measure_preference(PairwiseJudge(C), pairs, lm=Comparer(mass=1e-9))))
    assert mute.count("undefined") >= 4


def test_plots_show_something(searched, tmp_path):
    compiled, found = searched
    history_plot(compiled.report, tmp_path / "history.png")
    consistency_bars({"a": 0.25, "b": 1.0, "c": math.nan}, tmp_path / "consistency.png")
    points = [CurvePoint(str(x), x, 0.8 - (x - 0.5) ** 2) for x in np.linspace(0.1, 0.9, 9)]
    curve_plot(points, tmp_path / "curve.png")
    curve_plot(points[:2], tmp_path / "few.png")
    for name in ("history", "consistency", "curve", "few"):
        pixels = image.imread(tmp_path / f"{name}.png")
        assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20
    assert found["initial"].preference.position_consistency < 1
