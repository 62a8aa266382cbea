"""The commands of comparisons: search for a fair instruction, measure what a judge leans to, rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from evalbias.commands.options import (
    LM,
    Calibration,
    Data,
    Debias,
    Documents,
    Json,
    LikelihoodLM,
    Models,
    OneCriterion,
    Out,
    OutputLabel,
    Pairs,
    ProposerApiBase,
    ProposerLM,
    SavedPairwise,
    Search,
    Seed,
    SourceLabel,
    Ties,
    opening_models,
)

Objective = Annotated[
    Literal["fairness", "confidence", "context-free", "calibration"],
    typer.Option(help="What the search maximizes; fairness is the paper's."),
]


@opening_models
def optimize(
    criterion: Annotated[str, typer.Argument(help="'name: definition', or the name of the data set's own.")],
    data: Data,
    lm: LM,
    proposer_lm: ProposerLM = "grammar",
    population: Annotated[int, typer.Option(help="Wordings in an epoch.", min=1)] = 5,
    epochs: Annotated[int, typer.Option(help="Rounds of wordings.", min=1)] = 5,
    objective: Objective = "fairness",
    pairs: Pairs = 200,
    halving: Annotated[
        bool,
        typer.Option("--halving", help="Weak wordings leave after a quarter, and after half of the pairs; needs 40."),
    ] = False,
    budget: Annotated[int | None, typer.Option(help="Most judgments the search may ask for.", min=1)] = None,
    ties: Ties = False,
    instruction: Annotated[
        Literal["first", "last"],
        typer.Option(help="Where it stands in the prompt: last is faster, first is the paper's."),
    ] = "first",
    search: Search = "greedy",
    curve: Annotated[
        bool, typer.Option("--curve", help="Rank with every wording tried: decision rate against agreement.")
    ] = False,
    test_fraction: Annotated[float, typer.Option(help="Of the documents, kept out of the search.")] = 0.5,
    documents: Documents = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    proposer_api_base: ProposerApiBase = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Find a fair instruction for one criterion from unlabeled outputs (ZEPO); test it on other documents.

    The items need a source and an output, several outputs a source. Where people rated them, the agreement is told.
    """
    from evalbias.commands.run import Run
    from evalbias.commands.run_zepo import searched
    from evalbias.commands.task import open_documents
    from evalbias.data import wordings

    task = open_documents(
        data,
        criterion,
        labels=(source_label, output_label),
        seed=seed,
        documents=documents,
        test_fraction=test_fraction,
    )
    if curve and not any(task.criteria[0].name in (e.get("scores") or {}) for e in task.test):
        raise typer.BadParameter("--curve needs items that people rated on the criterion: leave it out.")
    options: dict[str, Any] = {
        "proposer": proposer_lm,
        "population": population,
        "epochs": epochs,
        "objective": objective,
        "pairs": pairs,
        "halving": halving,
        "budget": budget,
        "ties": ties,
        "instruction": instruction,
        "search": search,
        "curve": curve,
    }
    run = Run(
        "optimize",
        task,
        lm=lm,
        proposer_lm=None if proposer_lm == "grammar" else proposer_lm,
        proposer_api_base=proposer_api_base,
        models=models,
        seed=seed,
        out=out,
        options=options,
    )
    grammar = wordings.GENERAL
    found = searched(run, task.criteria[0], task.train, task.test, options=options, grammar=grammar, seed=seed)
    run.finish(found.result, found.brief, as_json, found.shown, found.coverage)


@opening_models
def measure_preference(
    data: Data,
    lm: LM,
    criterion: OneCriterion = None,
    judge: SavedPairwise = None,
    calibration: Calibration = None,
    ties: Ties = False,
    pairs: Pairs = 500,
    likelihood: Annotated[
        bool, typer.Option("--likelihood", help="Also ask whether the likelier output is preferred.")
    ] = False,
    likelihood_lm: LikelihoodLM = None,
    documents: Documents = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """What a pairwise judge leans to: position, length, likelihood. Every pair is asked in both orders; no labels."""
    from evalbias.commands.run import Run
    from evalbias.commands.run_ranking import open_pairwise
    from evalbias.commands.task import open_documents
    from evalbias.data import pairs as draw_pairs
    from evalbias.evaluation.position import measure_preference
    from evalbias.report.preference import consistency_bars
    from evalbias.report.tables import preference_table

    labels = (source_label, output_label)
    program, told = open_pairwise(
        judge, criterion, data, labels=labels, ties=ties, debias=None, calibration=calibration
    )
    task = open_documents(data, program.criterion, seed=seed, documents=documents)
    likelihood = likelihood or likelihood_lm is not None
    run = Run(
        "measure preference",
        task,
        lm=lm,
        likelihood_lm=likelihood_lm,
        models=models,
        seed=seed,
        out=out,
        options={**told, "pairs": pairs, "likelihood": likelihood},
    )
    drawn = draw_pairs(task.test, limit=pairs, ordered=False, seed=seed)
    with run.progress(2 * len(drawn) * (2 if likelihood else 1)):
        found = measure_preference(program, drawn, lm=run.lm, likelihood_lm=run.likelihood_lm if likelihood else None)
    name = program.criterion.name
    consistency_bars({name: found.position_consistency}, run.folder.path / "consistency.png")
    result = {"preference": {name: found}}
    run.finish(result, result, as_json, preference_table(name, found), {name: [found.coverage]})


@opening_models
def rank(
    data: Data,
    lm: LM,
    criterion: OneCriterion = None,
    judge: SavedPairwise = None,
    search: Search = "greedy",
    beam_size: Annotated[int, typer.Option(help="Partial orders that beam keeps.", min=1)] = 10,
    gap: Annotated[float, typer.Option(help="Beam follows both outcomes of closer calls.", min=0, max=1)] = 0.2,
    debias: Debias = None,
    calibration: Calibration = None,
    ties: Ties = False,
    documents: Documents = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Rank the outputs of every document by comparisons (PairS); rankings.jsonl in the run's folder, one line each."""
    from evalbias.commands.run import Run
    from evalbias.commands.run_ranking import open_pairwise, ranked
    from evalbias.commands.task import open_documents
    from evalbias.programs import PairwiseRanker
    from evalbias.runs.values import to_json

    labels = (source_label, output_label)
    program, told = open_pairwise(
        judge, criterion, data, labels=labels, ties=ties, debias=debias, calibration=calibration
    )
    task = open_documents(data, program.criterion, seed=seed, documents=documents)
    run = Run(
        "rank",
        task,
        lm=lm,
        models=models,
        seed=seed,
        out=out,
        options={**told, "search": search, "beam_size": beam_size, "gap": gap},
    )
    ranker = PairwiseRanker(program, search=search, beam_size=beam_size, gap=gap, seed=seed)
    found = ranked(run, ranker, task.test)
    file: Path = run.folder.path / "rankings.jsonl"
    file.write_text("".join(json.dumps(to_json(row)) + "\n" for row in found.rows), encoding="utf-8")
    run.finish(found.brief, found.brief, as_json, f"{found.shown}\n{file}", {})
