"""``LocalLM``'s probabilities, compared with one plain forward pass per text."""

import asyncio
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor

import dspy
import numpy as np
import pytest
import torch
from dspy import lm15
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import KINDS, byte_level, save

from evalbias import LocalLM, embedded_judge_lm
from evalbias.lm import score as readout
from evalbias.lm.dspy_seam import judgment_request, read_judgment
from evalbias.lm.generate import generate
from evalbias.lm.render import Renderer
from evalbias.lm.tokens import PromptTokenizer, Rendered, choice_sequences, joint
from evalbias.lm.types import PromptRefused, PromptTooLong, Text

CHAT = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Output: a cat.\nQuality:"}]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "Output", "Source", "Quality", "naïve", "日本", "1", "2", "10", "\n"]


def asked(**settings):
    """Return a question about a text; its prompt is given as tokens."""
    return Text("", **settings)


def plain(lm, ids, start):
    """Return the log-probabilities of ids[start:] from one unbatched forward pass."""
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
    for (context, continuation), likelihood in zip(pairs, lm.loglikelihood(pairs), strict=True):
        ids = tokenizer(context + continuation)["input_ids"]
        assert likelihood.per_token == pytest.approx(plain(lm, ids, len(ids) - likelihood.tokens), abs=1e-5)
        assert likelihood.total == pytest.approx(likelihood.mean * likelihood.tokens)
        text = tokenizer.decode(ids[len(ids) - likelihood.tokens :])
        assert continuation.replace(" ", "") in text.replace(" ", "")


def test_a_text_of_unknown_words_has_no_likelihood():
    lm = embedded_judge_lm()
    texts = [" She was born in Lima.", " Thank you for writing, Ann.", " She works as a plumber."]
    with pytest.raises(PromptRefused, match=r"does not know \(4 of its 7 tokens\), so it has no likelihood") as caught:
        lm.loglikelihood([("Unheard words may precede:", text) for text in texts])
    assert list(caught.value.refused) == [1, 2]
    assert lm.loglikelihood([("Unheard words may precede:", texts[0])])[0].total < 0


