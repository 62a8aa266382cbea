"""Estimates, measurements and comparisons by hand."""

import dataclasses
import json
import math
from functools import partial

import numpy as np
import planted
import pytest
from planted import taste
from scipy import stats

import evalbias
from evalbias import measures
from evalbias.cli.run import keep
from evalbias.evaluation import Number, compare_judges, measure
from evalbias.evaluation.biases import BIASES, Likelihood
from evalbias.evaluation.estimates import Comparison, Estimate, Measurement, measured, worsened
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Asking, Judged
from evalbias.measures import estimate_effect, estimate_mean, estimate_share, estimate_spearman
from evalbias.measures.agreement import counted_spearman
from evalbias.measures.corrections import ScoreCorrection
from evalbias.measures.likelihood import counted_bias_score
from evalbias.optimizers.selection import CompileReport, Cost, Tried
from evalbias.values import to_json

NAN = math.nan
NOISE = np.random.default_rng(0).normal(0, 0.5, 60)


def estimate(**fields):
    return Estimate(**{"name": "e", "label": "E", "value": 0.25, "low": -0.5, "high": 1.0, "null": 0.0, "n": 4,
                       "undefined": 0, **fields})  # fmt: skip


def test_an_estimate_in_words(snapshot):
    told = estimate(signed=False, null=None, n=1, undefined=2, excluded=3)
    nothing = estimate(value=NAN, low=NAN, high=NAN, n=0, undefined=4)
    estimates = (estimate(), told, nothing, estimate(value=NAN, reason="one score"))
    assert [(e.sentence(), e.text(), e.interval, e.text(0.5)) for e in estimates] == snapshot


def test_a_number_becomes_an_estimate():
    values = np.array([1.0, 0.0, NAN, 1.0, NAN])
    number = Number("wins", "wins", values, estimate_share, null=0.5, excluded=1, signed=False)
    found = measured([number], seed=0, bias=taste(), criterion="c", ids=tuple("abcde"), columns={})
    interval = estimate_share(values)
    errors = (2 / 3 - 0.5) / (2 / 3 - interval.low) * stats.t.ppf(0.975, 2)  # half the interval, of t with 3 units
    p = 2 * stats.t.sf(errors, 2)
    assert found["wins"] == Estimate(
        "wins", "wins", pytest.approx(2 / 3), interval.low, interval.high, 3, 1, null=0.5, signed=False, excluded=1,
        units=3, p_value=pytest.approx(p, rel=1e-4), unit="share",
    )  # fmt: skip
    assert json.loads(json.dumps(found.to_dict()))["estimates"]["wins"] == to_json(found["wins"])
    assert repr(found) == f"Measurement(taste on c, n=5: wins 0.67 ({interval.low:.2f} to {interval.high:.2f}))"
    assert ([*found], "wins" in found, "losses" in found) == (["wins"], True, False)
    with pytest.raises(KeyError, match="'losses' is not among 'wins'"):
        found["losses"]
    assert columns(found)["value"] == ["0.67"]
    assert columns(found)["no bias"] == ["0.5"]
    assert "no bias" not in columns(dataclasses.replace(found, estimates={"m": estimate(null=None)}))


def columns(result):
    """Heading -> cells of a result's table."""
    table = result.table()
    return {heading: [row[k] for row in table.rows] for k, heading in enumerate(table.headings)}


def test_an_estimate_counts_items_that_define_all_its_numbers_and_the_undefined_by_column():
    human = np.array([1.0, NAN, 2.0, 3.0, 9.0])
    number = Number("p", "p", np.array([1.0, 2.0, NAN, 3.0, 4.0]), estimate_spearman, columns=(human,))
    found = measured([number], seed=0, bias=taste(), criterion="c", ids=tuple("abcde"), columns={})["p"]
    assert (found.value, found.n, found.undefined, found.units) == (1, 3, 2, 3)
    assert number.value() == 1
    assert math.isnan(Number("m", "m", np.array([NAN]), estimate_mean).value())
    columns = {"a": np.array([1.0, NAN]), "b": np.array([[1.0, NAN], [NAN, NAN]]), "c": np.ones(2)}
    found = Measurement(taste(), "c", ("x", "y"), {}, {}, columns, notes={"ties_seen": 3})
    assert found.undefined == {"a": 1, "b": 2}
    assert found.caption() == "undefined a: 1; undefined b: 2; ties seen: 3"
    assert found.to_dict(items=False).keys() == found.to_dict().keys() - {"items"}
    assert found.to_dict()["items"] == {"id": ["x", "y"], "a": [1, None], "b": [[1, None], [None, None]], "c": [1, 1]}
    assert found.table().title == "Taste on c"


