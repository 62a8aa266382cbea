"""A common prefix that is tokenized once gives the tokens of each whole text, and every script its likelihood."""

import itertools

import numpy as np
import pytest
from chat_models import gemma, llama_2, llama_3
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lm.models import build, byte_level, byte_level_bpe, load, sentencepiece_like
from tokenizers import AddedToken, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from evalbias.lm.tokens import AT_ONCE, PRIVATE, PromptTokenizer, Rendered, choice_sequences, encode, joint

MAKERS = {make.__name__: make for make in (byte_level, sentencepiece_like, llama_3, gemma)}


@pytest.fixture(scope="module")
def tokenizers():
    return {name: make() for name, make in MAKERS.items()}


PIECES = ["the", " cat", "\n", "  ", "10", "café", "日本", "'s", ".", "\n\n", " 4", "Ab"]
words = st.lists(st.sampled_from(PIECES), max_size=30)
texts = words.map("".join)


OF_WORDS = [AddedToken("the cat sat on a mat"), AddedToken("sat on", lstrip=True)]
OF_WORDS += [AddedToken("mat. the", rstrip=True, normalized=True)]
ADDED = [byte_level() for _ in OF_WORDS]
for tokenizer, token in zip(ADDED, OF_WORDS, strict=True):
    tokenizer.backend_tokenizer.add_tokens([token, "        "])
PIECES = ["the", " cat", " sat", " on", " a", " mat", ".", " ", "    ", "\n", "the cat sat on a", " mat. the"]
pieces = st.lists(st.sampled_from(PIECES), max_size=24)
LABELS = ["1", "10", "100", " A", "B", "no", "n", "café", " the cat"]


@pytest.mark.slow
@settings(max_examples=150)
@example("9 the cat sat on a ma", ["", "t"])  # the first text ends within an added token
@given(pieces.map("".join), st.lists(pieces.map("".join), min_size=2, max_size=5))
def test_tokens_do_not_depend_on_a_first_text_that_spells_part_of_an_added_token(beginning, ends):
    for tokenizer in ADDED:
        reader = PromptTokenizer(tokenizer).reader([])
        given = ["4 5 6 7 8 " + beginning + end for end in ends]
        for text, one in zip(given, encode(reader, given, special=False), strict=True):
            assert one.ids == tokenizer(text, add_special_tokens=False)["input_ids"]


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


@given(
    texts,
    st.lists(texts.filter(bool), min_size=1, max_size=5),
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=4, unique=True),
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


# A text in any script, whose characters may take several tokens, has the likelihoods of its parts as its own.

SCRIPTS = {"Japanese": "今日は東京へ行く。ガ👍🏽", "Chinese": "我喜欢喝茶，也喝水。", "Arabic": "مرحبا بالعالم"}
SCRIPTS |= {"emoji": "👨‍👩‍👧 e\u0301 🇯🇵", "mixed": "Tokyo は café 日本"}
"""The kana ガ may be two characters, か with a mark; most emoji are several."""


def byte_level_of_scripts():
    """Return a byte-level tokenizer that merges bytes of neighboring characters."""
    tokenizer = byte_level_bpe(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), [*SCRIPTS.values()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="!", pad_token="!")


OF_SCRIPTS = {f.__name__: f for f in (byte_level, byte_level_of_scripts, llama_2)}


def size(tokenizer, piece):
    """Return the number of bytes of a token."""
    if piece.startswith("<0x"):
        return 1
    return len(piece) if tokenizer.bos_token is None else len(piece.replace("▁", " ").encode())


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", OF_SCRIPTS)
def test_no_byte_of_a_text_is_counted_as_its_context(name, script):
    tokenizer, text = OF_SCRIPTS[name](), SCRIPTS[script]
    for cut in range(len(text)):
        (scored,) = joint(PromptTokenizer(tokenizer), [(Rendered(f"Say: {text[:cut]}"), text[cut:])])
        tail = tokenizer.convert_ids_to_tokens(list(scored.ids[scored.start :]))
        more = sum(size(tokenizer, piece) for piece in tail) - len(text[cut:].encode())
        assert 0 <= more < size(tokenizer, tail[0])  # of the context, what its last token shares with the text


@pytest.fixture(scope="module")
def lms(tmp_path_factory):
    made = {}
    for name, make in OF_SCRIPTS.items():
        folder, tokenizer = tmp_path_factory.mktemp(name), make()
        build("llama", tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made[name] = load(folder)
    return made


@pytest.mark.parametrize("name", OF_SCRIPTS)
def test_the_sum_over_any_split_of_a_text_is_its_likelihood(lms, name):
    lm, rng = lms[name], np.random.default_rng(0)
    for text in SCRIPTS.values():
        pairs = [(f"Say: {text[:cut]}", text[cut:]) for cut in range(len(text))]
        tails = lm.loglikelihood(pairs)  # of what follows each cut
        counts, whole = [*(one.tokens for one in tails), 0], tails[0]
        for one in tails:
            np.testing.assert_allclose(one.per_token, whole.per_token[-one.tokens :], atol=1e-4)
        for _ in range(5):
            cuts = sorted({0, len(text), *rng.integers(0, len(text) + 1, 3).tolist()})
            parts = [tails[a].per_token[: counts[a] - counts[b]].sum() for a, b in itertools.pairwise(cuts)]
            assert sum(parts) == pytest.approx(whole.total, abs=1e-4)
