"""Options that several commands share; nothing heavy is imported here."""

from __future__ import annotations

import inspect
import re
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
        help="'embedded', a folder, a .gguf file, a Hugging Face name, a server's model (with --api-base), or a hosted "
        "model such as openai/gpt-4o-mini (for any other model that DSPy reaches: dspy:PROVIDER/NAME).",
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
        help="Names of your columns, such as source=question,output=answer,score=rating; for several raters "
        "rating_1=anna,rating_2=ben. Repeatable.",
    ),
]
Criteria = Annotated[
    list[str] | None, typer.Option("--criterion", help="A preset's name, or 'name: definition'. Repeatable.")
]
Scale = Annotated[
    str | None,
    typer.Option(help="Scale of the criteria that you give as 'name: definition', such as 1-7; 1-5 if not given."),
]
LikelihoodLM = Annotated[
    str | None, typer.Option(help="Model that measures how likely the outputs are. By default, the judge's model.")
]
Seed = Annotated[int, typer.Option(help="Seed for all random draws.")]
Out = Annotated[
    Path | None,
    typer.Option(help="The run's folder. By default, one under runs/; the same settings give the same folder."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")]
K = Annotated[int, typer.Option("-k", help="Number of demonstrations.", min=1)]
Shots = Annotated[
    int,
    typer.Option("-k", help="Number of random demonstrations; 0 for none, as models with an adapter expect.", min=0),
]
SplitBy = Annotated[
    Literal["instance", "input"],
    typer.Option(help="What to split by; with input, all items of one input land on the same side."),
]
Reduction = Annotated[
    Literal["sum", "mean"],
    typer.Option(
        help="How an output's likelihood is computed from the log-probabilities of its tokens; the paper uses sum."
    ),
]
Normalization = Annotated[
    Literal["mean-range", "center-max"],
    typer.Option(help="How RS normalizes scores: mean-range as in the paper, center-max as in its code."),
]
Resamples = Annotated[int, typer.Option(help="Number of random swaps in the permutation test.", min=1)]
MaxLoss = Annotated[
    float,
    typer.Option(
        help="Loss of performance (Spearman's rho) to allow for a smaller bias, such as 0.05; 0 allows no "
        "significant loss.",
        min=0.0,
        max=0.99,
    ),
]
Bare = Annotated[
    bool,
    typer.Option(
        "--bare", help="Return the result of the paper's method unchecked, although it may make a judge worse."
    ),
]
KeepWorse = Annotated[
    bool,
    typer.Option("--keep-worse", help="Write the result even if it is no better than what was given, or worse."),
]
Reliability = Annotated[
    float | None,
    typer.Option(
        help="Share of a single rating's variance that is quality, for items with one rating each. Without it, "
        "effects at equal quality have only bounds.",
        min=0.01,
        max=1.0,
    ),
]
Limit = Annotated[int | None, typer.Option(help="Use only this many items, drawn with the seed.", min=1)]
Candidates = Annotated[
    Path | None,
    typer.Option(
        help="File of ids, one per line: only these training items may become demonstrations.",
        exists=True,
        dir_okay=False,
    ),
]
ProposerLM = Annotated[
    str,
    typer.Option(help="Model that rewords the instruction: 'grammar' (no model), or any that --lm takes."),
]
ProposerApiBase = Annotated[str | None, typer.Option(help="Address of the server that runs --proposer-lm.")]
SourceLabel = Annotated[str | None, typer.Option(help="Name of the source in prompts, such as Dialogue.")]
OutputLabel = Annotated[str | None, typer.Option(help="Name of an output in prompts, such as Reply.")]
WrittenFor = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="Task that the outputs were written for, such as 'Summarize the article.' The likelihood of an output is "
        "measured after this task and the source. A saved judge has a task of its own.",
    ),
]
OneCriterion = Annotated[
    str | None, typer.Option("--criterion", help="'name: definition', or the name of a criterion of the data set.")
]
SavedPointwise = Annotated[
    Path | None,
    typer.Option(
        "--judge",
        help="JSON file of the judge to compile, instead of a new one for --criterion.",
        exists=True,
        dir_okay=False,
    ),
]
SavedPairwise = Annotated[
    Path | None, typer.Option("--judge", help="A pairwise judge's JSON file.", exists=True, dir_okay=False)
]
Debias = Annotated[
    Literal["none", "permutation"] | None,
    typer.Option(help="permutation asks in both orders and averages. By default, what the saved judge does."),
]
Calibration = Annotated[
    Literal["none", "contextual", "batch", "pride", "calibraeval"] | None,
    typer.Option(
        help="Correct for the judge's position preference, without labels. By default, what the saved judge does."
    ),
]
Ties = Annotated[bool, typer.Option("--ties", help="Allow the judge to answer that there is no difference.")]
Pairs = Annotated[
    str, typer.Option("--pairs", metavar="N|all", help="Maximum number of pairs, drawn with the seed, or 'all'.")
]
Documents = Annotated[
    int | None, typer.Option(help="Use only this many documents (inputs), drawn with the seed.", min=1)
]
Search = Annotated[Literal["greedy", "beam"], typer.Option(help="Search that turns comparisons into a ranking.")]

