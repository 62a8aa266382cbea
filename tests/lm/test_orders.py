"""Options in reversed order: what is sent, and that the answer is by option, as if nothing had happened."""

import asyncio

import dspy
import numpy as np
import pytest
from decision_models import COHERENCE, ITEMS, LEVELS, TEXTS, Client, FirstOption, Native, sparrow, sparrow_server

from evalbias import Criterion, PointwiseJudge, ServerLM
from evalbias.evaluation.repeats import ReversedOptions, in_order_of, with_reversed_options
from evalbias.lm.cache import CachedLM
from evalbias.lm.contract import AnyLM
from evalbias.lm.types import Decision, MeasuringLM, Refused


def scores(lm, judge=None):
    return np.array([p.score for p in (judge or PointwiseJudge(COHERENCE)).batch(ITEMS, lm=lm)])


def test_the_highest_level_comes_first_and_the_answer_is_by_level_on_a_server_and_a_client():
    with sparrow_server() as (address, requests):
        server = ServerLM("sparrow", base_url=address, dialect="systemone", patience=5.0)
        client = Client()
        judge = PointwiseJudge(COHERENCE)
        judge.predict.demos = [dspy.Example(source="a", output="b", score=3.0)]
        expected = scores(server, judge)
        found = [scores(ReversedOptions(one), judge) for one in (server, client)]
        sent = requests[-1]
    assert sent["questions"]["coherence"]["criteria"] == [*LEVELS[::-1]]
    assert [demo["coherence"] for demo in sent["state"]["demos"]] == [0]  # the level 2, counted from the other end
    shares = sparrow().ask(*client.requests[-1])["coherence"]["probabilities"]
    mean = sum((3 - int(place)) * p for place, p in shares.items()) / sum(shares.values())
    last = TEXTS.index(client.requests[-1][0]["Output"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert found[0][last] == pytest.approx(mean, abs=1e-6)
    assert 0 < np.abs(found[0] - expected).max() < 0.3  # Sparrow's scores hardly depend on the order


def test_a_model_that_likes_the_first_option_has_a_large_shift_an_even_one_none_and_reversing_twice_is_no_change():
    lm = FirstOption()
    np.testing.assert_allclose(scores(lm), 0.8 * 1 + 0.1 * 2 + 0.1 * 3)
    np.testing.assert_allclose(scores(ReversedOptions(lm)), 0.8 * 3 + 0.1 * 2 + 0.1 * 1)
    many = PointwiseJudge(Criterion("worth", "is it worth it?", (0, 10)))  # so many scores are a choice
    np.testing.assert_allclose(scores(ReversedOptions(lm), many), 8 + 0.02 * np.arange(10).sum())
    question = Decision({"Output": "a"}, ("x", "y", "z"), "score", meanings=("low", "middle", "high"))
    assert with_reversed_options(with_reversed_options(question)) == question
    (answer,) = AnyLM(Client())._all([with_reversed_options(question)])
    assert in_order_of(question, answer).choices == question.choices
    assert in_order_of(question, answer).logprobs[0, 0] == answer.logprobs[0, 2]
    even = FirstOption(1 / 3)
    np.testing.assert_allclose(scores(ReversedOptions(even)), scores(even))


def test_yes_and_no_have_no_order_and_refusals_are_passed_on():
    client = Client()
    fine = PointwiseJudge(Criterion("fine", "is it fine?", (0, 1)))
    np.testing.assert_array_equal(scores(ReversedOptions(client), fine), scores(client, fine))

    class Refusing(MeasuringLM):
        model, decides = "m", True

        def answer(self, questions, answers):
            for place, _ in enumerate(questions):
                answers[place] = Refused("is too long", too_long=True)

    answers: dict = {}
    ReversedOptions(Refusing()).answer([Decision("a", ("1", "2"))], answers)
    assert answers == {0: Refused("is too long", too_long=True)}


def test_a_model_of_tokens_has_no_options_in_an_order(lms):
    with pytest.raises(ValueError, match="takes no closed questions"):
        ReversedOptions(lms["qwen2-chat"])


def test_calls_of_judges_and_of_predictors_ask_in_that_order_too(tmp_path):
    client = Client()
    lens = ReversedOptions(client)
    judge = PointwiseJudge(COHERENCE)
    expected = scores(lens)
    judge.predict.lm = lens
    item = {"source": ITEMS[0].source, "output": ITEMS[0].output}
    assert judge(**item).score == pytest.approx(expected[0], abs=1e-6)
    assert asyncio.run(judge.acall(**item)).score == pytest.approx(expected[0], abs=1e-6)
    predict = dspy.Predict(Native)
    predict.demos = [dspy.Example(summary="a", coherent=2, ok=True, kind="chat")]
    plain = predict(summary="The cat sat.", lm=FirstOption(0.7).client())
    found = predict(summary="The cat sat.", lm=ReversedOptions(FirstOption(0.7).client()))
    assert (plain.coherent.value, found.coherent.value) == pytest.approx((0.45, 1.55))
    assert (plain.kind.value, found.kind.value) == ("news", "chat")
    assert plain.ok.probability == found.ok.probability
    predict(summary="The cat sat.", lm=lens)
    (state, questions), (shown, others) = sorted(client.requests[-2:], key=lambda one: "coherent" not in one[1])
    assert questions["coherent"]["criteria"] == ["good", "fair", "bad"]
    assert list(others["kind"]["criteria"]) == ["chat", "news"]
    assert state["demos"] == [{**shown["demos"][0], "coherent": 0}]  # only the level is counted from the other end
    kept = CachedLM(lens, tmp_path / "answers.jsonl")  # as another model than the one inside
    np.testing.assert_array_equal(scores(kept), expected)
    assert CachedLM(lens).provenance() != CachedLM(client).provenance()
