"""Closed questions on the wire: how each endpoint writes a question, and its answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evalbias.lm.reading import Unreadable, part
from evalbias.lm.types import ChoiceLogprobs, Decision

SHARES_ROUNDING = 0.02
"""Largest difference between 1 and the sum of the reported probabilities."""

LEVELS = 10
"""Largest number of levels of a score question, at every endpoint."""


def systemone_form(question: Decision) -> dict[str, Any]:
    """Return a question in the form of ``/v1/systemone``, which is also that of DSPy's decision requests."""
    options = question.options
    form: dict[str, Any] = {"type": question.kind, "instructions": question.instructions}
    if question.kind == "choice":
        return {**form, "criteria": options}
    if question.kind == "score":  # a level has a description
        return {**form, "criteria": [label if said is None else said for label, said in options.items()]}
    no, yes = options.values()
    described = {name: said for name, said in (("true", yes), ("false", no)) if said is not None}
    return {**form, "criteria": described} if described else form


def systemone_shares(question: Decision, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reported probability of each label."""
    if question.kind == "noul":
        return _yes_or_no(question, part(given, "noul"))
    shares = part(given, "probabilities", kind=dict)
    if question.kind == "score":
        return _by_level(question, {str(level): share for level, share in shares.items()})
    return dict(shares)


def _yes_or_no(question: Decision, yes: Any) -> dict[str, Any]:
    p = _probability(yes)
    return dict(zip(question.choices, (1.0 - p, p), strict=True))


def _by_level(question: Decision, shares: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shares of levels by their labels; an answer names them by number from 0, description or label."""
    numbers = [str(place) for place in range(len(question.choices))]
    descriptions = [state_text(said) for said in question.options.values()]
    for names in (numbers, descriptions):
        if set(names) == set(shares):
            return {label: shares[name] for label, name in zip(question.choices, names, strict=True)}
    return dict(shares)


def _described(question: Decision, name: str) -> list[dict[str, Any]]:
    """Return each option under a name, with its description where it has one."""
    options = question.options.items()
    return [{name: label} if said is None else {name: label, "description": said} for label, said in options]


def openai_form(name: str, question: Decision) -> dict[str, Any]:
    """Return a question in OpenAI's form; its yes/no question has no descriptions, so they follow the instructions."""
    form: dict[str, Any] = {"name": name, "instructions": state_text(question.instructions)}
    if question.kind == "score":
        return {**form, "type": "score", "levels": _described(question, "label")}
    if question.kind == "choice":
        return {**form, "type": "choice", "choices": _described(question, "value")}
    no, yes = question.options.values()
    said = [f"{word}: {state_text(one)}" for word, one in (("Yes", yes), ("No", no)) if one is not None]
    return {**form, "type": "predicate", "instructions": "\n".join([form["instructions"], *said])}


def openai_shares(question: Decision, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reported probability of each label."""
    if question.kind == "noul":
        return _yes_or_no(question, part(given, "probability"))
    entries = part(given, "probabilities", kind=list)
    key = "label" if question.kind == "score" else "value"
    shares = {part(entry, key, kind=str): part(entry, "probability") for entry in entries}
    if len(shares) < len(entries):
        raise Unreadable("the probabilities name an option twice")
    return shares


def sglang_form(name: str, question: Decision) -> dict[str, Any]:
    """Return a question in SGLang's form of ``/v1/decisions``."""
    form: dict[str, Any] = {"id": name, "question": state_text(question.instructions)}
    options = question.options
    if question.kind == "score":
        levels = [label if said is None else state_text(said) for label, said in options.items()]
        return {**form, "type": "score", "levels": levels}
    if question.kind == "choice":
        return {**form, "type": "choice", "options": _described(question, "name")}
    no, yes = options.values()
    described = {word: state_text(said) for word, said in (("yes", yes), ("no", no)) if said is not None}
    return {**form, "type": "yes_no", **described}


def sglang_shares(question: Decision, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reported probability of each label."""
    shares = part(given, "probabilities", kind=dict)
    if question.kind == "noul":
        return dict(zip(question.choices, (part(shares, word) for word in ("no", "yes")), strict=True))
    return _by_level(question, shares) if question.kind == "score" else dict(shares)


def names_of(questions: Sequence[Decision]) -> list[str]:
    """Return the name of each question in a request, with a number where an earlier one has the same."""
    names: list[str] = []
    for question in questions:
        numbered = (f"{question.name}_{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([question.name], numbered) if name not in names))
    return names


def answers_by_name(answers: Any, forms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the answers to the questions of a request by name, or raise ``Unreadable``; ``forms`` are the questions.

    The place of an answer in a list shows nothing: only the answer to a single question may lack its name.
    """
    if isinstance(answers, list) and len(answers) == len(forms) == 1 and is_nameless(answers):
        answers = dict.fromkeys(forms, answers[0])
    named = [(part(a, "name", kind=str), a) for a in answers] if isinstance(answers, list) else list(answers.items())
    if sorted(name for name, _ in named) != sorted(forms):
        raise Unreadable(f"its answers are to {[name for name, _ in named]!r:.200}, the questions {[*forms]!r:.200}")
    for name, answer in named:
        kind, asked = part(answer, kind=dict).get("type"), forms[name]["type"]
        if kind not in (None, "refusal", asked):
            raise Unreadable(f"the answer to {name!r:.80} is of the type {kind!r:.80}, the question of {asked!r}")
    return dict(named)


def is_nameless(answers: Sequence[Any]) -> bool:
    """Return whether an answer of a list does not say to which question it is."""
    return any(part(answer, kind=dict).get("name") is None for answer in answers)


MASSES = ("coverage", "x_label_mass", "label_mass")
"""Names for how probable the options are together: of ``DecidingLM``, of SGLang, of vLLM and ``/v1/decisions``."""


def mass_in(given: Mapping[str, Any]) -> Any:
    """Return how probable the options are together, as an answer says it; None where it does not."""
    return next((given[name] for name in MASSES if given.get(name) is not None), None)


def state_text(state: Any) -> str:
    """Return a state, or a description, as one text: JSON where it is none."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False, default=str)


def answer_of(choices: tuple[str, ...], shares: Mapping[Any, Any], mass: Any = None) -> ChoiceLogprobs:
    """Return reported shares of (c,) options as log-probabilities, or raise ``Unreadable``; None: no coverage."""
    if set(shares) != set(choices):
        raise Unreadable(f"it has probabilities of {list(shares)}, not of {list(choices)}")
    row = np.array([_probability(shares[choice]) for choice in choices])  # (c,)
    if abs(row.sum() - 1.0) > SHARES_ROUNDING:
        raise Unreadable(f"the probabilities of the options sum to {row.sum():.3f}, not to 1")
    with np.errstate(divide="ignore"):  # a probability of 0 is a log-probability of -inf
        logprobs = np.log(row) + (0.0 if mass is None else np.log(_probability(mass)))
    return ChoiceLogprobs(choices, logprobs[None], renormalized=mass is None)


def _probability(value: Any) -> float:
    """Return a reported probability as a float in [0, 1], within rounding."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e-6 <= value <= 1.0 + 1e-3:
        raise Unreadable(f"{value!r:.80} is not a probability")
    return min(max(float(value), 0.0), 1.0)
