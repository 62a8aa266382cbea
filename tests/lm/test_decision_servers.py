"""``ServerLM`` on decision endpoints: the probabilities of closed questions, in the forms of three servers."""

import math

import dspy
import numpy as np
import pytest
from dspy import lm15
from dspy.utils.exceptions import LMError
from fake_decisions import REFUSED, asked
from fake_server import serving

from evalbias import PairwiseJudge, PointwiseJudge, ServerLM
from evalbias.lm.cache import CachedLM
from evalbias.lm.dialects import QUESTION
from evalbias.lm.dspy_seam import judgment_request, read_judgment
from evalbias.lm.types import PromptRefused
from evalbias.programs import Criterion

pytestmark = pytest.mark.slow

LIMITS = {"patience": 120.0, "timeout": 60.0}
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


def items(*outputs):
    return [dspy.Example(id=o[:6], source="the cat", output=o).with_inputs("source", "output") for o in outputs]


@pytest.fixture
def local(lms):
    return lms["qwen2-chat"]


def letters(local, text, choices):
    """Return the log-probabilities of the options' letters after the question, measured in this process."""
    message, names = asked(text, QUESTION, choices)
    return local.choice_logprobs([[{"role": "user", "content": message}]], list(names)).logprobs


@pytest.mark.parametrize("kind", DIALECTS)
def test_the_options_probabilities_are_those_of_their_letters(local, kind):
    with serving(local, kind) as (address, fake):
        lm = ServerLM("tiny", base_url=address, **LIMITS)  # finds the dialect itself
        assert lm.capabilities.startswith(f"{DIALECTS[kind]}: choices as options of a closed question")
        answer = lm.choice_logprobs([CHAT, "the cat"], CHOICES)
        sent = [body for _, body in fake.requests[-2:]]  # in either order: they were under way together
        assert lm.choice_logprobs([], CHOICES).logprobs.shape == (0, 3)
    assert {body.get("state", body.get("input")) for body in sent} == {TEXT, "the cat"}
    truth = np.concatenate([letters(local, TEXT, CHOICES), letters(local, "the cat", CHOICES)])
    if kind == "decisions":  # shares only
        assert answer.renormalized
        assert np.isnan(answer.coverage).all()
        truth -= np.log(np.exp(truth).sum(axis=1, keepdims=True))
    else:
        assert not answer.renormalized
        np.testing.assert_allclose(answer.coverage, np.exp(truth).sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(answer.logprobs, truth, atol=1e-4)


@pytest.mark.parametrize("kind", DIALECTS)
def test_judges_run_on_a_decision_endpoint(local, kind):
    pairwise = PairwiseJudge(Criterion("quality", "is it good?"), debias="permutation")
    pair = dspy.Example(source="the cat", candidates=["a cat", "mat"]).with_inputs("source", "candidates")
    with serving(local, kind) as (address, _):
        lm = ServerLM("tiny", base_url=address, dialect=DIALECTS[kind], **LIMITS)
        batch, compared = JUDGE.batch(items("a cat", "mat"), lm=lm), pairwise.batch([pair], lm=lm)
        judge = JUDGE.deepcopy()
        judge.predict.lm = lm
        one = judge(source="the cat", output="a cat")
        request = judgment_request(lm.model, CHAT, ["1", "2"])
        measured = read_judgment(lm(request), ["1", "2"])
    prompt = "\n\n".join(message["content"] for message in JUDGE.messages(items("a cat")[0]))
    shares = np.exp(letters(local, prompt, ["1", "2", "3"])[0])
    assert batch[0].score == pytest.approx(shares @ [1, 2, 3] / shares.sum(), abs=1e-4)
    assert one.score == pytest.approx(batch[0].score, abs=1e-9)
    assert math.isnan(one.coverage) == math.isnan(batch[0].coverage) == (kind == "decisions")
    assert measured.renormalized == (kind == "decisions")
    assert sum(compared[0].probabilities) == pytest.approx(1.0)


def test_a_declined_question_costs_its_own_item_alone(local):
    with serving(local, "decisions") as (address, fake):
        lm = ServerLM("tiny", base_url=address, **LIMITS)
        before = len(fake.requests)
        plain, declined = JUDGE.batch(items("a cat", REFUSED), lm=lm)
        assert len(fake.requests) - before == 2  # no trial with a harmless text: the server names the reason
    assert math.isfinite(plain.score)
    assert math.isnan(declined.score)
    assert "is refused by tiny: the model declined the question" in declined.undefined


def test_a_resumed_run_keeps_that_only_shares_are_known(local, tmp_path):
    with serving(local, "decisions") as (address, fake):
        lm = ServerLM("tiny", base_url=address, **LIMITS)
        first = CachedLM(lm, tmp_path / "j.jsonl").choice_logprobs([CHAT], CHOICES)
        before = len(fake.requests)
        again = CachedLM(lm, tmp_path / "j.jsonl").choice_logprobs([CHAT], CHOICES)
        assert len(fake.requests) == before
    assert first.renormalized
    assert again.renormalized
    np.testing.assert_array_equal(first.logprobs, again.logprobs)


def replaced(probabilities):
    """Return a fault that puts other probabilities into an answer of vLLM's form."""

    def change(answer):
        answer["answers"]["answer"]["probabilities"] = probabilities
        return answer

    return lambda _, path, __: change if path == "/v1/systemone" else None


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ({"1": 0.5, "2": 0.2}, r"sum to 0.700, not to 1"),
        ({"1": 0.5, "3": 0.5}, r"has probabilities of \['1', '3'\], not of \['1', '2'\]"),
        ({"1": 1.5, "2": -0.5}, r"1.5 is not a probability"),
        ({"1": True, "2": False}, r"True is not a probability"),
        ({"1": None, "2": 1.0}, r"None is not a probability"),
        (["1", "2"], r"probabilities is a list, but must be a dict"),
    ],
)
def test_contradicting_probabilities_are_refused(local, probabilities, message):
    with (
        serving(local, "systemone", faults=replaced(probabilities)) as (address, _),
        pytest.raises(ValueError, match=message),
    ):
        ServerLM("tiny", base_url=address, dialect="systemone", **LIMITS)


