"""Criteria, their labels and languages, and the score that probabilities of the labels give."""

import math

import dspy
import numpy as np
import pytest
from refusals import refusals

from evalbias.evaluation.answers import resolve
from evalbias.evaluation.repeats import relisted
from evalbias.lm.reading import named_choice
from evalbias.lm.types import ChoiceLogprobs
from evalbias.optimizers.likelihood import with_demos
from evalbias.options import AuditOptions, ProbeRunOptions
from evalbias.program_options import JudgeOptions, OptimizeOptions, ScoreOptions, ScoringAim
from evalbias.programs import PRESETS, Criterion, PairwiseJudge, PointwiseJudge, label_of, labeled
from evalbias.programs.prompts import LANGUAGES, in_language

WEBNLG = PRESETS["webnlg2020"][0]
POLITE, C = Criterion("politeness", "is the reply polite?"), Criterion("quality", "is it good?")


def test_a_new_criterion_is_one_line():
    assert POLITE.labels == ("1", "2", "3", "4", "5")
    assert Criterion.parse("politeness: is the reply polite?") == POLITE


@pytest.mark.parametrize("kind", [PointwiseJudge, PairwiseJudge])
def test_a_name_is_no_criterion(kind):
    with pytest.raises(TypeError, match=r"criterion='politeness': give a criterion, evalbias.Criterion\(NAME, DEF"):
        kind("politeness")


test_invalid_criteria_are_refused = refusals(
    lambda change: Criterion(**{"name": "politeness", "definition": "is it polite?", **change}),
    ({"name": " "}, "Criterion.name is ' '"),
    ({"name": "a: b"}, "one line without a colon"),
    ({"name": "total"}, "the name of the mean over criteria"),
    ({"definition": ""}, "Criterion.definition is ''"),
    *(({"scale": scale}, "two ascending whole numbers") for scale in ((5, 1), (1.0, 5.0), (0, True))),
    ({"scale": 5}, "Criterion.scale is 5: give two ascending whole numbers"),
    ({"scale": (0, 10**9)}, "a scale of at most 1000 steps"),
)


@pytest.mark.parametrize("text", ["politeness", ": polite?", "politeness: "])
def test_parse_requires_a_name_and_a_definition(text):
    with pytest.raises(ValueError, match="name: definition"):
        Criterion.parse(text)


BINNED = [(0, "1"), (14.9, "1"), (15, "2"), (39.9, "2"), (40, "3"), (65, "4"), (90, "5"), (100, "5")]
NEAREST = [(1.0, "1"), (3.75, "4"), (2.5, "3"), (2.49, "2"), (5, "5")]


def test_the_papers_bins_and_the_nearest_label():
    assert [(score, label_of(score, WEBNLG, bins=(15, 40, 65, 90))) for score, _ in BINNED] == BINNED
    assert [(score, label_of(score, POLITE)) for score, _ in NEAREST] == NEAREST


test_scores_without_a_label = refusals(
    lambda score, bins: label_of(score, POLITE, bins=bins),
    (0.99, None, "outside the scale 1 to 5"),
    (float("nan"), None, "NaN has no label"),
    (3, (1, 2, 3), "4 ascending edges"),
    (3, (1, 2, 2, 3), "4 ascending edges"),
)


def test_an_item_without_a_label_is_named():
    rated = [dspy.Example(id="x", source="a", output="b", score=70)]
    for label in (lambda: labeled(rated, POLITE), lambda: with_demos(PointwiseJudge(POLITE), rated)):
        with pytest.raises(ValueError, match=r"The item .x. has no label. The score 70 is outside .*: correct"):
            label()


def test_a_language_that_is_not_there_is_refused_and_english_has_the_words_of_a_criterion_without_its_own():
    for kind in (PointwiseJudge, PairwiseJudge):
        for language in ("tlh", None, ["ja"]):
            with pytest.raises(ValueError, match=r"is unknown: choose one of \('en', 'ja'\), or add"):
                kind(C, language=language)
    criterion = Criterion("politeness", "is the reply polite?")
    assert in_language(criterion, "en") == criterion
    assert in_language(in_language(criterion, "en"), "ja").task == LANGUAGES["ja"].task


def rated(**scores):
    return dspy.Example(source="s", output="o", **scores).with_inputs("source", "output")


def row_of(shares, **options):
    with np.errstate(divide="ignore"):
        return PointwiseJudge(C)._row(ChoiceLogprobs(C.labels, np.log([shares]), **options))


def test_the_expected_score_is_equation_7_worked_by_hand():
    row = row_of([0.1, 0.0, 0.2, 0.0, 0.1])
    # (1 * .1 + 3 * .2 + 5 * .1) / .4 = 1.2 / .4
    assert row["score"] == pytest.approx(3.0)
    assert row["coverage"] == pytest.approx(0.4)
    assert row["distribution"] == pytest.approx({"1": 0.25, "2": 0, "3": 0.5, "4": 0, "5": 0.25})
    assert row["mode"] == 3
    undefined = row_of([0.0] * 5)
    assert np.isnan([undefined["score"], undefined["mode"]]).all()
    assert undefined["coverage"] == 0
    renormalized = row_of([0.2] * 5, renormalized=True)
    assert renormalized["score"] == pytest.approx(3.0)
    assert math.isnan(renormalized["coverage"])


