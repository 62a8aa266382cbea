"""Where weights go: straight to a GPU, over several devices, or through a quantizer; no GPU is needed."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from evalbias import LocalLM
from evalbias.lm import load as placing
from evalbias.lm.load import placement

FREE = {"device": "auto", "device_map": None, "adapter": None, "quantization": None}
CUDA, CPU = torch.device("cuda:1"), torch.device("cpu")
EIGHT_BITS = {"quant_method": "bitsandbytes", "load_in_8bit": True}


def test_weights_go_straight_to_a_gpu():
    assert placement(CUDA, **FREE) == {"device_map": {"": CUDA}}
    assert placement(CPU, **FREE) == {}
    assert placement(CUDA, **{**FREE, "device_map": "auto"}) == {"device_map": "auto"}


def test_an_adapter_is_merged_before_weights_are_moved():
    assert placement(CUDA, **{**FREE, "adapter": "folder"}) == {}
    for name, value in (("device_map", "auto"), ("quantization", EIGHT_BITS)):
        with pytest.raises(ValueError, match=f"{name}=.* cannot be combined with an adapter"):
            placement(CUDA, **{**FREE, "adapter": "folder", name: value})


def test_options_that_exclude_each_other():
    with pytest.raises(ValueError, match="device='cuda' and device_map='auto' exclude each other"):
        placement(CUDA, **{**FREE, "device": "cuda", "device_map": "auto"})


def test_without_accelerate_weights_are_moved_afterwards(monkeypatch):
    monkeypatch.setattr(placing, "is_accelerate_available", lambda: False)
    assert placement(CUDA, **FREE) == {}
    with pytest.raises(ImportError, match=r"pip install 'evalbias\[gpu\]'"):
        placement(CUDA, **{**FREE, "device_map": "auto"})


def test_a_quantizer_gets_its_settings(folders, monkeypatch):
    """Transformers' loading is replaced: its quantizers take packages and mostly a GPU."""
    real, given = AutoModelForCausalLM.from_pretrained, {}

    def load(source, *, device_map, quantization_config, **options):
        given.update(device_map=device_map, settings=quantization_config.to_dict())
        return real(source, **options)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)
    lm = LocalLM(folders["llama"], device="cpu", dtype="float32", quantization=EIGHT_BITS)
    assert given["device_map"] == {"": CPU}
    assert given["settings"]["load_in_8bit"] is True
    assert lm.saved_arguments()["quantization"] == EIGHT_BITS
    other = LocalLM(folders["llama"], device="cpu", dtype="float32", quantization={"quant_method": "fp8"})
    assert given["settings"]["quant_method"] == "fp8"
    assert lm.model != other.model  # DSPy's cache tells them apart


def test_an_unknown_quantization(folders):
    with pytest.raises(ValueError, match="Unknown quantization type, got secret"):
        LocalLM(folders["llama"], device="cpu", quantization={"quant_method": "secret"})


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
