"""Sources of feedback: what each says, in which range, and what it needs."""

import math

import dspy
import pytest
from fakes import FormulaLM
from models_of_text import Scripted

from evalbias.programs import Criterion, PointwiseJudge
from evalbias.programs.feedback import (
    ConceptsFeedback,
    ConsistencyFeedback,
    ExactAnswer,
    ExactConcepts,
    JudgeFeedback,
    MQMFeedback,
    ReferenceFeedback,
    ScorerFeedback,
)
from evalbias.programs.feedback.concepts import coverage, read_missing
from evalbias.programs.feedback.consistency import majority
from evalbias.programs.plain import Plain

CONCEPTS = ["dog", "run", "park"]


def test_own_mqm_reads_what_the_model_writes():
    lm = Scripted(
        "'cat' is a major accuracy/mistranslation error\n'the' is a minor fluency/grammar error", "no-error", " "
    )
    source = MQMFeedback(critical=-10)
    with dspy.context(lm=lm):
        found, none, empty = (source({"source": "chien"}, "the cat") for _ in range(3))
    assert (found.score, none.score) == (-6, 0)
    assert [e.span for e in found.errors] == ["cat", "the"]
    assert math.isnan(empty.score)
    assert empty.status == "empty"
    assert (source.low, source.high) == (-25, 0)
    assert "Source: chien\nTranslation: the cat\nErrors:" in lm.asked[0]
    with pytest.raises(ValueError, match=r"needs 'source'; the item 'x' has none"):
        source({"id": "x"}, "y")


def test_concepts_by_the_model_and_by_their_letters():
    lm = Scripted("['park']", "None.", "run, dog", "I like it")
    source = ConceptsFeedback()
    with dspy.context(lm=lm):
        found = [source({"concepts": CONCEPTS}, "The dog can run.") for _ in range(4)]
    assert [f.score for f in found[:3]] == [0, 1, 0]
    assert found[0].text == "missing: park"
    assert found[2].text == "missing: dog, run"
    assert math.isnan(found[3].score)
    exact = ExactConcepts()
    assert exact({"concepts": CONCEPTS}, "The Dog runs in a park.").score == 1
    told = exact({"concepts": CONCEPTS}, "The dog sits.")
    assert (told.score, told.text) == (0, "missing: run, park")
    assert coverage(CONCEPTS, "dog park") == pytest.approx(2 / 3)
    assert math.isnan(coverage([], "x"))
    assert read_missing("[]", CONCEPTS) == []
    assert read_missing("no concepts are missing", CONCEPTS) == []


def test_the_majority_of_paths():
    assert majority(["1/2", "0.5", "3"]) == "1/2"
    assert majority(["3", "4"]) == "3"
    assert majority([]) is None
    solve = Plain("source -> output")
    with dspy.context(lm=Scripted(r"\boxed{4}", r"\boxed{5}", r"\boxed{4.0}")):
        source = ConsistencyFeedback(solve, paths=3)
        right, wrong = source({"source": "2+2"}, r"it is \boxed{4}"), source({"source": "2+2"}, r"\boxed{5}")
    assert (right.score, wrong.score) == (1, 0)
    assert "4" in wrong.text
    with dspy.context(lm=Scripted("I do not know")):
        assert math.isnan(ConsistencyFeedback(solve, paths=2)({"source": "2+2"}, r"\boxed{4}").score)
    oracle = ExactAnswer()
    assert oracle({"answer": "1/2"}, r"\boxed{0.5}").score == 1
    assert oracle({"answer": "1/2"}, "no box").score == 0


def test_a_judge_and_metrics_by_reference():
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    judge.batch = None
    heard = JudgeFeedback(judge)
    assert (heard.low, heard.high) == (1, 5)
    chrf, bleu = ReferenceFeedback("chrf"), ReferenceFeedback("bleu")
    example = {"reference": "the cat sat on the mat", "source": "x"}
    assert chrf(example, "the cat sat on the mat").score == pytest.approx(100)
    assert bleu(example, "the cat sat on the mat").score == pytest.approx(100)
    assert 0 <= chrf(example, "no").score < 30
    assert "the mat" not in chrf(example, "no").text  # the refiner never sees the reference
    with pytest.raises(ValueError, match="needs 'reference'"):
        chrf({"id": 3, "source": "x"}, "y")
    with pytest.raises(ValueError, match="metric='ter'"):
        ReferenceFeedback("ter")
    learned = ScorerFeedback("COMET", lambda s, o, r: len(o) / 10, low=0, high=1)
    assert learned(example, "four").score == pytest.approx(0.4)


def test_a_judges_score_is_told_in_words(lms):
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    judge.predict.lm = lms["llama"]
    found = JudgeFeedback(judge)({"source": "a"}, "b")
    assert 1 <= found.score <= 5
    assert found.text == f"quality: {found.score:.1f} on a scale of 1 to 5"
    assert FormulaLM  # the judge itself is tested elsewhere
