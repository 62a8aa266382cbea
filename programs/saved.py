"""Programs as files: settings, predictors, and their readers."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import dspy
from dspy.predict.parameter import Parameter

from evalbias.lm.contract import Sampling
from evalbias.lm.saved import check_lm, restored_lm, written_lm
from evalbias.programs.criterion import Criterion

# The ``dspy.Predict`` of our programs, whose saved state names its fields and may name a model of evalbias.


NAMES = "field_names"
WRITTEN = ("traces", "train", "demos", "signature", "fields", "lm", NAMES)
"""Names in the state of a predictor."""


class Predictor(dspy.Predict):  # type: ignore[misc]
    """A ``dspy.Predict`` that loads its own states only.

    DSPy's own state of a predictor holds no names of fields, and DSPy refuses to load a model that is not of its own
    class unless told that the file is trusted (``allow_unsafe_lm_state``). Models of evalbias are loaded in either
    case; from a file that is not trusted, without a server's address and without the model's own code.
    """

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return instructions, demonstrations, field names and those settings of the model that shape its answers.

        Settings that may hold a secret are left out, and their names logged.
        """
        state: dict[str, Any] = {**super().dump_state(json_mode), NAMES: list(self.signature.fields)}
        if state["lm"] is not None:
            state["lm"] = written_lm(state["lm"])
        return state

    def load_state(self, state: Mapping[str, Any], *, allow_unsafe_lm_state: bool = False) -> Predictor:
        """Replace instructions, demonstrations and model; see ``dspy.Predict``.

        Raises:
            ValueError: The state is of a predictor with other fields, holds no instructions or demonstrations, or a
                name that ``dump_state`` does not write.
        """
        check_predictor(state, trusted=allow_unsafe_lm_state)
        names, own = list(self.signature.fields), dict(state)
        saved = own.pop(NAMES, None)
        if saved != names:
            raise ValueError(
                f"The state is another predictor's: its fields are {saved!r:.200}, not {names}. Load it into a "
                "program with the same signatures."
            )
        _check_prompt(own, names)
        lm = restored_lm(own["lm"], trusted=allow_unsafe_lm_state)
        if lm is not None:
            own["lm"] = None
        super().load_state(own, allow_unsafe_lm_state=allow_unsafe_lm_state)
        if lm is not None:
            self.lm = lm
        return self


def check_predictor(state: Mapping[str, Any], *, trusted: bool) -> None:
    """Refuse a predictor's state that holds more than ``dump_state`` writes: DSPy makes each name an attribute.

    An attribute ``config``, for one, is sent with every request, and may say where to.

    Raises:
        ValueError: The message names what is unknown or too large.
    """
    if unknown := [name for name in state if name not in WRITTEN]:
        raise ValueError(f"It holds {unknown[0]!r:.80}, which no saved program does: remove it from the file.")
    if lm := state.get("lm"):
        check_lm(lm, trusted=trusted)


