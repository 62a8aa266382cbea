"""How a judge that is not ours is called, and how its answer is read."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any

import dspy

from evalbias.data.choices import TIE, chosen_candidate
from evalbias.data.numbers import LARGEST, allowed, as_number, remedy_for
from evalbias.evaluation.formatting import joined
from evalbias.evaluation.recorded_judge import is_on
from evalbias.programs.metrics import ProgramMetric

Call = Callable[[dspy.Example], Any]
POSITIONAL = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def call_of(judge: Callable[..., Any], *, pairwise: bool) -> Call:
    """Return a function of one example that asks the judge: a function, a DSPy module, or a DSPy metric.

    Raises:
        ValueError: The judge takes other inputs than an audit has.
    """
    if isinstance(judge, type) and issubclass(judge, dspy.Module):
        raise ValueError(f"The judge {name_of(judge)} is a class: pass an instance, such as {name_of(judge)}().")
    if isinstance(judge, dspy.Module):
        return _call_of_module(judge, ("source", "candidates" if pairwise else "output"))
    try:
        signature = inspect.signature(judge)
    except (TypeError, ValueError):  # of a builtin that tells none
        return judge
    if _takes(signature, 1):
        return judge
    if _is_metric(signature) and not pairwise:
        metric = _undefined_is_nan(judge) if isinstance(judge, ProgramMetric) else judge
        return lambda example: metric(example, dspy.Prediction(output=example["output"]))
    texts = "item.candidates" if pairwise else "item.output"
    raise ValueError(
        f"The judge {name_of(judge)}{signature} cannot be called with one item: wrap it in a function that passes the "
        f"item's texts, such as `lambda item: judge(item.source, {texts})`."
    )


def name_of(judge: Any) -> str:
    """Return a function's name, or the name of an object's class."""
    return str(getattr(judge, "__name__", type(judge).__name__))


def read_score(value: Any, scale: tuple[float, float] | None) -> float:
    """Read a number, or a prediction's ``score``; None is NaN.

    Raises:
        ValueError: It is neither, or not on the scale.
    """
    given = _field(value, "score") if isinstance(value, dspy.Prediction) else value
    if given is None:
        return math.nan
    number = as_number(given)
    if abs(number) > LARGEST:
        wanted = remedy_for(given) or f"{allowed(number)}, or a prediction with 'score'"
        raise ValueError(f"the judge returned {given!r:.80}: return {wanted}")
    if scale is not None and not is_on(scale, number):
        raise ValueError(f"the judge returned {number:g}, outside the scale from {scale[0]:g} to {scale[1]:g}")
    return number


def read_choice(value: Any) -> float:
    """Read the index of the better output, or a prediction's ``winner`` or ``preference``, the field of our judges.

    A ``PairwiseJudge`` that prefers neither output has answered with a tie if its ``gap`` is defined.

    Raises:
        ValueError: It is neither.
    """
    if not isinstance(value, dspy.Prediction):
        return chosen_candidate(value, "the judge's answer")
    given = _field(value, "winner", "preference")
    if given is None and "winner" not in value and not math.isnan(value.get("gap", math.nan)):
        return TIE
    return chosen_candidate(given, "the judge's answer")


def _field(prediction: dspy.Prediction, *names: str) -> Any:
    """Return the first of the fields that the prediction has.

    Raises:
        ValueError: It has none of them.
    """
    for name in names:
        if name in prediction:
            return prediction[name]
    there, read = joined([repr(name) for name, _ in prediction.items()]), " or ".join(map(repr, names))
    raise ValueError(f"the judge returned a prediction with {there or 'no fields'}, of which {read} is read")


def _takes(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def _is_metric(signature: inspect.Signature) -> bool:
    """Return whether a signature is that of a DSPy metric: an example, a prediction, and mostly a trace."""
    names = [p.name for p in signature.parameters.values() if p.kind in POSITIONAL]
    told = len(names) > 1 and names[1] in ("pred", "prediction")
    return _takes(signature, 2) and (told or names[2:3] == ["trace"])


def _undefined_is_nan(metric: ProgramMetric) -> ProgramMetric:
    """Return a metric of ours whose undefined judgments are NaN: an audit counts them, a mean of DSPy's cannot."""
    audited = copy.copy(metric)
    audited.undefined, audited.undefined_items = math.nan, []
    return audited


def _call_of_module(module: dspy.Module, fields: tuple[str, str]) -> Call:
    """Return a function that calls a module with those fields that it takes.

    Raises:
        ValueError: The module needs another field, or does not take the texts that are judged.
    """
    taken, needed = _inputs(module)
    missing = [name for name in needed if name not in fields]
    if missing or (taken and fields[1] not in taken):
        pair = "first=item.candidates[0], second=item.candidates[1]"
        texts = pair if fields[1] == "candidates" else f"answer=item.{fields[1]}"
        wants = joined([repr(name) for name in missing or taken])
        raise ValueError(
            f"The judge {name_of(module)} takes {wants}, but an audit passes {joined([repr(f) for f in fields])}: wrap "
            f"it in a function, such as `lambda item: judge(question=item.source, {texts})`."
        )
    passed = [name for name in fields if not taken or name in taken]

    def call(example: dspy.Example) -> Any:
        inputs = {name: example[name] for name in passed if name in example}
        if lacking := [name for name in needed if name not in inputs]:
            raise ValueError(f"the item has no {joined([repr(name) for name in lacking])}, which the judge needs")
        return module(**inputs)

    return call


def _inputs(module: dspy.Module) -> tuple[list[str], list[str]]:
    """Return the names of a module's inputs and of those that it needs; none where it takes any.

    Those of DSPy's own modules are the input fields of their signature. A ``forward(**inputs)`` of a user's own may
    do anything with them.
    """
    forward = getattr(type(module), "forward", None)
    if forward is None:
        return [], []
    _, *parameters = inspect.signature(forward).parameters.values()
    if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return [p.name for p in parameters], [p.name for p in parameters if p.default is p.empty]
    signature = getattr(module, "signature", None) or getattr(getattr(module, "predict", None), "signature", None)
    if signature is None or not forward.__module__.startswith("dspy."):
        return [], []
    inputs = signature.input_fields
    return list(inputs), [name for name, field in inputs.items() if field.is_required()]
