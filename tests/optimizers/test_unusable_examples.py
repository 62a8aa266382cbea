"""Training examples that a judge cannot read are named before any prompt is asked."""

import dspy
import pytest
from fakes import PARTS, Comparer, FormulaLM, Wording, items, rated

from evalbias import data
from evalbias.optimizers import ZEPO, BiasedDemos, GrammarParaphraser, LikelihoodMitigation
from evalbias.optimizers.study import JudgeStudy
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge

C = Criterion("quality", "is it good?")
ITEMS = rated(documents=12)
PAIRS = data.pairs(ITEMS, limit=60, seed=0)


def pairwise():
    proposer = GrammarParaphraser(PARTS)
    return [ZEPO(proposer, select=False), JudgeStudy(proposer, trials=1, instructions=2, select=False)]


BAD_PAIRS = {
    "does not have two candidates: give pairs; evalbias.data.pairs makes them": ITEMS[3],
    "The example 3 is a dict: give dspy.Example": {"source": "s", "candidates": ["a", "b"]},
    "Candidate 2 of the item 'x' is None": dspy.Example(id="x", source="s", candidates=["a", None]),
    "'source' of the item '3' is missing": dspy.Example(candidates=["a", "b"]),
    "The item '3' has the candidates 'ab'": dspy.Example(source="s", candidates="ab"),
}


@pytest.mark.parametrize("message", BAD_PAIRS)
@pytest.mark.parametrize("optimizer", pairwise(), ids=lambda one: type(one).__name__)
def test_what_cannot_be_compared_is_named(optimizer, message):
    trainset, lm = [*PAIRS[:3], BAD_PAIRS[message], *PAIRS[3:]], Comparer()
    with pytest.raises(ValueError, match=message):
        optimizer.compile(PairwiseJudge(C), trainset=trainset, lm=lm)
    with pytest.raises(ValueError, match=message):
        PairwiseJudge(C).batch(trainset, lm=lm)
    assert not lm.prompts


@pytest.mark.parametrize("optimizer", pairwise(), ids=lambda one: type(one).__name__)
def test_pairs_may_name_their_texts_outputs(optimizer):
    named = [dspy.Example(source=p.source, outputs=list(p.candidates)) for p in PAIRS]
    judges = [
        optimizer.compile(PairwiseJudge(C), trainset=trainset, lm=Wording(first=6.5)) for trainset in (PAIRS, named)
    ]
    assert judges[0].predict.signature.instructions == judges[1].predict.signature.instructions
    answers = [PairwiseJudge(C).batch(trainset, lm=Wording(6.5)) for trainset in (PAIRS, named)]
    assert [a.probability for a in answers[0]] == [a.probability for a in answers[1]]


BAD_ITEMS = {
    "'output' of the item 'x' is None: give a text": {"output": None},
    "'output' of the item 'x' is empty: give a text": {"output": " "},
    "'source' of the item 'x' is None: give a text": {"source": None},
    r"'source' of the item 'x' is a list, not a text: give a text": {"source": ["s"]},
}


@pytest.mark.parametrize("message", [*BAD_ITEMS, "'output' of the item '3' is missing", "The example 3 is a dict"])
@pytest.mark.parametrize(
    "optimizer", [BiasedDemos(k=2), LikelihoodMitigation(k=(2,))], ids=lambda one: type(one).__name__
)
def test_what_cannot_be_scored_is_named(optimizer, message):
    bad = {
        "'output' of the item '3' is missing": dspy.Example(source="s", score=3),
        "The example 3 is a dict": {"source": "s", "output": "o", "score": 3},
    }
    item = bad.get(message) or ITEMS[3].copy(id="x", **BAD_ITEMS[message])
    lm = FormulaLM()
    with pytest.raises(ValueError, match=message):
        optimizer.compile(PointwiseJudge(C), trainset=[*ITEMS[:3], item, *ITEMS[4:]], lm=lm)


@pytest.mark.parametrize("texts", [{"output": " "}, {"output": None}, {"source": None}])
@pytest.mark.parametrize(
    "optimizer", [BiasedDemos(k=2), LikelihoodMitigation(k=(2,))], ids=lambda one: type(one).__name__
)
def test_an_item_that_nobody_rated_is_not_read(optimizer, texts):
    train = [e.copy(source=f"s{i}") for i, e in enumerate(items(60, seed=1))]
    unrated = [e.copy(id=f"{e.id} unrated", scores={C.name: None}, **texts) for e in train[::4]]
    lm = FormulaLM()
    compiled = [optimizer.compile(PointwiseJudge(C), trainset=given, lm=lm) for given in (train, [*train, *unrated])]
    assert all(judge.report.decision for judge in compiled)
    with pytest.raises(ValueError, match=r"of the item '.* unrated' .*: give a text"):
        optimizer.compile(PointwiseJudge(C), trainset=train, valset=unrated, lm=lm)


@pytest.mark.parametrize("select", [True, False])
def test_equal_ratings_are_said_to_be_equal(select):
    equal = [dspy.Example(id=e.id, source=e.source, output=e.output, score=3) for e in ITEMS]
    with pytest.raises(ValueError, match=f"All {len(equal)} rated training items have the score 3 on quality"):
        BiasedDemos(k=2, select=select).compile(PointwiseJudge(C), trainset=equal, lm=FormulaLM())
