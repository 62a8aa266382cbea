"""Judgments that are missing: on what that depends, and bounds that hold whatever they would have been."""

import itertools

import numpy as np
import pytest
from planted import compared, scored

from evalbias import audit
from evalbias.evaluation.biases import Verbosity
from evalbias.evaluation.missing import (
    answer_chances,
    bounds_of_effect,
    bounds_of_mean,
    missing_by_level,
    missing_judgments,
    missing_odds,
)
from evalbias.measures import EqualQuality
from evalbias.report.tables import audit_view


def rows(n=300, *, seed=0, lost=lambda quality, length, rng: rng.random(len(quality)) < 0.08, systems=4):
    """Scored outputs of four systems, and what a judge would have said of all; ``lost`` says which are missing."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    length = 0.4 * quality + rng.normal(size=n)
    whole = np.clip(np.round(3 + quality + 0.3 * length + 0.5 * rng.normal(size=n)), 1, 5)
    ratings = np.clip(np.round(3 + quality[:, None] + 0.6 * rng.normal(size=(n, 2))), 1, 5)
    absent = lost(quality, length, rng)
    items = [
        {
            "output": f"{k:06d}" + "x" * round(200 * np.exp(0.3 * length[k])),
            "system": f"system {k % systems}",
            "mine": None if absent[k] else whole[k],
            "rating_1": ratings[k, 0],
            "rating_2": ratings[k, 1],
        }
        for k in range(n)
    ]
    return items, whole, absent


@pytest.mark.slow
def test_missing_at_random_depends_on_nothing_and_by_quality_is_found():
    rng = np.random.default_rng(0)
    alarms, found = 0, 0
    for _ in range(300):
        n, rate = 200, rng.choice([0.02, 0.1, 0.5])
        quality, length = rng.normal(size=(2, n))
        systems = rng.choice(["a", "b", "c", "d"], size=n).tolist()
        absent = rng.random(n) < rate
        absent[:2] = True, False
        tests = [missing_odds(absent, x)[1] for x in (quality, np.exp(length))] + [missing_by_level(absent, systems)]
        alarms += min(tests) < 0.05 / 3
        absent = rng.random(n) < 1 / (1 + np.exp(2.2 + quality))
        odds, p_value = missing_odds(absent, quality)
        found += p_value < 0.05 and odds < 1
    assert alarms <= 0.06 * 300
    assert found >= 0.8 * 300


@pytest.mark.slow
def test_inputs_lost_as_a_whole_are_one_loss():
    rng = np.random.default_rng(1)
    alarms = {"inputs": 0, "items": 0}
    for _ in range(200):
        documents = np.repeat(np.arange(40), 8)
        x, absent = rng.normal(size=40)[documents], (rng.random(40) < 0.3)[documents]
        if absent.any():
            alarms["inputs"] += missing_odds(absent, x, clusters=documents.tolist())[1] < 0.05
            alarms["items"] += missing_odds(absent, x)[1] < 0.05
    assert alarms["inputs"] <= 0.07 * 200
    assert alarms["items"] > 0.4 * 200


def test_the_odds_are_those_of_a_logistic_model():
    rng = np.random.default_rng(2)
    x = rng.normal(5, 3, size=4000)
    absent = rng.random(4000) < 1 / (1 + np.exp(1.5 - 0.7 * (x - 5) / 3))
    odds, _ = missing_odds(absent, x)
    assert np.log(odds) == pytest.approx(0.7, abs=0.1)
    chances = answer_chances(absent, x[:, None])
    truth = 1 / (1 + np.exp(-1.5 + 0.7 * (x - 5) / 3))
    assert np.abs(chances - truth).max() < 0.05
    assert (chances.mean(), (chances * x).mean()) == pytest.approx(((~absent).mean(), (~absent * x).mean()), abs=0.01)
    assert np.isnan(missing_odds(absent, np.ones(4000))).all()
    assert [set(answer_chances(np.full(9, one), x[:9, None])) for one in (False, True)] == [{1.0}, {0.0}]
    separated, _ = missing_odds(x > 8, x)
    assert 10 < separated < np.inf


def test_levels_are_compared_exactly():
    absent = np.array([True, True, False, False, False, False])
    p_value = missing_by_level(absent, ["a", "a", "b", "b", "c", "c"])
    assert p_value == pytest.approx(3 / 15, abs=0.03)  # of 15 places of two, 3 share a level


@pytest.mark.parametrize("mirrored", [False, True])
def test_bounds_of_an_effect_are_its_extremes_over_all_fillings(mirrored):
    rng = np.random.default_rng(3)
    quality, x = rng.normal(size=(2, 60))
    ratings, whole = (
        quality[:, None] + rng.normal(size=(60, 2)),
        np.clip(quality + 0.4 * x + rng.normal(size=60), -1, 1),
    )
    scores = whole.copy()
    scores[:5] = np.nan
    options = {"mirrored": mirrored}
    model = EqualQuality(np.nan_to_num(scores), ratings, {"x": x}, **options)
    given = EqualQuality(scores, ratings, {"x": x}, **options).effect("x")
    found = bounds_of_effect(model, "x", scores, np.full(60, 0.9), (-1.0, 1.0), given)
    values = []
    for filling in itertools.product([-1.0, 1.0], repeat=5):
        effect = EqualQuality([*filling, *whole[5:]], ratings, {"x": x}, **options).effect("x")
        values.append(effect.value * effect.score_sd)
    spread = np.sqrt((whole[5:] ** 2).mean()) if mirrored else whole[5:].std()
    assert (found.low, found.high) == pytest.approx((min(values) / spread, max(values) / spread))
    sds = [np.sqrt((one**2).mean()) if mirrored else one.std() for one in (x, x[5:])]
    assert found.given == given.value
    # equal chances weigh nothing; the raters' levels are those of all items
    assert found.weighted == pytest.approx(given.value * sds[0] / sds[1], rel=1e-3)
    truth = EqualQuality(whole, ratings, {"x": x}, **options).effect("x")
    assert found.low < truth.value * truth.score_sd / spread < found.high


def test_weights_make_up_for_scores_lost_by_quality():
    rng = np.random.default_rng(4)
    quality = rng.normal(size=5000)
    scores, absent = 3 + quality, rng.random(5000) < 1 / (1 + np.exp(1 + quality))
    found = bounds_of_mean(np.where(absent, np.nan, scores), answer_chances(absent, quality[:, None]), (0.0, 6.0))
    assert found.given > 3.2
    assert found.weighted == pytest.approx(scores.mean(), abs=0.03)
    assert found.low < scores.mean() < found.high
    assert (found.high - found.low) == pytest.approx(6 * absent.mean())


@pytest.mark.slow
def test_an_audit_has_a_finding_of_missing_judgments():
    items, whole, absent = rows(
        lost=lambda quality, length, rng: rng.random(len(quality)) < 1 / (1 + np.exp(2 + 1.5 * quality))
    )
    found = audit(items, scores_field="mine", scale=(1, 5))
    lost = found.missing
    assert (lost.n, lost.missing) == (300, absent.sum())
    assert {*lost.dependence} == {"quality", "length", "system"}
    assert lost.dependence["quality"].p_adjusted < 0.01 > lost.dependence["quality"].p_value
    assert lost.dependence["quality"].odds < 0.6
    assert f"{absent.sum()} of 300 judgments are missing (" in found.paragraphs[3]
    assert "They are missing more often for worse outputs (" in found.paragraphs[3]
    mean, effect = lost.bounds["mean"], lost.bounds["verbosity"]
    assert mean.low < whole.mean() < mean.high
    assert abs(mean.weighted - whole.mean()) < abs(mean.given - whole.mean())
    assert f"the mean lies between {mean.low:.2f} and {mean.high:.2f}" in found.verdict
    assert (
        f"the effect of verbosity between {effect.low:+.2f} and {effect.high:+.2f} (effects in standard "
        in found.verdict
    )
    assert effect.given == found["verbosity"]["length_effect"].value
    assert effect.low < effect.given < effect.high
    told = found.to_dict()["missing_judgments"]
    assert (told["missing"], told["bounds"]["mean"]["low"]) == (absent.sum(), mean.low)
    view = " ".join(str(part) for part in audit_view(found).renderables)
    assert "judgments are missing" in view
    whole_items, *_ = rows(lost=lambda quality, length, rng: np.zeros(len(quality), dtype=bool))
    assert audit(whole_items, scores_field="mine").missing is None


def test_without_a_scale_the_bounds_hold_between_the_scores_given():
    lost = audit(rows()[0], scores_field="mine", only="verbosity").missing
    assert lost.within == (1, 5)
    assert "have been between 1 and 5, the least and most given, over all items the mean lies" in lost.sentence()


def test_missing_at_random_is_said_not_to_depend_on_anything():
    found = audit(rows()[0], scores_field="mine", scale=(1, 5), only="verbosity")
    assert "No dependence on quality, length and system is shown." in found.verdict


def test_judgments_missing_of_unrated_items_alone_leave_the_effect_as_it_is():
    items, *_ = rows(lost=lambda quality, length, rng: np.arange(300) >= 270)
    for item in items[260:]:
        del item["rating_1"], item["rating_2"]
    found = audit(items, scores_field="mine", scale=(1, 5), only="verbosity")
    effect = found.missing.bounds["verbosity"]
    assert (effect.low, effect.weighted, effect.high) == pytest.approx([found["verbosity"]["length_effect"].value] * 3)


@pytest.mark.parametrize("judged", [0, 2])
def test_an_effect_that_the_judgments_given_do_not_tell_has_no_bounds(judged):
    items, *_ = rows(lost=lambda quality, length, rng: (np.arange(300) >= judged) & (np.arange(300) < 280))
    for item in items[280:]:
        del item["rating_1"], item["rating_2"]
    assert {*audit(items, scores_field="mine", scale=(1, 5), only="verbosity").missing.bounds} == {"mean"}


def test_a_property_that_one_item_lacks_still_weighs_the_others():
    items, *_ = rows(lost=lambda quality, length, rng: rng.random(len(quality)) < 1 / (1 + np.exp(2 + 1.5 * quality)))
    whole = audit(items, scores_field="mine", scale=(1, 5), only="verbosity").missing.bounds["mean"]
    del items[0]["rating_1"], items[0]["rating_2"]
    less = audit(items, scores_field="mine", scale=(1, 5), only="verbosity").missing.bounds["mean"]
    assert less.weighted == pytest.approx(whole.weighted, abs=0.01)
    assert less.given - less.weighted > 0.05


def test_with_a_reliability_one_rating_of_each_item_counts_also_where_a_missing_score_has_several():
    (items, *_), bounds = rows(lost=lambda quality, length, rng: np.arange(300) < 20), []
    for some in (items[20:], items[:20]):
        for item in some:
            del item["rating_2"]
        found = audit(items, scores_field="mine", scale=(1, 5), only="verbosity", reliability=0.6).missing
        bounds.append([getattr(found.bounds["verbosity"], end) for end in ("low", "given", "high")])
    assert bounds[0] == bounds[1] == sorted(bounds[0])


def test_pairs_have_bounds_where_verdicts_have_ends():
    rng = np.random.default_rng(5)
    for verdicts in (True, False):
        judged = compared(rng, 200, verdicts=verdicts)
        judged.answers[:12] = np.nan
        lost = missing_judgments(judged, [Verbosity()], seed=0)
        assert lost.missing == 12
        rate = lost.bounds["first_rate"]
        assert rate.high - rate.low == pytest.approx(12 / 200)
        assert f"the win rate of the first position lies between {rate.low:.2f} and {rate.high:.2f}" in lost.sentence()
        assert np.isnan(lost.bounds["verbosity"].low) != verdicts
        assert not np.isnan(lost.bounds["verbosity"].weighted)
    apart = np.abs(np.nanmean(judged.ratings, axis=1))
    judged.answers[:] = 0.5
    judged.answers[apart > np.quantile(apart, 0.8)] = np.nan
    said = missing_judgments(judged, [], seed=0).dependence["quality"].words
    assert said.startswith("more often for pairs that differ more in quality (")
    one = scored(rng, 100)
    assert missing_judgments(one, [], seed=0) is None


def test_base_models_without_a_verdict_are_found_on_recorded_judgments(recorded):
    answers = recorded("triviaqa_verdicts")
    items = [
        {"output": "", "source": a["source"], "system": a["system"], "score": a["human"], "mine": a.get("Llama-70B")}
        for a in answers
    ]
    for k, item in enumerate(items):
        item["output"] = f"answer {k % 9}"
    lost = audit(items, scores_field="mine", scale=(0, 1)).missing
    assert (lost.n, lost.missing) == (3600, 135)
    assert lost.dependence["system"].p_adjusted < 0.01
    assert "32 % of llama2-13b-base" in lost.dependence["system"].words
    assert (lost.bounds["mean"].low, lost.bounds["mean"].high) == pytest.approx((0.75, 0.79), abs=0.005)


def test_gpt_4_leaves_few_summaries_unscored_and_they_change_little(recorded):
    summaries = recorded("summeval_scores")
    items = [
        {key: row[key] for key in ("output", "system", "input_id")}
        | {"mine": row["judges"]["gpt-4-0314"]["consistency"], "ratings": row["ratings"]["consistency"]}
        for row in summaries
    ]
    lost = audit(items, scores_field="mine", scale=(1, 5)).missing
    assert lost.missing == 8
    assert (lost.bounds["mean"].high - lost.bounds["mean"].low) == pytest.approx(4 * 8 / 1200)
    assert lost.bounds["verbosity"].low < lost.bounds["verbosity"].given < lost.bounds["verbosity"].high
