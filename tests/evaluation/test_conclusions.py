"""The last sentences of the commands, and whether a command writes what it compiled."""

import math

import numpy as np
import pytest
from planted import taste

from evalbias.cli.run import keep
from evalbias.evaluation import compare
from evalbias.evaluation.estimates import Number, measured, worsened
from evalbias.measures import estimate_mean
from evalbias.optimizers.selection import CompileReport, Cost, Tried

RNG = np.random.default_rng(0)
NOISE = RNG.normal(0, 0.5, 60)


def measurement(values, *, null, name="x"):
    values = np.asarray(values, dtype=np.float64)
    return measured(
        [Number(name, name, values, estimate_mean, null=null)],
        seed=0,
        n_resamples=200,
        bias=taste(name),
        criterion="c",
        ids=tuple(map(str, range(len(values)))),
        columns={},
    )


def change(before, after, *, null):
    return compare(measurement(before, null=null), measurement(after, null=null), n_resamples=999, seed=0)


def test_a_bias_is_worse_farther_from_none_and_an_agreement_lower():
    farther, nearer = change(NOISE, NOISE - 2, null=0.0), change(NOISE - 2, NOISE, null=0.0)
    lower, higher = change(NOISE, NOISE - 1, null=None), change(NOISE, NOISE + 1, null=None)
    same = change(NOISE, NOISE, null=None)
    assert worsened({"a": farther, "b": nearer, "c": higher, "d": same}) == [
        f"x {NOISE.mean():+.2f} -> {NOISE.mean() - 2:+.2f}"
    ]
    assert len(worsened({"lower": lower})) == 1


class Program:
    def save(self, path):
        with open(path, "w") as file:
            file.write("{}")


def report(chosen):
    tried = [Tried(name, {}, math.nan, Cost(), name == chosen, "reason") for name in ("given", "eight demonstrations")]
    return CompileReport(chosen=chosen, candidates=tuple(tried))


@pytest.mark.parametrize("keep_worse", [False, True])
@pytest.mark.parametrize("chosen", ["given", "eight demonstrations"])
def test_only_what_is_better_is_written(tmp_path, chosen, keep_worse):
    path = tmp_path / "judge.json"
    said = keep(Program(), report(chosen), path, compared={}, keep_worse=keep_worse)
    assert path.exists() == (chosen != "given" or keep_worse)
    if chosen != "given":
        assert said == "judge.json holds the compiled judge."
    elif keep_worse:
        assert said == "judge.json holds the judge as it was given, because nothing was better."
    else:
        assert said.startswith("No judge was written, because nothing was better than the given one; --keep-worse")


def test_a_bare_method_is_written_unless_it_is_worse(tmp_path):
    bare, path = CompileReport(chosen="the method's"), tmp_path / "loop.json"
    worse = {"quality": change(NOISE, NOISE - 1, null=None)}
    said = keep(Program(), bare, path, compared=worse, keep_worse=False, kind="loop")
    assert "No loop was written, because the bare method made it worse on the test items (x " in said
    assert not path.exists()
    said = keep(Program(), bare, path, compared=worse, keep_worse=True, kind="loop")
    assert "holds a loop that is worse than the given one" in said
    assert path.exists()
    path.unlink()
    fine = {"quality": change(NOISE, NOISE + 1, null=None)}
    assert "do not show that it is worse" in keep(Program(), bare, path, compared=fine, keep_worse=False)
    assert path.exists()
