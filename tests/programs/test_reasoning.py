"""Judges whose model writes its reasons before it answers: what is asked, and the mean of what is measured after."""

import asyncio
import json

import dspy
import numpy as np
import pytest
from decision_models import Client
from fake_server import served
from fakes import Fake, pair
from texts import Writer, writer

import evalbias
from evalbias import Criterion, PairwiseJudge, PointwiseJudge, Reasoning
from evalbias.lm.cache import CachedLM
from evalbias.lm.contract import AnyLM
from evalbias.lm.dspy_seam import AsyncEngine
from evalbias.lm.types import ChoiceLogprobs, Choices, Refused, Text, Usage, Written

C = Criterion("quality", "is it good?", (1, 3))
ITEM = dspy.Example(id="a", source="s", output="o")
SHARES = {"good": (0.1, 0.2, 0.6), "bad": (0.5, 0.1, 0.0), "...": (0.2, 0.2, 0.2)}


class Thinker(Fake):
    """Writes the texts given, by turns, and answers by the last that it wrote; counts what it is asked."""

    model = "fake/thinker"

    def __init__(self, *written, refuses=""):
        super().__init__()
        self.written, self.asked, self.turn, self.refuses = written, [], 0, refuses

    def answer(self, questions, answers):
        for place, one in enumerate(questions):
            self.asked.append(one)
            if isinstance(one, Text):
                answers[place] = Written(self.written[self.turn % len(self.written)], usage=Usage(5, 2))
                self.turn += 1
            elif self.refuses and one.prompt[-2]["content"] == self.refuses:
                answers[place] = Refused("has 99 tokens, but the model's context is 64.", too_long=True)
            else:
                with np.errstate(divide="ignore"):
                    row = np.log([SHARES[one.prompt[-2]["content"]][: len(one.choices)]])
                answers[place] = ChoiceLogprobs(one.choices, row, usage=Usage(9, 1))


def reasoned(samples=2, kind=PointwiseJudge, **options):
    return kind(C, reasoning=Reasoning(samples=samples), **options)


def test_the_score_is_of_the_mean_probabilities_after_each_reason():
    lm = Thinker("good", "bad")
    (found,) = reasoned().batch([ITEM], lm=lm)
    # p = ((.1, .2, .6) + (.5, .1, 0)) / 2 = (.3, .15, .3); score = (.3 + 2 * .15 + 3 * .3) / .75
    assert found.score == pytest.approx(2.0)
    assert found.distribution == pytest.approx({"1": 0.4, "2": 0.2, "3": 0.4})
    assert found.coverage == pytest.approx(0.75)
    assert (found.reasons, found.samples) == (["good", "bad"], None)
    texts, choices = ([q for q in lm.asked if isinstance(q, kind)] for kind in (Text, Choices))
    assert [(q.max_tokens, q.temperature) for q in texts] == [(256, 1.0)] * 2
    assert len({q.seed for q in texts}) == 2
    asked = "Do not answer yet. First write in a few sentences what speaks for which answer."
    assert texts[0].prompt[-1]["content"] == f"Source: s\nOutput: o\n{asked}"
    assert [message["role"] for message in choices[0].prompt] == ["system", "user", "assistant", "user"]
    asking = {"role": "user", "content": "Now give your answer alone.\nQuality:"}
    assert choices[0].prompt[-2:] == [{"role": "assistant", "content": "good"}, asking]
    assert PointwiseJudge(C).batch([ITEM], lm=Plain())[0].get("reasons") is None


class Plain(Fake):
    model = "fake/plain"

    def answer(self, questions, answers):
        answers.update({k: ChoiceLogprobs(q.choices, np.log([[0.3, 0.3, 0.3]])) for k, q in enumerate(questions)})


def test_the_order_of_items_and_one_empty_or_refused_reason():
    items = [dspy.Example(id=str(k), source="s", output=f"o{k}") for k in range(3)]
    found = reasoned(1).batch(items, lm=Thinker("good", " ", "bad"))
    assert [p.reasons for p in found] == [["good"], [" "], ["bad"]]
    assert [p.score for p in found] == pytest.approx([2.3 / 0.9, 2.0, 0.7 / 0.6])
    found = reasoned(1).batch(items, lm=Thinker("good", "bad", refuses="bad"))
    assert [np.isnan(p.score) for p in found] == [False, True, False]
    assert found[1].undefined.startswith("The prompt of the item '1' has 99 tokens")
    assert found[1].reasons == []


def test_pairs_are_compared_after_reasons_in_both_orders():
    judge = reasoned(2, PairwiseJudge, debias="permutation")
    (found,) = judge.batch([pair(1, 2)], lm=Thinker("good", "bad"))
    # each order: p = ((.1, .2) + (.5, .1)) / 2 = (.3, .15): the first position gets 2/3, so neither is preferred
    assert found.positions == pytest.approx(np.array([[2 / 3, 1 / 3]] * 2))
    assert found.probability == pytest.approx(0.5)
    assert found.reasons == ["good", "bad"] * 2


