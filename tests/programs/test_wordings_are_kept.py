"""The texts that models are asked with decide every recorded number: a change must be meant.

They are kept in ``__snapshots__``; ``make words`` writes it anew. Read its difference, and run the benchmarks that use
a changed text again.
"""

import dspy
import pytest

from evalbias.evaluation.loops import Paraphrase
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.programs import criterion as criteria
from evalbias.programs.feedback import FindErrors, FindMissing
from evalbias.programs.prompts import likelihood_messages
from evalbias.programs.tasks import CONCEPTS, ROLES, TASKS, TRANSLATION

C = criteria.SYNTHETIC
NATURAL = Criterion("自然さ", "日本語として自然か？")
MAIL = Criterion("自然さ", "日本語として自然か？", task="返信を書いてください。", output_label="返信")
FIRST = {"instruction_place": "first"}
JUDGES = {
    "scores": PointwiseJudge(C),
    "two words": PointwiseJudge(criteria.PRESETS["webnlg2020"][4]),
    "scores in Japanese": PointwiseJudge(NATURAL, language="ja"),
    "scores with own words in Japanese": PointwiseJudge(MAIL, language="ja"),
    "compares": PairwiseJudge(C, ties=True),
    "compares, instructed first": PairwiseJudge(C, ties=True, **FIRST),
    "compares in Japanese": PairwiseJudge(MAIL, language="ja", ties=True),
    "compares in Japanese, instructed first": PairwiseJudge(MAIL, language="ja", ties=True, **FIRST),
    "compares with an own instruction": PairwiseJudge(C, instruction="Mind the quality.", **FIRST),
    "compares with an own instruction in Japanese": PairwiseJudge(
        MAIL, language="ja", ties=True, instruction="自然さで勝るのは{answers}か。"
    ),
}


@pytest.mark.parametrize("name", JUDGES)
def test_the_messages_of_a_judge(name, snapshot):
    judge = JUDGES[name]
    judge.predict.demos = [dspy.Example(source="s", output="o", candidates=["p", "q"], score=2, preference="B")]
    if name == "compares in Japanese":
        judge.predict.demos[0].preference = "tie"
    messages = judge.messages({"source": "src", "output": "out", "candidates": ["x", "y"]})
    assert [(message["role"], message["content"]) for message in messages] == snapshot


def test_the_texts_whose_likelihood_is_asked_for(snapshot):
    told = PointwiseJudge(NATURAL, language="ja").criterion, PointwiseJudge(MAIL, language="ja").criterion
    assert [likelihood_messages(criterion, "src") for criterion in (C, *told)] == snapshot


def test_the_criteria(snapshot):
    assert {name: list(map(str, group)) for name, group in (criteria.PRESETS | {"synthetic": [C]}).items()} == snapshot


def test_the_signatures_of_the_loops(snapshot):
    loops = [task().loop for name, task in TASKS.items() if name != "mathematics"]
    texts = [predictor.signature.instructions for loop in loops for _, predictor in loop.named_predictors()]
    texts += [signature.instructions for signature in (FindMissing, FindErrors, Paraphrase)]
    assert texts == snapshot
    (solve,) = TASKS["mathematics"]().loop.predictors()
    assert solve.signature.instructions in texts  # the votes are asked for as the refiner's solutions are


def test_the_examples_of_the_loops(snapshot):
    assert [
        {role: [row.toDict() for row in examples.get(role, ())] for role in ROLES}
        for examples in (TRANSLATION, CONCEPTS)
    ] == snapshot
