"""Parts of programs: finding what to compile, its state, and putting the compiled form in its place."""

from __future__ import annotations

from typing import Any

import dspy

from evalbias.runs.visible import get_logger


def find_part(student: Any, kinds: tuple[type, ...], name: str | None, *, optimizer: str) -> tuple[str, Any]:
    """Return the path and the module that an optimizer compiles: the student itself, or one module inside it.

    Args:
        student: Program to search.
        kinds: Classes of programs that the optimizer compiles.
        name: Path of the module, such as ``"judge"``; None if there is only one.
        optimizer: Name of the optimizer, for errors.

    Raises:
        TypeError: The student holds no such module.
        ValueError: There are several and none is named, or the name is none of theirs.
    """
    if isinstance(student, kinds) and name is None:
        return "self", student
    found = dict(student.named_sub_modules(kinds)) if isinstance(student, dspy.Module) else {}
    parts = {path.removeprefix("self."): module for path, module in found.items()}
    wanted = " or ".join(kind.__name__ for kind in kinds)
    if not parts:
        raise TypeError(
            f"{optimizer} compiles a {wanted}, or a program that contains one; {_named(student)} is neither."
        )
    if name is None and len(parts) > 1:
        raise ValueError(
            f"{type(student).__name__} holds several programs that {optimizer} compiles: name one with "
            f"compile(..., part=NAME), one of {sorted(parts)}."
        )
    if name is not None and name not in parts:
        raise ValueError(
            f"part={name!r} is none of the programs that {optimizer} compiles: choose one of {sorted(parts)}."
        )
    path = next(iter(parts)) if name is None else name
    return path, parts[path]


def _named(student: Any) -> str:
    """Return what a student is in words; a class is one that was not instantiated."""
    if isinstance(student, type):
        return f"the class {student.__name__} (pass an instance)"
    return f"this {type(student).__name__}"


def with_part(student: Any, kinds: tuple[type, ...], path: str, compiled: Any) -> Any:
    """Return a copy of the student whose part at ``path`` has the parameters of the compiled program.

    Only parameters are taken over, so that modules which the program shares stay shared, and models stay as they are.
    """
    if path == "self":
        return compiled
    program = student.deepcopy()
    place = {name.removeprefix("self."): module for name, module in program.named_sub_modules(kinds)}[path]
    for (_, ours), (_, theirs) in zip(place.named_parameters(), compiled.named_parameters(), strict=True):
        kept = {"lm": ours.lm} if isinstance(ours, dspy.Predict) else {}
        ours.__dict__.update({**theirs.__dict__, **kept})
    return program


def state_without_model(program: Any) -> dict[str, Any]:
    """Return a program's state, as for a log's key, without the models attached to it: not every model can be saved."""
    bare = program.deepcopy()
    bare.set_lm(None)
    state: dict[str, Any] = bare.dump_state()
    return state


def tell_ignored(optimizer: str, options: dict[str, Any]) -> None:
    """Log the arguments of ``compile`` that an optimizer has no use for."""
    given = sorted(name for name, value in options.items() if value is not None)
    if given:
        get_logger(__name__).warning("%s.compile has no use for %s.", optimizer, ", ".join(given))
