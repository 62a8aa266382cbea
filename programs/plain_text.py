"""Plain-text prompts: instructions, ``Label: value`` lines, and a completion that is the only output field.

DSPy's own adapters ask for markup around every field, which small models and base models do not write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from evalbias.lm.refusals import HARMLESS
from evalbias.lm.refused_requests import ERRORS, own_refusal, reason_of, trial_after
from evalbias.lm.types import PromptRefused
from evalbias.programs.predictor import Predictor
from evalbias.programs.prompt import Message


class PlainTextAdapter(dspy.Adapter):  # type: ignore[misc]
    """Adapter that writes the fields as ``Label: value`` lines and reads the whole completion as the output field.

    Raises:
        ValueError: The signature does not have exactly one output field.
    """

    def format(self, signature: Any, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[Message]:
        """Return the messages of one request."""
        output = _only_output(signature)
        messages = [{"role": "system", "content": signature.instructions}]
        for demo in demos:
            if demo.get(output) is not None:
                messages.append({"role": "user", "content": _fields(signature, demo)})
                messages.append({"role": "assistant", "content": str(demo[output])})
        return [*messages, {"role": "user", "content": _fields(signature, inputs)}]

    def parse(self, signature: Any, completion: str) -> dict[str, str]:
        """Return the stripped completion as the output field."""
        return {_only_output(signature): completion.strip()}


class PlainPredict(dspy.Module):  # type: ignore[misc]
    """A ``dspy.Predict`` with a plain-text prompt; a completion without text is an empty output.

    Args:
        signature: DSPy signature with one output field.
        **config: Settings of every request: ``temperature``, ``max_tokens``, ``stop`` and others.
    """

    def __init__(self, signature: Any, **config: Any) -> None:
        super().__init__()
        self.predict = Predictor(signature, **config)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Ask the model once.

        Raises:
            PromptRefused: The model refuses the inputs, for example because they are too long.
            RequestRefused: The model refuses the settings, and so a harmless text too.
        """
        try:
            return self._asked(**inputs)
        except ERRORS as error:
            reason = reason_of(error)
            if reason is None:
                raise
            if own_refusal(error) is None:
                with trial_after(error), dspy.context(trace=[]):  # no step of the program
                    self._asked(**dict.fromkeys(inputs, HARMLESS))
            raise PromptRefused({0: reason}, names={0: "The prompt"}) from error

    def _asked(self, **inputs: Any) -> dspy.Prediction:
        try:
            with dspy.context(adapter=PlainTextAdapter()):
                return self.predict(**inputs)
        except AdapterParseError:
            return dspy.Prediction(**{_only_output(self.predict.signature): ""})


def _only_output(signature: Any) -> str:
    names = list(signature.output_fields)
    if len(names) != 1:
        raise ValueError(f"The signature has the output fields {names}: give one with a single output field.")
    return str(names[0])


def _fields(signature: Any, values: Mapping[str, Any]) -> str:
    names = [name for name in signature.input_fields if values.get(name) is not None]
    lines = [f"{_label(name)}: {_as_text(values[name])}" for name in names]
    return "\n".join([*lines, f"{_label(_only_output(signature))}:"])


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _as_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