@pytest.mark.parametrize("kind", KINDS)
def test_choices_are_whole_token_sequences_and_not_renormalized(lms, kind):
    lm = lms[kind]
    answer = lm.choice_logprobs([CHAT, CHAT[1:]], ["1", "10", "yes"])
    assert answer.logprobs.shape == (2, 3)
    assert (answer.coverage < 1).all()
    assert answer.probabilities.sum(axis=1) == pytest.approx([1, 1])
    rendered = lm.engine.render(CHAT)
    rows = choice_sequences(lm.engine.tokenizer, [rendered], ["1", "10", "yes"])
    for sequence, value in zip(rows[0], answer.logprobs[0], strict=True):
        assert value == pytest.approx(sum(plain(lm, list(sequence.ids), sequence.start)), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
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
    (scored,) = joint(lms[kind].engine.tokenizer, [(Rendered("Source: the c"), "at sat")])
    offsets = tokenizer("Source: the cat sat", return_offsets_mapping=True)["offset_mapping"]
    assert scored.start == next(i for i, (_, end) in enumerate(offsets) if end > len("Source: the c"))
    assert offsets[scored.start][0] < len("Source: the c")  # " cat" is one token: it is never split


def test_prefix_choices_exclude_each_other(lms):
    for lm in lms.values():
        (row,) = choice_sequences(lm.engine.tokenizer, [Rendered("Score: ")], ["1", "10", "100"])
        for one in row:
            for other in row:
                assert one is other or other.ids[: len(one.ids)] != one.ids


def test_chat_prompts_go_through_the_chat_template(lms):
    render = lms["qwen2-chat"].engine.render
    assert render(CHAT).text == "[system]Judge.[end][user]Output: a cat.\nQuality:[end][assistant]"
    assert render(CHAT).follow.text == "["  # the first token of "[end]"
    unfinished = [*CHAT, {"role": "assistant", "content": "It is"}]
    assert render(unfinished).text.endswith("[assistant]It is")
    base = lms["qwen2"].engine.render(CHAT)
    assert (base.text, base.lead, base.follow.text) == ("Judge.\n\nOutput: a cat.\nQuality:", " ", "\n")


def test_an_answer_is_closed_by_the_first_token_after_it():
    tokenizer = byte_level()
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>\n{% endfor %}"
    rendered = Renderer(PromptTokenizer(tokenizer))(CHAT[1:])
    assert rendered.follow.text == "<|end|>"  # a token of this tokenizer
    assert rendered.follow.controls == ((0, 7),)
    tokenizer.chat_template = tokenizer.chat_template.replace("<|end|>", " the end")
    rendered = Renderer(PromptTokenizer(tokenizer))(CHAT[1:])
    assert rendered.follow.text == " the"
    assert rendered.follow.controls == ()


def test_a_choices_probability_is_that_of_its_text(lms):
    for kind in ("llama", "qwen2", "gpt2"):
        choices = ["10", "yes", "cat sat"]
        for prompt in (". Output: a cat.\nQuality: ", ". Output: the c"):
            logprobs = lms[kind].choice_logprobs([f"a{prompt}"], choices).logprobs[0]
            whole = np.array([x.total for x in lms[kind].loglikelihood([("a", prompt + c) for c in choices])])
            np.testing.assert_allclose(logprobs - logprobs[0], whole - whole[0], atol=1e-4)


def test_a_likelihood_begins_with_the_continuation(lms):
    for kind in ("llama", "qwen2"):
        (joined,) = lms[kind].loglikelihood([("a", ". Source: the cat sat on the mat")])
        (first,) = lms[kind].loglikelihood([("a", ". Source: the cat")])
        (rest,) = lms[kind].loglikelihood([("a. Source: the cat", " sat on the mat")])
        assert first.total + rest.total == pytest.approx(joined.total, abs=1e-4)
        assert first.tokens + rest.tokens == joined.tokens


def test_texts_and_chats_get_one_start_token(lms):
    for kind in ("llama", "llama-chat"):
        lm = lms[kind]
        (scored,) = joint(lm.engine.tokenizer, [(lm.engine.render(CHAT), "4")])
        assert scored.ids.count(lm.engine.loaded.tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("kind", ["llama", "llama-chat", "qwen2-chat"])
def test_one_call_may_mix_texts_and_messages(lms, kind):
    lm, mixed = lms[kind], [CHAT, "Output: a cat.\nQuality: ", CHAT[1:]]
    together = lm.choice_logprobs(mixed, ["1", "10"]).logprobs
    likelihoods = lm.loglikelihood([(p, "a cat") for p in mixed])
    for prompt, row, likelihood in zip(mixed, together, likelihoods, strict=True):
        np.testing.assert_allclose(row, lm.choice_logprobs([prompt], ["1", "10"]).logprobs[0], atol=1e-5)
        (alone,) = lm.loglikelihood([(prompt, "a cat")])
        assert likelihood.per_token == pytest.approx(alone.per_token, abs=1e-5)


def test_a_prompt_over_the_context_is_never_truncated(lms):
    with pytest.raises(PromptTooLong, match=r"Text 1 of the call has \d+ tokens, but the model's context is 256"):
        lms["gpt2"].loglikelihood([("a", "cat"), ("the cat " * 300, "sat")])
    with pytest.raises(dspy.utils.exceptions.LMError, match="the model's context is 256"):
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


@pytest.mark.parametrize(
    ("pairs", "match"),
    [
        ("ab", r"Text 0 of the call is 'a': give a pair \(context, continuation\)"),
        (["ab"], "Text 0 of the call is 'ab'"),
        ([("a", "b"), ("a",)], r"Text 1 of the call is \('a',\)"),
        ([("a", None)], r"Text 0 of the call is \('a', None\)"),
        ([({"role": "user", "content": "a"}, "b")], "is the message .*: give a text or a list of messages"),
        ([([{"role": "user"}], "b")], "Message 0 of a prompt has the content None: give a text"),
        ([([{"content": "a"}], "b")], "Message 0 of a prompt has the role None: use system, user or assistant"),
    ],
)
def test_bad_pairs(lms, pairs, match):
    with pytest.raises(ValueError, match=match):
        lms["llama"].loglikelihood(pairs)


def test_a_text_in_place_of_prompts_is_refused(lms):
    with pytest.raises(ValueError, match="The prompts are the text 'ab': give a list of prompts"):
        lms["llama"].choice_logprobs("ab", ["1", "2"])


def test_nan_logits_are_an_error(folders, lms):
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32")
    with torch.no_grad():
        lm.engine.loaded.model.get_output_embeddings().weight[3] = math.nan
    with pytest.raises(FloatingPointError, match="NaN or infinite logits for item 0"):
        lm.choice_logprobs(["the cat"], ["1"])


def test_the_error_of_nan_logits_names_the_item(folders, monkeypatch):
    """The item of the call, not one of its token sequences, of which each item has one per choice."""
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32")
    read = lm.engine.scorer._logprobs

    def broken(hidden, reads):
        for values, targets in read(hidden, reads):
            yield torch.where(torch.from_numpy(targets) == 2 * 5 + 1, torch.nan, values), targets

    monkeypatch.setattr(lm.engine.scorer, "_logprobs", broken)
    with pytest.raises(FloatingPointError, match="item 2"):
        lm.choice_logprobs([f"the cat {word}" for word in "abc"], ["1", "2", "3", "4", "5"])


def test_many_logits_are_read_in_parts(lms, monkeypatch):
    pairs = [(p, "a cat sat on the mat") for p in text_prompts(9, 2)]
    expected = [x.total for x in lms["qwen2"].loglikelihood(pairs)]
    monkeypatch.setattr(readout, "MAX_LOGITS", 3 * lms["qwen2"].engine.loaded.model.config.vocab_size)
    assert [x.total for x in lms["qwen2"].loglikelihood(pairs)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("share", [True, False])
def test_out_of_memory_halves_the_batch(folders, lms, share):
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32", share_prefixes=share, batch_tokens=200)
    run, sizes = lm.engine.scorer._decoder, []

    def tight(input_ids, **rest):
        sizes.append(input_ids.numel())
        if sizes[-1] > 60:
            raise torch.OutOfMemoryError("no memory")
        return run(input_ids=input_ids, **rest)

    lm.engine.scorer._decoder = tight
    prompts = text_prompts(10, 3)
    expected = lms["llama"].choice_logprobs(prompts, ["1", "2"]).logprobs
    np.testing.assert_allclose(lm.choice_logprobs(prompts, ["1", "2"]).logprobs, expected, atol=1e-5)
    assert max(sizes) > 60
    assert lm.engine.scorer.batch_tokens <= 60


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
    measured = read_judgment(response, ["1", "2", "3"])
    expected = lm.choice_logprobs([CHAT], ["1", "2", "3"])
    np.testing.assert_allclose(measured.logprobs, expected.logprobs, atol=1e-5)
    part = response.message.parts[0]
    assert part.method == "candidate_sequence_likelihood"
    assert part.value["score"] == max(part.probabilities["score"], key=part.probabilities["score"].get)


def batches(batcher, threads):
    """Return a list that grows by the size of each batch; the first batch lasts until all other threads wait."""
    sizes, answer = [], batcher._answer

    def recorded(batch):
        sizes.append(len(batch))
        while len(sizes) == 1 and len(batch) + len(batcher._waiting) < threads:
            time.sleep(0.001)
        return answer(batch)

    batcher._answer = recorded
    return sizes


def test_calls_from_threads_are_batched(folders):
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32", cache=False)
    sizes = batches(lm.engine._batch, 16)
    prompts = [[CHAT[0], {"role": "user", "content": f"Output: {w}\nQuality:"}] for w in ["cat", "mat", "sat"] * 10]
    choices = [["1", "2"], ["1", "2", "3"]] * 15
    with ThreadPoolExecutor(16) as pool:
        responses = list(pool.map(lambda a: lm(judgment_request(lm.model, *a)), zip(prompts, choices, strict=True)))
    assert sum(sizes) == 30
    assert sum(sizes[:2]) >= 16
    for prompt, options, response in zip(prompts, choices, responses, strict=True):
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


def test_generation_is_seeded_and_reports_the_sampled_tokens_logprob(lms):
    lm = lms["qwen2"]

    def ask(**config):
        config = lm15.Config(max_tokens=6, logprobs=2, **config)
        request = lm15.Request(model=lm.model, messages=(lm15.Message.user("the cat"),), config=config)
        return lm(request, cache=False)

    first, again, other = ask(temperature=1.5, seed=1), ask(temperature=1.5, seed=1), ask(temperature=1.5, seed=2)
    assert first.text == again.text
    assert first.text != other.text
    ids = [*lm.engine.loaded.tokenizer("the cat")["input_ids"], *(t.token_id for t in first.logprobs)]
    expected = plain(lm, ids, len(ids) - len(first.logprobs))
    assert [t.logprob for t in first.logprobs] == pytest.approx(expected, abs=1e-4)
    greedy = ask(temperature=0.0)
    assert all(t.logprob == pytest.approx(t.top[0].logprob) and len(t.top) == 2 for t in greedy.logprobs)


def test_generation_stops_at_a_stop_string(lms):
    lm = lms["qwen2"]
    whole = lm("the cat", max_tokens=12, temperature=0.0)[0]
    stop = whole[3:5]
    assert lm("the cat", max_tokens=12, temperature=0.0, stop=[stop])[0] == whole[: whole.find(stop)]


def test_a_repeated_request_without_a_seed_samples_another_text(lms, folders):
    texts = lms["qwen2"]("the cat", n=3, temperature=1.5, max_tokens=6, cache=False)
    assert len(set(texts)) == 3
    fresh = LocalLM(folders["qwen2"], device="cpu", dtype="float32")
    assert fresh("the cat", n=3, temperature=1.5, max_tokens=6, cache=False) == texts
    assert len(set(fresh("the cat", n=3, temperature=1.5, max_tokens=6, seed=5, cache=False))) == 1


def test_best_of_n_sees_different_texts(lms):
    seen = []

    class Writer(dspy.Module):
        def __init__(self):
            super().__init__()
            self.predict = dspy.Predict("source -> output")

        def forward(self, source):
            text = lms["qwen2"](source, temperature=1.5, max_tokens=6, cache=False)[0]
            seen.append(text)
            return dspy.Prediction(output=text)

    with dspy.context(lm=lms["qwen2"]):
        dspy.BestOfN(module=Writer(), N=4, reward_fn=lambda *_: 0.0, threshold=1.0)(source="the mat sat")
    assert len(set(seen)) > 1


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gpt-neox"])
def test_texts_in_a_batch_are_those_of_the_models_own_greedy_search(lms, kind):
    loaded = lms[kind].engine.loaded
    prompts = [loaded.tokenizer(t)["input_ids"] for t in text_prompts(6, 7)]
    batch = generate(loaded.model, loaded.tokenizer, prompts, [asked(max_tokens=9)] * 6, context=256)
    for prompt, generated in zip(prompts, batch, strict=True):
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        own = loaded.model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=9, pad_token_id=0)
        assert generated.text == loaded.tokenizer.decode(own[0, len(prompt) :], skip_special_tokens=True)


def test_each_request_of_a_batch_keeps_its_own_settings(lms):
    loaded = lms["qwen2"].engine.loaded
    prompts = [loaded.tokenizer(t)["input_ids"] for t in text_prompts(5, 8)]
    settings = [
        asked(max_tokens=3),
        asked(max_tokens=8, temperature=1.5, seed=4),
        asked(max_tokens=8, temperature=1.5, top_p=0.5, seed=4, logprobs=2),
        asked(max_tokens=8, temperature=2.0, top_k=2, seed=4, logprobs=2),
        asked(max_tokens=12, stop=("a",)),
    ]
    options = {"context": 256}
    batch = generate(loaded.model, loaded.tokenizer, prompts, settings, **options)
    for prompt, own, generated in zip(prompts, settings, batch, strict=True):
        (alone,) = generate(loaded.model, loaded.tokenizer, [prompt], [own], **options)
        assert (generated.text, generated.tokens) == (alone.text, alone.tokens)
        assert [t.token_id for t in generated.logprobs or ()] == [t.token_id for t in alone.logprobs or ()]
    assert batch[0].tokens == (len(prompts[0]), 3)
    assert all(token.token_id in [other.token_id for other in token.top] for token in batch[3].logprobs)


def test_texts_from_threads_are_batched(folders):
    lm = LocalLM(folders["qwen2"], device="cpu", dtype="float32", cache=False)
    sizes = batches(lm.engine._batch, 16)
    prompts = text_prompts(24, 5)
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda p: lm(p, max_tokens=5, temperature=0.0)[0], prompts))
    assert sum(sizes) == 24
    assert sum(sizes[:2]) >= 16
    assert texts == [lm(p, max_tokens=5, temperature=0.0)[0] for p in prompts]


