"""Loading a model and its tokenizer, and telling exactly which model it is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

BLOCKS, BLOCK = 1024, 4096
"""Blocks of a file that are hashed, evenly spread, and their bytes: whole weights would take longer than judging."""


@dataclass(frozen=True)
class Loaded:
    """A model in memory.

    Attributes:
        model: In evaluation mode, on its device.
        tokenizer: A fast tokenizer.
        arguments: What ``load`` was called with.
        fingerprint: 12 hexadecimal digits over weights, configuration, tokenizer and dtype.
        context_length: In tokens.
    """

    model: Any
    tokenizer: Any
    arguments: dict[str, Any]
    fingerprint: str
    context_length: int


def load(model: str, *, device: str, dtype: str, revision: str | None, trust_remote_code: bool) -> Loaded:
    """Load a folder or a Hugging Face name.

    Raises:
        FileNotFoundError: A path that does not exist, or a folder without a model.
        ValueError: An unknown device or dtype, a device that is not there, or a tokenizer without offsets.
    """
    _check_folder(model)
    place = _device(device)
    options = {"revision": revision, "trust_remote_code": trust_remote_code}
    config = _config(model, options)
    tokenizer = load_tokenizer(model, **options)
    quiet()
    weights = AutoModelForCausalLM.from_pretrained(model, config=config, dtype=_dtype(dtype), **options)
    weights = weights.eval().to(place)
    _check_head(weights, model)
    arguments = {"model": model, "device": device, "dtype": dtype, **options}
    limits = (getattr(config, "max_position_embeddings", None), getattr(config, "n_positions", None))
    context = min((int(n) for n in limits if n), default=tokenizer.model_max_length)
    told = f"{getattr(config, '_commit_hash', None)} {weights.dtype} {tokenizer.chat_template}"
    return Loaded(weights, tokenizer, arguments, _fingerprint(model, told), context)


def load_tokenizer(model: str, **options: Any) -> Any:
    """The fast tokenizer of a folder or of a Hugging Face name.

    Raises:
        OSError: There is none.
        ValueError: It tells no character offsets.
    """
    tokenizer = AutoTokenizer.from_pretrained(model, **options)
    if not tokenizer.is_fast:
        raise ValueError(f"The tokenizer of {model} tells no character offsets: it needs a tokenizer.json.")
    return tokenizer


def _config(model: str, options: dict[str, Any]) -> Any:
    try:
        return AutoConfig.from_pretrained(model, **options)
    except OSError as error:
        raise FileNotFoundError(
            f"{model!r} is no folder here, and no model that Hugging Face's hub or the local cache gives: check the "
            "name and the network; for a model behind a server give its address (--api-base)."
        ) from error


def quiet() -> None:
    """Loading a model is not the user's progress: transformers' own bar stays away."""
    logging.disable_progress_bar()


def _check_folder(model: str) -> None:
    path = Path(model)
    looks_local = path.is_absolute() or model.startswith((".", "~")) or path.exists()
    if not looks_local:
        return
    if not path.exists():
        raise FileNotFoundError(f"{model} does not exist: name a folder with a model, or a Hugging Face model.")
    if not (path / "config.json").exists():
        raise FileNotFoundError(f"{model} has no config.json: name the folder that save_pretrained wrote.")


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is unknown: use 'auto', 'cpu', 'cuda' or 'cuda:0'.") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}: this machine has no CUDA device, use 'cpu' or 'auto'.")
    return place


def _dtype(dtype: str) -> Any:
    if dtype == "auto":
        return "auto"
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(f"dtype={dtype!r} is unknown: use 'auto', 'float32', 'bfloat16' or 'float16'.")
    return found


def _check_head(model: Any, name: str) -> None:
    """Logits are computed from the hidden states at the places read; a model that scales them further is refused."""
    probe = torch.tensor([[0, 1, 2, 1]], device=model.device)
    with torch.inference_mode():
        whole = model(probe).logits
        try:
            ours = model.get_output_embeddings()(model.base_model(input_ids=probe).last_hidden_state)
        except (AttributeError, TypeError, RuntimeError) as error:
            raise ValueError(f"{name} gives no hidden states apart from its logits: not supported yet.") from error
    if ours.shape != whole.shape or not torch.allclose(
        whole.float(), ours.float(), atol=1e-3, rtol=1e-3, equal_nan=True
    ):
        raise ValueError(
            f"{name} changes its logits after the output layer (soft-capping or scaling): not supported yet."
        )


def _fingerprint(model: str, told: str) -> str:
    digest = hashlib.sha256(told.encode())
    folder = Path(model)
    if not folder.is_dir():
        digest.update(model.encode())  # a hub name: its commit is in ``told``
        return digest.hexdigest()[:12]
    for file in sorted(folder.iterdir()):
        if file.suffix in (".json", ".safetensors", ".bin", ".jinja", ".model", ".txt"):
            size = file.stat().st_size
            digest.update(f"{file.name} {size}".encode())
            with file.open("rb") as content:
                for start in range(0, size, max(BLOCK, size // BLOCKS)):
                    content.seek(start)
                    digest.update(content.read(BLOCK))
    return digest.hexdigest()[:12]
