"""Feedback sources: scores, texts, ranges, required fields, and scores on the scale of MQM."""

import math
from dataclasses import replace
from functools import partial

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models_of_text import Scripted
from refusals import refusals

from evalbias.evaluation import CachedScorer, Paraphrased, measure_style, run_loops
from evalbias.measures import QuantileMap
from evalbias.programs import Criterion, PointwiseJudge, tasks
from evalbias.programs import feedback as parts
from evalbias.programs.feedback import MappedFeedback, ReferenceFeedback, ScorerFeedback, read_missing, same_value
from evalbias.programs.tasks import CONCEPTS, TRANSLATION, translation
from evalbias.programs.writing import PlainPredict

WORDS = ["dog", "run", "park"]
TO_MQM = QuantileMap.fit([0, 50, 100], [-25, -20, 0], metric="chrf")


def test_own_mqm_reads_what_the_model_writes():
    errors = "'cat' is a major accuracy/mistranslation error\n'the' is a minor fluency/grammar error"
    lm = Scripted(errors, "no-error", " ")
    source = parts.MQMFeedback(critical=-10)
    with dspy.context(lm=lm):
        feedback, none, empty = (source({"source": "chien"}, "the cat") for _ in range(3))
    assert (feedback.score, none.score) == (-6, 0)
    assert [e.span for e in feedback.errors] == ["cat", "the"]
    assert math.isnan(empty.score)
    assert empty.status == "empty"
    assert (source.low, source.high) == (-25, 0)
    assert "Source: chien\nTranslation: the cat\nErrors:" in lm.asked[0]
    with pytest.raises(ValueError, match=r"The item 'x' has no 'source': the feedback source 'own MQM' needs it"):
        source({"id": "x"}, "y")


def test_missing_concepts_by_the_model_and_by_exact_match():
    lm = Scripted("['park']", "None.", "run, dog", "I like it")
    source = parts.ConceptsFeedback()
    with dspy.context(lm=lm):
        feedback = [source({"concepts": WORDS}, "The dog can run.") for _ in range(4)]
    assert [f.score for f in feedback[:3]] == [0, 1, 0]
    assert [f.text for f in feedback[:3:2]] == ["missing: park", "missing: dog, run"]
    assert math.isnan(feedback[3].score)
    exact = parts.ExactConcepts()
    assert exact({"concepts": WORDS}, "The Dog can run in a park.").score == 1
    assert exact({"concepts": ["ice cream", "c++", "ice"]}, "C++ and Ice cream.").score == 1
    incomplete = exact({"concepts": WORDS}, "The dog sits.")
    assert (incomplete.score, incomplete.text) == (0, "missing: run, park")
    inside = exact({"concepts": ["throw", "catch", "cat"]}, "It was thrown, and nobody caught it.")
    assert inside.text == "missing: catch, cat"
    with pytest.raises(ValueError, match="'x' has the concepts 'dog park': give a list"):
        exact({"id": "x", "concepts": "dog park"}, "dog")


ANSWERS = {
    (): (
        "all covered ~ All covered. ~ 'all covered' ~ All of the concepts are included ~ None ~ None. ~ No. ~ "
        "All concepts are present. ~ Missing: none ~ Missing concepts: [] ~ Nothing. ~ none missing ~ "
        "none are missing ~ no concepts are missing ~ Missing: no ~ `none` ~ No, nothing is missing. ~ "
        "Yes, all concepts are covered. ~ **All covered** ~ ['none'] ~ () ~ []"
    ),
    ("dog", "park"): (
        "- dog\n- park ~ dog and park ~ The missing concepts are: dog, park. ~ * Dog\n* Park ~ "
        "The missing concepts are dog and park. ~ 1. dog\n2. park ~ 1) dog 2) park ~ "
        "(dog; park) ~ Missing:\n(1) **dog**\n(2) `park` ~ **Missing concepts:** dog & park ~ "
        "`dog`, \u201cpark\u201d ~ \u2022 dog \u2022 park"
    ),
    ("run", "park"): "Missing Concepts: ['park', 'run']",
    ("park",): "Missing: park",
    ("dog",): "['dog', 'cat'] ~ ['', 'dog'] ~ Missing concept: dog",  # a cat was not asked for
    ("cat",): "['cat']",  # wrong, but it does not say that all are covered
    None: (
        "cat ~ All covered except dog. ~ ['dog'] The concept 'park' occurs, but makes no sense. ~ dog, none ~ "
        "Yes. ~ all but one are covered ~ The text does not mention dog or cats, or park. ~ "
        "dog (missing), park (covered) ~ - ~  ~ 1. dog: covered\n2. park: missing ~ dog is not missing ~ "
        "None of the concepts is covered. ~ Not missing: dog ~ none of the concepts ~ "
        "It does not cover all concepts. ~ [''] ~ [' ', ''] ~ dog, park are all there ~ It lacks dog. ~ dog, cat ~ "
        f"The text does not mention dog and park. ~ dog (missing) ~ all covered, dog ~ {'[' * 5_000}"
    ),
}
"""The concepts that an answer names as missing, None where it is unreadable -> answers."""


