"""Agreement of judges with people: with its ceiling, its floors, and corrected by the items that people labeled."""

import gzip
import json
import math
from dataclasses import replace

import krippendorff
import numpy as np
import pytest
from planted import by_hand, compared, having, numbers, partly, scored, without
from scipy import stats

import evalbias
from benchmarks.sets import read
from evalbias.evaluation import BIASES, Judged, compare_judges, measure
from evalbias.evaluation.agreement import CorrectedEstimates, PeopleAgreement
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS
from evalbias.measures import corrected_mean, corrected_rate
from evalbias.report.page import sections
from evalbias.report.tables import groups_table

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
        "pearson": stats.pearsonr(judged.answers, human).statistic,
        "leniency": (judged.answers - human).mean(),
        "alpha_interval": krippendorff.alpha([judged.answers, human], level_of_measurement="interval"),
        "human_ceiling": np.mean([stats.spearmanr(ratings[:, r], others[r]).statistic for r in range(3)]),
        "likelihood_floor": stats.spearmanr(judged.covariates[LIKELIHOODS], human).statistic,
        "length_floor": stats.spearmanr(judged.covariates[LENGTHS], human).statistic,
    }
    values = {name: estimate.value for name, estimate in found.estimates.items()}
    assert 0.5 < values.pop("tied_accuracy") < 1  # by its slow definition in the tests of measures
    assert values == pytest.approx(expected)
    assert all(e.low < e.value < e.high and e.null is None for e in found.estimates.values())
    assert isinstance(BIASES["agreement"], PeopleAgreement)
    assert "Same order or tie as people, of pairs" in found.bias.plot(found).marks[0].rows


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
    assert validity(nobody) is None


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
    # one rater against the others: in the first 1 against 0 (neither), -1 against 1; in the third twice -1 against -1
    assert (found["human_ceiling"].value, found["human_ceiling"].n) == (pytest.approx(2 / 3), 2)
    judged.covariates[RATINGS][3] = [1.0, 0.0, NAN]  # a tie of the one counts half, as one of the judge does
    found = agreement(judged)
    assert (found["human_ceiling"].value, found["human_ceiling"].n) == (2.5 / 4, 3)
    pairs = agreement(compared(np.random.default_rng(1), 300, raters=3))
    assert 0.6 < pairs["human_ceiling"].low < pairs["human_ceiling"].value < pairs["accuracy"].high
    assert pairs["likelihood_floor"].value > 0.5


def validity(judged):
    return PeopleAgreement().validity(measure(PeopleAgreement(), judged, seed=0, n_resamples=50), judged, seed=0)


def test_a_judge_that_reads_the_text_surpasses_the_floors_and_a_copy_of_one_does_not(snapshot):
    good = scored(np.random.default_rng(0), 200, raters=3, error=0.2)
    found, numbers = validity(good), agreement(good)
    for name in ("spearman", "human_ceiling", "likelihood_floor", "length_floor"):
        assert numbers[name].text() in found.sentence
    bare = validity(without(good, LENGTHS, LIKELIHOODS))
    copy = validity(replace(without(good, LIKELIHOODS), answers=good.covariates[LENGTHS]))
    short = validity(replace(shortest(good), answers=good.covariates[LENGTHS]))
    assert [(one.status, one.sentence) for one in (found, bare, copy, short)] == snapshot


def test_a_judge_of_noise_says_nothing_and_one_of_few_items_is_not_shown_to(snapshot):
    rng = np.random.default_rng(0)
    good = scored(rng, 300, raters=3)
    noise = replace(good, answers=rng.integers(1, 6, 300).astype(float))
    found = audit_answers(noise)
    said = {"status": "says nothing", "sentence": found.paragraphs[0], "no_better_than": ["likelier", "longer"]}
    assert found.to_dict()["validity"] == said
    (_, section, *_) = sections(found)
    shown = (section.title, section.status, section.finding)
    assert shown == ("Agreement with people", "says nothing", said["sentence"])
    assert {f.bias: f.status for f in found.findings}["scale_use"] == "not measured"
    few, contrary = validity(noise.take(np.arange(20))), validity(replace(good, answers=-good.answers))
    assert [few.status, contrary.status] == ["not shown", "contradicts people"]
    same = audit_answers(replace(good, answers=np.where(np.arange(300) < 3, NAN, 4.0)))
    assert [said["sentence"], few.sentence, contrary.sentence, same.paragraphs[0]] == snapshot
    assert validity(noise.take(np.arange(4))) is None


