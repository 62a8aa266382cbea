"""Thresholds: what a threshold does, when it is shown to reach what is asked for, and where it is written."""

from dataclasses import replace

import numpy as np
import pytest
from commands import evalbias
from decision_models import Client, sparrow_server
from dspy.experimental import ReAnchor
from fakes import FormulaLM, of_sources
from scipy import stats

from evalbias import Criterion, PointwiseJudge, ThresholdTuning, load_judge
from evalbias.cli.repair import compile_threshold_command
from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS, Judged, judge_examples, mean_of_raters
from evalbias.lm.dspy_seam import anchored_threshold, check_decisions
from evalbias.measures.families import NESTED, nested, step_down
from evalbias.measures.resample import Draws, estimate_share, share_above
from evalbias.optimizers.thresholds import ThresholdRule, thresholds, verdicts_at
from evalbias.options import MeasuringModels, Out, ThresholdOptions


@pytest.fixture(autouse=True)
def quick_baseline(monkeypatch):
    monkeypatch.setattr("evalbias.optimizers.thresholds.anchored_threshold", lambda p, worth: 0.5)


LEVELS = tuple(f"{word} at all" for word in ("none", "a bit", "half", "much", "all"))
QUALITY = Criterion("quality", "is it good?", levels=LEVELS)
FINE = Criterion("quality", "is it fine?", (0, 1), levels=("not fine", "fine"))


def scored(scores, ratings, inputs=()):
    ratings = np.asarray(ratings, dtype=float)
    known = {RATINGS: ratings, HUMAN_SCORES: mean_of_raters(ratings)}
    ids = tuple(map(str, range(len(scores))))
    return Judged(ids, "quality", np.asarray(scores, dtype=float), known, inputs or ids, scale=(1, 5))


def test_precision_and_recall_count_each_persons_verdict_and_coverage_counts_outputs():
    nan = np.nan
    judged = scored([1, 2, 3, 4, 5, nan], [[1, 2], [4, 1], [2, nan], [4, 3], [5, 5], [5, 5]])
    found = ThresholdRule(precision=0.9, seed=0).estimates(verdicts_at(judged, 3.0, 4))
    # pass: items 3, 4, 5 with the verdicts (0), (1, 0), (1, 1); people's passes: 4 of those that were scored
    assert found["precision"].value == pytest.approx(3 / 5)
    assert found["recall"].value == pytest.approx(3 / 4)
    assert found["coverage"].value == pytest.approx(3 / 5)
    assert [found[name].undefined for name in ("precision", "recall", "coverage")] == [3, 3, 1]
    cost = ThresholdRule(cost=2.0).estimates(verdicts_at(judged, 3.0, 4))["cost"]
    assert cost.value == pytest.approx((2 * 2 + 1) / 9)  # two false passes, one false fail, nine verdicts


@pytest.mark.parametrize("share", [0.8, 0.93, 1.0])
@pytest.mark.parametrize("clustered", [False, True])
def test_a_share_is_above_where_its_interval_is(share, clustered):
    x = np.repeat([1.0, 0.0], [round(200 * share), 200 - round(200 * share)])
    clusters = np.random.default_rng(1).integers(0, 40, 200) if clustered else None
    for level in (0.01, 0.05, 0.3):
        low = estimate_share(x, clusters=clusters, draws=Draws(confidence=1 - 2 * level)).low
        assert share_above(x, low, clusters=clusters) == pytest.approx(level, abs=1e-9)
    assert np.isnan(share_above([1.0, np.nan], 0.5))


def test_nested_sets_cost_less_than_as_many_tests_and_a_set_inside_itself_nothing():
    p, sizes = [0.01, 0.02, np.nan, 0.4], [400, 300, 200, 100]
    drawn = np.random.default_rng(5).standard_normal((NESTED, 400)).cumsum(axis=1)
    slow = step_down(stats.norm.isf(p), drawn[:, np.array(sizes) - 1] / np.sqrt(sizes))
    np.testing.assert_allclose(nested(p, sizes, seed=0), slow, atol=0.04)
    assert nested([0.03], [10], seed=0) == pytest.approx(0.03, abs=0.01)
    assert nested([0.03] * 20, [10] * 20, seed=0) == pytest.approx(0.03, abs=0.01)
    assert 0.04 < nested([0.01] * 20, range(40, 240, 10), seed=0).min() < 0.08  # Bonferroni's is .2


def drawn(seed, n=150, slope=0.0, base=0.0, raters=2):
    """Draw scores from 1 to 5, and verdicts of people with P(pass) = expit(base + slope z) at the score 3 + z / 2."""
    rng = np.random.default_rng(seed)
    z = np.clip(rng.normal(size=n), -4, 4)
    passes = rng.random((n, raters)) < 1 / (1 + np.exp(-base - slope * z))[:, None]
    return scored(3 + z / 2, 1 + 4 * passes)


