"""The audit: findings and verdicts of judges whose biases are known, and the published figures of recorded ones."""

import io
import json
import math
import re
import sys
from dataclasses import replace
from unittest import mock

import dspy
import numpy as np
import pytest
from commands import printed
from fakes import Comparer, FormulaLM, items, numbers
from planted import compared, rated_once, scored
from refusals import refusals

import evalbias
from evalbias.evaluation.answers import instruction_place_for, recorded_scores, resolve
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.biases import Verbosity
from evalbias.evaluation.findings import Finding, findings_of, lines_of, reasons_of
from evalbias.evaluation.words import coverage_warning
from evalbias.lm.cache import CachedLM
from evalbias.lm.types import ChoiceLogprobs
from evalbias.options import AuditOptions
from evalbias.programs.criterion import DEFAULT_TASK
from evalbias.programs.judges import LOW_COVERAGE
from evalbias.report.page import in_terminal

QUALITY, POLITE = evalbias.Criterion("quality", "is it good?"), evalbias.Criterion("polite", "is it polite?")
OF_EACH = {"scores_field": "{criterion}/mine"}


def first_places(n, *, first):
    """Pairs of which the judge takes the first position in a share of them, else the better output."""
    winners = [(0, 1) if i < first * n else (i % 2, i % 2) for i in range(n)]
    pairs = [{"id": i, "source": f"s{i}", "outputs": ["an output", "the other"], "better": i % 2} for i in range(n)]
    return [pair | {"winner": a, "winner_swapped": b} for pair, (a, b) in zip(pairs, winners, strict=True)]


def of_pairs(pairs):
    return evalbias.audit(pairs, winner_field="winner", swapped_field="winner_swapped")


def of_scores(rows, **options):
    return evalbias.audit(rows, scores_field="mine", scale=(1, 5), **options)


def about(audit, bias):
    (finding,) = [f for f in audit.findings if f.bias == bias]
    return finding


def test_a_taste_for_the_first_position_is_found():
    found = of_pairs(first_places(200, first=0.4))
    finding = about(found, "position")
    assert finding.status == "biased"
    assert finding.estimate.value == pytest.approx(0.2)  # wins 70 of 100
    screen = "\n".join(found.first_screen)
    assert repr(found) == f"AuditReport(recorded choices 'winner' on quality, n=200):\n{screen}"
    first, whole = (printed(in_terminal(found, full=full)).split("\n") for full in (False, True))
    assert [*filter(None, first)] == [*found.first_screen] == whole[: len(found.first_screen)]
    assert {*found.basis} - {*whole} == {one for one in found.basis if one in screen}  # nothing is said twice
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    position = content["biases"]["position"]
    assert position["estimate"] == pytest.approx(0.2)
    assert 0 < position["low"] < 0.2 < position["high"]
    assert (position["null"], position["n"], position["undefined"]) == (0, 200, 0)
    assert (content["verdict"], content["n"]) == (found.verdict, 200)
    assert {"position", "agreement"} <= {*found}
    with pytest.raises(KeyError, match=r"'likelihood' was not measured: it needs a model"):
        found["likelihood"]


def test_no_number_of_items_is_promised_that_is_there_already():
    pairs = first_places(100, first=0.26)
    for pair in pairs[26:44]:  # the second position wins these
        pair["winner"], pair["winner_swapped"] = 1, 0
    audited = of_pairs(pairs)
    finding = about(audited, "position")
    assert finding.estimate.low < 0 < finding.margin < finding.estimate.high
    assert finding.status == "too few items"
    assert finding.open.items_needed is None  # 91 find an effect of the margin's size in 80 % of samples
    assert "position (about" not in audited.verdict


def test_a_judge_that_hardly_answers_is_not_called_biased_before_that_is_said(snapshot):
    biased = [Finding("position", "biased", None, "the output shown first wins 70 of 100 comparisons", p_adjusted=0.01)]
    warnings = [coverage_warning({"": [coverage]}) for coverage in (1e-7, 0.096)]
    assert [lines_of(biased, [warning]) for warning in warnings] == snapshot
    for coverage in (LOW_COVERAGE, math.nan):
        assert not coverage_warning({"": [coverage], "tone": []})


