"""``LocalLM``: a transformers model on this machine as a ``dspy.LM`` with token probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evalbias.lm.decisions import DecidingLM
from evalbias.lm.engine import LocalEngine
from evalbias.lm.engine_base import AsyncEngine
from evalbias.lm.loading import load
from evalbias.lm.saved import SavedLM
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, Prompt

BATCH_TOKENS = {"cpu": 16_384, "cuda": 131_072}
PREFIX_BYTES = {"cpu": 1 << 29, "cuda": 1 << 32}


class LocalLM(DecidingLM, SavedLM):
    """A causal transformers model, on GPU or CPU; of a multimodal model, the part that reads text.

    Logits are those of the model's own code, scaling and capping included; the output layer is computed in float32.
    Prompts of chat models go through the chat template, those of base models through ``evalbias.lm.text``. DSPy's
    decision outputs (``Noul``, ``Choice``, ``Score``) are answered with measured probabilities; see ``DecidingLM``.

    Args:
        model: Folder, GGUF file or Hugging Face name of the model. A GGUF file takes the extra ``gguf``; its weights
            are dequantized to float32 once, into the user's cache (4 bytes a parameter; see ``evalbias.lm.gguf``).
        device: Device of the model; ``"auto"`` takes a GPU if there is one.
        dtype: Data type of the weights; ``"auto"`` keeps their own. In ``"float32"`` an answer does not depend on the
            batch, up to 1e-5 nats.
        revision: Revision of a Hugging Face model.
        batch_tokens: Largest number of tokens in one forward pass, which decides the memory. None chooses by device.
        share_prefixes: Whether to compute prefixes that prompts share only once.
        prefix_bytes: Size in bytes of the prefix cache, which is kept between calls; 0 turns it off. None chooses by
            device.
        trust_remote_code: Whether the model may run its own code.
        template_options: Values of the chat template's variables, such as ``{"enable_thinking": True}``, which is
            otherwise False where the template has it.
        adapter: Folder of a LoRA adapter in peft's format, which is merged into the weights; takes the extra ``peft``.
        device_map: Spreads a model over several GPUs, in place of ``device``: ``"auto"``, or module -> device as in
            transformers; takes the extra ``gpu``.
        quantization: Settings with which transformers quantizes the weights as it loads them, such as
            ``{"quant_method": "bitsandbytes", "load_in_8bit": True}`` or ``{"quant_method": "fp8"}``; takes the extra
            ``gpu`` and the method's own package. Probabilities change with the weights, and so does the fingerprint.
        **kwargs: Options of ``dspy.LM``: ``temperature``, ``max_tokens``, ``cache`` and others.

    Raises:
        FileNotFoundError: A folder or file does not exist, or contains no model or no adapter.
        ImportError: An extra that the model, the adapter or another option takes is not installed.
        ValueError: The device, dtype or quantization is unknown, the device is missing, options exclude each other, the
            chat template lacks an option, the model is not a causal language model, its checkpoint lacks weights, the
            GGUF file is not of a supported kind, or the adapter does not fit the model.
    """

    draws_by_seed = True
    """A request with a seed gets the same text in any process."""
    default_temperature = 0.0
    """Temperature of a request that sets none."""

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
        template_options: Mapping[str, Any] | None = None,
        adapter: str | None = None,
        device_map: str | Mapping[str, Any] | None = None,
        quantization: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        loaded = load(
            model,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            template_options=template_options,
            adapter=adapter,
            device_map=device_map,
            quantization=quantization,
        )
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
        """Return the log-probability in nats of each continuation after its context; see ``MeasuringLM``.

        Raises:
            ValueError: An item is no pair of context and continuation, a continuation is empty, or nothing precedes it.
            PromptTooLong: A text is longer than the model's context.
            TextUnknown: A continuation has words that the model's vocabulary lacks.
            FloatingPointError: The model returned NaN or infinite logits.
        """
        return self._local.loglikelihood(pairs)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability in nats of every choice after every prompt; see ``MeasuringLM``.

        Raises:
            ValueError: The prompts are a single text, or there are no choices, or one is empty or repeated.
            PromptTooLong: A prompt is longer than the model's context.
            FloatingPointError: The model returned NaN or infinite logits.
        """
        return self._local.choice_logprobs(prompts, choices)

    def forget(self) -> None:
        """Clear the prefix cache, whose reuse may change the last digits of an answer."""
        self._local.forget()

    @property
    def context_length(self) -> int:
        """Context length of the model in tokens."""
        return self._local.loaded.context_length

    @property
    def parameters(self) -> int:
        """Number of the model's parameters."""
        return int(self._local.loaded.model.num_parameters())

    @property
    def tokens_run(self) -> int:
        """Number of tokens that went through the model for probabilities so far, padding included."""
        return self._local.scorer.tokens_run

    @property
    def tokens_distinct(self) -> int:
        """Number of distinct tokens of the calls so far: the least that a model without a prefix cache has to run."""
        return self._local.scorer.tokens_distinct

    def provenance(self) -> dict[str, str]:
        """Return the settings that decide the numbers: model, fingerprint, dtype, device and versions."""
        loaded = self._local.loaded
        adapter = loaded.arguments["adapter"]
        return {
            "model": self.model,
            **({} if adapter is None else {"adapter": Path(adapter).resolve().name}),
            "revision": str(loaded.arguments["revision"]),
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "device": str(loaded.model.device),
            "torch": version("torch"),
            "transformers": version("transformers"),
        }

    def saved_arguments(self) -> dict[str, Any]:
        """Return the arguments of ``LocalLM``; see ``SavedLM``."""
        return self._local.dump_state()

    @property
    def _local(self) -> LocalEngine:
        engine: LocalEngine = self.engine
        return engine
