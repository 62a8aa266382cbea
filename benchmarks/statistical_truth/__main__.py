"""Check tests and intervals on simulated judges whose truth is known, and write the goals beside what was measured.

usage: python -m benchmarks.statistical_truth [--sets 2000] [--sizes 30 120 568] [--worlds NAME ...] [--out DIR]
           [--seed 0] [--write]

Every world is checked at every size, with every item of its own document and with four outputs a document, and the
power of the paired test by size. Each part is saved in ``--out`` when it is done and not repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.results import write_section
from benchmarks.statistical_truth.checks import Check, check, share_found
from benchmarks.statistical_truth.drift import drift
from benchmarks.statistical_truth.table import report
from benchmarks.statistical_truth.worlds import WORLDS, scoring

OUTPUTS = (1, 4)
POWER = ("BiasScore", "BiasScore (z)")
EFFECTS, POWER_SETS = (0.1, 0.2, 0.3), 400


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 120, 568])
    parser.add_argument("--worlds", nargs="+", choices=[*WORLDS, "power"], default=[*WORLDS, "power"])
    parser.add_argument("--out", type=Path, default=Path("runs/statistical-truth"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for world in args.worlds:
        for n in args.sizes:
            for outputs in (1,) if world in ("power", "rankers") else OUTPUTS:
                path = args.out / f"{world.replace(' ', '-')}-{n}-{outputs}.json"
                if path.exists() or (outputs > 1 and n < 60):  # too few documents
                    continue
                started = time.monotonic()
                if world == "power":
                    sets = min(args.sets, POWER_SETS)
                    found = [
                        {"statistic": name, "n": n, "effect": effect, "sets": sets, "found": share}
                        for effect in EFFECTS
                        for name in POWER
                        for share in [share_found(scoring(effect, 0.0), name, n=n, sets=sets, seed=args.seed)]
                    ]
                else:
                    checks = check(world, WORLDS[world], n=n, outputs=outputs, sets=args.sets, seed=args.seed)
                    found = [asdict(one) for one in checks]
                path.write_text(json.dumps(found, indent=1), encoding="utf-8")
                print(f"{path.name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(args.out.glob("*.json"))}
    power = [row for stem, rows in records.items() if stem.startswith("power") for row in rows]
    checks = [Check(**row) for stem, rows in records.items() if not stem.startswith("power") for row in rows]
    order = [*WORLDS]
    checks.sort(key=lambda c: (order.index(c.world), c.statistic, c.outputs, c.n))
    text = report(checks, power, drift((0.0, 0.3), seed=args.seed))
    print(text)
    if args.write:
        write_section("statistical_truth", text)


if __name__ == "__main__":
    main()
