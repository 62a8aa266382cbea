"""What findings at equal quality take for granted about the raters."""

import re
from dataclasses import replace

import numpy as np
import pytest
from planted import by_hand, scored
from scipy import stats

from evalbias import audit, jury
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.findings import Finding, _in_one_model, reasons_of
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS
from evalbias.measures import EqualQuality
from evalbias.measures.missing import selected_columns
from evalbias.measures.ratings import dependent_columns


@pytest.fixture(scope="session")
def summeval(recorded):
    """SummEval's summaries with recorded judgments, and their log-likelihoods."""
    return recorded("summeval_scores")


@pytest.mark.parametrize(("judge", "criterion", "feature", "least", "estimated"), [
    ("gpt-4-0314", "coherence", "likelihood", 0.64, 0.86),
    ("gpt-4-0314", "fluency", "likelihood", 0.81, 0.90),
    ("gpt-4-0314", "relevance", "likelihood", 0.49, 0.79),
    ("gpt-4-0314", "coherence", "length", 0.04, 0.86),
    ("gpt-3.5-turbo-0301", "fluency", "likelihood", np.nan, 0.90),
])  # fmt: skip
def test_how_much_of_experts_ratings_must_be_error_to_explain_a_recorded_judge(
    summeval, judge, criterion, feature, least, estimated
):
    scored = [row for row in summeval if row["judges"][judge][criterion] is not None]
    given = [row["judges"][judge][criterion] for row in scored], [row["ratings"][criterion] for row in scored]
    values = [row["likelihood"] if feature == "likelihood" else np.log(len(row["output"])) for row in scored]
    model = EqualQuality(*given, {feature: values}, clusters=[row["input_id"] for row in scored])
    assert model.holding(feature) == pytest.approx((least, least - least + 1.0), abs=0.006, nan_ok=True)
    assert model.effect(feature).reliability == pytest.approx(estimated, abs=0.006)


def test_a_verdict_says_on_which_reliability_it_rests():
    found = audit_answers(scored(np.random.default_rng(1), 300, length=0.8), only="verbosity")
    e, (finding,) = found["verbosity"]["length_effect"], found.findings
    assert 0 < finding.holds[0] < e.reliability < finding.holds[1] == 1
    assert f"The finding of verbosity {finding.condition}." in found.verdict
    told = found.to_dict()["biases"]["verbosity"]
    assert (told["holds"], told["reliability"]) == ([*finding.holds], e.reliability)
    # a verdict that rests on no rating says nothing of raters
    rows = [{"outputs": ["a", "b"], "w": k % 2, "v": 1 - k % 2} for k in range(50)]
    assert "raters" not in audit(rows, winner_field="w", swapped_field="v").verdict


@pytest.mark.parametrize(("holds", "shares"), [
    ((0.411, 1.0), "42 % or more"), ((0.411, 0.958), "42 to 95 %"), ((0.798, 0.802), "80 to 80 %")
])  # fmt: skip
def test_conditions_name_the_shares_rounded_to_the_inside(holds, shares):
    e = Estimate("x", "x", value=1, low=0.5, high=1.5, n=9, undefined=0, reliability=0.8)
    said = f"holds if {shares} of the variance of the mean rating is quality, where 80 % is taken"
    assert Finding("verbosity", "biased", e, "", holds=holds).condition == said
    assert Finding("verbosity", "no sign", e, "").condition == ""


@pytest.mark.slow
def test_a_finding_that_rests_on_a_stated_reliability_names_it_and_that_at_which_it_ends():
    """Long outputs are the worse ones here: at reliability 1 their bonus is not shown."""
    rng = np.random.default_rng(1)
    quality, other = rng.normal(size=(2, 600))
    length = other - 0.5 * quality
    known = {HUMAN_SCORES: quality + 0.8 * rng.normal(size=600), LENGTHS: np.exp(5 + 0.3 * length)}
    judged = by_hand(quality + 0.12 * length + 0.7 * rng.normal(size=600), **known)
    (finding,) = audit_answers(judged, only="verbosity", reliability=0.5).findings
    assert finding.status == "biased"
    assert "if the reliability of one rating is .5" in finding.sentence
    least, greatest = finding.holds
    assert least < 0.5 < greatest < 0.7
    for reliability, status in ((least, "biased"), (greatest, "biased"), (greatest + 0.02, ""), (1.0, "")):
        (at,) = audit_answers(judged, only="verbosity", reliability=reliability).findings
        assert (at.status == "biased") == (status == "biased")


