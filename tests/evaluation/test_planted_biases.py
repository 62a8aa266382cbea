"""Simulated judges: a planted bias is found, and an unbiased judge is flagged about as often as the level says."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from planted import compared, entangled, flagged, ids, likert, scored

from evalbias.evaluation.biases import Joint, Likelihood, ScaleUse, SelfPreference, Verbosity
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, RATINGS, Judged

MINE, LENGTH, SLOPE = (SelfPreference(own="mine"), "own_excess"), (Verbosity(), "length_effect"), (ScaleUse(), "slope")
SELDOM, OFTEN = (0.0, 0.08), (0.9, 1.0)  # shares of the data sets that may be flagged


def chosen(rng, errors=0.1, **planted):
    """Pairs with one choice of people in place of their ratings, as often wrong as stated."""
    judged = compared(rng, 568, verdicts=True, noise=0.3, **planted)
    better = (judged.covariates[RATINGS].mean(axis=1) < 0).astype(float)
    better = np.where(rng.random(len(better)) < errors, 1 - better, better)
    return replace(judged, covariates={LENGTHS: judged.covariates[LENGTHS], BETTER: better})


def near_the_top(rng, n=400, *, share=0.5, own=0.0):
    """The judge's own system writes better text, and most ratings are the highest; the judge's scale ends later."""
    mine = rng.random(n) < share
    quality = rng.normal(size=n) + mine
    ratings = likert(4.4 + quality[:, None] + 0.7 * rng.normal(size=(n, 2)))
    scores = 3 + quality + own * mine + 0.5 * rng.normal(size=n)
    people = {RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}
    return Judged(ids(n), "quality", scores, people, writers=np.where(mine, "mine", "other").tolist())


QUICK = ("length, scored", "scale, few")
CASES = {
    "own, the top, unbiased": (*MINE, near_the_top, 80, SELDOM),
    "own of twelve, the top, unbiased": (*MINE, partial(near_the_top, share=1 / 12), 80, SELDOM),
    "own, the top": (*MINE, partial(near_the_top, own=1.0), 20, OFTEN),
    "length, scored": (*LENGTH, partial(scored, n=200, length=0.4), 40, OFTEN),
    "length, compared": (*LENGTH, partial(compared, n=200, length=0.4), 40, OFTEN),
    "length, by choices": (*LENGTH, partial(chosen, length=1.5), 20, OFTEN),
    "length, by choices, stated": (Verbosity(0.45), "length_effect", partial(chosen, length=1.5), 20, (1.0, 1.0)),
    "own, scored": (*MINE, partial(scored, n=300, own=0.6), 30, OFTEN),
    "own, compared": (*MINE, partial(compared, n=300, own=0.6), 30, OFTEN),
    "failures, unbiased": (MINE[0], "own_excess_at_failures", partial(scored, n=400, raters=4), 100, SELDOM),
    "scale, few": (*SLOPE, partial(scored, n=120, squeeze=0.4), 40, OFTEN),
    "scale, many": (*SLOPE, partial(scored, n=568, squeeze=0.6), 40, OFTEN),
    "scale, unbiased": (*SLOPE, partial(scored, n=120, error=0.2), 100, (0.0, 0.05)),
    "scale, unbiased and noisy": (*SLOPE, partial(scored, n=568, error=1.0), 100, (0.0, 0.05)),
    "scale, long text": (*SLOPE, partial(scored, n=568, length=0.6), 20, (0.0, 0.0)),  # it is too steep
}
CASES |= {
    f"{name} in one model, unbiased": (Joint(own="mine"), name, partial(scored, n=200), 60, (0.0, 0.1))
    for name in ("likelihood", "length", "own_system")
}
CASES |= {
    "length, unbiased, verdicts": (*LENGTH, partial(compared, n=300, verdicts=True), 150, SELDOM),
    "length, unbiased, one order": (*LENGTH, partial(compared, n=300, verdicts=True, orders=1), 150, SELDOM),
    "longer text is better": (Verbosity(), "longer_rate", partial(compared, n=300, verdicts=True), 20, (1.0, 1.0)),
    "length, unbiased, choices": (*LENGTH, partial(chosen, errors=0.0), 100, (0.0, 0.05)),
    "length, unbiased, wrong choices": (*LENGTH, chosen, 100, (0.0, 0.05)),
}
for draw in (scored, compared):  # a taste for length looks like one for likelihood, unless length is held fixed
    long = partial(entangled, draw=draw, length=0.5)
    CASES |= {
        f"{draw.__name__}, alone": (Likelihood(), "likelihood_effect", long, 20, OFTEN),
        f"{draw.__name__}, held fixed": (Joint(), "likelihood", long, 100, SELDOM),
        f"{draw.__name__}, remains": (Joint(), "length", long, 20, OFTEN),
    }


@pytest.mark.parametrize("case", [pytest.param(one, marks=[pytest.mark.slow] * (one not in QUICK)) for one in CASES])
def test_a_planted_bias_is_found_and_an_unbiased_judge_seldom_flagged(case):
    bias, name, draw, sets, (least, most) = CASES[case]
    assert least <= flagged(bias, name, draw, sets=sets) <= most
