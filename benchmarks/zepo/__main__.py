"""Reproduce the fairness paper's tables for any judge model, with its baselines and the published figures.

usage: python -m benchmarks.zepo --lm MODEL [--dtype bfloat16] [--proposer-lm MODEL]
           [--sets synthetic newsroom summeval topicalchat] [--search-documents N] [--test-documents N] [--pairs N]
           [--labeled] [--encoder MODEL --layers N] [--curve-wordings N] [--longest-source CHARACTERS]
           [--criteria NAME ...] [--out DIR] [--write] [--title TEXT]

The data are read from EVALBIAS_DATA (default ../shared/data). The search and the ranking use different documents, by
default as many for the search as the paper (of TopicalChat's 60 dialogues, half), and all ordered pairs of them.
``--labeled`` adds MIPROv2 and GEPA, which use human preferences on the documents of the search. ``--write`` puts the
tables into benchmarks/RESULTS.md under ``--title``; the curves go to ``--out``.
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
from benchmarks.zepo.methods import CriterionResult, Settings, run
from benchmarks.zepo.table import report
from benchmarks.zepo.writer import grammar_writer
from evalbias import data
from evalbias.cli.models import identity, open_lm
from evalbias.cli.options import ModelOptions
from evalbias.data import world
from evalbias.data import world as wordings
from evalbias.optimizers import GrammarParaphraser, LMParaphraser
from evalbias.programs import NEWSROOM, SUMMEVAL, SYNTHETIC, TOPICALCHAT, Criterion
from evalbias.report.plots import curve_plot

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


DOCUMENTS = {"synthetic": (20, 40), "newsroom": (20, 40), "summeval": (10, 40), "topicalchat": (30, 30)}
"""Data set -> number of documents for the search and for the ranking."""


def documents(
    dataset: str, search: int, test: int, *, longest: int | None, seed: int
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Return the outputs of different documents for the search and for the ranking.

    Args:
        dataset: Name of the data set.
        search: Number of documents for the search.
        test: Number of documents for the ranking.
        longest: Largest number of characters of a document; None sets no limit.
        seed: Seed for the draw.

    Raises:
        SystemExit: The data set has too few such documents.
    """
    if dataset == "synthetic":
        return world.documents(search, 6, seed=3_000_001 + seed), world.documents(test, 6, seed=3_100_001 + seed)
    root = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    groups = data.by_input(data.load(dataset, root / FILES[dataset]))
    keys = sorted(key for key, items in groups.items() if longest is None or len(items[0].source) <= longest)
    random.Random(seed).shuffle(keys)
    if search + test > len(keys):
        raise SystemExit(
            f"{dataset} has only {len(keys)} documents of suitable length, but {search} for the search and {test} for "
            "the ranking are requested: lower --search-documents or --test-documents, or raise --longest-source."
        )
    sides = keys[:search], keys[search : search + test]
    first, second = ([e for key in sorted(side) for e in groups[key]] for side in sides)
    return first, second


def run_dataset(dataset: str, args: argparse.Namespace, lm: Any, bert_score: Any) -> dict[str, CriterionResult]:
    """Run all methods on every criterion of a data set."""
    search, test_documents = DOCUMENTS[dataset]
    train, test = documents(
        dataset,
        args.search_documents or search,
        args.test_documents or test_documents,
        longest=args.longest_source,
        seed=args.seed,
    )
    grammar = GrammarParaphraser(wordings.PARTS)
    proposer = grammar if args.proposer_lm == "grammar" else LMParaphraser(_proposer_lm(args, lm))
    results = {}
    for criterion in CRITERIA[dataset]:
        if args.criteria and criterion.name not in args.criteria:
            continue
        writer = None
        if args.labeled:
            writer = grammar_writer(grammar, criterion) if args.proposer_lm == "grammar" else _proposer_lm(args, lm)
        started = time.monotonic()
        settings = Settings(proposer, writer, bert_score, args.pairs, args.curve_wordings, args.seed)
        results[criterion.name] = run(criterion, train, test, lm, settings)
        args.out.mkdir(parents=True, exist_ok=True)
        curves = {"initial": results[criterion.name].points, "after permutation": results[criterion.name].debiased}
        curve_plot(curves, args.out / f"curve-{dataset}-{criterion.name}.png")
        print(f"{dataset} {criterion.name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return results


def _proposer_lm(args: argparse.Namespace, lm: Any) -> Any:
    return lm if args.proposer_lm == args.lm else open_lm(args.proposer_lm)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--proposer-lm", default="grammar")
    parser.add_argument("--sets", nargs="+", choices=[*CRITERIA], default=[*CRITERIA])
    parser.add_argument("--criteria", nargs="+")
    parser.add_argument("--search-documents", type=int, help="default: as the paper")
    parser.add_argument("--test-documents", type=int, help="default: 40; 30 of TopicalChat")
    parser.add_argument("--longest-source", type=int, help="characters; longer documents are left out")
    parser.add_argument("--pairs", type=int, help="largest number of pairs; default: all")
    parser.add_argument("--curve-wordings", type=int, help="wordings on the curve; default: all that were tried")
    parser.add_argument("--labeled", action="store_true")
    parser.add_argument("--encoder")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/zepo"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--title", default="a judge")
    args = parser.parse_args(arguments)
    lm = open_lm(args.lm, ModelOptions(dtype=args.dtype))
    bert_score = BERTScore(args.encoder, args.layers) if args.encoder else None
    judge = ", ".join(f"{k} {v}" for k, v in identity(lm).items())
    settings = (
        f"Judge: {judge}. Wordings: {args.proposer_lm}; 5 epochs of 5. Different documents for the search and for the "
        f"ranking; {f'at most {args.pairs}' if args.pairs else 'all'} pairs; seed {args.seed}."
    )
    if args.longest_source:
        settings += f" Documents of more than {args.longest_source} characters are left out."
    if args.encoder:
        settings += f" BERTScore: {args.encoder}, {args.layers} layers, against the source."
    parts = [f"## Fairness search (Zhou et al. 2024): {args.title}"]
    for dataset in args.sets:
        parts.append(report(dataset, run_dataset(dataset, args, lm, bert_score), settings))
    text = "\n\n".join(parts)
    print(text)
    if args.write:
        write_section(f"zepo {args.title}", text)


if __name__ == "__main__":
    main()
