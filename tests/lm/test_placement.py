"""Where weights go: straight to a GPU, over several devices, or through a quantizer; no GPU is needed."""

import numpy as np
import pytest
import torch
from models import load
from transformers import AutoModelForCausalLM

from evalbias import LocalLM
from evalbias.lm import load as placing
from evalbias.lm.load import ModelSource

CUDA, CPU = torch.device("cuda:1"), torch.device("cpu")
EIGHT_BITS = {"quant_method": "bitsandbytes", "load_in_8bit": True}


@pytest.fixture
def gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.usefixtures("gpus")
def test_weights_go_straight_to_a_gpu(monkeypatch):
    assert ModelSource("m", "cuda:1").placement() == {"device_map": {"": CUDA}}
    assert ModelSource("m", "cpu").placement() == {}
    assert ModelSource("m", device_map="auto").placement() == {"device_map": "auto"}
    assert ModelSource("m", "cuda:1", adapter="folder").placement() == {}  # merged before weights are moved
    monkeypatch.setattr(placing, "is_accelerate_available", lambda: False)
    assert ModelSource("m", "cuda:1").placement() == {}  # moved afterwards
    with pytest.raises(ImportError, match=r"pip install 'evalbias\[gpu\]'"):
        ModelSource("m", device_map="auto").placement()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"adapter": "folder", "device_map": "auto"}, "device_map=.* cannot be combined with an adapter"),
        ({"adapter": "folder", "quantization": EIGHT_BITS}, "quantization=.* cannot be combined with an adapter"),
        ({"device": "cuda", "device_map": "auto"}, "device='cuda' and device_map='auto' exclude each other"),
        ({"device": "abacus"}, "device='abacus' is unknown"),
        ({"dtype": "int8"}, "dtype='int8' is unknown"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(options, match):
    with pytest.raises(ValueError, match=match):
        ModelSource("m", **options)


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