@pytest.mark.parametrize(
    ("answer", "missing"), [(answer, missing) for missing, some in ANSWERS.items() for answer in some.split(" ~ ")]
)
def test_answers_that_name_missing_concepts(answer, missing):
    assert read_missing(answer, WORDS) == (None if missing is None else list(missing))


def test_concepts_of_several_words_and_languages_are_read_in_a_list():
    for answer in ("犬、公園", "犬，公園", "犬；公園", "「犬」、「公園」。"):
        assert read_missing(answer, ["犬", "公園", "投げる"]) == ["犬", "公園"]
    concepts = ["rock and roll", "ice cream", "ice", "c++", "24/7", "word"]
    assert read_missing("ice cream, C++", concepts) == ["ice cream", "c++"]
    assert read_missing("1. 24/7\n2. word and ice", concepts) == ["ice", "24/7", "word"]
    assert read_missing("['rock and roll', 'ice']", concepts) == ["rock and roll", "ice"]
    assert read_missing("rock and roll, word and ice", concepts) == ["rock and roll", "ice", "word"]
    assert [read_missing(*of) for of in (("none", []), ("ice", []), ("ice creams", concepts))] == [[], None, None]


def test_the_majority_of_paths():
    assert parts.majority(["1/2", "0.5", "3"]) == "1/2"
    assert parts.majority(["3", "4"]) == "3"
    assert parts.majority([]) is None
    solve = PlainPredict("source -> output")
    with dspy.context(lm=Scripted(r"\boxed{4}", r"\boxed{5}", r"\boxed{4.0}")):
        source = parts.ConsistencyFeedback(solve, paths=3)
        right, wrong = source({"source": "2+2"}, r"it is \boxed{4}"), source({"source": "2+2"}, r"\boxed{5}")
    assert (right.score, wrong.score) == (1, 0)
    assert "4" in wrong.text
    with dspy.context(lm=Scripted("I do not know")):
        assert math.isnan(parts.ConsistencyFeedback(solve, paths=2)({"source": "2+2"}, r"\boxed{4}").score)
    oracle = parts.ExactAnswer()
    assert oracle({"answer": "1/2"}, r"\boxed{0.5}").score == 1
    assert oracle({"answer": "1/2"}, "no box").score == 0


def test_metrics_by_reference():
    example = {"reference": "the cat sat on the mat", "source": "x"}
    chrf = ReferenceFeedback("chrf")
    for source in (chrf, ReferenceFeedback("bleu")):
        assert source(example, "the cat sat on the mat").score == pytest.approx(100)
    assert 0 <= chrf(example, "no").score < 30
    assert "the mat" not in chrf(example, "no").text  # the refiner never sees the reference
    with pytest.raises(ValueError, match="The item '3' has no 'reference': the feedback source 'chrf'"):
        chrf({"id": 3, "source": "x"}, "y")
    with pytest.raises(ValueError, match="metric='ter'"):
        ReferenceFeedback("ter")
    learned = ScorerFeedback("COMET", lambda s, o, r: len(o) / 10, low=0, high=1)
    assert learned(example, "four").score == pytest.approx(0.4)
    undefined = ScorerFeedback("COMET", lambda s, o, r: math.nan, low=0, high=1)(example, "four")
    assert (math.isnan(undefined.score), undefined.text, undefined.status) == (True, "no score", "no score")


