"""``ServerLM`` on decision endpoints: the probabilities of closed questions, in the forms of three servers."""

import math

import dspy
import numpy as np
import pytest
from dspy import lm15
from dspy.utils.exceptions import LMError
from fake_decisions import REFUSED
from fake_server import opened, served, serving

from evalbias import PointwiseJudge
from evalbias.lm.cache import CachedLM
from evalbias.lm.dspy_seam import judgment_request, read_judgment
from evalbias.programs import Criterion

pytestmark = pytest.mark.slow

DIALECTS = {"systemone": "systemone", "decisions": "decisions", "sglang-decisions": "decisions"}
CHAT = [
    {"role": "system", "content": "Judge."},
    {"role": "user", "content": "Output: a mat.\nQuality:"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "Output: a cat.\nQuality:"},
]
TEXT = "Judge.\n\nOutput: a mat.\nQuality: 2\n\nOutput: a cat.\nQuality:"
CHOICES = ["1", "2", "10"]
JUDGE = PointwiseJudge(Criterion("quality", "is it good?", (1, 3)))


@pytest.fixture
def local(lms):
    return lms["qwen2-chat"]


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_decision_endpoint_is_found_out_and_asked_about_one_text(local, kind, tmp_path):
    with served(local, kind) as (lm, fake):
        assert lm.capabilities.startswith(f"{DIALECTS[kind]}: choices as options of a closed question")
        answer = CachedLM(lm, tmp_path / "j.jsonl").choice_logprobs([CHAT, "the cat"], CHOICES)
        sent = [body for _, body in fake.requests[-2:]]  # in either order: they were under way together
        measured = read_judgment(lm(judgment_request(lm.model, CHAT, CHOICES)), CHOICES)
        before = len(fake.requests)
        again = CachedLM(lm, tmp_path / "j.jsonl").choice_logprobs([CHAT, "the cat"], CHOICES)
        assert len(fake.requests) == before
    assert {body.get("state", body.get("input")) for body in sent} == {TEXT, "the cat"}
    np.testing.assert_array_equal(again.logprobs, answer.logprobs)
    np.testing.assert_allclose(measured.logprobs, answer.logprobs[:1], atol=1e-9)
    for one in (answer, again, measured):
        assert one.renormalized == np.isnan(one.coverage).all() == (kind == "decisions")  # OpenAI gives shares only


def test_a_declined_question_costs_its_own_item_alone(local):
    items = [dspy.Example(source="the cat", output=text).with_inputs("source", "output") for text in ("a cat", REFUSED)]
    with served(local, "decisions") as (lm, fake):
        before = len(fake.requests)
        plain, declined = JUDGE.batch(items, lm=lm)
        assert len(fake.requests) - before == 2  # no trial with a harmless text: the server names the reason
    assert math.isfinite(plain.score)
    assert math.isnan(plain.coverage)
    assert math.isnan(declined.score)
    assert "is refused by tiny: the model declined the question" in declined.undefined


def replaced(probabilities):
    """Return a fault that puts other probabilities into an answer of vLLM's form."""

    def change(answer):
        answer["answers"]["answer"]["probabilities"] = probabilities
        return answer

    return lambda _, path, __: change if path == "/v1/systemone" else None


def repeated(answer):
    answer["answers"][0]["probabilities"] *= 2
    return answer


UNABLE = {"error": {"message": "The model does not support the structured decision API", "code": 501}}


@pytest.mark.parametrize(
    ("kind", "faults", "message"),
    [
        ("systemone", replaced({"1": 0.5, "2": 0.2}), r"sum to 0.700, not to 1"),
        ("systemone", replaced({"1": 0.5, "3": 0.5}), r"has probabilities of \['1', '3'\], not of \['1', '2'\]"),
        ("systemone", replaced({"1": 1.5, "2": -0.5}), r"1.5 is not a probability"),
        ("systemone", replaced({"1": True, "2": False}), r"True is not a probability"),
        ("systemone", replaced({"1": None, "2": 1.0}), r"None is not a probability"),
        ("systemone", replaced(["1", "2"]), r"probabilities is a list, but must be a dict"),
        ("decisions", lambda _, path, __: repeated if path == "/v1/decisions" else None, "an option twice"),
        ("vllm", lambda _, path, __: (501, UNABLE) if path == "/v1/systemone" else None,
         r"as systemone: status 501.*does not support the structured decision API"),
    ],
)  # fmt: skip
def test_contradictions_and_servers_that_cannot_answer_are_refused(local, kind, faults, message):
    dialect = "systemone" if kind == "vllm" else kind
    with serving(local, kind, faults=faults) as (address, _), pytest.raises(ValueError, match=message):
        opened(address, local, kind, dialect=dialect, tokenizer=None)


def test_a_probability_of_zero_stays_zero(local):
    with served(local, "systemone") as (lm, fake):
        fake.faults = replaced({"1": 0.0, "2": 1.0})
        answer = lm.choice_logprobs([CHAT], ["1", "2"])
    assert answer.logprobs[0, 0] == -math.inf
    np.testing.assert_array_equal(answer.probabilities, [[0.0, 1.0]])


def test_texts_are_not_to_be_had(local):
    with served(local, "systemone") as (lm, _), pytest.raises(LMError, match=r"writes no texts.*dialect='chat'"):
        lm(lm15.Request(model=lm.model, messages=(lm15.Message.user("a"),)))
