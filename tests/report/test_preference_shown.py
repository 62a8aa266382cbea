"""The table and the plots of a fairness search."""

import dataclasses

import numpy as np
import pytest
from commands import printed
from fakes import PARTS, Wording, rated
from matplotlib import image
from numpy.testing import assert_allclose

from evalbias import data
from evalbias.evaluation import compare_with_baselines
from evalbias.optimizers import GrammarParaphraser
from evalbias.optimizers.zepo import ZEPO, CurvePoint, Epochs
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.report.plots import curve, history, write_png
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


def test_a_search_is_drawn_by_epoch(searched):
    report = searched[0].report
    (dots,) = history(report).marks
    whole = [t for t in report.tried if t.examples == max(one.examples for one in report.tried)]
    assert [x.tolist() for x in dots.points["instruction"]] == [
        [t.epoch for t in whole],
        [t.objective for t in whole],
    ]
    assert sum(len(x) for x, _ in dots.points.values()) == len(report.tried)
    assert dots.line[:, 0].tolist() == [0, 1, 1, 2, 2][: 2 * len(report.history) - 1]  # a step an epoch
    assert dots.line[::2, 1].tolist() == list(report.history)


@pytest.mark.slow
def test_the_curve_of_fairness_and_agreement(tmp_path):
    points = [CurvePoint(str(x), x, 0.8 - (x - 0.5) ** 2) for x in np.linspace(0.1, 0.9, 9)]
    plot = curve({"initial": points, "after permutation": points[2:7], "few": points[:2]})
    first, _, few = plot.marks
    assert_allclose(first.line[:, 1], 0.8 - (first.line[:, 0] - 0.5) ** 2)
    assert few.line is None
    assert "initial: 9 instructions, R² 1.00, top at 0.50; after permutation: 5 instr" in plot.caption
    write_png(plot, tmp_path / "curve.png")
    pixels = image.imread(tmp_path / "curve.png")
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20
