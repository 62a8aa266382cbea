"""Which models are refused, and what tells two models apart."""

import json
import math
import os
import re
import time

import huggingface_hub
import pytest
import torch
from models import load, save, sentencepiece_like
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertLMHeadModel,
    CLIPTextConfig,
    CLIPTextModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from evalbias.lm import fingerprint
from evalbias.lm.files import FILES, readable
from evalbias.lm.fingerprint import file_hash, model_fingerprint

HEADS = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 48}


def saved(model, folder):
    model.save_pretrained(folder)
    sentencepiece_like().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("lost", "match"),
    [
        ("lm_head.weight", r"m has no weights for lm_head\.weight, which would be random"),
        ("model.layers.1.", r"no weights for .*layers\.1\..* and \d+ more, which would be random"),
    ],
)
def test_a_checkpoint_without_some_weights_is_refused(tmp_path, lost, match):
    folder = save("llama", tmp_path / "m")
    load(folder)
    path = f"{folder}/model.safetensors"
    left = {name: tensor for name, tensor in load_file(path).items() if not name.startswith(lost)}
    save_file(left, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=match):
        load(folder)


def begins(length):
    """A file that was not fetched to its end."""
    return lambda content: content[:length]


def holds(text):
    return lambda _: text.encode()


def sets(**settings):
    return lambda content: json.dumps({**json.loads(content), **settings}).encode()


def of_another_kind(content):
    return content.replace(b'"type": "BPE"', b'"type": "unheard of"')


def of_a_larger_model(content):
    tokenizer = json.loads(content)
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] = 10**9
    return json.dumps(tokenizer).encode()


WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
NO_TOKENIZER = r"tokenizer of .*/m cannot be read \(.*\): fetch its tokenizer\.json again"


@pytest.mark.parametrize(
    ("file", "edit", "match"),
    [
        (WEIGHTS, begins(5000), "The weights of .* cannot be read .*: fetch them again"),
        (WEIGHTS, begins(0), "The weights of .* cannot be read .*: fetch them again"),
        (CONFIG, begins(20), r"/m/config\.json is not valid JSON \(.*\): fetch it again"),
        ("generation_config.json", begins(0), r"/m/generation_config\.json is not valid JSON \(.*\): fetch it again"),
        ("tokenizer_config.json", begins(20), r"/m/tokenizer_config\.json is not valid JSON \(.*\): fetch it again"),
        (TOKENIZER, begins(200), NO_TOKENIZER),
        (TOKENIZER, begins(0), NO_TOKENIZER),
        (TOKENIZER, holds("{}"), NO_TOKENIZER),
        (TOKENIZER, of_another_kind, NO_TOKENIZER),
        (TOKENIZER, of_a_larger_model, r"tokenizer of .*/m has a token 1000000000, and the model knows \d+: fetch"),
        (CONFIG, sets(hidden_size="64"), "config.json of .*/m cannot be read .*expected int.*fetch it again"),
        (CONFIG, sets(hidden_size=-5), "config.json of .*/m cannot be read .*fetch it again"),
        (
            CONFIG,
            sets(rope_parameters={"rope_type": "evil"}),
            "weights of .*/m cannot be read .KeyError: 'evil'.: fetch",
        ),
        (CONFIG, sets(vocab_size=10**9), "weights of .*/m cannot be read .*, with the config.json of this model"),
        (CONFIG, sets(num_hidden_layers=10**6), "/m has num_hidden_layers=1e.06, which no model has: fetch it"),
        (CONFIG, sets(text_config=[{"num_labels": 10**9}]), "config.json of .*/m has num_labels=1e.09, which no model"),
        (CONFIG, sets(num_hidden_layers=999), "/m has weights of 2 layers, and its configuration names 999: fetch it"),
        (CONFIG, sets(num_hidden_layers=0), "/m has weights of 2 layers, and its configuration names 0: fetch it"),
        (CONFIG, sets(max_position_embeddings=1), "/m has a context of 1 tokens, which holds no text"),
        (CONFIG, sets(model_type="new", auto_map={"AutoConfig": "evil.C"}), "code.*takes trust_remote_code=True"),
        *(
            (file, holds("[1]"), rf"/m/{re.escape(file)} holds \[1\] in place of a JSON object: fetch")
            for file in FILES
        ),
        (CONFIG, holds("null"), r"/m/config\.json holds null in place of a JSON object: fetch it"),
    ],
)
def test_a_damaged_folder_is_refused_by_name(tmp_path, file, edit, match):
    folder, path = save("llama", tmp_path / "m"), tmp_path / "m" / file
    path.write_bytes(edit(path.read_bytes() if path.exists() else b""))
    with pytest.raises((ValueError, OSError), match=match) as caught:
        load(folder)
    assert "cannot be read" not in match or caught.value.__cause__ is not None


