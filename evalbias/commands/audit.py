"""The command that asks of any judge: is it biased, and what helps?"""

from __future__ import annotations

from typing import Annotated

import typer

from evalbias.commands.model_options import ModelOptions
from evalbias.commands.option_groups import option_groups
from evalbias.commands.option_values import given_options, pair_limit
from evalbias.commands.options import (
    MODEL_NAMES,
    AnyJudge,
    Columns,
    Data,
    Json,
    Labels,
    LikelihoodLM,
    OneCriterion,
    Out,
    OutputLabel,
    Pairs,
    Reliability,
    Seed,
    SourceLabel,
    WrittenFor,
)
from evalbias.commands.sections import data_option, judge_option, measure_option, run_option

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
    from evalbias.commands.audit_options import check_used
    from evalbias.commands.fail_on import parse_conditions
    from evalbias.commands.run_audit import Audited, run_audit
    from evalbias.runs.visible import message

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
