"""Model folders, adapters, GGUF files and recordings with faults and traps, as a stranger might send them.

``python mutants.py KIND FOLDER WORK COUNT [BASE]`` opens mutants of what lies in a folder, for a test that must survive
a hang.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

from dspy.utils.exceptions import LMError

from evalbias import LocalLM
from evalbias.lm.saved import RecordedLM, UnseenPrompt

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


class Touch:
    """An object that runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def places(content):
    """Yield every container of JSON content with each of its keys."""
    for key, value in list(content.items() if isinstance(content, dict) else enumerate(content)):
        yield content, key
        if isinstance(value, dict | list):
            yield from places(value)


def mutate_json(path: Path, rng: random.Random) -> None:
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


def mutate_bytes(path: Path, rng: random.Random, start: int = 9000) -> None:
    """Cut a file, or change some of its first bytes."""
    content = bytearray(path.read_bytes())
    if rng.random() < 0.2:
        content = content[: rng.randrange(len(content))]
    for _ in range(rng.choice([1, 1, 3, 10])):
        if content:
            at = rng.randrange(min(len(content), start))
            large = rng.random() < 0.3
            content[at : at + (8 if large else 1)] = (
                rng.choice([b"\xff" * 8, (2**62).to_bytes(8, "little")])
                if large
                else bytes([content[at] ^ 1 << rng.randrange(8)])
            )
    path.write_bytes(content)


def mutate(folder: Path, rng: random.Random) -> None:
    """Change one file of a folder, and lay traps in it."""
    (folder / "evil.py").write_text(EVIL)
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".gguf", ".jsonl"))
    path = rng.choice(files)
    if path.name == "model.safetensors" and rng.random() < 0.2:
        path.unlink()
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"lm_head.weight": Touch(folder / "MARKER")}))
    elif path.suffix == ".json" and rng.random() < 0.9:
        mutate_json(path, rng)
    else:
        mutate_bytes(path, rng)


def open_one(kind: str, folder: Path, base: str | None = None) -> None:
    """Open what lies in a folder, and ask it."""
    if kind == "recording":
        RecordedLM(folder / "recording.jsonl")("hello")
        return
    model = {"model": folder, "gguf": folder / "tiny.gguf", "adapter": base}[kind]
    adapter = str(folder) if kind == "adapter" else None
    lm = LocalLM(str(model), device="cpu", dtype="float32", adapter=adapter)
    lm.choice_logprobs([[{"role": "user", "content": "Judge it."}]], ["1", "2"])


def open_mutants(kind: str, source: Path, work: Path, seeds, base: str | None = None) -> dict[str, int]:
    """Open mutants of a folder, and count the outcomes; an error that a user cannot correct is raised.

    Raises:
        AssertionError: Code of a mutant ran.
    """
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        print(kind, seed, flush=True)  # the last line names the mutant that hangs
        folder = shutil.copytree(source, work / str(seed))
        mutate(folder, random.Random(seed))
        try:
            open_one(kind, folder, base)
            outcomes["opened"] += 1
        except (ValueError, OSError, ImportError, FloatingPointError, LMError, UnseenPrompt) as error:
            outcomes[type(error).__name__] += 1
        assert not (folder / "MARKER").exists(), f"code of mutant {seed} ran"
    return dict(outcomes)


if __name__ == "__main__":
    kind, source, work, count, *base = sys.argv[1:]
    open_mutants(kind, Path(source), Path(work), range(int(count)), *base)
