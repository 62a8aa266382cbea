"""``evalbias correct``: correct the recorded scores of a judge that cannot be changed."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from evalbias.cli.audit import refuse_unused
from evalbias.cli.items import audit_settings, audited_items
from evalbias.cli.run import Run, RunOutcome
from evalbias.data.hints import like_ratings
from evalbias.evaluation.answers import ResolvedAudit, answers_of
from evalbias.evaluation.audit import rated_in_part
from evalbias.evaluation.bias import Section
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.probes import with_features
from evalbias.evaluation.words import Table, count, signed
from evalbias.measures.corrections import ScoreCorrection
from evalbias.measures.equal_quality import MIN_CLUSTERS
from evalbias.optimizers.correction import COVARIATES, LearnedCorrection, as_scores, learn_correction
from evalbias.options import CorrectOptions, MeasuringModels, Out
from evalbias.programs.files import load, save
from evalbias.programs.pointwise import LENGTH, LIKELIHOOD
from evalbias.runs import write_jsonl

LEARNING = {"features", "max_loss", "reliability", "length"}  # options without effect on a saved correction
SOURCES = {LIKELIHOOD: "a model that measures it, `likelihood_lm`", LENGTH: "texts in the column output"}
"""Feature that an output has without a field -> its origin."""


def correct_command(options: CorrectOptions, models: MeasuringModels, out: Out) -> None:
    if (options.scores_field is None) == (options.winner_field is None):
        raise ValueError("Name the field of its scores (`scores_field`) or of its choices (`winner_field`).")
    refuse_unused(out.typed, "likelihood_lm")
    if options.correction is None:
        saved, ready = None, _prepared(options)
    else:
        if unused := sorted(LEARNING & out.typed):
            named = ", ".join(f"`{name}`" for name in unused)
            raise ValueError(f"Leave out {named}: a saved `correction` is applied as it was learned.")
        saved = load(options.correction, ScoreCorrection)
        ready = _prepared(options if options.criterion else replace(options, criterion=saved.criterion))
        _check_applies(saved, ready)
    with Run("correct", options, models, out, more=audit_settings(ready)) as run:
        lm = run.options.likelihood_lm
        if saved is not None and saved.likelihood_lm is not None and lm is not None and lm.model != saved.likelihood_lm:
            raise ValueError(
                f"The correction is for likelihoods under {saved.likelihood_lm}, and these are under {lm.model}: name "
                "that model as `likelihood_lm`, or learn a correction with this one."
            )
        with run.progress(len(ready.questions)):
            judged = answers_of(replace(ready, likelihood_lm=lm))
        if saved is not None:
            correction, learned = saved, None
            judged = with_features(judged, [name for name in saved.slopes if name not in COVARIATES])
        else:
            judged = with_features(judged, options.features)
            learned = _learned(judged, options)
            name = lm.model if LIKELIHOOD in learned.correction.slopes else None
            correction = replace(learned.correction, criterion=ready.criterion.name, likelihood_lm=name)
        rows = corrected_rows(judged, correction)
        file, place = run.folder.path / "corrected.jsonl", run.folder.path / "correction.json"
        write_jsonl(file, rows)
        save(correction, place)
        undefined = sum(np.isnan(row["corrected"]) for row in rows)
        brief = {"n": len(rows) - undefined, "undefined": undefined, "correction": asdict(correction)}
        summary = f"{count(len(rows) - undefined, 'item')} corrected, {undefined} undefined: {file}"
        if learned is None:
            run.leave(RunOutcome(brief, brief, [summary]))
            return
        sentences = [*learned.sentences]
        if _several_systems(judged):
            sentences.append("Intervals are over inputs; those of an audit of these items are over systems too.")
        sentences += filter(None, [rated_in_part(judged)])
        front = [asdict(point) for point in learned.front]
        brief |= {"sentences": sentences, "front": front, "comparison": learned.comparison.to_dict()}
        table = front_table(learned)
        printed = ["\n".join(sentences), learned.comparison.table(), table, f"{summary}\ncorrection: {place}"]
        more = [Section("What was learned", [*sentences, table])]
        run.leave(RunOutcome(brief, brief, printed, page=[learned.comparison], more=more, verdict=sentences[:1]))


def _several_systems(judged: Judged) -> bool:
    """Return whether the items that an audit would use have enough systems for intervals over systems."""
    if judged.systems is None:
        return False
    counts = (~np.isnan(judged.ratings)).sum(axis=1)
    used = (counts >= min(2, counts.max())) & ~np.isnan(judged.answers)
    return len(set(np.asarray(judged.systems)[used])) >= MIN_CLUSTERS


def _prepared(options: CorrectOptions) -> ResolvedAudit:
    """Read recorded answers; refuse them as features of themselves."""
    own = {options.scores_field, options.winner_field, options.swapped_field}
    if named := [name for name in options.features if name in own]:
        raise ValueError(
            f"`features` names {named[0]!r:.80}, the judge's own answers, which owe nothing to themselves."
        )
    return audited_items(options)


def _check_applies(correction: ScoreCorrection, ready: ResolvedAudit) -> None:
    """Refuse a correction of another criterion, of other answers, or of features that cannot be measured here."""
    if correction.criterion not in (None, ready.criterion.name):
        raise ValueError(
            f"The correction was learned on people's ratings of {correction.criterion!r:.80}, and these are scores of "
            f"{ready.criterion.name!r:.80}: leave `criterion` out, or learn a correction for it."
        )
    if correction.pairs == (ready.scores_field is not None):
        kinds = ("scores", "comparisons")[:: -1 if correction.pairs else 1]
        raise ValueError(f"The correction was learned on {kinds[0]}, and these items have {kinds[1]}: learn one.")
    if LIKELIHOOD in correction.slopes and correction.reduction != "sum":
        raise ValueError("The correction is for likelihoods by token (mean), and recorded scores are read with sums.")
    texts = correction.pairs or all(isinstance(e.get("output"), str) for e in ready.questions)
    available = {LENGTH: texts, LIKELIHOOD: texts and ready.likelihood_lm is not None}
    if lacking := [name for name, is_available in available.items() if name in correction.slopes and not is_available]:
        raise ValueError(f"The correction subtracts what scores owe to {lacking[0]}: give {SOURCES[lacking[0]]}.")


def _learned(judged: Judged, options: CorrectOptions) -> LearnedCorrection:
    if not judged.rated:
        remedy = f"give ratings, or a saved `correction`. {like_ratings(judged.examples, judged.judge)}".strip()
        raise ValueError(f"Nobody rated the items of {options.data}: {remedy}")
    judged = judged.counted_in(options.length)
    return learn_correction(
        judged, features=options.features, max_loss=options.max_loss, reliability=options.reliability, seed=options.seed
    )


def corrected_rows(judged: Judged, correction: ScoreCorrection) -> list[dict[str, Any]]:
    """Return a record per item: its id, the recorded and the corrected score; for a pair, the log-odds of a win."""
    scored = as_scores(judged.counted_in(correction.length), list(correction.slopes))
    corrected = correction(scored.answers, {name: scored.covariate(name) for name in correction.slopes})
    return [
        {"id": name, "score": float(score), "corrected": float(other)}
        for name, score, other in zip(scored.ids, scored.answers, corrected, strict=True)
    ]


def front_table(learned: LearnedCorrection) -> Table:
    """Return a row per feature and strength: the remaining effect, the agreement, and the choice."""
    rows = []
    for p in learned.front:
        why = "chosen" if p.chosen else p.reason.split(" (")[0]
        rows.append((p.feature, f"{p.strength:g}", signed(p.effect), f"{p.agreement:.3f}", why))
    caption = "strength: part of the effect that is subtracted; each item is corrected by a fit on other inputs"
    return Table(("feature", "strength", "effect", "Pearson", ""), rows, "Effect and agreement", caption, left=1)
