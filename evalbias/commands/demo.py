"""The demo: both methods on the embedded judge."""

from __future__ import annotations

from evalbias.commands.options import Json, Out, Seed


def demo(seed: Seed = 0, out: Out = None, as_json: Json = False) -> None:
    """RS demonstrations and a fairness search on the embedded judge and its synthetic world: no network, key or GPU."""
    from rich.console import Group

    from evalbias.commands.run import Run
    from evalbias.commands.run_biased_demos import brief, compiled, result_of
    from evalbias.commands.run_zepo import searched
    from evalbias.commands.task import demo_documents, demo_task
    from evalbias.data import wordings
    from evalbias.report.tables import comparison_table

    task = demo_task(seed)
    likelihood = {"k": 8, "reduction": "sum", "normalization": "min-max", "resamples": 100_000}
    search = {"population": 5, "epochs": 5, "objective": "fairness", "pairs": 100, "halving": False, "budget": None}
    search |= {"ties": False, "instruction": "first", "search": "greedy", "curve": False}
    run = Run("demo", task, lm="embedded", seed=seed, out=out, options={"likelihood": likelihood, "search": search})
    found = compiled(run, task, seed=seed, options=likelihood)
    (only,) = found.comparisons.values()
    train, test = demo_documents(seed)
    fair = searched(run, task.criteria[0], train, test, options=search, grammar=wordings.PARTS, seed=seed)
    run.finish(
        {**result_of(found), **fair.result},
        {"likelihood": brief(only), "preference": fair.brief},
        as_json,
        Group(comparison_table(found.comparisons), "", fair.shown),
        {**found.after.coverage, **fair.coverage},
    )
