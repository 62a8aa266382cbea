"""Write the tuned judge's record and evaluation into benchmarks/results/tuned_judge.md."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, as_text, markdown, write_section
from benchmarks.likelihood_table import JUDGES, TABLE
from evalbias.values import read_json


def report(record: Mapping[str, Any], evaluations: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the section: what was trained, and every judge on held-out items beside the published judges."""
    questions = ", ".join(f"{count} of {kind}" for kind, count in record["questions"].items())
    first = next(iter(evaluations.values()))
    names = list(first["rows"][0]["pointwise"]["estimates"])
    headings = ["data set, criterion", "judge", "outputs (inputs)", "coverage", *names]
    headings += ["likelihood alone", "length alone"]
    body, pairs = [], []
    for index, row in enumerate(first["rows"]):
        title = f"{row['set']}, {row['criterion']}"
        for name, evaluation in evaluations.items():
            found = evaluation["rows"][index]
            body.append([title, name, *_pointwise(found, names)])
            if found["pairwise"]:
                pairs.append([title, name, *_pairwise(found["pairwise"])])
        if row["criterion"] in TABLE.get(row["set"], {}):
            for judge, printed in zip(JUDGES, TABLE[row["set"]][row["criterion"]], strict=True):
                paper = {"bias_score": printed.bias, "performance": printed.performance}
                body.append([title, f"{judge}, published", "", "", *(paper.get(name, "") for name in names), "", ""])
    return "\n\n".join(
        [
            "## The tuned judge",
            f"{record['base']} with a LoRA adapter of rank {record['settings']['rank']}, trained in {record['steps']} "
            f"steps ({record['seconds'] / 60:.0f} minutes in one thread) on questions from training inputs only: "
            f"{questions}. All numbers are of inputs that no question was drawn from; 95 % intervals in brackets. "
            "*Likelihood alone* and *length alone* are Spearman's rho with people of two judges that read no text; a "
            "negative one means that people prefer short texts. Published figures are of other splits and of 8 random "
            "demonstrations -> the paper's.",
            markdown(headings, body),
            "Pairs that people rated differently, asked in both orders: how often the first position wins, and the "
            "share of pairs in which the average over the orders agrees with people.",
            markdown(["data set, criterion", "judge", "pairs", "coverage", "first wins", "agreement"], pairs),
        ]
    )


def _pointwise(row: Mapping[str, Any], names: list[str]) -> list[str]:
    found = row["pointwise"]
    estimates = [found["estimates"][name] for name in names]
    return [
        f"{found['n']} ({row['inputs']})",
        as_text(found["coverage"]),
        *("{} [{}, {}]".format(*(as_text(e[end], "+.2f") for end in ("value", "low", "high"))) for e in estimates),
        *(as_text(value, "+.2f") for value in found["alone"].values()),
    ]


def _pairwise(found: Mapping[str, Any]) -> list[str]:
    return [str(found["n"]), *(as_text(found[name]) for name in ("coverage", "first", "agreement"))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path, metavar="RECORD.json")
    parser.add_argument("judges", nargs="+", metavar="NAME=EVALUATION.json")
    args = parser.parse_args()
    named = {name: read_json(Path(file)) for name, _, file in (judge.partition("=") for judge in args.judges)}
    write_section(RESULTS / "tuned_judge.md", "tuned_judge", report(read_json(args.record), named))
