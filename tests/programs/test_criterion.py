import dspy
import pytest

from evalbias.optimizers.demonstrations import with_demos
from evalbias.programs import TMU_GFM, WEBNLG, WEBNLG_BINS, Criterion, PairwiseJudge, PointwiseJudge, label_of, labeled
from evalbias.programs.prompts import demonstrations, item_text, judge_messages, likelihood_messages

POLITE = Criterion("politeness", "is the reply polite?")


def test_a_new_criterion_is_one_line():
    assert POLITE.labels == ("1", "2", "3", "4", "5")
    assert Criterion.parse("politeness: is the reply polite?") == POLITE


@pytest.mark.parametrize("kind", [PointwiseJudge, PairwiseJudge])
def test_a_name_is_no_criterion(kind):
    with pytest.raises(TypeError, match=r"criterion='politeness': give a criterion, evalbias.Criterion\(NAME, DEF"):
        kind("politeness")


def test_the_papers_seven_criteria():
    assert [c.name for c in WEBNLG] == ["text_structure", "relevance", "fluency", "correctness", "data_coverage"]
    assert [c.name for c in TMU_GFM] == ["grammar", "fluency"]
    assert {c.labels for c in WEBNLG} == {("1", "2", "3", "4", "5")}
    assert {c.labels for c in TMU_GFM} == {("0", "1", "2", "3", "4")}
    assert len({c.definition for c in (*WEBNLG, *TMU_GFM)}) == 7


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": " "}, "Criterion.name is ' '"),
        ({"name": "a: b"}, "one line without a colon"),
        ({"name": "total"}, "the name of the mean over criteria"),
        ({"definition": ""}, "Criterion.definition is ''"),
        ({"scale": (5, 1)}, "two ascending whole numbers"),
        ({"scale": (1.0, 5.0)}, "two ascending whole numbers"),
        ({"scale": (0, 10**9)}, "a scale of at most 1000 steps"),
        ({"scale": (0, True)}, "two ascending whole numbers"),
    ],
)
def test_invalid_criteria_are_refused(change, match):
    with pytest.raises(ValueError, match=match):
        Criterion(**{"name": "politeness", "definition": "is it polite?", **change})


@pytest.mark.parametrize("text", ["politeness", ": polite?", "politeness: "])
def test_parse_requires_a_name_and_a_definition(text):
    with pytest.raises(ValueError, match="name: definition"):
        Criterion.parse(text)


def test_the_prompt_in_full():
    messages = judge_messages(POLITE, "S", "O", shown=demonstrations([(item_text(POLITE, "s1", "o1"), "4")]))
    assert messages == [
        {
            "role": "system",
            "content": "Judge the output on politeness: is the reply polite?\n"
            "Answer with a whole number from 1 (worst) to 5 (best).",
        },
        {"role": "user", "content": "Source: s1\nOutput: o1\nPoliteness:"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "Source: S\nOutput: O\nPoliteness:"},
    ]
    assert judge_messages(WEBNLG[4], "S", "O")[-1]["content"] == "Data: S\nText: O\nData coverage:"


def test_the_likelihood_context_ends_where_the_output_begins():
    assert likelihood_messages(TMU_GFM[0], "S") == [
        {"role": "system", "content": "Rewrite the following English text so that its grammar is right."},
        {"role": "user", "content": "Original: S\nCorrection:"},
    ]


@pytest.mark.parametrize(
    ("score", "label"), [(0, "1"), (14.9, "1"), (15, "2"), (39.9, "2"), (40, "3"), (65, "4"), (90, "5"), (100, "5")]
)
def test_the_papers_bins(score, label):
    assert label_of(score, WEBNLG[0], bins=WEBNLG_BINS) == label


@pytest.mark.parametrize(("score", "label"), [(1.0, "1"), (3.75, "4"), (2.5, "3"), (2.49, "2"), (5, "5")])
def test_the_nearest_label(score, label):
    assert label_of(score, POLITE) == label


def test_scores_without_a_label():
    with pytest.raises(ValueError, match="outside the scale 1 to 5"):
        label_of(0.99, POLITE)
    with pytest.raises(ValueError, match="NaN has no label"):
        label_of(float("nan"), POLITE)
    with pytest.raises(ValueError, match="4 ascending edges"):
        label_of(3, POLITE, bins=(1, 2, 3))
    with pytest.raises(ValueError, match="4 ascending edges"):
        label_of(3, POLITE, bins=(1, 2, 2, 3))
    rated = [dspy.Example(id="x", source="a", output="b", score=70)]
    with pytest.raises(
        ValueError, match=r"The item 'x' has no label. The score 70 is outside .*: correct it, or give b"
    ):
        labeled(rated, POLITE)
    with pytest.raises(ValueError, match="The item 'x' has no label"):
        with_demos(PointwiseJudge(POLITE), rated)
