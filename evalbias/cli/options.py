"""Options that commands share: how each is written, read and checked, and the section of ``--help`` it stands in."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Set
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

# Groups of options: a dataclass whose fields are options that several commands share.


Command = TypeVar("Command", bound=Callable[..., None])


@dataclass(frozen=True)
class Without:
    """Marks a group of options in a command that lacks some of them: ``Annotated[GROUP, Without({"field"})]``."""

    fields: Set[str]


def option_groups(command: Command) -> Command:
    """Replace each parameter of a command that is a dataclass by the options that are its fields, in its place.

    Fields that the annotation leaves out (``Without``) keep their defaults.
    """
    own = inspect.signature(command, eval_str=True).parameters
    groups = {name: group for name, p in own.items() if (group := _Group.of(p.annotation)) is not None}

    @wraps(command)
    def with_options(**given: Any) -> None:
        made = {name: group.made_of(given) for name, group in groups.items()}
        command(**made, **given)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        one
        for name, parameter in own.items()
        for one in (groups[name].parameters() if name in groups else [parameter.replace(kind=kind)])
    ]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options  # type: ignore[return-value]


@dataclass(frozen=True)
class _Group:
    """A dataclass whose fields are options, but for some."""

    kind: type[Any]
    without: Set[str]

    @classmethod
    def of(cls, annotation: Any) -> _Group | None:
        """Return the group that a parameter's annotation names; None if it names none."""
        kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        if not (isinstance(kind, type) and is_dataclass(kind)):
            return None
        return cls(kind, frozenset[str]().union(*(mark.fields for mark in marks if isinstance(mark, Without))))

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options as a command's parameters."""
        hints, none = get_type_hints(self.kind, include_extras=True), inspect.Parameter.empty
        defaults = {f.name: none if f.default is MISSING else f.default for f in self._fields()}
        return [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[name], default=default)
            for name, default in defaults.items()
        ]

    def made_of(self, given: dict[str, Any]) -> Any:
        """Take the options out of a command's arguments and return the group of them."""
        return self.kind(**{f.name: given.pop(f.name) for f in self._fields()})

    def _fields(self) -> list[Field[Any]]:
        return [f for f in fields(self.kind) if f.name not in self.without]


# Sections of a command's help, as plain text: rich's panels cut long words off in a narrow terminal.


ARGUMENTS, DATA, JUDGE, OWN = "Arguments", "Data", "Model and judge", "Options"
MEASUREMENT, EXTERNAL, MODELS, RUN = "Measurement", "External feedback and quality", "Running models", "Run"
SECTIONS = (ARGUMENTS, DATA, JUDGE, OWN, MEASUREMENT, EXTERNAL, MODELS, RUN)
"""Headings in their order; an option that names none stands under ``OWN``."""

data_option = partial(typer.Option, rich_help_panel=DATA)
judge_option = partial(typer.Option, rich_help_panel=JUDGE)
measure_option = partial(typer.Option, rich_help_panel=MEASUREMENT)
external_option = partial(typer.Option, rich_help_panel=EXTERNAL)
model_option = partial(typer.Option, rich_help_panel=MODELS)
run_option = partial(typer.Option, rich_help_panel=RUN)


