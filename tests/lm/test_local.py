"""The rules of ``LocalLM``'s probabilities, against one plain forward pass a text."""

import asyncio
import math
import random
from concurrent.futures import ThreadPoolExecutor

import dspy
import numpy as np
import pytest
import torch
from dspy import lm15
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import KINDS

from evalbias import LocalLM
from evalbias.lm.judgment import judgment_request, read_judgment
from evalbias.lm.text import Rendered
from evalbias.lm.tokens import PromptTooLong, choice_sequences, joint

CHAT = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Output: a cat.\nQuality:"}]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "Output", "Source", "Quality", "naïve", "日本", "1", "2", "10", "\n"]


def plain(lm, ids, start):
    """Log-probabilities of ids[start:], one unbatched forward pass."""
    with torch.inference_mode():
        logprobs = lm.engine.loaded.model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    return [float(logprobs[i - 1, ids[i]]) for i in range(start, len(ids))]


def text_prompts(n, seed, shared=""):
    rng = random.Random(seed)
    return [shared + " ".join(rng.choices(WORDS, k=rng.randint(1, 12))) + "\nQuality: " for _ in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_loglikelihood_equals_a_plain_forward_pass(lms, kind):
    lm = lms[kind]
    pairs = [(p, "a cat sat on the mat") for p in text_prompts(5, 0)]
    tokenizer = lm.engine.loaded.tokenizer
    for (context, continuation), found in zip(pairs, lm.loglikelihood(pairs), strict=True):
        ids = tokenizer(context + continuation)["input_ids"]
        assert found.per_token == pytest.approx(plain(lm, ids, len(ids) - found.tokens), abs=1e-5)
        assert found.total == pytest.approx(found.mean * found.tokens)
        text = tokenizer.decode(ids[len(ids) - found.tokens :])
        assert continuation.replace(" ", "") in text.replace(" ", "")


@pytest.mark.parametrize("kind", KINDS)
def test_choices_are_whole_token_sequences_and_not_renormalised(lms, kind):
    lm = lms[kind]
    found = lm.choice_logprobs([CHAT, CHAT[1:]], ["1", "10", "yes"])
    assert found.logprobs.shape == (2, 3)
    assert (found.coverage < 1).all()
    assert found.probabilities.sum(axis=1) == pytest.approx([1, 1])
    rendered = lm.engine._render(CHAT)
    rows = choice_sequences(lm.engine.loaded.tokenizer, [rendered], ["1", "10", "yes"])
    for sequence, value in zip(rows[0], found.logprobs[0], strict=True):
        assert value == pytest.approx(sum(plain(lm, list(sequence.ids), sequence.start)), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), n=st.integers(1, 9), shared=st.sampled_from(["", "the cat sat on a mat " * 4]))
def test_an_answer_does_not_depend_on_the_batch(lms, kind, seed, n, shared):
    lm = lms[kind]
    prompts = text_prompts(n, seed, shared)
    together = lm.choice_logprobs(prompts, ["1", "2", "no"]).logprobs
    alone = np.concatenate([lm.choice_logprobs([p], ["1", "2", "no"]).logprobs for p in prompts])
    turned = lm.choice_logprobs(prompts[::-1], ["no", "2", "1"]).logprobs[::-1, ::-1]
    lm.engine.scorer.share = False
    unshared = lm.choice_logprobs(prompts, ["1", "2", "no"]).logprobs
    lm.engine.scorer.share = True
    for other in (alone, turned, unshared):
        np.testing.assert_allclose(together, other, atol=1e-5)


