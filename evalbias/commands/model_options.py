"""Options that decide how models are opened; nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from evalbias.commands.option_groups import Without
from evalbias.commands.sections import model_option, run_option


@dataclass(frozen=True)
class ModelOptions:
    """Options that decide how models are opened."""

    api_base: Annotated[
        str | None,
        model_option(
            metavar="URL[,URL,...]",
            help="Address of the server that runs --lm, or of several.",
        ),
    ] = None
    api_key_env: Annotated[
        str | None,
        model_option(
            metavar="NAME",
            help="Environment variable that holds the key for --api-base. By default EVALBIAS_API_KEY, and "
            "OPENAI_API_KEY for OpenAI's own address only.",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        model_option(help="Tokenizer of a server's model, a folder or a name. vLLM and SGLang report theirs."),
    ] = None
    in_flight: Annotated[
        int,
        model_option(
            help="Concurrent requests to each server of --api-base, at most; hosted models get 16.",
            min=1,
        ),
    ] = 64
    adapter: Annotated[
        str | None, model_option(help="Folder of a LoRA adapter for --lm, if that is a local model.")
    ] = None
    device: Annotated[str, model_option(help="Device for local models: auto, cpu, cuda or cuda:0.")] = "auto"
    dtype: Annotated[str, model_option(help="Data type of local models: auto, float32, bfloat16 or float16.")] = "auto"
    template_options: Annotated[
        str | None,
        model_option(help="Variables for the chat template of --lm, as JSON, such as '{\"enable_thinking\": true}'."),
    ] = None
    samples: Annotated[
        int | None,
        model_option(
            help="Estimate probabilities from this many answers to a prompt, if the model reports none.", min=2
        ),
    ] = None
    sample_temperature: Annotated[float, model_option(help="Sampling temperature of these answers.")] = 1.0
    sample_tokens: Annotated[
        int,
        model_option(help="Token limit of these answers. Models that reason first need more.", min=1),
    ] = 16
    dialect: Annotated[str, model_option(help="Protocol of the server, such as vllm or chat; auto detects it.")] = (
        "auto"
    )
    exact_resume: Annotated[
        bool,
        run_option(
            "--exact-resume",
            help="Make a resumed run give exactly the same numbers. Local models are then slower.",
        ),
    ] = False
    workers: Annotated[
        str | None,
        model_option(
            metavar="ray[:N]",
            help="Run a local --lm in N workers of a Ray cluster. Default: one per GPU, or per two cores.",
        ),
    ] = None
    yes: Annotated[bool, run_option("--yes", "-y", help="Start long runs without asking.")] = False

    def of_another(self, api_base: str | None = None) -> ModelOptions:
        """Return the options for another model than --lm, behind another address or none."""
        own: dict[str, Any] = {"tokenizer": None, "template_options": None, "adapter": None, "workers": None}
        own["api_key_env"] = self.api_key_env if api_base == self.api_base else None
        return replace(self, **own, api_base=api_base, dialect="auto")


WriterOptions = Annotated[
    ModelOptions,
    Without({"samples", "sample_temperature", "sample_tokens", "exact_resume", "workers", "yes"}),
]
"""Options of a model that writes: it is asked for no probabilities, and its run is neither planned nor distributed."""
