"""Groups of options: a dataclass whose fields are options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

Command = TypeVar("Command", bound=Callable[..., None])


@dataclass(frozen=True)
class Without:
    """Marks a group of options in a command that lacks some of them: ``Annotated[GROUP, Without({"field"})]``."""

    fields: Set[str]


def option_groups(command: Command) -> Command:
    """Replace each parameter of a command that is a dataclass by the options that are its fields, in its place.

    Fields that the annotation leaves out (``Without``) keep their defaults.
    """
    own = inspect.signature(command, eval_str=True).parameters
    groups = {name: group for name, p in own.items() if (group := _Group.of(p.annotation)) is not None}

    @wraps(command)
    def with_options(**given: Any) -> None:
        made = {name: group.made_of(given) for name, group in groups.items()}
        command(**made, **given)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        one
        for name, parameter in own.items()
        for one in (groups[name].parameters() if name in groups else [parameter.replace(kind=kind)])
    ]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options  # type: ignore[return-value]


@dataclass(frozen=True)
class _Group:
    """A dataclass whose fields are options, but for some."""

    kind: type[Any]
    without: Set[str]

    @classmethod
    def of(cls, annotation: Any) -> _Group | None:
        """Return the group that a parameter's annotation names; None if it names none."""
        kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        if not (isinstance(kind, type) and is_dataclass(kind)):
            return None
        return cls(kind, frozenset[str]().union(*(mark.fields for mark in marks if isinstance(mark, Without))))

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options as a command's parameters."""
        hints, none = get_type_hints(self.kind, include_extras=True), inspect.Parameter.empty
        defaults = {f.name: none if f.default is MISSING else f.default for f in self._fields()}
        return [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[name], default=default)
            for name, default in defaults.items()
        ]

    def made_of(self, given: dict[str, Any]) -> Any:
        """Take the options out of a command's arguments and return the group of them."""
        return self.kind(**{f.name: given.pop(f.name) for f in self._fields()})

    def _fields(self) -> list[Field[Any]]:
        return [f for f in fields(self.kind) if f.name not in self.without]
