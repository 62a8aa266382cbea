"""A judge that passes or fails: what an audit says first, to a person; and recorded judges beside their annotators."""

import math
import re

import numpy as np
import pytest

import evalbias
from evalbias.evaluation import BIASES, compare_judges, measure, recorded_scores
from evalbias.evaluation.verdicts import labels_to_decide
from evalbias.measures import corrected_rate, estimate_rate
from evalbias.report.page import sections

NAN = math.nan


def rows_of(*counts):
    """Rows without texts: how often the judge passes and fails what people pass, and what they fail."""
    kinds = [(1, 1), (0, 1), (1, 0), (0, 0)]
    return [{"mine": mine, "score": people} for (mine, people), n in zip(kinds, counts, strict=True) for _ in range(n)]


def audited(rows, **options):
    return evalbias.audit(rows, scores_field="mine", **options)


def annotated(rng, n, judge, annotators, prevalence=0.6):
    """Rows with a judge and annotators of given true positive and true negative rates."""
    deserving = rng.random(n) < prevalence
    said = [np.where(deserving, rng.random(n) < tpr, rng.random(n) >= tnr) for tpr, tnr in (judge, *annotators)]
    return [
        {"mine": int(mine), **{f"rating_{k}": int(one) for k, one in enumerate(others, 1)}}
        for mine, *others in zip(*said, strict=True)
    ]


def test_the_first_sentence_is_for_a_person(snapshot):
    found = audited(rows_of(190, 10, 20, 80))
    tpr, tnr = (found["pass_or_fail"][name] for name in ("tpr", "tnr"))
    assert (tpr.value, tpr.n, tpr.undefined, tnr.value, tnr.n) == (0.95, 200, 0, 0.8, 100)
    assert [*found.paragraphs[:2]] == snapshot
    # the wider half of the interval, .8 - .709, is to be .05: (.091 / .05) ** 2 times 300 labels
    assert f"About {math.ceil(300 * ((tnr.value - tnr.low) / 0.05) ** 2):,} labeled items" in found.paragraphs[1]
    assert found.to_dict()["further"]["pass_or_fail"]["tpr"]["value"] == 0.95
    (section,) = (one for one in sections(found) if one.title == "Pass or fail")
    assert section.finding == found.paragraphs[0]


UNANSWERED = [[{"mine": None, "score": people}] * 7 for people in (0, 1)]
COUNTED = {"enough": rows_of(950, 50, 100, 400), "nobody failed": rows_of(9, 1, 0, 0)}
COUNTED |= {"nobody passed": rows_of(0, 0, 9, 1), "no answer on those passed": rows_of(0, 0, 9, 1) + UNANSWERED[1]}
COUNTED |= {"no answer on those failed": rows_of(9, 1, 0, 0) + UNANSWERED[0]}
COUNTED |= {"some labeled": [*rows_of(45, 5, 5, 45), *[{"mine": 1}] * 300, *[{"mine": 0}] * 700]}


@pytest.mark.parametrize("case", COUNTED)
def test_what_is_said_of_counts(case, snapshot):
    assert [*audited(COUNTED[case]).paragraphs[:2]] == snapshot


def test_three_points_and_no_labels_are_no_verdicts():
    assert "pass_or_fail" not in audited([{**row, "mine": row["mine"] * 3} for row in rows_of(5, 5, 5, 5)]).measurements
    assert "rating_1" in audited([{"mine": 1}, {"mine": 0}]).not_measured["pass_or_fail"]


