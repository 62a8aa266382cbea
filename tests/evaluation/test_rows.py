"""The search beside its simplest rival, and the curve of agreement against the decision rate."""

import math

import numpy as np
import pytest
from fakes import PARTS, FormulaLM, Wording, items, rated

from evalbias import data
from evalbias.evaluation.rows import rows
from evalbias.measures import quadratic_fit
from evalbias.optimizers.zepo import ZEPO, Confidence, Epochs, GrammarParaphraser, ScoreUniformity
from evalbias.optimizers.zepo.sensitivity import curve
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge

C = Criterion("quality", "is it good?")


@pytest.fixture(scope="module")
def found():
    train, test = data.split(rated(documents=24), seed=0, by="input", test_fraction=0.5)
    judge = PairwiseJudge(C)
    zepo = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(3))
    compiled = zepo.compile(judge, trainset=data.pairs(train, limit=100, seed=0), lm=Wording(first=6.5))
    return judge, compiled, test


def test_four_rows_with_the_permutation_beside_the_search(found):
    judge, compiled, test = found
    told = rows(judge, compiled, test, lm=Wording(first=6.5), limit=80, n_resamples=9999)
    assert list(told) == ["initial", "initial + permutation", "searched", "searched + permutation"]
    initial, searched = told["initial"], told["searched"]
    assert searched.preference.fairness > initial.preference.fairness
    assert searched.agreement.spearman.value > initial.agreement.spearman.value
    assert told["initial + permutation"].agreement.judgments == 2 * told["initial + permutation"].agreement.comparisons
    assert initial.test is None
    assert searched.test.difference == pytest.approx(
        searched.agreement.spearman.value - initial.agreement.spearman.value
    )
    assert searched.test.n == 12
    assert judge.debias is compiled.debias is None


def test_items_that_nobody_rated_have_no_agreement_and_some_are_counted(found):
    judge, compiled, test = found
    bare = [e.copy(scores={}) for e in test]
    assert rows(judge, compiled, bare, lm=Wording(), limit=20)["searched"].agreement is None
    some = [e if e.id.endswith("-1") or k % 2 else bare[k] for k, e in enumerate(test)]
    agreed = rows(judge, compiled, some, lm=Wording(), limit=20)["searched"].agreement
    missing = sum(not e.scores for e in some)
    assert agreed.spearman.undefined == missing > 0


def test_agreement_is_best_where_the_decisions_are_even(found):
    judge, _, test = found
    wordings = [f"On quality, lean={lean}" for lean in np.linspace(-8, 8, 9)]
    points = curve(judge, wordings, test, lm=Wording(), limit=120)
    rates, agreed = [p.decision_rate for p in points], [p.agreement for p in points]
    assert rates == sorted(rates)
    fit = quadratic_fit(rates, agreed)
    assert fit.curvature < 0
    assert fit.top == pytest.approx(0.5, abs=0.15)
    assert agreed[4] == max(agreed) == pytest.approx(1)


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


def test_a_pointwise_judge_is_searched_by_how_it_uses_its_scale():
    lm, judge = Sharp(), PointwiseJudge(C)
    compiled = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(3)).compile(judge, trainset=items(40, 0), lm=lm)
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
    other = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(1), objective=Confidence())
    assert other.compile(judge, trainset=items(10, 0), lm=lm).report.objective == "confidence"


def test_what_cannot_be_searched():
    zepo = ZEPO(GrammarParaphraser(PARTS))
    with pytest.raises(ValueError, match="scoring='direct'"):
        zepo.compile(PointwiseJudge(C, scoring="direct"), trainset=items(3, 0), lm=Sharp())
    with pytest.raises(TypeError, match="Criterion is no judge"):
        zepo.compile(C, trainset=items(3, 0), lm=Sharp())
    assert math.isnan(ScoreUniformity()(type("A", (), {"probabilities": np.full((2, 5), math.nan)})))
