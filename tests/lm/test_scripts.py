"""The likelihood of a text in any script, whose characters may take several tokens, is the sum over its parts."""

import itertools

import numpy as np
import pytest
from chat_models import llama_2
from lm.models import build, byte_level, byte_level_bpe, load
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from evalbias.lm.tokens import PromptTokenizer, Rendered, joint

SCRIPTS = {
    "Japanese": "今日は東京へ行く。ガ👍🏽",
    "Chinese": "我喜欢喝茶，也喝水。",
    "Arabic": "مرحبا بالعالم",
    "emoji": "👨‍👩‍👧 e\u0301 🇯🇵",
    "mixed": "Tokyo は café 日本",
}
"""The kana ガ may be two characters, か with a mark; most emoji are several."""


def byte_level_of_scripts():
    """Return a byte-level tokenizer that merges bytes of neighboring characters."""
    tokenizer = byte_level_bpe(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), [*SCRIPTS.values()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="!", pad_token="!")


MAKERS = {f.__name__: f for f in (byte_level, byte_level_of_scripts, llama_2)}


def size(tokenizer, piece):
    """Return the number of bytes of a token."""
    if piece.startswith("<0x"):
        return 1
    return len(piece) if tokenizer.bos_token is None else len(piece.replace("▁", " ").encode())


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", MAKERS)
def test_no_byte_of_a_text_is_counted_as_its_context(name, script):
    tokenizer, text = MAKERS[name](), SCRIPTS[script]
    for cut in range(len(text)):
        (scored,) = joint(PromptTokenizer(tokenizer), [(Rendered(f"Say: {text[:cut]}"), text[cut:])])
        tail = tokenizer.convert_ids_to_tokens(list(scored.ids[scored.start :]))
        more = sum(size(tokenizer, piece) for piece in tail) - len(text[cut:].encode())
        assert 0 <= more < size(tokenizer, tail[0])  # of the context, what its last token shares with the text


@pytest.fixture(scope="module")
def lms(tmp_path_factory):
    made = {}
    for name, make in MAKERS.items():
        folder, tokenizer = tmp_path_factory.mktemp(name), make()
        build("llama", tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made[name] = load(folder)
    return made


@pytest.mark.parametrize("name", MAKERS)
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
