"""Measure the tuned judge, or the prompted model, on items of held-out inputs.

usage: python -m benchmarks.tuned_judge.evaluate OUT.json [--adapter FOLDER] [--sets tmu-gfm summeval] [--limit 200]
           [--pairs 100] [--seed 0] [--dtype float32]

Without --adapter the model is prompted, zero-shot, as it comes. Every data set is measured on whole inputs of the test
split, drawn with the seed until they have --limit outputs, under every criterion; beside the judge stand likelihood
alone and length alone. Pairs of outputs of the same inputs are compared in both orders.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from benchmarks.pretrained import SMOLLM2, models_folder
from benchmarks.tuned_judge.questions import PERMISSIVE, SETS, Rated, rated
from evalbias import BIASES, LocalLM, PairwiseJudge, PointwiseJudge, data, judge_examples, measure
from evalbias.data.items import by_input
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS
from evalbias.measures import estimate_effect, spearman
from evalbias.programs.criterion import Criterion
from evalbias.runs import versions
from evalbias.values import to_json


def held_out(data_set: Rated, limit: int, seed: int) -> list[dspy.Example]:
    """Return the outputs of some held-out inputs: whole inputs, drawn at random until there are ``limit`` outputs."""
    inputs = list(by_input(data_set.test).values())
    random.Random(seed).shuffle(inputs)
    chosen: list[dspy.Example] = []
    for outputs in inputs:
        if len(chosen) < limit:
            chosen += outputs
    return chosen


def scored(criterion: Criterion, items: Sequence[dspy.Example], lm: Any, seed: int) -> dict[str, Any]:
    """Measure the pointwise judge, and the two baselines that know no criterion."""
    judged = judge_examples(PointwiseJudge(criterion), items, lm=lm, likelihood_lm="own")
    human, likelihoods = judged.covariate(HUMAN_SCORES), judged.covariate(LIKELIHOODS)
    columns = judged.answers, judged.covariate(RATINGS), likelihoods
    effect = estimate_effect(*columns, names=("likelihood",), clusters=judged.inputs)
    return {
        "n": len(items),
        "coverage": np.nanmean(judged.asked.coverage),
        "estimates": {
            "likelihood_effect": {"value": effect.value, "low": effect.low, "high": effect.high},
            **measure(BIASES["likelihood"], judged, seed=seed).to_dict(items=False)["estimates"],
        },
        "alone": {name: spearman(judged.covariate(name), human).value for name in (LIKELIHOODS, LENGTHS)},
    }


def compared(criterion: Criterion, items: Sequence[dspy.Example], lm: Any, limit: int, seed: int) -> dict[str, Any]:
    """Measure the pairwise judge on pairs whose outputs people rated differently."""
    pairs = data.pairs(items, criterion=criterion.name, ordered=False, limit=limit, seed=seed)
    judged = judge_examples(PairwiseJudge(criterion, instruction_place="first"), pairs, lm=lm)
    shares, wanted = judged.win_shares, np.array([pair.preference == "A" for pair in pairs])
    defined = ~np.isnan(shares)
    return {
        "n": int(defined.sum()),
        "coverage": np.nanmean(judged.asked.coverage),
        "first": (judged.answers[defined][:, :, 0] > 0.5).mean(),
        "agreement": np.where(shares == 0.5, 0.5, (shares > 0.5) == wanted)[defined].mean(),
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--adapter")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(PERMISSIVE))
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=100, help="largest number of pairs for each criterion; 0 for none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    started = time.monotonic()
    lm = LocalLM(str(models_folder() / SMOLLM2), adapter=args.adapter, dtype=args.dtype)
    rows = []
    for name in args.sets:
        data_set = rated(name)
        items = held_out(data_set, args.limit, args.seed)
        for criterion in data_set.criteria:
            row = {"set": name, "criterion": criterion.name, "inputs": len(by_input(items))}
            row["pointwise"] = scored(criterion, items, lm, args.seed)
            row["pairwise"] = compared(criterion, items, lm, args.pairs, args.seed) if args.pairs else None
            rows.append(row)
            print(json.dumps(to_json(row)), flush=True)
    seconds = round(time.monotonic() - started)
    result = {"lm": lm.provenance(), "versions": versions(), "seed": args.seed, "seconds": seconds, "rows": rows}
    args.out.write_text(json.dumps(to_json(result), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
