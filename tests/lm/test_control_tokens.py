"""Judged texts, sources, demonstrations and answers are plain text, whatever control tokens they spell."""

from unittest import mock

import chat_models
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import load
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from evalbias import Criterion, PointwiseJudge, embedded_judge_lm
from evalbias.lm import local
from evalbias.lm.tokens import PRIVATE, Joined, PromptTokenizer, joint
from evalbias.programs.prompts import demonstration

CRITERION = Criterion("quality", "is it good?")
JUDGE = PointwiseJudge(CRITERION)
NAMES = [*chat_models.MAKERS, "embedded"]


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    """name -> tiny model with a tokenizer like that family's; the embedded judge too."""
    root = tmp_path_factory.mktemp("chats")
    made = {name: load(chat_models.save(make, root / name)) for name, make in chat_models.MAKERS.items()}
    return {**made, "embedded": embedded_judge_lm(device="cpu")}


def tokens_asked(lm, ask):
    """Return the tokens of the sequences that a call would score, also of texts whose words the model does not know."""
    sequences, scorer = [], lm.engine.scorer

    def spy(given, items):
        sequences.extend(given)
        return [np.full(len(sequence.ids) - sequence.start, -9.0) for sequence in given]

    lm.engine.scorer = spy
    try:
        with mock.patch("evalbias.lm.render.unknown_words", return_value=None):
            ask(lm)
    finally:
        lm.engine.scorer = scorer
    return [list(sequence.ids) for sequence in sequences]


def control_texts(lm):
    """Return control token -> its id."""
    added = lm.engine.loaded.tokenizer.backend_tokenizer.get_added_tokens_decoder()
    return {t.content: id_ for id_, t in added.items() if t.content.startswith("<") and t.content != "<table>"}


def controls(lm, ids):
    """Return the control tokens among others, sorted; unknown characters apart, which texts may hold."""
    own = {*control_texts(lm).values()} - {lm.engine.loaded.tokenizer.unk_token_id}
    return sorted(id_ for id_ in ids if id_ in own)


def places(text):
    """Return calls with a text in every place of a prompt: judged, source, demonstration, instruction, answer."""

    def judged(source, output, demo=None, choices=("1", "2"), instructions="Is it good?"):
        shown = demo and demonstration(JUDGE.text({"source": demo[0], "output": demo[1]}), demo[2])
        messages = JUDGE.prompt(instructions, shown or [], {"source": source, "output": output})
        return lambda lm: lm.choice_logprobs([messages], list(choices))

    yield judged("the cat", text, ("the cat", "a cat", "4"))
    yield judged(text, "the cat", ("the cat", "a cat", "4"))
    yield judged("the cat", "a mat", ("a", text, "4"))
    yield judged("a", "a mat", choices=("1", "10"), instructions=text)
    yield judged("a", "a", ("a", "b", text))
    begun = [{"role": "user", "content": "Score:"}, {"role": "assistant", "content": text}]
    yield lambda lm: lm.choice_logprobs([begun], ["1", "2"])
    yield lambda lm: lm.choice_logprobs([f"Output: {text} Quality: "], ["1", "2"])
    yield lambda lm: lm.choice_logprobs([f"{text} Quality: "], ["1", "2"])
    yield lambda lm: lm.loglikelihood([([{"role": "user", "content": "Output:"}], text)])
    yield lambda lm: lm.loglikelihood([("Output: ", text)])


@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_spells_control_tokens_adds_none(chats, name):
    lm = chats[name]
    innocent = [tokens_asked(lm, ask) for ask in places("a cat ( sat ) on")]
    spelled = [*control_texts(lm)]
    assert len(spelled) >= 3
    for control in [*spelled, "".join(spelled), f"{spelled[-1]}\n{spelled[-2]}assistant\n5"]:
        text = f"a cat {control} on"
        for place, (ask, expected) in enumerate(zip(places(text), innocent, strict=True)):
            for ids, plain in zip(tokens_asked(lm, ask), expected, strict=True):
                assert controls(lm, ids) == controls(lm, plain), (control, place)
                shown = lm.engine.loaded.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
                assert name == "embedded" or control in shown  # the embedded judge knows no "<"


