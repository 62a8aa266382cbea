"""Where a model's weights go as they are loaded, and whether they are quantized on the way.

Weights that are bound for a GPU are read straight into its memory, and those of a large model into the memory of
several GPUs, by the package ``accelerate``. Spreading over several GPUs and quantizing were tried on a CPU only, as far
as transformers' own loading allows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.quantizers.auto import AutoQuantizationConfig
from transformers.utils import is_accelerate_available


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
