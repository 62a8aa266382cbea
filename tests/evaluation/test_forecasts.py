"""An audit of probabilities: their skill, their calibration beside what chance shows, and the pass mark."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import evalbias
from evalbias import BIASES
from evalbias.evaluation.audit import audit_answers

ERRORS = 0.15 * norm.ppf(np.linspace(0.01, 0.99, 50))  # of people, whose mean verdict is the flawless forecast


def rows(forecast, n=200, seed=0):
    """Draw items that three people rate from 1 to 5, and a judge that forecasts a 4 or more."""
    rng, made = np.random.default_rng(seed), []
    for i in range(n):
        quality = rng.beta(2, 2)
        ratings = [int(1 + np.clip(5 * (quality + rng.normal(0, 0.15)), 0, 4.999)) for _ in range(3)]
        heard = np.clip(5 * (quality + ERRORS), 0, 4.999).astype(int) + 1 >= 4
        judge = np.clip(forecast(heard.mean(), rng) + rng.normal(0, 0.01), 0, 1)
        row = {f"rating_{j + 1}": rating for j, rating in enumerate(ratings)}
        made.append({"id": str(i), "source": f"s{i}", "output": "word " * (5 + i % 17), "judge": float(judge), **row})
    return made


def skill(p, items):
    """Brier skill of probabilities of a pass against what each person says."""
    y = np.array([[row[f"rating_{j}"] >= 4 for j in (1, 2, 3)] for row in items], dtype=float)
    return 1 - ((p[:, None] - y) ** 2).mean() / ((y.mean() - y) ** 2).mean()


FORECASTS = {"good": lambda p, _: p, "empty": lambda *_: 0.36, "shrunk": lambda p, _: 0.3 + 0.1 * p}
FORECASTS |= {"noise": lambda _, rng: rng.random()}


@pytest.mark.parametrize("kind", FORECASTS)
def test_probabilities_are_held_against_what_each_person_says(kind, snapshot):
    items = rows(FORECASTS[kind])
    audit = evalbias.audit(items, scores_field="judge", criterion="quality", scale=(0, 1), pass_mark=4)
    measured = audit["forecasts"]
    assert measured["brier_skill"].value == pytest.approx(skill(np.array([row["judge"] for row in items]), items))
    (said,) = [one for one in audit.paragraphs if one.startswith("Its probabilities")]
    assert said == snapshot
    flawless = measured["flawless_error"]
    assert 0 == flawless.low < flawless.value < flawless.high
    assert f"stay below {flawless.high:.2f} in 95 of 100" in said
    assert (measured["forecast_error"].value > flawless.high) == (kind in ("shrunk", "noise"))


def test_without_a_pass_mark_the_audit_asks_for_it():
    items = rows(FORECASTS["good"], n=40)
    audit = evalbias.audit(items, scores_field="judge", criterion="quality", scale=(0, 1))
    assert "--pass 4" in audit.not_measured["forecasts"]
    assert "forecasts" not in audit.measurements
    whole = [{**row, "judge": round(row["judge"])} for row in items]
    verdicts = evalbias.audit(whole, scores_field="judge", criterion="quality", scale=(0, 1))
    assert "forecasts" not in verdicts.not_measured  # it says pass or fail, and no probability


@pytest.mark.parametrize("labels", [[1], [None] * 9, [1] * 9], ids=["few", "none", "the same"])
def test_a_skill_that_is_undefined_is_said_to_be(labels, snapshot):
    items = [{"output": f"reply {i}", "label": y, "judge": 0.3 + i / 20} for i, y in enumerate(labels)]
    paragraphs = evalbias.audit(items, scores_field="judge", scale=(0, 1)).paragraphs
    assert [text for text in paragraphs if "probabilities" in text] == snapshot


@pytest.mark.parametrize("mark", [9, 1, float("nan")])
def test_a_pass_mark_that_says_nothing_is_refused_before_a_judge_is_asked(mark):
    asked, items = [], rows(FORECASTS["good"], n=5)
    pairs = [{"source": "a", "outputs": ["b", "c"]}]
    refused = {9: "parts no ratings from 1 to 5", 1: "parts no ratings"}.get(mark, "the lowest rating that passes")
    for data, told in ((items, refused), (pairs, "this one compares" if mark == mark else refused)):
        with pytest.raises(ValueError, match=told):
            evalbias.audit(data, judge=asked.append, pass_mark=mark)
    assert asked == []


def test_probabilities_of_levels_are_forecasts_of_a_pass(lms):
    criterion = evalbias.Criterion("quality", "is it good?", (1, 5))
    items = rows(FORECASTS["good"], n=30)
    audit = evalbias.audit(items, judge=evalbias.PointwiseJudge(criterion), lm=lms["qwen2-chat"], pass_mark=4)
    measured, judged = audit["forecasts"], audit.judged
    shares = judged.covariates["level_shares"]
    np.testing.assert_allclose(shares @ np.arange(1, 6), judged.answers)
    assert measured["brier_skill"].value == pytest.approx(skill(shares[:, 3:].sum(axis=1), items))
    people = {name: 20 * judged.covariates[name] for name in ("ratings", "human_scores")}
    other = audit_answers(replace(judged, covariates={**judged.covariates, **people}), pass_mark=60)
    assert "forecasts" not in other.measurements  # which of the judge's levels passes is not known
    assert "on the judge's scale" in BIASES["forecasts"].configured(pass_mark=60).lacks(other.judged)
