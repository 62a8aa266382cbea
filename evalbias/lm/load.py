"""Models, tokenizers and adapters from folders and the hub, checked before they are used."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from httpx import TransportError
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.file_download import repo_folder_name
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig
from transformers.quantizers.auto import AutoQuantizationConfig
from transformers.utils import is_accelerate_available, logging

from evalbias.lm.checks import (
    check_config,
    check_counts,
    check_depth,
    check_model,
    check_vocabulary,
    check_weights,
    readable,
)
from evalbias.lm.files import check_json_files, is_gguf, unpacked
from evalbias.lm.fingerprint import model_fingerprint
from evalbias.lm.render import template_of
from evalbias.values import read_json

# LoRA adapters: small changes of a model's weights, merged into them when the model is loaded.


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def check_adapter(adapter: str) -> None:
    """Check that a folder holds a LoRA adapter in peft's format.

    Raises:
        FileNotFoundError: The folder does not exist, or lacks one of the adapter's two files.
        ValueError: The adapter is of another kind than LoRA, or its configuration is damaged.
    """
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
    """Return a model with a LoRA adapter merged into its weights, in their dtype.

    Args:
        model: Causal transformers model; its weights are changed.
        adapter: Folder of the adapter.
        name: Name of the model, for messages.

    Raises:
        ImportError: The extra ``peft`` is not installed.
        ValueError: The adapter does not fit the model: modules or shapes differ, or weights are missing or left over.
    """
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError as error:
        raise ImportError(f"The adapter {adapter} takes an extra: pip install 'evalbias[peft]'.") from error
    problem, remedy = f"The adapter {adapter} does not fit {name}", "give one of this model, or fetch it again"
    with readable(problem, remedy), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weights that cannot be placed are checked below
        # memory only for weights of the file's own sizes, whatever its configuration says
        adapted = PeftModel.from_pretrained(model, adapter, torch_device="cpu", low_cpu_mem_usage=True)
    placed = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    with safe_open(Path(adapter) / WEIGHTS, framework="pt") as stored:
        differing = sorted(placed.symmetric_difference(stored.keys()))
    if differing:
        side = "lacks" if differing[0] in placed else "is made for a model with"
        raise ValueError(f"The adapter {adapter} does not fit {name}: it {side} {differing[0]}.")
    with readable(problem, remedy):  # NaN among its weights
        return adapted.merge_and_unload(safe_merge=True)


# Where a model's weights go as they are loaded, and whether they are quantized on the way.
#
# Weights that are bound for a GPU are read straight into its memory, and those of a large model into the memory of
# several GPUs, by the package ``accelerate``. Spreading over several GPUs and quantizing were tried on a CPU only, as
# far as transformers' own loading allows that.


def placement(
    target: torch.device,
    *,
    device: str,
    device_map: str | Mapping[str, Any] | None,
    adapter: str | None,
    quantization: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the options of ``from_pretrained`` that place weights; none if they are to be moved afterwards.

    Args:
        target: Device of a model that fits on one.
        device: Argument of ``LocalLM``, from which ``target`` follows.
        device_map: Argument of ``LocalLM``.
        adapter: Argument of ``LocalLM``; it is merged on the CPU, before weights are moved.
        quantization: Argument of ``LocalLM``.

    Raises:
        ImportError: There is a device map or a quantization, and ``accelerate`` is not installed.
        ValueError: Options exclude each other, or the quantization is unknown.
    """
    if device_map is not None and device != "auto":
        raise ValueError(f"device={device!r} and device_map={device_map!r} exclude each other: leave one out.")
    if adapter is not None:
        for name, value in (("device_map", device_map), ("quantization", quantization)):
            if value is not None:
                raise ValueError(f"{name}={value!r} cannot be combined with an adapter: merge it into the model first.")
        return {}
    if device_map is None and quantization is None and (target.type == "cpu" or not is_accelerate_available()):
        return {}
    if not is_accelerate_available():
        raise ImportError("device_map and quantization take an extra: pip install 'evalbias[gpu]'.")
    options: dict[str, Any] = {"device_map": {"": target} if device_map is None else device_map}
    if quantization is not None:
        options["quantization_config"] = AutoQuantizationConfig.from_dict(dict(quantization))
    return options


# Loading of a model and its tokenizer, with a fingerprint that identifies both.


@dataclass(frozen=True)
class Loaded:
    """A model in memory.

    Attributes:
        model: The model in evaluation mode, on its device.
        tokenizer: Fast tokenizer of the model.
        arguments: Arguments of ``load``.
        fingerprint: 12 hexadecimal digits of a hash of weights, configuration, tokenizer and dtype.
        context_length: Context length in tokens.
    """

    model: Any
    tokenizer: Any
    arguments: dict[str, Any]
    fingerprint: str
    context_length: int


