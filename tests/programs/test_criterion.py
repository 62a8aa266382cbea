import dspy
import pytest

from evalbias.optimizers.likelihood import with_demos
from evalbias.programs import BINS, PRESETS, Criterion, PairwiseJudge, PointwiseJudge, label_of, labeled

WEBNLG = PRESETS["webnlg2020"][0]
POLITE = Criterion("politeness", "is the reply polite?")


def test_a_new_criterion_is_one_line():
    assert POLITE.labels == ("1", "2", "3", "4", "5")
    assert Criterion.parse("politeness: is the reply polite?") == POLITE


@pytest.mark.parametrize("kind", [PointwiseJudge, PairwiseJudge])
def test_a_name_is_no_criterion(kind):
    with pytest.raises(TypeError, match=r"criterion='politeness': give a criterion, evalbias.Criterion\(NAME, DEF"):
        kind("politeness")


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


BINNED = [(0, "1"), (14.9, "1"), (15, "2"), (39.9, "2"), (40, "3"), (65, "4"), (90, "5"), (100, "5")]
NEAREST = [(1.0, "1"), (3.75, "4"), (2.5, "3"), (2.49, "2"), (5, "5")]


def test_the_papers_bins_and_the_nearest_label():
    assert [(score, label_of(score, WEBNLG, bins=BINS["webnlg2020"])) for score, _ in BINNED] == BINNED
    assert [(score, label_of(score, POLITE)) for score, _ in NEAREST] == NEAREST


@pytest.mark.parametrize(
    ("score", "bins", "message"),
    [
        (0.99, None, "outside the scale 1 to 5"),
        (float("nan"), None, "NaN has no label"),
        (3, (1, 2, 3), "4 ascending edges"),
        (3, (1, 2, 2, 3), "4 ascending edges"),
    ],
)
def test_scores_without_a_label(score, bins, message):
    with pytest.raises(ValueError, match=message):
        label_of(score, POLITE, bins=bins)


def test_an_item_without_a_label_is_named():
    rated = [dspy.Example(id="x", source="a", output="b", score=70)]
    for label in (lambda: labeled(rated, POLITE), lambda: with_demos(PointwiseJudge(POLITE), rated)):
        with pytest.raises(
            ValueError, match=r"The item 'x' has no label. The score 70 is outside .*: correct it, or g"
        ):
            label()
