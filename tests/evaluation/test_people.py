"""Agreement of judges with people: with its ceiling, its floors, and corrected by the items that people labeled."""

import math
from dataclasses import replace

import krippendorff
import numpy as np
import pytest
from planted import by_hand, compared, having, numbers, partly, scored, without
from scipy import stats

from evalbias.evaluation import BIASES, Judged, compare, measure
from evalbias.evaluation.agreement import CorrectedEstimates, PeopleAgreement
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS
from evalbias.measures import corrected_mean, corrected_rate
from evalbias.report.page import sections

NAN = math.nan
FIRST, SECOND, TIE, NONE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (NAN, NAN, NAN)


def agreement(judged):
    return measure(PeopleAgreement(), judged, seed=0, n_resamples=100)


def shortest(judged):
    """Make the longest output the shortest."""
    return having(judged, **{LENGTHS: -judged.covariates[LENGTHS]})


def test_a_judge_that_scores():
    judged = scored(np.random.default_rng(0), 150, raters=3)
    human, ratings = judged.covariates[HUMAN_SCORES], judged.covariates[RATINGS]
    found = agreement(judged)
    others = [np.delete(ratings, r, axis=1).mean(axis=1) for r in range(3)]
    expected = {
        "spearman": stats.spearmanr(judged.answers, human).statistic,
        "kendall": stats.kendalltau(judged.answers, human).statistic,
        "pearson": stats.pearsonr(judged.answers, human).statistic,
        "alpha_interval": krippendorff.alpha([judged.answers, human], level_of_measurement="interval"),
        "alpha_ordinal": krippendorff.alpha([judged.answers, human], level_of_measurement="ordinal"),
        "human_ceiling": np.mean([stats.spearmanr(ratings[:, r], others[r]).statistic for r in range(3)]),
        "likelihood_floor": stats.spearmanr(judged.covariates[LIKELIHOODS], human).statistic,
        "length_floor": stats.spearmanr(judged.covariates[LENGTHS], human).statistic,
    }
    assert {name: estimate.value for name, estimate in found.estimates.items()} == pytest.approx(expected)
    assert all(e.low < e.value < e.high and e.null is None for e in found.estimates.values())
    assert isinstance(BIASES["agreement"], PeopleAgreement)


def test_a_floor_is_of_the_side_that_agrees_better():
    judged = scored(np.random.default_rng(0), 150, raters=3)
    floors = [agreement(judged)[name] for name in ("likelihood_floor", "length_floor")]
    assert [floor.label for floor in floors] == ["likelihood alone", "length alone"]
    floor, other = (agreement(one)["length_floor"] for one in (judged, shortest(judged)))
    assert (other.label, other.value, other.low) == ("brevity alone", floor.value, floor.low)
    pairs = verdicts(**{BETTER: [0.0, 1.0, 1.0, NAN, 1.0], LENGTHS: [[1, 9], [1, 9], [3, 3], [9, 1], [9, 1.0]]})
    shares = agreement(pairs)["length_floor"]
    assert (shares.label, shares.value) == ("brevity alone", pytest.approx((1 + 0 + 0.5 + 1) / 4))
    pairs.covariates[LENGTHS][:] = 3.0
    assert (agreement(pairs)["length_floor"].label, agreement(pairs)["length_floor"].value) == ("length alone", 0.5)


def test_alpha_needs_one_scale():
    judged = scored(np.random.default_rng(0), 30)
    percent = replace(judged, covariates={HUMAN_SCORES: 25 * (judged.covariates[HUMAN_SCORES] - 1) + 6})
    assert "alpha_interval" not in agreement(percent).estimates
    assert "alpha_interval" in agreement(judged).estimates
    nobody = replace(judged, covariates={HUMAN_SCORES: np.full(30, NAN), LENGTHS: np.ones(30)})
    assert math.isnan(agreement(nobody)["spearman"].value)
    assert said(nobody) == ""


def verdicts(**covariates):
    # chosen candidate in the order given: 0, 1, tie, 0, none; in the other order: 0, 0, 1, tie, 1
    answers = np.array([[FIRST, SECOND], [SECOND, SECOND], [TIE, FIRST], [FIRST, TIE], [NONE, FIRST]])
    return by_hand(answers, ties=True, **covariates)


def test_verdicts_by_hand():
    judged = verdicts(**{BETTER: [0.0, 1.0, 1.0, NAN, 1.0], LENGTHS: [[9, 1], [9, 1], [3, 3], [1, 9], [1, 9.0]]})
    assert judged.preferred == pytest.approx([1, 0, 0, NAN, 0], nan_ok=True)
    found = agreement(judged)
    values = {name: (e.value, e.n, e.undefined) for name, e in found.estimates.items()}
    # kappa of the choices 1, 0, .5 with 1, 0, 0: p_o = 2.5 / 3, p_e = .5 / 3 + .5 * 2 / 3 = .5
    assert values == {
        "accuracy": (pytest.approx((1 + 1 + 0.5) / 3), 3, 2),
        "accuracy_swapped": (pytest.approx((1 + 0 + 1 + 1) / 4), 4, 1),
        "consistency": (pytest.approx(1 / 4), 4, 1),
        "kappa": (pytest.approx((2.5 / 3 - 0.5) / 0.5), 3, 2),
        "length_floor": (pytest.approx((1 + 0 + 0.5 + 1) / 4), 4, 1),
    }
    one_order = replace(judged, answers=judged.answers[:, :1])
    assert {"accuracy_swapped", "consistency"}.isdisjoint(agreement(one_order).estimates)


