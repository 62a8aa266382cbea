"""Every command with its options, as Typer reads them; what a command runs is imported when it runs."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from evalbias.cli.options import (
    LM,
    MODEL_NAMES,
    AnyJudge,
    Bare,
    Calibration,
    Candidates,
    Columns,
    Criteria,
    Data,
    Debias,
    Documents,
    Json,
    K,
    KeepWorse,
    Labels,
    LikelihoodLM,
    Limit,
    LoopOptions,
    MaxLoss,
    MetricOptions,
    ModelOptions,
    Normalization,
    OneCriterion,
    Out,
    OutputLabel,
    Pairs,
    ProposerApiBase,
    ProposerLM,
    QuantileMapFile,
    Reduction,
    RefineOptions,
    Reliability,
    Resamples,
    SavedPairwise,
    SavedPointwise,
    Scale,
    Search,
    Seed,
    Shots,
    SourceLabel,
    SplitBy,
    Ties,
    WriterOptions,
    WrittenFor,
    data_option,
    external_option,
    given_options,
    judge_option,
    measure_option,
    option_groups,
    pair_limit,
    run_option,
)

if TYPE_CHECKING:
    from evalbias.programs import PointwiseJudge
    from evalbias.programs.judges import Refused


# The command that asks of any judge: is it biased, and what helps?


ScoresField = Annotated[str | None, judge_option(help="Field that holds the judge's recorded scores.")]
WinnerField = Annotated[
    str | None,
    judge_option(help="Field that holds the judge's recorded choices of two outputs: 0 or A, 1 or B, tie, or null."),
]
SwappedField = Annotated[
    str | None,
    judge_option(help="Field that holds its choices in the other order; 0 still means the same output."),
]
BetterField = Annotated[str, data_option(help="Field that holds people's choices between two outputs.")]
AnyLM = Annotated[
    str | None,
    judge_option(
        "--lm",
        help=f"Model of the judge: {MODEL_NAMES} With recorded answers: model that measures how likely the outputs "
        "are.",
    ),
]
AnyScale = Annotated[
    str | None,
    judge_option(
        "--scale",
        help="Lowest and highest possible score, such as 1-5, 0.0-1.0 or -2-2.",
    ),
]
By = Annotated[
    str | None,
    data_option(
        help="Field that groups the items: agreement is also measured in each group. By default, the kinds of bias "
        "in evalbiasbench."
    ),
]
FailOn = Annotated[
    list[str] | None,
    run_option(
        metavar="CONDITION",
        help="Exit with code 1 if the condition holds or cannot be measured, such as 'likelihood>0.2' (distance from "
        "an unbiased judge) or 'agreement.spearman<0.3'. Repeatable.",
    ),
]


@option_groups
def audit(
    context: typer.Context,
    data: Data,
    columns: Columns = None,
    lm: AnyLM = None,
    judge: AnyJudge = None,
    scores_field: ScoresField = None,
    winner_field: WinnerField = None,
    swapped_field: SwappedField = None,
    better_field: BetterField = "better",
    labels: Labels = None,
    criterion: OneCriterion = None,
    task: WrittenFor = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    scale: AnyScale = None,
    likelihood_lm: LikelihoodLM = None,
    own_system: Annotated[
        str | None, measure_option(help="Name of the judge's own system, as the field system has it.")
    ] = None,
    reliability: Reliability = None,
    by: By = None,
    pairs: Pairs = "500",
    fail_on: FailOn = None,
    *,
    models: ModelOptions,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure every bias of a judge and its agreement with people; say whether it is biased, and what helps.

    Say which judge: --lm with --criterion or --judge, --scores-field, or --winner-field.

    Exit codes: 0 done; 1 a --fail-on condition is met; 2 an error that you can correct (the message says how);
    70 a defect of evalbias, please report it.
    """
    from evalbias.cli.audit import Audited, parse_conditions, run_audit
    from evalbias.values import message

    conditions = parse_conditions(fail_on or ())
    asked = Audited(judge, scores_field, winner_field, swapped_field, better_field, labels, own_system, reliability, by)
    asked.check(lm)
    if asked.is_recorded:
        check_used(given_options(context))
    found = run_audit(
        data,
        asked,
        columns=columns,
        criterion=criterion,
        written={"task": task, "source_label": source_label, "output_label": output_label},
        scale=scale,
        lm=lm,
        likelihood_lm=likelihood_lm,
        limit=pair_limit(pairs),
        models=models,
        seed=seed,
        out=out,
        as_json=as_json,
    )
    met = [reason for condition in conditions if (reason := condition.reason(found))]
    for reason in met:
        typer.echo(message(f"failed: {reason}"), err=True)
    if met:
        raise typer.Exit(1)


