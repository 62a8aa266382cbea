"""Racing: fewer judgments, the winner of the exact search, and an interval that holds for all examples."""

import itertools

import numpy as np
import pytest
from fakes import PARTS, Wording, pair

from evalbias.evaluation import Judged
from evalbias.optimizers import ZEPO
from evalbias.optimizers import zepo as module
from evalbias.optimizers.base import rounds
from evalbias.optimizers.objectives import Fairness, Objective
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.optimizers.zepo import IMAGINED, alike, drop, imagined
from evalbias.programs import Criterion, PairwiseJudge

C = Criterion("quality", "is it good?")


def ordered_pairs(sources, seed=0):
    rng = np.random.default_rng(seed)
    drawn = [rng.normal(size=5).round(3) for _ in range(sources)]
    return [pair(a, b, source=str(d)) for d, q in enumerate(drawn) for a, b in itertools.permutations(q, 2)]


def searched(*, lm=None, pairs=None, **options):
    zepo = ZEPO(GrammarParaphraser(PARTS), select=False, **{"epochs": 3, "racing": True, **options})
    return zepo.compile(PairwiseJudge(C), trainset=pairs or ordered_pairs(12), lm=lm or Wording()).report


def preferring(first, n=None):
    """Return the answers of a judge that prefers the first position with the given probabilities."""
    first = np.asarray(first, dtype=np.float64)[:n]
    ids = tuple(map(str, range(len(first))))
    return Judged(ids, "quality", np.stack([first, 1 - first], axis=1)[:, None], inputs=ids)


def dropped(rivals, incumbent, looks, objective=None):
    rng = np.random.default_rng(0)
    return drop(rivals, 0, incumbent, objective or Fairness(), looks=looks, rng=rng)


def test_rounds_double_and_end_with_all_examples():
    assert rounds(39, module.FEWEST) == [39]
    assert rounds(40, module.FEWEST) == [20, 40]
    assert rounds(100, module.FEWEST) == [25, 50, 100]
    assert rounds(840, module.FEWEST) == [27, 53, 105, 210, 420, 840]


@pytest.mark.slow
def test_racing_is_on_unless_the_method_is_bare_asks_less_and_finds_the_same():
    assert (ZEPO().racing, ZEPO(select=False).racing) == (True, False)
    found = {}
    for name, options in (("exact", {"racing": False}), ("raced", {})):
        lm = Wording()
        found[name] = searched(lm=lm, **options)
        assert len(lm.asked) == found[name].judgments
    exact, raced = found["exact"], found["raced"]
    assert raced.chosen == exact.chosen
    assert raced.history == pytest.approx(exact.history)
    assert raced.judgments < 0.6 * exact.judgments
    assert raced.judgments + raced.saved == exact.judgments == 16 * 240
    assert (exact.saved, exact.rounds, raced.rounds) == (0, (240,), (30, 60, 120, 240))
    assert (exact.settings["racing"], raced.settings["racing"]) == (False, True)
    for tried in raced.tried:
        assert (tried.behind is None) == (tried.examples == 240)
        assert tried.examples in raced.rounds
        assert tried.behind is None or raced.tried[tried.behind].epoch <= tried.epoch


@pytest.mark.slow
def test_pairs_in_an_order_that_misleads_are_shuffled():
    # Sorted, the first pairs are those in which the first candidate is much better: every wording looks unfair.
    pairs = sorted(ordered_pairs(12), key=lambda p: -float(p.candidates[0][2:-4]) + float(p.candidates[1][2:-4]))
    assert searched(pairs=pairs).chosen == searched(pairs=pairs, racing=False).chosen


def test_few_examples_are_judged_in_one_round():
    report = searched(pairs=ordered_pairs(1))
    assert (report.rounds, report.saved) == ((20,), 0)


def test_what_is_clearly_behind_is_dropped_and_what_may_still_win_is_not():
    even, lean = np.tile([0.9, 0.1], 50), np.full(100, 0.9)
    incumbent = preferring(np.r_[lean[:80], 1 - lean[:20]])  # fairness -.3
    rivals = {1: preferring(even, 50), 2: preferring(lean, 50), 3: preferring(np.roll(even, 1), 50)}
    assert dropped(rivals, incumbent, 2) == {2: 1}
    assert dropped({1: rivals[1], 4: preferring(np.full(100, np.nan), 50)}, incumbent, 2) == {4: 1}


def test_two_discordant_examples_leave_a_doubt():
    incumbent = preferring(np.full(100, 0.9))
    first = np.r_[np.full(18, 0.9), 0.1, 0.1]
    rivals = {1: preferring(first), 2: preferring(np.full(20, 0.9))}  # on 2 of 20 only one prefers the second position
    assert dropped(rivals, incumbent, 1) == {}
    rivals[1] = preferring(np.r_[first[:10], np.full(10, 0.1)])  # on 10 of 20
    assert dropped(rivals, incumbent, 1) == {2: 1}


@pytest.mark.parametrize("rate", [0.5, 0.6, 0.8])
def test_imagined_sets_are_as_uncertain_as_a_sample_without_replacement(monkeypatch, rate):
    monkeypatch.setattr(module, "EXCHANGED", 1e-9)
    n, k = 200, 50
    answers = (np.arange(k) < rate * k).astype(float)
    counts = imagined(np.zeros(n, dtype=np.int64), k, np.random.default_rng(0))
    assert counts.shape == (IMAGINED, 2 * k)
    assert (counts.sum(axis=1) == n).all()
    assert (counts[:, :k] >= 1).all()
    rates = counts[:, :k] @ answers / n
    expected = np.sqrt(rate * (1 - rate) / k * (1 - k / n) * (k / (k + 1)))  # finite population; Polya's k / (k + 1)
    assert rates.mean() == pytest.approx(rate, abs=0.01)
    assert rates.std() == pytest.approx(expected, rel=0.06)


def test_imagined_examples_are_like_those_of_their_group():
    groups = np.array([0, 0, 1, 1, 0, 0, 0, 1, 2])
    counts = imagined(groups, 4, np.random.default_rng(0))
    own = counts[:, :4] + counts[:, 4:]
    assert (own[:, :2].sum(axis=1) >= 2 + 3).all()  # three are left of group 0
    assert (own[:, 2:].sum(axis=1) >= 2 + 1).all()
    assert (own.sum(axis=1) == 9).all()
    assert alike(preferring([0.1, 0.9, 0.4, 0.6, np.nan]), 4).tolist() == [0, 3, 1, 2, 4]


def test_objectives_in_resamples_are_those_of_repeated_items():
    rng, objective = np.random.default_rng(1), Fairness()
    judged = preferring(np.where(np.arange(30) == 3, np.nan, rng.random(30)))
    counts = rng.multinomial(30, np.full(30, 1 / 30), size=20).astype(float)
    slow = Objective.resampled(objective, judged, counts)
    assert objective.resampled(judged, counts) == pytest.approx(slow)
    nothing = np.zeros((1, 30))
    nothing[0, 3] = 30  # only the item without an answer
    assert np.isnan(objective.resampled(judged, nothing)).all()


class Slow(Objective):
    """Fairness, item by item."""

    name = "slow"

    def __call__(self, judged):
        return Fairness()(judged)


@pytest.mark.slow
def test_an_objective_without_a_fast_form_races_too(monkeypatch):
    monkeypatch.setattr(module, "IMAGINED", 200)
    monkeypatch.setattr(module, "DROP_LEVEL", 0.05)
    options = {"objective": Slow(), "pairs": ordered_pairs(4)}
    raced = searched(**options)
    assert raced.saved > 0
    assert raced.chosen == searched(**options, racing=False).chosen
