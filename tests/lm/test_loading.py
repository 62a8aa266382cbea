"""Which models are refused, what tells two models apart, adapters, and where weights go."""

import json
import math
import os
import re
import shutil
import sys
import time

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from models import load, save, sentencepiece_like
from refusals import refusals
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, CLIPTextModel, Gemma2ForCausalLM, T5Config, T5ForConditionalGeneration

from evalbias import LocalLM
from evalbias.cli.models import open_lm
from evalbias.lm import fingerprint
from evalbias.lm import load as placing
from evalbias.lm.files import FILES, readable
from evalbias.lm.fingerprint import file_hash, model_fingerprint
from evalbias.lm.load import ModelSource
from evalbias.lm.score import Scorer
from evalbias.options import MeasuringModels

HEADS = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 48}


def saved(model, folder):
    model.save_pretrained(folder)
    sentencepiece_like().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("lost", "match"), [
    ("lm_head.weight", r"m has no weights for lm_head\.weight, which would be random"),
    ("model.layers.1.", r"no weights for .*layers\.1\..* and \d+ more, which would be random"),
])  # fmt: skip
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


def of_a_larger_model(content):
    tokenizer = json.loads(content)
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] = 10**9
    return json.dumps(tokenizer).encode()


WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
NO_TOKENIZER = r"tokenizer of .*/m cannot be read \(.*\): fetch its tokenizer\.json again"


@pytest.mark.parametrize(("file", "edit", "match"), [
    (WEIGHTS, begins(5000), "The weights of .* cannot be read .*: fetch them again"),
    (WEIGHTS, begins(0), "The weights of .* cannot be read .*: fetch them again"),
    (CONFIG, begins(20), r"/m/config\.json is not valid JSON \(.*\): fetch it again"),
    ("generation_config.json", begins(0), r"/m/generation_config\.json is not valid JSON \(.*\): fetch it again"),
    ("tokenizer_config.json", begins(20), r"/m/tokenizer_config\.json is not valid JSON \(.*\): fetch it again"),
    (TOKENIZER, begins(200), NO_TOKENIZER),
    (TOKENIZER, begins(0), NO_TOKENIZER),
    (TOKENIZER, holds("{}"), NO_TOKENIZER),
    (TOKENIZER, lambda content: content.replace(b'"type": "BPE"', b'"type": "unheard of"'), NO_TOKENIZER),
    (TOKENIZER, of_a_larger_model, r"tokenizer of .*/m has a token 1000000000, and the model knows \d+: fetch"),
    (CONFIG, sets(hidden_size="64"), "config.json of .*/m cannot be read .*expected int.*fetch it again"),
    (CONFIG, sets(hidden_size=-5), "config.json of .*/m cannot be read .*fetch it again"),
    (CONFIG, sets(rope_parameters={"rope_type": "evil"}), "weights of .*/m cannot be read .KeyError: 'evil'"),
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
])  # fmt: skip
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
    config = transformers.Gemma2Config(**sizes, attn_logit_softcapping=0.01, max_position_embeddings=192)
    model = Gemma2ForCausalLM(config)
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
    clip = CLIPTextModel(transformers.CLIPTextConfig(vocab_size=200, max_position_embeddings=64, **HEADS))
    with pytest.raises(ValueError, match=r"not a causal language model \(CLIPText\)"):
        load(saved(clip, tmp_path / "clip"))
    torch.manual_seed(0)
    bert = transformers.BertLMHeadModel(transformers.BertConfig(vocab_size=200, max_position_embeddings=64, **HEADS))
    with pytest.raises(ValueError, match="attends to later tokens, so it is not a causal model"):
        load(saved(bert, tmp_path / "bert"))


