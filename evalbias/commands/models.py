"""Which model a command means by the text after ``--lm``."""

from __future__ import annotations

from typing import Any

SERVER = "hosted_vllm/"
ANY = "dspy:"
EMBEDDED = "embedded"


def open_lm(name: str, *, api_base: str | None = None, device: str = "auto", dtype: str = "auto") -> Any:
    """A model by name.

    Args:
        name: ``embedded``, a folder, a Hugging Face name, a server's model as DSPy writes it (``hosted_vllm/NAME``), or
            any other of DSPy's models (``dspy:PROVIDER/NAME``; its key is read from the environment by DSPy).
        api_base: The server's address; a name with one is a server's.
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
        import dspy

        # DSPy's cache would know the server by its model's name alone; the run folder's journal is what is replayed.
        return dspy.LM(name, api_base=api_base, engine="lm15", cache=False)
    from evalbias.lm.local import LocalLM

    return LocalLM(name, device=device, dtype=dtype)


def identity(lm: Any) -> dict[str, Any]:
    """What decides the model's numbers, for run.json and for the journal's keys: never an address or a key."""
    if hasattr(lm, "provenance"):
        return dict(lm.provenance())
    return {"model": str(lm.model)}
