"""evalbias: measure the biases of LLM judges at equal quality, and reduce them where held-out data show that it helps.

The public names are listed in ``__init__.pyi`` and loaded on first use, so that ``import evalbias`` is fast.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("evalbias")