Metric = Annotated[
    Literal["chrf", "bleu", "comet", "bleurt"],
    typer.Option(
        "--metric", help="Reference metric for translations; comet and bleurt run in a separate Python environment."
    ),
]
MetricPython = Annotated[
    Path | None, typer.Option(help="Python interpreter of the environment that has comet or bleurt.")
]
Checkpoint = Annotated[str | None, typer.Option(help="Checkpoint of comet (a name or file) or bleurt (a folder).")]
QuantileMapFile = Annotated[
    Path | None,
    typer.Option(
        "--quantile-map",
        help="Pairs of the metric's scores and human MQM scores, needed for Bias: a .jsonl or .csv file with a field "
        "named after the metric and a field mqm, or a saved QuantileMap (.json).",
        exists=True,
        dir_okay=False,
    ),
]

SCALE = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*-\s*(-?\d+(?:\.\d+)?)\s*")


def pair_limit(text: str) -> int | None:
    """Read ``--pairs``: a number of at least 1, or None for all pairs."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"--pairs {text}: give a number of at least 1, or 'all'.")
    return int(text)


def read_scale(text: str) -> tuple[float, float]:
    """Read ``--scale``: the lowest and the highest score, such as 1-5, 0.0-1.0 or -2-2."""
    ends = SCALE.fullmatch(text)
    if ends is None or not float(ends[1]) < float(ends[2]):
        raise typer.BadParameter(f"--scale {text}: write the lowest and the highest score as 1-5, 0.0-1.0 or -2-2.")
    return float(ends[1]), float(ends[2])


def given_options(context: typer.Context) -> set[str]:
    """Return the options that stand on the command line, such as ``--scale``."""
    return {
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None and (source := context.get_parameter_source(parameter.name)) is not None
        if source.name == "COMMANDLINE"
    }


@dataclass(frozen=True)
class ModelOptions:
    """Options that decide how models are opened."""

    api_base: Annotated[
        str | None,
        typer.Option(
            metavar="URL[,URL,...]",
            help="Address of the server that runs --lm, or of several servers that run it.",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Tokenizer of a server's model: a folder or a name. vLLM and SGLang report theirs."),
    ] = None
    in_flight: Annotated[
        int,
        typer.Option(
            help="Maximum number of concurrent requests to each server of --api-base. Hosted models get 16 at a time.",
            min=1,
        ),
    ] = 64
    adapter: Annotated[
        str | None, typer.Option(help="Folder of a LoRA adapter for --lm, if that is a local model.")
    ] = None
    device: Annotated[str, typer.Option(help="Device for local models: auto, cpu, cuda or cuda:0.")] = "auto"
    dtype: Annotated[str, typer.Option(help="Data type of local models: auto, float32, bfloat16 or float16.")] = "auto"
    template_options: Annotated[
        str | None,
        typer.Option(help="Variables for the chat template of --lm, as JSON, such as '{\"enable_thinking\": true}'."),
    ] = None
    samples: Annotated[
        int | None,
        typer.Option(
            help="Estimate probabilities from this many answers to each prompt, for models that report none.", min=2
        ),
    ] = None
    sample_temperature: Annotated[float, typer.Option(help="Sampling temperature of these answers.")] = 1.0
    sample_tokens: Annotated[
        int,
        typer.Option(help="Token limit for each of these answers. Models that reason first need a high limit.", min=1),
    ] = 16
    dialect: Annotated[str, typer.Option(help="Protocol of the server, such as vllm or chat; auto detects it.")] = (
        "auto"
    )
    exact_resume: Annotated[
        bool,
        typer.Option(
            "--exact-resume",
            help="Make a resumed run give exactly the same numbers. Local models then read shared texts more often.",
        ),
    ] = False
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="ray[:N]",
            help="Run --lm, a local model, in N workers on a Ray cluster. Default: one per GPU, or per two cores.",
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start long runs without asking.")] = False

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
