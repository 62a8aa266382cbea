"""Models that measure no judgments: from the first tokens' log-probabilities, or from repeated answers."""

import asyncio
import logging
import math

import dspy
import numpy as np
import pytest
from fake_server import serving
from texts import writer

from evalbias import Sampling, ServerLM
from evalbias.lm.cache import CachedLM, measuring
from evalbias.lm.reading import named_choice
from evalbias.lm.types import NoProbabilities
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge

C = Criterion("quality", "is it good?", (1, 3))
CHAT = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Output: a cat.\nQuality:"}]
OTHER = [{"role": "user", "content": "the mat"}]
WAYS_OUT = r"LocalLM.*ServerLM.*logprobs.*scoring='sampled'.*--samples"


def openai(address):
    return dspy.LM("openai/tiny", api_base=address, api_key="none", cache=False, num_retries=0)


def one_token_texts(local, fake, messages, most):
    """Those of the most probable first tokens that are one token as a text too."""
    tops = fake.chat({"messages": messages, "max_tokens": 1, "top_logprobs": most, "logprobs": True})
    tops = tops["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    tokenize = local.engine.loaded.tokenizer.tokenize
    return [e["token"] for e in tops if tokenize(e["token"]) == [e["token"]]]


@pytest.mark.parametrize("most_top", [20, 5])
def test_an_openai_model_is_measured_from_its_first_tokens(lms, caplog, most_top):
    local = lms["qwen2-chat"]
    with serving(local, "chat") as (address, fake):
        choices = one_token_texts(local, fake, CHAT, most_top)[:3]
        fake.unknown, fake.most_top = set(), most_top
        with caplog.at_level(logging.WARNING):
            answer = measuring(openai(address)).choice_logprobs([CHAT, CHAT], choices)
            hidden = measuring(openai(address)).choice_logprobs([CHAT, OTHER], ["1", "2", "3"])
        if most_top == 20:
            same = ServerLM("tiny", base_url=address, dialect="chat").choice_logprobs([CHAT, CHAT], choices)
            np.testing.assert_array_equal(answer.logprobs, same.logprobs)
    truth = local.choice_logprobs([CHAT], choices)
    assert truth.coverage[0] < 0.999
    np.testing.assert_allclose(answer.logprobs, np.repeat(truth.logprobs, 2, axis=0), atol=1e-4)
    np.testing.assert_allclose(answer.coverage, truth.coverage[0], rtol=1e-3)
    assert answer.samples is None
    assert np.isnan(hidden.logprobs).all()  # not among the 20: undefined, not 0
    assert "truncated" not in caplog.text
    bodies = [body for path, body in fake.requests if "max_completion_tokens" in body]
    assert {(body["max_completion_tokens"], body["temperature"]) for body in bodies} == {(1, 1.0)}


def test_first_tokens_give_the_same_prediction_in_every_form_of_call():
    lm, engine = writer(lambda *_: {"1": 0.1, "2": 0.2, "3": 0.5, "x": 0.2}, top=4)
    judge = PointwiseJudge(C)
    judge.predict.lm = lm
    example = dspy.Example(source="s", output="o").with_inputs("source", "output")
    (batched,) = judge.batch([example])
    for prediction in (judge(source="s", output="o"), asyncio.run(judge.acall(source="s", output="o")), batched):
        assert prediction.score == pytest.approx((0.1 * 1 + 0.2 * 2 + 0.5 * 3) / 0.8)
        assert prediction.coverage == pytest.approx(0.8)
        assert prediction.samples is None
    assert {r.config.logprobs for r in engine.requests} == {20}
    assert {r.config.max_tokens for r in engine.requests} == {1}


def test_first_tokens_that_hide_a_label_make_the_judgment_undefined_in_every_form_of_call():
    lm, _ = writer(lambda *_: {"A": 0.5, "1": 0.2, "2": 0.1, "B": 0.1, "3": 0.1}, top=3)  # .2 are hidden
    judge = PairwiseJudge(C)
    judge.predict.lm = lm
    prediction = judge(source="s", candidates=["a", "b"])
    assert prediction.preference is None
    assert math.isnan(prediction.probability)
    judge = PointwiseJudge(C)
    judge.predict.lm = lm
    (batched,) = judge.batch([dspy.Example(source="s", output="o")])
    assert all(math.isnan(p.score) for p in (batched, judge(source="s", output="o")))


def test_a_model_without_probabilities_is_refused_with_both_ways_out():
    lm, engine = writer(lambda *_: {"1": 1.0})
    judge = PointwiseJudge(C)
    judge.predict.lm = lm
    example = dspy.Example(source="s", output="o")
    for call in (lambda: judge(source="s", output="o"), lambda: judge.batch([example])):
        with pytest.raises(NoProbabilities, match=rf"its answers carry no log-probabilities\. Either.*{WAYS_OUT}"):
            call()
    pairwise = PairwiseJudge(C)
    pairwise.predict.lm = lm
    with pytest.raises(NoProbabilities, match=WAYS_OUT):
        asyncio.run(pairwise.acall(source="s", candidates=["a", "b"]))
    assert engine.requests[0].config.logprobs == 20


def test_a_model_that_refuses_the_request_is_refused_with_its_reason(lms):
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top = set(), 0
        with pytest.raises(NoProbabilities, match=rf"refuses to report them \(.*made to fail with 400.*{WAYS_OUT}"):
            measuring(openai(address)).choice_logprobs([CHAT], ["1", "2"])


def test_a_server_that_is_down_is_no_model_without_probabilities():
    with pytest.raises(ConnectionError, match="openai/tiny did not answer"):
        measuring(openai("http://127.0.0.1:9/v1")).choice_logprobs([CHAT], ["1", "2"])


MIX = {"1": 0.1, "2.": 0.3, "**3**": 0.4, "I cannot say.": 0.2}
DRAWS = Sampling(samples=400, seed=3)


def test_a_model_that_only_writes_is_asked_k_times():
    lm, engine = writer(lambda *_: MIX)
    judge = PointwiseJudge(C, scoring="sampled", sampling=DRAWS)
    judge.predict.lm = lm
    prediction = judge(source="s", output="o")
    assert len(engine.requests) == 400
    assert {(r.config.temperature, r.config.max_tokens) for r in engine.requests} == {(1.0, 16)}
    assert len({r.config.seed for r in engine.requests}) == 400
    assert prediction.samples == 400
    shares = np.array([0.1, 0.3, 0.4]) / 0.8
    readable = 400 * prediction.coverage
    assert readable == round(readable)
    assert prediction.coverage == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / 400))
    np.testing.assert_allclose(list(prediction.distribution.values()), shares, atol=4 * math.sqrt(0.25 / readable))
    mean = shares @ [1, 2, 3]
    error = math.sqrt(shares @ (np.array([1, 2, 3]) - mean) ** 2 / readable)  # as the documentation derives it
    assert prediction.score == pytest.approx(mean, abs=4 * error)