def test_a_probability_of_zero_stays_zero(local):
    with serving(local, "systemone") as (address, fake):
        lm = ServerLM("tiny", base_url=address, **LIMITS)
        fake.faults = replaced({"1": 0.0, "2": 1.0})
        answer = lm.choice_logprobs([CHAT], ["1", "2"])
    assert answer.logprobs[0, 0] == -math.inf
    np.testing.assert_array_equal(answer.probabilities, [[0.0, 1.0]])


def test_an_option_named_twice_is_refused(local):
    def repeat(answer):
        entries = answer["answers"][0]["probabilities"]
        entries.append(dict(entries[0]))
        return answer

    faults = lambda _, path, __: repeat if path == "/v1/decisions" else None  # noqa: E731
    with serving(local, "decisions", faults=faults) as (address, _), pytest.raises(ValueError, match="an option twice"):
        ServerLM("tiny", base_url=address, dialect="decisions", **LIMITS)


def test_texts_and_likelihoods_are_not_to_be_had(local):
    with serving(local, "systemone") as (address, _):
        lm = ServerLM("tiny", base_url=address, **LIMITS)
        with pytest.raises(NotImplementedError, match=r"returns no likelihoods.*--likelihood-lm"):
            lm.loglikelihood([("a", "b")])
        with pytest.raises(NotImplementedError, match=r"writes no texts.*dialect='chat'"):
            lm.texts(["a"], max_tokens=1)
        with pytest.raises(LMError, match=r"writes no texts"):
            lm(lm15.Request(model=lm.model, messages=(lm15.Message.user("a"),)))
        with pytest.raises(PromptRefused, match=r"Text 1 of the call contains '<\|im_end\|>'"):
            lm.choice_logprobs(["a", "b <|im_end|>"], ["1", "2"])


def test_a_vllm_server_whose_model_answers_no_questions_says_so(local):
    error = {"error": {"message": "The model does not support the structured decision API", "code": 501}}
    faults = lambda _, path, __: (501, error) if path == "/v1/systemone" else None  # noqa: E731
    with (
        serving(local, "vllm", faults=faults) as (address, _),
        pytest.raises(ValueError, match=r"as systemone: status 501.*does not support the structured decision API"),
    ):
        ServerLM("tiny", base_url=address, dialect="systemone", **LIMITS)
