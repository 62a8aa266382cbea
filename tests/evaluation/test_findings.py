"""What follows from the findings of an audit: how long its first lines are, what they hold, and the next step."""

import re
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from planted import compared, partly, scored, with_effect, without

from evalbias.cli.audit import step_words
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.findings import LINES, WIDTH, Finding, NextStep, Open, lines_of
from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS, Asking

FOUND = Finding("position", "biased", None, "the output shown first wins 70 of 100 comparisons instead of 50")
OPEN = Finding("verbosity", "too few items", None, "", open=Open("about 300 items would be enough"))


@pytest.mark.parametrize("before", [[], ["The judge agrees with people."], ["word " * 40, "word " * 50]])
@pytest.mark.parametrize("biased", [0, 1, 2, 5])
def test_it_fits_and_names_every_bias(before, biased):
    findings = [*[FOUND, replace(FOUND, bias="likelihood"), replace(FOUND, bias="order")][:biased], OPEN]
    findings += [replace(FOUND, bias=f"feature_{k}") for k in range(biased - 3)]
    lines = lines_of(findings, before, most=LINES)
    assert sum(len(textwrap.wrap(line, WIDTH)) for line in lines) + 2 <= LINES  # two for the next step
    assert [*lines[: len(before)]] == before
    text = " ".join(lines[len(before) :])
    assert all(name in text for name in ["position", "likelihood", "order", "feature 0"][:biased])
    assert ("No bias was found" in text) == (not biased)
    assert "verbosity (about 300 items" in text or (biased > 1 and "verbosity" in text)


RNG = np.random.default_rng(0)
GOOD, PAIRS = scored(RNG, 160, raters=3), compared(RNG, 160, raters=3)

NEXT_STEPS = [(without(GOOD, RATINGS, HUMAN_SCORES), "probe emit")]
NEXT_STEPS += [(replace(GOOD, answers=RNG.integers(1, 6, 160).astype(float)), "align")]
NEXT_STEPS += [(replace(judged, asked=Asking(compilable=True)), "align") for judged in (GOOD, PAIRS)]
NEXT_STEPS += [(GOOD, "drift"), (with_effect(0.6, n=160), "correct")]


@pytest.mark.parametrize(("judged", "command"), NEXT_STEPS)
def test_the_next_step_follows_from_what_was_found(judged, command):
    audited = audit_answers(judged)
    assert audited.next_step.command == command, [audited.first_screen, audited.next_step]


ONCE = scored(RNG, 160, raters=1), compared(RNG, 160, raters=1)
PASS = {HUMAN_SCORES: (GOOD.covariates[HUMAN_SCORES] > 3).astype(float)}
PASSED = replace(GOOD, answers=(GOOD.answers > 3).astype(float), covariates=without(GOOD, RATINGS).covariates | PASS)


@pytest.mark.parametrize("judged", [with_effect(0.6, n=160, ratings=1), *ONCE, PASSED])
def test_with_one_rating_an_item_the_way_out_is_said_with_its_command(judged):
    found = audit_answers(judged)
    step = found.next_step
    assert (step.command, step.more, step.besides.command) == ("doctor", "--label-next 60", "probe emit")
    assert "'evalbias doctor FILE --label-next 60' chooses them" in found.verdict
    assert not re.search("cannot|correct'", found.verdict)  # `evalbias correct` refuses bounds
    assert re.search("with people|people passed", found.first_screen[0])


@pytest.mark.parametrize(("judged", "said", "factor"), [(GOOD, "{:.2f} on average", 1), (PASSED, "{:.0f} in 100", 100)])
def test_what_people_would_give_all_items_leads_where_some_have_no_rating(judged, said, factor):
    found = audit_answers(partly(judged, 100))
    (sentence,) = [line for line in found.first_screen if "by the ratings of 100" in line and line in found.answer]
    assert said.format(factor * found["corrected"]["corrected_mean"].value) in sentence


def test_the_command_names_the_server_of_a_judge_and_answers_no_question():
    options = {"data": "a b.csv", "lm": "tiny", "api_base": "http://127.0.0.1:1", "yes": True, "scale": (1.0, 5.0)}
    commands = [step_words(NextStep("Go on", name), options, {*options})[1].strip() for name in ("drift", "align")]
    aligning = "evalbias align --data 'a b.csv' --lm tiny --api-base http://127.0.0.1:1 --scale 1-5"
    assert commands == ["evalbias drift", aligning]
    made = NextStep("Go on", "align", "--criterion 'NAME: DEFINITION'")  # in place of the name that was typed
    (_, command) = step_words(made, {"data": "a.csv", "criterion": "wit"}, {"criterion"})
    assert command == "  evalbias align --data a.csv --criterion 'NAME: DEFINITION'"
    options = {"data": "a.csv", "scores_field": "s", "levels": ("meh", "great"), "keep": ("0",)}
    (_, command) = step_words(NextStep("Rate", "doctor", "--label-next 9"), options, {*options})
    assert command == "  evalbias doctor --data a.csv --keep 0 --levels meh,great --scores-field s --label-next 9"
