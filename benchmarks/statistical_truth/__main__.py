"""Check tests and intervals on simulated judges whose truth is known, and write the goals beside what was measured.

usage: python -m benchmarks.statistical_truth [--sets 2000] [--sizes 30 120 568] [--worlds NAME ...] [--out DIR]
           [--seed 0] [--write]

Every world is checked at every size, with every item of its own document and with four outputs a document, and the
power of the paired tests by size. Each part is saved in ``--out`` when it is done and not repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.results import write_section
from benchmarks.statistical_truth.checks import Check, check
from benchmarks.statistical_truth.drift import drift
from benchmarks.statistical_truth.effect import EFFECTS as PLANTED
from benchmarks.statistical_truth.effect import LARGE, check_effect
from benchmarks.statistical_truth.power import power
from benchmarks.statistical_truth.scales import check_scales
from benchmarks.statistical_truth.table import report
from benchmarks.statistical_truth.worlds import WORLDS

OUTPUTS = (1, 4)
OTHERS = ("effect", "scales", "power", "drift")


def checked(world: str, n: int, outputs: int, *, sets: int, seed: int) -> list[dict[str, Any]]:
    """Check one world at one size; one record a statistic or effect. ``"drift"`` has sizes of its own."""
    if world == "effect":
        return [check_effect(effect, n=n, outputs=outputs, sets=sets, seed=seed) for effect in PLANTED]
    if world == "scales":
        return check_scales(n, sets=sets, seed=seed)
    if world == "drift":
        return drift((0.0, 0.3), seed=seed)
    if world == "power":
        return power(n, sets=sets, seed=seed)
    return [asdict(one) for one in check(world, WORLDS[world], n=n, outputs=outputs, sets=sets, seed=seed)]


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 120, 568])
    parser.add_argument("--worlds", nargs="+", choices=[*WORLDS, *OTHERS], default=[*WORLDS, *OTHERS])
    parser.add_argument("--out", type=Path, default=Path("runs/statistical-truth"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for world in args.worlds:
        for n in {"effect": [*args.sizes, LARGE], "drift": [LARGE]}.get(world, args.sizes):
            for outputs in (1,) if world in ("scales", "power", "drift", "rankers") else OUTPUTS:
                path = args.out / f"{world.replace(' ', '-')}-{n}-{outputs}.json"
                if path.exists() or (outputs > 1 and not 60 < n < LARGE):  # too few documents
                    continue
                started = time.monotonic()
                found = checked(world, n, outputs, sets=args.sets, seed=args.seed)
                path.write_text(json.dumps(found, indent=1), encoding="utf-8")
                print(f"{path.name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(args.out.glob("*.json"))}
    parts = {name: [row for stem, rows in records.items() if stem.startswith(name) for row in rows] for name in OTHERS}
    checks = [Check(**row) for stem, rows in records.items() if not stem.startswith(OTHERS) for row in rows]
    order = [*WORLDS]
    checks.sort(key=lambda c: (order.index(c.world), c.statistic, c.outputs, c.n))
    text = report(checks, parts["effect"], parts["scales"], parts["power"], parts["drift"])
    print(text)
    if args.write:
        write_section("statistical_truth", text)


if __name__ == "__main__":
    main()