def by_systems(seed, *, systems=6, inputs=60, taste=0.3):
    """Scores of a judge with a taste for each system that has nothing to do with likelihood; LS differs by system."""
    rng = np.random.default_rng(seed)
    system, document = np.tile(np.arange(systems), inputs), np.repeat(np.arange(inputs), systems)
    quality = 0.5 * rng.normal(size=systems)[system] + 0.9 * rng.normal(size=len(system))
    likelihood = 0.6 * rng.normal(size=systems)[system] + 0.3 * quality + 0.7 * rng.normal(size=len(system))
    scores = 0.6 * quality + taste * rng.normal(size=systems)[system] + 0.7 * rng.normal(size=len(system))
    ratings = np.clip(np.round(3 + quality[:, None] + 0.8 * rng.normal(size=(len(system), 3))), 1, 5)
    options = {"clusters": document.tolist(), "systems": system.tolist()}
    return scores, ratings, {"likelihood": likelihood}, options


def test_the_error_over_inputs_and_systems_is_the_sum_less_what_both_share():
    scores, ratings, features, options = by_systems(3, inputs=20, taste=1.0)
    by = (options, {"clusters": options["clusters"]}, {"clusters": options["systems"]}, {})
    both, inputs, systems, items = (EqualQuality(scores, ratings, features, **one) for one in by)
    a, b, ab = (one.effect("likelihood").standard_error ** 2 for one in (inputs, systems, items))
    found = both.effect("likelihood")
    assert (found.units, found.systems) == (6, 6)
    assert found.standard_error**2 == pytest.approx(a + b - ab)
    half = stats.t.ppf(0.975, 5) * found.standard_error
    ends = found.value + np.array([-half, half]) - found.allowance[::-1]
    assert (found.low, found.high) == pytest.approx(ends)
    few = EqualQuality(scores, ratings, features, clusters=options["clusters"], systems=[k % 4 for k in range(120)])
    alone = replace(inputs.effect("likelihood"), few_systems=4)
    assert few.effect("likelihood") == alone  # four systems tell too little about others


def judged_by_systems(*, systems=6, taste=1.0):
    scores, ratings, features, options = by_systems(3, systems=systems, taste=taste)
    known = {LIKELIHOODS: features["likelihood"], RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}
    inputs, writers = (tuple(map(str, options[name])) for name in ("clusters", "systems"))
    return replace(by_hand(scores + 0.3 * known[LIKELIHOODS], **known), inputs=inputs, writers=writers)


def test_an_effect_among_these_systems_is_told_where_they_are_too_few_to_tell_of_others(snapshot):
    found = audit_answers(judged_by_systems(), only="likelihood")
    (finding,), within = found.findings, found["likelihood"]["likelihood_effect_within"]
    assert (finding.status, finding.estimate.systems, within.low > 0) == ("too few items", 6, True)
    assert f"deviation likelier gets {within.value * within.points:.2f} more points" in finding.open.within
    assert finding.open.within in finding.sentence
    assert f"Within these 6 systems, {finding.open.within}; 6 systems do not show" in " ".join(found.first_screen)
    assert len(finding.remedy) > 9
    assert finding.remedy in found.verdict
    assert [finding.sentence, " ".join(found.answer)] == snapshot
    (finding,) = audit_answers(judged_by_systems(systems=3, taste=0.0), only="likelihood").findings
    assert (finding.status, finding.estimate.systems, finding.open.within) == ("biased", 0, "")
    assert finding.condition.endswith(", and is clustered by input only (3 systems)")


