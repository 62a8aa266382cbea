"""Load a model and its tokenizer into memory: placed, adapted, checked, and with a fingerprint."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import httpx
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig
from transformers.quantizers.auto import AutoQuantizationConfig
from transformers.utils import is_accelerate_available, logging

from evalbias.lm import files
from evalbias.lm.files import SUFFIX, check_config, check_counts, check_depth, check_weights, readable, unpacked
from evalbias.lm.fingerprint import code_hash, model_fingerprint, passed
from evalbias.lm.render import template_of
from evalbias.lm.score import Head, decoder
from evalbias.values import read_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # files of an adapter
PROBE = [0, 1, 2, 1, 0, 2, 1, 2]  # token ids for trying a model; every vocabulary has them
ROUNDING, ROUNDING_16_BIT = 1e-3, 2e-2  # largest difference of logits due to rounding, as a share of the largest logit
NOWHERE = (
    "{!r} is neither a folder nor a model on Hugging Face's hub or in the local cache: check the name and the network. "
    "For a model behind a server give its address (--api-base)."
)


@dataclass(frozen=True)
class ModelSource:
    """Source of a model, and options for loading it: arguments of ``LocalLM``, checked when they are set."""

    model: str
    device: str = "auto"
    dtype: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    template_options: Mapping[str, Any] | None = None
    adapter: str | None = None
    device_map: str | Mapping[str, Any] | None = None
    quantization: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.device_map is not None and self.device != "auto":
            raise ValueError(
                f"device={self.device!r} and device_map={self.device_map!r} exclude each other: leave one out."
            )
        for name in ("device_map", "quantization"):
            if self.adapter is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} cannot be combined with an adapter: merge it into the model first."
                )
        _ = self.target, self.weight_type

    @property
    def target(self) -> torch.device:
        """Device of a model that fits on a single device."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            target = torch.device(self.device)
        except RuntimeError as error:
            raise ValueError(f"device={self.device!r} is unknown: use 'auto', 'cpu', 'cuda' or 'cuda:0'.") from error
        if target.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(
                f"device={self.device!r} cannot be used, because there is no CUDA device: use 'cpu' or 'auto'."
            )
        return target

    @property
    def weight_type(self) -> torch.dtype | str:
        """Data type of the weights; ``"auto"`` keeps their own."""
        if self.dtype == "auto":
            return "auto"
        value = getattr(torch, self.dtype, None)
        if not isinstance(value, torch.dtype) or not value.is_floating_point:
            raise ValueError(f"dtype={self.dtype!r} is unknown: use 'auto', 'float32', 'bfloat16' or 'float16'.")
        return value

    @property
    def remote(self) -> dict[str, Any]:
        """Options with which transformers reads any file of the model."""
        return {"revision": self.revision, "trust_remote_code": self.trust_remote_code}

    def placement(self) -> dict[str, Any]:
        """Return the options of ``from_pretrained`` that place weights; empty if they are moved afterwards.

        The package ``accelerate`` reads weights straight into the memory of one or several GPUs. Spreading over several
        and quantizing were tried on a CPU only, as far as transformers' own loading allows that.
        """
        if self.adapter is not None:
            return {}  # an adapter is merged on the CPU, before weights are moved
        plain = self.device_map is None and self.quantization is None
        if plain and (self.target.type == "cpu" or not is_accelerate_available()):
            return {}
        if not is_accelerate_available():
            raise ImportError("device_map and quantization take an extra: pip install 'evalbias[gpu]'.")
        options: dict[str, Any] = {"device_map": {"": self.target} if self.device_map is None else self.device_map}
        if self.quantization is not None:
            options["quantization_config"] = AutoQuantizationConfig.from_dict(dict(self.quantization))
        return options


@dataclass(frozen=True)
class Loaded:
    """A model in memory, in evaluation mode on its device, with its fast tokenizer."""

    source: ModelSource
    model: Any
    tokenizer: Any
    fingerprint: str  # 12 hexadecimal digits of a hash of weights, configuration, tokenizer and dtype
    context_length: int  # in tokens
    facts: tuple[str, ...]  # facts that the trials at loading depend on
    passed: bool  # True if it passed these trials before


