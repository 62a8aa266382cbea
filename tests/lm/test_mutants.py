"""Model folders, adapters, GGUF files and recordings of strangers: an error that names the fault, and no code runs."""

import os
import subprocess
import sys
from pathlib import Path

import dspy
import mutants
import pytest
import torch
from safetensors.torch import save_file

from evalbias.lm.saved import record

MODULE = "model.layers.1.self_attn.q_proj"


@pytest.fixture
def sources(tmp_path, monkeypatch, folders):
    """kind -> folder with what is mutated, and the arguments after it."""
    monkeypatch.setenv("EVALBIAS_CACHE", str(tmp_path / "cache"))
    made = {kind: tmp_path / kind for kind in ("adapter", "gguf", "recording")}
    for folder in made.values():
        folder.mkdir()
    weights = {
        f"base_model.model.{MODULE}.lora_{x}.weight": torch.ones(s) for x, s in {"A": (3, 32), "B": (32, 3)}.items()
    }
    save_file(weights, made["adapter"] / "adapter_model.safetensors")
    from peft import LoraConfig

    LoraConfig(r=3, target_modules=[MODULE], task_type="CAUSAL_LM").save_pretrained(made["adapter"])
    answers = dspy.utils.DummyLM([{"answer": "yes"}] * 3)
    lm = record(answers, made["recording"] / "recording.jsonl")
    lm("hello")
    if sys.version_info >= (3, 11):
        from gguf_files import save_llama, write

        write(save_llama(tmp_path / "llama"), made["gguf"] / "tiny.gguf")
    return {"model": Path(folders["llama-chat"]), **made}


KINDS = ["model", "adapter", "gguf", "recording"]


@pytest.mark.parametrize("hundreds", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_mutants_are_opened_or_refused(kind, hundreds, sources, tmp_path, folders):
    if kind == "gguf" and sys.version_info < (3, 11):
        pytest.skip("GGUF files take Python 3.11 or newer")
    if not hundreds:
        outcomes = mutants.open_mutants(kind, sources[kind], tmp_path / "work", range(6), folders["llama"])
        assert sum(outcomes.values()) == 6
        return
    command = [sys.executable, mutants.__file__, kind, sources[kind], tmp_path / "work", "250", folders["llama"]]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"hangs at the last of {(error.stdout or b'')[-200:]!r}")
    assert ended.returncode == 0, f"{ended.stdout[-100:]} {ended.stderr[-2000:]}"