def test_a_shared_prefix_runs_once(lms):
    lm = lms["llama"]
    prompts = text_prompts(20, 1, "the cat sat on a mat " * 8)
    before = lm.tokens_run
    lm.choice_logprobs(prompts, ["1", "2"])
    shared = lm.tokens_run - before
    lm.engine.scorer.share = False
    before = lm.tokens_run
    lm.choice_logprobs(prompts, ["1", "2"])
    lm.engine.scorer.share = True
    assert shared < 0.5 * (lm.tokens_run - before)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_token_across_the_boundary_belongs_to_the_continuation(lms, kind):
    tokenizer = lms[kind].engine.loaded.tokenizer
    (found,) = joint(tokenizer, [(Rendered("Source: the c"), "at sat")])
    offsets = tokenizer("Source: the cat sat", return_offsets_mapping=True)["offset_mapping"]
    assert found.start == next(i for i, (_, end) in enumerate(offsets) if end > len("Source: the c"))
    assert offsets[found.start][0] < len("Source: the c")  # " cat" is one token: it is never split


def test_prefix_choices_exclude_each_other(lms):
    for lm in lms.values():
        tokenizer = lm.engine.loaded.tokenizer
        (row,) = choice_sequences(tokenizer, [Rendered("Score: ")], ["1", "10", "100"])
        for one in row:
            for other in row:
                assert one is other or other.ids[: len(one.ids)] != one.ids


def test_chat_models_are_asked_through_their_template(lms):
    render = lms["qwen2-chat"].engine._render
    assert render(CHAT).text == "[system]Judge.[end][user]Output: a cat.\nQuality:[end][assistant]"
    assert render(CHAT).follow == "[end]"
    unfinished = [*CHAT, {"role": "assistant", "content": "It is"}]
    assert render(unfinished).text.endswith("[assistant]It is")
    base = lms["qwen2"].engine._render(CHAT)
    assert (base.text, base.lead, base.follow) == ("Judge.\n\nOutput: a cat.\nQuality:", " ", "\n")