class Sectioned(TyperCommand):
    """A command whose help lists its options under the headings that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections that have options."""
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in SECTIONS}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                sections[_heading(parameter)].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _heading(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return ARGUMENTS
    return RUN if parameter.name == "help" else parameter.rich_help_panel or OWN


# Options that decide how models are opened; nothing heavy is imported here.


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


# Read the values of options that are more than a number or a word, and which options were given.


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


# Options that several commands share; nothing heavy is imported here.


MODEL_NAMES = (
    "'embedded', a folder, a .gguf file, a Hugging Face name, a server's model (with --api-base), openai/NAME, or "
    "dspy:PROVIDER/NAME for any other that DSPy reaches."
)

LM = Annotated[
    str,
    judge_option(
        "--lm",
        help=f"Model: {MODEL_NAMES}",
    ),
]
Data = Annotated[
    str,
    data_option(
        help="A .jsonl, .json, .csv, .tsv or .parquet file, NAME:PATH of a known data set, or hf:NAME[:SPLIT]."
    ),
]
Columns = Annotated[
    list[str] | None,
    data_option(
        "--map",
        metavar="OURS=THEIRS,...",
        help="Names of your columns: source=question,output=answer,score=rating; of several raters, "
        "rating_1=anna,rating_2=ben. Repeatable.",
    ),
]
Labels = Annotated[
    str | None,
    data_option(
        "--labels",
        metavar="FIRST,SECOND[,TIE]",
        help="Codes that your data use for the first output, the second and a tie, such as 1,2,tie.",
    ),
]
Criteria = Annotated[
    list[str] | None, judge_option("--criterion", help="A preset's name, or 'name: definition'. Repeatable.")
]
Scale = Annotated[
    str | None,
    judge_option(help="Scale of the criteria that you give as 'name: definition', such as 1-7; 1-5 if not given."),
]
LikelihoodLM = Annotated[
    str | None, measure_option(help="Model that measures how likely the outputs are. By default, the judge's model.")
]
Seed = Annotated[int, run_option(help="Seed for all random draws.", min=0)]
Out = Annotated[
    Path | None,
    run_option(help="The run's folder. By default, one under runs/; the same settings give the same one."),
]
Json = Annotated[bool, run_option("--json", help="Print the result as JSON, and nothing else, on stdout.")]
K = Annotated[int, typer.Option("-k", help="Number of demonstrations.", min=1)]
Shots = Annotated[
    int,
    typer.Option("-k", help="Number of random demonstrations; 0 for none, as models with an adapter expect.", min=0),
]
SplitBy = Annotated[
    Literal["instance", "input"],
    data_option(help="What to split by; with input, all items of one input land on the same side."),
]
Reduction = Annotated[
    Literal["sum", "mean"],
    measure_option(
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
    measure_option(
        help="Share of a rating's variance that is quality, for items with one rating each: without it, effects have "
        "only bounds.",
        min=0.01,
        max=1.0,
    ),
]
Limit = Annotated[int | None, data_option(help="Use only this many items, drawn with the seed.", min=1)]
Candidates = Annotated[
    Path | None,
    data_option(
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
SourceLabel = Annotated[str | None, judge_option(help="Name of the source in prompts, such as Dialogue.")]
OutputLabel = Annotated[str | None, judge_option(help="Name of an output in prompts, such as Reply.")]
WrittenFor = Annotated[
    str | None,
    measure_option(
        "--task",
        help="Task that the outputs were written for, such as 'Summarize the article.' Likelihoods depend on it. A "
        "saved judge has its own.",
    ),
]
OneCriterion = Annotated[
    str | None, judge_option("--criterion", help="'name: definition', or the name of a criterion of the data set.")
]
AnyJudge = Annotated[
    Path | None,
    judge_option("--judge", help="JSON file of a judge to run on --lm.", exists=True, dir_okay=False),
]
SavedPointwise = Annotated[
    Path | None,
    judge_option(
        "--judge",
        help="JSON file of the judge to compile, instead of a new one for --criterion.",
        exists=True,
        dir_okay=False,
    ),
]
SavedPairwise = Annotated[
    Path | None, judge_option("--judge", help="A pairwise judge's JSON file.", exists=True, dir_okay=False)
]
Debias = Annotated[
    Literal["none", "permutation"] | None,
    judge_option(help="permutation asks in both orders and averages. By default, what the saved judge does."),
]
Calibration = Annotated[
    Literal["none", "contextual", "batch", "pride", "calibraeval"] | None,
    judge_option(
        help="Correct for the judge's position preference, without labels. By default, what the saved judge does."
    ),
]
Ties = Annotated[bool, judge_option("--ties", help="Allow the judge to answer that there is no difference.")]
Pairs = Annotated[
    str, data_option("--pairs", metavar="N|all", help="Maximum number of pairs, drawn with the seed, or 'all'.")
]
Documents = Annotated[
    int | None, data_option(help="Use only this many documents (inputs), drawn with the seed.", min=1)
]
Search = Annotated[Literal["greedy", "beam"], typer.Option(help="Search that turns comparisons into a ranking.")]


# The options of the commands that run refine loops.


SAME = "same"
"""Name of a judge that is the model which writes."""

QuantileMapFile = Annotated[
    Path | None,
    external_option(
        "--quantile-map",
        help="Pairs of the metric's scores and human MQM scores, needed for Bias: a .jsonl or .csv file with a field "
        "named after the metric and a field mqm, or a saved QuantileMap (.json).",
        exists=True,
        dir_okay=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """Options of every command that runs a loop: its task, items, model and folder."""

    task: Annotated[
        Literal["translation", "constrained-generation", "mathematics", "mathematics-refiner"],
        data_option(
            help="Task of the loop. In mathematics, votes replace the answer, as in the paper. In mathematics-refiner, "
            "a refiner is told the vote, and its solution is accepted if its score is better."
        ),
    ]
    data: Annotated[
        str, data_option(help="Items with the fields of the task: a file of the same formats as for judge, or hf:NAME.")
    ]
    columns: Columns = None
    limit: Annotated[int | None, data_option(help="Process only this many items, from the start.", min=1)] = None
    lm: LM
    max_tokens: Annotated[
        int | None, typer.Option(help="Maximum length of an answer, in tokens. By default, what the task needs.", min=1)
    ] = None
    seed: Seed = 0
    out: Out = None


@dataclass(frozen=True)
class MetricOptions:
    """Options that decide the expected scores of translations."""

    name: Annotated[
        Literal["chrf", "bleu", "comet", "bleurt"],
        external_option(
            "--metric", help="Reference metric for translations; comet and bleurt run in a separate Python environment."
        ),
    ] = "chrf"
    python: Annotated[
        Path | None,
        external_option("--metric-python", help="Python interpreter of the environment that has comet or bleurt."),
    ] = None
    checkpoint: Annotated[
        str | None, external_option(help="Checkpoint of comet (a name or file) or bleurt (a folder).")
    ] = None
    map: QuantileMapFile = None


@dataclass(frozen=True)
class RefineOptions:
    """Options of the commands that run loops; each command uses those that it has.

    Attributes:
        max_iterations: Largest number of refinements; None takes 10, or the compiled loop's.
        examples: File of in-context examples; None takes the task's.
        instructscore: Name of the model of external feedback; None leaves it to the task.
        prompt: File with that model's request; None takes the default.
        program: File of a compiled loop; None takes the task's.
        feedback: Feedback of the loop.
        best_of: Number of outputs to draw and to choose from; None refines.
        aspects_lm: Model that judges fluency and understandability of every output; ``SAME`` is the one that writes,
            and None judges nothing.
        aspects_api_base: Address of that model's server.
        k: Largest number of demonstrations.
        until: See ``ExternalFeedbackRefine``.
        budget: See ``ExternalFeedbackRefine``.
        test_fraction: Fraction of the items kept to compare before and after.
        bare: Whether to compile the result of the search as it is, without choosing on held-back items.
        metric: Reference metric of translations, and its map onto MQM scores.
    """

    max_iterations: int | None = None
    examples: Path | None = None
    instructscore: str | None = None
    prompt: Path | None = None
    program: Path | None = None
    feedback: Literal["own", "external"] = "own"
    best_of: int | None = None
    aspects_lm: str | None = None
    aspects_api_base: str | None = None
    k: int = 4
    until: Literal["quality", "quality or bias"] = "quality"
    budget: int | None = None
    test_fraction: float = 0.5
    bare: bool = False
    metric: MetricOptions = field(default_factory=MetricOptions)

    def check(self) -> None:
        """Refuse options that contradict each other or would do nothing.

        Raises:
            ValueError: Two options do not go together.
        """
        if self.program is not None and self.max_iterations is not None:
            raise ValueError("--program decides the refinements: leave --max-iterations out.")
        if self.program is not None and self.examples is not None:
            raise ValueError("--program holds the examples of its prompts: leave --examples out.")
        if self.best_of is not None and (self.max_iterations, self.program) != (None, None):
            raise ValueError("--best-of draws and does not refine: leave --max-iterations and --program out.")
        if self.instructscore is None and self.prompt is not None:
            raise ValueError("--instructscore-prompt is a request to a model: name it with --instructscore.")
        if self.aspects_lm is None and self.aspects_api_base is not None:
            raise ValueError("--aspects-api-base is the address of a judge: name it with --aspects-lm.")
