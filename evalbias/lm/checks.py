"""Refuse models whose probabilities cannot be measured, with the reason."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from evalbias.lm.head import Head, decoder

PROBE = [0, 1, 2, 1, 0, 2, 1, 2]
"""Tokens on which a model is tried; every vocabulary has them."""

ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-3}
ROUNDING_16_BIT = 2e-2
"""Largest difference of logits due to rounding, as a share of the largest logit."""

MOST = 10_000
"""Most layers, blocks or labels that a configuration may name; each is built one by one."""

_COUNT = re.compile("(layers?|blocks|depth|labels)$")
_NUMBER = re.compile(r"\.(\d+)\.")


@contextmanager
def readable(problem: str, remedy: str) -> Iterator[None]:
    """Turn what a third-party loader raises about a damaged file, which may be anything, into one ValueError.

    Args:
        problem: What is wrong, with the name of the folder or file.
        remedy: What the user should do.

    Raises:
        ValueError: The loader failed; its error is the cause.
    """
    try:
        yield
    except (OSError, ImportError, MemoryError, torch.OutOfMemoryError):  # they say what the machine lacks
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{problem} ({type(error).__name__}: {reason}): {remedy}.") from error


def check_counts(settings: dict[str, Any], name: str) -> None:
    """Check the settings of a config.json before a configuration is made of them: it makes lists of such lengths.

    Raises:
        ValueError: It names more than ``MOST`` layers, blocks or labels.
    """
    rest: list[Any] = [settings]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            for key, value in one.items():
                if isinstance(value, int) and value > MOST and _COUNT.search(key):
                    raise ValueError(
                        f"The config.json of {name} has {key}={value:.3g}, which no model has: fetch it again."
                    )
            one = list(one.values())
        rest += one if isinstance(one, list) else []


def check_depth(layers: Any, tensors: Collection[str], name: str) -> None:
    """Check that a checkpoint holds about as many layers as its configuration says; missing ones are named later.

    Args:
        layers: Number of layers of the configuration.
        tensors: Names of the checkpoint's tensors; none if they are not known yet.
        name: Name of the model, for messages.

    Raises:
        ValueError: There are no layers, or the checkpoint holds less than half of them, so that building the others
            would take long and fill the memory.
    """
    held = len({number[1] for tensor in tensors if (number := _NUMBER.search(tensor))})
    if isinstance(layers, int) and not 0 < layers <= (2 * held + 10 if tensors else MOST):
        raise ValueError(f"{name} has weights of {held} layers, and its configuration names {layers}: fetch it again.")


def check_config(config: Any, name: str) -> None:
    """Check that a configuration is that of a decoder-only language model.

    Raises:
        ValueError: It is another kind of model.
    """
    kind = type(config).__name__.removesuffix("Config")
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"{name} is an encoder-decoder model ({kind}), which does not continue its prompt: use a causal model."
        )
    own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ValueError(f"{name} is not a causal language model ({kind}): use a model that continues text.")


def check_weights(missing: Iterable[str], name: str) -> None:
    """Check that a checkpoint held all weights, given those it lacked.

    Raises:
        ValueError: Weights are missing; transformers fills them with random numbers.
    """
    if lacking := sorted(missing):
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise ValueError(
            f"{name} has no weights for {', '.join(lacking[:3])}{more}, which would be random: use a checkpoint of the "
            "whole language model, output layer included."
        )


def check_vocabulary(tokenizer: Any, model: Any, name: str) -> None:
    """Check that a model has an embedding of every token that texts consist of.

    Tokens that were added later do not count: some models come with one for images, which they cannot read.

    Raises:
        ValueError: The tokenizer is that of another model.
    """
    ids = [*tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values()]
    ids += [id for id in (tokenizer.bos_token_id, tokenizer.eos_token_id) if id is not None]
    known = model.get_input_embeddings().weight.shape[0]
    if max(ids, default=0) >= known:
        raise ValueError(
            f"The tokenizer of {name} has a token {max(ids)}, and the model knows {known}: fetch the tokenizer.json of "
            "this model."
        )


def check_model(model: Any, name: str) -> None:
    """Check on a few tokens that no logit depends on later tokens, and that ``Head`` returns the model's logits.

    Raises:
        ValueError: The model looks ahead, its logits cannot be computed from its hidden states, or its output layer is
            on no device.
    """
    output = model.get_output_embeddings()
    if output is not None and any(weight.is_meta for weight in output.parameters()):
        raise ValueError(
            f"{name} is too large for its devices: its output layer was offloaded, which is not supported. Use more "
            "GPUs, a quantization, or a device_map that keeps the output layer on a device."
        )
    limit = ROUNDING.get(model.dtype, ROUNDING_16_BIT)
    probe = torch.tensor([PROBE], device=model.device)
    other = torch.tensor([[*PROBE[:-1], 0]], device=model.device)
    with torch.inference_mode():
        whole = model(probe, use_cache=False).logits[0].float()  # (n, V)
        if not _alike(whole[:-1], model(other, use_cache=False).logits[0, :-1].float(), limit):
            raise ValueError(f"{name} attends to later tokens, so it is not a causal model: use one that is.")
        try:
            ours = Head(model)(decoder(model)(input_ids=probe, use_cache=False).last_hidden_state[0])
        except (AttributeError, TypeError, RuntimeError, IndexError) as error:
            raise ValueError(
                f"{name} returns no hidden states apart from its logits, which is not supported: use another model."
            ) from error
    if not _alike(whole, ours, limit):
        raise ValueError(
            f"{name}'s logits do not follow from its hidden states, which is not supported: use another model."
        )


def _alike(a: torch.Tensor, b: torch.Tensor, limit: float) -> bool:
    """Return whether two tensors are equal up to a share of the largest magnitude."""
    scale = float(a.nan_to_num(0, 0, 0).abs().max())
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=limit * scale, equal_nan=True)
