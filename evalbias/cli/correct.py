"""``evalbias correct``: learn a correction of recorded scores from rated items, and apply it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from evalbias.cli.run import Run, RunOutcome, Split
from evalbias.cli.terminal import say
from evalbias.data.items import item_name, number
from evalbias.evaluation.answers import answers_of, prepared
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.words import Table, count, signed
from evalbias.measures.arrays import FloatArray
from evalbias.measures.corrections import ScoreCorrection
from evalbias.optimizers.correction import COVARIATES, LearnedCorrection, as_scores, learn_correction
from evalbias.options import AuditOptions, CorrectOptions, MeasuringModels, Out
from evalbias.programs.judges import LIKELIHOOD, load_correction, save_correction
from evalbias.report.page import Section
from evalbias.runs import write_jsonl

OF_AUDIT = (
    *("data", "mapping", "labels", "task", "source_label", "output_label", "language", "likelihood_lm", "length"),
    *("scores_field", "winner_field", "swapped_field", "criterion", "scale", "seed"),
)
"""Options that read recorded answers as an audit does."""


def correct_command(options: CorrectOptions, models: MeasuringModels, out: Out) -> None:
    """Learn a correction, or load one, and write the corrected scores of every item."""
    if (options.scores_field is None) == (options.winner_field is None):
        raise ValueError("Name the field of its scores (`scores_field`) or of its choices (`winner_field`).")
    known = load_correction(options.correction) if options.correction is not None else None
    ready = prepared(AuditOptions(**{name: getattr(options, name) for name in OF_AUDIT}))
    if ready.dataset.left_out:
        say(ready.dataset.summary())
    settings = Split(ready.dataset, (ready.criterion,), ready.questions).settings()
    with Run("correct", options, models, out, more={**settings, "criterion": ready.criterion.name}) as run:
        lm = run.options.likelihood_lm
        with run.progress(len(ready.questions)) if lm is not None else nullcontext():
            judged = answers_of(replace(ready, likelihood_lm=lm))
        if known is not None and known.pairs != judged.pairwise:
            kinds = ("scores", "comparisons")[:: -1 if known.pairs else 1]
            raise ValueError(f"The correction was learned on {kinds[0]}, and these items have {kinds[1]}: learn one.")
        judged = with_fields(judged, options.features if known is None else _fields(known))
        if known is not None:
            learned, correction = None, known
        else:
            if not judged.rated:
                raise ValueError(f"Nobody rated the items of {options.data}: give ratings, or a saved `correction`.")
            judged = judged.counted_in(options.length)
            how: dict[str, Any] = {"max_loss": options.max_loss, "reliability": options.reliability}
            learned = learn_correction(judged, features=options.features, seed=options.seed, **how)
            correction = learned.correction
        rows = corrected_rows(judged, correction)
        file, place = run.folder.path / "corrected.jsonl", run.folder.path / "correction.json"
        write_jsonl(file, rows)
        save_correction(correction, place)
        undefined = sum(np.isnan(row["corrected"]) for row in rows)
        brief = {"n": len(rows) - undefined, "undefined": undefined, "correction": asdict(correction)}
        said = f"{count(len(rows) - undefined, 'item')} corrected, {undefined} undefined: {file}"
        if learned is None:
            run.leave(RunOutcome(brief, brief, [said]))
            return
        front = [asdict(point) for point in learned.front]
        brief |= {"sentences": learned.sentences, "front": front, "comparison": learned.comparison.to_dict()}
        table, sentences = front_table(learned), [*learned.sentences]
        shown = ["\n".join(sentences), learned.comparison.table(), table, f"{said}\ncorrection: {place}"]
        more = [Section("What was learned", [*sentences, table])]
        run.leave(RunOutcome(brief, brief, shown, page=[learned.comparison], more=more, verdict=sentences[0]))


def _fields(correction: ScoreCorrection) -> list[str]:
    """Return the fields of the data that a correction reads; ValueError for likelihoods that cannot be measured so."""
    if LIKELIHOOD in correction.slopes and correction.reduction != "sum":
        raise ValueError("The correction is for likelihoods by token (mean), and recorded scores are read with sums.")
    return [name for name in correction.slopes if name not in COVARIATES]


def with_fields(judged: Judged, names: Sequence[str]) -> Judged:
    """Return the answers with fields of the items as covariates, (n,) or (n, 2) numbers; ValueError names an item."""
    covariates = dict(judged.covariates)
    for name in names:
        if name in COVARIATES or name in covariates:
            raise ValueError(f"A field of `features` is called {name!r}, as one of every output is: rename the field.")
        if not any(name in e for e in judged.examples):
            raise ValueError(f"No item has a field {name!r:.80}: name one that your data have, `features`.")
        places = (f"{name!r} of the item {item_name(e, i)!r:.80}" for i, e in enumerate(judged.examples))
        rows = [_numbers(e.get(name), place) for e, place in zip(judged.examples, places, strict=True)]
        widths = {len(row) for row in rows}
        if len(widths) > 1 or (max(widths) == 2 and not judged.pairwise):
            raise ValueError(f"{name!r:.80} holds lists: give one number an item, or two for every pair of outputs.")
        covariates[name] = np.squeeze(np.array(rows, dtype=np.float64), axis=1) if widths == {1} else np.array(rows)
    return replace(judged, covariates=covariates)


def _numbers(value: Any, place: str) -> list[float]:
    parts = value if isinstance(value, list) and len(value) == 2 else [value]
    return [number(part, place, texts=True) for part in parts]


def corrected_rows(judged: Judged, correction: ScoreCorrection) -> list[dict[str, Any]]:
    """Return one record an item: its id, the score as recorded and as corrected; of a pair, the log-odds of a win."""
    judged = judged.counted_in(correction.length)
    scored = as_scores(judged, list(correction.slopes))
    features: Mapping[str, FloatArray] = {name: scored.covariate(name) for name in correction.slopes}
    corrected = correction(scored.answers, features)
    return [
        {"id": name, "score": float(score), "corrected": float(other)}
        for name, score, other in zip(scored.ids, scored.answers, corrected, strict=True)
    ]


def front_table(learned: LearnedCorrection) -> Table:
    """Return one row a feature and strength: the effect that is left, the agreement, and the choice."""
    rows = [
        (
            p.feature,
            f"{p.strength:g}",
            signed(p.effect),
            f"{p.agreement:.3f}",
            "chosen" if p.chosen else p.reason.split(" (")[0],
        )
        for p in learned.front
    ]
    caption = "strength: part of the effect that is subtracted; each item is corrected by a fit on other inputs"
    return Table(("feature", "strength", "effect", "Pearson", ""), rows, "Effect and agreement", caption, left=1)