def load_model(source: ModelSource) -> Loaded:
    """Load a model from a folder, a GGUF file or by its Hugging Face name; raises the errors of ``LocalLM``."""
    name = source.model
    # 1. Checks that do not need the weights.
    if source.adapter is not None:
        check_adapter(source.adapter)
    placed = source.placement()
    folder = _folder(name, source.revision)
    config = _config(folder, source.remote)
    check_config(config, name)
    tokenizer = load_tokenizer(name, **source.remote)
    template = template_of(tokenizer, source.template_options)
    text = config.get_text_config()  # that of a multimodal model's text part; else the configuration itself
    check_depth(getattr(text, "num_hidden_layers", None), _tensors(Path(folder), name), name)
    # 2. The weights. No attention of the config.json's choice: it may name code to download and run. SDPA knows no caps
    #    of scores, and not every version of transformers turns it off for a model with them.
    attention = "eager" if getattr(text, "attn_logit_softcapping", None) else None
    options = {**placed, "attn_implementation": attention, "output_loading_info": True}
    if name.endswith(SUFFIX):
        weights, loading = files.load_gguf(Path(name), config, source.weight_type, **options)
    else:
        with _readable_weights(name):
            weights, loading = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=source.weight_type, **source.remote, **options
            )
    check_weights(loading["missing_keys"], name)
    check_vocabulary(tokenizer, weights, name)
    if source.adapter is not None:
        weights = merged(weights, source.adapter, name)
    weights = weights.eval() if placed else weights.eval().to(source.target)
    # 3. What identifies the model, and whether it can be measured.
    details = [getattr(config, "_commit_hash", None), weights.dtype, template and template.key]
    if source.adapter is not None:
        details.append(model_fingerprint(source.adapter, []))
    if source.quantization is not None:
        details.append(json.dumps(source.quantization, sort_keys=True))
    fingerprint = model_fingerprint(name, details)
    # Facts besides the model that decide the trials: devices, versions, and this code.
    gpu = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    place = [weights.device, getattr(weights, "hf_device_map", None), gpu, torch.backends.cpu.get_cpu_capability()]
    code = f"torch {version('torch')}, transformers {version('transformers')}, {code_hash(Path(__file__).parent)}"
    facts = (fingerprint, str(place), code)
    if not (before := not source.trust_remote_code and passed(facts)):  # the facts do not cover a model's own code
        check_model(weights, name)
    limits = (getattr(text, "max_position_embeddings", None), getattr(text, "n_positions", None))
    context = min((int(n) for n in limits if n), default=tokenizer.model_max_length)
    if context < 2:
        raise ValueError(f"{name} has a context of {context} tokens, which holds no text: fetch its config.json again.")
    return Loaded(source, weights, tokenizer, fingerprint, context, facts, before)


def load_tokenizer(model: str, **options: Any) -> Any:
    """Load the fast tokenizer of a folder, a GGUF file or a Hugging Face name; it neither truncates nor pads."""
    source = _folder(model, options.get("revision"))
    remedy = "fetch its tokenizer.json again if it is damaged or missing"
    with readable(f"The tokenizer of {model} cannot be read", remedy):
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
    if not tokenizer.is_fast:
        raise ValueError(f"The tokenizer of {model} returns no character offsets: add a tokenizer.json to its folder.")
    tokenizer.backend_tokenizer.no_truncation()  # tokenizer.json may hold settings of the training
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _config(model: str, options: dict[str, Any]) -> Any:
    if Path(model).is_dir() and not (Path(model) / "config.json").exists():
        raise FileNotFoundError(f"{model} has no config.json: give the folder that save_pretrained wrote.")
    problem = f"The config.json of {model} cannot be read"
    remedy = "fetch it again; a model with code of its own takes trust_remote_code=True, which runs that code"
    try:
        with readable(problem, remedy):
            settings, _ = PreTrainedConfig.get_config_dict(model, **options)
        check_counts(settings, model)
        with readable(problem, remedy):
            return AutoConfig.from_pretrained(model, **options)
    except OSError as error:
        if Path(model).is_dir():
            raise
        raise FileNotFoundError(NOWHERE.format(model)) from error


def _readable_weights(model: str) -> AbstractContextManager[None]:
    return readable(f"The weights of {model} cannot be read", "fetch them again, with the config.json of this model")


def _tensors(folder: Path, model: str) -> set[str]:
    """Return the names of the tensors in a folder's safetensors files; empty for a name on the hub."""
    names: set[str] = set()
    with _readable_weights(model):
        for file in folder.glob("*.safetensors"):
            if file.is_file():
                with safe_open(file, framework="pt") as stored:
                    names.update(stored.keys())
    return names


def _folder(model: str, revision: str | None) -> str:
    logging.disable_progress_bar()  # transformers' bars would mix with ours
    if model.endswith(SUFFIX):
        return unpacked(model)
    path = Path(model)
    looks_local = path.is_absolute() or model.startswith((".", "~")) or path.exists()
    if looks_local and not path.exists():
        raise FileNotFoundError(f"{model} does not exist: give a folder with a model or a Hugging Face name.")
    if path.is_file():
        raise ValueError(f"{model} is a file, and no .gguf file: give the folder of a model.")
    if path.is_dir():
        files.check_json_files(path)
    if not looks_local:
        _check_hub(model, revision)
    return model