def test_an_interval_that_does_not_know_of_systems_says_so(snapshot):
    judged = judged_by_systems(systems=4, taste=0.0)
    writers = [f"s{k}" if k < 4 else writer for k, writer in enumerate(judged.writers)]
    ratings = judged.covariates[RATINGS].copy()
    ratings[:4] = np.nan  # outputs of other systems, which the estimate does not use
    known = {**judged.covariates, RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}
    (finding,) = audit_answers(replace(judged, writers=writers, covariates=known), only="likelihood").findings
    assert finding.condition.endswith(", and is clustered by input only (4 systems)")
    apart = replace(judged, inputs=judged.ids)
    (finding,) = audit_answers(apart, only="likelihood").findings
    assert finding.condition.endswith(", and is over items only (4 systems)")
    joint = replace(finding.estimate, name="likelihood")
    calm = replace(finding, status="too few items", estimate=replace(finding.estimate, value=0.1, low=-0.1, high=0.3))
    revealed = _in_one_model(calm, BIASES["likelihood"], joint, judged, 0.001)
    assert (revealed.status, revealed.hidden) == ("biased", True)
    assert revealed.condition.endswith(", and is over items only (4 systems)")
    clear = replace(calm, status="no sign", margin_in_words="an effect of 0.2 points or more", remedy="")
    assert [*reasons_of([clear])] == snapshot


def test_gpt_4s_taste_for_likely_summaries_is_shown_within_systems_and_not_for_others(summeval):
    rows = [{**row, "score": row["judges"]["gpt-4-0314"]["coherence"]} for row in summeval]
    given = [row["score"] for row in rows], [row["ratings"]["coherence"] for row in rows]
    likelihood, systems = [row["likelihood"] for row in rows], [row["system"] for row in rows]
    inputs = [row["input_id"] for row in rows]
    alone = EqualQuality(*given, {"likelihood": likelihood}, clusters=inputs, systems=systems).effect("likelihood")
    assert (alone.value, alone.standard_error) == (pytest.approx(0.187, abs=0.001), pytest.approx(0.100, abs=0.001))
    assert alone.systems == 12
    assert alone.low < 0 < alone.high
    held = {name: np.array(systems) == name for name in sorted(set(systems))[1:]}
    within = EqualQuality(*given, {"likelihood": likelihood, **held}, clusters=inputs, unscaled=[*held])
    within = within.effect("likelihood")
    assert [within.value, within.low, within.high] == pytest.approx([0.100, 0.025, 0.190], abs=0.001)


def rated(n=60, *, seed=0):
    rng = np.random.default_rng(seed)
    quality, length = rng.normal(size=(2, n))
    ratings = np.clip(np.round(3 + quality[:, None] + 0.7 * rng.normal(size=(n, 2))), 1, 5)
    scores = quality + 0.2 * length + 0.5 * rng.normal(size=n)
    rows = [{"output": f"the text of output {k} " + "x" * int(30 + 9 * length[k]), "mine": scores[k]} for k in range(n)]
    return [row | {"rating_1": a, "rating_2": b} for row, (a, b) in zip(rows, ratings.tolist(), strict=True)], ratings


@pytest.mark.parametrize(("third", "others"), [
    (lambda ratings: ratings[:, 0], "rating_1"),
    (lambda ratings: ratings.mean(axis=1).round(2), "rating_1 and rating_2"),
    (lambda ratings: ratings.sum(axis=1), "rating_1 and rating_2"),
])  # fmt: skip
def test_a_column_that_follows_from_others_is_named_and_is_no_rater(third, others):
    two, ratings = rated()
    three = [{**row, "rating_3": c} for row, c in zip(two, third(ratings).tolist(), strict=True)]
    plain, found = (audit(items, scores_field="mine") for items in (two, three))
    assert found.judged.provenance["copied_ratings"] == {"rating_3": others}
    assert f"Ratings were left out (rating_3 follows from {others})" in found.verdict
    assert "left out" not in plain.verdict
    np.testing.assert_array_equal(found.judged.ratings, ratings)
    assert found["verbosity"]["length_effect"] == plain["verbosity"]["length_effect"]
    copied = [{**row, "rating_2": row["rating_1"]} for row in two]
    alone = audit(copied, scores_field="mine")  # a second column that copies the first leaves one rating
    assert np.isnan(alone["verbosity"]["length_effect"].value)


