"""``evalbias judge``: score the items of a file, or rank the outputs of each input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.cli.items import compared, comparing_judge, load_items, narrowed, scoring_judges
from evalbias.cli.run import Run, RunOutcome, Split
from evalbias.data import DataError, by_input, is_rated
from evalbias.evaluation.rankings import COUNTS, conclude_ranking, order_spread, ranking_agreement
from evalbias.evaluation.words import beginning, count
from evalbias.measures.arrays import FloatArray
from evalbias.options import MeasuringModels, Options, Out
from evalbias.program_options import JudgeOptions, RankOptions, ScoreOptions
from evalbias.programs import PairwiseRanker
from evalbias.programs.judges import asked_together
from evalbias.programs.ranking import most_comparisons
from evalbias.report.page import ranked_section, scored_section
from evalbias.runs import write_jsonl
from evalbias.values import first_few

FORMS: dict[str, type[Options]] = {"scores": ScoreOptions, "`rank`": RankOptions}


def judge_command(options: JudgeOptions, models: MeasuringModels, out: Out) -> None:
    form, work = ("`rank`", rank_outputs) if options.rank else ("scores", judge_items)
    work(narrowed(options, form, FORMS, out.typed), models, out)


# Score every item.


def judge_items(options: ScoreOptions, models: MeasuringModels, out: Out) -> None:
    """Score items; of several judges, records name the criterion."""
    programs = scoring_judges(options)
    items = load_items(options, programs[0])
    if not items and not items.left_out:
        raise DataError(f"{options.data} holds no items: there is nothing to judge.")
    several, more = len(programs) > 1, Split(items, tuple(program.criterion for program in programs), items).settings()
    with Run("judge", options, models, out, more=more) as run:
        rows: dict[str, list[dict[str, Any]]] = {}
        with run.progress(len(items) * len(programs)):
            lm = asked_together(programs if several else (), items, run.options.lm)
            for program in programs:
                predictions = program.batch(items, lm=lm, refused=options.refused)
                rows[program.criterion.name] = rows_of(items, predictions)
        file = run.folder.path / "scores.jsonl"
        write_jsonl(file, [{"criterion": name} | row if several else row for name, own in rows.items() for row in own])
        scores = {name: np.array([row["score"] for row in own], dtype=np.float64) for name, own in rows.items()}
        covered = {name: np.array([row["coverage"] for row in own], dtype=np.float64) for name, own in rows.items()}
        scored = {name: ScoredItems.of(own, scores[name]) for name, own in rows.items()}
        printed = [(f"{name}: " if several else "") + own.sentence(file) for name, own in scored.items()]
        parts = {name: scored_section(own) for name, own in scores.items()}
        sections = [replace(s, title=f"{s.title}: {name}") if several else s for name, s in parts.items()]
        brief = {"criteria": scored} if several else asdict(scored[programs[0].criterion.name])
        run.leave(RunOutcome(brief, brief, [*printed, TRUST], covered, more=sections))


TRUST = "To find out whether scores can be trusted, run 'evalbias audit' with the same judge and model on rated items."


# Records of scores, a record per item.


NAMED = 100  # largest number of items that are named as refused


def rows_of(items: Sequence[Any], predictions: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a record per item: id, beginnings of its texts, score, most probable label, coverage and distribution.

    An estimated distribution comes with the number of its answers (``samples``), a score corrected for
    likelihood its ``raw_score`` and LS in nats (``likelihood``); ``undefined`` is the reason if the model refused.
    """
    fields = ("score", "mode", "coverage", "distribution")
    optional = ("samples", "undefined", "raw_score", "likelihood", "reasons", "scores")
    return [
        {
            "id": e.get("id", i),
            "source_begins": beginning(e.get("source")),
            "output_begins": beginning(e.output),
            **{name: p[name] for name in fields if name in p},
            **{name: p[name] for name in optional if p.get(name) is not None},
        }
        for i, (e, p) in enumerate(zip(items, predictions, strict=True))
    ]


