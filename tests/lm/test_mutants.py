"""Model folders, adapters and GGUF files of strangers: an error that names the fault, and no code of a folder runs."""

import copy
import json
import os
import pickle
import random
import shutil
import sys
from pathlib import Path

import pytest
import torch
from dspy.utils.exceptions import LMError
from models import load
from safetensors.torch import save_file

MODULE = "model.layers.1.self_attn.q_proj"
EVIL = "import pathlib; pathlib.Path(__file__).with_name('MARKER').touch()\n"
VALUES = [
    *(None, True, 0, -1, 1, 3, 2**31, 10**9, 10**30, 1e308, 0.5),
    *("", "evil", "evil/kernel", "evil.Class", "os.system", "../x", "{{ messages }}", "\ud800", "x" * 10_000),
    *([], {}, [1], [[["a"], 5]], {"a": 1}, {"rope_type": "evil"}, {"quant_method": "evil"}),
]
KEYS = {
    "config.json": ("auto_map", "attn_implementation", "quantization_config", "num_labels", "layer_types", "dtype"),
    "tokenizer_config.json": ("auto_map", "chat_template", "tokenizer_class", "added_tokens_decoder", "tokenizer_file"),
    "adapter_config.json": ("layer_replication", "megatron_core", "target_modules", "modules_to_save", "auto_mapping"),
}
MAPS = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M", "AutoTokenizer": ["evil.T", "evil.T"]}


class Touch:  # an object that runs code when it is unpickled
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def places(content):
    """Yield every container of JSON content with each of its keys."""
    for key, value in list(content.items() if isinstance(content, dict) else enumerate(content)):
        yield content, key
        if isinstance(value, dict | list):
            yield from places(value)


def mutate_json(path, rng):
    """Set, remove or add a value somewhere in a JSON file."""
    content = json.loads(path.read_text())
    kind = rng.random()
    value = copy.deepcopy(rng.choice(VALUES))
    if kind < 0.25 and path.name in KEYS:
        key = rng.choice(KEYS[path.name])
        content[key] = MAPS if key == "auto_map" else value
    else:
        found = list(places(content))
        container, key = rng.choice(found if rng.random() < 0.3 else found[:60])
        if kind < 0.4:
            del container[key]
        else:
            container[key] = value
    path.write_text(json.dumps(content))


def mutate_bytes(path, rng):
    """Cut a file, or change some of its first bytes."""
    content = bytearray(path.read_bytes())
    if rng.random() < 0.2:
        content = content[: rng.randrange(len(content))]
    for _ in range(rng.choice([1, 1, 3, 10]) if content else 0):
        at = rng.randrange(min(len(content), 9000))
        if rng.random() < 0.3:
            content[at : at + 8] = rng.choice([b"\xff" * 8, (2**62).to_bytes(8, "little")])
        else:
            content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def mutate(folder, rng):
    """Change one file of a folder, and lay traps in it."""
    (folder / "evil.py").write_text(EVIL)
    path = rng.choice(sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".gguf")))
    if path.name == "model.safetensors" and rng.random() < 0.2:
        path.unlink()
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"lm_head.weight": Touch(folder / "MARKER")}))
    elif path.suffix == ".json" and rng.random() < 0.9:
        mutate_json(path, rng)
    else:
        mutate_bytes(path, rng)


def original(kind, folder, folders):
    """Return the folder with what is mutated."""
    if kind == "model":
        return Path(folders["llama-chat"])
    folder.mkdir()
    if kind == "gguf":
        if sys.version_info < (3, 11):
            pytest.skip("GGUF files take Python 3.11 or newer")
        from gguf_files import save_llama, write

        write(save_llama(folder.with_name("llama")), folder / "tiny.gguf")
        return folder
    from peft import LoraConfig

    sides = {"A": (3, 32), "B": (32, 3)}
    weights = {f"base_model.model.{MODULE}.lora_{x}.weight": torch.ones(shape) for x, shape in sides.items()}
    save_file(weights, folder / "adapter_model.safetensors")
    LoraConfig(r=3, target_modules=[MODULE], task_type="CAUSAL_LM").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("count", [6, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["model", "adapter", "gguf"])
def test_mutants_are_opened_or_refused(kind, count, tmp_path, monkeypatch, folders):
    monkeypatch.setenv("EVALBIAS_CACHE", str(tmp_path / "cache"))
    whole = original(kind, tmp_path / kind, folders)
    for seed in range(count):
        print(kind, seed, flush=True)  # the last line names the mutant that hangs
        folder = shutil.copytree(whole, tmp_path / str(seed))
        mutate(folder, random.Random(seed))
        try:
            if kind == "adapter":
                lm = load(folders["llama"], adapter=str(folder))
            else:
                lm = load(folder / "tiny.gguf" if kind == "gguf" else folder)
            lm.choice_logprobs([[{"role": "user", "content": "Judge it."}]], ["1", "2"])
        except (ValueError, OSError, ImportError, FloatingPointError, LMError):
            pass  # what a user can correct
        assert not (folder / "MARKER").exists(), f"code of mutant {seed} ran"
