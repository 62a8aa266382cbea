"""GGUF files give the numbers of the model that they were made from."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize
from gguf_files import save_llama, write
from models import load
from safetensors.numpy import load_file, save_file

from benchmarks.pretrained import GEMMA3, SMOLLM2
from evalbias.lm import files as gguf
from evalbias.lm.load import load_tokenizer

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="GGUF files take Python 3.11 or newer")

PAIRS = [("Judge the output on 2020  items:", " yes, a naïve café."), ("Source: the cat", " sat on 12 mats.")]
CHAT = [{"role": "user", "content": "Score: 10 or 9?"}]
NUMBER = b"\x04\x00\x00\x00"  # kind of a field, before its value


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALBIAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def file(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write(folder, path)
    return path


def numbers(lm):
    """Return likelihoods of plain text and choices after a chat."""
    likelihoods = [row.per_token for row in lm.loglikelihood(PAIRS)]
    return np.concatenate([*likelihoods, lm.choice_logprobs([CHAT], ["1", "10", "yes"]).logprobs[0]])


def test_a_gguf_file_gives_the_numbers_of_the_model_it_was_made_from(folder, file):
    lm, original = load(file), load(folder)
    np.testing.assert_allclose(numbers(lm), numbers(original), atol=1e-5)
    assert lm.engine.loaded.tokenizer.chat_template == original.engine.loaded.tokenizer.chat_template
    assert lm.engine.loaded.context_length == 256
    assert lm.model.startswith("local/tiny.gguf@")


def test_quantized_weights_are_the_scale_of_their_block_times_whole_numbers(folder, tmp_path):
    write(folder, tmp_path / "tiny.gguf", quantized=True)
    rounded = shutil.copytree(folder, tmp_path / "rounded")
    weights = load_file(rounded / "model.safetensors")
    for name, weight in weights.items():
        if weight.ndim == 2:
            blocks = weight.reshape(-1, 32)  # Q8_0: 32 numbers share a scale, the largest magnitude over 127
            scales = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
            whole = np.round(blocks / scales)
            weights[name] = (scales.astype(np.float16).astype(np.float32) * whole).reshape(weight.shape)
    save_file(weights, rounded / "model.safetensors", metadata={"format": "pt"})
    got = numbers(load(tmp_path / "tiny.gguf"))
    np.testing.assert_allclose(got, numbers(load(rounded)), atol=1e-4)
    assert np.abs(got - numbers(load(folder))).max() > 1e-3


def test_four_bit_blocks_have_the_bits_that_gguf_gives_them(tmp_path):
    kind, rng = GGMLQuantizationType.Q4_K, np.random.default_rng(0)
    blocks = rng.integers(0, 256, (1_100, 144), np.uint8)  # more weights than a thread unpacks at a time
    blocks[:, :4] = rng.normal(size=(1_100, 2)).astype(np.float16).view(np.uint8)
    blocks.tofile(tmp_path / "blocks")
    unpacked = np.empty((1_100, 256), np.float32)
    with ThreadPoolExecutor(2) as pool:
        gguf._dequantize(tmp_path / "blocks", 0, int(kind), unpacked, pool)
    np.testing.assert_array_equal(unpacked, dequantize(blocks, kind))


def test_text_is_split_as_the_file_says(folder, file, tmp_path):
    original, read = load_tokenizer(str(folder)), load_tokenizer(str(file))
    for text in ("In 2020  12 items", "two  blanks  3", "naïve café 日本 10", "<|end|>"):
        assert read(text).input_ids == original(text).input_ids
    write(folder, tmp_path / "gpt2.gguf", splitting="gpt-2")
    other = load_tokenizer(str(tmp_path / "gpt2.gguf"))
    assert other("two  blanks  3").input_ids != original("two  blanks  3").input_ids


def test_llama_3_takes_words_of_its_vocabulary_whole_and_starts_texts_with_a_token(tmp_path):
    folder = save_llama(tmp_path / "model")
    description = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = description["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary["zqx"] = vocabulary.pop(last)  # a word that no merges make
    merges = description["model"]["merges"]
    description["model"]["merges"] = [merge for merge in merges if "".join(merge) != last and last not in merge]
    (folder / "tokenizer.json").write_text(json.dumps(description))
    for starts, first in ((None, [0]), (True, [0]), (False, [])):
        path = tmp_path / f"{starts}.gguf"
        write(folder, path, splitting="llama-bpe", starts=starts)
        assert load_tokenizer(str(path))("zqx").input_ids == [*first, vocabulary["zqx"]]


@pytest.mark.parametrize(("options", "match"), [
    ({"splitting": "of-tomorrow"}, "splits text by the rules 'of-tomorrow', which are not known"),
    ({"extra": ["rope_freqs.weight"]}, r"scales its positions by rope_freqs\.weight"),
])  # fmt: skip
def test_what_would_be_read_wrongly_is_refused(folder, tmp_path, options, match):
    write(folder, tmp_path / "odd.gguf", **options)
    with pytest.raises(ValueError, match=rf"odd\.gguf {match}"):
        load(tmp_path / "odd.gguf")


def test_a_missing_file_and_a_file_that_breaks_off_are_named(file, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.gguf does not exist"):
        load(tmp_path / "none.gguf")
    for size in (3, 2000, file.stat().st_size - 1000):
        (tmp_path / "half.gguf").write_bytes(file.read_bytes()[:size])
        with pytest.raises(ValueError, match=r"half\.gguf is not a whole GGUF file"):
            load(tmp_path / "half.gguf")


def test_only_the_file_itself_is_read(folder, file, tmp_path):
    """Its folder may hold another tokenizer, code, or an adapter that names another model."""
    copied = Path(shutil.copy(file, tmp_path / "tiny.gguf"))
    other = json.loads((folder / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**other, "normalizer": {"type": "Lowercase"}}))
    trap = {"auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}, "tokenizer_class": "T"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(trap))
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "evil/model"}))
    assert load_tokenizer(str(copied))("A Cat").input_ids == load_tokenizer(str(folder))("A Cat").input_ids


@pytest.mark.parametrize(("old", "new", "match"), [
    (b"llama.block_count" + NUMBER + b"\x02\x00", NUMBER + b"\x02\x07", "has weights of 2 layers"),
    (b"llama.attention.head_count" + NUMBER + b"\x04", NUMBER + b"\x03", "cannot be read as"),
    (b"llama.embedding_length" + NUMBER + b"\x20", NUMBER + b"\x40", "cannot be read as a model"),
    (b"general.architecture\x08", b"\x09", "is not a whole GGUF file"),
])  # fmt: skip
def test_a_damaged_file_is_named(file, tmp_path, old, new, match):
    content = file.read_bytes()
    assert content.count(old) == 1
    (tmp_path / "bad.gguf").write_bytes(content.replace(old, old[: -len(new)] + new))
    with pytest.raises(ValueError, match=rf"bad\.gguf {match}"):
        load(tmp_path / "bad.gguf")


@pytest.mark.slow
@pytest.mark.parametrize("name", [b"tokenizer.ggml.token_type", b"tokenizer.ggml.tokens"])
def test_a_list_that_is_longer_than_the_file_is_refused_at_once(name, file, tmp_path):
    content = file.read_bytes()
    start = content.index(name) + len(name) + 8  # behind the kinds of list and item: the length
    assert 0 < int.from_bytes(content[start : start + 8], "little") < 1000
    without_end = (2**62).to_bytes(8, "little")
    (tmp_path / "long.gguf").write_bytes(content[:start] + without_end + content[start + 8 :])
    with pytest.raises(ValueError, match=r"long\.gguf is not a whole GGUF file"):
        load(tmp_path / "long.gguf")


def test_without_the_extra_the_error_names_it(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"takes an extra: pip install 'evalbias\[gguf\]'"):
        load(file)


def test_a_damaged_cache_is_made_again(file):
    before = numbers(load(file))
    places = Path(gguf.unpacked(str(file))) / gguf.TENSORS
    content = places.read_bytes()
    for damage in (
        lambda: places.write_bytes(content.replace(b"32", b"64")),
        lambda: places.write_bytes(content[:-4]),
        places.unlink,
        lambda: (places.parent / gguf.MANIFEST).write_text("[]"),
    ):
        damage()
        np.testing.assert_array_equal(numbers(load(file)), before)
        assert places.read_bytes() == content
    assert sum(path.stat().st_size for path in places.parent.iterdir()) < file.stat().st_size


def test_another_file_has_another_fingerprint(folder, file, tmp_path):
    changed = shutil.copytree(folder, tmp_path / "changed")
    weights = load_file(changed / "model.safetensors")
    weights["model.norm.weight"][0] += 0.5
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    write(changed, tmp_path / "changed.gguf")
    lms = [load(path) for path in (file, tmp_path / "changed.gguf", folder)]
    assert len({lm.engine.loaded.fingerprint for lm in lms}) == 3


@pytest.fixture
def pretrained(models_dir, monkeypatch):
    """The folder of ``make models``; what is read of its files is kept in the user's cache."""
    monkeypatch.delenv("EVALBIAS_CACHE")
    return models_dir


KNOWN = json.loads((Path(__file__).parent / "gguf_tokens.json").read_text(encoding="utf-8"))
"""Texts with the tokens that llama.cpp gives them, by model."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [SMOLLM2, GEMMA3])
def test_texts_have_the_tokens_of_llama_cpp_and_the_likelihoods_of_plain_teacher_forcing(pretrained, name):
    from transformers import AutoModelForCausalLM

    file, text = pretrained / name, KNOWN["texts"][-1]
    tokenizer = load_tokenizer(str(file))
    for one, tokens in zip(KNOWN["texts"], KNOWN[name], strict=True):
        assert tokenizer(one).input_ids == tokens, one
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokens = KNOWN[name][-1]
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0]  # (T, V)
    expected = [float(logits[n - 1].log_softmax(-1)[tokens[n]]) for n in range(1, len(tokens))]
    (got,) = load(file).loglikelihood([(text[:2], text[2:])])
    assert len(got.per_token) >= 48
    np.testing.assert_allclose(got.per_token, expected[-len(got.per_token) :], atol=1e-3)
