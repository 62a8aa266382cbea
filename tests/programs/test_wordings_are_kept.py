"""The texts that models are asked with decide every recorded number: a change must be meant.

If one of these fails because you changed a wording on purpose, run the benchmarks that use it again, then put the new
digest here.
"""

from dataclasses import asdict

from evalbias.evaluation.loops import Paraphrase
from evalbias.programs import criterion as criteria
from evalbias.programs.concepts import FindMissing
from evalbias.programs.feedback import FindErrors
from evalbias.programs.prompts import (
    comparison_messages,
    demonstrations,
    item_text,
    judge_messages,
    likelihood_messages,
    pair_text,
    same_question_messages,
)
from evalbias.programs.tasks import CONCEPTS, ROLES, TASKS, TRANSLATION
from evalbias.values import digest

C = criteria.SYNTHETIC
DEMO = (item_text(C, "s", "o"), "2")


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
    assert [m["content"] for m in judge_messages(C, "src", "out", shown=demonstrations([DEMO]))] == [
        "Judge the text on quality: does the text say the data well?\n"
        "Answer with a whole number from 1 (worst) to 5 (best).",
        "Data: s\nText: o\nQuality:",
        "2",
        "Data: src\nText: out\nQuality:",
    ]
    shown = demonstrations([(pair_text(C, "s", ["p", "q"]), "B")])
    compared = comparison_messages(C, "src", ["x", "y"], labels=("A", "B", "Tie"), last=False, shown=shown)
    assert [m["content"] for m in compared] == [
        "Which text is better on quality: does the text say the data well?\nAnswer with A, B or Tie.",
        "Data: s\nText A: p\nText B: q\nBetter quality:",
        "B",
        "Data: src\nText A: x\nText B: y\nBetter quality:",
    ]
    last = comparison_messages(C, "src", ["x", "y"], labels=("A", "B", "Tie"), shown=shown, last=True)
    assert [m["content"] for m in last] == [
        "Data: s\nText A: p\nText B: q\nBetter quality:",
        "B",
        "Data: src\nText A: x\nText B: y\n\n"
        "Question: Which text is better on quality: does the text say the data well?\nAnswer with A, B or Tie.\n"
        "Better quality:",
    ]
    assert same_question_messages("Which is best?", "Which wins?") == [
        {
            "role": "user",
            "content": "First instruction: Which is best?\n\nSecond instruction: Which wins?\n\n"
            "Do both instructions ask for a judgment of the same quality? Answer with Yes or No.\nSame quality:",
        }
    ]
    assert [m["content"] for m in likelihood_messages(C, "src")] == ["Say the data.", "Data: src\nText:"]
    roles = [[m["role"] for m in messages] for messages in (compared, likelihood_messages(C, "src"))]
    assert roles == [["system", "user", "assistant", "user"], ["system", "user"]]
    assert item_text(criteria.PRESETS["webnlg2020"][4], "s", "o").endswith("\nData coverage:")
