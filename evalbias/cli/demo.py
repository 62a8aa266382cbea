"""``evalbias demo``: both methods on the embedded judge in words around their numbers, or a recorded judge's audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Group

from evalbias.cli.audit import audit_outcome
from evalbias.cli.items import audit_settings, audited_items
from evalbias.cli.optimize import compile_judges, search
from evalbias.cli.run import Run, RunOutcome, Split
from evalbias.data import Dataset, world
from evalbias.data.files import Source
from evalbias.evaluation.answers import instruction_place_for
from evalbias.evaluation.audit import audit_each
from evalbias.evaluation.estimates import Change, Comparison, Estimate
from evalbias.evaluation.findings import AGREEMENT
from evalbias.evaluation.judged import HUMAN_SCORES, Judged
from evalbias.evaluation.rankings import Row
from evalbias.evaluation.words import p_equals
from evalbias.optimizers import BiasedDemos
from evalbias.options import AuditOptions, MeasuringModels, Out, recorded
from evalbias.program_options import ComparingAim, DemoOptions, ScoringAim
from evalbias.programs import SYNTHETIC, Criterion, PairwiseJudge, PointwiseJudge


def demo_command(options: DemoOptions, out: Out) -> None:
    (_audit_recorded if options.recorded else _compile_embedded)(options, out)


def _audit_recorded(options: DemoOptions, out: Out) -> None:
    file = Path(world.__file__).with_name("recorded_judge.jsonl")
    audited = AuditOptions(
        file, criterion="quality", scores_field="qwen2.5-coder-1.5b", scale=(1, 5), seed=options.seed
    )
    ready = audited_items(audited)
    with Run("demo", audited, None, out, more=audit_settings(ready)) as run:
        (audit,) = audit_each([ready]).values()
        outcome = audit_outcome({"": audit}, None, (), NEXT.splitlines())
        run.leave(replace(outcome, printed=[Group(RECORDED_JUDGE, *audit.answer), "", NEXT]))


def _compile_embedded(options: DemoOptions, out: Out) -> None:
    seed, criterion = options.seed, SYNTHETIC
    train, test = world.examples(400, seed=2 * seed + 1_000_001), world.examples(300, seed=2 * seed + 1_000_002)
    searched = world.documents(20, 6, seed=2 * seed + 1_100_001)
    tested = world.documents(30, 6, seed=2 * seed + 1_100_002)
    name = "synthetic world"
    made = Dataset(test, Source(name, Path()))
    made.sha256 = "generated"
    items, documents = Split(made, (criterion,), test, train), Split(made, (criterion,), tested, searched)
    # 20 documents are few to choose on.
    chosen = ComparingAim(name, lm="embedded", criterion=criterion.name, pairs=100, bare=True, seed=seed)
    scoring = ScoringAim(name, lm="embedded", seed=seed)
    more = {**items.settings(), "likelihood": {"k": scoring.k, "method": "RS demonstrations, chosen"}}
    more["search"] = recorded(chosen)
    with Run("demo", scoring, MeasuringModels(yes=True), out, more=more) as run:
        lm = run.options.lm
        judges, optimizer = [PointwiseJudge(criterion)], BiasedDemos(scoring.k, seed=seed)
        compiled, likelihood = compile_judges(run, run.options, items, judges, optimizer)
        comparing = PairwiseJudge(criterion, instruction_place=instruction_place_for(lm))
        searching, rows = search(run, replace(chosen, lm=lm), documents, comparing, world.PARTS)
        before, after = (side[criterion.name] for side in (compiled.before, compiled.after))
        comparison = compiled.comparisons[criterion.name]
        concluded = conclusion(comparison, rows)
        parts = [introduction(criterion, before, after), *likelihood.printed, *searching.printed, concluded]
        brief = {"likelihood": comparison, "preference": searching.brief, "conclusion": concluded}
        printed = [Group(*(piece for part in parts for piece in (part, "")), NEXT)]
        covered = {**likelihood.coverage, **searching.coverage}
        page, sections = [likelihood.page, searching.result], [*likelihood.more, *searching.more]
        result = {**likelihood.result, **searching.result}
        run.leave(RunOutcome(result, {**likelihood.brief, **brief}, printed, covered, page=page, more=sections))


# Lines of the demo: measures, texts, results, and the next step.

NEXT = """\
Next, your own data: put the scores of your judge beside those of people, and run
  evalbias audit --data items.jsonl --scores-field my_score"""


RECORDED_JUDGE = (
    "Qwen2.5-Coder-1.5B, a pretrained model, scored 400 short texts from 1 to 5: do they say their data well? Texts "
    "and four raters are invented, so that the truth is known; the judge is real. Is it biased?\n"
)


def introduction(criterion: Criterion, before: Judged, after: Judged) -> str:
    """Return lines about the result, with the text that the initial judge (``before``) overrates most."""
    (low, high), human = criterion.scale, before.covariate(HUMAN_SCORES)
    most = int(np.nanargmax(before.answers - human))
    example = before.examples[most]
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
    """Explain the numbers; ``rows`` are the judges, ``"initial"`` and ``"searched"`` among them."""
    effect, performance = likelihood["likelihood_effect"], likelihood["performance"]
    before, after = (rows[title].measurements["position"]["first_rate"] for title in ("initial", "searched"))
    return (
        f"In short: at equal quality, the effect of likely wording is {_with_interval(effect.before)}, in the given "
        f"judge, and {_with_interval(effect.after)}, in the compiled one; an unbiased judge has 0. Agreement with "
        f"people: {_became(performance)}.\n"
        f"Asked which of two texts is better, the given judge chooses the first with a win rate of "
        f"{_with_interval(before)}, and under the searched question of {_with_interval(after)}; an unbiased judge has "
        f"0.50. Agreement of its rankings with people: {_became(rows['searched'].comparisons[AGREEMENT]['spearman'])}."
    )


def _with_interval(estimate: Estimate) -> str:
    return f"{estimate.text()}, 95 % interval {estimate.interval}"


def _became(change: Change) -> str:
    return f"{change.before.text()}, then {change.after.text()} ({p_equals(change.p_value)})"
