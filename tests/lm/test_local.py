"""``LocalLM``'s probabilities, compared with one plain forward pass per text."""

import asyncio
import math
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dspy
import numpy as np
import pytest
import torch
from dspy import lm15
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import KINDS, byte_level, load, save

from evalbias import LocalLM, PointwiseJudge, embedded_judge_lm
from evalbias.lm import local as batcher
from evalbias.lm import score as readout
from evalbias.lm.dspy_seam import judgment_request, read_judgment
from evalbias.lm.local import Batcher, generate
from evalbias.lm.render import Renderer
from evalbias.lm.tokens import PromptTokenizer, choice_sequences
from evalbias.lm.types import PromptRefused, Text, Usage
from evalbias.programs import SYNTHETIC

CHAT = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Output: a cat.\nQuality:"}]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "Output", "Source", "Quality", "naïve", "日本", "1", "2", "10", "\n"]


def plain(lm, ids, start):
    """Return the log-probabilities of ids[start:] from one unbatched forward pass."""
    with torch.inference_mode():
        logprobs = lm.engine.loaded.model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    return [float(logprobs[i - 1, ids[i]]) for i in range(start, len(ids))]


def text_prompts(n, seed, shared=""):
    rng = random.Random(seed)
    return [shared + " ".join(rng.choices(WORDS, k=rng.randint(1, 12))) + "\nQuality: " for _ in range(n)]


def written(lm, prompts, questions):
    """Continue prompts in one batch; each question has the settings of a text, not its prompt."""
    loaded = lm.engine.loaded
    ids = [loaded.tokenizer(prompt)["input_ids"] for prompt in prompts]
    return generate(loaded.model, loaded.tokenizer, ids, [Text("", **own) for own in questions], context=256)


def test_an_option_that_no_model_has_is_refused():
    with pytest.raises(TypeError, match=r"LocalLM has no option 'batch_tokens', .*: leave it out"):
        LocalLM("any", temperature=0.5, num_retries=1, batch_tokens=200)


def test_a_large_model_on_a_cpu_reads_the_beginning_of_its_prompts_once(monkeypatch):
    monkeypatch.setattr(batcher, "WORK", 1.0)
    lm = embedded_judge_lm()
    judge = PointwiseJudge(SYNTHETIC)
    judge.predict.demos = [dspy.Example(source=str(i), output="good", score="3") for i in range(4)]
    judge.batch([dspy.Example(source=str(i), output="fine") for i in range(16)], lm=lm)
    assert lm.engine.scorer.tokens_run < 400  # each by itself takes 1,542


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


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in ("llama-chat", "gpt2"))) for kind in KINDS]
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), n=st.integers(1, 9), shared=st.sampled_from(["", "the cat sat on a mat " * 4]))
def test_an_answer_does_not_depend_on_the_batch(lms, kind, seed, n, shared):
    lm = lms[kind]
    prompts = [*text_prompts(n, seed, shared), CHAT]  # texts and messages in one call
    together = lm.choice_logprobs(prompts, ["1", "2", "no"]).logprobs
    alone = np.concatenate([lm.choice_logprobs([p], ["1", "2", "no"]).logprobs for p in prompts])
    turned = lm.choice_logprobs(prompts[::-1], ["no", "2", "1"]).logprobs[::-1, ::-1]
    lm.engine.scorer.share = False
    unshared = lm.choice_logprobs(prompts, ["1", "2", "no"]).logprobs
    lm.engine.scorer.share = True
    for other in (alone, turned, unshared):
        np.testing.assert_allclose(together, other, atol=1e-5)


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
    for end, follow, controls in (("<|end|>", "<|end|>", ((0, 7),)), (" the end", " the", ())):
        tokenizer.chat_template = f"{{% for m in messages %}}<{{{{ m.role }}}}>{{{{ m.content }}}}{end}\n{{% endfor %}}"
        rendered = Renderer(PromptTokenizer(tokenizer))(CHAT[1:])
        assert (rendered.follow.text, rendered.follow.controls) == (follow, controls)


def test_a_choices_probability_is_that_of_its_text(lms):
    for kind in ("llama", "qwen2", "gpt2"):
        choices = ["10", "yes", "cat sat"]
        for prompt in (". Output: a cat.\nQuality: ", ". Output: the c"):
            logprobs = lms[kind].choice_logprobs([f"a{prompt}"], choices).logprobs[0]
            whole = np.array([x.total for x in lms[kind].loglikelihood([("a", prompt + c) for c in choices])])
            np.testing.assert_allclose(logprobs - logprobs[0], whole - whole[0], atol=1e-4)