@pytest.mark.slow
def test_what_a_judge_says_is_measured_by_what_one_rater_reaches():
    rng = np.random.default_rng(1)
    quality, hard = rng.normal(size=(2, 3000))
    faint = np.round(3 + 0.12 * quality + rng.normal(size=3000))
    clear, unclear = (quality[:, None] + noise * rng.normal(size=(3000, 3)) for noise in (0.5, 2.6))
    found = [validity(by_hand(faint, **{RATINGS: r, HUMAN_SCORES: r.mean(axis=1)})) for r in (clear, unclear)]
    assert [one.status for one in found] == ["says little", "valid"]  # one rater: .9 and .2
    random = rng.normal(size=(3000, 3))
    nobody = validity(by_hand(hard, **{RATINGS: random, HUMAN_SCORES: random.mean(axis=1)}))
    assert nobody.status == "not shown"  # people do not agree with each other


def test_pairs_count_with_the_mean_over_the_orders(snapshot):
    pairs = compared(np.random.default_rng(2), 300, raters=3)
    assert validity(without(pairs, LENGTHS, LIKELIHOODS)).status == "valid"
    first = np.zeros_like(pairs.answers)
    first[:, :, 0] = 1.0  # the first position wins in both orders
    found = validity(replace(pairs, answers=first))
    assert (found.status, found.sentence) == snapshot


def test_two_who_like_the_first_position_agree_no_more_than_by_chance(snapshot):
    second, better = np.where(np.random.default_rng(0).random((2, 400)) < 0.8, 0.0, 1.0)
    judged = by_hand(np.stack([1 - second, second], axis=1)[:, None], **{BETTER: better})
    passed = by_hand(better, **{HUMAN_SCORES: np.ones(400)})  # people who never differ tell nothing of a judge
    found = [validity(one) for one in (judged, replace(judged, covariates={BETTER: 0 * better}), passed)]
    assert [(one.status, one.sentence) for one in found] == snapshot
    assert validity(replace(passed, answers=np.ones(400)).take(np.arange(3))) is None


@pytest.mark.slow
def test_a_lenient_judge_that_ranks_well_is_told_by_how_much_and_is_not_biased(snapshot):
    judged = scored(np.random.default_rng(3), 200, error=0.2)
    lenient = replace(judged, answers=judged.answers + 0.4, scale=(1, 6))
    found, before = audit_answers(lenient), agreement(judged)["leniency"]
    after = found["agreement"]["leniency"]
    assert after.value == pytest.approx(before.value + 0.4)
    assert after.value == pytest.approx((lenient.answers - judged.covariates[HUMAN_SCORES]).mean())
    assert found.paragraphs[1] == found.leniency == found.to_dict()["leniency"] == snapshot
    assert found.validity.status == "valid"
    assert not found.having("biased")
    for other in (replace(lenient, scale=None), replace(judged, scale=(0, 100))):
        assert audit_answers(other).leniency == ""
    assert audit_answers(replace(judged, scale=None)).leniency  # which runs from people's lowest to their highest


def test_of_pass_or_fail_the_judge_is_told_to_pass_more(snapshot):
    rng = np.random.default_rng(4)
    quality = rng.normal(size=(400, 1))
    ratings, answers = (quality + rng.normal(size=(400, 2)) > 1).astype(float), (quality[:, 0] > 0.2).astype(float)
    found = audit_answers(by_hand(answers, **{RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}))
    assert f"passes {100 * (answers.mean() - ratings.mean()):.0f} more" in found.leniency
    assert [found.leniency, found.validity.sentence, found.not_measured["scale_use"]] == snapshot


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


