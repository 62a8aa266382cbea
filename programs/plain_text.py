"""A prompt as plain text: instructions, named fields, and an answer that is the one output field as it is written.

DSPy's own adapters ask for markup around every field, which small and base models do not write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from evalbias.programs.prompt import Message


class PlainTextAdapter(dspy.Adapter):  # type: ignore[misc]
    """Writes the fields as ``Label: value`` lines; the whole completion is the output field.

    Raises:
        ValueError: A signature with more than one output field.
    """

    def format(self, signature: Any, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[Message]:
        """The messages of one request."""
        output = _only_output(signature)
        messages = [{"role": "system", "content": signature.instructions}]
        for demo in demos:
            if demo.get(output) is not None:
                messages.append({"role": "user", "content": _fields(signature, demo)})
                messages.append({"role": "assistant", "content": str(demo[output])})
        return [*messages, {"role": "user", "content": _fields(signature, inputs)}]

    def parse(self, signature: Any, completion: str) -> dict[str, str]:
        """The completion as the output field."""
        return {_only_output(signature): completion.strip()}


class PlainPredict(dspy.Module):  # type: ignore[misc]
    """One ``dspy.Predict`` that is asked as plain text; an answer without any text is an empty one.

    Args:
        signature: A DSPy signature with one output field.
        **config: Of every request: ``temperature``, ``max_tokens``, ``stop`` and others.
    """

    def __init__(self, signature: Any, **config: Any) -> None:
        super().__init__()
        self.predict = dspy.Predict(signature, **config)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Ask once."""
        try:
            with dspy.context(adapter=PlainTextAdapter()):
                return self.predict(**inputs)
        except AdapterParseError:
            return dspy.Prediction(**{_only_output(self.predict.signature): ""})


def _only_output(signature: Any) -> str:
    names = list(signature.output_fields)
    if len(names) != 1:
        raise ValueError(f"The signature has the outputs {names}: a plain prompt has one.")
    return str(names[0])


def _fields(signature: Any, values: Mapping[str, Any]) -> str:
    lines = [
        f"{_label(name)}: {_shown(values[name])}" for name in signature.input_fields if values.get(name) is not None
    ]
    return "\n".join([*lines, f"{_label(_only_output(signature))}:"])


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
