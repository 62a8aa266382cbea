"""The two halves of a causal model: its decoder, and what turns the decoder's hidden states into logits.

Logits to be measured are computed in float32 from weights of any dtype: rounded to bfloat16, logits near 25 are
multiples of 1/8, so that different answers often get exactly the same probability.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.nn.functional import linear

CONVERTED = 1 << 24
"""Number of 16-bit weights converted to float32 at once, 64 MiB; the largest output layers would take gigabytes."""


def decoder(model: Any) -> Any:
    """Return the module of a causal model that turns tokens into hidden states."""
    base = model.base_model
    # Llama 4's text model names its decoder by its place in the multimodal model, so ``base_model`` misses it.
    return model.model if base is model and hasattr(model, "model") else base


class Head:
    """Everything that a causal model does after its decoder; 16-bit weights are multiplied in ``float32`` or not.

    That is not always one matrix product: some families scale its input (MiniCPM3) or its output (Granite, Cohere 2),
    others cap the logits (Gemma 2, NanoChat). So the model's own code runs, with its decoder replaced by given states.
    Sampling does without float32: it needs few logits at a time, and the conversion would take as long as the product.
    """

    def __init__(self, model: Any, *, float32: bool = True) -> None:
        self._model = model
        self._output = layer = model.get_output_embeddings()
        self._applied = _Float32Linear(layer) if float32 and type(layer) is torch.nn.Linear else layer
        self._body = decoder(model)
        self._separable = self._body is not model and any(child is self._body for child in model.children())

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the (m, V) logits of (m, d) hidden states, in float32."""
        if not self._separable:
            return self._applied(hidden).float()  # type: ignore[no-any-return]
        replaced = {id(self._body): _Given(self._body, hidden[None]), id(self._output): self._applied}
        model = copy.copy(self._model)  # shares the weights
        vars(model)["_modules"] = {
            name: replaced.get(id(module), module) for name, module in self._model._modules.items()
        }
        # Of a model that is spread over GPUs, accelerate's hook stands here, which would run the original.
        vars(model).pop("forward", None)
        return model(inputs_embeds=hidden[None]).logits[0].float()  # type: ignore[no-any-return]


class _Float32Linear(torch.nn.Module):
    """An output layer that multiplies in float32 whatever the dtype of its weights."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (..., V) logits of (..., d) hidden states."""
        vocabulary, size = self.weight.shape
        rows = vocabulary if self.weight.dtype == torch.float32 else max(1, CONVERTED // size)
        states = hidden.to(self.weight.device, torch.float32)  # of a spread model, it may be on another device
        parts = [linear(states, self.weight[i : i + rows].float()) for i in range(0, vocabulary, rows)]
        logits = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        return logits if self.bias is None else logits + self.bias.float()


class _Given:
    """A decoder that returns given hidden states; everything else about it is the real decoder's."""

    def __init__(self, body: Any, hidden: torch.Tensor) -> None:
        self._body, self._outputs = body, _Outputs(hidden)

    def __call__(self, *_: Any, **__: Any) -> _Outputs:
        return self._outputs

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._body, name)
        return self if isinstance(value, torch.nn.Module) else value  # OPT calls the module within its decoder


class _Outputs:
    """Outputs of a decoder that has returned nothing but hidden states; transformers reads them by name or by place."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, place: int) -> torch.Tensor:
        return (self.last_hidden_state,)[place]

    def __getattr__(self, name: str) -> None:
        return None
