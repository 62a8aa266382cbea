"""The last sentences of the commands, and whether a command writes what it compiled."""

import math

import numpy as np
import pytest
from planted import taste

from evalbias.cli.run import keep
from evalbias.evaluation import compare
from evalbias.evaluation.conclusions import worsened
from evalbias.evaluation.estimates import Number, measured
from evalbias.evaluation.loops import conclude_quality, conclude_self, conclude_style, summarize_loop
from evalbias.evaluation.rankings import conclude_ranking
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


def test_a_ranking_is_concluded_from_its_interval():
    def said(mean):
        return conclude_ranking(measurement(NOISE + mean, null=None, name="spearman"), 60)

    assert said(0.5).startswith("The rankings agree with people better than chance does: Spearman")
    assert said(-0.5).startswith("The rankings contradict people")
    assert "not shown to agree with people" in said(-NOISE.mean())
    assert conclude_ranking(None, 3).startswith("Nobody rated the outputs, so it is unknown whether these 3 rankings")
    assert "undefined" in conclude_ranking(measurement([math.nan] * 3, null=None, name="spearman"), 3)


def test_self_bias_is_concluded_from_the_last_round():
    expected = np.zeros((2, 60))
    over = summarize_loop("tiny", np.stack([NOISE, NOISE + 2]), expected, n_resamples=200, seed=0)
    said = conclude_self(over, rounds="iteration")
    assert said.startswith("tiny: the model overrates its own outputs at iteration 1 by +2.")
    assert "2.00 more than at 0, a significant change" in said
    none = summarize_loop("tiny", np.stack([NOISE, NOISE]) - NOISE.mean(), expected, n_resamples=200, seed=0)
    assert "no self-bias is shown at iteration 1" in conclude_self(none, rounds="iteration")
    unknown = summarize_loop("tiny", np.stack([NOISE, NOISE]), expected * math.nan, n_resamples=200, seed=0)
    assert "undefined" in conclude_self(unknown, rounds="iteration")


def style(shift):
    ids = tuple(map(str, range(60)))

    def side(values):
        sample = [Number("bias", "Bias", values, estimate_mean, null=0.0)]
        fields = {"bias": taste("bias"), "criterion": "c", "columns": {}}
        return measured(sample, seed=0, n_resamples=200, ids=ids, **fields)

    return compare(side(NOISE), side(NOISE + shift), n_resamples=999, seed=0)


def test_a_preference_for_the_own_style_is_concluded_from_the_change():
    assert conclude_style(style(np.linspace(0.5, 1.5, 60))).startswith("The model prefers its own style")
    assert conclude_style(style(-np.linspace(0.5, 1.5, 60))).startswith("The model does not prefer its own style")
    assert conclude_style(style(NOISE - NOISE.mean())).startswith("No preference for the own style is shown")
    assert "undefined" in conclude_style(style(np.full(60, math.nan)))


def test_a_loop_is_concluded_from_the_change_in_quality():
    first = np.linspace(0, 1, 60)
    assert conclude_quality([first, first + 1 + NOISE], "chrF", seed=0).startswith("The loop improves its outputs by")
    assert "makes its outputs worse" in conclude_quality([first, first - 1 + NOISE], "chrF", seed=0)
    assert "is not shown to improve" in conclude_quality([first, first + NOISE - NOISE.mean()], "chrF", seed=0)
    assert "undefined" in conclude_quality([first, first * math.nan], "chrF", seed=0)
    assert conclude_quality([first], "chrF", seed=0) == ""
