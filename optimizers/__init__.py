"""Teleprompters that compile a judge, and what learns from recorded scores; ``__init__.pyi`` lists them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