def test_a_cache_asks_nothing_twice_and_counts_both_kinds():
    lm = CachedLM(Thinker("good", "bad"))
    first, again = (reasoned(2).batch([ITEM], lm=lm)[0].toDict() for _ in range(2))
    assert first == again
    assert (lm.asked[Text], lm.asked[Choices]) == (2, 2)


def test_a_call_through_dspy_measures_after_what_the_model_wrote():
    def probabilities(text, system):
        return {"1": 0.2, "2": 0.3, "3": 0.5} if text.endswith("Quality:") else {"It is fine.": 1.0}

    lm, engine = writer(probabilities, top=3)
    judge = reasoned(3)
    judge.predict.lm = lm
    called = judge(source="s", output="o")
    assert called.score == pytest.approx(2.3)
    assert called.reasons == ["It is fine."] * 3
    assert judge.batch([ITEM])[0].toDict() == called.toDict()
    assert asyncio.run(judge.acall(source="s", output="o")).toDict() == called.toDict()
    last = engine.requests[-1].messages
    asked = [("assistant", "It is fine."), ("user", "Now give your answer alone.\nQuality:")]
    assert [(message.role, message.text) for message in last[1:]] == asked


def test_a_model_without_probabilities_answers_once_after_each_reason():
    after = {"good": {"3": 1.0}, "bad": {"1": 1.0}, "unsure": {"I cannot say.": 1.0}}

    class Reasoner(Writer):
        def complete(self, request):
            reason = request.messages[-2].text if len(request.messages) > 1 else None
            self.probabilities = lambda *_: after[reason] if reason else dict.fromkeys(after, 1 / 3)
            return super().complete(request)

    engine = Reasoner(None)
    lm = dspy.LM("reasoner/once", engine=engine, async_engine=AsyncEngine(engine), cache=False)
    judge = reasoned(30, scoring="sampled")
    judge.predict.lm = lm
    called = judge(source="s", output="o")
    shares = [called.reasons.count(reason) / 30 for reason in ("bad", "good")]
    assert 0 < min(shares) < 1
    assert [called.distribution[label] * called.coverage for label in "13"] == pytest.approx(shares)
    assert (called.coverage, called.samples) == (pytest.approx(sum(shares)), 30)
    asked = [(request.config.temperature, request.config.max_tokens) for request in engine.requests]
    assert sorted({*asked}) == [(0.0, 16), (1.0, 256)]
    assert len(asked) == 60
    assert judge.batch([ITEM])[0].toDict() == called.toDict()


def test_a_local_model_and_a_server_measure_the_mean_after_their_own_reasons(lms):
    judge = PointwiseJudge(C, reasoning=Reasoning(samples=2, max_tokens=8))
    lm = lms["qwen2-chat"]
    (found,) = judge.batch([ITEM], lm=lm)
    assert len(found.reasons) == 2
    asked = judge.question(ITEM)
    rows = [lm.choice_logprobs([asked.after(text.strip() or "...").prompt], C.labels) for text in found.reasons]
    mean = np.mean([np.exp(row.logprobs[0]) for row in rows], axis=0)
    assert found.score == pytest.approx((mean * [1, 2, 3]).sum() / mean.sum(), abs=1e-5)
    assert found.coverage == pytest.approx(mean.sum(), abs=1e-6)
    assert judge.batch([ITEM], lm=lm)[0].reasons == found.reasons  # by the seed
    with served(lm) as (server, _):
        (answered,) = judge.batch([ITEM], lm=server)
    assert len(answered.reasons) == 2
    rows = [lm.choice_logprobs([asked.after(text.strip() or "...").prompt], C.labels) for text in answered.reasons]
    mean = np.mean([np.exp(row.logprobs[0]) for row in rows], axis=0)
    assert answered.score == pytest.approx((mean * [1, 2, 3]).sum() / mean.sum(), abs=1e-3)


def test_settings_are_saved_and_what_makes_no_sense_is_refused(tmp_path):
    judge, file = reasoned(3, PairwiseJudge), tmp_path / "judge.json"
    judge.save(str(file))
    assert json.loads(file.read_text())["settings"]["reasoning"]["samples"] == 3
    assert evalbias.load(file).reasoning == Reasoning(samples=3)
    assert PointwiseJudge(C, reasoning=True).reasoning == Reasoning()
    assert PointwiseJudge(C).reasoning is None
    with pytest.raises(TypeError, match=r"reasoning='yes': give True, or evalbias\.Reasoning"):
        PointwiseJudge(C, reasoning="yes")
    with pytest.raises(ValueError, match="give 1 to 10000 samples"):
        Reasoning(samples=0)


def test_a_model_that_only_answers_closed_questions_cannot_reason():
    judge = reasoned(1)
    with pytest.raises(NotImplementedError, match="writes no texts"):
        judge.batch([ITEM], lm=AnyLM(Client()))
