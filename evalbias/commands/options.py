"""Options that several commands share; nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from evalbias.commands.sections import (
    data_option,
    judge_option,
    measure_option,
    run_option,
)

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
