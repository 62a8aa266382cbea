"""Corrections of scores for what they owe to likelihood and length, and a judge that corrects its own."""

import json
import math

import numpy as np
import pytest
from fakes import FormulaLM, items
from refusals import refusals

from evalbias.lm import types
from evalbias.lm.types import Likelihood, LogLikelihood
from evalbias.measures.corrections import (
    ScoreCorrection,
    Slope,
    fit_level_weights,
    fit_score_correction,
    level_features,
)
from evalbias.measures.equal_quality import EqualQuality
from evalbias.programs import Criterion, PointwiseJudge
from evalbias.programs.files import load

C = Criterion("quality", "is it good?")
CALIBRATION = ScoreCorrection({"likelihood": Slope(0.25, -21.0)})
BOUNDED = ScoreCorrection({"likelihood": Slope(0.5, -21.0, (-23.0, -19.5)), "length": Slope(0.01, 30.0)}, 0.25, "mean")


def of_likelihood(correction, scores, likelihoods, scale=(1, 5)):
    return correction(scores, {"likelihood": likelihoods}, scale=scale)


def test_the_correction_worked_by_hand():
    # .25 points a nat: 2 nats above the center cost half a point, 2 below give it
    assert of_likelihood(CALIBRATION, [3.0, 3.0], [-19.0, -23.0]).tolist() == [2.5, 3.5]
    assert of_likelihood(CALIBRATION.at(0.0), [3.0], [-19.0]).tolist() == [3.0]
    assert of_likelihood(CALIBRATION.at(0.5), [3.0], [-19.0]).tolist() == [2.75]
    assert of_likelihood(CALIBRATION, [1.2, 4.8], [-19.0, -23.0]).tolist() == [1.0, 5.0]  # clipped
    assert np.isnan(of_likelihood(CALIBRATION, [3.0, math.nan], [math.nan, -19.0])).all()
    # 3 - .25 - .5 * min(2, 1.5) - .01 * 10
    both = BOUNDED([3.0, 3.0], {"likelihood": [-19.0, -23.0], "length": [40, 30], "other": [0, 0]})
    assert both.tolist() == pytest.approx([1.9, 3.75])
    half = CALIBRATION.towards(BOUNDED, 0.5)
    assert [one.slope for one in half.slopes.values()] == [0.375, 0.005]
    assert (half.shift, half.reduction) == (0.125, "mean")
    assert CALIBRATION.towards(BOUNDED, 1.0) == BOUNDED


def test_beyond_the_values_it_was_fitted_on_the_correction_stays_as_it_is():
    steady = ScoreCorrection({"likelihood": Slope(0.1, -20.0, (-30.0, -10.0))})
    far = of_likelihood(steady, [3.0, 3.0, 3.0, 3.0], [-400.0, -30.0, -10.0, 0.0])
    assert far == pytest.approx([4, 4, 2, 2])


def test_what_is_fitted_leaves_the_rest_of_each_effect():
    rng = np.random.default_rng(0)
    quality, own = rng.normal(size=(2, 400))
    length = 200 + 50 * (0.5 * quality + own)
    likelihood = -50 - 0.1 * length + 5 * rng.normal(size=400)
    ratings = quality[:, None] + 0.5 * rng.normal(size=(400, 2))
    scores = 3 + quality + 0.004 * length + 0.05 * likelihood + rng.normal(size=400)
    features = {"length": length, "likelihood": likelihood}
    fitted = fit_score_correction(scores, ratings, features)
    assert [one.slope for one in fitted.slopes.values()] == pytest.approx([0.004, 0.05], abs=0.02)
    assert fitted.slopes["length"].bounds == (length.min(), length.max())

    def effects(corrected, *names):
        model = EqualQuality(corrected, ratings, {name: features[name] for name in names})
        return np.array([model.effect(name).value * model.score_sd for name in names])

    before, marginal = effects(scores, *features), effects(scores, "length")
    for strength in (0.0, 0.25, 1.0):
        corrected = fitted.at(strength)(scores, features)
        assert effects(corrected, *features) == pytest.approx((1 - strength) * before, abs=1e-9)
        assert effects(corrected, "length") == pytest.approx((1 - strength) * marginal, abs=1e-9)
        assert corrected.mean() == pytest.approx(scores.mean())
    # from a correction for length alone to one for both, length keeps no effect of its own
    alone = fit_score_correction(scores, ratings, {"length": length})
    assert effects(alone.towards(fitted, 0.3)(scores, features), "length") == pytest.approx([0], abs=1e-9)


