"""A real vLLM server's closed questions have the probabilities that the model gives their letters in this process.

Run by ``make test-servers``, which sets the server up.
"""

import dspy
import numpy as np
import pytest
from fake_decisions import asked
from real import save_model

from benchmarks.servers import vllm
from evalbias import LocalLM, PointwiseJudge, ServerLM
from evalbias.lm.dialects import QUESTION
from evalbias.lm.types import PromptRefused
from evalbias.programs import Criterion

pytestmark = pytest.mark.servers

TOLERANCE = 1e-3
CHOICES = ["1", "2", "3", "10", "yes"]
TEXTS = [
    f"Judge the output.\n\nOutput: a cat {word}.\nQuality:" for word in ("sat", "was sitting", "naïve café", "日本")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model") / "qwen3", family="qwen3")


@pytest.fixture(scope="module")
def address(folder):
    with vllm(folder) as (address, _):
        yield address


def letters(local, text, choices):
    message, names = asked(text, QUESTION, choices)
    return local.choice_logprobs([[{"role": "user", "content": message}]], list(names)).logprobs


def test_vllm_answers_closed_questions_with_the_models_probabilities(folder, address):
    local = LocalLM(str(folder), device="cpu", dtype="float32")
    lm = ServerLM("tiny", base_url=address, dialect="systemone", patience=60)
    answer = lm.choice_logprobs(TEXTS, CHOICES)
    truth = np.concatenate([letters(local, text, CHOICES) for text in TEXTS])
    print(f"options differ by at most {np.abs(answer.logprobs - truth).max():.1e} nats")
    np.testing.assert_allclose(answer.logprobs, truth, atol=TOLERANCE)
    np.testing.assert_allclose(answer.coverage, np.exp(truth).sum(axis=1), atol=TOLERANCE)
    assert truth.std() > 0.1


def test_a_judge_runs_on_closed_questions(address):
    lm = ServerLM("tiny", base_url=address, dialect="systemone", patience=60)
    judge = PointwiseJudge(Criterion("quality", "is it good?", (1, 5)))
    plain, long = judge.batch(
        [dspy.Example(id=str(n), source="the cat", output=text) for n, text in enumerate(("a cat", "a cat " * 500))],
        lm=lm,
    )
    assert 1 <= plain.score <= 5
    assert 0 < plain.coverage <= 1
    assert np.isnan(long.score)
    assert "is refused by tiny" in long.undefined


def test_more_options_than_letters_are_refused(address):
    lm = ServerLM("tiny", base_url=address, dialect="systemone", patience=60)
    with pytest.raises((ConnectionError, PromptRefused), match="at most 26 options"):
        lm.choice_logprobs(TEXTS, [str(n) for n in range(27)])