@pytest.mark.slow
def test_the_standard_error_is_that_of_repeated_estimates():
    lm, _ = writer(lambda *_: MIX)
    example, scores, errors = dspy.Example(source="s", output="o"), [], []
    for seed in range(100):
        judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=30, seed=seed))
        (p,) = judge.batch([example], lm=lm)
        scores.append(p.score)
        variance = sum(share * (int(label) - p.score) ** 2 for label, share in p.distribution.items())
        errors.append(math.sqrt(variance / (p.samples * p.coverage)))
    assert np.std(scores) == pytest.approx(np.mean(errors), rel=0.25)


def test_draws_are_the_same_for_a_seed_in_every_form_of_call():
    lm, _ = writer(lambda *_: MIX)
    example = dspy.Example(source="s", output="o").with_inputs("source", "output")
    values = []
    for seed in (3, 4):
        judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=40, seed=seed))
        judge.predict.lm = lm
        one, many = judge(source="s", output="o"), judge.batch([example])[0]
        assert one.toDict() == many.toDict() == asyncio.run(judge.acall(source="s", output="o")).toDict()
        assert judge.batch([example], lm=CachedLM(lm))[0].toDict() == one.toDict()
        values.append(one.distribution)
    assert values[0] != values[1]


@pytest.mark.parametrize("seeds", [True, False])
def test_dspys_cache_never_stands_in_for_a_draw(seeds):
    lm, engine = writer(lambda *_: MIX, cache=True, seeds=seeds)
    judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=50))
    judge.predict.lm = lm
    first = judge(source="s", output="o")
    assert len(engine.requests) == 50
    assert len([p for p in first.distribution.values() if p > 0]) == 3
    assert {r.config.seed is None for r in engine.requests} == {not seeds}
    assert judge(source="s", output="o").toDict() == first.toDict()  # the cache keeps every draw
    assert len(engine.requests) == 50
    judge.predict.config = {"rollout_id": 7}
    other = judge(source="s", output="o")
    assert len(engine.requests) == 100
    assert other.distribution != first.distribution


def test_answers_that_cannot_be_read_make_the_judgment_undefined():
    lm, _ = writer(lambda *_: {"Both are fine.": 1.0})
    judge = PointwiseJudge(C, scoring="sampled")
    (p,) = judge.batch([dspy.Example(source="s", output="o")], lm=lm)
    assert math.isnan(p.score)
    assert math.isnan(p.mode)
    assert (p.coverage, p.samples) == (0.0, 20)
    pairwise = PairwiseJudge(C, scoring="sampled", debias="permutation")
    pairwise.predict.lm = lm
    p = pairwise(source="s", candidates=["a", "b"])
    assert p.preference is None
    assert math.isnan(p.win_share)


