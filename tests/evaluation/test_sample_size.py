"""How many items a bias needs, and which items people should label next."""

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy
from planted import compared, partly, scored
from scipy import stats

from evalbias import audit
from evalbias.evaluation import Estimate, Judged
from evalbias.evaluation.audit import missing_judgments
from evalbias.evaluation.estimates import items_needed, label_next, rate_again
from evalbias.evaluation.judged import BETTER, LENGTHS, RATINGS
from evalbias.measures.missing import missing_by_level, missing_by_size
from evalbias.report.page import in_terminal

NAN = math.nan
FOUND = Estimate("effect", "effect", 0.1, -0.1, 0.3, n=100, undefined=0, null=0.0, units=100)


@pytest.mark.parametrize(("wanted", "tests", "units"), [(0.05, 1, 100), (0.1, 4, 100), (0.1, 3, 10)])
def test_so_many_items_solve_the_equation_of_their_own_number(wanted, tests, units):
    found = replace(FOUND, units=units)
    error = 0.2 / stats.t.ppf(0.975, units - 1)  # ten inputs: the same width is less certain about the standard error
    needed = items_needed(found, wanted, tests=tests)
    df = units * needed / 100 - 1
    quantiles = stats.t.ppf(1 - 0.025 / tests, df) + stats.t.ppf(0.8, df)
    assert needed == pytest.approx(100 * (quantiles * error / wanted) ** 2, abs=1.0)
    assert items_needed(FOUND, 100.0) == 2  # two inputs are the fewest


@pytest.mark.parametrize("change", [{"value": NAN}, {"low": NAN, "high": NAN}, {"high": math.inf}])
def test_more_items_do_not_help_where_the_estimate_is_undefined(change):
    assert items_needed(replace(FOUND, **change), 0.1) is None


def test_an_allowance_does_not_shrink_with_the_number_of_items():
    allowed = replace(FOUND, low=-0.2, high=0.3, allowance=0.1)  # the same error, and .1 for the ends of the scale
    assert items_needed(allowed, 0.2) == items_needed(FOUND, 0.1)
    assert [items_needed(allowed, wanted) for wanted in (0.1, 0.0, NAN)] == [None] * 3


def partly_labeled(n=200, known=40):
    return partly(scored(np.random.default_rng(1), n), known)


def test_the_next_labels_cover_the_range_of_scores():
    judged = partly_labeled()
    chosen = label_next(judged, 16, seed=0)
    assert len(set(chosen)) == 16
    assert min(map(int, chosen)) >= 40
    scores = [judged.answers[int(i)] for i in chosen]
    assert scores == sorted(scores)
    rest = np.sort(judged.answers[40:]).reshape(16, 10)
    assert all(low <= score <= high for score, (low, *_, high) in zip(scores, rest, strict=True))
    assert chosen == label_next(judged, 16, seed=0) != label_next(judged, 16, seed=1)


@pytest.mark.parametrize("count", [8, 15, 27])  # strata of five items; of two and three; of one and two
def test_every_unlabeled_item_has_the_same_chance(count):
    judged = partly_labeled(n=60, known=20)
    drawn = [i for seed in range(600) for i in label_next(judged, count, seed=seed)]
    counts = np.array([drawn.count(str(i)) for i in range(20, 60)])
    assert counts.sum() == 600 * count
    assert stats.chisquare(counts).pvalue > 0.001


def test_the_longest_and_the_shortest_are_rated_again_and_many_inputs():
    lengths = np.array([5.0, 1, 9, 3, 7, 2, NAN, 4])
    ratings = np.column_stack([np.ones(8), np.full(8, NAN)])
    ratings[2, 1], ratings[7, 0] = 1, NAN  # the longest has two, another none
    ids, inputs = tuple("abcdefgh"), tuple("xxyyyzzz")
    judged = Judged(ids, "quality", np.ones(8), {LENGTHS: lengths, RATINGS: ratings}, inputs=inputs)
    assert rate_again(judged, 9, seed=0) == ["b", "e", "f", "a", "d"]  # the first of x, y and z, then the second
    assert rate_again(judged, 2, seed=0) == ["b", "e"]
    bare = replace(judged, covariates={RATINGS: ratings}, inputs=())
    assert sorted(rate_again(bare, 9, seed=0)) == [*"abdefg"] != rate_again(bare, 9, seed=0)
    assert rate_again(replace(judged, covariates={LENGTHS: lengths}), 3, seed=0) == []


def test_what_the_longest_and_the_shortest_tell_of_length_and_of_other_effects():
    effects = np.array([[effects_by(chosen, seed) for chosen in ("ends", "random")] for seed in range(200)])
    length, along, *others = np.divide(*effects.std(axis=0))
    assert (length < 0.7, along < 0.85) == (True, True)  # of length, and of a likelihood that goes with it
    assert all(0.8 < spread < 1.25 for spread in others)  # of a system, and of a likelihood apart from length


