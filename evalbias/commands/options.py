"""Options that several commands share; nothing heavy is imported here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer

LM = Annotated[
    str,
    typer.Option(
        "--lm",
        help="'embedded', a folder, a .gguf file, a Hugging Face name, a server's model (--api-base), or a hosted "
        "model, such as openai/gpt-4o-mini (any other of DSPy's: dspy:PROVIDER/NAME).",
    ),
]
Data = Annotated[
    str,
    typer.Option(
        help="A .jsonl, .json, .csv, .tsv or .parquet file, NAME:PATH of a known data set, or hf:NAME[:SPLIT]."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OURS=THEIRS,...",
        help="Names of the data's columns, such as source=question,output=answer,score=rating. Repeatable.",
    ),
]
Criteria = Annotated[
    list[str] | None, typer.Option("--criterion", help="A preset's name, or 'name: definition'. Repeatable.")
]
Scale = Annotated[str, typer.Option(help="Scale of criteria given as 'name: definition', such as 1-5.")]
LikelihoodLM = Annotated[
    str | None, typer.Option(help="Model whose likelihood defines LS; by default the judge's model.")
]
Seed = Annotated[int, typer.Option(help="Seed for everything that is drawn at random.")]
Out = Annotated[
    Path | None, typer.Option(help="The run's folder; by default one under runs/, the same for the same settings.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else on stdout.")]
K = Annotated[int, typer.Option("-k", help="Number of demonstrations.", min=1)]
Shots = Annotated[
    int, typer.Option("-k", help="Number of random demonstrations; 0 for none, as adapted models are asked.", min=0)
]
SplitBy = Annotated[
    Literal["instance", "input"], typer.Option(help="By input: no input stands on both sides of the split.")
]
Reduction = Annotated[
    Literal["sum", "mean"], typer.Option(help="Reduction of token log-probabilities to LS; the paper's is sum.")
]
Normalization = Annotated[
    Literal["mean-range", "center-max"],
    typer.Option(help="Normalization of the scores in RS: mean-range is the paper's, center-max its code's."),
]
Resamples = Annotated[int, typer.Option(help="Swaps of the permutation test.", min=1)]
MaxLoss = Annotated[
    float,
    typer.Option(
        help="Fall in performance (Spearman's rho) that a smaller bias may cost, such as 0.05; 0: no significant fall.",
        min=0.0,
        max=0.99,
    ),
]
Bare = Annotated[
    bool,
    typer.Option(
        "--bare", help="The paper's method as it is, which may make a judge worse, instead of what is shown to help."
    ),
]
KeepWorse = Annotated[
    bool,
    typer.Option("--keep-worse", help="Write the result also where it is not better than what was given, or is worse."),
]
Reliability = Annotated[
    float | None,
    typer.Option(
        help="Share of a single rating's variance that is quality, for items with one rating each; without it, "
        "effects at equal quality have bounds only.",
        min=0.01,
        max=1.0,
    ),
]
Limit = Annotated[int | None, typer.Option(help="Use only so many items, drawn with the seed.", min=1)]
Candidates = Annotated[
    Path | None,
    typer.Option(
        help="File of ids, one a line: only these training items may become demonstrations.",
        exists=True,
        dir_okay=False,
    ),
]
ProposerLM = Annotated[
    str,
    typer.Option(help="Model that rewords: 'grammar' (no model), or one as for --lm."),
]
ProposerApiBase = Annotated[str | None, typer.Option(help="Address of the server that --proposer-lm names.")]
SourceLabel = Annotated[str | None, typer.Option(help="Name of the source in prompts, such as Dialogue.")]
OutputLabel = Annotated[str | None, typer.Option(help="Name of an output in prompts, such as Reply.")]
OneCriterion = Annotated[
    str | None, typer.Option("--criterion", help="'name: definition', or the name of one of the data set's own.")
]
SavedPairwise = Annotated[
    Path | None, typer.Option("--judge", help="A pairwise judge's JSON file.", exists=True, dir_okay=False)
]
Debias = Annotated[
    Literal["none", "permutation"] | None,
    typer.Option(help="permutation asks in both orders and averages; by default as the saved judge does."),
]
Calibration = Annotated[
    Literal["none", "contextual", "batch", "pride", "calibraeval"] | None,
    typer.Option(help="Remove the positions' own probabilities, without labels; by default as the saved judge does."),
]
Ties = Annotated[bool, typer.Option("--ties", help="Let the judge answer that there is no difference.")]
Pairs = Annotated[
    str, typer.Option("--pairs", metavar="N|all", help="Largest number of pairs, drawn with the seed, or 'all'.")
]
Documents = Annotated[int | None, typer.Option(help="Use only so many documents (inputs), drawn with the seed.", min=1)]
Search = Annotated[Literal["greedy", "beam"], typer.Option(help="Search by which comparisons make an order.")]

Metric = Annotated[
    Literal["chrf", "bleu", "comet", "bleurt"],
    typer.Option("--metric", help="Reference metric of translations; comet and bleurt run in a Python of their own."),
]
MetricPython = Annotated[
    Path | None, typer.Option(help="Python of the environment in which comet or bleurt is installed.")
]
Checkpoint = Annotated[str | None, typer.Option(help="Checkpoint of comet (name or file) or bleurt (folder).")]
QuantileMapFile = Annotated[
    Path | None,
    typer.Option(
        "--quantile-map",
        help="Pairs of the metric's and human MQM scores, for Bias: .jsonl or .csv with a field named after the metric "
        "and a field mqm; or a saved QuantileMap (.json).",
        exists=True,
        dir_okay=False,
    ),
]


def pair_limit(text: str) -> int | None:
    """Read ``--pairs``: a number of at least 1, or None for all pairs."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"--pairs {text}: give a number of at least 1, or 'all'.")
    return int(text)