def scored(scores, human=(1.0, 2.0, 3.0, 4.0), likelihoods=(4.0, 2.0, 3.0, 1.0), criterion="c", **fields):
    covariates = {HUMAN_SCORES: np.array(human), LIKELIHOODS: np.array(likelihoods)}
    return Judged(tuple("abcd"), criterion, np.array(scores), covariates, **fields)


def test_a_measurement_tells_its_cost_coverage_and_columns():
    asked = Asking(np.array([0.2, NAN, 0.4, 0.9]), judgments=4)
    judged = scored([1.0, 2.0, NAN, 4.0], asked=asked, provenance={"a": 1})
    found = measure(Likelihood(), judged, seed=3, n_resamples=50)
    assert (found.coverage, found.cost, found.ids) == (0.4, {"judgments": 4}, tuple("abcd"))
    assert found.provenance == {"a": 1, "seed": 3, "n_resamples": 50}
    assert list(found.columns) == ["scores", HUMAN_SCORES, LIKELIHOODS]
    assert (found["performance"].value, found["performance"].n, found["performance"].undefined) == (1, 3, 1)
    assert math.isnan(measure(Likelihood(), scored([1.0, 2.0, 3.0, 4.0]), seed=0).coverage)
    with pytest.raises(TypeError, match=r"give evalbias\.BIASES\['position'\]"):
        measure("position", judged, seed=0)


def test_a_comparison_by_hand():
    answers = {4: [1.0, 2.0, 4.0, 3.0], 5: [1.0, NAN, 3.0, 4.0]}  # number of judgments -> scores
    before, after = (scored(scores, asked=Asking(judgments=number)) for number, scores in answers.items())
    sides = [measure(Likelihood(), one, seed=0, n_resamples=50) for one in (before, after)]
    _, *others = sides[0].numbers
    sides[1] = dataclasses.replace(sides[1], numbers={name: sides[1].numbers[name] for name in others})
    found = compare_judges(*sides, n_resamples=99, n_intervals=60, seed=0)
    assert list(found.changes) == others  # what one judge lacks is left out
    change = found["performance"]
    assert (change.before.value, change.after.value) == (pytest.approx(0.5), 1)  # ranks 1, 3, 2 without b
    assert change.difference.value == pytest.approx(0.5)
    assert (change.difference.n, change.difference.undefined) == (3, 1)
    assert change.p_value in [n / 100 for n in range(1, 101)] + [n / 200 for n in range(1, 201)]  # of 99 swaps
    written = to_json(change)
    assert written["difference"]["estimate"] == pytest.approx(0.5)
    assert written["test"]["p_value"] == written["itemwise_test"]["p_value"] == change.p_value
    assert (found.n, found.cost, change.label) == (3, {"judgments": (4, 5)}, "performance")
    assert change.text() == f"+0.50 -> +1.00{'*' if change.p_value < 0.05 else ''}"
    (*_, row), ends = found.table().rows, f"{change.difference.low:+.2f} to {change.difference.high:+.2f}"
    says = "Rank correlation with people (performance)"
    assert row == (says, "+0.50", "+1.00", "+0.50", ends.replace("+nan to +nan", "undefined"), f"{change.p_value:.5f}")
    assert found.table().caption == "3 items; p of a paired test"
    assert json.loads(json.dumps(found.to_dict()))["changes"]["performance"] == to_json(change)
    assert repr(found).startswith("Comparison(likelihood on c, n=3: ")
    assert "; performance +0.50 -> +1.00" in repr(found)
    assert "performance" in found
    empty = Comparison(taste(), "c", {}, {})
    assert (empty.n, columns(empty)["p"]) == (0, [])
    untested = {name: dataclasses.replace(one, tested=False) for name, one in sides[1].numbers.items()}
    after = dataclasses.replace(sides[1], numbers=untested)
    change = compare_judges(sides[0], after, n_resamples=9, seed=0)["performance"]
    assert (math.isnan(change.p_value), change.p_itemwise) == (True, None)
    assert change.to_dict()["test"] is change.to_dict()["itemwise_test"] is None
    assert change.text() == "+0.50 -> +1.00"


