"""``evalbias demo``: both methods on the embedded judge in words around their numbers, or a recorded judge's audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group

from evalbias.cli.audit import audit_outcome
from evalbias.cli.items import audit_settings, audited_items
from evalbias.cli.optimize import compile_judges, search
from evalbias.cli.run import Run, RunOutcome, Split
from evalbias.data import Dataset, world
from evalbias.evaluation.answers import instruction_place_for
from evalbias.evaluation.audit import audit_each
from evalbias.evaluation.estimates import Change, Comparison, Estimate
from evalbias.evaluation.findings import AGREEMENT
from evalbias.evaluation.judged import HUMAN_SCORES, Judged
from evalbias.evaluation.rankings import Row
from evalbias.evaluation.words import conclude
from evalbias.optimizers import BiasedDemos
from evalbias.options import AuditOptions, MeasuringModels, Out, recorded
from evalbias.program_options import ComparingAim, DemoOptions, ScoringAim
from evalbias.programs import SYNTHETIC, Criterion, PairwiseJudge, PointwiseJudge


def demo_command(options: DemoOptions, out: Out) -> None:
    (_audit_recorded if options.recorded else _compile_embedded)(options, out)


def _audit_recorded(options: DemoOptions, out: Out) -> None:
    file = Path(world.__file__).with_name("recorded_judge.jsonl")
    asked = AuditOptions(data=file, criterion="coherence", scores_field="gpt-4", scale=(1, 5), seed=options.seed)
    ready = audited_items(asked)
    with Run("demo", asked, None, out, more=audit_settings(ready)) as run:
        (audit,) = audit_each([ready]).values()
        outcome = audit_outcome({"": audit}, None, (), NEXT.splitlines())
        run.leave(replace(outcome, shown=[Group(RECORDED_JUDGE, *audit.answer), "", NEXT]))


def _compile_embedded(options: DemoOptions, out: Out) -> None:
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
    chosen = ComparingAim(name, lm="embedded", criterion=criterion.name, pairs=100, bare=True, seed=seed)
    given = ScoringAim(name, lm="embedded", seed=seed)
    more = {**items.settings(), "likelihood": {"k": given.k, "method": "RS demonstrations, chosen"}}
    more["search"] = recorded(chosen)
    with Run("demo", given, MeasuringModels(yes=True), out, more=more) as run:
        lm = run.options.lm
        judges, optimizer = [PointwiseJudge(criterion)], BiasedDemos(given.k, seed=seed)
        compiled, likelihood = compile_judges(run, run.options, items, judges, optimizer)
        comparing = PairwiseJudge(criterion, instruction_place=instruction_place_for(lm))
        searching, rows = search(run, replace(chosen, lm=lm), documents, comparing, world.PARTS)
        before, after = (side[criterion.name] for side in (compiled.before, compiled.after))
        comparison = compiled.comparisons[criterion.name]
        concluded = conclusion(comparison, rows)
        parts = [introduction(criterion, test, before, after), *likelihood.shown, *searching.shown, concluded]
        brief = {"likelihood": comparison, "preference": searching.brief, "conclusion": concluded}
        shown = [Group(*(piece for part in parts for piece in (part, "")), NEXT)]
        covered = {**likelihood.coverage, **searching.coverage}
        page, sections = [likelihood.page, searching.result], [*likelihood.more, *searching.more]
        result = {**likelihood.result, **searching.result}
        run.leave(RunOutcome(result, {**likelihood.brief, **brief}, shown, covered, page=page, more=sections))


# What is measured, on which texts, what came out, and what to do next.

NEXT = """\
Next, your own data: put the scores of your judge beside those of people, and run
  evalbias audit --data items.jsonl --scores-field my_score"""


RECORDED_JUDGE = (
    "GPT-4 scored the coherence of 400 summaries of 100 news articles from 1 to 5, and so did three people (Sottana et "
    "al. 2023). Is this judge biased?\n"
)


def introduction(criterion: Criterion, examples: Sequence[Any], before: Judged, after: Judged) -> str:
    """Say what the demo shows, with the text that the given judge (``before``) overrates most."""
    low, high = criterion.scale
    human = before.covariate(HUMAN_SCORES)
    most = int(np.nanargmax(before.answers - human))
    example = next(e for e in examples if str(e.id) == before.ids[most])
    return (
        f"A small language model scores texts from {low} to {high}: {criterion.definition} People, texts and ratings "
        "are invented, so that the truth is known. Is this judge biased, and can compiling mend it? Does it overrate "
        "likely wording, and does it prefer the first or the second of two texts? "
        f"Of {len(human)} texts, it overrates this one most:\n"
        f"  {criterion.source_label}: {example.source}\n  {criterion.output_label}: {example.output}\n"
        f"  Score from people {human[most]:.2f}, from the judge {before.answers[most]:.2f}, from the compiled judge "
        f"{after.answers[most]:.2f}."
    )


def conclusion(likelihood: Comparison, rows: Mapping[str, Row]) -> str:
    """Say what the numbers mean; ``rows`` are the judges, ``"initial"`` and ``"searched"`` among them."""
    effect, performance = likelihood["likelihood_effect"], likelihood["performance"]
    wording = [
        _lean(estimate, "overrates likely wording", "underrates likely wording", "shows no likelihood bias")
        for estimate in (effect.before, effect.after)
    ]
    firsts = [rows[title].measurements["position"]["first_rate"] for title in ("initial", "searched")]
    place = [_lean(first, "biased towards the first", "biased towards the second", "no bias shown") for first in firsts]
    ranking = rows["searched"].comparisons[AGREEMENT]["spearman"]
    return (
        f"In short: the given judge {wording[0]} (effect {_with_interval(effect.before)}). The compiled judge "
        f"{wording[1]} ({_with_interval(effect.after)}), and its agreement with people {_became(performance)}.\n"
        f"Asked which of two texts is better, it chooses the first with a win rate of {_with_interval(firsts[0])}: "
        f"{place[0]}. Under the searched question the rate is {_with_interval(firsts[1])}: {place[1]}, and the "
        f"agreement of its rankings with people {_became(ranking)}."
    )


def _with_interval(estimate: Estimate) -> str:
    return f"{estimate.text()}, 95 % interval {estimate.interval}"


def _lean(e: Estimate, above: str, below: str, neither: str) -> str:
    return conclude(e.less_null(), above=above, below=below, neither=neither, undefined=neither)


def _became(change: Change) -> str:
    """Say what became of an estimate, by its paired test."""
    before, after = change.before.text(), change.after.text()
    if not change.p_value < 0.05:
        return f"did not change significantly ({before}, then {after})"
    return f"{'rose' if change.after.value > change.before.value else 'fell'} significantly, from {before} to {after}"