def test_a_run_that_stopped_draws_nothing_again(tmp_path):
    lm, engine = writer(lambda *_: MIX)
    judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=5))
    examples = [dspy.Example(source="s", output=str(i)) for i in range(3)]
    first = judge.batch(examples[:2], lm=CachedLM(lm, tmp_path / "j"))
    assert len(engine.requests) == 10
    journal = CachedLM(lm, tmp_path / "j")
    assert [p.toDict() for p in judge.batch(examples, lm=journal)[:2]] == [p.toDict() for p in first]
    assert (journal.asked.total(), journal.replayed, len(engine.requests)) == (5, 10, 15)


def test_a_server_and_a_local_model_can_be_sampled_too(lms):
    local = lms["qwen2-chat"]
    choices = ["1", "2"]
    sampled = measuring(local, Sampling(samples=6, max_tokens=4)).choice_logprobs([CHAT, OTHER], choices)
    assert sampled.samples == 6
    assert set(np.exp(sampled.logprobs).round(6).ravel()) <= {round(i / 6, 6) for i in range(7)}
    with serving(local, "vllm") as (address, fake):
        lm = ServerLM("tiny", base_url=address, tokenizer=local.engine.loaded.source.model)
        before = len(fake.requests)
        measuring(lm, Sampling(samples=6, max_tokens=4, temperature=0.7)).choice_logprobs([CHAT], choices)
        bodies = [body for _, body in fake.requests[before:]]
    assert len({body["seed"] for body in bodies}) == 6
    assert {(body["temperature"], body["max_tokens"]) for body in bodies} == {(0.7, 4)}


@pytest.mark.parametrize(
    ("text", "choices", "choice"),
    [
        ("A", "AB", "A"),
        (" **B**.", "AB", "B"),
        ("(A)", "AB", "A"),
        ("Answer: B", "AB", "B"),
        ("Output A", "AB", "A"),
        ("B is better than A", "AB", None),
        ("A\n\nBecause output B says less.", "AB", "A"),
        ("A better text would be", "AB", None),
        ("A better text is B", "AB", "B"),
        ("B better", "AB", None),
        ("A is better.", "AB", "A"),
        ("B wins", "AB", "B"),
        ("A/B", "AB", None),
        ("Both A and B", "AB", None),
        ("A over B", "AB", None),
        ("I like BB", "AB", None),
        ("", "AB", None),
        ("tie", ["A", "B", "Tie"], "Tie"),
        ("It is a TIE.", ["A", "B", "Tie"], "Tie"),
        ("4", "12345", "4"),
        ("Quality: 4", "12345", "4"),
        ("4/5", "12345", "4"),
        ("4 out of 5", "12345", "4"),
        ("**Score: 3** (fluent)", "12345", "3"),
        ("3 because it is fluent", "12345", "3"),
        ("4.5", "12345", None),
        ("-1", "12345", None),
        ("between 3 and 4", "12345", None),
        ("on a scale from 1 to 5, 4", "12345", None),
        ("7", "12345", None),
        ("10", ["1", "10"], "10"),
        ("A is worse.", "AB", None),
        ("Not A", "AB", None),
        ("A is not better", "AB", None),
        ("Option B is not as good as the other.", "AB", None),
        ("I can't say A", "AB", None),
        ("Neither A", "AB", None),
        ("B. The other one is worse.", "AB", "B"),
        ("A, not the other", "AB", "A"),
        ("4-5", "12345", None),
        ("1-5: good", "12345", None),
        ("Not 5", "12345", None),
        ("Definitely not a 5", "12345", None),
        ("2 points below the maximum", "12345", None),
        ("Rating (1-5): 4", "12345", "4"),
        ("4 of 5", "12345", "4"),
        ("A and B are equal", "AB", None),
        ("Both B and A were fluent.", "AB", None),
    ],
)
def test_an_answer_is_read_only_if_it_is_clear(text, choices, choice):
    assert named_choice(text, list(choices)) == choice


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="does not sample: leave sampling out"):
        PairwiseJudge(C, sampling=Sampling())
    with pytest.raises(ValueError, match="scoring='often' is unknown"):
        PairwiseJudge(C, scoring="often")
    for options in ({"samples": 1}, {"temperature": 0.0}, {"max_tokens": 0}):
        with pytest.raises(ValueError, match="cannot be drawn"):
            Sampling(**options)