# Which of an audit's options recorded answers use.


LM_AUDIT_OPTIONS, LIKELIHOOD_LM = "--lm", "--likelihood-lm"
SAMPLING = {"--samples", "--sample-temperature", "--sample-tokens"}
CHOICES = {"--swapped-field", "--better-field", "--labels"}
PROMPT = {"--task", "--source-label", "--output-label"}
OF_LM = {"--api-base", "--api-key-env", "--tokenizer", "--adapter", "--template-options", "--dialect", "--workers"}
OF_ANY_MODEL = {"--in-flight", "--device", "--dtype", "--exact-resume"}


def check_used(given: Set[str]) -> None:
    """Refuse options that decide nothing in an audit of recorded answers.

    Args:
        given: Options on the command line.

    Raises:
        BadParameter: An option is not used; it is named.
    """
    has_model = bool(given & {LM_AUDIT_OPTIONS, LIKELIHOOD_LM})
    unused: list[tuple[bool, set[str], str]] = [
        (True, {"--pairs", *SAMPLING}, "recorded answers are taken as they are"),
        ("--scores-field" in given, CHOICES, "for choices, and --scores-field names scores"),
        ("--winner-field" in given, {"--scale"}, "recorded choices have no scale"),
        (not has_model, PROMPT | OF_LM | OF_ANY_MODEL, "no model is asked; the likelihood bias needs one, --lm"),
        (
            {LM_AUDIT_OPTIONS, LIKELIHOOD_LM} <= given,
            {LM_AUDIT_OPTIONS},
            "recorded answers take one model, that of the likelihood",
        ),
        (LM_AUDIT_OPTIONS not in given, OF_LM, "for the model of --lm; name the model of the likelihood there"),
    ]
    for applies, options, reason in unused:
        if applies and (named := sorted(given & options)):
            raise typer.BadParameter(f"leave out {', '.join(named)}: {reason}.")


# The demo: both methods on the embedded judge.


def demo(seed: Seed = 0, out: Out = None, as_json: Json = False) -> None:
    """Measure and mitigate two biases of the embedded judge: RS demonstrations and a fairness search.

    Runs on a synthetic world and needs no network, key or GPU.
    """
    from rich.console import Group

    from evalbias.cli.compare import SearchOptions, run_zepo
    from evalbias.cli.items import demo_documents, demo_task
    from evalbias.cli.likelihood import brief_of, coverage_of, found_in, result_of, run_mitigation, shown
    from evalbias.cli.run import Run
    from evalbias.data import world as wordings
    from evalbias.optimizers import BiasedDemos
    from evalbias.programs import PointwiseJudge
    from evalbias.report.demo import NEXT, conclusion, introduction

    task = demo_task(seed)
    (criterion,) = task.criteria
    search = SearchOptions(pairs=100, bare=True)  # 20 documents are few to choose on
    options = {"likelihood": {"k": 8, "method": "RS demonstrations, chosen"}, "search": search}
    with Run("demo", task, lm="embedded", models=ModelOptions(yes=True), seed=seed, out=out, options=options) as run:
        compiled, kept = run_mitigation(run, task, [PointwiseJudge(criterion)], BiasedDemos(k=8, seed=seed))
        train, test = demo_documents(seed)
        searched = run_zepo(run, criterion, train, test, search, grammar=wordings.PARTS, seed=seed)
        before, after = (side[criterion.name] for side in (compiled.before, compiled.after))
        concluded = conclusion(compiled.comparisons[criterion.name], searched.rows)
        parts = [introduction(criterion, task.test, before, after), shown(compiled, kept, seed=seed), searched.table]
        run.finish(
            {**result_of(compiled), **searched.result},
            {
                **brief_of(compiled, kept),
                "likelihood": compiled.comparisons[criterion.name],
                "preference": searched.brief,
                "conclusion": concluded,
            },
            as_json,
            Group(*(piece for part in (*parts, concluded) for piece in (part, "")), NEXT),
            {**coverage_of(compiled), **searched.coverage},
            found=[found_in(compiled), searched.result],
        )


# The command that scores a data set with a judge.