@pytest.mark.parametrize(("other", "match"), [
    ({"criterion": "d"}, "different items, criteria or biases"),
    ({"provenance": {"reduction": "mean"}}, "different reductions of LS"),
    ({"human": (1.0, 2.0, 3.0, 5.0)}, "different likelihoods, human scores or normalizations"),
    ({"inputs": tuple("xyyz")}, "belong to different inputs"),
])  # fmt: skip
def test_what_cannot_be_compared(other, match):
    own = {"inputs": tuple("xxyz"), "provenance": {"reduction": "sum"}}
    judged = [scored([1.0, 2.0, 4.0, 3.0], **{**own, **more}) for more in ({}, other)]
    sides = [measure(Likelihood(), one, seed=0, n_resamples=20) for one in judged]
    assert compare_judges(sides[0], sides[0], n_resamples=9, seed=0)["performance"].difference.units == 3
    with pytest.raises(ValueError, match=match):
        compare_judges(*sides, n_resamples=9, seed=0)


def test_length_is_compared_where_one_of_two_audits_measured_likelihood():
    likely = planted.scored(np.random.default_rng(0), 60, length=0.3)
    covariates = {name: values for name, values in likely.covariates.items() if name != LIKELIHOODS}
    likely = dataclasses.replace(likely, provenance={"reduction": "sum"})
    plain = dataclasses.replace(likely, covariates=covariates, provenance={})
    sides = [measure(BIASES["verbosity"], one, seed=0, n_resamples=20) for one in (likely, plain)]
    change = compare_judges(*sides, n_resamples=9, seed=0)["length_effect"]
    assert change.before.value == change.after.value == sides[0]["length_effect"].value


def test_numbers_are_alike_if_their_settings_and_columns_are():
    scores, ratings, length, ls = np.random.default_rng(4).normal(size=(4, 9))
    estimator = partial(estimate_effect, names=("length", "likelihood"))
    number = Number("x", "x", scores, estimator, columns=(ratings, length, ls))
    assert number.like(dataclasses.replace(number, columns=(ratings, length, ls.copy()), values=length))
    assert not number.like(dataclasses.replace(number, columns=(ratings, length, ls + length)))
    assert not number.like(dataclasses.replace(number, columns=(ratings, length)))
    assert number.like(dataclasses.replace(number, estimator=partial(estimate_effect, names=("length", "likelihood"))))
    assert not number.like(dataclasses.replace(number, estimator=partial(estimate_effect, names=("length", "other"))))


def of_inputs(scores, likelihoods, human, inputs=()):
    ids = tuple(map(str, range(len(scores))))
    return Judged(ids, "quality", scores, {LIKELIHOODS: likelihoods, HUMAN_SCORES: human}, inputs=inputs)


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(4)
    shared = rng.normal(size=(5, 20)).repeat(6, axis=1)  # of a document: LS, quality, errors
    ls, quality, first, second = rng.normal(size=(4, 120)) + 1.5 * shared[:4]
    return quality + first, quality + second, ls, quality, tuple(f"d{i // 6}" for i in range(120))


@pytest.mark.slow
def test_intervals_and_tests_follow_the_inputs(drawn):
    first, second, ls, human, inputs = drawn
    one, two = (measure(Likelihood(), of_inputs(s, ls, human, inputs), seed=0) for s in (first, second))
    for name in ("bias_score", "bias_score_z", "performance"):
        number = one.numbers[name]
        counted = counted_spearman if name == "performance" else counted_bias_score
        normalization = {"normalization": "z-score"} if name == "bias_score_z" else {}
        estimator = partial(counted, **normalization)
        interval = measures.estimate(estimator, number.values, *number.columns, clusters=inputs, method="normal")
        assert one[name].high - one[name].low == pytest.approx(interval.high - interval.low, rel=0.1)
        assert one[name].units == 20
        change = compare_judges(one, two, n_resamples=300, seed=0)[name]
        draws = measures.Draws(resamples=0, swaps=300)
        tested = partial(number.estimator, second, *number.columns, before=first, draws=draws)
        p_values = [tested(clusters=clusters).p_value for clusters in (inputs, None)]
        assert [change.p_value, change.p_itemwise] == p_values
        assert p_values[0] != p_values[1]
        assert change.difference.units == 20
    alone = measure(Likelihood(), of_inputs(first, ls, human), seed=0)["performance"]
    assert one["performance"].high - one["performance"].low > 1.3 * (alone.high - alone.low)  # errors are shared
    assert "intervals over 20 inputs" in one.table().caption