@pytest.mark.parametrize(("people", "scale"), [((5, 2), (1, 5)), ((1, 0), None)])
def test_a_corrected_mean_lies_on_the_scale(people, scale):
    human = np.where(np.arange(200) < 12, people[0], NAN)
    human[3] = people[1]
    judged = by_hand(np.where(np.arange(200) % 20, *people), scale=scale, **{HUMAN_SCORES: human})
    found = measure(CorrectedEstimates(), judged, seed=0)["corrected_mean"]
    assert people[1] < found.low < found.value < found.high == people[0]
    assert corrected_mean(judged.answers, human).high > people[0]


@pytest.mark.parametrize("passed", [1.0, 0.95])
def test_few_verdicts_that_are_alike_or_all_the_judges_do_not_say_all(passed):
    truth = np.where(np.arange(2000) % 20 < 20 * passed, 1.0, 0.0)
    judge = np.where(np.arange(2000) % 50 == 49, 1 - truth, truth)  # wrong in 2 %, but in none that is labeled
    found = corrected_mean(judge, np.where(np.arange(2000) < 40, truth, NAN), limits=(0.0, 1.0))
    assert found.low < passed < found.high or found.high == passed == 1
    assert found.high - found.low > 0.05


def test_verdicts_of_one_input_that_are_alike_count_about_as_one():
    truth = np.where(np.arange(1000) % 50 < 45, 1.0, 0.0)  # 20 of 200 inputs with five verdicts fail
    labels, inputs = np.where(np.arange(1000) < 45, truth, NAN), [k // 5 for k in range(1000)]
    apart, found = (corrected_mean(truth, labels, clusters=c, limits=(0.0, 1.0)) for c in (None, inputs))
    assert found.low < 0.9 < apart.low
    ties = corrected_mean(np.full(90, 0.5), np.where(np.arange(90) < 10, 0.5, NAN), limits=(0.0, 1.0))
    assert ties.low < 0.3 < 0.7 < ties.high


def test_what_few_inputs_and_single_ratings_lack_is_told():
    judged = replace(scored(np.random.default_rng(0), 60, raters=3), inputs=[str(k // 20) for k in range(60)])
    found = audit_answers(judged)
    assert "these outputs answer 3 inputs, and it takes 6" in found.first_screen[0]
    assert found.next_step.why == "Have outputs of more inputs rated, and audit again"
    once = having(judged, **{RATINGS: judged.covariates[RATINGS][:, :1]})
    assert "two or more ratings of each item" in audit_answers(replace(once, scale=(1, 5))).not_measured["scale_use"]


def test_bounds_that_allow_every_share_of_wins_are_no_bounds():
    judged, *_ = pairs(np.random.default_rng(0), 100, 8)
    swapped = np.concatenate([judged.answers, judged.answers[:, :, ::-1]], axis=1)
    lengths = np.random.default_rng(1).integers(9, 99, (100, 2)).astype(float)
    found = audit_answers(replace(judged, answers=swapped, covariates={**judged.covariates, LENGTHS: lengths}))
    assert "too few or too unreliable" in found.not_measured["verbosity"]


@pytest.mark.slow
def test_where_annotators_err_pass_or_fail_alone_corrects_the_share():
    right = np.where(np.random.default_rng(0).random((300, 4)) < 0.85, 1.0, 0.0)
    ratings = np.where(np.arange(300)[:, None] < 100, right[:, :3], NAN)
    found = audit_answers(by_hand(right[:, 3], **{RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}))
    assert ("corrected_rate" in found["pass_or_fail"].estimates, "corrected" in found.measurements) == (True, False)


def test_two_judges_are_compared():
    before = partly(scored(np.random.default_rng(2), 60), 20)
    after = replace(before, answers=before.answers + 1)  # the same, but for a constant that the labels correct
    sides = [measure(CorrectedEstimates(), one, seed=0, n_resamples=20) for one in (before, after)]
    change = compare_judges(*sides, n_resamples=20, n_intervals=20, seed=0)
    assert change["judge_mean"].difference.value == pytest.approx(1)
    assert math.isnan(change["corrected_mean"].difference.value)  # both estimate what people say
    assert [name for name, one in change.changes.items() if one.p_itemwise is not None] == ["judge_mean", "people_mean"]
    sides[1] = measure(CorrectedEstimates(), partly(before, 6), seed=0)
    with pytest.raises(ValueError, match="was measured before and after with different"):
        compare_judges(*sides, n_resamples=9, seed=0)


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
    corrected = corrected_mean(*arrays, limits=(0.0, 1.0))
    for name, direct in (("corrected_mean", corrected), ("corrected_rate", corrected_rate(*arrays))):
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
    some = replace(tied, covariates={BETTER: np.where(np.arange(100) < 60, better, NAN)})
    found = measure(CorrectedEstimates(), some, seed=0, n_resamples=20)
    assert found["people_rate"].n == 60
    assert found["people_rate"].value == pytest.approx((25 / 2 + wins[25:60].sum()) / 60)
    assert "corrected_rate" not in found  # sensitivity and specificity know no tie


# Recorded judgments of real judges beside people's: what an audit says, and the figures published of them.


PUBLISHED = {  # Zeng et al. 2024, appendix, prompt "Vanilla"
    ("LLMBar-Natural", "ChatGPT"): (80, 83, 71),
    ("LLMBar-Natural", "LLaMA2"): (79, 82, 79),
    ("LLMBar-Natural", "Falcon"): (71, 77, 52),
    ("LLMBar-Adversarial-Neighbor", "ChatGPT"): (30, 22, 96),
    ("LLMBar-Adversarial-Neighbor", "LLaMA2"): (34, 32, 104),
    ("LLMBar-Adversarial-Neighbor", "Falcon"): (70, 65, 57),
}
"""(Set, judge) -> pairs judged right, right in the swapped order, and alike in both."""
FIGURES = ("accuracy", "accuracy_swapped", "consistency")


@pytest.mark.parametrize(
    "judge", ["ChatGPT", *(pytest.param(name, marks=pytest.mark.slow) for name in ("LLaMA2", "Falcon"))]
)
def test_recorded_verdicts_give_the_published_figures_set_by_set(data_dir, judge):
    items, recorded = read("llmbar"), (data_dir / "pairs/llmbar_verdicts.jsonl.gz").read_bytes()
    rows = map(json.loads, gzip.decompress(recorded).splitlines())
    verdicts = {row["id"]: row for row in rows if (row["judge"], row["prompt"]) == (judge, "Vanilla")}
    pairs = [item.copy(**verdicts[item.id]) for item in items if item.id in verdicts]
    assert (len(pairs), len(items) - len(pairs)) == (419, 466)  # not asked on processed sets
    found = evalbias.audit(pairs, winner_field="winner", swapped_field="winner_swapped", by="set")
    assert len(found.groups) == 5
    for name, right in ((name, right) for (name, one), right in PUBLISHED.items() if one == judge):
        n = sum(pair["set"] == name for pair in pairs)
        assert [found.groups[name][figure].value * n for figure in FIGURES] == pytest.approx([*right])
    with pytest.raises(ValueError, match="'kind'"):
        evalbias.audit(pairs, winner_field="winner", by="kind")


def test_a_few_ratings_outside_the_scale_do_not_hide_how_lenient_the_judge_is():
    judged = scored(np.random.default_rng(4), 200)
    ratings = judged.covariates[RATINGS].copy()
    ratings[:16, 0] = 7  # 16 of 400
    found = audit_answers(having(judged, **{RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}))
    rest = np.append(ratings[:16, 1], ratings[16:].mean(axis=1))
    assert found["agreement"]["leniency"].value == pytest.approx((judged.answers - rest).mean())
    assert "without 16 ratings outside the scale" in found.leniency
    ratings[:30, 0] = 7  # more than one of twenty: people may rate on another scale
    assert audit_answers(having(judged, **{RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)})).leniency == ""


def test_agreement_by_group_is_that_of_both_orders_and_says_why_it_is_undefined():
    rng = np.random.default_rng(3)
    rows = []
    for k in range(120):
        better = int(rng.integers(2))
        first = better if rng.random() < 0.9 else 1 - better
        rows.append({"outputs": [f"a{k}", f"b{k}"], "better": better, "w": first, "v": 0, "kind": "xyz"[k % 3]})
    found = evalbias.audit(rows, winner_field="w", swapped_field="v", by="kind")
    shown = {row[0]: row[1] for row in groups_table(found.groups).rows}
    for kind in "xyz":
        of = [row for row in rows if row["kind"] == kind]
        right = np.mean([[row["w"] == row["better"], row["v"] == row["better"]] for row in of])
        assert found.groups[kind]["accuracy_both"].value == pytest.approx(right)
        assert shown[kind].startswith(f"{right:.2f} (")
    said = [{"rating_1": float(rng.integers(1, 6)), "s": 3 if k < 30 else k % 5} for k in range(60)]
    alike = [{"output": f"text {k}", "test": f"t{k // 30}"} | said[k] for k in range(60)]
    groups = evalbias.audit(alike, scores_field="s", by="test").groups
    assert groups["t0"]["spearman"].with_interval == "undefined"
    assert f"Spearman is undefined: {groups['t0']['spearman'].why_undefined} (t0)" in groups_table(groups).caption


def test_a_criterion_that_nobody_rated_on_an_item_leaves_the_others():
    rows = [{"output": f"o {k}", "ratings": {"wit": [k % 5, k % 4], "tone": [k % 3, 1]}, "s": k % 5} for k in range(40)]
    rows[7]["ratings"]["wit"] = []
    wit, tone = (evalbias.audit(rows, scores_field="s", criterion=name) for name in ("wit", "tone"))
    assert (wit["agreement"]["spearman"].n, tone["agreement"]["spearman"].n) == (39, 40)


def test_a_rating_whose_reliability_would_tell_is_asked_for_that_and_not_for_more_items():
    """The length explains more than half of the rating: at the least reliability, all of the quality."""
    rng = np.random.default_rng(0)
    length = rng.normal(size=300)
    quality = 0.95 * length + 0.3 * rng.normal(size=300)
    known = {HUMAN_SCORES: quality, LENGTHS: np.exp(5 + 0.3 * length)}
    judged = by_hand(quality + 0.3 * rng.normal(size=300), **known)
    (untold,), (told,) = (audit_answers(judged, only="verbosity", reliability=r).findings for r in (None, 1.0))
    assert (untold.status, told.status != "not measured") == ("not measured", True)
    assert "reliability: state it" in untold.sentence


def test_systems_that_nobody_rated_are_named():
    """Of 40 outputs of B, none is among 30 of 80 drawn at random in .625^40 of cases; of 2 outputs, in .39."""
    rng = np.random.default_rng(0)
    judged = replace(scored(rng, 80), writers=["A"] * 40 + ["B"] * 40)
    ratings = judged.covariates[RATINGS]

    def rated(rows):
        kept = np.where(np.isin(np.arange(80), rows)[:, None], ratings, NAN)
        return having(judged, **{RATINGS: kept, HUMAN_SCORES: kept.mean(axis=1)})

    of_one, of_both = rated(np.arange(30)), rated(rng.permutation(80)[:30])
    assert (of_one.unrated_systems, of_both.unrated_systems) == (("B",), ())
    said = "Nobody rated outputs of B, only of other systems: what the ratings say of all outputs is wrong if the judge"
    assert any(warning.startswith(said) for warning in audit_answers(of_one).warnings)
    assert not any("Nobody rated" in warning for warning in audit_answers(of_both).warnings)
    assert replace(of_one, writers=["A"] * 78 + ["B"] * 2).unrated_systems == ()  # may be by chance
    assert replace(of_one, writers=()).unrated_systems == ()
    assert judged.unrated_systems == ()
