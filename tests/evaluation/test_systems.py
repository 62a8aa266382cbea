"""Systems ranked by choices between their outputs: worked strengths, what is held fixed, circles, and coverage."""

import itertools

import numpy as np
import pytest
from commands import answered, as_jsonl
from scipy.optimize import minimize

from benchmarks.juries import compared, strengths_covered
from evalbias.evaluation import rank_systems, recorded_verdicts
from evalbias.measures.pairs import cyclic_triples, fit_strengths

NONE = np.empty((10, 0))


def test_strengths_of_two_systems_are_log_odds():
    """Seven wins to three; with ties, exp(d) is wins to losses and nu ties to the root of their product."""
    fit = fit_strengths([[0, 1]] * 10, [[1, 0, 0]] * 7 + [[0, 1, 0]] * 3, NONE)
    assert fit.value[0] - fit.value[1] == pytest.approx(np.log(7 / 3))
    assert fit.value.sum() == pytest.approx(0)
    assert fit.interval([1, -1]).high - fit.interval([1, -1]).value == pytest.approx(
        2.262 * np.sqrt((1 / 7 + 1 / 3) * 10 / 9), rel=1e-3
    )  # the binomial error, with the factor of ten clusters
    fit = fit_strengths([[0, 1]] * 10, [[1, 0, 0]] * 4 + [[0, 1, 0]] + [[0, 0, 1]] * 5, NONE)
    assert fit.value[0] - fit.value[1] == pytest.approx(np.log(4))
    assert np.exp(fit.tie) == pytest.approx(5 / np.sqrt(4 * 1))
    assert fit.win_share(np.log(4)) == pytest.approx((4 + 5 / 2) / 10)


def test_the_position_is_held_fixed():
    systems = [[0, 1]] * 10 + [[1, 0]] * 10
    outcomes = [[1, 0, 0]] * 9 + [[0, 1, 0]] + [[1, 0, 0]] * 6 + [[0, 1, 0]] * 4
    fit = fit_strengths(systems, outcomes, np.ones((20, 1)))
    assert fit.value[2] == pytest.approx((np.log(9) + np.log(1.5)) / 2)
    assert fit.value[0] - fit.value[1] == pytest.approx((np.log(9) - np.log(1.5)) / 2)


def test_what_never_lost_has_no_strength():
    fit = fit_strengths([[0, 1]] * 10, [[1, 0, 0]] * 10, NONE)
    assert np.isnan(fit.value).all()
    assert "won, lost or tied every comparison" in fit.reason
    apart = fit_strengths(
        [[0, 1], [2, 3]] * 5, [[1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]] * 2 + [[1, 0, 0]] * 2, NONE
    )
    assert np.isnan(apart.value).all()  # 0 and 1 never met 2 and 3
    assert np.isnan(fit_strengths([[0, 1]] * 10, [[np.nan] * 3] * 10, NONE).value).all()


def test_strengths_are_those_of_greatest_likelihood():
    """Against a general optimizer, with ties, the position, and a feature whose unit is far from 1."""
    rng = np.random.default_rng(2)
    systems = rng.permuted(np.tile(np.arange(4), (400, 1)), axis=1)[:, :2]
    x = np.column_stack([np.ones(400), 1e-4 * rng.normal(size=400)])
    truth = np.array([0.0, 0.5, -0.4, 1.0])
    logits = rng.gumbel(size=(400, 3)) + (truth[systems] @ [1, -1] + x @ [0.4, 5e3])[:, None] * [0.5, -0.5, 0]
    outcomes = np.eye(3)[logits.argmax(axis=1)]

    def loss(p):
        d = np.append(0, p[:3])[systems] @ [1, -1] + x @ (p[3:5] * [1, 1e4])
        each = np.stack([d / 2, -d / 2, np.full(400, p[5])], axis=1)
        return (np.logaddexp.reduce(each, axis=1) - (outcomes * each).sum(axis=1)).sum()

    best, fit = minimize(loss, np.zeros(6), tol=1e-10).x, fit_strengths(systems, outcomes, x)
    strengths = np.append(0, best[:3])
    assert fit.value == pytest.approx([*(strengths - strengths.mean()), best[3], 1e4 * best[4]], rel=1e-3)
    assert fit.tie == pytest.approx(best[5], rel=1e-3)


