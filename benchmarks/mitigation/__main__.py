"""Compile real pretrained judges on human ratings: run rows of the table, and write it into RESULTS.

usage: python -m benchmarks.mitigation FOLDER [--judges NAME ...] [--sets NAME ...] [--criteria NAME ...]
           [--dtype bfloat16] [--train 240] [--test 200] [-k 4] [--seed 0] [--resamples 2000] [--write]

The models come from ``make models``. FOLDER keeps every answer of a judge's model, so that a stopped run goes on, and
another rule of choice asks nothing again; ``--judges`` with no name runs no row. --write writes the finished rows into
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.kept_answers import keeping_answers
from benchmarks.mitigation.cases import CASES, JUDGES, TUNED, criterion_of, drawn, open_judge, usable
from benchmarks.mitigation.measure import compiled
from benchmarks.mitigation.report import read_rows, report
from benchmarks.results import write_section
from evalbias.data.pairing import input_key
from evalbias.programs.criterion import BINS
from evalbias.values import to_json

FEWEST = 40
"""Fewest inputs with which a row is run: an inner test needs a quarter of them."""


def main() -> None:
    """Parse the command line and run the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--judges", nargs="*", choices=list(JUDGES), default=list(JUDGES))
    parser.add_argument("--sets", nargs="+", default=list(dict.fromkeys(name for name, _ in CASES)))
    parser.add_argument("--criteria", nargs="+", default=list(dict.fromkeys(name for _, name in CASES)))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--train", type=int, default=240)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for judge in args.judges:
        lm = open_judge(judge, args.dtype)
        slug = judge.replace(", ", "-").replace(" ", "-").lower()
        journal = keeping_answers(lm, args.folder / f"{slug}.journal.jsonl")
        for data_set, name in CASES:
            if data_set not in args.sets or name not in args.criteria:
                continue
            items = usable(data_set, name, tuned=judge == TUNED)
            train, test = drawn(items, args.train, args.test, args.seed)
            row = {
                "judge": judge,
                "set": data_set,
                "criterion": name,
                "k": args.k,
                "seed": args.seed,
                "lm": lm.provenance(),
            }
            inputs = len(set(map(input_key, items)))
            if inputs < FEWEST:
                row["why_not"] = f"only {inputs} inputs are left that the judge was not trained on"
            else:
                started = time.monotonic()
                settings = {"k": args.k, "bins": BINS.get(data_set), "seed": args.seed, "n_resamples": args.resamples}
                row |= compiled(criterion_of(data_set, name), train, test, journal, **settings)
                row["seconds"] = round(time.monotonic() - started)
                print(
                    f"{judge}, {data_set}, {name}: {row['seconds']} s. {row['decision']}", file=sys.stderr, flush=True
                )
            file = args.folder / f"{slug}.{data_set}.{name}.{args.seed}.json"
            file.write_text(json.dumps(to_json(row), indent=1) + "\n", encoding="utf-8")
    text = report(read_rows(args.folder))
    print(text)
    if args.write:
        write_section("mitigation", text)


if __name__ == "__main__":
    main()
