"""Right and false flags of the audit, and of its peers, on judges whose biases were planted.

usage: python -m benchmarks.audit [--draws 200] [--peer-draws 20] [--sizes 120 568] [--peers judgekit judgecal juryrig]
           [--peer-judges NAME ...] [--out DIR] [--seed 0] [--write]

What each tool flags is saved in ``--out`` draw by draw and not asked again. The peers are installed into
``.servers/peers`` on first use; judgekit and judgecal resample in Python and take 5 to 60 seconds a draw, so they see
the first ``--peer-draws`` draws of ``--peer-judges``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.audit.judges import JUDGES, Defects, Drawn, draw
from benchmarks.audit.ours import findings
from benchmarks.audit.peers import VERSIONS, Flags, applies, ask, kept
from benchmarks.harness import argument_parser, finish, markdown

PEERS = ("judgekit", "judgecal", "juryrig")
WORDS = {"self_preference": "own", "scale_use": "scale"}
OURS = "evalbias"

TEXT = """
## The audit beside its peers

Judges with planted biases, on items whose length and likelihood correlate .5 with quality, rated by three people with
noise on a scale of 1 to 5 (`benchmarks/audit/judges.py`). "verbosity 90; false 4 (of 200)": of 200 draws of n items, in
90 % the planted bias was flagged, and in 4 % any bias that the judge does not have. evalbias flags what its audit calls
biased, with a family-wise error of 5 % over an unbiased judge's biases; its intervals allow for the ends of the rating
scale, which pairs of these judges, without a scale of their own, need, most of all where half of the ratings are 5.
Of pairs, the allowance is told from the differences of the ratings (`evalbias.measures.ratings`). The peers flag with
their own default thresholds: {versions}.
"""


def drawn(judge: str, n: int, index: int, seed: int) -> Drawn:
    """Draw a judge; every tool sees the same draws."""
    return draw(JUDGES[judge], n, np.random.default_rng([seed, list(JUDGES).index(judge), n, index]))


def flags_of(tool: str, judge: str, n: int, draws: int, *, out: Path, seed: int) -> Flags:
    """Return what a tool flags, draw by draw; what is saved is not asked again."""
    if tool != OURS and not applies(tool, pairwise=JUDGES[judge].pairwise):
        return ()

    def flags(missing: range) -> Iterable[set[str]]:
        judges = (drawn(judge, n, index, seed) for index in missing)
        if tool == OURS:
            return (biased(drawn, index) for drawn, index in zip(judges, missing, strict=True))
        return ask(tool, (drawn.numbers for drawn in judges))

    return kept(out / f"{tool}-{re.sub(r'[^a-z]+', '-', judge)}-{n}-{seed}.jsonl", draws, flags)


def biased(drawn: Drawn, seed: int) -> set[str]:
    """Return the biases of which the audit says that the judge has them."""
    return {finding.bias for finding in findings(drawn.judged, seed=seed) if finding.status == "biased"}


def cell(defects: Defects, flags: Flags) -> str:
    """Say in how many of 100 draws each planted bias was flagged, and in how many any other one was.

    Examples:
        >>> cell(Defects(length=0.4), [frozenset({"verbosity"}), frozenset({"position"})])
        'verbosity 50; false 50 (of 2)'
    """
    if not flags:
        return "-"
    right = [
        f"{WORDS.get(bias, bias)} {100 * sum(bias in found for found in flags) / len(flags):.0f}"
        for bias in sorted(defects.planted)
    ]
    wrong = 100 * sum(bool(found - defects.planted - defects.unscored) for found in flags) / len(flags)
    return "; ".join([*right, f"false {wrong:.0f}"]) + f" (of {len(flags)})"


def table(sizes: Sequence[int], found: Mapping[tuple[str, str, int], Flags]) -> str:
    """Return the table of the flags by (tool, judge, n): the right ones by bias, and the draws with a false one."""
    tools = list(dict.fromkeys(tool for tool, _, _ in found))
    body = [
        [judge, n, *(cell(defects, found.get((tool, judge, n), ())) for tool in tools)]
        for judge, defects in JUDGES.items()
        for n in sizes
    ]
    return markdown(["judge", "n", *tools], body)


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="audit-peers")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--peer-draws", type=int, default=20)
    parser.add_argument("--sizes", type=int, nargs="+", default=[120, 568])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--peer-judges", nargs="+", choices=list(JUDGES), default=list(JUDGES))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    flags: dict[tuple[str, str, int], Flags] = {}
    for tool in (OURS, *args.peers):
        for n in args.sizes:
            for judge in JUDGES:
                draws = args.draws if tool == OURS else args.peer_draws if judge in args.peer_judges else 0
                flags[tool, judge, n] = flags_of(tool, judge, n, draws, out=args.out, seed=args.seed)
            print(f"{tool}, n = {n}: done", file=sys.stderr)
    versions = ", ".join(f"{peer} {VERSIONS[peer]}" for peer in args.peers)
    finish(args, "audit", f"{TEXT.format(versions=versions)}\n{table(args.sizes, flags)}")


if __name__ == "__main__":
    main()