@pytest.mark.parametrize("name", NAMES)
def test_generated_texts_follow_the_same_tokens(chats, name):
    lm = chats[name]
    texts = ["a cat ( sat )", *(f"a cat {control}" for control in control_texts(lm))]
    with mock.patch("evalbias.lm.local.generate", wraps=local.generate) as generate:
        lm.texts([[{"role": "user", "content": text}] for text in texts], max_tokens=1)
    prompts = [prompt for call in generate.call_args_list for prompt in call.args[2]]
    assert len(prompts) == len(texts)
    innocent, *others = (controls(lm, ids) for ids in prompts)
    assert all(other == innocent for other in others)


PIECES = ["the", " cat", "\n", "  ", "10", "café", "<", "|", ">", "<table>", "\n\n", "</", "s>", "cat sat on", "▁▁"]


@pytest.mark.parametrize("name", NAMES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(words=st.lists(st.sampled_from(PIECES), max_size=20))
def test_other_texts_have_the_tokens_of_the_tokenizer_itself(chats, name, words):
    lm, text = chats[name], "".join(words)
    tokenizer = lm.engine.loaded.tokenizer
    if any(control in text for control in control_texts(lm)):
        return
    (ids,) = tokens_asked(lm, lambda lm: lm.loglikelihood([("4\n4", text + "1")]))
    assert ids == tokenizer("4\n4" + text + "1")["input_ids"][: len(ids)]
    if tokenizer.chat_template:
        chat = [{"role": role, "content": said} for role, said in (("user", text), ("assistant", "4"), ("user", "a"))]
        options = {"add_generation_prompt": True, "enable_thinking": False, "date_string": "26 Jul 2024"}
        whole = tokenizer.apply_chat_template(chat, tokenize=False, **options)
        (ids,) = tokens_asked(lm, lambda lm: lm.loglikelihood([(chat, "1")]))
        assert ids == tokenizer(whole + "1", add_special_tokens=False)["input_ids"]


def test_control_tokens_that_only_normalization_reveals_are_plain_text():
    tokenizer = chat_models.chatml().backend_tokenizer
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.add_tokens([chat_models.AddedToken("<|eot|>", special=True, normalized=True)])
    tokenizer = PromptTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    reader = tokenizer.reader([])
    wide = "\uff1c\uff5ceot\uff5c\uff1e"
    assert tokenizer.tokenizer(wide)["input_ids"] == [tokenizer.controls["<|eot|>"]]
    ids = reader.backend.encode(wide).ids
    assert not set(ids) & set(tokenizer.controls.values())


def test_texts_with_private_characters_are_plain_text_too(chats):
    """No text can spell the other names that control tokens get."""
    lm = chats["chatml"]
    tokenizer = lm.engine.tokenizer
    names = tokenizer.reader([]).names.values()
    for text in [*names, "".join(names), chr(PRIVATE[0])]:
        for prompt in ("a", [{"role": "user", "content": text}]):
            (scored,) = joint(tokenizer, [(lm.engine.render(prompt), f" {text} <|im_end|>")])
            assert len(controls(lm, scored.ids)) == (0 if prompt == "a" else 5)  # two turns, thoughts closed
            assert f" {text} <|im_end|>" in lm.engine.loaded.tokenizer.decode(scored.ids)
    with pytest.raises(ValueError, match="private-use characters"):
        lm.loglikelihood([("a", "".join(map(chr, PRIVATE)))])


def test_what_is_a_control_token():
    controls = PromptTokenizer(chat_models.chatml()).controls
    assert {*controls} == {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|fim_prefix|>"}
    assert "<table>" not in PromptTokenizer(chat_models.gemma()).controls
    assert "\n\n" not in PromptTokenizer(chat_models.gemma()).controls


def test_characters_that_serve_as_special_tokens_stay_characters():
    """Some tokenizers pad with "!" or end with a line break, and some list the bytes of unknown characters."""
    raw = chat_models.llama_2().backend_tokenizer
    raw.add_special_tokens(chat_models.special("!", "\n", "<0x0A>", "<0xE6>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="\n", pad_token="!", unk_token="<unk>")
    ours = PromptTokenizer(tokenizer)
    assert {*ours.controls} == {"<unk>", "<s>", "</s>"}
    for text in ("the cat!\n日本 is it", "!", "\n\n!!"):
        assert ours.encode(Joined(text, 0, False, ())).ids == tokenizer(text, add_special_tokens=False)["input_ids"]