@option_groups
def judge(
    data: Data,
    lm: LM,
    columns: Columns = None,
    criterion: OneCriterion = None,
    scale: Scale = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    judge: AnyJudge = None,
    refused: Annotated[
        Literal["undefined", "raise"],
        typer.Option(
            help="What to do with an item that the model cannot take, such as one that is too long: leave it "
            "undefined and name it, or raise an error."
        ),
    ] = "undefined",
    seed: Seed = 0,
    *,
    models: ModelOptions,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Score every item of a data set with a judge, saved or new.

    Writes scores.jsonl to the run's folder, one line for each item. With --workers, the data must be a .jsonl file. It
    is read in parts, so it may be larger than memory, and duplicate ids are found only within a part.
    """
    from evalbias.cli.items import open_judge

    written = {"source_label": source_label, "output_label": output_label}
    program, saved = open_judge(judge, criterion, data, scale, written=written)
    score = _judge_here if models.workers is None else _judge_corpus
    score(
        program,
        saved,
        data,
        lm,
        columns=columns,
        refused=refused,
        seed=seed,
        models=models,
        out=out,
        as_json=as_json,
    )


def _judge_here(
    program: PointwiseJudge,
    saved: dict[str, Any],
    data: str,
    lm: str,
    *,
    columns: list[str] | None,
    refused: Refused,
    seed: int,
    models: ModelOptions,
    out: Path | None,
    as_json: bool,
) -> None:
    from evalbias.cli.items import Task, load_items
    from evalbias.cli.judge import rows_of, summary
    from evalbias.cli.run import Run
    from evalbias.data import DataError
    from evalbias.data.columns import parse_mapping
    from evalbias.report.sections import lowest_section, scored_section
    from evalbias.runs import write_jsonl

    mapping = parse_mapping(columns or ())
    items = load_items(data, mapping)
    if not items and not items.left_out:
        raise DataError(f"{data} holds no items: there is nothing to judge.")
    task = Task(
        data, items.sha256, (program.criterion,), None, [], list(items), left_out=items.left_out, mapping=mapping
    )
    with Run("judge", task, lm=lm, models=models, seed=seed, out=out, options=saved) as run:
        with run.progress(len(items)):
            rows = rows_of(items, program.batch(items, lm=run.lm, refused=refused))
        file = run.folder.path / "scores.jsonl"
        write_jsonl(file, rows)
        brief, coverage = summary(file)
        scores = [row["score"] for row in rows]
        shown = [scored_section(scores), lowest_section(scores, items, [row["id"] for row in rows])]
        run.finish(brief, brief, as_json, _line(brief, file), {program.criterion.name: coverage}, more=shown)


def _judge_corpus(
    program: PointwiseJudge,
    saved: dict[str, Any],
    data: str,
    lm: str,
    *,
    columns: list[str] | None,
    refused: Refused,
    seed: int,
    models: ModelOptions,
    out: Path | None,
    as_json: bool,
) -> None:
    from evalbias.cli.judge import Corpus, scores_of, summary
    from evalbias.cli.run import print_result
    from evalbias.cli.terminal import counting
    from evalbias.data.columns import parse_mapping
    from evalbias.evaluation.words import coverage_warning
    from evalbias.report.page import write_report
    from evalbias.report.sections import scored_section

    mapping = parse_mapping(columns or ())
    with Corpus(program, saved, Path(data), lm, models, out, refused=refused, seed=seed, mapping=mapping) as corpus:
        with counting(corpus.items, "judging") as advance:
            counts = corpus.run(advance)
        brief, coverage = summary(corpus.scores)
        brief |= counts
        corpus.folder.write_result(brief)
        covered = {program.criterion.name: coverage}
        shown = [scored_section(scores_of(corpus.scores))]
        write_report(corpus.folder.path, brief, verdict=coverage_warning(covered), more=shown)
        print_result(brief, as_json, [_line(brief, corpus.scores)], corpus.folder, coverage=covered)


def _line(brief: dict[str, object], file: Path) -> str:
    from evalbias.evaluation.words import count

    scored: Any = brief["n"]
    refused: Any = brief["refused"]
    items = f"item{'s' * (len(refused) != 1)} {', '.join(map(str, refused[:5]))}{', ...' * (len(refused) > 5)}"
    named = f" (the model cannot take {items})"
    unanswered = (
        f"{brief['unanswered']} items have no score although the model answered: it gave no label enough probability, "
        "or the server reported none. Try a prompt that asks for a label alone, or another model.\n"
    )
    return (
        f"{count(scored, 'item')} scored, {brief['undefined']} undefined{named * bool(refused)}: {file}\n"
        f"{unanswered * bool(brief['unanswered'])}"
        "To find out whether these scores can be trusted, run 'evalbias audit' with the same judge and model on rated "
        "items."
    )


# The commands of the likelihood bias: measure it, compile it away.


@option_groups
def measure_likelihood(
    lm: LM,
    data: Data,
    columns: Columns = None,
    criterion: Criteria = None,
    scale: Scale = None,
    written_for: WrittenFor = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    likelihood_lm: LikelihoodLM = None,
    *,
    models: ModelOptions,
    k: Shots = 8,
    candidates: Candidates = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
    split_by: SplitBy = "instance",
    reduction: Reduction = "sum",
    limit: Limit = None,
    reliability: Reliability = None,
) -> None:
    """Measure the likelihood bias of a judge with k random demonstrations, on a fifth of the rated items."""
    from rich.console import Group

    from evalbias.cli.items import criteria_of, open_task
    from evalbias.cli.run import Run
    from evalbias.evaluation import judge_examples, measure, total
    from evalbias.evaluation.bias import bias_score_caution, effect_sentence
    from evalbias.evaluation.biases import LikelihoodBias
    from evalbias.lm.cache import LikelihoodMemo
    from evalbias.optimizers.demonstrations import draw_demos, rated_items, with_demos
    from evalbias.programs import PointwiseJudge
    from evalbias.report.plots import likelihood_scatter
    from evalbias.report.tables import measurement_table

    written = {"task": written_for, "source_label": source_label, "output_label": output_label}
    task = open_task(
        data,
        criteria_of(data, criterion, scale, written=written),
        seed=seed,
        split_by=split_by,
        limit=limit,
        candidates=candidates,
        columns=columns,
    )
    options: dict[str, object] = {"k": k, "reduction": reduction}
    if reliability is not None:
        options["reliability"] = reliability
    bias = LikelihoodBias(reliability)
    with Run(
        "measure likelihood",
        task,
        lm=lm,
        likelihood_lm=likelihood_lm,
        models=models,
        seed=seed,
        out=out,
        options=options,
    ) as run:
        judged = {}
        scorer = LikelihoodMemo(run.likelihood_lm)
        with run.progress(len(task.test) * (1 + len(task.criteria))):
            for c in task.criteria:
                demos, _ = draw_demos(rated_items(task.train, c), k, seed=seed)
                judge = with_demos(PointwiseJudge(c), demos, bins=task.bins)
                judged[c.name] = judge_examples(judge, task.test, lm=run.lm, likelihood_lm=scorer, reduction=reduction)
        coverage = {name: one.coverage for name, one in judged.items()}
        if len(judged) > 1:
            judged["total"] = total(list(judged.values()))
        measurements = {name: measure(bias, one, seed=seed) for name, one in judged.items()}
        for name, one in judged.items():
            likelihood_scatter(one, None, run.folder.file("scatter", name, ".png"))
        effects = {name: bias.effect(one) for name, one in judged.items()}
        sentences = {name: effect_sentence(effect, task.criteria[0].scale) for name, effect in effects.items()}
        cautions = {name: bias_score_caution(one) for name, one in judged.items()}
        brief = {
            "likelihood": {name: m.to_dict(items=False) for name, m in measurements.items()},
            "effects": effects,
            "sentences": sentences,
        }
        said = [f"{name}: {' '.join(filter(None, (text, cautions[name])))}" for name, text in sentences.items()]
        result = {"likelihood": measurements, "effects": effects}
        table = Group(measurement_table(measurements), *said)
        run.finish(result, brief, as_json, table, coverage, examples=task.test)


@option_groups
def compile_likelihood(
    lm: LM,
    data: Data,
    columns: Columns = None,
    judge: SavedPointwise = None,
    criterion: Criteria = None,
    scale: Scale = None,
    written_for: WrittenFor = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    likelihood_lm: LikelihoodLM = None,
    *,
    models: ModelOptions,
    k: K = 8,
    candidates: Candidates = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
    split_by: SplitBy = "instance",
    reduction: Reduction = "sum",
    normalization: Normalization = "mean-range",
    resamples: Resamples = 100_000,
    limit: Limit = None,
    max_loss: MaxLoss = 0.0,
    bare: Bare = False,
    keep_worse: KeepWorse = False,
) -> None:
    """Compile a judge with less likelihood bias per criterion; compare before and after on a fifth of the items."""
    from evalbias.cli.items import open_judges, open_task
    from evalbias.cli.likelihood import brief_of, coverage_of, found_in, result_of, run_mitigation, shown
    from evalbias.cli.run import Run
    from evalbias.optimizers import BiasedDemos, LikelihoodMitigation

    written = {"task": written_for, "source_label": source_label, "output_label": output_label}
    judges, settings = open_judges(judge, criterion, data, scale, written=written)
    task = open_task(
        data,
        tuple(one.criterion for one in judges),
        seed=seed,
        split_by=split_by,
        limit=limit,
        candidates=candidates,
        columns=columns,
    )
    options = {
        **settings,
        "k": k,
        "reduction": reduction,
        "normalization": normalization,
        "resamples": resamples,
        "max_loss": max_loss,
        "method": "RS demonstrations" if bare else "chosen",
    }
    with Run(
        "compile likelihood",
        task,
        lm=lm,
        likelihood_lm=likelihood_lm,
        models=models,
        seed=seed,
        out=out,
        options=options,
    ) as run:
        shared: dict[str, Any] = {
            "likelihood_lm": None if likelihood_lm is None else run.likelihood_lm,
            "bins": task.bins,
            "reduction": reduction,
            "normalization": normalization,
            "n_resamples": resamples,
            "seed": seed,
        }
        sizes = sorted({size for size in (2, k // 2, k) if 2 <= size <= k})
        if bare:
            method: BiasedDemos | LikelihoodMitigation = BiasedDemos(k, **shared, select=False)
        else:
            method = LikelihoodMitigation(sizes, max_loss=max_loss, **shared)
        compiled, kept = run_mitigation(run, task, judges, method, keep_worse=keep_worse)
        table, brief = shown(compiled, kept, seed=seed), brief_of(compiled, kept)
        coverage = coverage_of(compiled)
        run.finish(result_of(compiled), brief, as_json, table, coverage, found=found_in(compiled))


# The commands of comparisons: search a fair instruction, measure a pairwise judge's biases, rank.


ObjectiveName = Annotated[
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
    objective: ObjectiveName = "fairness",
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
    from evalbias.cli.compare import SearchOptions, objective_of, run_zepo
    from evalbias.cli.items import open_documents
    from evalbias.cli.run import Run
    from evalbias.data import hold_pairs, is_rated
    from evalbias.data import world as wordings

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

    from evalbias.cli.compare import open_pairwise
    from evalbias.cli.items import open_documents
    from evalbias.cli.run import Run
    from evalbias.cli.terminal import say
    from evalbias.data import count_pairs
    from evalbias.data import pairs as draw_pairs
    from evalbias.evaluation import judge_examples
    from evalbias.evaluation.audit import findings_of, is_of_bias, verdict_of
    from evalbias.evaluation.biases import measure_all
    from evalbias.report.plots import consistency_bars

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
    from evalbias.cli.compare import open_pairwise, run_ranking
    from evalbias.cli.items import open_documents
    from evalbias.cli.run import Run
    from evalbias.programs import PairwiseRanker
    from evalbias.report.sections import ranked_section
    from evalbias.runs import write_jsonl

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


# The commands of self-bias: measure it on recorded loops or by paraphrases, run a loop, compile a loop.


Loops = Annotated[
    list[Path],
    data_option(
        "--data",
        metavar="PATH",
        help="File of recorded loops, or a run folder of evalbias refine. Repeatable.",
        exists=True,
    ),
]
MaxIterations = Annotated[
    int | None, typer.Option(help="Maximum number of refinements per item (10 if not given).", min=0)
]
Threads = Annotated[int, run_option("--threads", help="Number of items to process at a time.", min=1)]
InstructScoreLM = Annotated[
    str | None,
    external_option(
        "--instructscore", help="Model for external feedback: it lists the errors by comparing with the reference."
    ),
]
InstructScorePrompt = Annotated[
    Path | None,
    external_option(
        help="File with the prompt of --instructscore; holds {reference} and {output}.", exists=True, dir_okay=False
    ),
]
ExamplesFile = Annotated[
    Path | None,
    typer.Option(
        help="JSON file of in-context examples for generate, feedback and refine, to replace the built-in ones ({}: "
        "none).",
        exists=True,
        dir_okay=False,
    ),
]


def measure_self(
    data: Loops,
    columns: Columns = None,
    own: Annotated[str, typer.Option(help="Field that holds the loop's own score.")] = "self_score",
    expected: Annotated[str, typer.Option(help="Field that holds the output's expected score.")] = "expected",
    by: Annotated[Literal["iteration", "k"], typer.Option(help="Field that numbers the rounds.")] = "iteration",
    map_file: QuantileMapFile = None,
    resamples: Annotated[int, typer.Option(help="Number of resamples for the intervals and the test.", min=1)] = 2_000,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the Bias and distance skewness of recorded loops, round by round, with intervals. Runs no model.

    Several loops, such as those of several models, are shown side by side.
    """
    from evalbias.cli.loops import measure_recorded

    measure_recorded(
        data,
        columns=columns,
        own=own,
        expected=expected,
        by=by,
        map_file=map_file,
        resamples=resamples,
        seed=seed,
        out=out,
        as_json=as_json,
    )


@option_groups
def style(
    loop: LoopOptions,
    *,
    examples: ExamplesFile = None,
    metric: MetricOptions,
    threads: Threads = 1,
    models: WriterOptions,
    as_json: Json = False,
) -> None:
    """Measure a model's preference for its own style.

    The model paraphrases outputs that others wrote (field 'output'), and judges both versions.
    """
    from evalbias.cli.loops import Refining, run_style

    options = RefineOptions(examples=examples, metric=metric)
    with Refining("measure style", loop, options=options, models=models) as run:
        run_style(run, threads=threads, as_json=as_json)


@option_groups
def refine(
    loop: LoopOptions,
    *,
    max_iterations: MaxIterations = None,
    examples: ExamplesFile = None,
    feedback: Annotated[
        Literal["own", "external"],
        typer.Option(help="Source of feedback: the model itself, or the task's external source."),
    ] = "own",
    program: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of a compiled loop, which decides the number of refinements.", exists=True, dir_okay=False
        ),
    ] = None,
    best_of: Annotated[
        int | None,
        typer.Option(
            help="Instead of refining, draw this many outputs and keep the one with the best feedback.", min=1
        ),
    ] = None,
    instructscore: InstructScoreLM = None,
    instructscore_prompt: InstructScorePrompt = None,
    metric: MetricOptions,
    aspects_lm: Annotated[
        str | None,
        external_option(help="Model that judges the fluency and understandability of every output; 'same' means --lm."),
    ] = None,
    aspects_api_base: Annotated[
        str | None, external_option(help="Address of the server that runs --aspects-lm.")
    ] = None,
    threads: Threads = 1,
    models: WriterOptions,
    as_json: Json = False,
) -> None:
    """Run a refine loop, or best of k, on every item.

    Writes outputs.jsonl and steps.jsonl to the run's folder. A stopped run continues. To see Bias and Dskew for each
    refinement, or by k, run evalbias measure self --data FOLDER.
    """
    from evalbias.cli.loops import Refining, run_loop

    options = RefineOptions(
        max_iterations=max_iterations,
        examples=examples,
        instructscore=instructscore,
        prompt=instructscore_prompt,
        program=program,
        feedback=feedback,
        best_of=best_of,
        aspects_lm=aspects_lm,
        aspects_api_base=aspects_api_base,
        metric=metric,
    )
    with Refining("refine", loop, options=options, models=models) as run:
        run_loop(run, threads=threads, as_json=as_json)


