"""evalbias: measure the biases of LLM judges at equal quality, and reduce them where held-out data show that it helps.

The public names are listed in ``__init__.pyi`` and loaded on first use, so that ``import evalbias`` is fast.
"""

from importlib.metadata import version
from typing import Any

import lazy_loader

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