def test_a_prompt_over_the_context_is_never_truncated(lms):
    with pytest.raises(dspy.utils.exceptions.LMError, match="the model's context is 256"):
        lms["gpt2"]("the cat " * 300)


@pytest.mark.parametrize(("kind", "call", "match"), [
    ("llama", lambda lm: lm.loglikelihood([("a", "b"), ("a", "")]), "Continuation 1 is empty"),
    ("gpt2", lambda lm: lm.loglikelihood([("", "cat")]), "Nothing precedes continuation 0"),
    ("llama", lambda lm: lm.loglikelihood("ab"), r"Text 0 of the call is 'a': give a pair \(context, continuation"),
    ("llama", lambda lm: lm.loglikelihood(["ab"]), "Text 0 of the call is 'ab'"),
    ("llama", lambda lm: lm.loglikelihood([("a", "b"), ("a",)]), r"Text 1 of the call is \('a',\)"),
    ("llama", lambda lm: lm.loglikelihood([("a", None)]), r"Text 0 of the call is \('a', None\)"),
    ("llama", lambda lm: lm.loglikelihood([(CHAT[0], "b")]), "is the message .*: give a text or a list of"),
    ("llama", lambda lm: lm.loglikelihood([([{"role": "user"}], "b")]), "Message 0 .* has the content None: give"),
    ("llama", lambda lm: lm.loglikelihood([([{"content": "a"}], "b")]), "has the role None: use system, user or"),
])  # fmt: skip
def test_questions_that_cannot_be_asked(lms, kind, call, match):
    with pytest.raises(ValueError, match=match):
        call(lms[kind])


def test_nan_logits_are_an_error_that_names_the_item(folders, monkeypatch):
    """The item of the call, not one of its token sequences, of which each item has one per choice."""
    lm = load(folders["llama"])
    asked, read = ([f"the cat {word}" for word in "abc"], ["1", "2", "3", "4", "5"]), lm.engine.scorer._logprobs

    def broken(hidden, reads):
        for values, targets in read(hidden, reads):
            yield torch.where(torch.from_numpy(targets) == 2 * 5 + 1, torch.nan, values), targets

    with monkeypatch.context() as patched:
        patched.setattr(lm.engine.scorer, "_logprobs", broken)
        with pytest.raises(FloatingPointError, match="item 2"):
            lm.choice_logprobs(*asked)
    with torch.no_grad():
        lm.engine.loaded.model.get_output_embeddings().weight[3] = math.nan  # a token that is not asked about
    with pytest.raises(FloatingPointError, match="NaN or infinite logits for item 0"):
        lm.choice_logprobs(*asked)