def test_a_judges_score_is_shown_as_text(lms):
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    judge.predict.lm = lms["llama"]
    judged = parts.JudgeFeedback(judge)
    feedback = judged({"source": "a"}, "b")
    assert judged.low == 1 <= feedback.score <= judged.high == 5
    assert feedback.text == f"quality: {feedback.score:.1f} on a scale of 1 to 5"
    for output, problem in (("", "is empty"), ("b\ud800", "holds")):
        undefined = judged({"source": "a"}, output)
        assert math.isnan(undefined.score)
        assert undefined.status.startswith(f"the output {problem}")


# Bias needs own and expected scores on one scale: a metric is mapped onto MQM, or Bias is undefined.


def scorer(value, *, high=100):
    return ScorerFeedback("chrf", lambda s, o, r: value, low=0, high=high)


def test_a_metric_is_mapped_onto_mqm():
    mapped = MappedFeedback(ReferenceFeedback("chrf"), TO_MQM)
    example = {"reference": "a dog runs"}
    assert (mapped(example, "a dog runs").score, mapped.low, mapped.high) == (0, -25, 0)
    assert mapped(example, "a dog runs").text == "similarity to a reference: 100 of 100"
    assert -25 <= mapped(example, "no").score <= -20
    assert mapped.name == "chrf mapped onto MQM"
    assert math.isnan(MappedFeedback(scorer(math.nan), TO_MQM)({"source": "x", "reference": "y"}, "z").score)
    unclipped = QuantileMap.fit([-0.02, 0.5, 1.03], [-25, -20, 0], metric="chrf")
    assert MappedFeedback(scorer(0.5, high=1), unclipped)({"source": "a", "reference": "ab"}, "b").score == -20
    named = MappedFeedback(ReferenceFeedback("chrf"), replace(TO_MQM, metric="CHRF"))
    assert named({"reference": "ab"}, "ab").score == 0
    assert named.map_id != mapped.map_id  # scores under another map are not mixed


fitted = partial(QuantileMap.fit, metric="chrf")
test_a_map_of_another_metric_or_scale_is_refused = refusals(
    lambda metric, to_mqm: translation(metric=metric, to_mqm=to_mqm),
    (ReferenceFeedback("chrf"), fitted([0, 25], [0, 100]), "from 0 to 100, outside the MQM scores from -25 to 0"),
    (ReferenceFeedback("bleu"), TO_MQM, "fitted to scores of 'chrf', but these are scores of 'bleu': fit a"),
    (scorer(0.5, high=1), TO_MQM, "fitted to scores from 0 to 100, and 'chrf' gives 0 to 1: fit"),
    (scorer(50), fitted([0, 0.5, 1], [-25, -20, 0]), "fitted to scores from 0 to 1, and 'chrf' gives 0 to 100"),
)


def test_scores_on_different_scales_are_not_subtracted():
    own, chrf = parts.MQMFeedback(), ReferenceFeedback("chrf")
    assert np.isnan(parts.expected_scores([50.0], chrf, own)).all()
    assert parts.expected_scores([-20.0], MappedFeedback(chrf, TO_MQM), own).tolist() == [-20]
    assert translation(to_mqm=TO_MQM).external.low == -25
    bleu = translation(metric=ReferenceFeedback("bleu")).external
    assert (bleu.name, bleu.signature[:52]) == ("bleu", "sacrebleu bleu|nrefs:1|case:mixed|eff:yes|tok:13a|sm")


@pytest.mark.parametrize("to_mqm", [None, TO_MQM])
def test_an_unbiased_judge_of_translations_is_not_called_biased(to_mqm):
    """Its own scores are the human scores; chrF of 50 stands for -20, where a linear map would say -12.5."""
    items = [dspy.Example(id=str(n), source="s", reference="abcd", output="x") for n in range(4)]
    task = translation(to_mqm=to_mqm)
    quality = scorer(50.0) if to_mqm is None else MappedFeedback(scorer(50.0), to_mqm)
    errors = "\n".join(["'a' is a major accuracy error"] * 4)  # -20
    lm = Scripted(*([errors, "x y", errors] * 4))
    report = measure_style(run_loops(Paraphrased(task.loop.feedback), items, lm=lm), items, CachedScorer(quality))
    for side in (report.before, report.after):
        if to_mqm is None:
            assert math.isnan(side["bias"].value)
            assert (side["bias"].n, side["bias"].undefined) == (0, 4)
        else:
            assert (side["bias"].value, side["expected"].value) == (0, -20)