def test_the_folders_generation_settings_do_not_leak_in(tmp_path, lms):
    folder = save("qwen2", tmp_path / "m")
    model = LocalLM(folder, device="cpu", dtype="float32").engine.loaded.model
    model.load_state_dict(lms["qwen2"].engine.loaded.model.state_dict())
    model.generation_config.repetition_penalty = 5.0
    model.save_pretrained(folder)
    expected = lms["qwen2"]("the cat sat", max_tokens=12, temperature=0.0)
    assert LocalLM(folder, device="cpu", dtype="float32")("the cat sat", max_tokens=12, temperature=0.0) == expected


def test_a_stop_string_also_cuts_the_tokens(lms):
    loaded = lms["qwen2"].engine.loaded
    prompt = loaded.tokenizer("the cat")["input_ids"]
    options = {"context": 256}
    (whole,) = generate(loaded.model, loaded.tokenizer, [prompt], [asked(max_tokens=12, logprobs=0)], **options)
    stop = whole.logprobs[4].token
    (cut,) = generate(
        loaded.model, loaded.tokenizer, [prompt], [asked(max_tokens=12, logprobs=0, stop=(stop,))], **options
    )
    assert cut.text == whole.text[: whole.text.find(stop)]
    assert len("".join(t.token for t in cut.logprobs[:-1])) < len(cut.text)
    assert len(cut.logprobs) == cut.tokens[1] < len(whole.logprobs)