def test_many_logits_are_read_in_parts(lms, monkeypatch):
    pairs = [(p, "a cat sat on the mat") for p in text_prompts(9, 2)]
    expected = [x.total for x in lms["qwen2"].loglikelihood(pairs)]
    monkeypatch.setattr(readout, "MAX_LOGITS", 3 * lms["qwen2"].engine.loaded.model.config.vocab_size)
    assert [x.total for x in lms["qwen2"].loglikelihood(pairs)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("share", [True, False])
def test_out_of_memory_halves_the_batch(folders, lms, share):
    lm = load(folders["llama"])
    lm.engine.scorer.share, lm.engine.scorer.batch_tokens = share, 200
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


def test_models_that_are_missing(tmp_path, folders):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        load(tmp_path)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            LocalLM(folders["gpt2"], device="cuda")


def batches(batcher, threads):
    """Return a list that grows by the size of each batch; the first batch lasts until all other threads wait."""
    sizes, answer, limit = [], batcher._answer, time.monotonic() + 60

    def recorded(batch):
        sizes.append(len(batch))
        while len(sizes) == 1 and len(batch) + len(batcher._waiting) < threads and time.monotonic() < limit:
            time.sleep(0.001)
        return answer(batch)

    batcher._answer = recorded
    return sizes


@pytest.mark.parametrize("awaited", [False, True])
def test_calls_from_threads_and_awaited_ones_are_batched(folders, awaited):
    lm, threads = load(folders["llama"], cache=False), 24 if awaited else 16
    sizes = batches(lm.engine._batch, threads)
    prompts = [[CHAT[0], {"role": "user", "content": f"Output: {w}\nQuality:"}] for w in ["cat", "mat", "sat"] * 8]
    choices = [["1", "2"], ["1", "2", "3"]] * 12
    requests = [judgment_request(lm.model, *asked) for asked in zip(prompts, choices, strict=True)]

    async def ask():
        return await asyncio.gather(*map(lm.acall, requests))

    with ThreadPoolExecutor(threads) as pool:
        responses = asyncio.run(ask()) if awaited else list(pool.map(lm, requests))
    assert sum(sizes) == 24
    assert sum(sizes[:2]) >= threads
    for prompt, options, response in zip(prompts, choices, responses, strict=True):
        expected = lm.choice_logprobs([prompt], options)
        np.testing.assert_allclose(read_judgment(response, options).logprobs, expected.logprobs, atol=1e-5)


def test_a_repeated_request_without_a_seed_samples_another_text(lms, folders):
    texts = lms["qwen2"]("the cat", n=3, temperature=1.5, max_tokens=6, cache=False)
    assert len(set(texts)) == 3
    fresh = load(folders["qwen2"])
    assert fresh("the cat", n=3, temperature=1.5, max_tokens=6, cache=False) == texts
    seeded = [fresh("the cat", n=3, temperature=1.5, max_tokens=6, seed=seed, cache=False) for seed in (5, 6, 5)]
    assert [len(set(repeated)) for repeated in seeded] == [1, 1, 1]
    assert seeded[0] == seeded[2] != seeded[1]


def test_draws_without_a_seed_differ_and_the_count_of_them_does_not_grow_for_ever(lms, monkeypatch):
    engine, drawn = lms["qwen2"].engine, Text("the cat", 8, temperature=1.0)
    monkeypatch.setattr("evalbias.lm.local.MOST_DRAWN", 3)
    monkeypatch.setattr(engine, "_draws", {})

    def answered(question):
        answers = {}
        engine.answer([question], answers)
        return answers[0].text

    assert len({answered(drawn) for _ in range(4)}) > 1
    for n in range(20):
        answered(Text(f"the cat {n}", 1, temperature=0.0))
        answered(Text(f"the cat {n}", 1, temperature=1.0, seed=n))
    assert list(engine._draws.values()) == [4]  # what is greedy, or has a seed, is not counted
    for n in range(20):
        answered(Text(f"the cat {n}", 1, temperature=1.0))
    assert len(engine._draws) == 3


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gpt-neox"])
def test_texts_in_a_batch_are_those_of_the_models_own_greedy_search(lms, kind):
    loaded, prompts = lms[kind].engine.loaded, text_prompts(6, 7)
    for prompt, generated in zip(prompts, written(lms[kind], prompts, [{"max_tokens": 9}] * 6), strict=True):
        ids = torch.tensor([loaded.tokenizer(prompt)["input_ids"]])
        mask = torch.ones_like(ids)
        own = loaded.model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=9, pad_token_id=0)
        assert generated.text == loaded.tokenizer.decode(own[0, ids.shape[1] :], skip_special_tokens=True)


def test_each_request_of_a_batch_keeps_its_own_settings(lms):
    lm, prompts = lms["qwen2"], text_prompts(5, 8)
    drawn = {"max_tokens": 8, "temperature": 1.5, "seed": 4}
    settings = [{"max_tokens": 3}, drawn, drawn | {"top_p": 0.5}, drawn | {"temperature": 2.0, "top_k": 2}]
    settings.append({"max_tokens": 12, "stop": ("a",)})
    batch = written(lm, prompts, settings)
    for prompt, own, generated in zip(prompts, settings, batch, strict=True):
        (alone,) = written(lm, [prompt], [own])
        assert (generated.text, generated.usage) == (alone.text, alone.usage)
    assert batch[0].usage == Usage(len(lm.engine.loaded.tokenizer(prompts[0])["input_ids"]), 3)


def test_the_folders_generation_settings_do_not_leak_in(tmp_path, lms):
    folder = save("qwen2", tmp_path / "m")
    model = load(folder).engine.loaded.model
    model.load_state_dict(lms["qwen2"].engine.loaded.model.state_dict())
    model.generation_config.repetition_penalty = 5.0
    model.save_pretrained(folder)
    expected = lms["qwen2"]("the cat sat", max_tokens=12, temperature=0.0)
    assert load(folder)("the cat sat", max_tokens=12, temperature=0.0) == expected


