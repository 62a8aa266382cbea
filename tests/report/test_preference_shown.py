"""The table and the plots of a fairness search."""

import dataclasses
import math

import numpy as np
import pytest
from commands import printed
from fakes import PARTS, Wording, rated
from matplotlib import image

from evalbias import data
from evalbias.evaluation import compare_with_baselines
from evalbias.optimizers.zepo import ZEPO, CurvePoint, Epochs, GrammarParaphraser
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.report.plots import consistency_bars, curve_plot, history_plot
from evalbias.report.tables import rows_table

C = Criterion("quality", "is it good?")


@pytest.fixture(scope="module")
def searched():
    train, test = data.split(rated(documents=24), seed=0, by="input", test_fraction=0.5)
    judge = PairwiseJudge(C)
    zepo = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(2), select=False)
    compiled = zepo.compile(judge, trainset=data.pairs(train, limit=100, seed=0), lm=Wording(first=6.5))
    return compiled, compare_with_baselines(judge, compiled, test, lm=Wording(first=6.5), limit=60, n_resamples=999)


def test_four_judges_and_what_the_search_took(searched):
    compiled, rows = searched
    text = printed(rows_table(rows, compiled.report))
    lines = [[cell.strip() for cell in x.split("│")[1:-1]] for x in text.splitlines() if x.startswith("│")]
    cells = {label: values for label, *values in lines}
    for place, row in enumerate(rows.values()):
        position, agreement = row.measurements["position"], row.measurements["agreement"]
        assert cells["first"][place] == f"{position['first_rate'].value:.2f}"
        assert cells["consistent"][place] == f"{position['position_consistency'].value:.2f}"
        assert cells["longer"][place] == f"{row.measurements['verbosity']['longer_rate'].value:.2f}"
        assert cells["Spearman"][place].rstrip("*†") == f"{agreement['spearman'].value:+.2f}"
    spent, saved = compiled.report.judgments, compiled.report.saved
    remark = f"{spent} judgments ({saved / (spent + saved):.0%} saved by racing in rounds up to 25, 50, 100 pairs)"
    assert remark in " ".join(text.split())
    assert "searched on 100 of 360 ordered pairs" in printed(rows_table(rows, compiled.report, pairs=(100, 360)))
    assert compiled.report.chosen in text


def test_what_a_table_cannot_show_is_said(searched):
    compiled, rows = searched
    few = {}
    for name, row in rows.items():
        agreement = row.measurements["agreement"]
        spearman = dataclasses.replace(agreement["spearman"], n=4, undefined=2)
        agreement = dataclasses.replace(agreement, estimates={**agreement.estimates, "spearman": spearman})
        few[name] = dataclasses.replace(row, measurements={**row.measurements, "agreement": agreement})
    text = " ".join(printed(rows_table(few, compiled.report)).split())
    assert "too few documents for a significant difference" in text
    assert "2 documents without a correlation" in text
    bare = {
        name: dataclasses.replace(row, measurements={k: m for k, m in row.measurements.items() if k != "agreement"})
        for name, row in rows.items()
    }
    assert "Spearman" not in printed(rows_table(bare, compiled.report))


@pytest.mark.slow
def test_plots_show_something(searched, tmp_path):
    compiled, rows = searched
    history_plot(compiled.report, tmp_path / "history.png")
    consistency_bars({"a": 0.25, "b": 1.0, "c": math.nan}, tmp_path / "consistency.png")
    points = [CurvePoint(str(x), x, 0.8 - (x - 0.5) ** 2) for x in np.linspace(0.1, 0.9, 9)]
    curve_plot({"initial": points, "after permutation": points[3:6]}, tmp_path / "curve.png")
    curve_plot({"initial": points[:2]}, tmp_path / "few.png")
    for name in ("history", "consistency", "curve", "few"):
        pixels = image.imread(tmp_path / f"{name}.png")
        assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20
    assert rows["initial"].measurements["position"]["position_consistency"].value < 1
