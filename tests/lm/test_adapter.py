"""A LoRA adapter is merged into the weights, and is part of the model's identity."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from evalbias import LocalLM
from evalbias.cli.models import open_lm
from evalbias.options import MeasuringModels

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


def load(folder, adapter=None):
    return LocalLM(str(folder), device="cpu", dtype="float32", adapter=adapter and str(adapter))


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
    adapted = likelihoods(load(folders["llama"], adapter))
    np.testing.assert_allclose(adapted, likelihoods(load(changed)), atol=1e-5)
    assert np.abs(adapted - likelihoods(load(folders["llama"]))).max() > 0.01


def test_it_is_part_of_the_models_identity(folders, adapter, tmp_path):
    other = rewritten(adapter, tmp_path / "other", lambda tensors: tensors[LOW].mul_(2))
    copied = shutil.copytree(adapter, tmp_path / "copy")
    plain, first, again, second = (load(folders["llama"], a) for a in (None, adapter, copied, other))
    assert first.model == again.model
    assert len({plain.model, first.model, second.model}) == 3
    assert second.provenance()["adapter"] == "other"
    assert "adapter" not in plain.provenance()
    again = LocalLM(**first.saved_arguments())
    np.testing.assert_array_equal(likelihoods(again), likelihoods(first))


def test_adapter_on_the_command_line(folders, adapter):
    options = MeasuringModels(device="cpu", dtype="float32", adapter=str(adapter))
    assert open_lm(folders["llama"], options).model == load(folders["llama"], adapter).model
    assert options.of_another().adapter is None
    for name, address in (("dspy:openai/gpt", None), ("hosted_vllm/x", "http://localhost:1/v1"), ("embedded", None)):
        with pytest.raises(ValueError, match=f"--adapter: {name} takes none"):
            open_lm(name, MeasuringModels(adapter=str(adapter), api_base=address))


def test_an_adapter_of_another_model_is_refused(folders, adapter, tmp_path):
    with pytest.raises(ValueError, match=r"does not fit .*gpt2.*[Tt]arget modules"):
        load(folders["gpt2"], adapter)
    wide = rewritten(adapter, tmp_path / "wide", lambda t: t.update({LOW: torch.zeros(RANK, 64)}))
    with pytest.raises(ValueError, match=r"does not fit .*size mismatch"):
        load(folders["llama"], wide)
    half = rewritten(adapter, tmp_path / "half", lambda t: t.pop(HIGH))
    with pytest.raises(ValueError, match=r"does not fit .*: it lacks .*lora_B"):
        load(folders["llama"], half)
    extra = {"base_model.model.x.lora_A.weight": torch.zeros(3, 3)}
    more = rewritten(adapter, tmp_path / "more", lambda t: t.update(extra))
    with pytest.raises(ValueError, match=r"does not fit .*: it is made for a model with base_model\.model\.x\.lora_A"):
        load(folders["llama"], more)


def test_what_is_no_lora_adapter_is_refused(folders, adapter, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none has no adapter_config\.json"):
        load(folders["llama"], tmp_path / "none")
    pickled = shutil.copytree(adapter, tmp_path / "pickled")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"pickled has no adapter_model\.safetensors"):
        load(folders["llama"], pickled)
    prompts = shutil.copytree(adapter, tmp_path / "prompts")
    (prompts / "adapter_config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"adapter_config\.json holds \[\] in place of a JSON object"):
        load(folders["llama"], prompts)
    (prompts / "adapter_config.json").write_text('{"peft_type": "PROMPT_TUNING"}')
    with pytest.raises(ValueError, match="of the kind 'PROMPT_TUNING', which cannot be merged"):
        load(folders["llama"], prompts)


def test_without_the_extra_the_error_names_it(folders, adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"takes an extra: pip install 'evalbias\[peft\]'"):
        load(folders["llama"], adapter)
