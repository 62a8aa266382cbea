"""Several servers of one model: each answers a contiguous share of the sorted prompts, and its failure costs that."""

import json

import numpy as np
import pytest
from fake_server import opened, serving
from fakes import outcome

from evalbias.lm.types import Choices, Unanswered

pytestmark = pytest.mark.slow


def test_several_servers_give_the_numbers_of_one(lms):
    local, choices = lms["qwen2"], ["1", "2", "10"]
    prompts = [f"Source: {a} the cat sat Output: {b}" for a in ("on", "the mat") for b in "abcdef"]
    with serving(local) as (one, first), serving(local) as (two, second):
        lm = opened([one, two, one], local, in_flight=6)
        assert lm.in_flight == 12
        assert lm.capabilities.startswith("vllm 9.9 on 2 servers: choices and likelihoods")
        assert lm.dump_state()["base_url"] == [one, two]
        assert lm.provenance() == opened(one, local).provenance()
        before = len(first.requests), len(second.requests)
        answer = lm.choice_logprobs(prompts, choices)
        assert len(first.requests) > before[0]
        assert len(second.requests) > before[1]
    np.testing.assert_allclose(answer.logprobs, local.choice_logprobs(prompts, choices).logprobs, atol=1e-4)


def test_prompts_that_begin_alike_go_to_one_server(lms):
    local = lms["qwen2"]
    prompts = [f"{document} the cat sat on {output}" for output in "abcde" for document in "0123456789"]
    with serving(local) as (one, first), serving(local) as (two, second):
        lm = opened([one, two], local)
        before = len(first.requests), len(second.requests)
        lm.choice_logprobs(prompts, ["1", "2"])
        sent = [fake.requests[start:] for fake, start in zip((first, second), before, strict=True)]
    documents = [{local.engine.loaded.tokenizer.decode(body["prompt"])[0] for _, body in bodies} for bodies in sent]
    assert [len(some) for some in documents] == [5, 5]
    assert not documents[0] & documents[1]


@pytest.mark.parametrize("fault", [503, 404])
def test_a_server_that_fails_leaves_its_share_unanswered_and_the_rest_is_kept(lms, fault):
    local = lms["qwen2"]
    questions = [Choices(f"{letter} the cat", ("1", "2")) for letter in "abcdefghij"]
    with serving(local) as (one, _), serving(local) as (two, fake):
        lm = opened([one, two], local, patience=0.5)
        before = len(fake.requests)
        fake.faults = lambda *_: fault
        answers, refused, ended = outcome(lm, questions)
        assert isinstance(ended, Unanswered)
        assert f"status {fault}" in str(ended)
        assert (list(answers), refused) == ([0, 1, 2, 3, 4], {})
        assert len({json.dumps(body) for _, body in fake.requests[before:]}) <= 5
        fake.faults = lambda *_: None
        answers, _, ended = outcome(lm, questions)  # the next call asks it again
    assert (len(answers), ended) == (10, None)


def test_servers_of_different_models_or_kinds_are_refused(lms):
    local = lms["qwen2"]
    with serving(local) as (one, _), serving(local, "sglang") as (two, _), serving(local) as (three, fake):
        with pytest.raises(ValueError, match=f"{two} is a sglang server, {one} a vllm server: give the addresses"):
            opened([one, two], local)
        fake.processed = 1.5  # as other weights would
        with pytest.raises(ValueError, match=f"{three} gives a text other probabilities than {one}"):
            opened([one, three], local)
        fake.model = "another"
        with pytest.raises(ValueError, match=f"{three} does not serve 'tiny', only another"):
            opened([one, three], local)
        with pytest.raises(ConnectionError, match=r"tiny at http://127.0.0.1:9/v1 gives no usable answer"):
            opened([one, "http://127.0.0.1:9/v1"], local, patience=0.0)
    with pytest.raises(ValueError, match="at least one server"):
        opened([], local)