RATED = [{"id": i, "source": f"s{i}", "output": "o" * (i + 1), "scores": {"wit": i % 4}} for i in range(9)]
RATED = [row | {"mine": row["id"] % 5} for row in RATED]
WIT, MINE, LM = evalbias.Criterion("wit", "is it witty?"), {"scores_field": "mine"}, {"lm": FormulaLM()}
UNRATED = "rated on 'Wit'; the items are rated on 'wit'"
OURS = [evalbias.PointwiseJudge(WIT), evalbias.PairwiseJudge(WIT)]


test_what_cannot_be_audited = refusals(
    lambda rows, options: evalbias.audit(rows, **options),
    (RATED, {}, "Name one judge"),
    (RATED, {"winner_field": "winner", **MINE}, "Name one judge"),
    ([{"output": "o", "mine": 1, "scores": {"a": 1, "b": 2}}], MINE, "several criteria, a, b"),
    *((RATED, {**MINE, "criterion": one}, UNRATED) for one in ("Wit", "Wit: is it?", replace(WIT, name="Wit"))),
    (RATED, {"judge": lambda item: item.mine, "criterion": "Wit"}, UNRATED),
    *((RATED, {"judge": one, **LM, "criterion": "tone: is it?"}, "`criterion` tone: .* wit") for one in OURS),
    *((RATED, {"judge": one, **LM, "scale": (0, 100)}, "`scale` 0-100: .* 1-5") for one in OURS),
    (RATED, {"judge": OURS[0], **LM, "no_cue": True}, "^`no_cue`: this judge has its own prompts"),
    (RATED, {"judge": OURS[0], **LM, "task": "Say it."}, "^`task` 'Say it.': this judge has its own task"),
    ([{"output": "q=2 z=0", "question": "s"}], {"judge": OURS[0], **LM}, "'source'"),
    ([{"source": "s", "outputs": ["q=2 z=0", "q=3 z=0"]}], {"judge": OURS[0], **LM}, "'output'"),
)


def test_a_judge_whose_answers_cannot_be_read_is_said_to_be_before_anything_else():
    class Unread(Comparer):
        def choice_logprobs(self, prompts, choices):
            return ChoiceLogprobs(tuple(choices), np.full((len(prompts), len(choices)), math.nan))

    report = evalbias.audit(
        first_places(12, first=0), judge=evalbias.PairwiseJudge(QUALITY), lm=Unread(likelihoods=False)
    )
    assert report.answer[0] == "Do not rely on this judge: 12 of 12 pairs got no answer that can be read."
    assert not report.next_step.command


def test_ratings_of_no_criterion_are_of_any():
    assert evalbias.audit(RATED, **MINE, criterion="wit")["agreement"]["spearman"].n == 9
    for label in ({"score": 3}, {"ratings": [3, 2]}):
        rows = [{**{k: v for k, v in row.items() if k != "scores"}, **label} for row in RATED]
        assert "agreement" in evalbias.audit(rows, **MINE, criterion="Wit").measurements


@pytest.mark.slow
def test_what_a_judge_of_ours_already_says_may_be_said_again():
    judge, examples = evalbias.PointwiseJudge(QUALITY), rated_texts(30, 2)
    said = evalbias.audit(examples, judge=judge, lm=FormulaLM(), criterion="quality", scale=(1, 5))
    assert repr(said.to_dict()) == repr(evalbias.audit(examples, judge=judge, lm=FormulaLM()).to_dict())
    other = evalbias.audit(examples, judge=evalbias.PointwiseJudge(POLITE), lm=FormulaLM()).not_measured
    assert other["verbosity"] == "it needs people's ratings on 'polite' (the items are rated on 'quality')"


def rated_texts(n, seed):
    """Texts whose quality and likelihood are known, each rated by two people with noise."""
    rng = np.random.default_rng(seed)
    made = items(n, seed)
    for item in made:
        quality = numbers(item.output)[0]
        item.ratings = {"quality": [float(quality + noise) for noise in rng.normal(0, 0.5, 2)]}
    return made


