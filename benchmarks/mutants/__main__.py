"""Measure the tests of the measures and estimators: the share of small faults in the code (mutants) that they notice.

usage: python -m benchmarks.mutants [--sample 300] [--seed 0] [--modules measures.agreement ...] [--minutes M]
           [--out DIR] [--write]

Every mutant runs the quick test files of its own module, up to the first failure. ``equivalents.json`` lists mutants
that mean the same as the code, with the reason; they are left out. Results are kept in ``--out``, so that a stopped run
continues; a mutant that no test noticed is tried again.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.mutants.faults import ROOT, Mutant, drawn, path_of
from benchmarks.mutants.trial import try_all
from benchmarks.results import write_section

SHARED = {
    "measures": ["measures/test_conventions.py", "measures/test_checks.py"],
    "evaluation": ["evaluation/test_kinds_of_estimates.py"],
    "optimizers": ["optimizers/test_conventions.py"],
}
TESTS = {
    "evaluation.agreement": [
        "evaluation/test_corrected_estimates.py",
        "evaluation/test_floors.py",
        "evaluation/test_people.py",
    ],
    "evaluation.biases": [
        "evaluation/test_joint.py",
        "evaluation/test_inputs_of_items.py",
        "evaluation/test_effect.py",
        "evaluation/test_pairwise_biases.py",
        "evaluation/test_judged.py",
        "evaluation/test_scale_use.py",
        "evaluation/test_self_bias.py",
        "report/test_self_bias_shown.py",
        "evaluation/test_self_preference.py",
        "evaluation/test_verbosity.py",
    ],
    "evaluation.estimates": [
        "evaluation/test_estimates.py",
        "evaluation/test_inputs_of_items.py",
        "evaluation/test_judged.py",
        "evaluation/test_sample_size.py",
    ],
    "evaluation.judged": [
        "evaluation/test_judged.py",
        "evaluation/test_inputs_of_items.py",
        "evaluation/test_effect.py",
        "evaluation/test_pairwise_biases.py",
        "evaluation/test_recorded_judge.py",
        "evaluation/test_people.py",
        "evaluation/test_verbosity.py",
        "evaluation/test_scale_use.py",
    ],
    "evaluation.rankings": ["evaluation/test_analyses.py"],
    "evaluation.words": ["evaluation/test_effect.py", "evaluation/test_audit.py"],
    "measures.agreement": [
        "measures/test_agreement.py",
        "measures/test_reliability.py",
        "evaluation/test_people.py",
        "measures/test_ranks.py",
        "measures/test_intervals.py",
    ],
    "measures.arrays": [],
    "measures.corrections": ["measures/test_corrected.py", "programs/test_likelihood_calibration.py"],
    "measures.effect_statistic": [
        "measures/test_likelihood_effect.py",
        "measures/test_effect_invariance.py",
        "measures/test_effect_of_pairs.py",
        "evaluation/test_effect.py",
    ],
    "measures.equal_quality": [
        "measures/test_likelihood_effect.py",
        "measures/test_effect_invariance.py",
        "measures/test_curvature.py",
        "measures/test_family_wise.py",
        "evaluation/test_verbosity.py",
        "measures/test_effect_of_pairs.py",
    ],
    "measures.families": ["measures/test_family_wise.py"],
    "measures.likelihood": [
        "measures/test_likelihood.py",
        "measures/test_statistic.py",
        "measures/test_intervals.py",
        "measures/test_significance.py",
    ],
    "measures.loops": ["measures/test_self_bias.py", "measures/test_statistic.py"],
    "measures.mixture": ["measures/test_significance.py"],
    "measures.mqm": ["measures/test_mqm.py"],
    "measures.pairs": [
        "measures/test_balanced_rate.py",
        "measures/test_both_orders.py",
        "measures/test_uniformity.py",
        "measures/test_statistic.py",
        "measures/test_intervals.py",
        "measures/test_preference.py",
        "evaluation/test_verbosity.py",
    ],
    "measures.position_calibration": ["measures/test_calibration.py", "measures/test_position_calibration.py"],
    "measures.ratings": [
        "measures/test_curvature.py",
        "measures/test_raters.py",
        "measures/test_likelihood_effect.py",
        "measures/test_effect_invariance.py",
        "measures/test_effect_of_pairs.py",
    ],
    "measures.resample": [
        "measures/test_statistic.py",
        "measures/test_reliability.py",
        "measures/test_intervals.py",
        "measures/test_significance.py",
        "measures/test_ranks.py",
        "measures/test_self_bias.py",
    ],
    "measures.scale_use": ["evaluation/test_scale_use.py", "measures/test_uniformity.py"],
    "optimizers.base": ["optimizers/test_selection.py"],
    "optimizers.demonstrations": ["optimizers/test_likelihood_mitigation.py"],
    "optimizers.likelihood": ["optimizers/test_likelihood_mitigation.py"],
    "optimizers.likelihood_rules": ["optimizers/test_agreement_rule.py", "optimizers/test_likelihood_mitigation.py"],
    "optimizers.objectives": [
        "optimizers/test_zepo_pointwise.py",
        "optimizers/test_racing.py",
        "optimizers/test_selection.py",
        "optimizers/test_zepo.py",
    ],
    "optimizers.racing": ["optimizers/test_racing.py"],
    "optimizers.refine": ["optimizers/test_selection.py", "optimizers/test_external_refine.py"],
    "optimizers.selection": ["optimizers/test_selection.py"],
    "optimizers.study": ["optimizers/test_selection.py", "optimizers/test_study.py"],
    "optimizers.zepo": ["optimizers/test_zepo.py"],
}
"""Module of evalbias -> its test files, unless it is the one of the same name."""
MODULES = sorted(
    {f"measures.{path.stem}" for path in path_of("measures.agreement").parent.glob("[a-z]*.py")} - {"measures.arrays"}
    | {module for module in TESTS if not module.startswith("measures.")}
)
"""The measures, and the estimators and rules of choice of the other packages; not what only words or loads them."""
EQUIVALENTS = Path(__file__).parent / "equivalents.json"


def files_of(module: str) -> list[str]:
    """Return the test files of a module, below tests/.

    Raises:
        ValueError: There are none.
    """
    folder, _, name = module.partition(".")
    files = [*TESTS.get(module, [f"{folder}/test_{name}.py"]), *SHARED.get(folder, ())]
    missing = [file for file in files if not (ROOT / "tests" / file).is_file()]
    if missing:
        raise ValueError(f"{module} has no tests in {missing}: name its test files in TESTS.")
    return files


def within_function(mutant: Mutant) -> bool:
    """Return whether the fault lies in the body of a function, so that importing the module does not meet it."""
    tree = ast.parse(path_of(mutant.module).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return any(node.body[0].lineno <= mutant.line <= (node.end_lineno or 0) for node in functions)


def sample(folder: Path, size: int, seed: int) -> list[Mutant]:
    """Draw mutants, or read those drawn before from the same code: making one takes a second."""
    code = "".join(path_of(module).read_text(encoding="utf-8") for module in MODULES)
    key = hashlib.sha256(f"{size} {seed} {code}".encode()).hexdigest()[:12]
    path = folder / f"drawn-{key}.json"
    if not path.exists():
        path.write_text(json.dumps([asdict(one) for one in drawn(MODULES, size, seed)]), encoding="utf-8")
    return [Mutant(**one) for one in json.loads(path.read_text(encoding="utf-8"))]


def tried(journal: Path) -> dict[tuple[str, str], bool]:
    """Return (module, change) -> whether a test noticed it, by the latest record."""
    if not journal.exists():
        return {}
    records = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    return {(one["module"], one["change"]): one["noticed"] for one in records}


def section(chosen: list[Mutant], noticed: dict[tuple[str, str], bool], equivalents: list[Any], seed: int) -> str:
    """Return the section for RESULTS.md."""
    left_out = {(one["module"], one["change"]) for one in equivalents}
    same = [one for one in chosen if (one.module, one.title) in left_out]
    judged = [one for one in chosen if one in same or (one.module, one.title) in noticed]
    survivors = [one for one in judged if one not in same and not noticed[one.module, one.title]]
    killed, different = len(judged) - len(same) - len(survivors), len(judged) - len(same)
    modules = len({one.module for one in judged})
    parts = [
        "## Faults that the tests of the measures and estimators notice",
        f"{len(judged)} of {len(chosen)} drawn mutants were tried, of {modules} modules (seed {seed}): {killed} "
        f"noticed, {len(same)} mean the same as the code, {len(survivors)} survive: "
        f"{100 * killed / max(different, 1):.0f} % of those that differ in meaning are noticed.",
    ]
    counts = Counter(one.module for one in survivors)
    missing = Counter(one.module for one in chosen if one not in judged)
    if missing:
        parts.append("Not tried: " + ", ".join(f"`{name}` {count}" for name, count in sorted(missing.items())) + ".")
    if survivors:
        parts.append("Survivors: " + ", ".join(f"`{name}` {count}" for name, count in sorted(counts.items())) + ".")
        parts.append("\n".join(f"- `{one.module}` line {one.line}: `{one.title}`" for one in survivors))
    return "\n\n".join(parts)


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modules", nargs="+", choices=MODULES, default=MODULES)
    parser.add_argument("--minutes", type=float, default=60.0, help="start no further module after these")
    parser.add_argument("--out", type=Path, default=Path("runs/mutants"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    journal, started = args.out / "journal.jsonl", time.monotonic()
    equivalents = json.loads(EQUIVALENTS.read_text(encoding="utf-8"))
    left_out = {(one["module"], one["change"]) for one in equivalents}
    chosen, noticed = sample(args.out, args.sample, args.seed), tried(journal)
    for module in args.modules:
        open_ones = [
            one
            for one in chosen
            if one.module == module and (module, one.title) not in left_out and not noticed.get((module, one.title))
        ]
        if open_ones and time.monotonic() - started < 60 * args.minutes:
            try_all(open_ones, [within_function(one) for one in open_ones], files_of(module), journal)
    text = section(chosen, tried(journal), equivalents, args.seed)
    print(text)
    if args.write:
        write_section("mutants", text)


if __name__ == "__main__":
    main()
