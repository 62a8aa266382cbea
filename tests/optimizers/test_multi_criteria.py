"""Several criteria of one task, compiled side by side."""

import math

import numpy as np
import pytest
from fakes import FormulaLM, items

from evalbias.measures import likelihood_bias
from evalbias.optimizers import BiasedDemos, compile_each, count_answers
from evalbias.programs import Criterion, PointwiseJudge
from evalbias.values import to_json

NAMES = ("quality", "style")


def rated(n, seed):
    found = items(n, seed)
    for e in found:
        e.scores["style"] = 1 + e.scores["quality"] / 2 + len(e.output) % 3
    return found


def test_every_criterion_and_the_total():
    judges = [PointwiseJudge(Criterion(name, "is it good?")) for name in NAMES]
    optimizer = BiasedDemos(4, n_resamples=99, select=False)
    found = compile_each(optimizer, judges, trainset=rated(60, 1), valset=rated(50, 2), lm=FormulaLM())
    assert list(found.comparisons) == [*NAMES, "total"]
    for side in ("before", "after"):
        judged = getattr(found, side)
        model = np.mean([judged[name].answers for name in NAMES], axis=0)
        human = np.mean([judged[name].covariates["human_scores"] for name in NAMES], axis=0)
        expected = likelihood_bias(judged["quality"].covariates["likelihoods"], model, human)
        for name in ("bias_score", "performance"):
            assert getattr(found.comparisons["total"][name], side).value == pytest.approx(getattr(expected, name))
    alone = optimizer.compile(judges[1], trainset=rated(60, 1), valset=rated(50, 2), lm=FormulaLM())
    assert found.judges["style"].dump_state() == alone.dump_state()
    assert to_json(found.comparisons["style"]) == to_json(alone.report.comparison["likelihood"])  # it holds NaN


def test_one_criterion_has_no_total_and_nothing_to_measure_is_refused():
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    optimizer = BiasedDemos(4, n_resamples=99, select=False)
    found = compile_each(optimizer, [judge], trainset=rated(60, 1), valset=rated(20, 2), lm=FormulaLM())
    assert list(found.comparisons) == ["quality"]
    with pytest.raises(ValueError, match="1 judges and 0 validation items"):
        compile_each(optimizer, [judge], trainset=rated(60, 1), valset=[], lm=FormulaLM())


def test_the_number_of_answers_is_told_before():
    asked = []
    optimizer = BiasedDemos(4, n_resamples=9, select=False)

    class Counting(FormulaLM):
        def choice_logprobs(self, prompts, choices):
            asked.append(len(prompts))
            return super().choice_logprobs(prompts, choices)

        def loglikelihood(self, pairs):
            asked.append(len(pairs))
            return super().loglikelihood(pairs)

    judges = [PointwiseJudge(Criterion(name, "is it good?")) for name in NAMES]
    sides = {"trainset": rated(60, 1), "valset": rated(20, 2)}
    sides["trainset"][5].scores["style"] = math.nan
    compile_each(optimizer, judges, **sides, lm=Counting())
    about = count_answers(optimizer, [j.criterion for j in judges], **sides)
    assert about - 2 * 2 * 16 - 4 <= sum(asked) <= about  # what is tried is judged later, and asked once


def test_each_texts_likelihood_is_asked_once():
    asked = []

    class Counting(FormulaLM):
        def loglikelihood(self, pairs):
            asked.extend(text for _, text in pairs)
            return super().loglikelihood(pairs)

    judges = [PointwiseJudge(Criterion(name, "is it good?")) for name in NAMES]
    optimizer = BiasedDemos(4, n_resamples=9, select=False)
    compile_each(optimizer, judges, trainset=rated(60, 1), valset=rated(20, 2), lm=Counting())
    assert len(asked) == len(set(asked)) == 60 - 4 + 20
    assert optimizer.likelihood_lm is None
