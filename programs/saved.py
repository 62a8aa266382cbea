"""Programs as files: settings, predictors, and their readers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, TypeVar

import dspy

from evalbias.lm.cache import named_lm
from evalbias.lm.dspy_seam import Parameter, in_thread
from evalbias.lm.saved import check_lm, restored_lm, written_lm

Value = TypeVar("Value")
Check = Callable[[str, Any], None]
"""Check of a setting: takes its name and a value, and raises ``ValueError`` or ``TypeError`` if it is not allowed."""
MALFORMED = (TypeError, KeyError, AttributeError)
"""Exceptions of code that reads JSON of another form than it was written in."""

# Settings. DSPy's ``save`` and ``load`` walk the parameters of a program at every depth and keep nothing else. A
# ``Program`` declares the attributes that decide its answers as ``Setting``; one parameter, ``settings``, holds them.


class Setting(Generic[Value]):
    """Attribute of a program that is saved with it; ``check`` validates every value that is set or loaded.

    ``dump`` and ``load`` convert the value to JSON data and back. A learned setting has ``unlearned``, which makes its
    value in a reset copy; ``resets`` names learned settings that are discarded when this setting changes.
    """

    name: str

    def __init__(
        self,
        check: Check = lambda name, value: None,
        *,
        dump: Callable[[Value], Any] = lambda value: value,
        load: Callable[[Any], Value] = lambda saved: saved,
        unlearned: Callable[[], Value] | None = None,
        resets: Sequence[str] = (),
    ) -> None:
        self.check, self.dump, self.load = check, dump, load
        self.unlearned, self.resets = unlearned, resets

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, program: Any, owner: type | None = None) -> Value:
        value: Value = object.__getattribute__(program, "settings").values[self.name]  # past DSPy's slower look-up
        return value

    def __set__(self, program: Any, value: Value) -> None:
        self.check(self.name, value)
        settings: Settings = program.settings
        if settings.values.get(self.name) != value:
            settings.reset(self.resets)
        settings.values[self.name] = value


def one_of(*choices: Any) -> Check:
    """Return a check that allows these values."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            raise ValueError(f"{name}={value!r:.80} is unknown: choose one of {choices}.")

    return check


def number_within(low: float = -math.inf, high: float = math.inf, *, whole: bool = False) -> Check:
    """Return a check that allows numbers from ``low`` to ``high``."""
    kind: Any
    kind, wanted = (Integral, "a whole number") if whole else (Real, "a number")
    if math.isfinite(high):
        wanted += f" from {low:g} to {high:g}"
    elif math.isfinite(low):
        wanted += f" of at least {low:g}"

    def check(name: str, value: Any) -> None:
        if not isinstance(value, kind) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{name}={value!r:.80}: give {wanted}.")

    return check


def instance_of(kind: Any, wanted: str) -> Check:
    """Return a check that allows objects of a class or a union of classes."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{name}={value!r:.80}: give {wanted}.")

    return check


class Settings(Parameter):  # type: ignore[misc]
    """The settings of a program: ``values`` by name, as its class ``owner`` declares them."""

    def __init__(self, owner: type[Program]) -> None:
        self.owner = owner
        self.values: dict[str, Any] = {}

    @property
    def declared(self) -> dict[str, Setting[Any]]:
        members = [item for base in reversed(self.owner.__mro__) for item in vars(base).items()]
        return {name: member for name, member in members if isinstance(member, Setting)}

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        values = {name: setting.dump(self.values[name]) for name, setting in self.declared.items()}
        return {"kind": self.owner.kind} | values

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace every value; ``ValueError`` for another kind of program, other settings, or an invalid value."""
        saved, own = {**state}, self.owner.kind
        kind = saved.pop("kind", None)
        if kind != own:
            raise ValueError(f"The state is of a {kind}, not of a {own}: load it into the program it was saved from.")
        if saved.keys() != self.declared.keys():
            raise ValueError(
                f"The saved {kind} has the settings {sorted(saved)}, not {sorted(self.declared)}: save it again with "
                "this version."
            )
        values = {}
        for name, setting in self.declared.items():
            try:
                values[name] = setting.load(saved[name])
            except (*MALFORMED, ValueError) as error:
                raise ValueError(f"The saved {own} is damaged: its {name} is {saved[name]!r:.80} ({error}).") from error
            setting.check(name, values[name])
        self.values = values

    def reset(self, names: Sequence[str] | None = None) -> None:
        """Reset the learned settings, or only those in ``names``; other settings stay."""
        for name, setting in self.declared.items():
            if setting.unlearned is not None and (names is None or name in names):
                self.values[name] = setting.unlearned()


NAMES = "field_names"
WRITTEN = ("traces", "train", "demos", "signature", "fields", "lm", NAMES)  # names in the state of a predictor


class Predictor(dspy.Predict):  # type: ignore[misc]
    """A ``dspy.Predict`` that loads its own states only.

    DSPy's own state of a predictor holds no names of fields, and DSPy loads only models of its own class unless the
    file is trusted (``allow_unsafe_lm_state``). Models of evalbias are loaded in either case; from a file that is not
    trusted, without a server's address and without the model's own code.
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
        """Replace instructions, demonstrations and model; ``ValueError`` for other fields or another form."""
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

    For example, DSPy sends an attribute ``config`` with every request, and it may set the request's address.
    """
    if unknown := [name for name in state if name not in WRITTEN]:
        raise ValueError(f"It holds {unknown[0]!r:.80}, which no saved program does: remove it from the file.")
    if lm := state.get("lm"):
        check_lm(lm, trusted=trusted)


