"""The options that several commands share; nothing heavy is imported here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

LM = Annotated[
    str, typer.Option("--lm", help="'embedded', a folder, a Hugging Face name, or a server's model (--api-base).")
]
Data = Annotated[str, typer.Option(help="A .jsonl file, or NAME:PATH of a known data set.")]
Criteria = Annotated[
    list[str] | None, typer.Option("--criterion", help="A preset's name, or 'name: definition'. Repeatable.")
]
Scale = Annotated[str, typer.Option(help="Of criteria given as 'name: definition', such as 1-5.")]
LikelihoodLM = Annotated[str | None, typer.Option(help="Whose likelihood is meant; by default the judge's model.")]
Seed = Annotated[int, typer.Option(help="Of everything that is drawn at random.")]
Out = Annotated[
    Path | None, typer.Option(help="The run's folder; by default one under runs/, the same for the same run.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else on stdout.")]
K = Annotated[int, typer.Option("-k", help="Number of demonstrations.", min=1)]
SplitBy = Annotated[
    Literal["instance", "input"], typer.Option(help="By input: no input stands on both sides of the split.")
]
Reduction = Annotated[Literal["sum", "mean"], typer.Option(help="Of the likelihood over tokens; the paper's is sum.")]
Normalization = Annotated[Literal["min-max", "mean-range"], typer.Option(help="Of scores in US.")]
Resamples = Annotated[int, typer.Option(help="Of the permutation test.", min=1)]
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
    typer.Option(
        help="Who rewords: 'grammar' (no model), or a model as for --lm; dspy:PROVIDER/NAME is any other of DSPy's."
    ),
]
ProposerApiBase = Annotated[str | None, typer.Option(help="Address of the server that --proposer-lm names.")]
SourceLabel = Annotated[str | None, typer.Option(help="What a prompt calls the source, such as Dialogue.")]
OutputLabel = Annotated[str | None, typer.Option(help="What a prompt calls an output, such as Reply.")]
OneCriterion = Annotated[
    str | None, typer.Option("--criterion", help="'name: definition', or the name of the data set's own.")
]
SavedPairwise = Annotated[
    Path | None, typer.Option("--judge", help="A pairwise judge's JSON file.", exists=True, dir_okay=False)
]
Debias = Annotated[
    Literal["none", "permutation"] | None,
    typer.Option(help="permutation asks in both orders and averages; by default as the saved judge does."),
]
Calibration = Annotated[
    Literal["none", "contextual", "batch"] | None,
    typer.Option(help="Take off what the positions have by themselves; by default as the saved judge does."),
]
Ties = Annotated[bool, typer.Option("--ties", help="Let the judge answer that there is no difference.")]
Pairs = Annotated[int, typer.Option("--pairs", help="Most pairs, drawn with the seed.", min=1)]
Documents = Annotated[int | None, typer.Option(help="Use only so many documents (inputs), drawn with the seed.", min=1)]
Search = Annotated[Literal["greedy", "beam"], typer.Option(help="How the comparisons make an order.")]

Models = dict[str, Any]
"""How models are opened; see ``MODELS``."""

Command = TypeVar("Command", bound=Callable[..., None])

MODELS: dict[str, tuple[Any, Any]] = {
    "api_base": (Annotated[str | None, typer.Option(help="Address of the server that --lm names.")], None),
    "tokenizer": (
        Annotated[str | None, typer.Option(help="Of a server's model: a folder or a name; vLLM and SGLang name it.")],
        None,
    ),
    "in_flight": (Annotated[int, typer.Option(help="Requests to a server at the same time.", min=1)], 64),
    "device": (Annotated[str, typer.Option(help="Of local models: auto, cpu, cuda or cuda:0.")], "auto"),
    "dtype": (Annotated[str, typer.Option(help="Of local models: auto, float32, bfloat16 or float16.")], "auto"),
}
"""The options that say how models are opened, and their defaults."""


def opening_models(command: Command) -> Command:
    """Give a command, in the place of its parameter ``models``, the options that decide how models are opened."""

    @wraps(command)
    def asked(**given: Any) -> None:
        command(models={name: given.pop(name) for name in MODELS}, **given)

    own = inspect.signature(command, eval_str=True).parameters
    kind = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(n, kind, annotation=a, default=d) for n, (a, d) in MODELS.items()]
    parameters = [x for p in own.values() for x in (options if p.name == "models" else [p.replace(kind=kind)])]
    asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    asked.__annotations__ = {p.name: p.annotation for p in parameters}
    return asked  # type: ignore[return-value]