def _check_hub(model: str, revision: str | None) -> None:
    """Refuse a name that is not in the cache if the hub cannot be reached: transformers would retry for a minute."""
    try:
        cached = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=model, repo_type="model") / "snapshots"
        if not cached.exists():
            get_hf_file_metadata(hf_hub_url(model, "config.json", revision=revision))
    except HfHubHTTPError:
        pass  # the hub answers: transformers says what is missing or forbidden
    except (httpx.TransportError, OfflineModeIsEnabled, HFValidationError) as error:
        raise FileNotFoundError(NOWHERE.format(model)) from error


# LoRA adapters: small changes of a model's weights, merged into them when the model is loaded.


def check_adapter(adapter: str) -> None:
    """Check that a folder holds a LoRA adapter in peft's format."""
    folder = Path(adapter)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{adapter} has no {name}: give the folder of an adapter that peft saved.")
    settings = read_json(folder / CONFIG, "fetch it again")
    kind = settings.get("peft_type")
    if settings.get("layer_replication"):
        raise ValueError(f"{adapter} repeats layers of its model (layer_replication), which is not supported.")
    if kind != "LORA":
        raise ValueError(
            f"{adapter} is an adapter of the kind {kind!r:.80}, which cannot be merged: give a LoRA adapter."
        )


def merged(model: Any, adapter: str, name: str) -> Any:
    """Merge a LoRA adapter, all of whose weights must fit, into a model's weights, in their dtype."""
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError as error:
        raise ImportError(f"The adapter {adapter} takes an extra: pip install 'evalbias[peft]'.") from error
    problem, remedy = f"The adapter {adapter} does not fit {name}", "give one of this model, or fetch it again"
    with readable(problem, remedy), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weights that do not fit are checked below
        # allocate only the sizes in the file, whatever its configuration says
        adapted = PeftModel.from_pretrained(model, adapter, torch_device="cpu", low_cpu_mem_usage=True)
    placed = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    with safe_open(Path(adapter) / WEIGHTS, framework="pt") as stored:
        differing = sorted(placed.symmetric_difference(stored.keys()))
    if differing:
        side = "lacks" if differing[0] in placed else "is made for a model with"
        raise ValueError(f"The adapter {adapter} does not fit {name}: it {side} {differing[0]}.")
    with readable(problem, remedy):  # NaN among its weights
        return adapted.merge_and_unload(safe_merge=True)


# Checks that a model can be measured.


def check_vocabulary(tokenizer: Any, model: Any, name: str) -> None:
    """Check that a model has an embedding for every text token; otherwise the tokenizer belongs to another model.

    Tokens that were added later do not count: some models have such a token for images, which they cannot read.
    """
    ids = [*tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values()]
    ids += [id for id in (tokenizer.bos_token_id, tokenizer.eos_token_id) if id is not None]
    size = model.get_input_embeddings().weight.shape[0]
    if max(ids, default=0) >= size:
        raise ValueError(
            f"The tokenizer of {name} has a token {max(ids)}, and the model knows {size}: fetch the tokenizer.json of "
            "this model."
        )


def check_model(model: Any, name: str) -> None:
    """Check on a few tokens that no logit depends on later tokens, and that ``Head`` returns the model's logits."""
    output = model.get_output_embeddings()
    if output is not None and any(weight.is_meta for weight in output.parameters()):
        raise ValueError(
            f"{name} is too large for its devices: its output layer was offloaded, which is not supported. Use more "
            "GPUs, a quantization, or a device_map that keeps the output layer on a device."
        )
    limit = ROUNDING if model.dtype.itemsize >= 4 else ROUNDING_16_BIT
    probe = torch.tensor([PROBE], device=model.device)
    other = torch.tensor([[*PROBE[:-1], 0]], device=model.device)
    with torch.inference_mode():
        whole = model(probe, use_cache=False).logits[0].float()  # (n, V)
        if not _alike(whole[:-1], model(other, use_cache=False).logits[0, :-1].float(), limit):
            raise ValueError(f"{name} attends to later tokens, so it is not a causal model: use one that is.")
        try:
            ours = Head(model)(decoder(model)(input_ids=probe, use_cache=False).last_hidden_state[0])
        except (AttributeError, TypeError, RuntimeError, IndexError) as error:
            raise ValueError(
                f"{name} returns no hidden states apart from its logits, which is not supported: use another model."
            ) from error
    if not _alike(whole, ours, limit):
        raise ValueError(
            f"{name}'s logits do not follow from its hidden states, which is not supported: use another model."
        )


def _alike(a: torch.Tensor, b: torch.Tensor, limit: float) -> bool:
    """Return whether two tensors are equal up to a share of the largest magnitude."""
    scale = float(a.nan_to_num(0, 0, 0).abs().max())
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=limit * scale, equal_nan=True)
