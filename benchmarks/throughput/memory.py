"""Peak memory of a method: on the GPU, in this process, or in a server's processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch


def reset_peak(method: Any, device: torch.device) -> None:
    """Reset the counters of peak memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    for pid in _processes(method):
        (Path("/proc") / str(pid) / "clear_refs").write_text("5")


def peak(method: Any, device: torch.device) -> int:
    """Return the peak since the last reset, in bytes: of the GPU, or the sum over the method's processes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    total = 0
    for pid in _processes(method):
        status = (Path("/proc") / str(pid) / "status").read_text()
        total += int(status.split("VmHWM:")[1].split()[0]) * 1024
    return total


def _processes(method: Any) -> list[int]:
    group = getattr(method, "group", None)
    if group is None:
        return [os.getpid()]
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and os.getpgid(int(p.name)) == group]