def test_pass_or_fail_has_a_kappa_beside_that_of_one_rater():
    rng = np.random.default_rng(2)
    quality = rng.normal(size=(150, 1))
    ratings, answers = (quality + rng.normal(size=(150, 3)) > 1).astype(float), (quality[:, 0] > 0.5).astype(float)
    found = agreement(by_hand(answers, **{RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}))
    same = np.mean([(answers == one).mean() for one in ratings.T])
    chance = answers.mean() * ratings.mean() + (1 - answers.mean()) * (1 - ratings.mean())
    assert found["kappa"].value == pytest.approx((same - chance) / (1 - chance))
    assert 0 < found["human_kappa"].low < found["human_kappa"].value < found["human_ceiling"].value
    for other in (answers * 0.5, np.where(answers == 1, 5, 1)):
        assert "kappa" not in agreement(by_hand(other, **{RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}))


def test_probabilities_are_scored_as_forecasts():
    answers = [[(0.8, 0.2), (0.4, 0.6)], [(0.3, 0.7), (0.5, 0.5)]]  # first candidate: .7 and .4
    found = agreement(by_hand(answers, **{BETTER: [0, 0]}))
    assert found["brier"].value == pytest.approx((0.3**2 + 0.6**2) / 2)
    assert found["calibration_error"].value == pytest.approx((0.3 + 0.6) / 2)


def test_ratings_stand_in_for_choices():
    ratings = [[1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -1.0, NAN], [2.0, NAN, NAN], [NAN, NAN, NAN]]
    judged = verdicts(**{RATINGS: ratings})
    assert judged.preferred == pytest.approx([1, NAN, 0, 1, NAN], nan_ok=True)
    found = agreement(judged)
    # one rater against the others: in the first 1 against 0 (neither), -1 against 1; in the third -1 against -1
    assert (found["human_ceiling"].value, found["human_ceiling"].n) == (0.5, 2)
    judged.covariates[RATINGS][3] = [1.0, 0.0, NAN]  # a tie of the one counts half, as one of the judge does
    found = agreement(judged)
    assert (found["human_ceiling"].value, found["human_ceiling"].n) == (0.5, 3)
    pairs = agreement(compared(np.random.default_rng(1), 300, raters=3))
    assert 0.6 < pairs["human_ceiling"].low < pairs["human_ceiling"].value < pairs["accuracy"].high
    assert pairs["likelihood_floor"].value > 0.5


def said(judged):
    return PeopleAgreement().caution(measure(PeopleAgreement(), judged, seed=0, n_resamples=50), seed=0)


def test_a_judge_that_reads_the_text_surpasses_them_and_a_judge_of_noise_does_not():
    rng = np.random.default_rng(0)
    good = scored(rng, 200, raters=3, error=0.2)
    assert said(good) == ""
    noise = replace(good, answers=rng.normal(3, 1, 200))
    agreement = measure(PeopleAgreement(), noise, seed=0, n_resamples=50)
    own, likelihood, length = (agreement[name].text() for name in ("spearman", "likelihood_floor", "length_floor"))
    assert said(noise) == (
        "The judge is not shown to agree with people better than always preferring the likelier or the longer output "
        f"would: Spearman {own} against {likelihood} and {length}."
    )
    assert "the likelier or the shorter output" in said(shortest(noise))
    assert said(without(noise, LENGTHS, LIKELIHOODS)) == ""
    copy = replace(without(good, LIKELIHOODS), answers=good.covariates[LENGTHS])
    assert "preferring the longer output would" in said(copy)  # a copy of the floor does not surpass it


def test_pairs_count_with_the_mean_over_the_orders():
    pairs = compared(np.random.default_rng(2), 300, raters=3)
    assert said(without(pairs, LENGTHS, LIKELIHOODS)) == ""
    first = np.zeros_like(pairs.answers)
    first[:, :, 0] = 1.0  # the first position wins in both orders
    found = said(replace(pairs, answers=first))
    assert found.startswith("The judge is not shown to agree with people better than always preferring the likelier or")
    assert " would: accuracy 0.50 against 0." in found


def test_the_audit_and_its_report_say_it():
    rng = np.random.default_rng(3)
    judged = scored(rng, 200, raters=3)
    found = audit_answers(replace(judged, answers=rng.normal(3, 1, 200)))
    assert found.caution in found.paragraphs
    assert found.caution.startswith("The judge is not shown to agree with people better than")
    (section,) = [one for one in sections(found) if one.title == "Agreement with people"]
    assert section.remark == found.caution