def test_circles():
    systems, groups = [[0, 1], [1, 2], [0, 2]] * 3, ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    marks, where = cyclic_triples(systems, [1, 1, 0, 1, 1, 1, 1, 0.5, 1], groups)
    assert (marks.tolist(), where) == ([1, 0], ["a", "b"])
    again = [[0, 1], [1, 2], [0, 2], [2, 0], [2, 0]]  # 0 and 2 meet three times, and 2 wins twice
    assert cyclic_triples(again, [1, 1, 1, 1, 1], ["a"] * 5)[0].tolist() == [1]
    assert cyclic_triples(again, [1, 1, 1, 0.9, 0.6], ["a"] * 5)[0].tolist() == []
    rng = np.random.default_rng(0)
    every = [(a, b) for a, b in itertools.combinations(range(8), 2)]
    random, _ = cyclic_triples(every * 40, rng.integers(0, 2, 40 * 28), np.repeat(np.arange(40), 28).tolist())
    assert random.mean() == pytest.approx(0.25, abs=0.05)


def pairs_of(n, *, seed=0, lean=0.0, length=0.0):
    """Pairs of four systems on documents, chosen in both orders by strength, length and the place."""
    rng, rows = np.random.default_rng(seed), []
    for i in range(n):
        a, b = rng.choice(4, 2, replace=False).tolist()
        words = rng.integers(5, 60, 2)
        pull = 0.8 * (a - b) + length * np.log(words[0] / words[1])
        first, second = (rng.random() < 1 / (1 + np.exp(-x)) for x in (pull + lean, pull - lean))
        better = rng.random() < 1 / (1 + np.exp(-(a - b)))
        known = {"outputs": ["word " * k for k in words], "systems": [f"s{a}", f"s{b}"], "better": int(not better)}
        rows.append({"id": str(i), "input_id": str(i // 4), **known, "w": int(not first), "w2": int(not second)})
    return rows


def test_systems_in_words_and_beside_people():
    judged = recorded_verdicts(pairs_of(1200, lean=0.7), "w", swapped="w2")
    found = rank_systems(judged)
    assert found.systems == ("s3", "s2", "s1", "s0")
    assert found.held["position"].value == pytest.approx(0.7, abs=0.25)
    assert found.strengths["s3"].low > 0.7
    assert {*found.people} == {*found.systems}
    said = found.sentence()
    assert "is better than s2" in said
    assert "people's choices put s3 first (Spearman +1.00)" in said
    assert [row[0] for row in found.table().rows] == [*found.systems]
    unrated = [{k: v for k, v in row.items() if k != "better" or "s3" not in row["systems"]} for row in pairs_of(200)]
    found = rank_systems(recorded_verdicts(unrated, "w"))
    assert "people's choices are too few to rank the systems by them" in found.sentence()
    assert {row[-1] for row in found.table().rows} == {"undefined"}
    one_order = rank_systems(recorded_verdicts(pairs_of(400), "w"))
    assert abs(one_order.held["position"].value) < 0.4


def test_a_feature_is_held_fixed():
    judged = recorded_verdicts(pairs_of(1500, length=1.0, seed=1), "w", swapped="w2")
    found = rank_systems(judged, {"length": np.log(judged.covariates["lengths"])})
    assert found.held["length"].low < 1.0 < found.held["length"].high
    with pytest.raises(ValueError, match="two systems or more"):
        rank_systems(recorded_verdicts([{"outputs": ["a", "b"], "w": 0}], "w"))


def test_a_jury_ranks_the_systems_of_its_pairs(tmp_path):
    file = as_jsonl(tmp_path / "pairs.jsonl", pairs_of(300))
    found = answered("jury", "--data", file, "--judges", "w,w2", "--reliability", "1", cwd=tmp_path)
    assert found["systems"]["systems"][0] == "s3"


def test_drawn_comparisons_have_the_strengths_that_are_asked_for():
    systems, outcomes, documents = compared(np.random.default_rng(0), 4000)
    fit = fit_strengths(systems, outcomes, np.ones((len(systems), 1)), clusters=documents)
    assert fit.value[:5] == pytest.approx(np.linspace(-0.8, 0.8, 5), abs=0.15)


@pytest.mark.slow
def test_intervals_of_strengths_cover():
    documents, pairs = strengths_covered(60, sets=200, seed=1).values()
    assert 0.91 <= documents["covered"] <= 0.98
    assert pairs["covered"] < documents["covered"]
