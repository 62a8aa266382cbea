"""The judge that ships with the package: a small Llama trained on the synthetic world, loaded like any other folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalbias.lm.local import LocalLM

FOLDER = Path(__file__).parent.parent / "embedded"


def embedded_judge_lm(*, device: str = "auto") -> LocalLM:
    """Load the embedded model in float32; it knows the synthetic world only and cannot judge real texts."""
    from evalbias.lm.local import LocalLM

    return LocalLM(str(FOLDER), device=device, dtype="float32")