def effects_by(chosen, seed):
    """Return four effects by second ratings of 60 in 300 items, with one rating as instrument for another."""
    rng = np.random.default_rng(seed)
    quality, lengths, other, apart = rng.normal(size=(4, 300))
    features = np.column_stack([lengths, -0.7 * lengths + np.sqrt(0.51) * other, rng.random(300) < 1 / 3, apart])
    answers = 3 + 0.8 * quality + features @ [0.15, 0.15, 0.2, 0.15] + 0.5 * rng.normal(size=300)
    ratings = np.clip(np.round(3 + quality[:, None] + 0.7 * rng.normal(size=(300, 2))), 1, 5)
    once = {RATINGS: np.column_stack([ratings[:, 0], np.full(300, NAN)]), LENGTHS: np.exp(5 + lengths / 2)}
    again = rate_again(Judged(tuple(map(str, range(300))), "quality", answers, once), 60, seed=seed)
    rows, terms = [*map(int, again)] if chosen == "ends" else rng.permutation(300)[:60], np.column_stack
    sides = [[terms([np.ones(60), r, x]) for r in ratings[rows].T] for x in features[rows].T]
    return [np.linalg.solve(a.T @ b + b.T @ a, (a + b).T @ answers[rows])[2] for a, b in sides]


def test_items_that_cannot_be_chosen():
    judged = partly_labeled(n=10, known=3)
    answers = judged.answers.copy()
    answers[5] = NAN
    assert set(label_next(replace(judged, answers=answers), 99, seed=0)) == {"3", "4", "6", "7", "8", "9"}
    assert label_next(scored(np.random.default_rng(0), 10), 3, seed=0) == []
    pairs = compared(np.random.default_rng(0), 10)
    assert label_next(pairs, 3, seed=0) == []
    assert len(label_next(replace(pairs, covariates={RATINGS: np.full((10, 2), NAN)}), 3, seed=0)) == 3
    compared_by_people = replace(pairs, covariates={BETTER: np.array([1.0, NAN] * 5)})
    assert set(label_next(compared_by_people, 9, seed=0)) == set("13579")
    bare = Judged(pairs.ids, "quality", pairs.answers)
    assert len(label_next(bare, 4, seed=0)) == 4
    with pytest.raises(ValueError, match="count=0: ask for at least one item"):
        label_next(judged, 0, seed=0)


