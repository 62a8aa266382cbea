"""Judgments that are missing: how many, of which systems, and on what that depends."""

import dataclasses

import numpy as np
import pytest
import scipy
from planted import compared, scored

from evalbias import audit
from evalbias.evaluation.missing import missing_judgments
from evalbias.measures.missing import missing_by_level, missing_by_size
from evalbias.report.tables import audit_view


def rows(n=300, *, seed=0, lost=lambda quality, length, rng: rng.random(len(quality)) < 0.08, systems=4):
    """Scored outputs of four systems, and what a judge would have said of all; ``lost`` says which are missing."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    length = 0.4 * quality + rng.normal(size=n)
    whole = np.clip(np.round(3 + quality + 0.3 * length + 0.5 * rng.normal(size=n)), 1, 5)
    ratings = np.clip(np.round(3 + quality[:, None] + 0.6 * rng.normal(size=(n, 2))), 1, 5)
    absent = lost(quality, length, rng)
    outputs = [f"{k:06d}" + "x" * round(200 * np.exp(0.3 * length[k])) for k in range(n)]
    items = [{"output": text, "system": f"system {k % systems}"} for k, text in enumerate(outputs)]
    for k, item in enumerate(items):
        item |= {"mine": None if absent[k] else whole[k], "rating_1": ratings[k, 0], "rating_2": ratings[k, 1]}
    return items, whole, absent


def test_the_difference_is_that_of_the_means_in_standard_deviations():
    x, absent = np.array([1.0, 2.0, 3.0, 4.0, np.nan]), np.array([False, False, False, True, True])
    difference, p_value = missing_by_size(absent, x)
    assert difference == pytest.approx(2 / x[:4].std())
    # centred ranks -1.5, -.5, .5, 1.5 have the score 1.5, and the variance 3/16 * 5 * 4/3; 3 degrees of freedom
    assert p_value == pytest.approx(2 * scipy.stats.t.sf(1.5 / np.sqrt(1.25), 3))
    assert np.isnan(missing_by_size(absent, np.ones(5))).all()


def test_levels_are_compared_exactly():
    absent = np.array([True, True, False, False, False, False])
    p_value = missing_by_level(absent, ["a", "a", "b", "b", "c", "c"])
    assert p_value == pytest.approx(3 / 15, abs=0.03)  # of 15 places of two, 3 share a level


def test_inputs_exchange_their_losses_and_items_of_an_input_do():
    inputs, own = np.repeat(np.arange(6), 4), np.repeat(["a", "a", "b", "b", "c", "c"], 4)
    lost = np.isin(inputs, [0, 1])
    assert missing_by_level(lost, own) < 0.01
    assert missing_by_level(lost, own, clusters=inputs.tolist()) == pytest.approx(3 / 15, abs=0.03)
    # of every input all systems answer, and one of them fails in 5 of 6: 4 (1/4)^5 (3/4) 6 + 4 (1/4)^6 by chance
    crossed, fails = np.tile(list("abcd"), 6), np.tile([True, False, False, False], 6)
    fails[0], fails[1] = False, True
    exact = 4 * (6 * 3 + 1) / 4**6
    assert missing_by_level(fails, crossed, clusters=inputs.tolist()) == pytest.approx(exact, abs=0.01)


@pytest.mark.slow
def test_an_audit_has_a_finding_of_missing_judgments():
    items, _, absent = rows(
        lost=lambda quality, length, rng: rng.random(len(quality)) < 1 / (1 + np.exp(2 + 1.5 * quality))
    )
    found = audit(items, scores_field="mine", scale=(1, 5))
    lost = found.missing
    assert (lost.n, lost.missing) == (300, absent.sum())
    assert {*lost.dependence} == {"quality", "length", "system"}
    assert lost.dependence["quality"].p_adjusted < 0.01 > lost.dependence["quality"].p_value
    assert lost.dependence["quality"].difference < -0.5
    assert f"{absent.sum()} of 300 judgments are missing (" in found.paragraphs[3]
    assert lost.by_system == {f"system {k}": (absent[k::4].sum(), 75) for k in range(4)}
    told = found.to_dict()["missing_judgments"]
    assert (told["missing"], told["by_system"]["system 1"]) == (absent.sum(), [absent[1::4].sum(), 75])
    assert [row[1:3] for row in lost.table().rows[:1]] == [("300", f"{absent.sum()}")]
    view = " ".join(str(part) for part in audit_view(found).renderables)
    assert "judgments are missing" in view
    whole_items, *_ = rows(lost=lambda quality, length, rng: np.zeros(len(quality), dtype=bool))
    assert audit(whole_items, scores_field="mine").missing is None


def test_missing_at_random_is_said_not_to_depend_on_anything():
    found = audit(rows()[0], scores_field="mine", scale=(1, 5), only="verbosity")
    assert "No dependence on quality, length and system is shown." in found.verdict


def test_inputs_lost_as_a_whole_depend_on_the_input_alone():
    rng = np.random.default_rng(5)
    judged = scored(rng, 200)
    whole = dataclasses.replace(judged, inputs=[f"{k // 5}" for k in range(200)])
    whole.answers[np.repeat(rng.random(40) < 0.3, 5)] = np.nan
    dependence = missing_judgments(whole, seed=0).dependence
    shown = {name for name, test in dependence.items() if test.p_adjusted < 0.05}
    assert shown - {"system"} == {"input"} < {*dependence} - {"system"} == {"quality", "length", "input"}


def test_many_inputs_are_drawn_as_few_are():
    levels = [f"{k // 2}" for k in range(400)]
    apart, together = np.arange(400) % 8 == 0, np.arange(400) % 8 < 2
    assert missing_by_level(apart, levels) == 1.0
    assert missing_by_level(together, levels) == pytest.approx(1 / 2001)


def test_of_pairs_both_systems_count():
    rng = np.random.default_rng(5)
    judged = compared(rng, 200, verdicts=True)
    judged.answers[:12] = np.nan
    lost = missing_judgments(judged, seed=0)
    assert lost.missing == 12
    for name in ("mine", "other"):
        wrote = [name in pair for pair in judged.writers]
        assert lost.by_system[name] == (sum(wrote[:12]), sum(wrote))
    apart = np.abs(np.nanmean(judged.ratings, axis=1))
    judged.answers[:] = 0.5
    judged.answers[apart > np.quantile(apart, 0.8)] = np.nan
    dependence = missing_judgments(judged, seed=0).dependence["quality"]
    assert dependence.difference > 0
    assert dependence.words.startswith("more often for pairs that differ more in quality (")
    assert missing_judgments(scored(rng, 100), seed=0) is None


def test_base_models_without_a_verdict_are_found_on_recorded_judgments(recorded):
    items = [
        {"source": a["source"], "system": a["system"], "score": a["human"], "mine": a.get("Llama-70B")}
        | {"output": f"answer {k % 9}"}
        for k, a in enumerate(recorded("triviaqa_verdicts"))
    ]
    lost = audit(items, scores_field="mine", scale=(0, 1)).missing
    assert (lost.n, lost.missing) == (3600, 135)
    assert lost.dependence["system"].p_adjusted < 0.01
    assert "32 % of llama2-13b-base" in lost.dependence["system"].words
    assert lost.by_system["llama2-13b-base"] == (130, 400)
