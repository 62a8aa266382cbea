"""Read the values of options that are more than a number or a word, and which options were given."""

from __future__ import annotations

import re

import typer

SCALE = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*-\s*(-?\d+(?:\.\d+)?)\s*")


def pair_limit(text: str) -> int | None:
    """Read ``--pairs``: a number of at least 1, or None for all pairs."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"--pairs {text}: give a number of at least 1, or 'all'.")
    return int(text)


def read_scale(text: str) -> tuple[float, float]:
    """Read ``--scale``: the lowest and the highest score, such as 1-5, 0.0-1.0 or -2-2."""
    ends = SCALE.fullmatch(text)
    if ends is None or not float(ends[1]) < float(ends[2]):
        raise typer.BadParameter(f"--scale {text}: write the lowest and the highest score as 1-5, 0.0-1.0 or -2-2.")
    return float(ends[1]), float(ends[2])


def given_options(context: typer.Context) -> set[str]:
    """Return the options that stand on the command line, such as ``--scale``."""
    return {
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None and (source := context.get_parameter_source(parameter.name)) is not None
        if source.name == "COMMANDLINE"
    }