def test_a_stop_string_also_cuts_the_tokens(lms):
    lm, asked = lms["qwen2"], {"max_tokens": 12}
    (whole,) = written(lm, ["the cat"], [asked])
    stop = whole.text[len(whole.text) // 2 :][:3]
    (cut,) = written(lm, ["the cat"], [{**asked, "stop": (stop,)}])
    assert cut.text == whole.text[: whole.text.find(stop)]
    (shorter,) = written(lm, ["the cat"], [{"max_tokens": cut.usage.completion - 1}])
    assert len(shorter.text) < len(cut.text)
    assert cut.usage.completion < whole.usage.completion
    assert lm("the cat", max_tokens=12, temperature=0.0, stop=[stop]) == [cut.text]


def test_unsupported_features_are_refused(lms):
    lm = lms["gpt2"]
    two = lm15.judgments(a=lm15.choice("Which?", ["1", "2"]), b=lm15.choice("Why?", ["1", "2"]))
    for config, match in (
        (lm15.Config(frequency_penalty=0.5), r"does not support config\.frequency_penalty"),
        (lm15.Config(logprobs=2), r"does not support config\.logprobs"),
        (lm15.Config(response_format=two, probabilities="required"), "does not support several judgments in a request"),
    ):
        request = lm15.Request(model=lm.model, messages=(lm15.Message.user("a"),), config=config)
        with pytest.raises(dspy.utils.exceptions.LMError, match=match):
            lm(request)


def test_the_name_identifies_the_weights(folders, tmp_path, lms):
    lm = lms["gpt2"]
    assert set(lm.provenance()) == {"model", "revision", "dtype", "device", "torch", "transformers"}
    assert lm.model.startswith("local/")
    assert load(folders["gpt2"]).model == lm.model
    assert LocalLM(folders["gpt2"], device="cpu", dtype="bfloat16").model != lm.model
    other = save("gpt2", tmp_path / lm.model.split("/")[1].split("@")[0])
    model = load(other).engine.loaded.model
    with torch.no_grad():
        model.transformer.wte.weight.add_(0.1)
    model.save_pretrained(other)
    assert load(other).model != lm.model


# Calls from threads are answered in batches that hold an item of every busy thread.


def started(*functions):
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def until(condition):
    while not condition():
        time.sleep(0.001)


def test_answered_callers_return_while_another_batch_runs():
    queued, held = threading.Event(), threading.Event()
    batches, returned = [], []

    def answer(items):
        batches.append(sorted(items))
        if items == [0]:
            queued.wait()
        elif 9 not in items:  # the caller of 9 queues while this batch runs, and runs the next one
            started(lambda: batch(9))
            until(lambda: batch._waiting)
        else:
            held.wait()
        return items

    batch = Batcher(answer)
    threads = started(lambda: batch(0))
    until(lambda: batches)
    threads += started(*[lambda i=i: returned.append(batch(i)) for i in range(1, 9)])
    until(lambda: len(batch._waiting) == 8)
    queued.set()
    for thread in threads:
        thread.join(60)
    assert sorted(returned) == list(range(1, 9))
    assert batches[:2] == [[0], list(range(1, 9))]
    held.set()


def test_a_batch_waits_for_the_threads_of_the_last_round(monkeypatch):
    monkeypatch.setattr(batcher, "LEAST_PATIENCE", 60.0)
    batches, threads = [], []
    batch = Batcher(lambda items: batches.append(len(items)) or items)
    batch._busy = 4
    for i in range(4):
        until(lambda i=i: len(batch._waiting) == i)
        threads += started(lambda i=i: batch(i))
    for thread in threads:
        thread.join(60)
    assert batches == [4]


def test_a_lone_thread_never_waits(monkeypatch):
    batch = Batcher(list)
    for condition in (batch._arrived, batch._ended):
        monkeypatch.setattr(condition, "wait", lambda *_: pytest.fail("waited"))
    assert [batch(i) for i in range(50)] == list(range(50))


def test_an_error_reaches_its_own_caller_alone():
    def answer(items):
        if 3 in items:
            raise ValueError("three")
        return [2 * item for item in items]

    batch, answers = Batcher(answer), {}
    batch._busy = 5

    def ask(i):
        try:
            answers[i] = batch(i)
        except ValueError as error:
            answers[i] = str(error)

    for thread in started(*[lambda i=i: ask(i) for i in range(5)]):
        thread.join(60)
    assert answers == {0: 0, 1: 2, 2: 4, 3: "three", 4: 8}


def test_an_interrupt_frees_the_next_callers():
    def answer(items):
        raise KeyboardInterrupt

    batch = Batcher(answer)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            batch(1)