def _check_prompt(state: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse instructions and demonstrations of another form, such as a hand-edited file has them.

    Raises:
        ValueError: The message names the part of the state, and what belongs there.
    """
    signature, demos = state.get("signature"), state.get("demos", [])
    instructions = signature.get("instructions") if isinstance(signature, Mapping) else None
    if not isinstance(instructions, str):
        raise ValueError(f"'instructions' in 'signature' is {instructions!r:.80}: give a text.")
    if not isinstance(demos, list):
        raise ValueError(f"'demos' is {demos!r:.80}: give a list of demonstrations, [] for none.")
    for number, demo in enumerate(demos, start=1):
        if not isinstance(demo, Mapping | dspy.Example):
            raise ValueError(f"Demonstration {number} in 'demos' is {demo!r:.80}: give an object with {names}.")


# Reader for the JSON files that a program's ``save`` writes.


READERS = {
    "pointwise judge": "load_judge and 'evalbias judge' read it",
    "pairwise judge": "load_pairwise_judge, 'evalbias rank' and 'measure preference' read it",
    "ranker": "load_ranker reads it",
    "refine loop": "its own load and 'evalbias refine --program' read it",
}
"""Kind of program -> what reads its files."""


class Saved(Protocol):
    """Program that is constructed from a saved state."""

    kind: ClassVar[str]

    @classmethod
    def from_state(cls: type[AnyProgram], state: dict[str, Any]) -> AnyProgram:
        """Construct the program whose ``dump_state`` is given."""


AnyProgram = TypeVar("AnyProgram", bound=Saved)


def load_program(path: str | os.PathLike[str], program: type[AnyProgram]) -> AnyProgram:
    """Load a program from the JSON file that its ``save`` wrote.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not hold such a program, or a field of it is malformed; the message names both.
    """
    state = read_state(path, program.kind)
    try:
        return program.from_state(state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_state(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read the state of a program from a JSON file.

    Args:
        path: File that the program's ``save`` wrote.
        kind: Kind of program, as its class names it.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not hold a program of this kind.
    """
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8; lists in lists
        raise ValueError(f"{path} is not a saved {kind}: it is not JSON ({error}).") from error
    settings = state.get("settings") if isinstance(state, dict) else None
    saved = settings.get("kind") if isinstance(settings, dict) else None
    if not isinstance(saved, str):
        raise ValueError(
            f"{path} is not a saved {kind}: load a program that contains one by its own load, or save the {kind} to "
            "a file of its own."
        )
    if saved != kind:
        raise ValueError(
            f"{path} is not a saved {kind} but a {saved:.40}: {READERS.get(saved, 'its own load reads it')}."
        )
    return {name: value for name, value in state.items() if name != "metadata"}


# Settings of a program as a DSPy parameter, so that DSPy saves and loads them with any program around it.
#
# DSPy's ``save`` and ``load`` walk the parameters of a program at every depth and keep nothing else. A ``Program``
# declares the attributes that decide its answers as ``Setting``; one parameter, ``settings``, holds their values.


Value = TypeVar("Value")
MALFORMED = (TypeError, KeyError, AttributeError)
"""Exceptions of code that reads JSON of another form than it was written in."""


class Setting(Generic[Value]):
    """Attribute of a program that is saved with it.

    Args:
        choices: Values that are allowed; by default any.
    """

    since_later = False
    """True for a setting that older saved states lack: it is reset when they are loaded."""

    def __init__(self, *choices: Value) -> None:
        self.choices = choices

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, program: Any, owner: type | None = None) -> Value:
        value: Value = program.settings.values[self.name]
        return value

    def __set__(self, program: Any, value: Value) -> None:
        program.settings.values[self.name] = self.checked(value)

    def checked(self, value: Value) -> Value:
        """Return the value if it is allowed.

        Raises:
            ValueError: The value is none of the choices.
        """
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.name}={value!r:.80} is unknown: choose one of {self.choices}.")
        return value

    def dump(self, value: Value) -> Any:
        """Return a value as JSON data."""
        return value

    def load(self, saved: Any, current: Value) -> Value:
        """Return the value of JSON data; ``current`` is that of the program that loads it."""
        value: Value = saved
        return value

    def reset(self, value: Value) -> Value:
        """Return the value without anything that was learned."""
        return value


class NumberSetting(Setting[Any]):
    """A number within limits.

    Args:
        low: Smallest value.
        high: Largest value.
        whole: Whether it is a whole number.
        optional: Whether None is allowed too.
    """

    def __init__(
        self, low: float = -math.inf, high: float = math.inf, *, whole: bool = False, optional: bool = False
    ) -> None:
        super().__init__()
        self._limits, self._whole, self._optional = (low, high), whole, optional

    def checked(self, value: Any) -> Any:
        """Return the number.

        Raises:
            ValueError: The value is no number, not whole, or outside the limits.
        """
        kind, (low, high) = Integral if self._whole else Real, self._limits
        number = isinstance(value, kind) and not isinstance(value, bool)
        if (number and low <= value <= high) or (self._optional and value is None):
            return value
        raise ValueError(f"{self.name}={value!r:.80}: give {self._wanted()}{' or None' * self._optional}.")

    def _wanted(self) -> str:
        number, (low, high) = "a whole number" if self._whole else "a number", self._limits
        if math.isfinite(high):
            return f"{number} from {low:g} to {high:g}"
        return f"{number} of at least {low:g}" if math.isfinite(low) else number


