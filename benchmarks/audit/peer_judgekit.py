"""judgekit on stdin's draws, one a line: ``run_audit`` with its own innocent bands. Runs in judgekit's environment."""

import json
import sys

from judgekit import BinaryVerdict, GradedVerdict, PairwiseVerdict, run_audit

NAMES = {
    "position preference": "position",
    "verbosity bias": "verbosity",
    "verbosity bias (pairwise)": "verbosity",
    "self-preference": "self_preference",
    "central tendency": "scale_use",
    "expected calibration error": "calibration",
}


def graded(numbers):
    """Scores with lengths and writers; the human verdict is the mean rating, as judgekit asks."""
    rows = zip(numbers["ids"], numbers["scores"], numbers["lengths"], numbers["writers"], strict=True)
    judge = [
        GradedVerdict(item_id=i, score=score, candidate_len=length, candidate_model=writer)
        for i, score, length, writer in rows
    ]
    return judge, [
        GradedVerdict(item_id=i, judge_id="human", score=score)
        for i, score in zip(numbers["ids"], numbers["people"], strict=True)
    ]


def pairwise(numbers):
    """Choices in both orders; where the judge gives probabilities, the original order is a forecast of people's."""
    judge, human = [], []
    for index, item in enumerate(numbers["ids"]):
        (a, b), (first, swapped) = numbers["people"][index], numbers["odds"][index]
        length_a, length_b = numbers["lengths"][index]
        lengths = {"a_len": length_a, "b_len": length_b}
        judge.append(PairwiseVerdict(item_id=item, choice="a" if first > 0 else "b", **lengths))
        judge.append(PairwiseVerdict(item_id=item, choice="b" if swapped > 0 else "a", swapped=True, **lengths))
        choice = "a" if a > b else "b" if b > a else "tie"
        human.append(PairwiseVerdict(item_id=item, judge_id="human", choice=choice))
        if numbers["probabilities"] and choice != "tie":
            win = numbers["wins"][index][0]
            confidence = max(win, 1 - win)
            judge.append(BinaryVerdict(item_id=item, label=win >= 0.5, confidence=confidence))
            human.append(BinaryVerdict(item_id=item, judge_id="human", label=choice == "a"))
    return judge, human


for line in sys.stdin:
    numbers = json.loads(line)
    judge, human = (pairwise if numbers["pairwise"] else graded)(numbers)
    flags = run_audit(judge, human, judge_model=numbers["own"]).flags
    print(json.dumps(sorted(NAMES[flag.name] for flag in flags)), flush=True)
