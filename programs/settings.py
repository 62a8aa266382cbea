"""Settings of a program as a DSPy parameter, so that DSPy saves and loads them with any program around it.

DSPy's ``save`` and ``load`` walk the parameters of a program at every depth and keep nothing else. A ``Program``
declares the attributes that decide its answers as ``Setting``; one parameter, ``settings``, holds their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Generic, TypeVar

import dspy
from dspy.predict.parameter import Parameter

from evalbias.programs.criterion import Criterion

Value = TypeVar("Value")


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
            raise ValueError(f"{self.name}={value!r} is unknown: choose one of {self.choices}.")
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


class CriterionSetting(Setting[Criterion]):
    """The criterion of a judge."""

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
        self.values = {
            name: one.checked(one.load(saved[name], self.values.get(name))) for name, one in self._declared.items()
        }

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

    def load_state(self, state: Mapping[str, Any], **options: Any) -> None:
        """Replace the settings, instructions and demonstrations by those of a saved program.

        Raises:
            ValueError: The state is another program's.
        """
        missing = [name for name, _ in self.named_parameters() if name not in state]
        if missing:
            raise ValueError(f"The state is not of a {self.kind} like this one: it has no {missing[0]!r}.")
        super().load_state(state, **options)