@pytest.mark.slow
def test_a_judge_of_ours_is_asked_and_its_own_model_tells_likelihoods():
    judge, examples = evalbias.PointwiseJudge(QUALITY), rated_texts(200, 1)
    biased = evalbias.audit(examples, judge=judge, lm=FormulaLM(bias=0.5))
    found = about(biased, "likelihood")
    assert found.status == "biased"
    assert biased.judged.judge == "pointwise judge on fake/formula"
    judged = evalbias.judge_examples(judge, examples, lm=FormulaLM(bias=0.5), likelihood_lm="own")
    points = found.estimate.value * judged.answers.std()  # one standard deviation of z is about one
    assert f"gets {points:.2f} more points" in found.sentence
    assert found.remedy.startswith("'evalbias optimize --aim likelihood --criterion CRITERION")
    recorded = [e.copy(mine=score) for e, score in zip(examples, biased.judged.answers, strict=True)]
    others = about(evalbias.audit(recorded, **MINE, likelihood_lm=FormulaLM(bias=0.5)), "likelihood")
    assert others.remedy.startswith("'evalbias correct' with this audit's data, field and likelihood model")
    assert others.estimate == found.estimate
    fair = about(evalbias.audit(examples, judge=judge, lm=FormulaLM(bias=0.0)), "likelihood")
    assert fair.status == "no sign"
    assert fair.remedy == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_and_a_notebook_get_a_bar_of_the_models_answers(monkeypatch):
    examples = [e.copy(mine=float(i % 5)) for i, e in enumerate(items(80, 3))]

    def shown(stderr, examples=examples, **options):
        lm = FormulaLM()
        lm.chunk = 16
        monkeypatch.setattr(sys, "stderr", stderr)
        found = evalbias.audit(examples, likelihood_lm=lm, seed=0, only="likelihood", **options)
        return stderr.getvalue(), found.to_dict(), lm

    recorded = {"scores_field": "mine"}
    silent, expected, _ = shown(io.StringIO(), **recorded)
    drawn, found, lm = shown(Terminal(), **recorded)
    assert silent == ""
    assert re.search(r"100%.* 80/80 \[.*answers/s", drawn)
    assert lm.batches == [16] * 5  # it moves while likelihoods are measured
    assert found == expected
    assert shown(Terminal(), progress=False, **recorded) == ("", expected, mock.ANY)
    counted = []
    by_user = shown(Terminal(), judge=lambda example: example.mine, progress=counted.append)
    assert (by_user[0], sum(counted)) == ("", 80)
    asked = shown(Terminal(), judge=evalbias.PointwiseJudge(QUALITY), lm=FormulaLM())[0]
    assert "160/160" in asked  # the judgments and the likelihoods
    monkeypatch.setitem(sys.modules, "ipykernel", mock.Mock())
    assert "80/80" in shown(io.StringIO(), **recorded)[0]
    assert shown(io.StringIO(), progress=False, **recorded)[0] == ""


def test_a_model_without_likelihoods_is_audited_on_the_rest(tmp_path):
    file = tmp_path / "judge.json"
    evalbias.PointwiseJudge(QUALITY).save(str(file))
    examples = rated_texts(30, 2)
    found = evalbias.audit(examples, judge=file, lm=FormulaLM(likelihoods=False))
    assert found.not_measured["likelihood"] == "This server returns no likelihoods: name another model."
    other = evalbias.audit(examples, judge=file, lm=FormulaLM(likelihoods=False), likelihood_lm=FormulaLM())
    assert "likelihood" in other.measurements


def test_a_judge_that_averages_both_orders_has_no_position_bias_by_construction():
    judge = evalbias.PairwiseJudge(QUALITY, debias="permutation")
    pairs = [{"source": f"s{i}", "outputs": ["q=2 z=0", "q=3 z=0"]} for i in range(4)]
    found = evalbias.audit(pairs, judge=judge, lm=Comparer(lean=1.0), likelihood_lm=FormulaLM())
    assert about(found, "position").status == "no sign"
    plain = evalbias.PairwiseJudge(QUALITY)
    asked = evalbias.audit(pairs, judge=plain, lm=Comparer(lean=1.0), likelihood_lm=FormulaLM())
    assert asked["position"]["first_rate"].value > 0.5