def test_no_config_decides_which_code_attends(tmp_path, lms):
    folder = save("llama", tmp_path / "m")
    config, evil = tmp_path / "m" / CONFIG, sets(attn_implementation="evil/kernel", _attn_implementation="evil/kernel")
    config.write_bytes(evil(config.read_bytes()))
    (likelihood,), (expected,) = (lm.loglikelihood([("the cat", " sat")]) for lm in (load(folder), lms["llama"]))
    assert likelihood.per_token == expected.per_token


def test_caps_of_attention_scores_hold(tmp_path):
    """SDPA would leave them out."""
    sizes = {"vocab_size": len(sentencepiece_like()), "num_key_value_heads": 1, "head_dim": 16, **HEADS}
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**sizes, attn_logit_softcapping=0.01, max_position_embeddings=192))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)  # so that scores reach the cap
    folder = saved(model, tmp_path / "m")
    (capped,) = load(folder).loglikelihood([("the cat", " sat")])
    config = folder / CONFIG
    config.write_bytes(sets(attn_logit_softcapping=1000.0)(config.read_bytes()))
    (free,) = load(folder).loglikelihood([("the cat", " sat")])
    assert abs(capped.per_token[-1] - free.per_token[-1]) > 0.01


def test_memory_that_is_lacking_is_no_damage():
    for error in (MemoryError(), KeyboardInterrupt(), OSError("no disk"), torch.OutOfMemoryError("no memory")):
        with pytest.raises(type(error)), readable("x cannot be read", "fetch it again"):
            raise error


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_a_folder_is_no_file_of_the_model(tmp_path):
    before = model_fingerprint(str(tmp_path), [])
    os.mkfifo(tmp_path / "notes.txt")
    assert model_fingerprint(str(tmp_path), []) == before


def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "texts.csv").write_text("source,output\n")
    with pytest.raises(ValueError, match=r"texts\.csv is a file, and no \.gguf file: give the folder of a model"):
        load(tmp_path / "texts.csv")


def test_tied_weights_are_not_missing(tmp_path, lms):
    folder = save("gpt2", tmp_path / "m")  # its output layer is its input layer, stored once
    assert "lm_head.weight" not in load_file(f"{folder}/model.safetensors")
    assert load(folder).model.split("@")[1] == lms["gpt2"].model.split("@")[1]


def test_models_that_do_not_continue_text_are_refused(tmp_path):
    t5 = T5ForConditionalGeneration(T5Config(d_model=32, d_ff=48, num_layers=1, num_heads=2, vocab_size=200))
    with pytest.raises(ValueError, match=r"an encoder-decoder model \(T5\).*: use a causal model"):
        load(saved(t5, tmp_path / "t5"))
    clip = CLIPTextModel(CLIPTextConfig(vocab_size=200, max_position_embeddings=64, **HEADS))
    with pytest.raises(ValueError, match=r"not a causal language model \(CLIPText\)"):
        load(saved(clip, tmp_path / "clip"))
    torch.manual_seed(0)
    bert = BertLMHeadModel(BertConfig(vocab_size=200, max_position_embeddings=64, **HEADS))
    with pytest.raises(ValueError, match="attends to later tokens, so it is not a causal model"):
        load(saved(bert, tmp_path / "bert"))