def test_demonstrations_show_the_nearest_label_and_nothing_else():
    judge = PointwiseJudge(C)
    judge.predict.demos = [rated(score=3.75, extra="kept out of the prompt")]
    _, shown, answer, _ = judge.messages(rated())
    assert (shown["content"], answer["content"]) == ("Source: s\nOutput: o\nQuality:", "4")


def test_labeled_makes_a_training_set_for_any_dspy_optimizer():
    (example,) = labeled([rated(scores={"quality": 70.0})], C, bins=(15, 40, 65, 90))
    assert example.score == 4.0
    assert label_of(example.score, C) == "4"
    assert set(example.inputs().keys()) == {"source", "output"}
    asked = dspy.Example(context="c", answer="a", score=3).with_inputs("context", "answer")
    assert {*labeled([asked], C)[0].inputs().keys()} == {"context", "answer"}
    with pytest.raises(ValueError, match=r"has no score on 'quality', only on \['wit'\]"):
        labeled([rated(scores={"wit": 1})], C)


NEW_JUDGES = [({"levels": ["bad", "fair", "good"]}, (1, 3), ("bad", "fair", "good"))]
NEW_JUDGES += [({"levels": ["fail", "pass"]}, (0, 1), ("fail", "pass"))]
NEW_JUDGES += [({"levels": ["bad", "fair", "good"], "scale": (0, 2)}, (0, 2), ("bad", "fair", "good"))]
NEW_JUDGES += [({"scale": (0, 3)}, (0, 3), ()), ({}, (1, 5), ())]


@pytest.mark.parametrize(("options", "scale", "levels"), NEW_JUDGES)
def test_options_give_a_new_judge_its_scale_and_levels(options, scale, levels):
    rows = [{"source": f"s{k}", "output": f"a reply {k}"} for k in range(3)]
    ready = resolve(AuditOptions(rows, lm="m", criterion="politeness: is the reply polite?", **options))
    assert (ready.judge.criterion.scale, ready.judge.criterion.levels) == (scale, levels)
    with pytest.raises(ValueError, match="`levels` names 2 scores, and `scale` is 1-5: leave `scale` out"):
        resolve(AuditOptions(rows, lm="m", criterion="a: b?", levels=["no", "yes"], scale=(1, 5)))


def test_every_command_that_makes_a_judge_that_scores_takes_a_scale_and_levels():
    for options in (ScoreOptions, JudgeOptions, ScoringAim, OptimizeOptions, AuditOptions, ProbeRunOptions):
        assert {"scale", "levels"} <= options.__dataclass_fields__.keys(), options


@pytest.mark.parametrize(("language", "line", "reversed_line"), [
    ("en", "Answer with Yes or No.", "Answer with No or Yes."),
    ("ja", "はいまたはいいえで答えてください。", "いいえまたははいで答えてください。"),
])  # fmt: skip
def test_yes_or_no_is_asked_as_such(language, line, reversed_line):
    judge = PointwiseJudge(Criterion("politeness", "is the reply polite?", (0, 1)), language=language)
    assert judge.answer_format == line
    assert relisted(judge).predict.signature.instructions.endswith(reversed_line)
    no, yes = judge.criterion.labels
    assert [named_choice(text, (no, yes)) for text in (yes, f"{no}.", f"**{yes}**")] == [yes, no, yes]
    row = judge._row(ChoiceLogprobs((no, yes), np.log([[0.1, 0.3]])))
    assert (row["score"], row["mode"]) == (pytest.approx(0.75), 1.0)
    assert row["distribution"] == pytest.approx({no: 0.25, yes: 0.75})
    # a judge saved before it was asked so keeps its question, and its answers
    judge.criterion = Criterion("politeness", "is the reply polite?", (0, 1))
    assert judge.labels({}) == ("0", "1")


@pytest.mark.parametrize(("criterion", "question", "ending"), [
    (Criterion("Höflichkeit", "Ist sie höflich?", output_label="Antwort"), "Judge the Antwort on H", "Höflichk"),
    (Criterion("Hilfe", "hilft die Antwort weiter", output_label="Antwort"), "Judge the Antwort on", "Hilfe:"),
    (Criterion("Gute Idee", "Ist sie gut?", output_label="Idee"), "Judge the Idee on Gute Idee: Ist", "Gute Idee:"),
    (Criterion("LLM_use", "is an LLM used?", output_label="Reply"), "Judge the reply on LLM use: is", "Llm use:"),
    (Criterion("clarity", "clear, short sentences", output_label="Reply"), "Judge the reply on", "Clarity:"),
    (Criterion("style", "is it “nice”?", output_label="Reply"), "Judge the reply on style", "Style:"),
])  # fmt: skip
def test_words_of_another_language_stand_as_they_are(criterion, question, ending):
    judge = PointwiseJudge(criterion)
    assert judge.predict.signature.instructions.startswith(question)
    assert judge.text({"source": "s", "output": "o"}).splitlines()[-1].startswith(ending)
    assert "antwort" not in PairwiseJudge(criterion).predict.signature.instructions
