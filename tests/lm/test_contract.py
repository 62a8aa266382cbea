"""A model behind a server, as DSPy's own engine reaches it."""

import math

import dspy
import numpy as np
import pytest
from fake_server import serving

from evalbias.lm.contract import measuring
from evalbias.programs import Criterion, PointwiseJudge

LABELS = ["1", "2", "3"]


def hosted(address):
    return dspy.LM("hosted_vllm/tiny", api_base=address, engine="lm15", cache=False)


def ask(text):
    return [{"role": "system", "content": "Judge."}, {"role": "user", "content": text}]


def test_a_servers_judgments_are_measured_with_their_coverage(lms):
    local = lms["qwen2-chat"]
    with serving(local) as (address, fake):
        server = measuring(hosted(address))
        answer = server.choice_logprobs([ask("a cat"), ask("the mat")], LABELS)
    assert [path for path, _ in fake.requests].count("/v1/completions") == 2
    tokenizer, rows = local.engine.loaded.tokenizer, []
    closing = tokenizer.decode(tokenizer("[end]", add_special_tokens=False)["input_ids"][:1])
    for text in ("a cat", "the mat"):
        prompts = [body["messages"] for path, body in fake.requests if path == "/tokenize"]
        prompts = [messages for messages in prompts if messages[1]["content"] == text]
        opened = min(prompts, key=lambda messages: len(messages[-1]["content"]))  # the assistant's turn is still empty
        rows.append([x.total for x in local.loglikelihood([(opened, f" {c}{closing}") for c in LABELS])])
    np.testing.assert_allclose(answer.logprobs, rows, atol=1e-4)
    assert not answer.renormalized
    assert answer.coverage == pytest.approx(np.exp(rows).sum(axis=1), rel=1e-3)


def test_a_judge_runs_on_a_server_without_likelihoods(lms):
    judge = PointwiseJudge(Criterion("quality", "is it good?", (1, 3)))
    with serving(lms["qwen2-chat"]) as (address, _):
        judge.predict.lm = hosted(address)
        prediction = judge(source="the cat", output="a cat")
        with pytest.raises(NotImplementedError, match="returns no likelihoods"):
            measuring(judge.predict.lm).loglikelihood([("a", "b")])
    assert 1 <= prediction.score <= 3
    assert 0 < prediction.coverage < 1
    assert not math.isnan(prediction.mode)


def test_a_server_that_does_not_answer_is_named():
    lm = hosted("http://127.0.0.1:9/v1").copy(num_retries=0)
    with pytest.raises(ConnectionError, match="hosted_vllm/tiny did not answer"):
        measuring(lm).choice_logprobs([ask("a cat")], LABELS)