def truth(slope, base, threshold):
    z = np.linspace(-4, 4, 4001)
    weight, p = stats.norm.pdf(z) * (3 + z / 2 >= threshold), 1 / (1 + np.exp(-base - slope * z))
    return (weight * p).sum() / weight.sum()


@pytest.mark.slow
@pytest.mark.parametrize(("slope", "base", "most"), [(0.0, 2.1, 0.05), (0.7, 0.9, 0.05)])
def test_a_precision_is_rarely_claimed_that_is_not_there(slope, base, most):
    false = 0
    for seed in range(25):
        report = ThresholdTuning(precision=0.9, pass_mark=3).of_scores(
            *[drawn([seed, s], slope=slope, base=base) for s in (0, 1)]
        )
        false += bool(report.threshold > 0 and truth(slope, base, report.threshold) < 0.9)
    assert false <= most * 25


def test_a_precision_that_is_there_is_found_and_holds_where_it_was_not_chosen():
    sides = [drawn([9, s], n=600, slope=4.0, base=-1.0) for s in (0, 1)]
    report = ThresholdTuning(precision=0.9, pass_mark=3).of_scores(*sides)
    assert truth(4.0, -1.0, report.threshold) >= 0.9
    assert report.tested["chosen"]["precision"].high > 0.9
    assert report.tested["chosen"]["recall"].value > 0.4
    assert "a precision of 0.9 or more" in report.decision
    assert report.tested["all pass"]["coverage"].value == 1.0


def test_a_recall_is_had_by_passing_more_and_both_are_asked_for_together():
    judged, test = (drawn([9, s], n=600, slope=4.0, base=0.0) for s in (0, 1))
    found = {}
    for name, asked in {"recall": {"recall": 0.97}, "both": {"precision": 0.8, "recall": 0.8}}.items():
        report = ThresholdTuning(pass_mark=3, **asked).of_scores(judged, test)
        found[name] = report.threshold
        for share, least in asked.items():
            assert report.tested["chosen"][share].high > least
    assert found["recall"] < found["both"]
    kept = ThresholdTuning(pass_mark=3, precision=0.98, recall=0.9).of_scores(judged, test)
    assert np.isnan(kept.threshold)
    assert kept.decision.startswith("No threshold reaches a precision of 0.98 or more and a recall of 0.9 or more")


@pytest.mark.slow
@pytest.mark.parametrize(("cost", "stricter"), [(9.0, True), (1 / 9, False)])
def test_a_cost_moves_the_threshold_to_where_the_dearer_error_is_rarer(cost, stricter):
    judged, test = (drawn([9, s], n=600, slope=2.0, base=0.0) for s in (0, 1))
    report = ThresholdTuning(cost=cost, pass_mark=3).of_scores(judged, test)
    assert (report.threshold > 3.0) == stricter
    assert report.tested["chosen"]["cost"].value < report.tested["given"]["cost"].value


def test_recorded_probabilities_are_compared_with_one_half_as_those_of_a_judge_are():
    p, y = np.random.default_rng(3).random((2, 60))
    judged = replace(scored(p, np.stack([y < p, y < p], axis=1)), scale=(0, 1))
    report = ThresholdTuning(precision=0.99).of_scores(judged, judged)
    assert PointwiseJudge(FINE).threshold(1) == 0.5
    assert report.tested["given"]["coverage"].value == pytest.approx((p >= 0.5).mean())


def test_one_input_cannot_be_chosen_on_and_measured(tmp_path):
    (tmp_path / "rated.csv").write_text("id,source,output,mine,score\n1,s,a,3,4\n2,s,b,4,5\n")
    options = ThresholdOptions(
        data=str(tmp_path / "rated.csv"), scores_field="mine", criterion="quality", pass_mark=4, precision=0.9
    )
    with pytest.raises(ValueError, match=r"rated\.csv has one input: .* Give two or more"):
        compile_threshold_command(options, MeasuringModels(), Out())
    with pytest.raises(ValueError, match="`pass_mark` is nan: give the lowest rating that passes"):
        compile_threshold_command(replace(options, pass_mark=float("nan")), MeasuringModels(), Out())


def compiled(lm, **asked):
    tuning = ThresholdTuning(pass_mark=3.5, **asked)
    return tuning.compile(PointwiseJudge(QUALITY), trainset=of_sources(200, 1), valset=of_sources(40, 2), lm=lm)


def test_the_cut_is_in_dspys_fields_and_a_saved_judge_decides_by_it(tmp_path):
    lm = FormulaLM(bias=0.0)
    judge = compiled(lm, precision=0.6)
    cuts = judge.predict.fields["score"]["cuts"]
    assert cuts[2] == pytest.approx(judge.report.threshold - 1)
    judge.save(tmp_path / "judge.json")
    loaded, items = load_judge(tmp_path / "judge.json"), of_sources(40, 2)
    predictions = loaded.batch(items, lm=lm)
    assert [p.level >= 4 for p in predictions] == [p.score >= judge.report.threshold for p in predictions]
    assert judge.report.after.answers.tolist() == [float(p.level >= 4) for p in predictions]
    useless = compiled(FormulaLM(bias=3.0), precision=0.6)
    assert np.isnan(useless.report.threshold)
    assert useless.predict.fields == {}
    assert useless.report.chosen == "the given judge"


