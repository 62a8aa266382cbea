"""Models that a file stands for: those that saved programs name, and recordings of answers."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import os
import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15

from evalbias.lm.dspy_seam import LM_CLASS, Engine, request_to_dict, response_from_dict, response_to_dict
from evalbias.values import ANSWER_SETTINGS, NESTED, digest, get_logger, json_object, model_settings, plain_address

# Classes that any file may name: making one of them runs no code from the file.
CLASSES = ("evalbias.lm.local.LocalLM", "evalbias.lm.server.ServerLM", "evalbias.lm.saved.RecordedLM")
# Arguments that only a trusted file decides (where requests and keys go, whether a model runs its own code), and their
# values otherwise.
UNTRUSTED: dict[str, Any] = {"base_url": None, "trust_remote_code": False}
ADDRESSES = ("api_base", "base_url")  # where requests go: saved without login and query, read from a trusted file only
OF_TRAINING = ("launch_kwargs", "train_kwargs", "engine", "async_engine")  # DSPy's own: they shape no answer
# Settings by which a file could make requests expensive, and their largest values.
LARGEST = {"n": 100, "num_retries": 100, "max_tokens": 1_000_000, "max_completion_tokens": 1_000_000}
PENDING = "_pending"  # attribute that holds the state of a model that is not loaded yet
_LOADING = threading.RLock()
logger = get_logger(__name__)


class SavedLM(dspy.LM):  # type: ignore[misc]
    """Base of our models: saved and pickled as the arguments that make them, loaded again at the first use.

    So a program can be loaded, shown and given another model on a machine that lacks the saved one.
    """

    shared_when_loaded = True  # a loaded model takes weights or connection of one in memory that has the same state

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _IN_MEMORY.add(self)

    def saved_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this class has, and ``model`` if it takes one, as JSON data without keys."""
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
        """Return the model whose ``dump_state`` is given; it is loaded at its first use."""
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
        """Return a model of its own with this state."""
        if "base_url" in _arguments(state) and state.get("base_url") is None:
            raise ValueError(
                f"The saved model {state.get('model')!r} has no address: a server's address is read from trusted files "
                "only. Load the program with allow_unsafe_lm_state=True, or give it a model with set_lm(...)."
            )
        for other in list(_IN_MEMORY) if self.shared_when_loaded else []:
            alike = type(other) is type(self) and PENDING not in other.__dict__
            if alike and digest(other.dump_state(), 64) == digest(state, 64):
                return copy.deepcopy(other)
        return type(self)(**{key: value for key, value in state.items() if key != LM_CLASS})

    def __deepcopy__(self, memo: dict[int, Any]) -> SavedLM:
        """Return a model with settings of its own and the same weights or connection."""
        copied: SavedLM = self.load_state(self.__dict__[PENDING]) if PENDING in self.__dict__ else self.copy()
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).load_state, (self.dump_state(),)


_IN_MEMORY: weakref.WeakSet[SavedLM] = weakref.WeakSet()