def test_weights_of_the_levels_are_those_of_the_penalized_least_squares():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), size=30)
    scores, people = shares @ [1, 2, 3], rng.uniform(1, 3, size=30) + shares[:, 2]
    features = level_features(shares, (1, 3))
    found = fit_level_weights(scores, people, features, scale=(1, 3), penalty=2.0)
    slope, intercept = np.polyfit(scores, people, 1)
    x = np.log(shares) - np.log(shares).mean(axis=0)
    stacked, wanted = (
        np.vstack([x, np.sqrt(2.0) * np.eye(3)]),
        np.append(people - intercept - slope * scores, np.zeros(3)),
    )
    weights = np.linalg.lstsq(stacked, wanted, rcond=None)[0]
    assert found(scores, features) == pytest.approx(intercept + slope * scores + x @ weights)
    assert fit_level_weights(scores, -scores, features, scale=(1, 3), penalty=2.0) is None  # no line rises


def test_a_judge_reads_its_scores_by_the_probabilities_of_the_levels(tmp_path):
    weights = {"log-probability of 1": Slope(0.1, -2.0), "log-probability of 5": Slope(-0.2, -1.0)}
    correction = ScoreCorrection(weights, reading=((1.0, 1.0), (5.0, 4.0)))
    judge = PointwiseJudge(C, correction=correction)
    judge.save(tmp_path / "judge.json")
    read = load(tmp_path / "judge.json")
    assert read.correction == correction
    (found,) = read.batch(items(1, 0), lm=FormulaLM())
    p = found.distribution
    by_line = 1 + 0.75 * (found.raw_score - 1)
    by_hand = by_line - 0.1 * (math.log(p["1"]) + 2) + 0.2 * (math.log(p["5"]) + 1)
    assert found.score == pytest.approx(by_hand)


def test_differences_within_pairs_are_not_centered():
    rng = np.random.default_rng(1)
    quality, length = rng.normal(size=(2, 300))
    ratings = quality[:, None] + 0.5 * rng.normal(size=(300, 2))
    fitted = fit_score_correction(quality + 0.3 * length, ratings, {"length": 1 + length}, differences=True)
    assert fitted.slopes["length"].center == 0
    assert fitted.slopes["length"].slope == pytest.approx(0.3, abs=0.05)


test_what_cannot_be_fitted_or_applied_is_refused = refusals(
    lambda call: call(),
    (lambda: Slope(math.nan, 0.0), "slope=nan.*: give finite numbers"),
    (lambda: Slope(0.5, math.inf), "center=inf"),
    *((lambda s=s: CALIBRATION.at(s), f"strength={s}") for s in (1.5, -0.1, math.nan)),
    (lambda: Slope(1.0, 0.0, bounds=(-10.0, -20.0)), "lowest and the highest value"),
    (lambda: Slope(1.0, 0.0, bounds=(-math.inf, 0.0)), "both finite"),
    (lambda: ScoreCorrection({}, math.inf), "shift=inf, pairs=False: give a finite number"),
    (lambda: ScoreCorrection({}, reduction="median"), "reduction='median', .*give 'sum' or 'mean'"),
    (lambda: CALIBRATION([1.0], {"length": [1.0]}), r"needs the feature 'likelihood', and \['length'\] are given"),
    (lambda: fit_score_correction([1, 2], [[3, 4]] * 2, {"length": [1, 2]}), "owe to 'length' is undefined: too"),
    (lambda: of_likelihood(CALIBRATION, [1.0], [1.0, 2.0]), "different lengths"),
    (lambda: PointwiseJudge(C, correction=ScoreCorrection({"style": Slope(1.0)})), "cannot tell 'style' of an"),
)