def test_groups_of_pairs_stand_side_by_side():
    pairs = [("length bias", "It, at great length."), ("length bias", "It, at great length."), ("concreteness", "7")]
    items = [{"bias": kind, "source": "Say it.", "outputs": ["It.", other], "better": 0} for kind, other in pairs]

    def longer(pair):
        first, second = pair.candidates
        return int(len(second) > len(first))

    found = evalbias.audit(items, judge=longer, by="bias")
    assert {kind: m["accuracy"].value for kind, m in found.groups.items()} == {"length bias": 0, "concreteness": 1}
    assert (found.judged.judge, found.judged.asked.judgments) == ("the judge longer", 6)


class Asked(FormulaLM):  # keep the task of each likelihood, and the words before the source
    def loglikelihood(self, pairs, **options):
        self.tasks = {context[0]["content"] for context, _ in pairs}
        self.labels = {context[1]["content"].partition(":")[0] for context, _ in pairs}
        return super().loglikelihood(pairs, **options)


def test_the_task_of_recorded_answers_defines_their_likelihoods():
    lm, texts = Asked(), [e.copy(mine=float(i % 5)) for i, e in enumerate(rated_texts(12, 3))]
    recorded = {"scores_field": "mine", "likelihood_lm": lm, "only": "likelihood"}
    found = evalbias.audit(texts, **recorded, task="Summarise the article.")
    assert lm.tasks == {"Summarise the article."}
    assert found.provenance["task"] == "Summarise the article."
    assert lm.labels == {"Source"}
    evalbias.audit(texts, **recorded, source_label="Article")
    assert lm.labels == {"Article"}
    general = evalbias.audit(texts, **recorded)
    assert lm.tasks == {general.provenance["task"]} == {DEFAULT_TASK}
    assert "task" not in evalbias.audit(texts, scores_field="mine").provenance


def bare_scores(n, **fields):
    return [{"id": str(i), "output": "word " * (1 + i % 7), "mine": 1 + i % 5, **fields} for i in range(n)]


def test_one_rating_off_the_scale_is_named_where_it_prevents_a_test():
    rated = [{**e, "ratings": [1 + i % 5, 1 + (i + (i % 11 == 0)) % 5]} for i, e in enumerate(bare_scores(30))]
    assert "scale_use" not in of_scores(rated).not_measured
    rated[7]["ratings"] = [3, 11]
    assert "outside 1 to 5 are the ratings of 1 item, such as '7' with 11" in of_scores(rated).not_measured["scale_use"]


def test_only_what_is_missing_is_asked_for(snapshot):
    audited = of_scores(bare_scores(30))
    shown = printed(in_terminal(audited, full=True))
    assert "0 is no bias" not in shown  # no empty table
    assert "\nScale use\n" in shown
    rated = bare_scores(30, source="s", ratings=[3, 4], system="gpt")
    several = [{**rated[0], "system": "claude"}, *rated[1:]]
    found = [audited, of_scores(rated, own_system="gpt"), of_scores(several, own_system="GPT")]
    assert [dict(audit.not_measured) for audit in found] == snapshot


def test_a_table_of_numbers_that_tell_no_bias_says_why():
    pairs = [{"id": str(i), "outputs": ["word " * (1 + i % 7), "a word"], "mine": "AB"[i % 3 == 0]} for i in range(40)]
    audited = evalbias.audit(pairs, winner_field="mine")
    shown = " ".join(printed(in_terminal(audited, full=True)).split())
    _, position, verbosity = shown.split("Not measured: the quality of the outputs may explain all numbers")
    assert "it needs choices in both orders" in position
    assert "it needs people's choices between the outputs" in verbosity
    assert "Findings" not in shown  # none


