"""The commands of comparisons: search a fair instruction, measure a pairwise judge's biases, rank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from evalbias.commands.model_options import ModelOptions
from evalbias.commands.option_groups import option_groups
from evalbias.commands.option_values import pair_limit
from evalbias.commands.options import (
    LM,
    Bare,
    Calibration,
    Columns,
    Data,
    Debias,
    Documents,
    Json,
    KeepWorse,
    Labels,
    LikelihoodLM,
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
)

Objective = Annotated[
    str,
    typer.Option(
        help="What the search optimizes: fairness (the paper's), confidence, context-free, calibration, or a bias "
        "(position, verbosity)."
    ),
]


@option_groups
def optimize(
    criterion: Annotated[str, typer.Argument(help="'name: definition', or the name of a criterion of the data set.")],
    data: Data,
    lm: LM,
    columns: Columns = None,
    codes: Labels = None,
    proposer_lm: ProposerLM = "grammar",
    population: Annotated[int, typer.Option(help="Number of wordings in each epoch.", min=1)] = 5,
    epochs: Annotated[int, typer.Option(help="Number of epochs.", min=1)] = 5,
    objective: Objective = "fairness",
    pairs: Pairs = "200",
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Judge every wording on every pair, instead of dropping wordings early that cannot win (racing).",
        ),
    ] = False,
    budget: Annotated[int | None, typer.Option(help="Maximum number of judgments in the search.", min=1)] = None,
    ties: Ties = False,
    instruction: Annotated[
        str | None,
        typer.Option(help="Your own wording to start from. It must contain the criterion's name and no answers."),
    ] = None,
    instruction_place: Annotated[
        Literal["first", "last"],
        typer.Option(
            help="Where the instruction stands in the prompt: first, as in the paper, or last, which is faster."
        ),
    ] = "first",
    search: Search = "greedy",
    curve: Annotated[
        bool,
        typer.Option(
            "--curve",
            help="Also rank with every wording tried, with and without debiasing: agreement by decision rate.",
        ),
    ] = False,
    bare: Bare = False,
    keep_worse: KeepWorse = False,
    test_fraction: Annotated[float, typer.Option(help="Fraction of the documents to keep out of the search.")] = 0.5,
    documents: Documents = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    proposer_api_base: ProposerApiBase = None,
    *,
    models: ModelOptions,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Search for a fair instruction for one criterion from unlabeled outputs (ZEPO), and test it on other documents.

    The data must hold a source and an output per item, with several outputs for each source; or pairs of outputs. If
    people rated the outputs, agreement with them is reported too.
    """
    from evalbias.commands.run import Run
    from evalbias.commands.run_zepo import SearchOptions, objective_of, run_zepo
    from evalbias.commands.task import open_documents
    from evalbias.data import hold_pairs, is_rated, wordings

    objective_of(objective)
    labels = (source_label, output_label)
    task = open_documents(
        data,
        criterion,
        labels=labels,
        seed=seed,
        documents=documents,
        test_fraction=test_fraction,
        columns=columns,
        codes=codes,
    )
    if curve and (hold_pairs(task.test) or not any(is_rated(e, task.criteria[0].name) for e in task.test)):
        raise typer.BadParameter("--curve needs outputs that people rated on the criterion: leave it out.")
    options = SearchOptions(
        proposer=proposer_lm,
        population=population,
        epochs=epochs,
        objective=objective,
        pairs=pair_limit(pairs),
        exact=exact,
        budget=budget,
        ties=ties,
        instruction=instruction,
        instruction_place=instruction_place,
        search=search,
        curve=curve,
        bare=bare,
    )
    with Run(
        "optimize",
        task,
        lm=lm,
        proposer_lm=None if proposer_lm == "grammar" else proposer_lm,
        proposer_api_base=proposer_api_base,
        models=models,
        seed=seed,
        out=out,
        options=options,
    ) as run:
        criteria, grammar = task.criteria, wordings.GENERAL
        searched = run_zepo(
            run, criteria[0], task.train, task.test, options, grammar=grammar, seed=seed, keep_worse=keep_worse
        )
        run.finish(searched.result, searched.brief, as_json, searched.table, searched.coverage)