def test_a_multimodal_model_is_a_text_model(tmp_path):
    text = {"vocab_size": len(sentencepiece_like()), "num_key_value_heads": 1, "head_dim": 16, **HEADS}
    vision = {"model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14, **HEADS}
    parts = {"text_config": {**text, "max_position_embeddings": 192}, "vision_config": vision}
    config = transformers.Gemma3Config(**parts, mm_tokens_per_image=4, image_token_index=3)
    torch.manual_seed(0)
    lm = load(saved(transformers.Gemma3ForConditionalGeneration(config), tmp_path / "m"))
    assert lm.engine.loaded.context_length == 192
    (likelihood,) = lm.loglikelihood([("the cat", " sat on a mat")])
    ids = lm.engine.loaded.tokenizer("the cat sat on a mat")["input_ids"]
    with torch.inference_mode():
        logprobs = lm.engine.loaded.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    places = range(len(ids) - likelihood.tokens, len(ids))
    assert likelihood.per_token == pytest.approx([float(logprobs[p - 1, ids[p]]) for p in places], abs=1e-5)


@pytest.mark.slow
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


def test_an_edit_that_keeps_size_and_time_is_seen_and_so_is_a_torn_entry(large):
    first, status = file_hash(large), large.stat()
    (entry,) = (large.parent / "cache" / "evalbias" / "hashes").iterdir()
    entry.write_text("{")  # a torn entry is none
    assert file_hash(large) == first
    with large.open("r+b") as file:
        file.seek(500)
        file.write(b"y")
    os.utime(large, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert large.stat().st_mtime_ns == status.st_mtime_ns
    assert file_hash(large) != first


def test_a_second_start_skips_the_trials_of_a_model_that_passed_them(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EVALBIAS_KEEP")
    tried, folder = [], save("llama", tmp_path / "m")
    for owner, name in ((placing, "check_model"), (Scorer, "_tried")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, name=name, real=real: tried.append(name) or real(*args))

    def start():
        tried.clear()
        answer = load(folder).loglikelihood([("the cat", " sat on a mat")])[0].per_token.tolist()
        return answer, [*tried]

    answer, first = start()
    assert first == ["check_model", "_tried"]
    assert start() == (answer, [])
    (entry,) = (tmp_path / "cache/passed").iterdir()
    facts = entry.read_text()
    for foreign in ("{", "[]", "{}", facts.replace("torch", "torch 0")):
        entry.write_text(foreign)
        assert start() == (answer, first)
        assert entry.read_text() == facts
    weights = load_file(f"{folder}/model.safetensors")
    save_file({name: 2 * tensor for name, tensor in weights.items()}, f"{folder}/model.safetensors", {"format": "pt"})
    assert start()[1] == first
    monkeypatch.setenv("EVALBIAS_KEEP", "0")
    assert start()[1] == first


def test_a_name_that_the_hub_cannot_be_asked_about_is_refused_without_retries(monkeypatch):
    nowhere = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", nowhere)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited {seconds} s"))
    for name in ("no-such/model", "no such/model"):
        with pytest.raises(FileNotFoundError, match=f"'{name}' is neither a folder"):
            load(name)


# A LoRA adapter is merged into the weights, and is part of the model's identity.

PAIRS = [("Judge the output on quality:", " is it good? yes"), ("Source: the cat", " sat on the mat.")]
RANK, ALPHA = 3, 6
MODULE = "model.layers.1.self_attn.q_proj"
LOW, HIGH = (f"base_model.model.{MODULE}.{name}.weight" for name in ("lora_A", "lora_B"))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """An adapter of one projection of the tiny Llama, written by hand."""
    folder = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(0)
    save_file({LOW: torch.randn(RANK, 32), HIGH: torch.randn(32, RANK)}, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "target_modules": [MODULE]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def likelihoods(lm):
    return np.concatenate([row.per_token for row in lm.loglikelihood(PAIRS)])


def rewritten(adapter, folder, edit):
    """Copy an adapter and change its tensors by name."""
    shutil.copytree(adapter, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def test_the_product_of_the_adapter_is_added_to_the_weights(folders, adapter, tmp_path):
    changed = shutil.copytree(folders["llama"], tmp_path / "changed")
    weights, delta = load_file(changed / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    weights[f"{MODULE}.weight"] += ALPHA / RANK * delta[HIGH] @ delta[LOW]
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    adapted = likelihoods(load(folders["llama"], adapter=str(adapter)))
    np.testing.assert_allclose(adapted, likelihoods(load(changed)), atol=1e-5)
    assert np.abs(adapted - likelihoods(load(folders["llama"]))).max() > 0.01


def test_it_is_part_of_the_models_identity(folders, adapter, tmp_path):
    other = rewritten(adapter, tmp_path / "other", lambda tensors: tensors[LOW].mul_(2))
    copied = shutil.copytree(adapter, tmp_path / "copy")
    plain, first, again, second = (load(folders["llama"], adapter=a and str(a)) for a in (None, adapter, copied, other))
    assert first.model == again.model
    assert len({plain.model, first.model, second.model}) == 3
    assert second.provenance()["adapter"] == "other"
    assert "adapter" not in plain.provenance()
    again = LocalLM(**first.saved_arguments())
    np.testing.assert_array_equal(likelihoods(again), likelihoods(first))


def test_adapter_on_the_command_line(folders, adapter):
    options = MeasuringModels(device="cpu", dtype="float32", adapter=str(adapter))
    assert open_lm(folders["llama"], options).model == load(folders["llama"], adapter=str(adapter)).model
    assert options.of_another().adapter is None
    for name, address in (("dspy:openai/gpt", None), ("hosted_vllm/x", "http://localhost:1/v1"), ("embedded", None)):
        with pytest.raises(ValueError, match=f"--adapter: {name} takes none"):
            open_lm(name, MeasuringModels(adapter=str(adapter), api_base=address))


def test_an_adapter_of_another_model_is_refused(folders, adapter, tmp_path):
    with pytest.raises(ValueError, match=r"does not fit .*gpt2.*[Tt]arget modules"):
        load(folders["gpt2"], adapter=str(adapter))
    wide = rewritten(adapter, tmp_path / "wide", lambda t: t.update({LOW: torch.zeros(RANK, 64)}))
    with pytest.raises(ValueError, match=r"does not fit .*size mismatch"):
        load(folders["llama"], adapter=str(wide))
    half = rewritten(adapter, tmp_path / "half", lambda t: t.pop(HIGH))
    with pytest.raises(ValueError, match=r"does not fit .*: it lacks .*lora_B"):
        load(folders["llama"], adapter=str(half))
    extra = {"base_model.model.x.lora_A.weight": torch.zeros(3, 3)}
    more = rewritten(adapter, tmp_path / "more", lambda t: t.update(extra))
    with pytest.raises(ValueError, match=r"does not fit .*: it is made for a model with base_model\.model\.x\.lora_A"):
        load(folders["llama"], adapter=str(more))


def test_what_is_no_lora_adapter_is_refused(folders, adapter, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none has no adapter_config\.json"):
        load(folders["llama"], adapter=str(tmp_path / "none"))
    pickled = shutil.copytree(adapter, tmp_path / "pickled")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"pickled has no adapter_model\.safetensors"):
        load(folders["llama"], adapter=str(pickled))
    prompts = shutil.copytree(adapter, tmp_path / "prompts")
    (prompts / "adapter_config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"adapter_config\.json holds \[\] in place of a JSON object"):
        load(folders["llama"], adapter=str(prompts))
    (prompts / "adapter_config.json").write_text('{"peft_type": "PROMPT_TUNING"}')
    with pytest.raises(ValueError, match="of the kind 'PROMPT_TUNING', which cannot be merged"):
        load(folders["llama"], adapter=str(prompts))


def test_without_the_extra_the_error_names_it(folders, adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"takes an extra: pip install 'evalbias\[peft\]'"):
        load(folders["llama"], adapter=str(adapter))


# Where weights go: straight to a GPU, over several devices, or through a quantizer; no GPU is needed.

CUDA, CPU = torch.device("cuda:1"), torch.device("cpu")
EIGHT_BITS = {"quant_method": "bitsandbytes", "load_in_8bit": True}


def test_weights_go_straight_to_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert ModelSource("m", "cuda:1").placement() == {"device_map": {"": CUDA}}
    assert ModelSource("m", "cpu").placement() == {}
    assert ModelSource("m", device_map="auto").placement() == {"device_map": "auto"}
    assert ModelSource("m", "cuda:1", adapter="folder").placement() == {}  # merged before weights are moved
    monkeypatch.setattr(placing, "is_accelerate_available", lambda: False)
    assert ModelSource("m", "cuda:1").placement() == {}  # moved afterwards
    with pytest.raises(ImportError, match=r"pip install 'evalbias\[gpu\]'"):
        ModelSource("m", device_map="auto").placement()


test_options_that_make_no_sense_are_refused_at_once = refusals(
    lambda options: ModelSource("m", **options),
    ({"adapter": "folder", "device_map": "auto"}, "device_map=.* cannot be combined with an adapter"),
    ({"adapter": "folder", "quantization": EIGHT_BITS}, "quantization=.* cannot be combined with an adapter"),
    ({"device": "cuda", "device_map": "auto"}, "device='cuda' and device_map='auto' exclude each other"),
    ({"device": "abacus"}, "device='abacus' is unknown"),
    ({"dtype": "int8"}, "dtype='int8' is unknown"),
)


def test_a_quantizer_gets_its_settings(folders, monkeypatch):
    """Transformers' loading is replaced: its quantizers take packages and mostly a GPU."""
    real, given = AutoModelForCausalLM.from_pretrained, {}

    def loading(source, *, device_map, quantization_config, **options):
        given.update(device_map=device_map, settings=quantization_config.to_dict())
        return real(source, **options)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", loading)
    lm = load(folders["llama"], quantization=EIGHT_BITS)
    assert given["device_map"] == {"": CPU}
    assert given["settings"]["load_in_8bit"] is True
    assert lm.saved_arguments()["quantization"] == EIGHT_BITS
    other = load(folders["llama"], quantization={"quant_method": "fp8"})
    assert given["settings"]["quant_method"] == "fp8"
    assert lm.model != other.model  # DSPy's cache tells them apart


SPREAD = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu"}


@pytest.mark.parametrize("places", [{"": "cpu"}, {**SPREAD, "model.layers.1": "disk", "lm_head": "cpu"}])
def test_a_device_map_places_the_weights(places, folders, lms):
    """Between several devices, accelerate's hooks move the states of every layer; every machine has a disk as one."""
    lm = LocalLM(folders["llama"], dtype="float32", device_map=places)
    assert hasattr(lm.engine.loaded.model, "_hf_hook") == (len(places) > 1)
    assert lm.engine.scorer.share
    assert lm.saved_arguments()["device_map"] == places
    prompts = [f"Judge the output on quality: is it good? {a}" for a in ("the cat", "a mat", "a dog")]
    both = [one.choice_logprobs(prompts, ["1", "2", "10"]).logprobs for one in (lm, lms["llama"])]
    np.testing.assert_allclose(*both, atol=5e-6)


def test_an_offloaded_output_layer_is_refused(folders):
    """``device_map="auto"`` puts it on the CPU or the disk where the GPUs have too little memory for all layers."""
    with pytest.raises(ValueError, match="its output layer was offloaded, which is not supported"):
        LocalLM(folders["llama"], dtype="float32", device_map={"model": "cpu", "lm_head": "disk"})
