"""Models in saved programs."""

from __future__ import annotations

import copy
import importlib
import inspect
import threading
import weakref
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import dspy

from evalbias.lm.dspy_seam import LM_CLASS
from evalbias.values import ANSWER_SETTINGS, NESTED, digest, get_logger, model_settings, plain_address

# Classes that any file may name: making such a model runs no code from the file.
CLASSES = ("evalbias.lm.local.LocalLM", "evalbias.lm.server.ServerLM")
# Arguments that only a trusted file decides (where requests and keys go, whether a model runs its own code), and their
# values otherwise.
UNTRUSTED: dict[str, Any] = {"base_url": None, "trust_remote_code": False}
ADDRESSES = ("api_base", "base_url")  # where requests go: saved without login and query, read from a trusted file only
OF_TRAINING = ("launch_kwargs", "train_kwargs", "engine", "async_engine")  # DSPy's own: they do not affect answers
# Settings by which a file could make requests expensive, and their largest values.
LARGEST = {"n": 100, "num_retries": 100, "max_tokens": 1_000_000, "max_completion_tokens": 1_000_000}
PENDING = "_pending"  # attribute that holds the state of a model that is not loaded yet
_LOADING = threading.RLock()
logger = get_logger(__name__)


class SavedLM(dspy.LM):  # type: ignore[misc]
    """Base of our models: saved and pickled as their arguments, and loaded again at the first use.

    So a program can be loaded, printed and used with another model on a machine that lacks the saved model.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _IN_MEMORY.add(self)

    def saved_arguments(self) -> dict[str, Any]:
        """Return this class's own arguments, with ``model`` if it is an argument, as JSON data without keys."""
        raise NotImplementedError

    def dump_state(self) -> dict[str, Any]:
        """Return the arguments of the same model, without keys, which a saved program keeps."""
        if PENDING in self.__dict__:
            return dict(self.__dict__[PENDING])
        state: dict[str, Any] = dspy.BaseLM.dump_state(self)
        del state["model"]  # DSPy's name of the model, not our argument
        return {**state, **self.saved_arguments()}

    @classmethod
    def load_state(cls, state: Mapping[str, Any], **options: Any) -> SavedLM:
        """Return the model with this ``dump_state``, which is loaded at its first use."""
        lm: SavedLM = cls.__new__(cls)
        lm.__dict__[PENDING] = {LM_CLASS: f"{cls.__module__}.{cls.__qualname__}", **state}
        return lm

    def __getattr__(self, name: str) -> Any:
        if PENDING not in self.__dict__ or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with _LOADING:
            if PENDING in self.__dict__:
                assigned = {key: value for key, value in self.__dict__.items() if key != PENDING}
                self.__dict__ = {**self._load(self.__dict__[PENDING]).__dict__, **assigned}
                _IN_MEMORY.add(self)
        return getattr(self, name)

    def _load(self, state: Mapping[str, Any]) -> SavedLM:
        if isinstance(self, _Elsewhere) or ("base_url" in _arguments(state) and state.get("base_url") is None):
            raise ValueError(
                f"The saved model {state.get('model')!r} has no address: a server's address is read from trusted files "
                "only. Load the program with allow_unsafe_lm_state=True, or give it a model with set_lm(...)."
            )
        for other in list(_IN_MEMORY):  # a model with the same weights or connection
            alike = type(other) is type(self) and PENDING not in other.__dict__
            if alike and digest(other.dump_state(), 64) == digest(state, 64):
                return copy.deepcopy(other)
        return type(self)(**{key: value for key, value in state.items() if key != LM_CLASS})

    def __deepcopy__(self, memo: dict[int, Any]) -> SavedLM:
        """Return a model with its own settings and the same weights or connection."""
        copied: SavedLM = self.load_state(self.__dict__[PENDING]) if PENDING in self.__dict__ else self.copy()
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).load_state, (self.dump_state(),)


class _Elsewhere(SavedLM):
    """A DSPy model whose address is not trusted; without the address, texts and key would go to the provider."""


_IN_MEMORY: weakref.WeakSet[SavedLM] = weakref.WeakSet()


def written_lm(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's state for a file: without secrets, and addresses without login and query."""
    own = _arguments(state)
    kept = {name: plain_address(state[name]) for name in ADDRESSES if isinstance(state.get(name), str)}
    own |= {LM_CLASS, "engine", "async_engine"}
    arguments = {name: value for name, value in state.items() if name in own}
    left_out = sorted(state.keys() - model_settings(state).keys() - arguments.keys() - kept.keys() - set(OF_TRAINING))
    if left_out:
        logger.warning("The settings %s of %s are not saved: they may hold a secret.", left_out, state.get("model"))
    return {**model_settings(state), **arguments, **kept}


def check_lm(state: Any, *, trusted: bool) -> None:
    """Refuse the state of a model that holds more than ``written_lm`` returns, unless the file is trusted."""
    if not isinstance(state, Mapping):
        raise ValueError(f"'lm' is {state!r:.80}: give an object with the model's settings, or null.")
    if not trusted:
        _check_settings(state, "lm", allowed={LM_CLASS, *ADDRESSES, *OF_TRAINING, *_arguments(state)})


def _check_settings(settings: Mapping[str, Any], path: str, *, allowed: AbstractSet[str] = frozenset()) -> None:
    """Refuse settings that ``model_settings`` leaves out, at every depth, and those that make requests expensive."""
    for name, value in settings.items():
        if name not in ANSWER_SETTINGS and name not in allowed:
            raise ValueError(
                f"{path!r} holds {name!r:.80}, which no saved program does: remove it from the file, or load the file "
                "with allow_unsafe_lm_state=True if you trust it."
            )
        most = LARGEST.get(name)
        if most is not None and value is not None and not (isinstance(value, int | float) and value <= most):
            raise ValueError(f"{name!r} of {path!r} is {value!r:.80}: give a number of {most} at most, or null.")
        if name in NESTED and isinstance(value, Mapping):
            _check_settings(value, f"{path}.{name}")


def _arguments(state: Mapping[str, Any]) -> frozenset[str]:
    """Return the arguments of our own models, which hold no secret; empty for DSPy's models."""
    if state.get(LM_CLASS) not in CLASSES:
        return frozenset()
    return frozenset(inspect.signature(_class(state).__init__).parameters) - {"api_key", "kwargs"}


def _class(state: Mapping[str, Any]) -> type[SavedLM]:
    module, _, name = state[LM_CLASS].rpartition(".")
    cls: type[SavedLM] = getattr(importlib.import_module(module), name)
    return cls


def restored_lm(state: Mapping[str, Any] | None, *, trusted: bool) -> SavedLM | None:
    """Return the model that a file names, not loaded yet, ``UNTRUSTED`` only if trusted; None if DSPy loads it."""
    if state is None:
        return None
    if state.get(LM_CLASS) not in CLASSES:
        dropped = not trusted and any(state.get(name) for name in ADDRESSES)
        return _Elsewhere.load_state(state) if dropped else None
    cls = _class(state)
    kept = {} if trusted else {key: value for key, value in UNTRUSTED.items() if key in state}
    return cls.load_state({**state, **kept})