BOXES = [(r"so \boxed{4}", "4"), (r"\boxed{1} and then \boxed{ \frac{1}{2} }.", r"\frac{1}{2}")]
BOXES += [(r"\fbox{x^{2}+1}", "x^{2}+1"), ("the answer is 4", None), (r"\boxed{}", None), ("", None)]
BOXES += [(r"\boxed{\{1, 2\}", None)]  # the braces do not close


@pytest.mark.parametrize(("text", "answer"), BOXES)
def test_the_last_box_is_the_answer(text, answer):
    assert parts.boxed_answer(text) == answer


SAME = (
    r"\frac{1}{2} ~ 0.5 | \dfrac12 ~ 1/2 | -\frac{3}{4} ~ \frac{-3}{4} | 1,000 ~ 1000 | \$12.50 ~ 12.5 | 50\% ~ 50 | "
    r"07 ~ 7 | x = 3 ~ 3 | x = 3 ~ x = 3.0 | x=5 ~ 5 | 90^\circ ~ 90 | 12\text{ cm} ~ 12 | \text{Monday} ~ Monday | "
    r"\textbf{A} ~ A | \dfrac{\sqrt{2}}{2} ~ \frac{\sqrt{2}}{2} | x \le 3 ~ x\leq 3 | \left(1, 2\right) ~ (1,2) | "
    r"(1, 2) ~ (1,2) | 1/0 ~ 1/0 | x+1 ~ x + 1"
)
DIFFERENT = (
    r"\text{east} ~ \text{west} | \text{(A)} ~ \text{(B)} | x=5 ~ y=5 | (1)(2) ~ 12 | (1,2) ~ 1,2 | 1/3 ~ 0.33 | "
    "1/0 ~ 0 | x+1 ~ 1+x"  # no algebra
)


@pytest.mark.parametrize(("pairs", "same"), [(SAME, True), (DIFFERENT, False)])
def test_equal_values(pairs, same):
    for a, b in (pair.split(" ~ ") for pair in pairs.split(" | ")):
        assert same_value(a, b) is same, (a, b)
        assert same_value(b, a) is same, (b, a)


@given(st.fractions(max_denominator=999))
def test_a_fraction_equals_itself_in_latex(q):
    assert same_value(rf"\frac{{{q.numerator}}}{{{q.denominator}}}", f"{q.numerator}/{q.denominator}")


def asked(task, *texts, **item):
    lm = Scripted(*texts)
    with dspy.context(lm=lm):
        task.loop(**item)
    return lm.asked


def test_every_prompt_of_a_translation_shows_its_examples():
    task, item = translation(max_iterations=1), {"source": "un chien", "target_language": "English"}
    write, feedback, rewrite, _ = asked(task, "a cat", "'cat' is a major accuracy error", "a dog", "no-error", **item)
    for prompt, examples in zip((write, feedback, rewrite), TRANSLATION.values(), strict=True):
        for example in examples:
            assert all(str(text) in prompt for text in example.values())
        assert prompt.index(examples[-1]["source"]) < prompt.index("un chien")


def test_the_feedback_of_the_examples_is_read_as_it_is_meant():
    scores = [parts.read_feedback(example.errors).score for example in TRANSLATION["feedback"]]
    assert scores == [-10, -6, 0]  # critical and major; major and minor; nothing
    for example in TRANSLATION["feedback"]:
        for error in parts.read_feedback(example.errors).errors:
            assert error.span in example.translation
    assert [read_missing(e.missing, e.concepts) for e in CONCEPTS["feedback"]] == [[], ["dig"]]
    for example in CONCEPTS["feedback"]:
        absent = [concept for concept in example.concepts if concept not in example.text.lower()]
        assert absent == read_missing(example.missing, example.concepts)


def test_concepts_show_two_examples_of_feedback_alone_and_tasks_do_not_share_theirs():
    write, feedback = asked(tasks.constrained_generation(max_iterations=0), "A dog.", "none", concepts=["dog"])
    assert write == "Concepts: dog\nOutput:"
    assert [feedback.count(label) for label in ("Concepts:", "Missing:")] == [3, 3]
    assert "Two friends laughed" in feedback
    for make in (translation, tasks.constrained_generation):
        loop = make().loop
        loop.generate.predict.demos.append("changed")
        assert make().loop.generate.predict.demos == loop.generate.predict.demos[:-1]