def test_a_multimodal_model_is_a_text_model(tmp_path):
    text = {"vocab_size": len(sentencepiece_like()), "num_key_value_heads": 1, "head_dim": 16, **HEADS}
    vision = {"model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14, **HEADS}
    config = Gemma3Config(
        text_config={**text, "max_position_embeddings": 192},
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=3,
    )
    torch.manual_seed(0)
    lm = load(saved(Gemma3ForConditionalGeneration(config), tmp_path / "m"))
    assert lm.engine.loaded.context_length == 192
    (likelihood,) = lm.loglikelihood([("the cat", " sat on a mat")])
    ids = lm.engine.loaded.tokenizer("the cat sat on a mat")["input_ids"]
    with torch.inference_mode():
        logprobs = lm.engine.loaded.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    places = range(len(ids) - likelihood.tokens, len(ids))
    assert likelihood.per_token == pytest.approx([float(logprobs[p - 1, ids[p]]) for p in places], abs=1e-5)


def test_every_edit_of_the_weights_changes_the_fingerprint(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    weights = folder / "model.safetensors"
    content = bytearray(9 << 20)
    seen = set()
    for place in range(0, len(content), 300_007):  # one byte at a time, all over the file
        content[place] = 1
        weights.write_bytes(content)
        seen.add(model_fingerprint(str(folder), ()))
    (folder / "merges.txt").write_text("a b")
    seen |= {model_fingerprint(str(folder), ()), model_fingerprint(str(folder), ["bfloat16"])}
    assert len(seen) == len(range(0, len(content), 300_007)) + 2
    (folder / "README.md").write_text("Not part of the model.")
    assert model_fingerprint(str(folder), ()) in seen


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A file that counts as large and old enough for its hash to be cached."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fingerprint, "LARGE", 1)
    monkeypatch.setattr(fingerprint, "SETTLED", -math.inf)
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"x" * 1000)
    time.sleep(0.1)  # so that a later change has another time
    return file


def counted(monkeypatch):
    """Return a list that grows by a file each time one is read."""
    read, hashed = [], fingerprint._hash
    monkeypatch.setattr(fingerprint, "_hash", lambda file: read.append(file) or hashed(file))
    return read


def test_a_large_file_is_hashed_once(large, monkeypatch):
    read = counted(monkeypatch)
    first = file_hash(large)
    assert [file_hash(large), file_hash(large)] == [first, first]
    assert len(read) == 1
    (entry,) = (large.parent / "cache" / "evalbias" / "hashes").iterdir()
    entry.write_text("{")  # a torn entry is replaced
    assert file_hash(large) == first
    assert len(read) == 2
    assert file_hash(large) == first
    assert len(read) == 2


def test_an_edit_that_keeps_size_and_time_is_seen(large):
    first, status = file_hash(large), large.stat()
    with large.open("r+b") as file:
        file.seek(500)
        file.write(b"y")
    os.utime(large, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert large.stat().st_mtime_ns == status.st_mtime_ns
    assert file_hash(large) != first


@pytest.mark.parametrize("why", ["still changing", "no place"])
def test_a_hash_that_cannot_be_cached_is_computed_again(large, monkeypatch, why):
    if why == "still changing":
        monkeypatch.setattr(fingerprint, "SETTLED", 1e6)
    else:
        blocked = large.parent / "blocked"
        blocked.write_text("not a folder")
        monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    read = counted(monkeypatch)
    assert file_hash(large) == file_hash(large)
    assert len(read) == 2


def test_a_name_that_the_hub_cannot_be_asked_about_is_refused_without_retries(monkeypatch):
    nowhere = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", nowhere)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited {seconds} s"))
    with pytest.raises(FileNotFoundError, match=r"'no-such/model' is neither a folder nor .* check the name and"):
        load("no-such/model")
    with pytest.raises(FileNotFoundError, match="'no such/model' is neither a folder"):
        load("no such/model")