class CriterionSetting(Setting[Criterion]):
    """The criterion of a judge."""

    def checked(self, value: Criterion) -> Criterion:
        """Return the criterion.

        Raises:
            TypeError: The value is none, such as its name alone.
        """
        if not isinstance(value, Criterion):
            raise TypeError(f"{self.name}={value!r:.80}: give a criterion, evalbias.Criterion(NAME, DEFINITION).")
        return value

    def dump(self, value: Criterion) -> Any:
        """Return the fields."""
        return asdict(value)

    def load(self, saved: Any, current: Criterion) -> Criterion:
        """Return the criterion with these fields."""
        return Criterion(**saved)


class Settings(Parameter):  # type: ignore[misc]
    """The settings of one program.

    Args:
        kind: Kind of program, such as "pointwise judge".
        declared: The program's declarations by name.

    Attributes:
        values: Values by name.
    """

    def __init__(self, kind: str, declared: Mapping[str, Setting[Any]]) -> None:
        self.kind = kind
        self.values: dict[str, Any] = {}
        self._declared = dict(declared)

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return the kind and every value as JSON data."""
        return {"kind": self.kind} | {name: one.dump(self.values[name]) for name, one in self._declared.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace every value.

        Raises:
            ValueError: The state is of another kind of program, lacks a setting or has an unknown one, or a value is
                not allowed.
        """
        later = {
            name: one.dump(one.reset(self.values[name])) for name, one in self._declared.items() if one.since_later
        }
        saved = {**later, **state}
        kind = saved.pop("kind", None)
        if kind != self.kind:
            raise ValueError(
                f"The state is of a {kind}, not of a {self.kind}: load it into the program it was saved from."
            )
        if saved.keys() != self._declared.keys():
            raise ValueError(
                f"The saved {kind} has the settings {sorted(saved)}, not {sorted(self._declared)}: save it again with "
                "this version."
            )
        self.values = {name: self._loaded(name, one, saved[name]) for name, one in self._declared.items()}

    def _loaded(self, name: str, declared: Setting[Any], saved: Any) -> Any:
        try:
            value = declared.load(saved, self.values.get(name))
        except (*MALFORMED, ValueError) as error:
            raise ValueError(f"The saved {self.kind} is damaged: its {name} is {saved!r:.80} ({error}).") from error
        return declared.checked(value)

    def reset(self) -> None:
        """Forget what was learned; what the program is stays as it is."""
        self.values = {name: one.reset(self.values[name]) for name, one in self._declared.items()}