def test_one_start_token_however_the_prompt_comes(lms):
    for kind in ("llama", "llama-chat"):
        lm = lms[kind]
        (found,) = joint(lm.engine.loaded.tokenizer, [(lm.engine._render(CHAT), "4")])
        assert found.ids.count(lm.engine.loaded.tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("kind", ["llama", "llama-chat", "qwen2-chat"])
def test_texts_and_messages_may_stand_in_one_call(lms, kind):
    lm, mixed = lms[kind], [CHAT, "Output: a cat.\nQuality: ", CHAT[1:]]
    together = lm.choice_logprobs(mixed, ["1", "10"]).logprobs
    likelihoods = lm.loglikelihood([(p, "a cat") for p in mixed])
    for prompt, row, likelihood in zip(mixed, together, likelihoods, strict=True):
        np.testing.assert_allclose(row, lm.choice_logprobs([prompt], ["1", "10"]).logprobs[0], atol=1e-5)
        (alone,) = lm.loglikelihood([(prompt, "a cat")])
        assert likelihood.per_token == pytest.approx(alone.per_token, abs=1e-5)


def test_a_prompt_over_the_context_is_never_cut(lms):
    with pytest.raises(PromptTooLong, match=r"Item 1 has \d+ tokens, the model's context 256"):
        lms["gpt2"].loglikelihood([("a", "cat"), ("the cat " * 300, "sat")])
    with pytest.raises(dspy.utils.exceptions.LMError, match="the model's context 256"):
        lms["gpt2"]("the cat " * 300)


@pytest.mark.parametrize(
    ("choices", "match"),
    [([], "no choices"), (["1", "1"], "repeat"), (["1", ""], "is empty")],
)
def test_bad_choices(lms, choices, match):
    with pytest.raises(ValueError, match=match):
        lms["llama"].choice_logprobs(["a"], choices)


def test_bad_continuations(lms):
    with pytest.raises(ValueError, match="Continuation 1 is empty"):
        lms["llama"].loglikelihood([("a", "b"), ("a", "")])
    with pytest.raises(ValueError, match="Nothing precedes continuation 0"):
        lms["gpt2"].loglikelihood([("", "cat")])
    assert lms["llama"].loglikelihood([]) == []
    assert lms["llama"].choice_logprobs([], ["1"]).logprobs.shape == (0, 1)


def test_a_model_that_gives_nan_is_told(folders, lms):
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32")
    with torch.no_grad():
        lm.engine.loaded.model.get_output_embeddings().weight[3] = math.nan
    with pytest.raises(FloatingPointError, match="NaN or infinite logits for item 0"):
        lm.choice_logprobs(["the cat"], ["1"])


def test_out_of_memory_halves_the_batch(folders, lms):
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32")
    run, sizes = lm.engine.scorer._batch, []

    def tight(rows, *rest):
        sizes.append(len(rows))
        if len(rows) > 3:
            raise torch.OutOfMemoryError("no memory")
        run(rows, *rest)

    lm.engine.scorer._batch = tight
    prompts = text_prompts(10, 3)
    expected = lms["llama"].choice_logprobs(prompts, ["1", "2"]).logprobs
    np.testing.assert_allclose(lm.choice_logprobs(prompts, ["1", "2"]).logprobs, expected, atol=1e-5)
    assert max(sizes) == 10
    assert lm.engine.scorer.batch_tokens < 16_384


def test_bad_models_and_devices(tmp_path, folders):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        LocalLM(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        LocalLM(str(tmp_path))
    with pytest.raises(ValueError, match="device='abacus' is unknown"):
        LocalLM(folders["gpt2"], device="abacus")
    with pytest.raises(ValueError, match="dtype='int8' is unknown"):
        LocalLM(folders["gpt2"], dtype="int8")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            LocalLM(folders["gpt2"], device="cuda")


@pytest.mark.parametrize("kind", ["llama", "qwen2-chat"])
def test_a_measured_judgment_equals_choice_logprobs(lms, kind):
    lm = lms[kind]
    response = lm(judgment_request(lm.model, CHAT, ["1", "2", "3"]))
    found = read_judgment(response, ["1", "2", "3"])
    expected = lm.choice_logprobs([CHAT], ["1", "2", "3"])
    np.testing.assert_allclose(found.logprobs, expected.logprobs, atol=1e-5)
    part = response.message.parts[0]
    assert part.method == "candidate_sequence_likelihood"
    assert part.value["score"] == max(part.probabilities["score"], key=part.probabilities["score"].get)


def test_calls_from_threads_are_gathered(folders):
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32", cache=False)
    calls, answer = [], lm.engine._judge._answer
    lm.engine._judge._answer = lambda batch: calls.append(len(batch)) or answer(batch)
    asked = [[CHAT[0], {"role": "user", "content": f"Output: {w}\nQuality:"}] for w in ["cat", "mat", "sat"] * 10]
    choices = [["1", "2"], ["1", "2", "3"]] * 15
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda a: lm(judgment_request(lm.model, *a)), zip(asked, choices, strict=True)))
    assert sum(calls) == 30
    assert len(calls) < 30
    for prompt, options, response in zip(asked, choices, found, strict=True):
        expected = lm.choice_logprobs([prompt], options)
        np.testing.assert_allclose(read_judgment(response, options).logprobs, expected.logprobs, atol=1e-5)


def test_one_bad_request_does_not_fail_the_others(lms):
    lm = lms["gpt2"]
    long = [{"role": "user", "content": "the cat " * 300}]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(lm, judgment_request(lm.model, p, ["1", "2"])) for p in (CHAT, long, CHAT[1:])]
    assert futures[0].result() is not None
    assert futures[2].result() is not None
    with pytest.raises(dspy.utils.exceptions.LMError, match="model's context"):
        futures[1].result()


def test_generation_is_seeded_and_tells_the_sampled_tokens_own_logprob(lms):
    lm = lms["qwen2"]

    def ask(**config):
        config = lm15.Config(max_tokens=6, logprobs=2, **config)
        request = lm15.Request(model=lm.model, messages=(lm15.Message.user("the cat"),), config=config)
        return lm(request, cache=False)

    first, again, other = ask(temperature=1.5, seed=1), ask(temperature=1.5, seed=1), ask(temperature=1.5, seed=2)
    assert first.text == again.text
    assert first.text != other.text
    ids = [*lm.engine.loaded.tokenizer("the cat")["input_ids"], *(t.token_id for t in first.logprobs)]
    told = plain(lm, ids, len(ids) - len(first.logprobs))
    assert [t.logprob for t in first.logprobs] == pytest.approx(told, abs=1e-4)
    greedy = ask(temperature=0.0)
    assert all(t.logprob == pytest.approx(t.top[0].logprob) and len(t.top) == 2 for t in greedy.logprobs)


