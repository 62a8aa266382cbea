"""``evalbias demo``: both methods on the embedded judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Group

from evalbias.cli.compare import search
from evalbias.cli.items import Split
from evalbias.cli.likelihood import compile_judges
from evalbias.cli.run import Run, RunOutcome
from evalbias.data import Dataset, world
from evalbias.optimizers import BiasedDemos
from evalbias.options import CompileOptions, DemoOptions, MeasuringModels, OptimizeOptions, Out, recorded
from evalbias.programs import SYNTHETIC, PointwiseJudge
from evalbias.report.demo import NEXT, conclusion, introduction


def demo_command(options: DemoOptions, out: Out) -> None:
    """Compile and search on fresh items of the synthetic world, none of which the embedded judge has seen."""
    seed, criterion = options.seed, SYNTHETIC
    train, test = world.examples(400, seed=2 * seed + 1_000_001), world.examples(300, seed=2 * seed + 1_000_002)
    searched, tested = (
        world.documents(20, 6, seed=2 * seed + 1_100_001),
        world.documents(30, 6, seed=2 * seed + 1_100_002),
    )
    name = "synthetic world"
    made = Dataset(test, name=name, path=Path(), sha256="generated", left_out={})
    items = Split(made, (criterion,), test, train)
    documents = Split(made, (criterion,), tested, searched)
    # 20 documents are few to choose on.
    chosen = OptimizeOptions(name, lm="embedded", criterion=criterion.name, pairs=100, bare=True, seed=seed)
    given = CompileOptions(name, lm="embedded", seed=seed)
    more = {**items.settings(), "likelihood": {"k": given.k, "method": "RS demonstrations, chosen"}}
    more["search"] = recorded(chosen)
    with Run("demo", given, MeasuringModels(yes=True), out, more=more) as run:
        lm = run.options.lm
        judges, optimizer = [PointwiseJudge(criterion)], BiasedDemos(given.k, seed=seed)
        compiled, likelihood = compile_judges(run, run.options, items, judges, optimizer)
        searching, rows = search(run, replace(chosen, lm=lm), documents, world.PARTS)
        before, after = (side[criterion.name] for side in (compiled.before, compiled.after))
        comparison = compiled.comparisons[criterion.name]
        concluded = conclusion(comparison, rows)
        parts = [introduction(criterion, test, before, after), *likelihood.shown, *searching.shown, concluded]
        brief = {"likelihood": comparison, "preference": searching.brief, "conclusion": concluded}
        run.leave(
            RunOutcome(
                {**likelihood.result, **searching.result},
                {**likelihood.brief, **brief},
                [Group(*(piece for part in parts for piece in (part, "")), NEXT)],
                {**likelihood.coverage, **searching.coverage},
                page=[likelihood.page, searching.result],
                more=[*likelihood.more, *searching.more],
            )
        )
