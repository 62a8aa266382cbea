"""Copies of the host's arrays to a model's device that the host does not wait for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def sent(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return a device's tensor of an array, without waiting for the copy: a GPU reads it from pinned memory."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