@option_groups
def measure_preference(
    data: Data,
    lm: LM,
    columns: Columns = None,
    codes: Labels = None,
    criterion: OneCriterion = None,
    judge: SavedPairwise = None,
    calibration: Calibration = None,
    ties: Ties = False,
    pairs: Pairs = "500",
    likelihood: Annotated[
        bool, typer.Option("--likelihood", help="Also measure whether the judge prefers the likelier output.")
    ] = False,
    likelihood_lm: LikelihoodLM = None,
    documents: Documents = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    *,
    models: ModelOptions,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the position, verbosity and likelihood bias of a pairwise judge.

    Asks about every pair in both orders. Needs no labels.
    """
    from rich.console import Group

    from evalbias.commands.run import Run
    from evalbias.commands.run_ranking import open_pairwise
    from evalbias.commands.task import open_documents
    from evalbias.commands.terminal import say
    from evalbias.data import count_pairs
    from evalbias.data import pairs as draw_pairs
    from evalbias.evaluation import judge_examples
    from evalbias.evaluation.finding import findings_of, is_of_bias
    from evalbias.evaluation.registry import measure_all
    from evalbias.evaluation.verdict import verdict_of
    from evalbias.report.preference import consistency_bars

    labels = (source_label, output_label)
    program, settings = open_pairwise(
        judge, criterion, data, labels=labels, ties=ties, debias=None, calibration=calibration
    )
    task = open_documents(data, program.criterion, seed=seed, documents=documents, columns=columns, codes=codes)
    limit, likelihood = pair_limit(pairs), likelihood or likelihood_lm is not None
    with Run(
        "measure preference",
        task,
        lm=lm,
        likelihood_lm=likelihood_lm,
        models=models,
        seed=seed,
        out=out,
        options={**settings, "pairs": limit, "likelihood": likelihood},
    ) as run:
        drawn = draw_pairs(task.test, limit=limit, ordered=False, seed=seed)
        say(f"measured on {len(drawn)} of {count_pairs(task.test, ordered=False)} pairs")
        with run.progress(2 * len(drawn) * (2 if likelihood else 1)):
            scorer = run.likelihood_lm if likelihood else None
            judged = judge_examples(program, drawn, lm=run.lm, likelihood_lm=scorer)
        measurements = measure_all(judged, seed=seed)
        name = program.criterion.name
        consistency = measurements["position"]["position_consistency"].value
        consistency_bars({name: consistency}, run.folder.path / "consistency.png")
        biases = {bias: m for bias, m in measurements.items() if is_of_bias(m)}
        verdict = verdict_of(findings_of(biases, judged, {})).sentence
        brief = {"preference": {b: m.to_dict(items=False) for b, m in measurements.items()}, "verdict": verdict}
        tables = Group(*(m.table() for m in measurements.values()), verdict)
        run.finish(
            {"preference": measurements},
            brief,
            as_json,
            tables,
            {name: judged.coverage},
            examples=drawn,
            verdict=verdict,
        )


@option_groups
def rank(
    data: Data,
    lm: LM,
    columns: Columns = None,
    criterion: OneCriterion = None,
    judge: SavedPairwise = None,
    search: Search = "greedy",
    beam_size: Annotated[int, typer.Option(help="Number of partial orders that beam search keeps.", min=1)] = 10,
    gap: Annotated[
        float,
        typer.Option(help="Difference of probabilities below which beam search follows both outcomes.", min=0, max=1),
    ] = 0.2,
    debias: Debias = None,
    calibration: Calibration = None,
    ties: Ties = False,
    documents: Documents = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    *,
    models: ModelOptions,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Rank the outputs of each document by comparing them in pairs (PairS).

    Writes rankings.jsonl to the run's folder, one line for each document.
    """
    from evalbias.commands.run import Run
    from evalbias.commands.run_ranking import open_pairwise, run_ranking
    from evalbias.commands.task import open_documents
    from evalbias.programs import PairwiseRanker
    from evalbias.report.html.texts import ranked_section
    from evalbias.runs.journal import write_jsonl

    labels = (source_label, output_label)
    program, settings = open_pairwise(
        judge, criterion, data, labels=labels, ties=ties, debias=debias, calibration=calibration
    )
    task = open_documents(data, program.criterion, seed=seed, documents=documents, columns=columns, pairs=False)
    with Run(
        "rank",
        task,
        lm=lm,
        models=models,
        seed=seed,
        out=out,
        options={**settings, "search": search, "beam_size": beam_size, "gap": gap},
    ) as run:
        ranker = PairwiseRanker(program, search=search, beam_size=beam_size, gap=gap, seed=seed)
        ranked = run_ranking(run, ranker, task.test, seed=seed)
        file: Path = run.folder.path / "rankings.jsonl"
        write_jsonl(file, ranked.rows)
        shown = ranked_section(ranked.rows, ranked.documents)
        text = f"{ranked.text}\n{file}"
        run.finish(ranked.brief, ranked.brief, as_json, text, {}, found=[ranked.agreement], more=[shown])