def test_two_audits_are_compared_by_one_bias():
    before, after = (of_scores(in_points(60, slope=slope)) for slope in (1.0, 0.5))
    with pytest.raises(TypeError, match="type AuditReport"):
        evalbias.evaluation.compare_judges(before, after, seed=0)
    both = before["scale_use"], after["scale_use"]
    change = evalbias.evaluation.compare_judges(*both, n_resamples=99, seed=0)["slope"]
    assert change.difference.value == pytest.approx(after["scale_use"]["slope"].value - change.before.value)


def test_a_slope_that_is_tolerated_is_said_to_be():
    found = of_scores(in_points(800, slope=0.92), only="scale_use")
    finding = about(found, "scale_use")
    assert finding.status == "no sign"
    assert finding.estimate.high < 0
    assert finding.sentence.endswith(", where 0.9 and more is unbiased")
    assert "(-0.1 and more is no bias)" in " ".join(printed(in_terminal(found, full=True)).split())
    assert "is no bias)" not in printed(in_terminal(of_scores(in_points(800), only="scale_use"), full=True))


@pytest.mark.parametrize("verdicts", [False, True])
def test_only_verdicts_are_counted_as_wins(verdicts):
    judged = compared(np.random.default_rng(0), 300, length=0.4, verdicts=verdicts)
    measurement = evalbias.measure(evalbias.BIASES["verbosity"], judged, seed=0)
    (finding,) = findings_of({"verbosity": measurement}, judged, {})
    e, deviation = finding.estimate, np.sqrt(np.mean(measurement.numbers["length_effect"].values ** 2))  # both ways
    shifts = deviation * np.array([e.value, e.low, e.high])
    value, low, high = (f"{p:.0f}" for p in (50 + 50 * shifts if verdicts else 100 / (1 + np.exp(-shifts))))
    # of log-odds: how many decisions they turn depends on how even the pairs are
    words = f"wins {value} of 100 pairs of" if verdicts else f"gets a win probability of {value} %"
    assert words in finding.sentence
    assert finding.sentence.endswith(f"interval {low} to {high})")
    if verdicts:
        bounds = replace(e, value=np.nan, low=-9.0, high=9.0)
        assert "wins between 0 and 100 of 100 pairs" in Verbosity().sentence(bounds, judged)


