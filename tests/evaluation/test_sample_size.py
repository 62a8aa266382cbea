"""How many items a bias needs, and which items people should label next."""

import math
from dataclasses import replace

import numpy as np
import pytest
from planted import compared, partly, scored
from scipy import stats

from evalbias.evaluation import Estimate, Judged, items_needed, label_next
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, RATINGS

NAN = math.nan
FOUND = Estimate("effect", "effect", 0.1, -0.1, 0.3, n=100, undefined=0, null=0.0, units=100)


@pytest.mark.parametrize(
    ("wanted", "power", "tests", "units"), [(0.05, 0.8, 1, 100), (0.1, 0.9, 4, 100), (0.1, 0.8, 3, 10)]
)
def test_so_many_items_solve_the_equation_of_their_own_number(wanted, power, tests, units):
    found = replace(FOUND, units=units)
    error = 0.2 / stats.t.ppf(0.975, units - 1)  # ten inputs: the same width is less certain about the standard error
    needed = items_needed(found, wanted, power=power, tests=tests)
    df = units * needed / 100 - 1
    quantiles = stats.t.ppf(1 - 0.025 / tests, df) + stats.t.ppf(power, df)
    assert needed == pytest.approx(100 * (quantiles * error / wanted) ** 2, abs=1.0)
    assert items_needed(FOUND, 100.0) == 2  # two inputs are the fewest


@pytest.mark.parametrize("change", [{"value": NAN}, {"low": NAN, "high": NAN}, {"high": math.inf}])
def test_more_items_do_not_help_where_the_estimate_is_undefined(change):
    assert items_needed(replace(FOUND, **change), 0.1) is None


def test_an_allowance_does_not_shrink_with_the_number_of_items():
    allowed = replace(FOUND, low=-0.2, high=0.3, allowance=0.1)  # the same error, and .1 for the ends of the scale
    assert items_needed(allowed, 0.2) == items_needed(FOUND, 0.1)
    assert items_needed(allowed, 0.1) is None


@pytest.mark.parametrize(("wanted", "power"), [(0.0, 0.8), (NAN, 0.8), (0.1, 1.0)])
def test_sizes_and_powers_out_of_range_are_refused(wanted, power):
    with pytest.raises(ValueError, match="give a size above 0, a probability between 0 and 1, and a number"):
        items_needed(FOUND, wanted, power=power)


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


def test_labels_over_the_whole_range_stand_for_all_items():
    rng, chosen, random = np.random.default_rng(3), [], []
    for seed in range(200):
        judged = scored(rng, 200)
        human, nobody = judged.covariates[HUMAN_SCORES], {HUMAN_SCORES: np.full(200, NAN)}
        ours = [int(i) for i in label_next(replace(judged, covariates=nobody), 8, seed=seed)]
        chosen.append(human[ours].mean() - human.mean())
        random.append(human[rng.choice(200, 8, replace=False)].mean() - human.mean())
    assert abs(np.mean(chosen)) < 0.05
    assert np.std(chosen) < 0.85 * np.std(random)
