"""The commands of the likelihood bias: measure it, compile it away."""

from __future__ import annotations

from typing import Any

from evalbias.commands.model_options import ModelOptions
from evalbias.commands.option_groups import option_groups
from evalbias.commands.options import (
    LM,
    Bare,
    Candidates,
    Columns,
    Criteria,
    Data,
    Json,
    K,
    KeepWorse,
    LikelihoodLM,
    Limit,
    MaxLoss,
    Normalization,
    Out,
    OutputLabel,
    Reduction,
    Reliability,
    Resamples,
    SavedPointwise,
    Scale,
    Seed,
    Shots,
    SourceLabel,
    SplitBy,
    WrittenFor,
)


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

    from evalbias.commands.criteria import criteria_of
    from evalbias.commands.run import Run
    from evalbias.commands.task import open_task
    from evalbias.evaluation import judge_examples, measure, total
    from evalbias.evaluation.effect_words import bias_score_caution, effect_sentence
    from evalbias.evaluation.likelihood import LikelihoodBias
    from evalbias.lm.memo import LikelihoodMemo
    from evalbias.optimizers.demos import draw_demos, rated_items, with_demos
    from evalbias.programs import PointwiseJudge
    from evalbias.report.scatter import likelihood_scatter
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
    from evalbias.commands.open_judges import open_judges
    from evalbias.commands.run import Run
    from evalbias.commands.run_mitigation import (
        brief_of,
        coverage_of,
        found_in,
        result_of,
        run_mitigation,
        shown,
    )
    from evalbias.commands.task import open_task
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
