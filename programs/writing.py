"""Predictors that write plain text, and draw it again."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import dspy

from evalbias.lm.cache import resolve_lm
from evalbias.lm.calls import HARMLESS, Call, driven
from evalbias.lm.dspy_seam import active_trace, keys_hidden, refusal_of
from evalbias.lm.types import raise_refused
from evalbias.programs.prompts import Fields, Inputs, Message
from evalbias.programs.saved import Predictor

# Plain-text prompts: instructions, ``Label: value`` lines, and a completion that is the only output field.
# DSPy's own adapters ask for markup around every field, which small models and base models do not write.


class PlainTextAdapter(dspy.Adapter):  # type: ignore[misc]
    """Writes the fields as ``Label: value`` lines and reads the whole completion as the only output field."""

    def format(self, signature: Any, demos: Sequence[Fields], inputs: Inputs) -> list[Message]:
        output = _only_output(signature)
        messages = [{"role": "system", "content": signature.instructions}]
        for demo in demos:
            if demo.get(output) is not None:
                messages.append({"role": "user", "content": _fields(signature, demo)})
                messages.append({"role": "assistant", "content": str(demo[output])})
        return [*messages, {"role": "user", "content": _fields(signature, inputs)}]

    def parse(self, signature: Any, completion: str) -> dict[str, str]:
        return {_only_output(signature): completion.strip()}


class PlainPredict(dspy.Module):  # type: ignore[misc]
    """A ``dspy.Predict`` with a plain-text prompt and one output field; a completion without text is an empty output.

    ``config`` sets ``temperature``, ``max_tokens``, ``stop`` and others of every request.
    """

    def __init__(self, signature: Any, **config: Any) -> None:
        super().__init__()
        self.predict = Predictor(signature, **config)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Ask the model once.

        ``PromptRefused`` if it refuses the inputs (too long, say); ``RequestRefused`` if it refuses the settings.
        """

        async def control(_: int) -> dspy.Prediction:
            with dspy.context(trace=[]):  # no step of the program
                return await self._answer(dict.fromkeys(inputs, HARMLESS))

        answers: dict[int, Any] = {}
        call = Call(lambda _: self._answer(inputs), answers, control=control, refusal=refusal_of)
        driven(call.run([0], at_once=1))
        call.check()
        raise_refused(answers, {0: "The prompt"})
        return answers[0]

    async def _answer(self, inputs: Inputs) -> dspy.Prediction:
        try:
            with dspy.context(adapter=PlainTextAdapter()), keys_hidden(self.predict.lm or dspy.settings.lm):
                return self.predict(**inputs)
        except dspy.AdapterParseError:
            return dspy.Prediction(**{_only_output(self.predict.signature): ""})


def _only_output(signature: Any) -> str:
    names = list(signature.output_fields)
    if len(names) != 1:
        raise ValueError(f"The signature has the output fields {names}: give one with a single output field.")
    return str(names[0])


def _fields(signature: Any, values: Inputs) -> str:
    lines = []
    for name in signature.input_fields:
        if (value := values.get(name)) is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            lines.append(f"{_label(name)}: {text}")
    return "\n".join([*lines, f"{_label(_only_output(signature))}:"])


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def module_inputs(module: dspy.Module) -> frozenset[str]:
    """Return the names of a module's inputs: the named parameters of its ``forward``.

    If ``forward`` takes any arguments: the input fields of its predictors that are no output fields of another.
    """
    _, *parameters = inspect.signature(type(module).forward).parameters.values()
    if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return frozenset(p.name for p in parameters)
    consumed: set[str] = set()
    produced: set[str] = set()
    for predictor in module.predictors():
        consumed |= set(predictor.signature.input_fields)
        produced |= set(predictor.signature.output_fields)
    return frozenset(consumed - produced)


# Repeated draws from a program, past DSPy's cache and reproducible by number.

STRIDE = 1_000_003
"""Distance between the draws of two seeds; further draws of a prompt would repeat those of the next seed."""
LARGEST_SEED = 2**31 - 1  # largest seed that every server takes


def sample(module: Any, index: int, seed: int = 0, /, *values: Any, **inputs: Any) -> Any:
    """Return draw ``index``, from 0, of a module for its inputs; the same index and seed return the same draw.

    Requests at a temperature above 0 get their own ``rollout_id``, so that DSPy's cache keeps the draws apart. Models
    that draw by a seed also get a seed, to which the seed of the model or predictor is added, so that a draw is the
    same text in every process. If all predictors decode greedily, all draws are the same and the module itself is
    called. Otherwise a copy is called, and the trace names the predictors of the module.
    """
    configs = [_config(predictor, index, seed) for predictor in module.predictors()]
    if not any(configs):
        return module(*values, **inputs)
    copy = module.deepcopy()
    for predictor, config in zip(copy.predictors(), configs, strict=True):
        predictor.config = {**predictor.config, **config}
    prediction = copy(*values, **inputs)
    originals = dict(zip(map(id, copy.predictors()), module.predictors(), strict=True))
    trace = active_trace()
    if trace:
        trace[:] = [(originals.get(id(predictor), predictor), *details) for predictor, *details in trace]
    return prediction


def draws(module: dspy.Module) -> bool:
    """Return whether a module may answer the same inputs differently: False if it has predictors and all are greedy."""
    values = temperatures(module)
    return not values or any(temperature != 0 for temperature in values)


def temperatures(module: dspy.Module) -> list[float | None]:
    """Return the temperature of each predictor of a module; None if it and its model have no such setting."""
    return [_settings(predictor).get("temperature") for predictor in module.predictors()]


def _settings(predictor: dspy.Predict) -> dict[str, Any]:
    lm = resolve_lm(None, predictor)
    default = {"temperature": getattr(lm, "default_temperature", None)}
    settings = {**getattr(lm, "kwargs", {}), **predictor.config}
    return {**default, **{name: value for name, value in settings.items() if value is not None}}


def _config(predictor: dspy.Predict, index: int, seed: int) -> dict[str, int]:
    """Return the settings that select a predictor's draw; empty if it decodes greedily."""
    lm, settings = resolve_lm(None, predictor), _settings(predictor)
    if lm is None or settings.get("temperature") == 0:
        return {}
    rollout = seed * STRIDE + index
    config = {"rollout_id": rollout} if rollout else {}
    if getattr(lm, "draws_by_seed", False):
        config["seed"] = ((settings.get("seed") or 0) * STRIDE + rollout) % LARGEST_SEED
    return config
