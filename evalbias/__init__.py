"""evalbias: compile LLM judges on DSPy that agree better with people and are less biased, and audit any judge.

The public names are listed in ``__init__.pyi`` and loaded on first use, so that ``import evalbias`` is fast.
"""

import os
from importlib.metadata import version
from typing import Any

import lazy_loader

# Torch's threads spin while they wait: beside a busy process, two minutes for what takes 4 s if they sleep
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "tokenizers", "huggingface_hub", "safetensors"):
            raise
        raise ImportError(
            f"{name} loads models or tokenizers, which takes an extra: pip install 'evalbias[local]'."
        ) from error


__version__ = version("evalbias")
