"""Tokenizing a common prefix once gives the same tokens as tokenizing each text whole."""

from dataclasses import replace

import pytest
from chat_models import gemma, llama_3
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lm.models import byte_level, sentencepiece_like
from tokenizers import AddedToken

from evalbias.lm import tokens as shared_tokenization
from evalbias.lm.tokens import AT_ONCE, PRIVATE, PromptTokenizer, Rendered, choice_sequences, encode

MAKERS = {make.__name__: make for make in (byte_level, sentencepiece_like, llama_3, gemma)}


@pytest.fixture(scope="module")
def tokenizers():
    return {name: make() for name, make in MAKERS.items()}


words = st.lists(
    st.sampled_from(["the", " cat", "\n", "  ", "10", "café", "日本", "'s", ".", "\n\n", " 4", "Ab"]), max_size=30
)
texts = words.map("".join)


def with_added_tokens():
    """Return tokenizers with added tokens of many words, one of which takes the blanks before it."""
    for token in (
        AddedToken("the cat sat on a mat"),
        AddedToken("sat on", lstrip=True),
        AddedToken("mat. the", rstrip=True, normalized=True),
    ):
        tokenizer = byte_level()
        tokenizer.backend_tokenizer.add_tokens([token, "        "])
        yield tokenizer


ADDED = [*with_added_tokens()]
pieces = st.lists(
    st.sampled_from(
        ["the", " cat", " sat", " on", " a", " mat", ".", " ", "    ", "\n", "the cat sat on a", " mat. the"]
    ),
    max_size=24,
)


@settings(max_examples=150)
@example("9 the cat sat on a ma", ["", "t"])  # the first text ends within an added token
@given(pieces.map("".join), st.lists(pieces.map("".join), min_size=2, max_size=5))
def test_tokens_do_not_depend_on_a_first_text_that_spells_part_of_an_added_token(beginning, ends):
    for tokenizer in ADDED:
        reader = PromptTokenizer(tokenizer).reader([])
        given = ["4 5 6 7 8 " + beginning + end for end in ends]
        for text, one in zip(given, encode(reader, given, special=False), strict=True):
            assert one.ids == tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", [n for n in MAKERS if n != "gemma"])
def test_a_common_prefix_is_tokenized_once(tokenizers, name):
    class Counting:
        def __init__(self, inner):
            self.inner, self.characters = inner, 0

        def encode_batch(self, texts, **options):
            self.characters += sum(map(len, texts))
            return self.inner.encode_batch(texts, **options)

    reader = PromptTokenizer(tokenizers[name]).reader([])
    counting = Counting(reader.backend)
    beginning = "the cat sat on a mat. " * 50
    encode(replace(reader, backend=counting), [f"{beginning}{k} it is" for k in range(20)], special=True)
    assert counting.characters < 1.5 * len(beginning) + 20 * 60


def slowly(tokenizer, prompts, choices, special):
    """Return tokens and first scored token of every choice, each tokenized whole by the tokenizer itself."""
    rows = []
    for prompt in prompts:
        for closed in (False, True):
            texts = [prompt.before(choice, closed=closed) for choice in choices]
            read = [tokenizer(t.text, return_offsets_mapping=True, add_special_tokens=special) for t in texts]
            ids = [tuple(one["input_ids"]) for one in read]
            if not any(a is not b and b[: len(a)] == a for a in ids for b in ids):
                break
        starts = [
            next(place for place, (_, end) in enumerate(one["offset_mapping"]) if end > text.context)
            for one, text in zip(read, texts, strict=True)
        ]
        differ = [len(set(column)) > 1 for column in zip(*ids, strict=False)]
        shared = differ.index(True) if True in differ else len(ids[0])
        start = max(1, min(shared, *starts))
        rows.append([(one, start) for one in ids])
    return rows


@settings(max_examples=100)
@given(
    texts,
    st.lists(texts.filter(bool), min_size=1, max_size=5),
    st.lists(
        st.sampled_from(["1", "10", "100", " A", "B", "no", "n", "café", " the cat"]),
        min_size=1,
        max_size=4,
        unique=True,
    ),
    st.sampled_from(["", " "]),
    st.sampled_from([*MAKERS]),
    st.integers(1, 3),
    st.booleans(),
)
def test_choices_have_the_tokens_of_whole_texts_whatever_precedes_them(
    tokenizers, beginning, ends, choices, lead, name, at_once, special
):
    tokenizer = tokenizers[name]
    prompts = [Rendered("4 5 " + beginning * 3 + end, lead, special) for end in ends]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evalbias.lm.tokens.AT_ONCE", at_once)  # prompts of one batch share those of the batch before
        rows = choice_sequences(PromptTokenizer(tokenizer), prompts, choices)
    assert [[(s.ids, s.start) for s in row] for row in rows] == slowly(tokenizer, prompts, choices, special)


def test_equal_choices_after_prompts_that_end_alike_are_tokenized_once(monkeypatch):
    read, encoded = [], shared_tokenization._encoded
    monkeypatch.setattr(shared_tokenization, "_encoded", lambda text, *rest: read.append(text) or encoded(text, *rest))
    prompts = [Rendered(f"the cat sat on {n} mats. " * 5 + "Quality of the text:") for n in range(AT_ONCE)]
    choice_sequences(PromptTokenizer(byte_level()), prompts, ["1", "2", "3", "4", "5"])
    assert len(read) == AT_ONCE + 4


def test_all_prompts_of_a_call_are_tokenized_by_one_copy_of_the_tokenizer(monkeypatch):
    tokenizer = byte_level()
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>"})
    ours, copy, copies = PromptTokenizer(tokenizer), PromptTokenizer._copy, []
    monkeypatch.setattr(PromptTokenizer, "_copy", lambda self, names: copies.append(names) or copy(self, names))
    prompts = [Rendered(f"{chr(PRIVATE[0])} the cat sat on {n} " * 3) for n in range(2 * AT_ONCE + 5)]
    rows = choice_sequences(ours, prompts, ["1", "2"])
    assert len(copies) == 2  # the usual one spells the end of a turn as the prompts' first character
    for prompt, row in zip(prompts, rows, strict=True):
        texts = [prompt.text + choice for choice in ("1", "2")]
        assert [list(scored.ids) for scored in row] == tokenizer(texts, add_special_tokens=False)["input_ids"]
