"""A judge that corrects its scores for likelihood."""

import math

import numpy as np
import pytest
from fakes import FormulaLM, items

from evalbias.lm.types import Likelihood, LogLikelihood
from evalbias.measures.corrections import LikelihoodCalibration, fit_likelihood_calibration
from evalbias.programs import Criterion, PointwiseJudge, load_judge

C = Criterion("quality", "is it good?")
CALIBRATION = LikelihoodCalibration(slope=0.5, center=-21.0, strength=0.5)
BOUNDED = LikelihoodCalibration(slope=0.5, center=-21.0, bounds=(-23.0, -19.5))


def test_the_correction_worked_by_hand():
    # strength * slope = .25 a nat: 2 nats above the center cost half a point, 2 below give it
    assert CALIBRATION([3.0, 3.0], [-19.0, -23.0], scale=(1, 5)).tolist() == [2.5, 3.5]
    assert CALIBRATION.at(0.0)([3.0], [-19.0], scale=(1, 5)).tolist() == [3.0]
    assert CALIBRATION.at(1.0)([1.5, 4.8], [-19.0, -23.0], scale=(1, 5)).tolist() == [1.0, 5.0]  # clipped
    assert np.isnan(CALIBRATION([3.0, math.nan], [math.nan, -19.0], scale=(1, 5))).all()


def test_beyond_the_likelihoods_it_was_fitted_on_the_correction_stays_as_it_is():
    fitted = fit_likelihood_calibration([-30, -20, -10], [1, 3, 5], effect=0.5)  # .1 points a nat
    far = fitted([3.0, 3.0, 3.0, 3.0], [-400.0, -30.0, -10.0, 0.0], scale=(1, 5))
    assert far == pytest.approx([4, 4, 2, 2])
    straight = LikelihoodCalibration(fitted.slope, fitted.center)
    assert straight([3.0], [-400.0], scale=(1, 99)) == pytest.approx([41])


def test_what_is_fitted_leaves_the_rest_of_the_effect():
    rng = np.random.default_rng(0)
    likelihoods = rng.normal(-50, 7, 400)
    model = 3 + 0.3 * (likelihoods + 50) / 7 + rng.normal(0, 0.5, 400)
    z = (likelihoods - likelihoods.mean()) / likelihoods.std()
    effect = np.polyfit(z, (model - model.mean()) / model.std(), 1)[0]
    fitted = fit_likelihood_calibration(likelihoods, model, effect)
    for strength in (0.0, 0.25, 1.0):
        corrected = fitted.at(strength)(model, likelihoods, scale=(-99, 99))
        assert np.polyfit(z, corrected / model.std(), 1)[0] == pytest.approx((1 - strength) * effect, abs=1e-12)
        assert corrected.mean() == pytest.approx(model.mean())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LikelihoodCalibration(math.nan, 0.0), "slope=nan.*: give finite numbers"),
        (lambda: LikelihoodCalibration(0.5, math.inf), "center=inf"),
        *((lambda s=s: CALIBRATION.at(s), f"strength={s}") for s in (1.5, -0.1, math.nan)),
        (lambda: LikelihoodCalibration(1.0, 0.0, bounds=(-10.0, -20.0)), "lowest and the highest LS"),
        (lambda: LikelihoodCalibration(1.0, 0.0, bounds=(-math.inf, 0.0)), "both finite"),
        (lambda: fit_likelihood_calibration([1, 2], [3, 4], math.nan), "effect=nan over 2 items"),
        (lambda: fit_likelihood_calibration([2, 2, math.nan], [3, 4, 5], 0.1), "over 2 items with 1 different"),
        (lambda: CALIBRATION([1.0], [1.0, 2.0], scale=(1, 5)), "different lengths"),
    ],
)
def test_what_cannot_be_fitted_or_applied_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_calibrated_judge_marks_its_predictions_and_keeps_the_raw_score():
    plain, judge = PointwiseJudge(C), PointwiseJudge(C, likelihood_calibration=CALIBRATION)
    examples = items(40, 1)
    raw = plain.batch(examples, lm=FormulaLM())
    found = judge.batch(examples, lm=FormulaLM(), chunk=7)
    for example, before, after in zip(examples, raw, found, strict=True):
        rarity = float(example.output.split("z=")[1])  # the formula's LS is z - 21
        assert after.likelihood == pytest.approx(rarity - 21)
        assert after.raw_score == before.score
        assert after.score == pytest.approx(min(5, max(1, before.score - 0.25 * rarity)))
        assert (after.mode, after.distribution) == (before.mode, before.distribution)
        assert "raw_score" not in before


def test_it_is_saved_and_forgotten_with_what_was_learned(tmp_path):
    judge = PointwiseJudge(C)
    for calibration in (CALIBRATION, BOUNDED):
        judge.likelihood_calibration = calibration
        judge.save(str(tmp_path / "judge.json"))
        assert load_judge(tmp_path / "judge.json").likelihood_calibration == calibration
    assert judge.reset_copy().likelihood_calibration is None


def test_a_model_without_likelihoods_is_refused():
    judge = PointwiseJudge(C, likelihood_calibration=CALIBRATION)
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
    judged = PointwiseJudge(C, likelihood_calibration=CALIBRATION).batch(examples, lm=lm)
    assert [math.isnan(p.score) for p in judged] == [True, True, False]
    assert not any(math.isnan(p.raw_score) for p in judged)
    assert judged[0].undefined.startswith(f"The prompt of the item '{first.id}'")
    assert judged[0].undefined.endswith("has 99 tokens, but the model's context is 64.")
    assert not any("undefined" in p for p in judged[1:])