@dataclass(frozen=True)
class ModelOptions:
    """Options that decide how models are opened."""

    api_base: Annotated[
        str | None,
        typer.Option(
            metavar="URL[,URL,...]",
            help="Address of the server that --lm names, or of several servers of that model.",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Tokenizer of a server's model: a folder or a name; vLLM and SGLang name their own."),
    ] = None
    in_flight: Annotated[int, typer.Option(help="Requests to each server at the same time.", min=1)] = 64
    adapter: Annotated[str | None, typer.Option(help="Folder of a LoRA adapter of --lm, a local model.")] = None
    device: Annotated[str, typer.Option(help="Device of local models: auto, cpu, cuda or cuda:0.")] = "auto"
    dtype: Annotated[str, typer.Option(help="Type of local models: auto, float32, bfloat16 or float16.")] = "auto"
    template_options: Annotated[
        str | None,
        typer.Option(help="Variables of --lm's chat template as JSON, such as '{\"enable_thinking\": true}'."),
    ] = None
    samples: Annotated[
        int | None,
        typer.Option(help="Estimate probabilities from so many answers to each prompt: for models without any.", min=2),
    ] = None
    sample_temperature: Annotated[float, typer.Option(help="Sampling temperature of these answers.")] = 1.0
    sample_tokens: Annotated[
        int, typer.Option(help="Token limit of each of these answers; models that reason first need a high one.", min=1)
    ] = 16
    dialect: Annotated[str, typer.Option(help="How the server is asked, such as vllm or chat; auto finds out.")] = (
        "auto"
    )
    exact_resume: Annotated[
        bool,
        typer.Option(
            "--exact-resume",
            help="Repeat the last digits too when a stopped run goes on; local models read shared texts more often.",
        ),
    ] = False
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="ray[:N]",
            help="Open --lm, a local model, in N workers on a Ray cluster; by default one a GPU, or one for two cores.",
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin a long run without a question.")] = False

    def of_another(self, api_base: str | None = None) -> ModelOptions:
        """Return the options for another model than --lm, behind another address or none."""
        own: dict[str, Any] = {"tokenizer": None, "template_options": None, "adapter": None, "workers": None}
        return replace(self, **own, api_base=api_base, dialect="auto")


Models = ModelOptions
Command = TypeVar("Command", bound=Callable[..., None])


def opening_models(command: Command) -> Command:
    """Replace a command's parameter ``models`` by the options of ``ModelOptions``, in its place."""

    @wraps(command)
    def with_models(**given: Any) -> None:
        models = ModelOptions(**{field.name: given.pop(field.name) for field in fields(ModelOptions)})
        command(models=models, **given)

    hints = get_type_hints(ModelOptions, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(f.name, kind, annotation=hints[f.name], default=f.default) for f in fields(ModelOptions)
    ]
    own = inspect.signature(command, eval_str=True).parameters
    parameters = [x for p in own.values() for x in (options if p.name == "models" else [p.replace(kind=kind)])]
    with_models.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_models.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_models  # type: ignore[return-value]