def test_items_with_one_rating_are_left_out_and_those_that_share_inputs_are_counted_in_inputs():
    judged = scored(np.random.default_rng(3), 60)
    found = audit_answers(rated_once(judged, 18))
    open_ = about(found, "verbosity")
    assert (open_.estimate.n, open_.estimate.undefined) == (42, 18)
    assert "leave out 18 items with one rating" in " ".join(printed(in_terminal(found, full=True)).split())
    open_ = about(audit_answers(replace(judged, inputs=[str(i // 5) for i in range(60)])), "verbosity")
    inputs = math.ceil(open_.open.items_needed / 5)
    assert open_.open.settled_by == f"about {inputs} inputs ({open_.open.items_needed} items) would be enough"


def test_what_the_ends_of_the_scales_may_explain_no_number_of_items_tells(snapshot):
    judged = scored(np.random.default_rng(2), 3000, likelihood=0.02)
    measurement = evalbias.measure(evalbias.BIASES["verbosity"], judged, seed=0)
    wide = replace(measurement["length_effect"], value=0.01, low=-0.05, high=0.27, p_value=0.9, allowance=0.21)
    (finding,) = findings_of({"verbosity": replace(measurement, estimates={"length_effect": wide})}, judged, {})
    assert (finding.status, finding.open.items_needed, finding.condition) == ("bounds only", None, "")
    assert [finding.open.settled_by, *reasons_of([finding])] == snapshot
    shown = replace(wide, low=0.1, high=0.6, p_value=0.001)  # what lies beyond the allowance is found as ever
    (finding,) = findings_of({"verbosity": replace(measurement, estimates={"length_effect": shown})}, judged, {})
    assert (finding.status, finding.open.settled_by) == ("biased", "")


@pytest.mark.slow
@pytest.mark.parametrize(("reliability", "length"), [(0.25, 0.0), (0.8, 1.0)])
def test_one_rating_an_item_gives_bounds_whatever_they_hold(reliability, length):
    """Half of a rating's variance may be noise for the bounds to hold: of an honest judge they exclude 0 here."""
    rng, noise = np.random.default_rng(0), math.sqrt(1 / reliability - 1)
    judged = scored(rng, 800, length=length, raters=1, noise=noise)
    found = audit_answers(judged)
    assert about(found, "verbosity").estimate.low > 0
    for name in ("verbosity", "likelihood"):
        finding = about(found, name)
        assert finding.status == "bounds only"
        assert finding.condition == "holds if the reliability of one rating is .5 or more"
        content = found.to_dict()["biases"][name]
        assert (content["status"], content["condition"]) == (finding.status, finding.condition)
    assert not found.having("biased")
    assert "bounds only" in printed(in_terminal(found, full=True))
    stated = about(audit_answers(judged, reliability=reliability), "verbosity")
    assert stated.status == ("biased" if length else "too few items")


def in_points(n, *, slope=1.0):
    """Scores on the raters' scale that rise by ``slope`` for one point of quality."""
    rng = np.random.default_rng(5)
    quality = rng.integers(1, 6, size=n)
    ratings = np.clip(quality[:, None] + rng.integers(-1, 2, size=(n, 2)), 1, 5).tolist()
    lengths = rng.integers(5, 40, size=n)
    scores = np.clip(3 + slope * (quality - 3) + rng.integers(-1, 2, size=n), 1, 5).tolist()
    rows = zip(quality, ratings, scores, lengths, strict=True)
    return [{"id": i, "output": "x" * k, "ratings": r, "mine": s} for i, (_, r, s, k) in enumerate(rows)]


def test_a_judge_that_repeats_people_is_not_called_unbiased():
    rows = [row | {"mine": row["ratings"][0], "ratings": row["ratings"][:1] * 3} for row in in_points(8)]
    assert {f.status for f in of_scores(rows).findings} == {"not measured"}


def test_the_embedded_judge_is_asked_as_it_was_trained_with_the_instruction_first():
    embedded, given = evalbias.embedded_judge_lm(), {"data": first_places(4, first=0), "criterion": QUALITY}
    for lm, place in ((embedded, "first"), (CachedLM(embedded), "first"), ("embedded", "first"), (Comparer(), "last")):
        assert instruction_place_for(lm) == place
        assert resolve(AuditOptions(**given, lm=lm)).judge.instruction_place == place
    assert instruction_place_for("a/folder/embedded") == instruction_place_for(None) == "last"


def test_one_bias_can_be_tested_by_itself():
    judged = scored(np.random.default_rng(3), 150, length=0.28, squeeze=0.8)
    all_, alone = (audit_answers(judged, only=only, seed=1) for only in (None, "verbosity"))
    (finding,) = alone.findings
    assert about(all_, "verbosity").p_adjusted > finding.p_adjusted == finding.estimate.p_value
    assert finding.estimate == about(all_, "verbosity").estimate
    assert alone.paragraphs[-1] == "Only verbosity was asked for: no other bias was tested."
    assert "Not measured" not in printed(in_terminal(alone, full=True))
    assert {*alone.not_measured} == {"likelihood", "self_preference", "scale_use"}
    assert alone.provenance["only"] == "verbosity"
    assert "only" not in all_.provenance
    assert {*all_.measurements} - {*alone.measurements} == {*alone.not_measured}
    assert of_scores(bare_scores(30), only="verbosity").provenance["only"] == "verbosity"
    with pytest.raises(ValueError, match="only='position'"):
        audit_answers(judged, only="position")


def rated_on_two(n=80):
    """Items rated on two criteria; the judge of one of them likes length, and gives the other no thought."""
    rng = np.random.default_rng(5)
    words, quality = rng.integers(2, 40, n), rng.normal(size=(n, 2))
    raters = np.clip(np.round(3 + quality[:, :, None] + 0.3 * rng.normal(size=(n, 2, 2))), 1, 5)
    long = np.clip(np.round(3 + quality[:, 0] + (words - 20) / 12), 1, 5)
    answers = [{"wit/mine": float(long[i]), "tone/mine": float(raters[i, 1, 0])} for i in range(n)]
    rated = [{"ratings": {"wit": wit, "tone": tone}} for wit, tone in raters.tolist()]
    return [{"id": f"i{i}", "output": "word " * int(words[i]), **rated[i], **answers[i]} for i in range(n)]


def test_an_audit_of_several_criteria_is_each_with_one_error_over_all():
    rows = rated_on_two()
    both = evalbias.audit(rows, **OF_EACH, criterion="all", scale=(1, 5))
    assert list(both) == ["wit", "tone"]
    assert both.judge == "recorded scores '{criterion}/mine'"
    for name in both:
        alone = evalbias.audit(rows, scores_field=f"{name}/mine", criterion=name, scale=(1, 5))
        assert both[name].measurements["verbosity"].estimates == alone.measurements["verbosity"].estimates
        p_values = [(one.p_adjusted, about(alone, one.bias).p_adjusted) for one in both[name].findings]
        assert sum(p == p for p, _ in p_values) == 2
        np.testing.assert_array_equal(*zip(*((p, np.minimum(1, 2 * q)) for p, q in p_values), strict=True))
    assert both.verdict.startswith("The judge is biased on wit (verbosity). No bias was found on tone. ")
    assert "Findings are adjusted for all 2 criteria together" in both.verdict
    assert both.to_dict()["criteria"]["wit"]["provenance"]["criteria"] == 2
    short = {**OF_EACH, "only": "verbosity"}
    assert [*evalbias.audit(rows, **short, criterion=["tone"])] == ["tone"]
    assert evalbias.audit(rows, **short, criterion="tone").judged.criterion == "tone"
    assert "All criteria" in both._repr_html_()


def test_the_verdict_over_criteria_says_what_is_open_and_what_could_not_be_measured(snapshot):
    """Nothing measured, and too few items to measure, are no clean bill of health."""
    rows = [{"output": "word " * (n % 9 + 1), "c": n % 3, "tone": n % 4, "wit": n % 2} for n in range(400)]
    rng = np.random.default_rng(0)
    rated = [row | {"ratings": {"tone": (row["tone"] + rng.normal(size=2)).tolist()}} for row in rows]
    asked = ((rows, ["c", "tone"]), (rows, ["c"]), (rated[:14], ["tone"]), (rated, ["tone"]))
    found = [evalbias.audit(items, scores_field="{criterion}", criterion=criteria) for items, criteria in asked]
    assert found[0].judge == "recorded scores '{criterion}'"  # and no c in "recorded scores" is a criterion's
    assert [audit.verdict for audit in found] == snapshot


def test_a_bias_at_the_edge_is_none_among_several_criteria():
    judged = recorded_scores([dspy.Example(row) for row in rated_on_two(18)], "wit/mine", criterion="wit")
    p = about(audit_answers(judged, only="verbosity"), "verbosity").p_adjusted
    for criteria in (int(0.049 / p), int(0.051 / p) + 1):
        finding = about(audit_answers(judged, only="verbosity", criteria=criteria), "verbosity")
        assert (finding.status == "biased") == (criteria * p < 0.05)
        assert finding.p_adjusted == pytest.approx(min(1, criteria * p))


test_criteria_that_cannot_be_told_apart_are_refused = refusals(
    lambda rows, options: evalbias.audit(rows, **{"criterion": "all", **options}),
    (rated_on_two(8), {"scores_field": "wit/mine"}, "one answer an item"),
    (rated_on_two(8), {"judge": len}, "`judge` answers one question"),
    (rated_on_two(8), {"scores_field": "{criterion}/his"}, "'wit/his'"),
    ([{"output": "a", "score": 1, "mine": 1}], {"scores_field": "{criterion}"}, "people rated none by name"),
    ([{"output": "a", "score": 1, "wit": 1, "tone": 1}], {**OF_EACH, "criterion": ["wit", "tone"]}, "'1' has one"),
    (rated_on_two(8), {**OF_EACH, "criterion": ["wit", "wit"]}, "wit, wit"),
    (rated_on_two(8), {**OF_EACH, "criterion": None}, "field of a criterion"),
)