@pytest.mark.slow
def test_items_with_inputs_of_their_own_or_one_for_all_are_resampled_one_by_one(drawn):
    first, second, ls, human, _ = drawn
    bare = measure(Likelihood(), of_inputs(first, ls, human), seed=0)
    for inputs in (tuple(map(str, range(120))), ("one",) * 120):
        one, two = (measure(Likelihood(), of_inputs(s, ls, human, inputs), seed=0) for s in (first, second))
        assert one.clusters is None
        assert str(one.estimates) == str(bare.estimates)  # the likelihood effect of one rating is NaN
        change = compare_judges(one, two, n_resamples=50, seed=0)["performance"]
        assert change.p_value == change.p_itemwise


# When a judge is worse, and whether a command writes what it compiled.


def change(before, after, *, null):
    items = {"bias": taste("x"), "criterion": "c", "ids": tuple(map(str, range(60))), "columns": {}}
    numbers = [Number("x", "x", values, estimate_mean, null=null) for values in (before, after)]
    sides = [measured([number], seed=0, n_resamples=200, **items) for number in numbers]
    return compare_judges(*sides, n_resamples=999, seed=0)


WORSE, FINE = change(NOISE, NOISE - 1, null=None), change(NOISE, NOISE + 1, null=None)


def test_a_bias_is_worse_farther_from_none_and_an_agreement_lower():
    farther, nearer = change(NOISE, NOISE - 2, null=0.0), change(NOISE - 2, NOISE, null=0.0)
    moved = [f"x {NOISE.mean():+.2f} -> {NOISE.mean() - 2:+.2f}"]
    assert worsened({"a": farther, "b": nearer, "c": FINE, "d": change(NOISE, NOISE, null=None)}) == moved
    assert len(worsened({"lower": WORSE})) == 1


@pytest.mark.parametrize(
    ("before", "after", "sign"), [(0.83, -0.69, ""), (0.1, -0.8, "*"), (0.8, -0.1, "*"), (0.83, 0.1, "*")]
)
def test_an_effect_that_turns_over_is_not_therefore_less(before, after, sign):
    centered = NOISE - NOISE.mean()
    text = change(centered + before, centered[::-1] + after, null=0.0)["x"].text()
    assert text == f"{before:+.2f} -> {after:+.2f}{sign}"


class Program:
    def save(self, path):
        with open(path, "w") as file:
            file.write("{}")


def chosen(name):
    """A report of which the given program or another was the better one."""
    tried = [Tried(one, {}, math.nan, Cost(), one == name, "reason") for one in ("given", "eight demonstrations")]
    return CompileReport(chosen=name, candidates=tuple(tried))


BARE = CompileReport(chosen="the method's")

WRITTEN = [(chosen("eight demonstrations"), WORSE, "holds the compiled judge.")]
WRITTEN += [(chosen("given"), FINE, "holds the judge as it was given, because nothing was better.")]
WRITTEN += [(BARE, WORSE, "holds the bare method's judge, worse than the given one on the test items (x ")]
WRITTEN += [(BARE, FINE, "do not show that it is worse")]


@pytest.mark.parametrize(("report", "compared", "words"), WRITTEN)
def test_what_an_optimizer_chose_is_written_and_a_bare_methods_judge_whatever_the_test_items_say(
    tmp_path, report, compared, words
):
    path = tmp_path / "judge.json"
    assert words in keep(Program(), report, path, compared={"quality": compared})
    assert path.exists()


def test_a_judge_that_was_chosen_on_sampled_answers_is_asked_so_from_its_file(tmp_path):
    judge, sampling = evalbias.PointwiseJudge(evalbias.Criterion("quality", "is it good?")), evalbias.Sampling(1, 0.0)
    judge.correction = ScoreCorrection({}, reading=((1.0, 2.0), (5.0, 4.0)))
    keep(judge, chosen("given"), tmp_path / "judge.json", compared={}, sampling=sampling)
    loaded = evalbias.load(tmp_path / "judge.json")
    assert (loaded.scoring, loaded.sampling, loaded.correction) == ("sampled", sampling, judge.correction)
