"""Repairs of order bias: what a repair does to an answer, and that one is compiled only where nothing else is lost."""

import asyncio

import dspy
import numpy as np
import pytest
from decision_models import Client
from fakes import numbers, of_sources

from evalbias import Criterion, OrderRepair, PointwiseJudge, load_judge
from evalbias.lm.orders import Repair, RepairedOptions, ReversedOptions
from evalbias.lm.types import ChoiceLogprobs, Decision, MeasuringLM

LEVELS = ("bad", "poor", "fair", "good", "great")
QUALITY = Criterion("quality", "is it good?", levels=LEVELS)


class Leaning(MeasuringLM):
    """A model that judges by the q of a text, and leans to the options that come first by ``lean`` nats a place.

    With ``by_place`` it means the place of an option, not the option: the better, the later.
    """

    model, decides = "leaning", True

    def __init__(self, lean=1.0, *, by_place=False):
        self.lean, self.by_place, self.asked = lean, by_place, 0

    def answer(self, questions, answers):
        self.asked += len(questions)
        for i, one in enumerate(questions):
            text = one.prompt["Output"]
            places = np.arange(len(one.choices))
            levels = places + 1 if self.by_place else np.array([float(choice) for choice in one.choices])
            fit = 0.0 if "N/A" in text else -0.5 * (levels - sum(np.array(numbers(text)) * [1, 0.3])) ** 2
            logits = fit - self.lean * places
            answers[i] = ChoiceLogprobs(one.choices, (logits - np.log(np.exp(logits).sum()))[None])


def asked(lm, text="q=4 z=0"):
    question, answers = Decision({"Output": text}, ("1", "2", "3", "4", "5"), "score", "How good?"), {}
    lm.answer([question], answers)
    return answers[0].probabilities[0]


def test_both_orders_are_averaged_and_a_prior_of_places_is_taken_out_of_each():
    lm = Leaning()
    one, other = asked(lm), asked(ReversedOptions(lm))
    np.testing.assert_allclose(asked(RepairedOptions(lm, Repair(True))), (one + other) / 2, atol=1e-12)
    lean = (0.0, -1.0, -2.0, -3.0, -4.0)
    for both in (False, True):  # a lean by place alone is gone, whatever the order
        np.testing.assert_allclose(asked(RepairedOptions(lm, Repair(both, lean))), asked(Leaning(0.0)), atol=1e-12)
    turned = ReversedOptions(RepairedOptions(lm, Repair(False, lean)))
    np.testing.assert_allclose(asked(turned), asked(Leaning(0.0)), atol=1e-12)
    with pytest.raises(ValueError, match="A repair for 2 options cannot be used for 5"):
        asked(RepairedOptions(lm, Repair(False, (0.0, 0.0))))


def compiled(lm, n=80, **options):
    judge = PointwiseJudge(QUALITY)
    return OrderRepair(n_resamples=99, **options).compile(
        judge, trainset=of_sources(n, 1), valset=of_sources(30, 2), lm=lm
    )


def test_a_leaning_judge_with_a_signal_is_repaired_and_saved(tmp_path):
    lm = Leaning()
    judge = compiled(lm)
    given, *tried = judge.report.candidates
    assert abs(given.estimates["shift"].value) > 0.5
    (chosen,) = (one for one in tried if one.chosen)
    assert abs(chosen.estimates["shift"].value) < 0.05
    assert judge.repair is not None
    assert "less bias by the order of levels" in judge.report.decision
    changes = judge.report.comparison["order"]
    assert abs(changes["shift"].after.value) < abs(changes["shift"].before.value)
    judge.save(tmp_path / "judge.json")
    loaded, items = load_judge(tmp_path / "judge.json"), of_sources(5, 3)
    assert loaded.repair == judge.repair
    scores = [p.score for p in loaded.batch(items, lm=lm)]
    np.testing.assert_allclose(scores, [p.score for p in judge.batch(items, lm=lm)], atol=1e-12)
    assert not np.allclose(scores, [p.score for p in PointwiseJudge(QUALITY).batch(items, lm=lm)], atol=0.1)


def test_a_repair_that_makes_all_answers_alike_is_refused_with_the_reason():
    judge = compiled(Leaning(1.0, by_place=True))
    reasons = {one.name: one.reason for one in judge.report.candidates}
    for name in ("both orders averaged", "both orders and contextual prior"):
        assert reasons[name].startswith("answers alike: the spread of its scores falls from")
    assert judge.repair is not None
    assert not judge.repair.both_orders
    shift = {one.name: one.estimates["shift"].value for one in judge.report.candidates}
    assert abs(shift["given"]) > 0.3
    assert shift["both orders averaged"] == pytest.approx(0.0, abs=1e-9)


def test_a_decision_model_that_no_order_moves_keeps_the_given_judge():
    judge = compiled(Client(), n=40)
    assert judge.repair is None
    assert judge.report.decision.startswith("The given program was kept")


def test_calls_are_repaired_as_batches_are():
    judge = PointwiseJudge(QUALITY, repair=Repair(True, (0.5, 0.0, 0.0, 0.0, 0.2)))
    judge.predict.lm = Client()
    item = dspy.Example(source="the council met", output="it met on Monday")
    (batched,) = judge.batch([item])
    called = judge(source=item.source, output=item.output)
    awaited = asyncio.run(judge.acall(source=item.source, output=item.output))
    assert called.score == pytest.approx(batched.score, abs=1e-6)
    assert awaited.score == pytest.approx(batched.score, abs=1e-6)
    judge.repair = None
    assert judge(source=item.source, output=item.output).score != pytest.approx(batched.score, abs=1e-3)


def test_what_has_no_order_is_refused():
    yes_or_no = PointwiseJudge(Criterion("quality", "is it good?", (0, 1)))
    with pytest.raises(ValueError, match="has no options in an order: there is nothing to repair"):
        OrderRepair().compile(yes_or_no, trainset=of_sources(40, 1), lm=Leaning())
    with pytest.raises(TypeError, match="repair=1: give a Repair"):
        PointwiseJudge(QUALITY, repair=1)