@pytest.mark.parametrize("mark", [2, 3, 4, 5])
@pytest.mark.parametrize("score", [1.01, 2.3, 4.9])
@pytest.mark.parametrize("cuts", [None, [0.1, 0.2, 0.3, 0.4], [3.6, 3.7, 3.8, 3.9]])
def test_other_cuts_stay_in_order_and_within_the_scale(mark, score, cuts):
    judge = PointwiseJudge(QUALITY)
    judge.predict.fields = {"score": {"cuts": cuts}} if cuts else {}
    moved = judge.with_threshold(mark, score)
    check_decisions(moved.predict)  # DSPy refuses cuts that do not ascend
    assert moved.threshold(mark) == pytest.approx(score)
    assert judge.threshold(mark) == (cuts or [0.5, 1.5, 2.5, 3.5])[mark - 2] + 1
    assert moved.with_threshold(mark, judge.threshold(mark)).threshold(mark) == pytest.approx(judge.threshold(mark))


@pytest.mark.slow
def test_reanchors_threshold_is_that_of_its_run_on_the_judge_itself():
    judge = PointwiseJudge(FINE)
    judge.predict.lm, judge.tunable = Client(), True
    items = [e.copy(output=text) for e, text in zip(of_sources(14, 3), "abcdefghijklmn", strict=True)]
    p = judge_examples(judge, items).answers
    y = [float(share > np.median(p)) if i % 5 else 1.0 for i, share in enumerate(p)]
    named = [e.copy(y=one).with_inputs("source", "output") for e, one in zip(items, y, strict=True)]
    metric = lambda e, said: float((said.level == 1) == e.y)  # noqa: E731
    fitted = ReAnchor(metric, num_threads=1, require_cache=False).compile(judge, trainset=named)
    assert anchored_threshold(p.tolist(), [(1 - one, one) for one in y]) == fitted.threshold(1)
    assert fitted.threshold(1) != 0.5


def test_what_cannot_be_asked_for_is_said():
    for asked, message in [
        ({}, "Say what a threshold must reach"),
        ({"precision": 0.9, "cost": 1.0}, "or else the `cost`"),
        ({"precision": 90}, "`precision` is 90: give a share"),
        ({"cost": 0.0}, "`cost` is 0.0: give"),
        ({"precision": 0.9, "select": False}, "select=False: ThresholdTuning always chooses"),
    ]:
        with pytest.raises(ValueError, match=message):
            ThresholdTuning(**asked)
    bare, items = PointwiseJudge(Criterion("quality", "is it?")), of_sources(40, 1)
    with pytest.raises(ValueError, match="decides by no threshold: give its criterion a description of every level"):
        ThresholdTuning(precision=0.9, pass_mark=4).compile(bare, trainset=items, lm=FormulaLM())
    with pytest.raises(ValueError, match="With the pass mark 1, every score of quality passes, from 1 to 5"):
        PointwiseJudge(QUALITY).threshold(1)
    with pytest.raises(ValueError, match="pass mark 6, no score"):
        PointwiseJudge(QUALITY).threshold(6)
    with pytest.raises(ValueError, match="Say from which rating on people let an output pass: `pass_mark`"):
        verdicts_at(scored([1, 2], [[3], [4]]), 1.0, None)
    with pytest.raises(ValueError, match="gives all items its lowest score, 1"):
        thresholds(scored([1, 1], [[3], [4]]))


@pytest.mark.slow
def test_a_decision_model_without_skill_keeps_its_threshold_by_the_command(tmp_path):
    PointwiseJudge(FINE).save(tmp_path / "judge.json")
    rows = [
        f"{e.id},s{i % 40},{e.output} {'abcdefgh'[i % 8] * (i % 7)},{4 + i * i % 3 % 2},{3 + i % 2}"
        for i, e in enumerate(of_sources(80, 4))
    ]
    (tmp_path / "rated.csv").write_text("\n".join(["id,source,output,rating_1,rating_2", *rows]))
    with sparrow_server() as (address, _):
        asked = ["--pass", 4, "--precision", 0.95, "--judge", "judge.json", "--lm", "sparrow", "--dialect", "systemone"]
        said = evalbias(
            "compile", "threshold", *asked, "--api-base", address, "--data", "rated.csv", cwd=tmp_path
        ).stdout
    assert "No threshold reaches a precision of 0.95 or more" in said
    assert "No judge was written." in said
    assert "ReAnchor" in said
