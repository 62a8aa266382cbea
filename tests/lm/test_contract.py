"""A model behind a server, as DSPy's own engine reaches it."""

import signal
import threading
import time

import dspy
import numpy as np
import pytest
from fake_server import serving
from models_of_text import Engine

from evalbias.lm.cache import CachedLM, measuring
from evalbias.lm.contract import IN_FLIGHT
from evalbias.lm.types import Text

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


def interrupt_once(condition):
    """Interrupt this thread as a user does, once something holds."""

    def wait():
        while not condition():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_cancels_queued_requests_and_keeps_the_answers(tmp_path):
    file, answers, released = tmp_path / "j", {}, threading.Event()
    prompts = [ask(f"cat {n}") for n in range(256)]

    def write(request):
        """Write "fine" at once for the first prompts, and for the others once they are ``released``."""
        if int(request.messages[-1].text.split()[-1]) >= 20:
            released.wait()
        return "fine"

    lm = dspy.LM("test/hanging", engine=Engine(write), cache=False)
    try:
        interrupt_once(lambda: len(answers) == 20)
        with pytest.raises(KeyboardInterrupt):
            measuring(lm).answer([Text(prompt, 4, temperature=0.0) for prompt in prompts], answers)
        assert sorted(answers) == list(range(20))  # no other was waited for
        assert {answer.text for answer in answers.values()} == {"fine"}
        cached = CachedLM(lm, file, chunk=256)
        interrupt_once(lambda: file.exists() and file.read_bytes().count(b"\n") == 20)  # as they came
        with pytest.raises(KeyboardInterrupt):
            cached.texts(prompts, max_tokens=4)
    finally:
        released.set()
    assert len(lm.engine.asked) <= 2 * (20 + IN_FLIGHT)
    resumed = CachedLM(lm, file)
    resumed.texts(prompts[:20], max_tokens=4)
    assert (resumed.asked.total(), resumed.replayed) == (0, 20)
