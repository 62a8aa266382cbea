"""The demo: both methods on the embedded judge."""

from __future__ import annotations

from evalbias.commands.options import Json, Out, Seed


def demo(seed: Seed = 0, out: Out = None, as_json: Json = False) -> None:
    """RS demonstrations and a fairness search on the embedded judge and its synthetic world: no network, key or GPU."""
    from rich.console import Group

    from evalbias.commands.run import Run
    from evalbias.commands.run_biased_demos import BiasedDemosOptions, coverage_of, result_of, run_biased_demos
    from evalbias.commands.run_zepo import SearchOptions, run_zepo
    from evalbias.commands.task import demo_documents, demo_task
    from evalbias.data import wordings
    from evalbias.report.tables import comparison_table, words_note

    task = demo_task(seed)
    demos, search = BiasedDemosOptions(), SearchOptions(pairs=100)
    with Run("demo", task, lm="embedded", seed=seed, out=out, options={"likelihood": demos, "search": search}) as run:
        compiled = run_biased_demos(run, task, demos, seed=seed)
        train, test = demo_documents(seed)
        searched = run_zepo(run, task.criteria[0], train, test, search, grammar=wordings.PARTS, seed=seed)
        run.finish(
            {**result_of(compiled), **searched.result},
            {"likelihood": compiled.comparisons[task.criteria[0].name], "preference": searched.brief},
            as_json,
            Group(comparison_table(compiled.comparisons), words_note(compiled.reports), "", searched.table),
            {**coverage_of(compiled), **searched.coverage},
        )
