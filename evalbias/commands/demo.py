"""The demo: both methods on the embedded judge."""

from __future__ import annotations

from evalbias.commands.model_options import ModelOptions
from evalbias.commands.options import Json, Out, Seed


def demo(seed: Seed = 0, out: Out = None, as_json: Json = False) -> None:
    """Measure and mitigate two biases of the embedded judge: RS demonstrations and a fairness search.

    Runs on a synthetic world and needs no network, key or GPU.
    """
    from rich.console import Group

    from evalbias.commands.run import Run
    from evalbias.commands.run_mitigation import brief_of, coverage_of, found_in, result_of, run_mitigation, shown
    from evalbias.commands.run_zepo import SearchOptions, run_zepo
    from evalbias.commands.task import demo_documents, demo_task
    from evalbias.data import wordings
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