def test_generation_stops_where_it_is_told(lms):
    lm = lms["qwen2"]
    whole = lm("the cat", max_tokens=12, temperature=0.0)[0]
    stop = whole[3:5]
    assert lm("the cat", max_tokens=12, temperature=0.0, stop=[stop])[0] == whole[: whole.find(stop)]


def test_n_answers_differ(lms):
    found = lms["qwen2"]("the cat", n=3, temperature=1.5, max_tokens=6, cache=False)
    assert len(found) == 3


def test_what_the_engine_cannot_do_is_refused(lms):
    lm = lms["gpt2"]
    config = lm15.Config(frequency_penalty=0.5)
    request = lm15.Request(model=lm.model, messages=(lm15.Message.user("a"),), config=config)
    with pytest.raises(dspy.utils.exceptions.LMError, match=r"does not support config\.frequency_penalty"):
        lm(request)


def test_the_name_tells_the_weights(folders, tmp_path, lms):
    from models import save

    torch.manual_seed(1)
    lm = lms["gpt2"]
    assert lm.model.startswith("local/")
    assert LocalLM(folders["gpt2"], device="cpu", dtype="float32").model == lm.model
    assert LocalLM(folders["gpt2"], device="cpu", dtype="bfloat16").model != lm.model
    other = save("gpt2", tmp_path / lm.model.split("/")[1].split("@")[0])
    model = LocalLM(other, device="cpu", dtype="float32").engine.loaded.model
    with torch.no_grad():
        model.transformer.wte.weight.add_(0.1)
    model.save_pretrained(other)
    assert LocalLM(other, device="cpu", dtype="float32").model != lm.model


def test_a_saved_program_opens_its_model_again(folders, tmp_path):
    program = dspy.Predict("source -> output")
    program.lm = LocalLM(folders["llama"], device="cpu", dtype="float32", temperature=0.5)
    program.save(str(tmp_path / "program.json"))
    assert "key" not in (tmp_path / "program.json").read_text()
    again = dspy.Predict("source -> output")
    again.load(str(tmp_path / "program.json"), allow_unsafe_lm_state=True)
    assert again.lm.model == program.lm.model
    assert again.lm.kwargs["temperature"] == 0.5
    found = again.lm.choice_logprobs([CHAT], ["1", "2"]).logprobs
    np.testing.assert_allclose(found, program.lm.choice_logprobs([CHAT], ["1", "2"]).logprobs, atol=1e-6)


def test_copies_share_the_weights(lms):
    program = dspy.Predict("source -> output")
    program.lm = lms["llama"]
    copied = program.deepcopy()
    assert copied.lm.engine.loaded is lms["llama"].engine.loaded
    assert set(lms["llama"].provenance()) == {"model", "revision", "dtype", "device", "torch", "transformers"}


def test_awaited_calls_are_gathered_too(folders):
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32", cache=False)
    calls, answer = [], lm.engine._judge._answer
    lm.engine._judge._answer = lambda batch: calls.append(len(batch)) or answer(batch)
    prompts = [[CHAT[0], {"role": "user", "content": f"Output: {w}\nQuality:"}] for w in ("cat", "mat", "sat") * 8]

    async def ask():
        return await asyncio.gather(*(lm.acall(judgment_request(lm.model, p, ["1", "2"])) for p in prompts))

    found = [read_judgment(r, ["1", "2"]).logprobs[0] for r in asyncio.run(ask())]
    np.testing.assert_allclose(found, lm.choice_logprobs(prompts, ["1", "2"]).logprobs, atol=1e-5)
    assert sum(calls) == 24
    assert len(calls) < 24