def test_a_mean_score():
    judged = partly(scored(np.random.default_rng(0), 200), 30)
    found = measure(CorrectedEstimates(), judged, seed=0, n_resamples=50)
    human, scores = judged.covariates[HUMAN_SCORES], judged.answers
    direct = corrected_mean(scores, human)
    corrected = found["corrected_mean"]
    assert (corrected.value, corrected.low, corrected.high) == (direct.value, direct.low, direct.high)
    assert (corrected.n, corrected.undefined, corrected.null) == (200, 0, None)
    assert found["judge_mean"].value == pytest.approx(scores.mean())
    assert (found["people_mean"].value, found["people_mean"].n) == (pytest.approx(human[:30].mean()), 30)
    assert not any(one.text()[0] in "+-" for one in found.estimates.values())  # scores, and no differences


def test_two_judges_are_compared():
    before = partly(scored(np.random.default_rng(2), 60), 20)
    after = replace(before, answers=before.answers + 1)  # the same, but for a constant that the labels correct
    sides = [measure(CorrectedEstimates(), one, seed=0, n_resamples=20) for one in (before, after)]
    change = compare(*sides, n_resamples=20, n_intervals=20, seed=0)
    assert change["judge_mean"].difference.value == pytest.approx(1)
    corrected = change["corrected_mean"].difference
    assert (corrected.value, corrected.low, corrected.high) == pytest.approx((0, 0, 0), abs=1e-9)
    assert [name for name, one in change.changes.items() if one.p_itemwise is not None] == ["judge_mean", "people_mean"]
    sides[1] = measure(CorrectedEstimates(), partly(before, 6), seed=0)
    with pytest.raises(ValueError, match="was measured before and after with different"):
        compare(*sides, n_resamples=9, seed=0)


def pairs(rng, n, known):
    """Verdicts on outputs of systems a and b in random order; a wins 6 of 10 with people, the judge errs in 2 of 10."""
    wins = rng.random(n) < 0.6
    judge = np.where(rng.random(n) < 0.8, wins, ~wins)
    first = rng.random(n) < 0.5  # a comes first
    verdict = np.where(first, judge, ~judge).astype(float)
    better = np.where(first, ~wins, wins).astype(float)
    better[known:] = NAN
    writers = [("a", "b") if one else ("b", "a") for one in first]
    answers = np.stack([verdict, 1 - verdict], axis=1)[:, None]
    judged = Judged(tuple(map(str, range(n))), "quality", answers, {BETTER: better}, writers=writers)
    return judged, wins, judge


def test_a_win_rate():
    judged, wins, judge = pairs(np.random.default_rng(2), 400, 100)
    found = measure(CorrectedEstimates(), judged, seed=0, n_resamples=50)
    assert found["judge_rate"].value == pytest.approx(judge.mean())
    assert found["people_rate"].value == pytest.approx(wins[:100].mean())
    labels = ["judge", "people", "corrected", "by sensitivity and specificity"]
    assert [one.label for one in found.estimates.values()] == [f"a wins, {label}" for label in labels]
    assert not any(one.text()[0] in "+-" for one in found.estimates.values())  # shares
    assert [one.tested for one in found.numbers.values()] == [True, True, False, False]
    arrays = judge.astype(float), np.where(np.arange(400) < 100, wins, NAN)
    for name, direct in (("corrected_mean", corrected_mean(*arrays)), ("corrected_rate", corrected_rate(*arrays))):
        assert (found[name].value, found[name].low, found[name].high) == (direct.value, direct.low, direct.high)
        assert found[name].low < 0.6 < found[name].high
    grouped = replace(judged, inputs=tuple(str(i // 4) for i in range(400)))
    found = measure(CorrectedEstimates(), grouped, seed=0, n_resamples=50)["corrected_rate"]
    direct = corrected_rate(*arrays, clusters=grouped.inputs)
    assert (found.low, found.high, found.units) == (direct.low, direct.high, 25)
    tied = judged.answers.copy()
    tied[0] = 0.5
    assert "corrected_rate" not in numbers(CorrectedEstimates(), replace(judged, answers=tied))


def test_a_tie_of_people_is_a_label_that_counts_half():
    judged, wins, _ = pairs(np.random.default_rng(2), 100, 100)
    better = judged.covariates[BETTER].copy()
    better[:25] = -1
    tied = replace(judged, covariates={BETTER: better})
    assert not CorrectedEstimates().applies(tied)  # all 100 are labeled
    assert audit_answers(tied).label_next == []
    some = replace(tied, covariates={BETTER: np.where(np.arange(100) < 60, better, NAN)})
    found = measure(CorrectedEstimates(), some, seed=0, n_resamples=20)
    assert found["people_rate"].n == 60
    assert found["people_rate"].value == pytest.approx((25 / 2 + wins[25:60].sum()) / 60)
    assert "corrected_rate" not in found  # sensitivity and specificity know no tie
    assert set(audit_answers(some).label_next) == set(map(str, range(60, 100)))