@pytest.mark.slow
def test_errors_of_annotators_are_none_of_the_judge():
    rng = np.random.default_rng(0)
    rows = annotated(rng, 600, (0.98, 0.97), [(0.85, 0.85)] * 3)
    found = audited(rows)
    numbers = found["pass_or_fail"]
    truths = {"tpr": 0.98, "tnr": 0.97, "annotator_tpr": 0.85, "annotator_tnr": 0.85, "prevalence": 0.6}
    for name, truth in truths.items():
        assert numbers[name].low <= truth <= numbers[name].high, name
    assert numbers["kappa"].low > numbers["annotator_kappa"].high  # it is better than any of them
    assert found["agreement"]["kappa"].value < 0.75  # although it often contradicts each
    assert numbers["dependence"].p_value > 0.05
    first, second, *_ = found.paragraphs
    assert re.search("^Where most people passed an answer, .* independent, it passes 9", first)
    assert second.startswith("A single annotator passes 8")
    assert "to be independent, against which nothing speaks (p = " in second
    # two cannot test it; one who is copied half of the time is found
    assert "but only three annotators or more" in audited([{**r, "rating_3": None} for r in rows]).paragraphs[1]
    copied = [{**row, "mine": row["rating_1"] if rng.random() < 0.5 else row["mine"]} for row in rows]
    assert "which they are not (p = " in audited(copied).paragraphs[1]
    chance = [{**row, **{f"rating_{k}": int(rng.random() < 0.5) for k in (1, 2, 3)}} for row in rows]
    assert "How often the judge is right cannot be told: the annotators are" in audited(chance).paragraphs[0]


def test_what_most_annotators_say_is_told_before_what_follows_if_errors_are_independent():
    """Of 100 answers each that two of three pass or fail, it passes 81 and fails 34; ties of two count for neither."""
    votes = {(1, 1, 0): (81, 19), (0, 1, 0): (66, 34), (1, 0, None): (7, 3)}
    rows = [
        {"mine": mine} | {f"rating_{k}": one for k, one in enumerate(given, start=1)}
        for given, counts in votes.items()
        for mine, count in zip((1, 0), counts, strict=True)
        for _ in range(count)
    ]
    shares = "the judge passed 81 of 100; where most failed it, it failed 34 of 100."
    assert audited(rows).paragraphs[0].startswith(f"Where most people passed an answer, {shares}")


def test_a_rate_of_all_items_where_people_labeled_some():
    rows = COUNTED["some labeled"]
    numbers = audited(rows)["pass_or_fail"]
    direct = corrected_rate([row["mine"] for row in rows], [row.get("score", NAN) for row in rows])
    assert (numbers["corrected_rate"].value, numbers["corrected_rate"].low) == (direct.value, direct.low)
    assert direct.value == pytest.approx((0.3 + 0.9 - 1) / 0.8)
    assert (numbers["tpr"].n, numbers["tpr"].undefined, numbers["prevalence"].n) == (50, 0, 100)


def test_verdicts_that_all_agree_do_not_show_that_the_judge_is_as_strict_as_people():
    """Wilson's interval, where 20 units that agree count as 20 + 20^2 of 1/2: half of it is .051, of 2 x - 1 .102."""
    found = audited(rows_of(10, 0, 0, 10))["agreement"]["leniency"]
    t = 2.093**2 / 420
    half = 2 * math.sqrt(t * (0.25 + t / 4)) / (1 + t)
    assert found.numbers == pytest.approx((0.0, -half, half), abs=1e-3)
    assert half == pytest.approx(0.102, abs=1e-3)


def test_labels_that_decide():
    numbers = audited(rows_of(90, 10, 20, 80))["pass_or_fail"]
    enough = labels_to_decide(numbers, "tpr", 0.8)
    tpr = numbers["tpr"]
    # power .8: the distance is 1.96 + .84 standard errors of the wider half of the interval; half of all labels pass
    assert enough == pytest.approx(200 * (2.8 / 1.96 * (tpr.value - tpr.low) / 0.1) ** 2, rel=0.06)
    assert labels_to_decide(numbers, "tpr", 0.9) is None
    assert labels_to_decide(numbers, "tpr", 0.9001) is None
    assert labels_to_decide(audited(rows_of(9, 1, 0, 0))["pass_or_fail"], "tnr", 0.8) is None