def written_lm(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a model as a file may hold it: no secrets, and addresses without login and query."""
    own = _arguments(state)
    kept = {name: plain_address(state[name]) for name in ADDRESSES if isinstance(state.get(name), str)}
    own |= {LM_CLASS, "engine", "async_engine"}
    known = {name: value for name, value in state.items() if name in own}
    left_out = sorted(state.keys() - model_settings(state).keys() - known.keys() - kept.keys() - set(OF_TRAINING))
    if left_out:
        logger.warning("The settings %s of %s are not saved: they may hold a secret.", left_out, state.get("model"))
    return {**model_settings(state), **known, **kept}


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
    """Return the arguments of our own models, none of which holds a secret; of DSPy's, none."""
    if state.get(LM_CLASS) not in CLASSES:
        return frozenset()
    return frozenset(inspect.signature(_class(state).__init__).parameters) - {"api_key", "kwargs"}


def _class(state: Mapping[str, Any]) -> type[SavedLM]:
    module, _, name = state[LM_CLASS].rpartition(".")
    cls: type[SavedLM] = getattr(importlib.import_module(module), name)
    return cls


def restored_lm(state: Mapping[str, Any] | None, *, trusted: bool) -> SavedLM | None:
    """Return the model that a file names, not loaded yet, ``UNTRUSTED`` only if trusted; None if it is none of ours."""
    if state is None or state.get(LM_CLASS) not in CLASSES:
        return None
    cls = _class(state)
    kept = {} if trusted else {key: value for key, value in UNTRUSTED.items() if key in state}
    return cls.load_state({**state, **kept})


# Recording of a language model's answers, and replay without the model.


class UnseenPrompt(LookupError):  # noqa: N818 - named for the problem
    """A recording has no answer to a prompt."""


class RecordedEngine(Engine):
    """The engine of ``RecordedLM``: answers from a JSONL file of requests and responses."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise FileNotFoundError(f"{path} does not exist: make a recording with evalbias.lm.saved.record(lm, path).")
        recorded: dict[str, list[lm15.Response]] = {}
        self._turn = threading.Lock()
        for number, line in enumerate(self._path.read_bytes().splitlines(), start=1):
            answer = json_object(line, f"{path}:{number}", "record it again")
            try:
                response = replace(response_from_dict(answer["response"]), provider_data=answer["provider_data"])
                recorded.setdefault(_key(answer["request"]), []).append(response)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
                raise ValueError(
                    f"{path}:{number} is not a recorded answer ({error!r:.80}): record it again."
                ) from error
        # Equal answers to a request are one, which answers it any number of times.
        alike = {key: all(_content(one) == _content(some[0]) for one in some) for key, some in recorded.items()}
        self._answers = {key: some[:1] if alike[key] else some for key, some in recorded.items()}
        self._calls: Counter[str] = Counter()  # number of calls per request

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the recorded answer; different ones to a request come in their order, and then ``UnseenPrompt``."""
        key = _key(request_to_dict(request))
        with self._turn:
            number, self._calls[key] = self._calls[key], self._calls[key] + 1
        answers = self._answers.get(key, [])
        if len(answers) == 1 or number < len(answers):
            return answers[min(number, len(answers) - 1)]
        ending = str(request.messages[-1].text)[-80:]
        call = f"call {number + 1} of " if answers else ""
        raise UnseenPrompt(
            f"{self._path} has no answer to {call}the prompt that ends with {ending!r}: record it first."
        )


class RecordedLM(SavedLM):
    """A recording as a ``dspy.LM``; requests must equal the recorded ones in everything but the model's name.

    Args:
        path: JSONL file written by ``record``.
        **kwargs: Options of ``dspy.LM``.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: A line is not a recorded answer.
    """

    shared_when_loaded = False  # a recording is replayed from its beginning

    def __init__(self, path: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__(f"recorded/{Path(path).name}", engine=RecordedEngine(path), **{"cache": False, **kwargs})
        self._path = str(path)

    def saved_arguments(self) -> dict[str, Any]:
        return {"path": self._path}


class RecordingEngine(Engine):
    """An engine that passes requests to a model and appends every answer to a file."""

    def __init__(self, lm: Any, path: str | os.PathLike[str]) -> None:
        self._lm = lm
        self._path = Path(path)
        self._turn = threading.Lock()

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return and record the model's answer."""
        response: lm15.Response = self._lm(request)
        record = {"request": request_to_dict(request), "response": response_to_dict(response)}
        line = json.dumps({**record, "provider_data": response.provider_data})  # response_to_dict leaves it out
        with self._turn, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        return response


def record(lm: Any, path: str | os.PathLike[str]) -> dspy.LM:
    """Return the same model with every answer appended to a JSONL file, which ``RecordedLM`` replays."""
    return dspy.LM(lm.model, engine=RecordingEngine(lm, path), cache=False)


def _content(answer: lm15.Response) -> tuple[Any, Any]:
    return answer.message, answer.provider_data


def _key(request: dict[str, Any]) -> str:
    return digest({name: value for name, value in request.items() if name != "model"}, 64)
