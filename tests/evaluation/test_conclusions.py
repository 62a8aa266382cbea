"""When a judge is worse, and whether a command writes what it compiled."""

import math

import numpy as np
import pytest
from planted import taste

from evalbias.cli.run import keep
from evalbias.evaluation import compare
from evalbias.evaluation.estimates import Number, measured, worsened
from evalbias.measures import estimate_mean
from evalbias.optimizers.selection import CompileReport, Cost, Tried

NOISE = np.random.default_rng(0).normal(0, 0.5, 60)


def change(before, after, *, null):
    items = {"bias": taste("x"), "criterion": "c", "ids": tuple(map(str, range(60))), "columns": {}}
    numbers = [Number("x", "x", values, estimate_mean, null=null) for values in (before, after)]
    return compare(*(measured([one], seed=0, n_resamples=200, **items) for one in numbers), n_resamples=999, seed=0)


WORSE, FINE = change(NOISE, NOISE - 1, null=None), change(NOISE, NOISE + 1, null=None)


def test_a_bias_is_worse_farther_from_none_and_an_agreement_lower():
    farther, nearer = change(NOISE, NOISE - 2, null=0.0), change(NOISE - 2, NOISE, null=0.0)
    moved = [f"x {NOISE.mean():+.2f} -> {NOISE.mean() - 2:+.2f}"]
    assert worsened({"a": farther, "b": nearer, "c": FINE, "d": change(NOISE, NOISE, null=None)}) == moved
    assert len(worsened({"lower": WORSE})) == 1


class Program:
    def save(self, path):
        with open(path, "w") as file:
            file.write("{}")


def chosen(name):
    """A report of which the given program or another was the better one."""
    tried = [Tried(one, {}, math.nan, Cost(), one == name, "reason") for one in ("given", "eight demonstrations")]
    return CompileReport(chosen=name, candidates=tuple(tried))


BARE = CompileReport(chosen="the method's")


@pytest.mark.parametrize(
    ("report", "compared", "keep_worse", "written", "words"),
    [
        (chosen("eight demonstrations"), WORSE, False, True, "holds the compiled judge."),
        (chosen("given"), FINE, True, True, "holds the judge as it was given, because nothing was better."),
        (chosen("given"), FINE, False, False, "because nothing was better than the given one; --keep-worse"),
        (BARE, WORSE, False, False, "because the bare method made it worse on the test items (x "),
        (BARE, WORSE, True, True, "holds a judge that is worse than the given one"),
        (BARE, FINE, False, True, "do not show that it is worse"),
    ],
)
def test_what_is_better_or_wanted_all_the_same_is_written(tmp_path, report, compared, keep_worse, written, words):
    path = tmp_path / "judge.json"
    assert words in keep(Program(), report, path, compared={"quality": compared}, keep_worse=keep_worse)
    assert path.exists() is written