def load(
    model: str,
    *,
    device: str,
    dtype: str,
    revision: str | None,
    trust_remote_code: bool,
    template_options: Mapping[str, Any] | None = None,
    adapter: str | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    quantization: Mapping[str, Any] | None = None,
) -> Loaded:
    """Load a model from a folder, a GGUF file or by its Hugging Face name; the arguments are those of ``LocalLM``.

    Raises:
        FileNotFoundError: A folder does not exist or contains no model or no adapter.
        ImportError: The model is a GGUF file and the extra ``gguf`` is not installed, or an adapter is given and the
            extra ``peft`` is not installed, or a device map is given and the extra ``gpu`` is not installed, or the
            package of a quantization method is not installed.
        ValueError: The device or dtype is unknown, the device is missing, a device map is given beside a device or an
            adapter, the quantization is unknown or given beside an adapter, the tokenizer returns no offsets, the chat
            template lacks an option, the model is not a causal language model, a file is damaged, weights are missing,
            or the adapter does not fit.
    """
    if adapter is not None:
        check_adapter(adapter)
    target = _device(device)
    placed = placement(target, device=device, device_map=device_map, adapter=adapter, quantization=quantization)
    options = {"revision": revision, "trust_remote_code": trust_remote_code}
    source = _source(model, revision)
    config = _config(source, options)
    check_config(config, model)
    tokenizer = load_tokenizer(model, **options)
    template = template_of(tokenizer, template_options)
    hide_progress()
    text = config.get_text_config()  # of a multimodal model; else the configuration itself
    check_depth(getattr(text, "num_hidden_layers", None), _tensors(Path(source), model), model)
    kind = _dtype(dtype)
    with _readable_weights(model):  # no attention of the config.json's choice: it may name code to download and run
        weights, loading = AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype=kind, attn_implementation=None, output_loading_info=True, **options, **placed
        )
    check_weights(loading["missing_keys"], model)
    check_vocabulary(tokenizer, weights, model)
    if adapter is not None:
        weights = merged(weights, adapter, model)
    weights = weights.eval() if placed else weights.eval().to(target)
    commit = getattr(config, "_commit_hash", None)
    details = [commit, weights.dtype, template and template.key]
    if adapter is not None:
        details.append(model_fingerprint(adapter, []))
    if quantization is not None:
        details.append(json.dumps(quantization, sort_keys=True))
    fingerprint = model_fingerprint(model, details)
    check_model(weights, model)
    arguments = {
        **{"model": model, "device": device, "dtype": dtype, **options},
        **{"template_options": template_options, "adapter": adapter},
        **{"device_map": device_map, "quantization": quantization},
    }
    limits = (getattr(text, "max_position_embeddings", None), getattr(text, "n_positions", None))
    context = min((int(n) for n in limits if n), default=tokenizer.model_max_length)
    if context < 2:
        raise ValueError(
            f"{model} has a context of {context} tokens, which holds no text: fetch its config.json again."
        )
    return Loaded(weights, tokenizer, arguments, fingerprint, context)


def load_tokenizer(model: str, **options: Any) -> Any:
    """Load the fast tokenizer of a folder, a GGUF file or a Hugging Face name; it neither truncates nor pads.

    Raises:
        OSError: The tokenizer does not exist.
        ValueError: The tokenizer returns no character offsets, or a file of it is damaged.
    """
    source = _source(model, options.get("revision"))
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
        raise _unknown(model) from error


def _readable_weights(model: str) -> AbstractContextManager[None]:
    return readable(f"The weights of {model} cannot be read", "fetch them again, with the config.json of this model")


def _tensors(folder: Path, model: str) -> set[str]:
    """Return the names of the tensors in the safetensors files of a folder; none of a name on the hub."""
    names: set[str] = set()
    with _readable_weights(model):
        for file in folder.glob("*.safetensors"):
            if file.is_file():
                with safe_open(file, framework="pt") as stored:
                    names.update(stored.keys())
    return names


def _unknown(model: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"{model!r} is neither a folder nor a model on Hugging Face's hub or in the local cache: check the name and "
        "the network. For a model behind a server give its address (--api-base)."
    )


def hide_progress() -> None:
    """Hide transformers' progress bar, which would mix with ours."""
    logging.disable_progress_bar()


def _source(model: str, revision: str | None) -> str:
    """Return the folder or Hugging Face name from which transformers loads a model."""
    if is_gguf(model):
        hide_progress()
        return unpacked(model)
    path = Path(model)
    looks_local = path.is_absolute() or model.startswith((".", "~")) or path.exists()
    if looks_local and not path.exists():
        raise FileNotFoundError(f"{model} does not exist: give a folder with a model or a Hugging Face name.")
    if path.is_file():
        raise ValueError(f"{model} is a file, and no .gguf file: give the folder of a model.")
    if path.is_dir():
        check_json_files(path)
    if not looks_local:
        _check_hub(model, revision)
    return model


def _check_hub(model: str, revision: str | None) -> None:
    """Refuse a name that is not in the cache if the hub cannot be reached: transformers would retry for a minute.

    Raises:
        FileNotFoundError: The hub cannot be reached, or the text is no name.
    """
    try:
        cached = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=model, repo_type="model") / "snapshots"
        if not cached.exists():
            get_hf_file_metadata(hf_hub_url(model, "config.json", revision=revision))
    except HfHubHTTPError:
        pass  # the hub answers: transformers says what is missing, or who may read it
    except (TransportError, OfflineModeIsEnabled, HFValidationError) as error:
        raise _unknown(model) from error


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is unknown: use 'auto', 'cpu', 'cuda' or 'cuda:0'.") from error
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r} cannot be used, because there is no CUDA device: use 'cpu' or 'auto'.")
    return target


def _dtype(dtype: str) -> Any:
    if dtype == "auto":
        return "auto"
    value = getattr(torch, dtype, None)
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise ValueError(f"dtype={dtype!r} is unknown: use 'auto', 'float32', 'bfloat16' or 'float16'.")
    return value