def test_unsupported_features_are_refused(lms):
    lm = lms["gpt2"]
    config = lm15.Config(frequency_penalty=0.5)
    request = lm15.Request(model=lm.model, messages=(lm15.Message.user("a"),), config=config)
    with pytest.raises(dspy.utils.exceptions.LMError, match=r"does not support config\.frequency_penalty"):
        lm(request)
    two = lm15.judgments(a=lm15.choice("Which?", ["1", "2"]), b=lm15.choice("Why?", ["1", "2"]))
    config = lm15.Config(response_format=two, probabilities="required")
    request = lm15.Request(model=lm.model, messages=(lm15.Message.user("a"),), config=config)
    with pytest.raises(dspy.utils.exceptions.LMError, match="does not support several judgments in a request"):
        lm(request)


def test_the_name_identifies_the_weights(folders, tmp_path, lms):
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
    logprobs = again.lm.choice_logprobs([CHAT], ["1", "2"]).logprobs
    np.testing.assert_allclose(logprobs, program.lm.choice_logprobs([CHAT], ["1", "2"]).logprobs, atol=1e-6)


def test_copies_share_the_weights(lms):
    program = dspy.Predict("source -> output")
    program.lm = lms["llama"]
    copied = program.deepcopy()
    assert copied.lm.engine.loaded is lms["llama"].engine.loaded
    assert set(lms["llama"].provenance()) == {"model", "revision", "dtype", "device", "torch", "transformers"}