def test_a_calibrated_judge_marks_its_predictions_and_keeps_the_raw_score(monkeypatch):
    plain, judge = PointwiseJudge(C), PointwiseJudge(C, correction=CALIBRATION)
    of_length = PointwiseJudge(C, correction=ScoreCorrection({"length": Slope(2.0, 3.0)}, shift=0.25))
    examples = items(40, 1)
    raw = plain.batch(examples, lm=FormulaLM())
    monkeypatch.setattr(types, "CHUNK", 7)
    found = judge.batch(examples, lm=FormulaLM())
    for example, before, after in zip(examples, raw, found, strict=True):
        rarity = float(example.output.split("z=")[1])  # the formula's LS is z - 21
        assert after.likelihood == pytest.approx(rarity - 21)
        assert after.raw_score == before.score
        assert after.score == pytest.approx(min(5, max(1, before.score - 0.25 * rarity)))
        assert (after.mode, after.distribution) == (before.mode, before.distribution)
        assert "raw_score" not in before
    found = of_length.batch(examples, lm=FormulaLM(likelihoods=False))  # it asks for no likelihoods
    for example, before, after in zip(examples, raw, found, strict=True):
        expected = before.score - 0.25 - 2 * (math.log(len(example.output)) - 3)
        assert after.score == pytest.approx(min(5, max(1, expected)))
        assert "likelihood" not in after


SLOPE = {"slope": 0.1, "center": 5.0, "bounds": None}
DAMAGED_SLOPES = [
    ({"slope": "high"}, "'slope' is 'high'"),
    ({"slope": True}, "'slope' is True: give a number"),
    ({"slope": 1e308}, r"'slope' is 1e\+308: give a number of at most"),
    ({"center": None}, "'center' is None: give a number"),
    ({"bounds": [1]}, "not enough values to unpack"),
    ({"bounds": [1, 2, 3]}, "too many values to unpack"),
    ({"bounds": [1, 10**400]}, "'bounds' is 1000"),
    ({"bounds": [False, True]}, "'bounds' is False: give a number"),
    ({"more": 1}, "unexpected keyword argument 'more'"),
]

DAMAGED = [*(({"slopes": {"length": SLOPE | damage}}, message) for damage, message in DAMAGED_SLOPES)]
DAMAGED += [({"slopes": 3}, ""), ({"shift": None}, "shift"), ({"api_key": 1}, "api_key")]


@pytest.mark.parametrize(("damage", "message"), DAMAGED)
def test_a_damaged_correction_is_refused(tmp_path, damage, message):
    whole = {"slopes": {"length": SLOPE}, "shift": 0.0, "reduction": "sum", "length": "characters", "pairs": False}
    (tmp_path / "correction.json").write_text(json.dumps(whole | damage))
    with pytest.raises(ValueError, match=rf"correction\.json.*{message}"):
        load(tmp_path / "correction.json")


def test_a_model_without_likelihoods_is_refused():
    judge = PointwiseJudge(C, correction=CALIBRATION)
    with pytest.raises(NotImplementedError, match="corrects its scores for likelihood, which this model does not"):
        judge.batch(items(3, 1), lm=FormulaLM(likelihoods=False))


def test_a_likelihood_that_is_undefined_or_refused_leaves_the_score_undefined_and_says_why():
    first, second, _ = examples = items(3, 1)

    class Partly(FormulaLM):
        def loglikelihood(self, pairs):
            undefined = LogLikelihood(np.array([math.nan]))
            return [
                undefined if pair[1] == second.output else super(Partly, self).loglikelihood([pair])[0]
                for pair in pairs
            ]

    lm = Partly(refuses=lambda q: isinstance(q, Likelihood) and q.continuation == first.output)
    judged = PointwiseJudge(C, correction=CALIBRATION).batch(examples, lm=lm)
    assert [math.isnan(p.score) for p in judged] == [True, True, False]
    assert not any(math.isnan(p.raw_score) for p in judged)
    assert judged[0].undefined.startswith(f"The prompt of the item '{first.id}'")
    assert judged[0].undefined.endswith("has 99 tokens, but the model's context is 64.")
    assert not any("undefined" in p for p in judged[1:])
