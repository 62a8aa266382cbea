"""The texts that models are asked with decide every recorded number: a change must be meant.

If one of these fails because you changed a wording on purpose, run the benchmarks that use it again, then put the new
digest here.
"""

from dataclasses import asdict

import dspy

from evalbias.evaluation.loops import Paraphrase
from evalbias.programs import PairwiseJudge, PointwiseJudge
from evalbias.programs import criterion as criteria
from evalbias.programs.feedback import FindErrors, FindMissing
from evalbias.programs.prompts import likelihood_messages
from evalbias.programs.tasks import CONCEPTS, ROLES, TASKS, TRANSLATION
from evalbias.values import digest

C = criteria.SYNTHETIC


def test_the_criteria():
    presets = {name: [asdict(c) for c in group] for name, group in criteria.PRESETS.items()}
    for one in (*(one for group in presets.values() for one in group), own := asdict(C)):
        assert one.pop("levels") == ()
    assert digest([presets, own]) == "9749ada4ea5c334d"


def test_the_signatures_of_the_loops():
    loops = [task().loop for name, task in TASKS.items() if name != "mathematics"]
    texts = [predictor.signature.instructions for loop in loops for _, predictor in loop.named_predictors()]
    texts += [signature.instructions for signature in (FindMissing, FindErrors, Paraphrase)]
    assert digest(texts) == "f90860cb995daa13"
    (solve,) = TASKS["mathematics"]().loop.predictors()
    assert solve.signature.instructions in texts  # the votes are asked for as the refiner's solutions are


def test_the_examples_of_the_loops():
    shown = [
        {role: [row.toDict() for row in examples.get(role, ())] for role in ROLES}
        for examples in (TRANSLATION, CONCEPTS)
    ]
    assert digest(shown) == "13c6ee82e28f90d3"


def test_the_messages_of_a_judge():
    judge = PointwiseJudge(C)
    judge.predict.demos = [dspy.Example(source="s", output="o", score=2)]
    assert [m["content"] for m in judge.messages({"source": "src", "output": "out"})] == [
        "Judge the text on quality: does the text say the data well?\n"
        "Answer with a whole number from 1 (worst) to 5 (best).",
        "Data: s\nText: o\nQuality:",
        "2",
        "Data: src\nText: out\nQuality:",
    ]
    compared = PairwiseJudge(C, ties=True, instruction_place="first")
    compared.predict.demos = [dspy.Example(source="s", candidates=["p", "q"], preference="B")]
    assert [m["content"] for m in compared.messages({"source": "src", "candidates": ["x", "y"]})] == [
        "Which text is better on quality: does the text say the data well?\nAnswer with A, B or Tie.",
        "Data: s\nText A: p\nText B: q\nBetter quality:",
        "B",
        "Data: src\nText A: x\nText B: y\nBetter quality:",
    ]
    compared.instruction_place = "last"
    assert [m["content"] for m in compared.messages({"source": "src", "candidates": ["x", "y"]})] == [
        "Data: s\nText A: p\nText B: q\nBetter quality:",
        "B",
        "Data: src\nText A: x\nText B: y\n\n"
        "Question: Which text is better on quality: does the text say the data well?\nAnswer with A, B or Tie.\n"
        "Better quality:",
    ]
    assert [m["content"] for m in likelihood_messages(C, "src")] == ["Say the data.", "Data: src\nText:"]
    compared.instruction_place = "first"
    first = compared.messages({"source": "src", "candidates": ["x", "y"]})
    roles = [[m["role"] for m in messages] for messages in (first, likelihood_messages(C, "src"))]
    assert roles == [["system", "user", "assistant", "user"], ["system", "user"]]
    data_coverage = PointwiseJudge(criteria.PRESETS["webnlg2020"][4])
    assert data_coverage.text({"source": "s", "output": "o"}).endswith("\nData coverage:")