@pytest.mark.slow
def test_groups_show_the_rates_and_two_judges_are_compared():
    rows = [{**row, "system": name} for name, n in (("a", 40), ("b", 20)) for row in rows_of(n, 60 - n, 10, 30)]
    found = audited(rows, by="system")
    assert {name: group["tpr"].value for name, group in found.groups.items()} == pytest.approx({"a": 2 / 3, "b": 1 / 3})
    rng = np.random.default_rng(1)
    for raters in ([(0.9, 0.9)], [(0.9, 0.9)] * 3):
        rows = [{**row, "other": int(rng.random() < 0.7)} for row in annotated(rng, 200, (0.9, 0.9), raters)]
        items = evalbias.data.read(rows, numbers=["mine", "other"])
        sides = [measure(BIASES["pass_or_fail"], recorded_scores(items, name), seed=0) for name in ("other", "mine")]
        changes = compare_judges(*sides, n_resamples=500, n_intervals=100, seed=0)
        people = sides[0].judged.ratings
        ours, theirs = (estimate_rate(side.judged.answers, people, of="tnr").value for side in sides[::-1])
        assert changes["tnr"].difference.value == pytest.approx(ours - theirs)
        assert changes["tnr"].difference.low > 0
        assert math.isnan(changes["tnr"].p_value) == (len(raters) > 1)  # each swap would be a fit
        if len(raters) == 1:
            assert changes["tnr"].p_value < 0.01
            assert changes["prevalence"].difference.value == 0


@pytest.mark.slow
@pytest.mark.parametrize(("judge", "tpr", "tnr"), [
    ("GPT-4", 0.947, 0.829), ("Gemma-2B", 0.919, 0.461), ("Llama-70B", 0.991, 0.689), ("Contains", 0.785, 0.992)
])  # fmt: skip
def test_judges_of_right_answers(recorded, judge, tpr, tnr):
    known = ("id", "input_id")
    answers = recorded("triviaqa_verdicts")
    rows = [{f: r[f] for f in known} | {"score": r["human"], "mine": r.get(judge)} for r in answers]
    found = audited(rows)["pass_or_fail"]
    assert [round(found[name].value, 3) for name in ("tpr", "tnr")] == [tpr, tnr]
    assert all(found[name].low < found[name].value < found[name].high for name in ("tpr", "tnr"))
    assert found["tpr"].units == 377  # of 400 questions, which nine models answered, with any right answer


SURE = [(0.98, 1)] * 90 + [(0.6, 1), (0.6, 0)] * 20 + [(0.02, 0)] * 90
ALONE = {
    "of both": (SURE, "at 5 wrong in 100 or fewer (95 % confidence); hand over those above 0.02 and below 0.98."),
    "passes": (SURE[:130], "(95 % confidence), those from 0.98 on; hand over the others."),
    "always": ([(1, 1)] * 149 + [(1, 0)], "in 100 or fewer (95 % confidence). Always passing would do as well."),
    "verdicts": ([(1, 1)] * 90 + [(0, 0), (0, 1)] * 20, "(95 % confidence), what it passes; hand over the others."),
    "all, at 10": (
        [(1, 1), (0, 0)] * 47 + [(1, 0), (0, 1)],
        "100 of 100 alone, at 10 wrong in 100 or fewer (95 % confidence).",
    ),
    "none": (
        [(1, 1), (0, 0), (1, 0)] * 30,
        "33 of 100 (24 to 44); for no share of the items is that shown to be 10 or fewer.",
    ),
    "too few": ([(1, 1)] * 30, "is told by 36 rated items or more; 30 are."),
    "a mark": ([(4.5, 5)] * 80 + [(2, 1)] * 80 + [(3, 4), (3, 3)] * 20, "hand over those above 2 and below 4.5."),
}


@pytest.mark.parametrize("case", ALONE)
def test_what_it_may_decide_alone_is_said_with_what_to_hand_over(case):
    pairs, sentence = ALONE[case]
    mark = {"pass_mark": 4, "scale": (1, 5)} if case == "a mark" else {"scale": (0, 1)}
    found = audited([{"mine": score, "label": said} for score, said in pairs], **mark)
    told = [text for text in found.answer if "decide" in text or "Deciding" in text]
    assert [text.endswith(sentence) for text in told] == [True] * bool(sentence)
    further = found.to_dict()["further"]["alone"]
    assert (further["alone_5"]["value"] > 0) == (case not in ("all, at 10", "none", "too few"))
    assert told[:1] == [line for line in found.first_screen if line in told]  # there is room
