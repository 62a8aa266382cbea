"""Open the model that a name on the command line stands for."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from evalbias.cli.terminal import say
from evalbias.options import MeasuringModels
from evalbias.values import json_object

SERVER = "hosted_vllm/"
ANY = "dspy:"
EMBEDDED = "embedded"
PROVIDERS = frozenset({"openai", "anthropic", "azure", "bedrock", "vertex_ai", "gemini", "mistral", "cohere", "groq"})
PROVIDERS |= {"deepseek", "xai", "together_ai", "fireworks_ai", "openrouter", "perplexity", "ollama", "ollama_chat"}
"""Providers of hosted models, as DSPy and litellm write them before a slash."""
OPEN = ("openai/gpt-oss", "openai/privacy-filter")  # begin names of open models, although a provider is called so
OWN_NAMES = {"openai": r"gpt-\d|chatgpt-|o\d(-|$)", "anthropic": "claude-", "gemini": "gemini-", "xai": "grok-"}
"""Provider -> how names of its models begin."""
Kind = Literal["embedded", "local", "server", "dspy"]
DEFAULTS = MeasuringModels()
RETRIES = 6  # after 1, 2, 4 ... seconds, or as the provider says: together over a minute, as limits of requests count
OPENAI = "openai/"
OPENAI_ADDRESS = "https://api.openai.com/v1"


def open_lm(name: str, options: MeasuringModels = DEFAULTS, *, writes: bool = False) -> Any:
    """Open a model by name; refuse options that the model cannot use.

    The name is ``embedded``, a folder, a GGUF file, a Hugging Face name, a server's model (``NAME`` or, as DSPy writes
    it, ``hosted_vllm/NAME``; any name with an address counts), a hosted model (``openai/gpt-4o-mini``; see
    ``PROVIDERS``), or any other of DSPy's models (``dspy:PROVIDER/NAME``), which reads their keys from the environment.
    For a server's key see ``evalbias.lm.transport.key_for``. A server that only ``writes`` needs no probabilities.
    """
    if options.dialect != "auto" and name.startswith(OPENAI) and options.api_base is None:
        name, options = name.removeprefix(OPENAI), replace(options, api_base=OPENAI_ADDRESS)
    elif options.api_base is None and is_hosted(name):
        name = ANY + name
    elif options.api_base is None and not Path(name).exists():
        for provider, own_name in OWN_NAMES.items():
            if re.match(own_name, name):
                raise ValueError(f"--lm {name} is no folder: the hosted model is {provider}/{name}.")
    kind: Kind = "server" if options.api_base is not None or name.startswith(SERVER) else "local"
    kind = "embedded" if name == EMBEDDED else "dspy" if name.startswith(ANY) else kind
    template = None
    if (words := options.template_options) is not None:
        remedy = """give names with values, such as '{"enable_thinking": true}'"""
        template = json_object(words.encode(), "--template-options", remedy)
    _check(name, kind, options, template)
    if kind == "embedded":
        from evalbias import embedded_judge_lm

        if Path(name).exists():
            say(f"{name} is the judge that comes with evalbias; for the model in the folder, give .{os.sep}{name}.")
        return embedded_judge_lm(device=options.device)
    if kind == "dspy":
        return _dspy(name.removeprefix(ANY), options.api_base, options)
    if kind == "server":
        return _server(name, options, template, writes=writes)
    from evalbias import LocalLM

    return LocalLM(name, device=options.device, dtype=options.dtype, template_options=template, adapter=options.adapter)


def _check(name: str, kind: Kind, options: MeasuringModels, template: dict[str, Any] | None) -> None:
    if template and kind in ("embedded", "dspy"):
        raise ValueError(f"--template-options: {name} has no chat template here, leave them out.")
    if options.adapter is not None and kind != "local":
        raise ValueError(f"--adapter: {name} takes none; only a folder, a GGUF file or a Hugging Face name does.")
    if options.dialect != "auto" and kind != "server":
        raise ValueError(f"--dialect {options.dialect}: {name} is no server's model; give an address with --api-base.")
    if kind == "embedded" and options.api_base is not None:
        raise ValueError(f"--api-base: {name} is the model that ships with evalbias, leave the address out.")
    if kind == "embedded" and options.dtype not in ("auto", "float32"):
        raise ValueError(f"--dtype {options.dtype}: {name} runs in float32, leave it out.")
    if options.api_key_env is not None and options.api_base is None:
        raise ValueError(f"--api-key-env: {name} has no address that takes a key, give one with --api-base.")
    if kind == "dspy" and options.api_base is not None and "," in options.api_base:
        raise ValueError(f"--api-base: {name} is asked at one address; several are for a server's model.")
    if kind == "server" and options.api_base is None:
        raise ValueError(f"--lm {name} is a server's model: give its address with --api-base http://HOST:PORT/v1.")


def _dspy(model: str, address: str | None, options: MeasuringModels) -> Any:
    """Open one of DSPy's models; at an address of the user's, DSPy may take no key from the environment itself."""
    import dspy

    from evalbias.lm.transport import key_for

    own = {} if address is None else {"api_key": key_for([address], _named_key(options)) or "none"}
    return dspy.LM(model, api_base=address, cache=False, num_retries=RETRIES, **own)


def _named_key(options: MeasuringModels) -> str | None:
    """Return the key in the variable that ``--api-key-env`` names; None if it names none."""
    key = None if options.api_key_env is None else os.environ.get(options.api_key_env)
    if options.api_key_env is not None and not key:
        raise ValueError("--api-key-env: the variable is not set: give the name of one that holds the key.")
    return key


def _server(name: str, options: MeasuringModels, template: dict[str, Any] | None, *, writes: bool) -> Any:
    """Open a server's model; without token probabilities, it becomes a ``dspy.LM`` that writes or is sampled."""
    from evalbias import ServerLM
    from evalbias.lm.types import NoProbabilities

    model = name.removeprefix(SERVER)
    addresses = [address.strip() for address in (options.api_base or "").split(",")]
    try:
        lm = ServerLM(
            model,
            base_url=addresses,
            api_key=_named_key(options),
            tokenizer=options.tokenizer,
            in_flight=options.in_flight,
            template_options=template,
            dialect=options.dialect,
        )
    except NoProbabilities:
        if (options.samples is None and not writes) or len(addresses) > 1:
            raise
        if template:
            raise ValueError(
                f"--template-options: {name} reports no token probabilities and is asked with the template that its "
                "server applies, leave them out."
            ) from None
        if not writes:
            say(f"{name}: no token probabilities, so --samples estimates them from answers")
        return _dspy(OPENAI + model, addresses[0], options)
    say(f"{name}: {lm.capabilities}")
    return lm


def is_hosted(name: str) -> bool:
    """Return whether a name is a hosted model's, such as ``openai/gpt-4o-mini``; a folder of that name has priority.

    Examples:
        >>> [is_hosted(name) for name in ("openai/gpt-4o-mini", "openai/gpt-oss-20b", "Qwen/Qwen3-8B")]
        [True, False, False]
    """
    return name.partition("/")[0] in PROVIDERS and "/" in name and not name.startswith(OPEN) and not Path(name).exists()


def hosted_name(name: str) -> str | None:
    """Return a hosted model's name as price lists have it; None for other models."""
    return name.removeprefix(ANY) if name.startswith(ANY) or is_hosted(name) else None