def test_awaited_calls_are_batched(folders):
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32", cache=False)
    sizes = batches(lm.engine._batch, 24)
    prompts = [[CHAT[0], {"role": "user", "content": f"Output: {w}\nQuality:"}] for w in ("cat", "mat", "sat") * 8]

    async def ask():
        return await asyncio.gather(*(lm.acall(judgment_request(lm.model, p, ["1", "2"])) for p in prompts))

    rows = [read_judgment(r, ["1", "2"]).logprobs[0] for r in asyncio.run(ask())]
    np.testing.assert_allclose(rows, lm.choice_logprobs(prompts, ["1", "2"]).logprobs, atol=1e-5)
    assert sum(sizes) == sum(sizes[:2]) == 24


def test_draws_without_a_seed_differ_and_the_count_of_them_does_not_grow_for_ever(lms, monkeypatch):
    engine, drawn = lms["qwen2"].engine, Text("the cat", 8, temperature=1.0)
    monkeypatch.setattr("evalbias.lm.local.MOST_DRAWN", 3)
    monkeypatch.setattr(engine, "_draws", {})

    def written(question):
        answers = {}
        engine.answer([question], answers)
        return answers[0].text

    assert len({written(drawn) for _ in range(4)}) > 1
    for n in range(20):
        written(Text(f"the cat {n}", 1, temperature=0.0))
        written(Text(f"the cat {n}", 1, temperature=1.0, seed=n))
    assert list(engine._draws.values()) == [4]  # what is greedy, or has a seed, is not counted
    for n in range(20):
        written(Text(f"the cat {n}", 1, temperature=1.0))
    assert len(engine._draws) == 3
