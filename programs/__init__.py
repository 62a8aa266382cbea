"""Judges, rankers, juries and refine loops as DSPy programs, and metrics; the names are listed in ``__init__.pyi``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
