"""Which model a command means by the text after ``--lm``."""

from __future__ import annotations

import sys
from typing import Any

SERVER = "hosted_vllm/"
ANY = "dspy:"
EMBEDDED = "embedded"


def open_lm(
    name: str,
    *,
    api_base: str | None = None,
    tokenizer: str | None = None,
    in_flight: int = 64,
    device: str = "auto",
    dtype: str = "auto",
) -> Any:
    """A model by name.

    Args:
        name: ``embedded``, a folder, a Hugging Face name, a server's model (``NAME`` or, as DSPy writes it,
            ``hosted_vllm/NAME``), or any other of DSPy's models (``dspy:PROVIDER/NAME``; its key is read from the
            environment by DSPy).
        api_base: The server's address; a name with one is a server's, whose key is read from ``OPENAI_API_KEY``.
        tokenizer: Of a server's model; see ``ServerLM``.
        in_flight: Requests to a server at the same time.
        device: Of a local model.
        dtype: Of a local model.

    Raises:
        ValueError: A server without an address.
    """
    if name == EMBEDDED:
        from evalbias.lm.embedded import embedded_judge_lm

        return embedded_judge_lm(device=device)
    if name.startswith(ANY):
        import dspy

        return dspy.LM(name.removeprefix(ANY), api_base=api_base, cache=False)
    if api_base is not None or name.startswith(SERVER):
        if api_base is None:
            raise ValueError(f"--lm {name} is a server's model: give its address with --api-base http://HOST:PORT/v1.")
        from evalbias.lm.server import ServerLM

        lm = ServerLM(name.removeprefix(SERVER), base_url=api_base, tokenizer=tokenizer, in_flight=in_flight)
        sys.stderr.write(f"{name}: {lm.capabilities}\n")
        return lm
    from evalbias.lm.local import LocalLM

    return LocalLM(name, device=device, dtype=dtype)


def identity(lm: Any) -> dict[str, Any]:
    """What decides the model's numbers, for run.json and for the journal's keys: never an address or a key."""
    if hasattr(lm, "provenance"):
        return dict(lm.provenance())
    return {"model": str(lm.model)}
