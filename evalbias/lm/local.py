"""``LocalLM``: a transformers model on this machine as a ``dspy.LM`` that tells its probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dspy

from evalbias.lm.engine import LocalEngine
from evalbias.lm.loading import load
from evalbias.lm.requests import AsyncEngine
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, Prompt

BATCH_TOKENS = {"cpu": 16_384, "cuda": 131_072}
PREFIX_BYTES = {"cpu": 1 << 29, "cuda": 1 << 32}


class LocalLM(dspy.LM):  # type: ignore[misc]
    """A model of transformers, on GPU or CPU.

    Chat models are asked through their template; base models as text (``evalbias.lm.text``).

    Args:
        model: A folder, or a Hugging Face name.
        device: ``"auto"`` takes a GPU if there is one.
        dtype: ``"auto"`` takes the weights' own; ``"float32"`` gives answers that do not depend on the batch to 1e-5.
        revision: Of a Hugging Face model.
        batch_tokens: Tokens in one forward pass; memory grows with it. None chooses by device.
        share_prefixes: Whether prompts that begin alike share their computation.
        prefix_bytes: Memory for the beginnings of earlier prompts, so that the next call with the same one starts
            warm; 0 keeps none. None chooses by device.
        trust_remote_code: Whether the model may run its own code.
        **kwargs: As ``dspy.LM``: ``temperature``, ``max_tokens``, ``cache`` and others.

    Raises:
        FileNotFoundError: The folder is missing or holds no model.
        ValueError: An unknown or missing device, an unknown dtype, or a model that cannot be measured.
    """

    draws_by_seed = True
    """A request with a seed gets the same text in any process."""

    def __init__(
        self,
        model: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        revision: str | None = None,
        batch_tokens: int | None = None,
        share_prefixes: bool = True,
        prefix_bytes: int | None = None,
        trust_remote_code: bool = False,
        **kwargs: Any,
    ) -> None:
        loaded = load(model, device=device, dtype=dtype, revision=revision, trust_remote_code=trust_remote_code)
        size = batch_tokens or BATCH_TOKENS.get(loaded.model.device.type, BATCH_TOKENS["cpu"])
        if prefix_bytes is None:
            prefix_bytes = PREFIX_BYTES.get(loaded.model.device.type, PREFIX_BYTES["cpu"])
        engine = LocalEngine(
            loaded, batch_tokens=size, share_prefixes=share_prefixes, prefix_bytes=prefix_bytes if share_prefixes else 0
        )
        # DSPy's cache knows a model by this name alone, so the name says which weights they are.
        name = f"local/{Path(model).resolve().name if Path(model).exists() else model}@{loaded.fingerprint}"
        super().__init__(name, engine=engine, async_engine=AsyncEngine(engine), **kwargs)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability in nats of each continuation after its context; see ``MeasuringLM``.

        Raises:
            ValueError: An empty continuation, or one that nothing precedes.
            PromptTooLong: A text longer than the model's context.
            FloatingPointError: NaN or infinite logits.
        """
        return self._local.loglikelihood(pairs)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability in nats of every choice after every prompt; see ``MeasuringLM``.

        Raises:
            ValueError: No choices, or an empty or repeated one.
            PromptTooLong: A prompt longer than the model's context.
            FloatingPointError: NaN or infinite logits.
        """
        return self._local.choice_logprobs(prompts, choices)

    def forget(self) -> None:
        """Start cold: keep no prefix of earlier calls. Their reuse may change the last digits of an answer."""
        self._local.forget()

    @property
    def context_length(self) -> int:
        """In tokens."""
        return self._local.loaded.context_length

    @property
    def tokens_run(self) -> int:
        """Tokens that went through the model for probabilities so far, padding included."""
        return self._local.scorer.tokens_run

    @property
    def tokens_distinct(self) -> int:
        """Distinct tokens of the calls so far: what any model must run that starts each of them cold."""
        return self._local.scorer.tokens_distinct

    def provenance(self) -> dict[str, str]:
        """Which numbers these are: model, fingerprint, dtype, device and versions."""
        loaded = self._local.loaded
        return {
            "model": self.model,
            "revision": str(loaded.arguments["revision"]),
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "device": str(loaded.model.device),
            "torch": version("torch"),
            "transformers": version("transformers"),
        }

    def dump_state(self) -> dict[str, Any]:
        """What ``LocalLM(**state)`` opens the same model with, as a saved program keeps it: no weights, no keys."""
        own: dict[str, Any] = dspy.BaseLM.dump_state(self)
        return {**own, **self._local.dump_state()}

    @property
    def _local(self) -> LocalEngine:
        engine: LocalEngine = self.engine
        return engine