@option_groups
def compile_refine(
    loop: LoopOptions,
    *,
    max_iterations: MaxIterations = None,
    examples: ExamplesFile = None,
    k: Annotated[int, typer.Option("-k", help="Maximum number of demonstrations.", min=0)] = 4,
    until: Annotated[
        Literal["quality", "quality or bias"],
        typer.Option(help="Stop when quality stops rising, or already before the bias rises."),
    ] = "quality",
    budget: Annotated[
        int | None, typer.Option(help="Approximate number of requests to the model for training items.", min=1)
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(help="Fraction of the items to keep for comparing before and after.")
    ] = 0.5,
    bare: Bare = False,
    keep_worse: KeepWorse = False,
    instructscore: InstructScoreLM = None,
    instructscore_prompt: InstructScorePrompt = None,
    metric: MetricOptions,
    threads: Threads = 1,
    models: WriterOptions,
    as_json: Json = False,
) -> None:
    """Compile a loop under external feedback: when to stop, and demonstrations from accepted refinements."""
    from evalbias.cli.loops import Refining, compile_loop

    options = RefineOptions(
        max_iterations=max_iterations,
        examples=examples,
        instructscore=instructscore,
        prompt=instructscore_prompt,
        k=k,
        until=until,
        budget=budget,
        test_fraction=test_fraction,
        bare=bare,
        metric=metric,
    )
    with Refining("compile refine", loop, options=options, models=models) as run:
        compile_loop(run, threads=threads, as_json=as_json, keep_worse=keep_worse)
