"""The commands of the likelihood bias: measure it, compile it away."""

from __future__ import annotations

from typing import Any

from evalbias.commands.options import (
    LM,
    Candidates,
    Criteria,
    Data,
    Json,
    K,
    LikelihoodLM,
    Limit,
    Models,
    Normalization,
    Out,
    Reduction,
    Resamples,
    Scale,
    Seed,
    SplitBy,
    opening_models,
)


@opening_models
def measure_likelihood(
    lm: LM,
    data: Data,
    criterion: Criteria = None,
    scale: Scale = "1-5",
    likelihood_lm: LikelihoodLM = None,
    *,
    models: Models,
    k: K = 8,
    candidates: Candidates = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
    split_by: SplitBy = "instance",
    reduction: Reduction = "sum",
    normalization: Normalization = "min-max",
    limit: Limit = None,
) -> None:
    """Likelihood bias of a judge with k random demonstrations, on a fifth of human-rated items."""
    from evalbias.commands.run import Run
    from evalbias.commands.task import open_task
    from evalbias.evaluation.likelihood import bias_interval, measure_likelihood_bias
    from evalbias.optimizers.demos import draw_demos, rated_items, with_demos
    from evalbias.programs import PointwiseJudge
    from evalbias.report.scatter import likelihood_scatter
    from evalbias.report.tables import measurement_table

    task = open_task(data, criterion, scale, seed=seed, split_by=split_by, limit=limit, candidates=candidates)
    measured: dict[str, Any] = {"reduction": reduction, "normalization": normalization}
    run = Run(
        "measure likelihood",
        task,
        lm=lm,
        likelihood_lm=likelihood_lm,
        models=models,
        seed=seed,
        out=out,
        options={"k": k, **measured},
    )
    judges = []
    for c in task.criteria:
        demos, _ = draw_demos(rated_items(task.train, c), k, seed=seed)
        judges.append(with_demos(PointwiseJudge(c), demos, bins=task.bins))
    with run.progress(len(task.test) * (1 + len(judges))):
        found = measure_likelihood_bias(judges, task.test, lm=run.lm, likelihood_lm=run.likelihood_lm, **measured)
    results = found.result()
    intervals = {name: bias_interval(found, name, seed=seed) for name in results}
    for name in results:
        likelihood_scatter(found, None, name, run.folder.file("scatter", name, ".png"))
    result = {"likelihood": results, "intervals": intervals, "measurement": found}
    run.finish(result, {"likelihood": results}, as_json, measurement_table(results, intervals), found.coverage)


@opening_models
def compile_likelihood(
    lm: LM,
    data: Data,
    criterion: Criteria = None,
    scale: Scale = "1-5",
    likelihood_lm: LikelihoodLM = None,
    *,
    models: Models,
    k: K = 8,
    candidates: Candidates = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
    split_by: SplitBy = "instance",
    reduction: Reduction = "sum",
    normalization: Normalization = "min-max",
    resamples: Resamples = 100_000,
    limit: Limit = None,
) -> None:
    """Compile RS demonstrations into a judge for every criterion; before and after on a fifth of the items."""
    from evalbias.commands.run import Run
    from evalbias.commands.run_biased_demos import brief, compiled, result_of
    from evalbias.commands.task import open_task
    from evalbias.report.tables import comparison_table

    task = open_task(data, criterion, scale, seed=seed, split_by=split_by, limit=limit, candidates=candidates)
    options = {"k": k, "reduction": reduction, "normalization": normalization, "resamples": resamples}
    run = Run(
        "compile likelihood",
        task,
        lm=lm,
        likelihood_lm=likelihood_lm,
        models=models,
        seed=seed,
        out=out,
        options=options,
    )
    found = compiled(run, task, seed=seed, options=options)
    told = {"likelihood": {name: brief(c) for name, c in found.comparisons.items()}}
    shown = comparison_table(found.comparisons)
    run.finish(result_of(found), told, as_json, shown, found.after.coverage)