def rows(n=300, *, seed=0, lost=lambda quality, length, rng: rng.random(len(quality)) < 0.08, systems=4):
    """Scored outputs of four systems, and what a judge would have said of all; ``lost`` says which are missing."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    length = 0.4 * quality + rng.normal(size=n)
    whole = np.clip(np.round(3 + quality + 0.3 * length + 0.5 * rng.normal(size=n)), 1, 5)
    ratings = np.clip(np.round(3 + quality[:, None] + 0.6 * rng.normal(size=(n, 2))), 1, 5)
    absent = lost(quality, length, rng)
    outputs = [f"{k:06d}" + "x" * round(200 * np.exp(0.3 * length[k])) for k in range(n)]
    items = [{"output": text, "system": f"system {k % systems}"} for k, text in enumerate(outputs)]
    for k, item in enumerate(items):
        item |= {"mine": None if absent[k] else whole[k], "rating_1": ratings[k, 0], "rating_2": ratings[k, 1]}
    return items, whole, absent


def test_the_difference_is_that_of_the_means_in_standard_deviations():
    x, absent = np.array([1.0, 2.0, 3.0, 4.0, np.nan]), np.array([False, False, False, True, True])
    difference, p_value = missing_by_size(absent, x)
    assert difference == pytest.approx(2 / x[:4].std())
    # centred ranks -1.5, -.5, .5, 1.5 have the score 1.5, and the variance 3/16 * 5 * 4/3; 3 degrees of freedom
    assert p_value == pytest.approx(2 * scipy.stats.t.sf(1.5 / np.sqrt(1.25), 3))
    assert np.isnan(missing_by_size(absent, np.ones(5))).all()


def test_levels_are_compared_exactly_and_of_many_inputs_by_draws():
    absent = np.array([True, True, False, False, False, False])
    p_value = missing_by_level(absent, ["a", "a", "b", "b", "c", "c"])
    assert p_value == pytest.approx(3 / 15, abs=0.03)  # of 15 places of two, 3 share a level
    levels = [f"{k // 2}" for k in range(400)]
    apart, together = np.arange(400) % 8 == 0, np.arange(400) % 8 < 2
    assert missing_by_level(apart, levels) == 1.0
    assert missing_by_level(together, levels) == pytest.approx(1 / 2001)


def test_inputs_exchange_their_losses_and_items_of_an_input_do():
    inputs, own = np.repeat(np.arange(6), 4), np.repeat(["a", "a", "b", "b", "c", "c"], 4)
    lost = np.isin(inputs, [0, 1])
    assert missing_by_level(lost, own) < 0.01
    assert missing_by_level(lost, own, clusters=inputs.tolist()) == pytest.approx(3 / 15, abs=0.03)
    # of every input all systems answer, and one of them fails in 5 of 6: 4 (1/4)^5 (3/4) 6 + 4 (1/4)^6 by chance
    crossed, fails = np.tile(list("abcd"), 6), np.tile([True, False, False, False], 6)
    fails[0], fails[1] = False, True
    exact = 4 * (6 * 3 + 1) / 4**6
    assert missing_by_level(fails, crossed, clusters=inputs.tolist()) == pytest.approx(exact, abs=0.01)


@pytest.mark.slow
def test_an_audit_has_a_finding_of_missing_judgments():
    lost = lambda quality, _, rng: rng.random(len(quality)) < 1 / (1 + np.exp(2 + 1.5 * quality))  # noqa: E731
    items, _, absent = rows(lost=lost)
    found = audit(items, scores_field="mine", scale=(1, 5))
    lost = found.missing
    assert (lost.n, lost.missing) == (300, absent.sum())
    assert {*lost.dependence} == {"quality", "length", "system"}
    assert lost.dependence["quality"].p_adjusted < 0.01 > lost.dependence["quality"].p_value
    assert lost.dependence["quality"].difference < -0.5
    assert f"{absent.sum()} of 300 judgments are missing (" in found.verdict
    assert lost.by_system == {f"system {k}": (absent[k::4].sum(), 75) for k in range(4)}
    told = found.to_dict()["missing_judgments"]
    assert (told["missing"], told["by_system"]["system 1"]) == (absent.sum(), [absent[1::4].sum(), 75])
    assert [row[1:3] for row in lost.table().rows[:1]] == [("300", f"{absent.sum()}")]
    view = " ".join(str(part) for part in in_terminal(found, full=True).renderables)
    assert "judgments are missing" in view
    whole_items, *_ = rows(lost=lambda quality, length, rng: np.zeros(len(quality), dtype=bool))
    assert audit(whole_items, scores_field="mine").missing is None


def test_what_is_missing_at_random_depends_on_nothing_and_inputs_lost_as_a_whole_on_the_input_alone():
    found = audit(rows()[0], scores_field="mine", scale=(1, 5), only="verbosity")
    assert "No dependence on quality, length and system is shown." in found.verdict
    rng = np.random.default_rng(5)
    judged = scored(rng, 200)
    whole = dataclasses.replace(judged, inputs=[f"{k // 5}" for k in range(200)])
    whole.answers[np.repeat(rng.random(40) < 0.3, 5)] = np.nan
    dependence = missing_judgments(whole, seed=0).dependence
    shown = {name for name, test in dependence.items() if test.p_adjusted < 0.05}
    assert shown - {"system"} == {"input"} < {*dependence} - {"system"} == {"quality", "length", "input"}


def test_of_pairs_both_systems_count():
    rng = np.random.default_rng(5)
    judged = compared(rng, 200, verdicts=True)
    judged.answers[:12] = np.nan
    lost = missing_judgments(judged, seed=0)
    assert lost.missing == 12
    for name in ("mine", "other"):
        wrote = [name in pair for pair in judged.writers]
        assert lost.by_system[name] == (sum(wrote[:12]), sum(wrote))
    apart = np.abs(np.nanmean(judged.ratings, axis=1))
    judged.answers[:] = 0.5
    judged.answers[apart > np.quantile(apart, 0.8)] = np.nan
    dependence = missing_judgments(judged, seed=0).dependence["quality"]
    assert dependence.difference > 0
    assert dependence.words.startswith("more often for pairs that differ more in quality (")
    assert missing_judgments(scored(rng, 100), seed=0) is None


@pytest.mark.slow
def test_base_models_without_a_verdict_are_found_on_recorded_judgments(recorded):
    items = [
        {"source": a["source"], "system": a["system"], "score": a["human"], "mine": a.get("Llama-70B")}
        | {"output": f"answer {k % 9}"}
        for k, a in enumerate(recorded("triviaqa_verdicts"))
    ]
    lost = audit(items, scores_field="mine", scale=(0, 1)).missing
    assert (lost.n, lost.missing) == (3600, 135)
    assert lost.dependence["system"].p_adjusted < 0.01
    assert "32 % of llama2-13b-base" in lost.dependence["system"].words
    assert lost.by_system["llama2-13b-base"] == (130, 400)
