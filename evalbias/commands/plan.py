"""The plan of a long run, told before its first prompt: prompts, tokens and, where prices are known, the cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from evalbias.commands.terminal import say

LONG = 1000
"""Prompts from which a run is planned, and a user at a terminal is asked."""
SAMPLE = 50
"""Prompts whose length is looked at."""
CHARACTERS = 4.0
"""Characters of a token, about, in English."""


def plan(questions: Sequence[Any], left: int, model: str, *, hosted: str | None, yes: bool) -> None:
    """Say what a long run will ask, and at a terminal whether it shall; short runs are not planned.

    Args:
        questions: First questions to the model: prompts, alone or with a continuation or a seed.
        left: Number of answers that are still to be asked for.
        model: The model in words.
        hosted: Name of a hosted model as price lists have it; None for others.
        yes: Do not ask.

    Raises:
        Exit: The user does not want it.
    """
    if left < LONG or not questions:
        return
    step = max(1, len(questions) // SAMPLE)
    lengths = [_length(question) for question in questions[::step]]
    tokens = left * sum(lengths) / len(lengths) / CHARACTERS
    cost = None if hosted is None else _dollars(hosted, tokens)
    price = "" if cost is None else f", about ${cost:,.2f} for the prompts by litellm's price list"
    looked = f"estimated from {len(lengths)} prompt{'s' * (len(lengths) > 1)}"
    say(f"plan: about {left:,} prompts to {model}, {_rounded(tokens)} tokens ({looked}){price}.")
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not typer.confirm("Go on?", default=True, err=True):
        raise typer.Exit(1)


def _length(question: Any) -> int:
    """Return the characters of a question: a prompt is a text or a list of messages."""
    if isinstance(question, str):
        return len(question)
    if isinstance(question, dict):
        return _length(question.get("content", ""))
    return sum(map(_length, question)) if isinstance(question, list | tuple) else 0


def _rounded(tokens: float) -> str:
    """Say a number of tokens in hundreds or millions.

    Examples:
        >>> _rounded(1_230), _rounded(1_960_000)
        ('1,200', '2.0 million')
    """
    return f"{tokens / 1e6:,.1f} million" if tokens >= 1e6 else f"{round(tokens, -2):,.0f}"


def _dollars(name: str, tokens: float) -> float | None:
    """Return what prompts cost; None if litellm is not installed or does not list the model."""
    try:
        import litellm
    except ImportError:
        return None
    listed = litellm.model_cost.get(name) or litellm.model_cost.get(name.partition("/")[2]) or {}
    price = listed.get("input_cost_per_token")
    return None if price is None else float(price) * tokens