class Program(dspy.Module):  # type: ignore[misc]
    """Base of judges, rankers and loops.

    Args:
        **settings: Value of every ``Setting`` that the class declares.

    Attributes:
        kind: Kind of program, in words; saved files and errors name it.
        settings: Parameter that holds the settings.
    """

    kind: ClassVar[str]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        declared = [vars(base).items() for base in reversed(type(self).__mro__)]
        own = {name: one for members in declared for name, one in members if isinstance(one, Setting)}
        self.settings = Settings(self.kind, own)
        for name, value in settings.items():
            setattr(self, name, value)

    async def aforward(self, *args: Any, **fields: Any) -> dspy.Prediction:
        """Run ``forward`` in a thread, so that other tasks go on; a judge awaits its model instead."""
        return await asyncio.to_thread(self.forward, *args, **fields)

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return the settings, instructions and demonstrations, also those of parts that were compiled before."""
        state: dict[str, Any] = super().dump_state(json_mode)
        for path, part in self._frozen().items():
            state |= {f"{path}.{name}": value for name, value in part.dump_state(json_mode).items()}
        return state

    def load_state(self, state: Mapping[str, Any], **options: Any) -> None:
        """Replace the settings, instructions and demonstrations by those of a saved program.

        Raises:
            ValueError: The state is another program's.
        """
        frozen = self._frozen()
        inside = [f"{path}.{name}" for path, part in frozen.items() for name, _ in part.named_parameters()]
        parameters = dict(self.named_parameters())
        missing = [name for name in [*parameters, *inside] if name not in state]
        if missing:
            raise ValueError(f"The state is not of a {self.kind} like this one: it has no {missing[0]!r}.")
        unknown = [name for name in state if name not in {*parameters, *inside, "metadata"}]
        if unknown:
            raise ValueError(f"The saved {self.kind} holds {unknown[0]!r:.80}, which it has not: remove it.")
        for path in [*parameters, *inside]:
            _check_part(path, state[path], trusted=bool(options.get("allow_unsafe_lm_state")))
        try:
            super().load_state(state, **options)
            for path, part in frozen.items():
                part.load_state({name.removeprefix(f"{path}."): value for name, value in state.items()}, **options)
        except MALFORMED as error:
            raise ValueError(
                f"The saved {self.kind} is damaged ({type(error).__name__}: {error}): save it again."
            ) from error

    def load(self, path: Any, *args: Any, **options: Any) -> None:
        """Replace the settings, instructions and demonstrations by those of a file that ``save`` wrote.

        Raises:
            ValueError: The file does not hold this kind of program.
        """
        try:
            super().load(path, *args, **options)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        except (*MALFORMED, RecursionError) as error:
            raise ValueError(f"{path} is not a saved {self.kind} ({type(error).__name__}: {error}).") from error

    def _frozen(self) -> dict[str, dspy.Module]:
        """Return the parts that an optimizer compiled, by path: DSPy freezes them, and leaves them out of a state."""
        parts = {path.removeprefix("self."): part for path, part in self.named_sub_modules(dspy.Module)}
        del parts["self"]
        return {
            path: part
            for path, part in parts.items()
            if getattr(part, "_compiled", False) and not isinstance(part, Parameter)
        }


def _check_part(path: str, state: Any, *, trusted: bool) -> None:
    """Refuse the state of a predictor, ours or DSPy's, that holds what no ``dump_state`` writes.

    Raises:
        ValueError: The message names the part and what is unknown or too large.
    """
    if isinstance(state, Mapping) and "signature" in state:
        try:
            check_predictor(state, trusted=trusted)
        except ValueError as error:
            raise ValueError(f"{path!r:.80} of the saved program: {error}") from error


def saved_criterion(state: Mapping[str, Any], part: str = "settings") -> Criterion:
    """Return the criterion in the state of a judge.

    Args:
        state: State that ``dump_state`` returned.
        part: Name of the judge's settings in it.

    Raises:
        ValueError: The state holds no criterion.
    """
    try:
        return Criterion(**state[part]["criterion"])
    except MALFORMED as error:
        raise ValueError(f"The saved judge is damaged: it has no criterion ({error}).") from error


# Settings by which a judge asks its model: measured, written, or estimated from repeated answers.


SAMPLED = "sampled"


class SamplingSetting(Setting[Sampling | None]):
    """Settings by which ``scoring="sampled"`` asks.

    It follows ``scoring``, which is set first: None with any other scoring, and ``Sampling()`` unless another is given.
    """

    def __get__(self, program: Any, owner: type | None = None) -> Sampling | None:
        """Return the settings; None if the judge does not sample."""
        return super().__get__(program) if program.scoring == SAMPLED else None

    def __set__(self, program: Any, value: Sampling | None) -> None:
        """Set the settings; None for the default.

        Raises:
            ValueError: The judge does not sample, or the value is no ``Sampling``.
        """
        if value is not None and program.scoring != SAMPLED:
            raise ValueError(
                f"scoring={program.scoring!r} does not sample: leave sampling out, or give scoring={SAMPLED!r}."
            )
        super().__set__(program, Sampling() if value is None else value)

    def checked(self, value: Sampling | None) -> Sampling | None:
        """Return the settings.

        Raises:
            ValueError: The value is no ``Sampling``.
        """
        if not isinstance(value, Sampling):
            raise ValueError(f"{self.name}={value!r} is no Sampling: give evalbias.Sampling(samples=...).")
        return value

    def dump(self, value: Sampling | None) -> Any:
        """Return the fields."""
        return value and asdict(value)

    def load(self, saved: Any, current: Sampling | None) -> Sampling | None:
        """Return the settings with these fields; the default where none were saved."""
        return Sampling() if saved is None else Sampling(**saved)
