"""What a correction of recorded scores takes by default, what it leaves and says, and that the choice errs rarely."""

import math
from dataclasses import replace

import numpy as np
import pytest
from planted import compared, without

from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS, Judged
from evalbias.measures import EqualQuality, pearson
from evalbias.measures.corrections import fit_score_correction
from evalbias.optimizers.correction import as_scores, learn_correction


def scored(n=300, *, seed=0, length=0.0, likelihood=0.0, proxy=0.0, lenient=0.0, raters=3, **other):
    """Scores of n outputs of n / 3 inputs that owe something to length and likelihood; ``proxy`` makes it good."""
    rng = np.random.default_rng(seed)
    quality, long, own, noise = rng.normal(size=(4, n))
    likely = proxy * quality + math.sqrt(1 - proxy**2) * own
    ratings = 3 + quality[:, None] + 0.7 * rng.normal(size=(n, raters))
    scores = 3 + lenient + quality + length * long + likelihood * likely + 0.8 * noise
    columns = {LENGTHS: np.exp(5 + 0.5 * long), LIKELIHOODS: -60 + 10 * likely, "mine": other.get("mine", long)}
    covariates = {**columns, HUMAN_SCORES: ratings.mean(axis=1), RATINGS: ratings}
    return Judged(tuple(map(str, range(n))), "quality", scores, covariates, inputs=[str(i // 3) for i in range(n)])


def test_a_bias_that_is_an_error_is_free_to_remove(snapshot):
    judged = without(scored(length=0.4), LIKELIHOODS)
    learned = learn_correction(judged)
    assert learned.correction.slopes["length"].slope == pytest.approx(0.4 / 0.5, rel=0.4)
    assert [*learned.sentences] == snapshot
    changes = learned.comparison.changes
    assert abs(changes["length_effect"].after.value) < 0.03 < changes["length_effect"].before.value
    assert changes["pearson"].difference.value > 0
    assert changes["pearson"].p_value < 0.05
    assert {"tied_accuracy", "spearman"} < changes.keys()
    new = scored(seed=5, length=0.4)  # items that took no part
    features, ratings = {"length": np.log(new.covariates[LENGTHS])}, new.covariates[RATINGS]
    corrected = learned.correction(new.answers, features)
    effects = [EqualQuality(s, ratings, features).effect("length").value for s in (new.answers, corrected)]
    assert abs(effects[1]) < effects[0] / 3
    human = new.covariates[HUMAN_SCORES]
    assert pearson(corrected, human).value > pearson(new.answers, human).value


@pytest.mark.slow
def test_a_bias_that_is_a_good_proxy_stays_until_a_loss_is_allowed_and_the_trade_is_told():
    judged = without(scored(600, likelihood=0.4, proxy=0.7), LENGTHS)
    learned = learn_correction(judged)
    assert learned.correction.slopes == {}
    assert [p.strength for p in learned.front] == [0, 0.25, 0.5, 0.75, 1]
    assert [p.chosen for p in learned.front] == [True, False, False, False, False]
    assert (np.diff([p.effect for p in learned.front]) < 0).all()
    assert (np.diff([p.agreement for p in learned.front]) < 0).all()
    allowed = float(learned.sentences[0].partition("max_loss=")[2].partition(",")[0])
    lenient = learn_correction(judged, max_loss=allowed)
    assert abs(lenient.comparison["likelihood_effect"].after.value) < 0.1
    assert list(lenient.correction.slopes) == ["likelihood"]


@pytest.mark.slow
def test_the_remedy_follows_the_joint_model_and_a_field_of_the_items_is_a_feature():
    judged = without(scored(600, length=0.5), LIKELIHOODS)
    rng = np.random.default_rng(3)
    judged.covariates["mine"] = 2 * np.log(judged.covariates[LENGTHS]) + rng.normal(size=600)
    learned = learn_correction(judged, features=["mine"])
    assert "mine: nothing is subtracted, because no effect is shown beside that of length." in learned.sentences
    assert list(learned.correction.slopes) == ["length"]
    alone = learn_correction(without(judged, LENGTHS), features=["mine"])
    assert list(alone.correction.slopes) == ["mine"]


@pytest.mark.slow
def test_both_features_leave_no_effect_of_either():
    judged = scored(900, length=0.4, likelihood=0.4)
    learned = learn_correction(judged)
    assert sorted(learned.correction.slopes) == ["length", "likelihood"]
    changes = learned.comparison.changes
    assert max(abs(changes[f"{name}_effect"].after.value) for name in ("length", "likelihood")) < 0.06


@pytest.mark.slow
def test_every_score_of_the_front_is_corrected_by_fits_on_other_inputs():
    judged = without(scored(length=0.4), LIKELIHOODS)
    moved = replace(judged, answers=judged.answers.copy())
    moved.answers[:3] += 5_000 * (np.log(judged.covariates[LENGTHS][:3]) - 5)  # one input moves it
    before, after = (learn_correction(one).comparison.changes for one in (judged, moved))
    assert after["length_effect"].after.value != before["length_effect"].after.value
    features = {"length": as_scores(moved, ["length"]).covariates["length"]}
    own = fit_score_correction(moved.answers, moved.covariates[RATINGS], features, clusters=moved.inputs)
    leaked = own(moved.answers, features)
    model = EqualQuality(leaked, moved.covariates[RATINGS], features).effect("length")
    assert abs(model.value) < 1e-2 < abs(after["length_effect"].after.value)


@pytest.mark.slow
def test_leniency_is_subtracted_where_people_use_the_scale(snapshot):
    judged = without(replace(scored(lenient=0.8), scale=(-2.0, 8.0)), LIKELIHOODS)
    learned = learn_correction(judged)
    gap = np.mean(judged.answers - judged.covariates[HUMAN_SCORES])
    assert learned.correction.shift == pytest.approx(gap)
    assert learn_correction(replace(judged, scale=(0.0, 1000.0))).correction.shift == 0
    fair = learn_correction(without(replace(scored(), scale=(-2.0, 8.0)), LIKELIHOODS))
    assert fair.correction.shift == 0
    assert [learned.sentences[-1], fair.sentences[-1]] == snapshot


@pytest.mark.slow
def test_pairs_are_corrected_in_log_odds_averaged_over_both_orders():
    rng = np.random.default_rng(0)
    judged = without(compared(rng, 400, length=0.5, first=1.0), LIKELIHOODS)
    learned = learn_correction(judged)
    assert "Position: both orders are averaged, so neither position has an advantage." in learned.sentences
    assert learned.correction.shift == 0
    change = learned.comparison["length_effect"]
    assert abs(change.after.value) < change.before.value / 3
    assert learned.comparison["accuracy"].difference.value > 0
    one = as_scores(judged, ["length"])
    odds = np.log(judged.answers[:, :, 0] / judged.answers[:, :, 1])
    assert one.answers == pytest.approx((odds[:, 0] - odds[:, 1]) / 2)
    assert one.covariates["length"] == pytest.approx(np.log(judged.covariates[LENGTHS]) @ [1, -1])


@pytest.mark.slow
def test_pairs_of_one_order_lose_the_lean_to_the_first_position():
    judged = without(compared(np.random.default_rng(1), 400, first=1.0, orders=1), LIKELIHOODS)
    learned = learn_correction(judged)
    assert learned.correction.shift == pytest.approx(2.0, abs=0.3)  # twice the pull of 1, in log-odds
    assert learned.sentences[-1].startswith("Position: +")
    always = replace(judged, writers=[("a", "b")] * 400)
    assert learn_correction(always).correction.shift == 0


@pytest.mark.slow
def test_one_rating_needs_its_reliability_and_undefined_items_stay_so():
    judged = without(scored(600, length=0.4, raters=1), LIKELIHOODS)
    with pytest.raises(ValueError, match="'length' is undefined"):
        learn_correction(judged)
    holes = replace(judged, answers=np.where(np.arange(600) < 30, np.nan, judged.answers))
    learned = learn_correction(holes, reliability=0.67)
    assert list(learned.correction.slopes) == ["length"]
    assert learned.comparison["pearson"].after.n == 570
    with pytest.raises(ValueError, match="No feature of the outputs is known"):
        learn_correction(without(judged, LENGTHS))
    choices = without(compared(np.random.default_rng(0), 60), LIKELIHOODS, RATINGS)
    choices.covariates[BETTER] = np.random.default_rng(0).integers(0, 2, 60).astype(float)
    with pytest.raises(ValueError, match="'length' is undefined"):
        learn_correction(choices)
    judged = without(scored(600, length=0.4), LIKELIHOODS)
    judged.covariates["same"] = np.ones(600)
    assert any("owe to 'same' is undefined" in one for one in learn_correction(judged, features=["same"]).sentences)


@pytest.mark.slow
def test_gpt_4_loses_its_verbosity_for_nothing_and_keeps_its_likelihood(recorded):
    rows = [row for row in recorded("summeval_scores") if row["judges"]["gpt-4-0314"].get("fluency") is not None]
    ratings = np.array([row["ratings"]["fluency"] for row in rows], dtype=float)
    scores = np.array([row["judges"]["gpt-4-0314"]["fluency"] for row in rows], dtype=float)
    columns = {LENGTHS: np.array([float(len(row["output"])) for row in rows])}
    columns |= {LIKELIHOODS: np.array([row["likelihood"] for row in rows])}
    columns |= {RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}
    inputs = [row["input_id"] for row in rows]
    judged = Judged(tuple(row["id"] for row in rows), "fluency", scores, columns, inputs=inputs)
    by_length, by_likelihood = (learn_correction(without(judged, other)) for other in (LIKELIHOODS, LENGTHS))
    effect, agreement = by_length.comparison["length_effect"], by_length.comparison["pearson"]
    assert effect.before.value == pytest.approx(0.137, abs=0.005)
    assert abs(effect.after.value) < 0.01
    assert (agreement.before.value, agreement.after.value) == pytest.approx((0.598, 0.614), abs=0.002)
    assert by_length.comparison["spearman"].difference.value < -0.03  # ranks punish what breaks ties
    assert by_likelihood.correction.slopes == {}
    assert by_likelihood.front[-1].agreement == pytest.approx(0.556, abs=0.002)
    assert math.isclose(by_likelihood.front[-1].effect, 0, abs_tol=0.01)
