"""The search on pointwise judges, and the curve of agreement against the decision rate."""

import math

import dspy
import numpy as np
import pytest
from fakes import PARTS, FormulaLM, Wording, items, rated

from evalbias import data
from evalbias.evaluation import Judged
from evalbias.measures import quadratic_fit, score_uniformity
from evalbias.optimizers.objectives import DISTRIBUTIONS, instruct
from evalbias.optimizers.zepo import (
    ZEPO,
    Confidence,
    ContextFreeConfidence,
    Epochs,
    GrammarParaphraser,
    ScoreUniformity,
    sensitivity_curve,
)
from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker, PointwiseJudge

C = Criterion("quality", "is it good?")


def test_agreement_is_best_where_the_decisions_are_even():
    wordings = [f"On quality, lean={lean}" for lean in np.linspace(-8, 8, 9)]
    points = sensitivity_curve(PairwiseJudge(C), wordings, rated(), lm=Wording(), limit=120, objectives=[Confidence()])
    rates, agreed = [p.decision_rate for p in points], [p.agreement for p in points]
    assert rates == sorted(rates)
    fit = quadratic_fit(rates, agreed)
    assert fit.curvature < 0
    assert fit.top == pytest.approx(0.5, abs=0.15)
    assert agreed[4] == max(agreed) == pytest.approx(1)
    assert all(p.objectives["confidence"] < 0 for p in points)


def test_the_curve_after_debiasing_is_of_averaged_probabilities():
    texts = [f"On quality, lean={lean}" for lean in (-30, 0, 30)]
    lm = Wording()
    judge = PairwiseJudge(C, debias="permutation")
    points = sensitivity_curve(judge, texts, rated(), lm=lm, objectives=[ContextFreeConfidence()])
    compared = 12 * 15  # 12 documents of six outputs
    comparisons = [sum(r.comparisons for r in _rankings(judge, text)) for text in texts]
    assert len(lm.asked) == sum(2 * (compared + 1) + 2 * n for n in comparisons)
    # a lean of 30 nats decides every comparison before debiasing, and none after it
    assert len({p.decision_rate for p in points}) == 1
    assert 0.4 < points[0].decision_rate < 0.6
    assert [p.agreement for p in points] == pytest.approx([1, 1, 1])
    assert [p.objectives["context-free confidence"] for p in points] == pytest.approx([math.log(2)] * 3)
    biased = sensitivity_curve(PairwiseJudge(C), texts, rated(), lm=Wording())
    assert [p.decision_rate < 0.1 for p in biased] == [True, False, False]
    assert biased[2].decision_rate > 0.9


def _rankings(judge, text):
    one = judge.deepcopy()
    instruct(one, text)
    documents = [
        dspy.Example(source=g[0].source, candidates=[e.output for e in g]) for g in data.by_input(rated()).values()
    ]
    return PairwiseRanker(one).batch(documents, lm=Wording())


class Sharp(FormulaLM):
    """Answers with a spread that its instruction decides, and tells what it was instructed."""

    def __init__(self):
        super().__init__(bias=0.0)
        self.instructions = set()

    def _row(self, prompt, choices):
        self.instructions.add(prompt[0]["content"])
        lean = float(prompt[0]["content"].split("lean=")[1].split()[0]) if "lean=" in prompt[0]["content"] else 3.0
        row = np.array(super()._row(prompt, choices)) / (1 + 10 * abs(lean))
        return list(row - np.log(np.exp(row).sum()))


@pytest.mark.slow
def test_a_pointwise_judge_is_searched_by_how_it_uses_its_scale():
    lm, judge = Sharp(), PointwiseJudge(C)
    compiled = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(3), select=False).compile(
        judge, trainset=items(40, 0), lm=lm
    )
    report = compiled.report
    assert report.objective == ScoreUniformity.name
    assert report.history[-1] > report.history[0]
    assert compiled.predict.signature.instructions == report.tried[report.best].instruction + "\n" + C.answer_format
    assert all(text.endswith(C.answer_format) for text in lm.instructions)
    assert all(text.count(C.answer_format) == 1 for text in lm.instructions)
    scores = np.array([p.score for p in compiled.batch(items(40, 0), lm=lm)])
    assert -report.history[-1] == pytest.approx(
        np.abs(np.sort((scores - 1) / 4) - (np.arange(40) + 0.5) / 40).mean(), abs=0.01
    )
    assert judge.predict.signature.instructions == C.instructions
    other = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(1), objective=Confidence(), select=False)
    assert other.compile(judge, trainset=items(10, 0), lm=lm).report.objective == "confidence"


def test_an_instruction_that_does_not_name_the_answers_is_judged_as_it_is():
    lm, judge, own = Sharp(), PointwiseJudge(C), "On quality, judge as you like."
    judge.predict.signature = judge.predict.signature.with_instructions(own)
    zepo = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(1), select=False)
    first = zepo.compile(judge, trainset=items(40, 0), lm=lm).report.tried[0]
    assert {text for text in lm.instructions if not text.endswith(C.answer_format)} == {own}
    assert f"{own}\n{C.answer_format}" not in lm.instructions
    scores = np.array([p.score for p in judge.batch(items(40, 0), lm=lm)])
    assert (first.instruction, first.objective) == (own, pytest.approx(score_uniformity(scores, low=1, high=5)))


def test_what_cannot_be_searched():
    zepo = ZEPO(GrammarParaphraser(PARTS), select=False)
    with pytest.raises(ValueError, match="scoring='direct'"):
        zepo.compile(PointwiseJudge(C, scoring="direct"), trainset=items(3, 0), lm=Sharp())
    with pytest.raises(TypeError, match="this Criterion is neither"):
        zepo.compile(C, trainset=items(3, 0), lm=Sharp())
    assert math.isnan(
        ScoreUniformity()(Judged(("a",), "c", np.full(1, math.nan), {DISTRIBUTIONS: np.full((1, 5), math.nan)}))
    )
