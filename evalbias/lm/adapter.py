"""LoRA adapters: small changes of a model's weights, merged into them when the model is loaded."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from safetensors import safe_open

from evalbias.lm.checks import readable
from evalbias.runs.values import read_json

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