def _check_prompt(state: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse instructions and demonstrations of a wrong form, as in a file edited by hand."""
    signature, demos = state.get("signature"), state.get("demos", [])
    instructions = signature.get("instructions") if isinstance(signature, Mapping) else None
    if not isinstance(instructions, str):
        raise ValueError(f"'instructions' in 'signature' is {instructions!r:.80}: give a text.")
    if not isinstance(demos, list):
        raise ValueError(f"'demos' is {demos!r:.80}: give a list of demonstrations, [] for none.")
    for number, demo in enumerate(demos, start=1):
        if not isinstance(demo, Mapping | dspy.Example):
            raise ValueError(f"Demonstration {number} in 'demos' is {demo!r:.80}: give an object with {names}.")


class Program(dspy.Module):  # type: ignore[misc]
    """Base of judges, rankers and loops, which give a value to every ``Setting`` that their class declares."""

    kind: ClassVar[str]  # kind of program in words, for saved files and errors

    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings(type(self))

    def deepcopy(self) -> Any:
        """Copy the program with its callbacks, including the case where DSPy copies attribute by attribute."""
        copied = super().deepcopy()
        copied.callbacks = list(self.callbacks)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Copy the program with its callbacks, which DSPy's copies lose."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        copied.callbacks = list(self.callbacks)
        return copied

    async def aforward(self, *args: Any, **fields: Any) -> dspy.Prediction:
        """Run ``forward`` in a thread, so that other tasks go on."""
        prediction: dspy.Prediction = await in_thread(type(self).forward, self, *args, **fields)
        return prediction

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return the settings, instructions and demonstrations, including those of parts that were compiled before."""
        return {path: part.dump_state(json_mode) for path, part in self._parameters().items()}

    def load_state(self, state: Mapping[str, Any], *, allow_unsafe_lm_state: bool = False) -> None:
        """Replace the settings, instructions and demonstrations by those of a saved program.

        ``ValueError`` for another program's state, or a damaged one; the program is then as it was.
        """
        own = self._parameters()
        if missing := [name for name in own if name not in state]:
            raise ValueError(f"The state is not of a {self.kind} like this one: it has no {missing[0]!r}.")
        if unknown := [name for name in state if name not in {*own, "metadata"}]:
            raise ValueError(f"The saved {self.kind} holds {unknown[0]!r:.80}, which it has not: remove it.")
        # 1. No part of the state, not even of a plain ``dspy.Predict``, holds what no ``dump_state`` writes.
        for path, part in state.items():
            if isinstance(part, Mapping) and "signature" in part:
                try:
                    check_predictor(part, trusted=allow_unsafe_lm_state)
                except ValueError as error:
                    raise ValueError(f"{path!r:.80} of the saved program: {error}") from error
        # 2. A copy is loaded first, so that a refused state changes nothing.
        try:
            for parameters in (self.deepcopy()._parameters(), own):
                for path, parameter in parameters.items():
                    options = {"allow_unsafe_lm_state": allow_unsafe_lm_state}
                    parameter.load_state(state[path], **options if isinstance(parameter, dspy.Module) else {})
        except MALFORMED as error:
            raise ValueError(
                f"The saved {self.kind} is damaged ({type(error).__name__}: {error}): save it again."
            ) from error

    def load(self, path: Any, *args: Any, **options: Any) -> None:
        """Load what ``save`` wrote to a file; ``ValueError`` if it does not hold this kind of program."""
        try:
            super().load(path, *args, **options)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        except (*MALFORMED, RecursionError) as error:
            raise ValueError(f"{path} is not a saved {self.kind} ({type(error).__name__}: {error}).") from error

    def set_lm(self, lm: Any) -> None:
        """Give the model to every predictor of the program, including those of its judges."""
        lm = named_lm(lm)
        for parameter in self._parameters().values():
            if isinstance(parameter, dspy.Predict):
                parameter.lm = lm

    def _parameters(self) -> dict[str, Any]:
        """Return all parameters by path, including those of judges and of compiled parts, which DSPy hides."""
        return {path.removeprefix("self."): parameter for path, parameter in self.named_sub_modules(Parameter)}


class Instrument(Program):
    """Base of programs that judge, each of which is a single parameter of the user's program around it.

    It is saved and loaded with that program, whose optimizers and ``set_lm`` do not reach it, because a judge is
    measured or compiled for its own prompt and model. Optimizers that compile the instrument itself see its predictors.
    """

    tunable = False  # True opens the instrument to both, as any other part of the program

    def named_parameters(self) -> list[tuple[str, Any]]:
        """Return the parameters that a program around it sees: those of all parts if tunable, else one."""
        return list(self._parameters().items()) if self.tunable else [("instrument", _Whole(self))]

    def named_predictors(self) -> list[tuple[str, dspy.Predict]]:
        """Return the predictors, which optimizers of the instrument itself compile."""
        return [(path, part) for path, part in self._parameters().items() if isinstance(part, dspy.Predict)]

    def get_lm(self) -> Any:
        """Return the instrument's own model, or None if it uses the model that DSPy is configured with."""
        return self.named_predictors()[0][1].lm

    def reset_copy(self) -> Any:
        """Return a copy without demonstrations and without what it learned, which asks the same model."""
        copied = self.deepcopy()
        for parameter in copied._parameters().values():
            parameter.reset()
        for (_, reset), (_, own) in zip(copied.named_predictors(), self.named_predictors(), strict=True):
            reset.lm = own.lm  # without which DSPy would ask the model that is configured
        return copied


class _Whole(Parameter):  # type: ignore[misc]
    def __init__(self, instrument: Instrument) -> None:
        self.dump_state, self.load_state = instrument.dump_state, instrument.load_state

    def reset(self) -> None:
        """Leave the instrument as it is; DSPy's optimizers reset every parameter of what they compile."""