@dataclass(frozen=True)
class ScoredItems:
    """The scores of all items, in short."""

    n: int  # items with a score
    undefined: int
    mean: float | None
    refused: Sequence[Any]  # first ids of the items that the model could not be asked about
    unanswered: int  # other items without a score

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], scores: FloatArray) -> ScoredItems:
        """Count the records, and average their scores, (n,), NaN where undefined."""
        refused, defined = [row["id"] for row in rows if "undefined" in row], scores[~np.isnan(scores)]
        lost, mean = len(scores) - len(defined), float(defined.mean()) if len(defined) else None
        return cls(len(defined), lost, mean, refused[:NAMED], lost - len(refused))

    def sentence(self, file: Path) -> str:
        """Say how many items are scored, and which have no score for which reason."""
        items = f"{'item' if len(self.refused) == 1 else 'items'} {first_few([*map(str, self.refused)], 5)}"
        named = f" (the model cannot take {items})" if self.refused else ""
        sentence = f"{count(self.n, 'item')} scored, {self.undefined} undefined{named}: {file}"
        unanswered = (
            f"\n{self.unanswered} items have no score although the model answered: it gave no label enough "
            "probability, or the server reported none. Try a prompt that asks for a label alone, or another model."
        )
        return sentence + unanswered if self.unanswered else sentence


# Rank the outputs of each document.


SHOWN = 5  # largest number of printed rankings; all are in rankings.jsonl


def rank_outputs(options: RankOptions, models: MeasuringModels, out: Out) -> None:
    """Sort the outputs of each document by comparing them, and measure the agreement with people where these rated."""
    judge = comparing_judge(options)
    split = compared(options, judge)
    own = {"ties": judge.ties, "debias": judge.debias, "calibration": judge.calibration}  # a saved judge has its own
    with Run("judge", options, models, out, more={"rank": True, **split.settings(), **own}) as run:
        ranker = PairwiseRanker(judge, seed=options.seed, orders=options.orders)
        groups = by_input(split.test)
        documents = [g[0].copy(candidates=[e.output for e in g]) for g in groups.values()]
        with run.progress(sum(most_comparisons(len(e.candidates), options.orders) for e in documents)):
            rankings = ranker.batch(documents, lm=run.options.lm)
        rows = [_ranked(key, group, r) for (key, group), r in zip(groups.items(), rankings, strict=True)]
        brief: dict[str, Any] = {"documents": len(rows), **{f: sum(row[f] for row in rows) for f in COUNTS}}
        brief["unranked"] = sum(len(row["unranked"]) for row in rows)
        text, agreement, name = ", ".join(f"{value} {n}" for n, value in brief.items()), None, judge.criterion.name
        if any(is_rated(e, name) for e in split.test):
            agreement = ranking_agreement(rankings, list(groups.values()), name, seed=options.seed)
            brief["agreement"] = agreement.to_dict(items=False)
            text += (
                f"\nagreement with people on {name}, mean over {count(agreement['spearman'].n, 'document')}: "
                + ", ".join(f"{estimate.label} {estimate.with_interval}" for estimate in agreement.estimates.values())
            )
            text = "; ".join([text, *order_spread([agreement])])
        second = brief["comparisons"] - brief["first"] - brief["ties"] - brief["undefined"]
        one_place = judge.one_place({0: brief["first"], 1: second})
        brief["conclusion"] = " ".join(filter(None, [one_place, conclude_ranking(agreement, len(rows))]))
        file = run.folder.path / "rankings.jsonl"
        write_jsonl(file, rows)
        printed = f"{_first(rows)}\n{text}\n{brief['conclusion']}\n{file}"
        more = [ranked_section(rows, list(groups.values()))]
        run.leave(RunOutcome(brief, brief, [printed], page=[agreement], more=more))


def _ranked(key: str, group: Sequence[dspy.Example], ranking: Any) -> dict[str, Any]:
    """Return a document's record: its ids best first, the score of each, and why any is not ranked."""
    ids = [str(e.get("id")) for e in group]
    return {
        "input_id": key,
        "source_begins": beginning(group[0].source),
        "order": [ids[i] for i in ranking.order],
        "begins": {ids[i]: beginning(group[i].output) for i in (*ranking.order, *ranking.unranked)},
        "scores": dict(zip(ids, ranking.scores, strict=True)),
        "unranked": {ids[i]: reason for i, reason in ranking.unranked.items()},
        **{name: ranking[name] for name in COUNTS},
    }


def _first(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows[:SHOWN]:
        lines.append(f"{row['input_id'] if len(row['input_id']) <= 40 else row['source_begins']}")
        for place, name in enumerate(row["order"], start=1):
            lines.append(f"{place:4}. {name}: {row['begins'][name]}")
        lines += [f"   -  {name}: {reason}" for name, reason in row["unranked"].items()]
    if len(rows) > SHOWN:
        lines.append(f"and {count(len(rows) - SHOWN, 'more document')}")
    return "\n".join(lines)
