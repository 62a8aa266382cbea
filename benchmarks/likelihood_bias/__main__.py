"""Reproduce Table 1 for any judge model: run ``evalbias compile likelihood`` and add the published figures.

usage: python -m benchmarks.likelihood_bias --lm MODEL [--likelihood-lm MODEL] [--sets webnlg2020 tmu-gfm]
           [--reductions sum mean] [--candidates FOLDER] [--out DIR] [--write] [--title TEXT]
           [options of evalbias compile likelihood]

Every data set is run with LS as the sum over tokens, as the paper writes it, and as the mean, as its code does.
The data are read from EVALBIAS_DATA (default ../shared/data). A stopped run resumes. ``--candidates`` names a folder
with candidates-NAME.txt: the training items that may become demonstrations, for a judge model that was trained on the
others. ``--write`` puts the tables into benchmarks/RESULTS.md under ``--title``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.likelihood_bias.published import TABLE
from benchmarks.likelihood_bias.table import Finished, report
from benchmarks.results import write_section
from evalbias.programs.judges import REDUCTIONS

FILES = {"webnlg2020": "upstream/webnlg-challenge-2020", "tmu-gfm": "upstream/tmu-gfm-dataset.csv"}


def compiled(dataset: str, folder: Path, options: list[str]) -> Finished:
    """Run the command and read its run folder."""
    data = Path(os.environ.get("EVALBIAS_DATA", "../shared/data")) / FILES[dataset]
    command = [
        sys.executable,
        "-m",
        "evalbias.cli.app",
        "compile",
        "likelihood",
        "--bare",
        "--data",
        f"{dataset}:{data}",
    ]
    subprocess.run([*command, "--out", str(folder), *options], check=True)
    return Finished.read(dataset, folder)


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", required=True)
    parser.add_argument("--sets", nargs="+", choices=[*TABLE], default=[*TABLE])
    parser.add_argument("--reductions", nargs="+", choices=REDUCTIONS, default=REDUCTIONS)
    parser.add_argument("--candidates", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/likelihood-bias"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--title", default="a judge")
    args, extra = parser.parse_known_args()
    parts = [f"## Likelihood bias (Ohi et al. 2024, Table 1): {args.title}"]
    for dataset in args.sets:
        options = ["--lm", args.lm, *extra]
        if args.candidates is not None:
            options += ["--candidates", str(args.candidates / f"candidates-{dataset}.txt")]
        started = time.monotonic()
        runs = {
            reduction: compiled(dataset, args.out / f"{dataset}-{reduction}", [*options, "--reduction", reduction])
            for reduction in args.reductions
        }
        parts.append(report(runs))
        print(f"{dataset}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    text = "\n\n".join(parts)
    print(text)
    if args.write:
        write_section(f"likelihood_bias {args.title}", text)


if __name__ == "__main__":
    main()
