"""The fairness paper's tables for any judge model, with its baselines and the published figures beside.

usage: python -m benchmarks.zepo --lm MODEL [--proposer-lm MODEL] [--sets synthetic newsroom summeval topicalchat]
           [--search-documents 20] [--test-documents 40] [--pairs 200] [--labeled] [--encoder MODEL --layers N]
           [--curve-wordings N] [--longest-source CHARACTERS] [--criteria NAME ...] [--out DIR] [--write] [--title TEXT]

The data are read from EVALBIAS_DATA (default ../shared/data). Documents of the search are never ranked. ``--labeled``
adds MIPROv2 and GEPA, which read human preferences on the documents of the search. ``--write`` puts the tables into
benchmarks/RESULTS.md under ``--title``; the curves go to ``--out``.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy

from benchmarks.results import write_section
from benchmarks.zepo.baselines import BERTScore
from benchmarks.zepo.methods import Found, Settings, run
from benchmarks.zepo.table import report
from benchmarks.zepo.writer import grammar_writer
from evalbias import data
from evalbias.commands.models import identity, open_lm
from evalbias.data import wordings, world
from evalbias.optimizers import GrammarParaphraser, LMParaphraser
from evalbias.programs import NEWSROOM, SUMMEVAL, SYNTHETIC, TOPICALCHAT, Criterion
from evalbias.report.preference import curve_plot

FILES = {
    "newsroom": "upstream/newsroom.json",
    "summeval": "summeval.jsonl.gz",
    "topicalchat": "upstream/topical_chat.json",
}
CRITERIA: dict[str, tuple[Criterion, ...]] = {
    "synthetic": (SYNTHETIC,),
    "newsroom": NEWSROOM,
    "summeval": SUMMEVAL,
    "topicalchat": TOPICALCHAT,
}


def documents(
    dataset: str, search: int, test: int, *, longest: int | None, seed: int
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """(for the search, for the ranking): so many documents each, none on both sides, of so many characters at most."""
    if dataset == "synthetic":
        return world.documents(search, 6, seed=3_000_001 + seed), world.documents(test, 6, seed=3_100_001 + seed)
    root = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    groups = data.by_input(data.load(dataset, root / FILES[dataset]))
    keys = sorted(key for key, items in groups.items() if longest is None or len(items[0].source) <= longest)
    random.Random(seed).shuffle(keys)
    if search + test > len(keys):
        raise SystemExit(
            f"{dataset} has {len(keys)} such documents: {search} to search on and {test} to rank are too many."
        )
    sides = keys[:search], keys[search : search + test]
    first, second = ([e for key in sorted(side) for e in groups[key]] for side in sides)
    return first, second


def measured(dataset: str, args: argparse.Namespace, lm: Any, bert_score: Any) -> dict[str, Found]:
    """Every criterion of a data set."""
    train, test = documents(
        dataset, args.search_documents, args.test_documents, longest=args.longest_source, seed=args.seed
    )
    grammar = GrammarParaphraser(wordings.PARTS)
    proposer = grammar if args.proposer_lm == "grammar" else LMParaphraser(_other(args, lm))
    found = {}
    for criterion in CRITERIA[dataset]:
        if args.criteria and criterion.name not in args.criteria:
            continue
        writer = None
        if args.labeled:
            writer = grammar_writer(grammar, criterion) if args.proposer_lm == "grammar" else _other(args, lm)
        started = time.monotonic()
        settings = Settings(proposer, writer, bert_score, args.pairs, args.curve_wordings, args.seed)
        found[criterion.name] = run(criterion, train, test, lm, settings)
        args.out.mkdir(parents=True, exist_ok=True)
        curve_plot(found[criterion.name].points, args.out / f"curve-{dataset}-{criterion.name}.png")
        print(f"{dataset} {criterion.name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return found


def _other(args: argparse.Namespace, lm: Any) -> Any:
    return lm if args.proposer_lm == args.lm else open_lm(args.proposer_lm)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", required=True)
    parser.add_argument("--proposer-lm", default="grammar")
    parser.add_argument("--sets", nargs="+", choices=[*CRITERIA], default=[*CRITERIA])
    parser.add_argument("--criteria", nargs="+")
    parser.add_argument("--search-documents", type=int, default=20)
    parser.add_argument("--test-documents", type=int, default=40)
    parser.add_argument("--longest-source", type=int, help="in characters; longer documents are left out")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--curve-wordings", type=int, help="of those tried, ranked with for the curve; all by default")
    parser.add_argument("--labeled", action="store_true")
    parser.add_argument("--encoder")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/zepo"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--title", default="a judge")
    args = parser.parse_args(arguments)
    lm = open_lm(args.lm)
    bert_score = BERTScore(args.encoder, args.layers) if args.encoder else None
    known = ", ".join(f"{k} {v}" for k, v in identity(lm).items())
    told = (
        f"Judge: {known}. Wordings: {args.proposer_lm}; 5 epochs of 5. {args.search_documents} documents to search on, "
        f"{args.test_documents} others to rank, at most {args.pairs} pairs; seed {args.seed}."
    )
    if args.longest_source:
        told += f" Documents of more than {args.longest_source} characters are left out."
    if args.encoder:
        told += f" BERTScore: {args.encoder}, {args.layers} layers, against the source."
    parts = [f"## Fairness search (Zhou et al. 2024): {args.title}"]
    for dataset in args.sets:
        parts.append(report(dataset, measured(dataset, args, lm, bert_score), told))
    text = "\n\n".join(parts)
    print(text)
    if args.write:
        write_section(f"zepo {args.title}", text)


if __name__ == "__main__":
    main()