def test_raters_who_only_agree_well_are_kept():
    _, ratings = rated(200)
    assert dependent_columns(ratings) == {}
    often = np.where(np.arange(200)[:, None] % 20 == 0, ratings, ratings[:, :1])  # alike on 19 of 20 items
    assert dependent_columns(often) == {}
    assert dependent_columns(ratings[:19, [0, 0]]) == {}  # of few items, two people may give the same
    assert dependent_columns(np.column_stack([ratings, np.full(200, 3.0)])) == {}
    gaps = ratings.copy()
    gaps[:40, 1] = np.nan
    assert dependent_columns(np.column_stack([gaps, gaps[:, 0]])) == {2: [0]}
    assert dependent_columns(np.column_stack([ratings.mean(axis=1), ratings])) == {0: [1, 2]}  # the mean, not a part


def people(n=400, *, seed=3, verdicts=False):
    """Quality, log length, which goes with it, and three people's ratings."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    length = 0.6 * quality + 0.8 * rng.normal(size=n)
    seen = quality[:, None] + rng.normal(size=(n, 3))
    return quality, length, (seen > 0).astype(float) if verdicts else np.clip(np.round(3 + seen), 1, 5)


def adjudicated(ratings):
    return np.where([False, False, True] & (np.abs(ratings[:, :1] - ratings[:, 1:2]) < 2), np.nan, ratings)


def in_teams(ratings):
    """Ratings (400, 12) by four teams of three who share out the items."""
    return np.where(np.kron(np.eye(4), np.ones((100, 3))) > 0, np.tile(ratings, 4), np.nan)


def judged_rows(ratings, length, **judges):
    rows = [{"output": f"{k:04d}" + "x" * round(120 * np.exp(0.4 * x))} for k, x in enumerate(length)]
    for k, (row, given) in enumerate(zip(rows, ratings.tolist(), strict=True)):
        row |= {name: values[k].tolist() for name, values in judges.items()}
        row |= {f"rating_{j + 1}": None if np.isnan(one) else one for j, one in enumerate(given)}
    return rows


def test_ratings_of_a_third_person_who_decides_are_named_and_left_out():
    quality, length, ratings = people()
    rng = np.random.default_rng(4)
    two = 3 + 0.6 * quality[:, None] + 0.4 * rng.normal(size=(400, 2))  # independent errors
    rows = judged_rows(adjudicated(ratings), length, mine=two[:, 0], other=two[:, 1])
    two_alone = [{**row, "rating_3": None} for row in rows]
    found, alone = (audit(some, scores_field="mine") for some in (rows, two_alone))
    assert found.judged.provenance["selected_ratings"] == ["rating_3"]
    assert "left out (rating_3)" in found.verdict
    assert "left out" not in alone.verdict
    assert found.findings[0].status == "no sign"  # verbosity, which would be .16 with a reliability of .82
    assert found.findings == alone.findings
    panel = jury(rows, judges=["mine", "other"])
    assert panel.errors.correlation.low < 0 < panel.errors.correlation.high  # .20 to .44 with the third ratings
    assert "left out (rating_3)" in panel.paragraphs[-1]
    # parts of a disagreement with one rating: of the raters 1, of the judge's noise .16 / .36, and nothing else
    samples = [{**row, "mine": [row["mine"], row["other"]]} for row in rows]
    raters = audit(samples, samples_field="mine")["repeats"]["raters"]
    assert raters.low < 1 / (1 + 0.16 / 0.36) < raters.high  # .39 to .54 with the third ratings


def test_the_errors_of_two_annotators_are_not_tested_by_a_third_who_decides():
    quality, length, ratings = people(600, verdicts=True)
    ratings[ratings[:, 0] == ratings[:, 1], 2] = np.nan
    mine = (quality + np.random.default_rng(5).normal(size=600) > 0).astype(float)
    found = audit(judged_rows(ratings, length, mine=mine), scores_field="mine")["pass_or_fail"]
    assert np.isnan(found["dependence"].p_value)
    assert "three annotators" in found["dependence"].why_undefined


@pytest.mark.parametrize(("missing", "left_out", "doubtful"), [
    (lambda r, rng: np.where(rng.random(r.shape) < 0.3, np.nan, r), [], False),
    (lambda r, rng: adjudicated(r), [2], False),
    (lambda r, rng: np.column_stack([adjudicated(r), adjudicated(r)[:, 2]]), [2, 3], False),
    (lambda r, rng: rng.permuted(adjudicated(r), axis=1), [], True),  # nobody knows which one decided
    (lambda r, rng: np.where([False, True] & (r[:, :1] > 2), np.nan, r[:, :2]), [], True),  # a check of low ones
    (lambda r, rng: np.where([False, True] & (rng.random((len(r), 1)) < 0.5), np.nan, r[:, :2]), [], False),
    (lambda r, rng: r[:, :1], [], False),
    (lambda r, rng: in_teams(r + np.linspace(-1, 1, 4).repeat(100)[:, None]), [], False),  # each strict in its way
    (lambda r, rng: np.full((len(r), 2), np.nan), [], False),
])  # fmt: skip
def test_ratings_that_were_given_for_what_others_say(missing, left_out, doubtful):
    assert selected_columns(missing(people()[2], np.random.default_rng(0))) == (left_out, doubtful)


@pytest.mark.parametrize(("rater", "unrated", "words", "told"), [
    (0, [1], "rated depends on what its ratings say", True),  # a second rating of low ones alone
    (2, [0, 1], "rated outputs score 1.* deviations lower than the others", False),  # of those that score low
])  # fmt: skip
def test_ratings_that_are_asked_for_by_what_is_said_are_warned_of(rater, unrated, words, told):
    _, length, ratings = people()
    mine, high = ratings[:, 2].copy(), ratings[:, rater] > 2
    ratings[np.ix_(high, unrated)] = np.nan
    found = audit(judged_rows(ratings[:, :2], length, mine=mine), scores_field="mine", scale=(1, 5))
    assert any(re.search(words, warning) for warning in found.warnings)
    assert ("drawn at random" not in found.not_measured.get("scale_use", "")) is told


def test_rows_that_repeat_another_are_named():
    rows, _ = rated()
    found = audit([*rows, *rows[:4]], scores_field="mine")
    assert "4 of 64 items repeat another in every field (61 repeats 1, 62 repeats 2, 63 " in found.verdict
    assert "repeat" not in audit(rows, scores_field="mine").verdict
    once = audit(rows, scores_field="mine")["agreement"]["spearman"]
    ids = [{"source": "What is it?", "input_id": f"{k}", **row} for k, row in enumerate(rows)]
    copies = [row | {"input_id": f"copy {k}"} for k, row in enumerate(ids[::2])]
    for copied in (rows * 3, [*ids, *copies]):  # an export joined thrice; half of the items under other ids
        found = audit(copied, scores_field="mine")
        assert len({*found.judged.inputs}) == len(rows)
        assert f"{len(copied) - len(rows)} of {len(copied)} items repeat another in every field" in found.verdict
        again = found["agreement"]["spearman"]
        assert again.high - again.low > 0.95 * (once.high - once.low)
    short = [{"output": "yes", "mine": 1.0, "score": 1.0}] * 30
    assert "repeat" not in audit(short, scores_field="mine").verdict
