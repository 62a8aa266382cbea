"""Are judges called moved by edits that do not move them, and is a planted bias found? Ours and peers' probes.

usage: python -m benchmarks.probes [--sets 300] [--peer-sets 100] [--out runs/probes] [--seed 0] [--write]
           [--runs FOLDER ...] [--compiled [JUDGE ...]] [--kind injection] [--data NAME ...] [--items 60] [-k 4]

Simulated judges score 120 items as they are, with each of 12 kinds of edits and with each placebo, from 1 to 5. Those
of the first rows treat edits and placebos alike, so any finding is a false alarm. In the others, one kind is planted.
Peers see the first ``--peer-sets`` of the same data sets: for the score of an output as it is, which they compare with
that of the edited one, they get the placebo's, which these judges draw alike. ``--runs`` adds what folders of
``evalbias probe run`` found of real judges. ``--compiled`` searches demonstrations for real judges against a kind, on
``--items``, and measures on up to 60 others what they change; without a judge, it writes the table of what is in OUT.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import mitigation
from benchmarks.audit.judges import likert
from benchmarks.audit.peers import VERSIONS, ask, kept
from benchmarks.harness import argument_parser, finish, keeping_answers, markdown, simulated
from benchmarks.sets import BINS
from evalbias import BiasedDemos, PointwiseJudge
from evalbias.evaluation.estimates import Number
from evalbias.evaluation.judged import HUMAN_SCORES, Judged, judge_examples
from evalbias.evaluation.probes import estimate_probe
from evalbias.measures import Draws, Interval, estimate_mean, estimate_spearman
from evalbias.measures.arrays import FloatArray
from evalbias.measures.families import holm
from evalbias.optimizers.base import hold_back
from evalbias.optimizers.likelihood import draw_demos, with_demos
from evalbias.optimizers.objectives import ProbeObjective
from evalbias.optimizers.selection import CompileReport
from evalbias.values import read_json, to_json

KINDS, ITEMS, OUTPUTS = 12, 120, 4
TRUTH = 2_000  # data sets from which a true effect is computed, as scores are rounded and end
Judge = Callable[[np.random.Generator, FloatArray], FloatArray]  # of (kinds, 2, items): what is planted, in points


def noisy(spread: float, *, level: float = 3.0, shared: bool = False) -> Judge:
    """Judge with noise of its own in every answer, around a level; ``shared`` by the outputs of an input."""

    def answer(rng: np.random.Generator, planted: FloatArray) -> FloatArray:
        noise = rng.normal(size=planted.shape)
        if shared:
            noise = noise[..., ::OUTPUTS].repeat(OUTPUTS, axis=-1)
        return likert(level + rng.normal(size=ITEMS) + planted + spread * noise)

    return answer


def guessing(rng: np.random.Generator, planted: FloatArray) -> FloatArray:
    """Judge that answers at random."""
    return rng.integers(1, 6, size=planted.shape).astype(np.float64)


def steady(rng: np.random.Generator, planted: FloatArray) -> FloatArray:
    """Judge that says the same again in 97 of 100 cases, and else a level more or less."""
    moved = np.where(rng.random(planted.shape) < 0.03, rng.choice([-1, 1], size=planted.shape), 0)
    return np.clip(likert(3 + rng.normal(size=ITEMS)) + moved + planted, 1, 5)


JUDGES: dict[str, tuple[Judge, bool, float, float]] = {
    "noise of half a point": (noisy(0.5), False, 0.0, 0.0),
    "noise of half a point, near the highest score": (noisy(0.5, level=4.7), False, 0.0, 0.0),
    "noise that the outputs of an input share": (noisy(0.7, shared=True), True, 0.0, 0.0),
    "says the same again in 97 %": (steady, False, 0.0, 0.0),
    "answers at random": (guessing, False, 0.0, 0.0),
    "0.3 points, noise of half a point": (noisy(0.5), False, 0.3, 1.0),
    "0.4 points, noise of half a point, near the highest score": (noisy(0.5, level=4.2), False, 0.4, 1.0),
    "an injection that raises one of 5 items by 4 points": (noisy(0.5), False, 4.0, 1 / 5),
    "a point in every fifth item, else the same in 97 %": (steady, False, 1.0, 0.2),
}
"""Name -> judge, whether four outputs share an input, and the points that the first kind brings in a share of items."""
PEERS = {"juryrig": ("verbosity", "injection"), "judge-audit-mcp": ("verbosity", "sycophancy")}
"""Peer -> its probes of a judge that scores."""


def found(scores: FloatArray, seed: int, *, clustered: bool) -> list[float]:
    """Return the p of each kind; ``clustered`` where the outputs of an input share their noise."""
    clusters, draws = np.arange(ITEMS) // OUTPUTS if clustered else None, Draws(seed=seed, resamples=0)
    return [estimate_probe(e - c, unseen=4.0, draws=draws, clusters=clusters).p_value for e, c in scores]


def planted(rng: np.random.Generator, points: float, share: float, *, kinds: int = KINDS) -> FloatArray:
    """Return (kinds, 2, items) what edits and placebos bring, of which the first edit brings points in some items."""
    bonus = np.zeros((kinds, 2, ITEMS))
    if points:
        bonus[0, 0] = points * (rng.random(ITEMS) < share)
    return bonus


def drawn(name: str, seed: int) -> Iterator[tuple[FloatArray, int]]:
    """Yield data sets of a judge without end: the scores, (kinds, 2, items), and a seed."""
    (judge, _, *bonus), rng = JUDGES[name], np.random.default_rng(seed)
    while True:
        scores = judge(rng, planted(rng, *bonus))
        yield scores, int(rng.integers(2**31))


def flags_of(peer: str, name: str, args: Any) -> dict[str, float]:
    """Return the share of data sets in which each probe of a peer calls a judge moved, by the planted kind if any."""

    def flags(missing: range) -> Iterator[set[str]]:
        sets = islice(drawn(name, args.seed), missing.start, missing.stop)
        kinds = [0, 0] if JUDGES[name][2] else [0, 1]
        yield from ask(peer, ({"edits": scores[kinds].tolist()} for scores, _ in sets))

    file = args.out / f"{peer}-{args.seed}-{[*JUDGES].index(name)}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    flagged = kept(file, args.peer_sets, flags)
    return {probe: sum(probe in flags for flags in flagged) / len(flagged) for probe in PEERS[peer]}


def covered(name: str, *, sets: int, seed: int) -> dict[str, dict[str, float]]:
    """Return what becomes of the effect of the first kind, whose truth is the mean over other data sets."""
    judge, clustered, *bonus = JUDGES[name]
    clusters = np.arange(ITEMS) // OUTPUTS if clustered else None

    def difference(*numbers: int) -> FloatArray:
        rng = np.random.default_rng([seed, *numbers])
        edit, placebo = judge(rng, planted(rng, *bonus, kinds=1))[0]
        return np.asarray(edit - placebo)

    truth = float(np.mean([difference(number, 1) for number in range(TRUTH)]))

    def once(number: int) -> dict[str, tuple[Interval, float]]:
        draws = Draws(seed=number)
        return {"effect": (estimate_probe(difference(number), unseen=4.0, draws=draws, clusters=clusters), truth)}

    return simulated(once, sets)


def compared(args: Any) -> dict[str, float]:
    """Return the share of data sets with a finding, by judge, and write the table, peers' shares beside it."""
    shares, rows = dict[str, float](), []
    for name, (_, clustered, points, _) in JUDGES.items():
        p_values = [found(*drawing, clustered=clustered) for drawing in islice(drawn(name, args.seed), args.sets)]
        adjusted = [holm(p)[:1] if points else holm(p) for p in p_values]
        shares[name], alone = (
            float(np.mean([min(p) < 0.05 for p in ps])) for ps in (adjusted, [p[:1] for p in p_values])
        )
        peers = [share for peer in PEERS if args.peer_sets for share in flags_of(peer, name, args).values()]
        first = name, "one kind" if points else "none", f"{shares[name]:.1%}"
        rows.append((*first, *(f"{share:.0%}" for share in (alone, *peers))))
    headings = [f"{peer} {VERSIONS[peer]}: {probe}" for peer in PEERS if args.peer_sets for probe in PEERS[peer]]
    text = markdown(("judge", "planted", "evalbias, 12 kinds", "evalbias, one kind", *headings), rows)
    about = f"{ITEMS} items, {KINDS} kinds, {args.sets} data sets a row, peers {args.peer_sets}; seed {args.seed}."
    finish(args, "probes", f"## Judges with and without a planted bias\n\n{about}\n\n{text}", section="simulated")
    return shares


def told(run: Path) -> str:
    """Return the section of a run of ``evalbias probe run``."""
    result, rows, taken = read_json(run / "result.json"), list[tuple[str, ...]](), list[str]()
    unit, scale = ("effect, wins in 100", 100) if result["pairwise"] else ("effect", 1)
    for kind, e in result["kinds"].items():
        value, low, high = (f"{scale * e['estimate'][part]:+.2f}" for part in ("value", "low", "high"))
        changes = (f"{scale * e[part]['value']:+.2f}" for part in ("edit", "placebo"))
        rows.append((kind, e["status"], value, f"{low} to {high}", *changes))
        if e.get("taken"):
            share, other = e["taken"], e["taken_by_placebo"]["value"]
            most = f"at most {share['high']:.0%}, by its placebo {other:.0%}"
            taken.append(f"\n\nTaken over by {kind}: {share['value']:.0%} of {share['n']} ({most}).")
    table = markdown(("kind", "finding", unit, "95 % interval", "edit", "placebo"), rows)
    title = f"{run.name.replace('-', ' ')}: {result['n']} {'pairs' if result['pairwise'] else 'items'}"
    return f"## {title}\n\n{result['verdict']}\n\n{table}{''.join(taken)}"


SETS, TESTED = ("webnlg2020", "summeval"), 60
"""Data sets on which real judges are compiled, for fluency; and most items on which they are measured."""


def forms_of(judge: str, data_set: str, lm: Any, args: Any) -> tuple[CompileReport, dict[str, Judged]]:
    """Compile a judge against a kind of edits; return the report, and what its forms answer on other inputs."""
    criterion, bins, seed = mitigation.criterion_of(data_set, "fluency"), BINS.get(data_set), args.seed
    items = mitigation.usable(data_set, "fluency", tuned=judge == mitigation.TUNED)
    train, test = mitigation.drawn(items, args.items, min(args.items, TESTED), seed)
    plain, probe = PointwiseJudge(criterion), ProbeObjective(args.kind, seed=seed)
    search = BiasedDemos(args.k, objective=probe, bins=bins, seed=seed)
    report = search.compile(plain, trainset=train, lm=lm).report
    # Also what was refused: the demonstrations that were found, and the random ones that they were found under.
    fit, _ = hold_back(train, seed=seed)
    search.select = False
    found = search.compile(plain, trainset=fit, lm=lm)
    at_random = with_demos(plain, draw_demos(fit, args.k, seed=seed)[0], bins=bins)
    forms, rows = {"given": plain, "random": at_random, "edited": found}, probe.searched(test, criterion.scale)
    return report, {form: judge_examples(program, rows, lm=lm) for form, program in forms.items()}


def changed(forms: dict[str, Judged], seed: int) -> dict[str, dict[str, Any]]:
    """Return by form the effect of the edit less its placebo's, Spearman's rho with people, and how both changed."""
    found, first, how = dict[str, dict[str, Any]](), list[Number](), {"seed": seed, "n_resamples": 2_000}
    for form, judged in forms.items():
        as_it_is = judged.take(np.arange(len(judged.ids))[::3])
        own, edit, placebo = judged.answers.reshape(-1, 3).T
        numbers = [Number("effect", "effect", edit - placebo, estimate_mean)]
        people = (as_it_is.covariate(HUMAN_SCORES),)
        numbers.append(Number("agreement", "agreement", own, estimate_spearman, columns=people))
        first, found[form] = first or numbers, {"spread": float(np.nanstd(own))}
        for number, before in zip(numbers, first, strict=True):
            found[form][number.name] = number.estimate(as_it_is.clusters, **how)
            change = number.change(before.values, as_it_is.clusters, swaps=0, **how)
            found[form][f"{number.name}_change"] = change
    return found


def compiled(args: Any) -> None:
    """Compile real judges against a kind of edits, keep what that changed, and write the table of all that were."""
    for judge in args.compiled:
        lm = keeping_answers(mitigation.open_judge(judge, "float32"), args.out / f"{judge}.journal.jsonl")
        for data_set in args.data:
            report, forms = forms_of(judge, data_set, lm, args)
            row = {"judge": judge, "set": data_set, "kind": args.kind, "k": args.k, "items": args.items}
            row |= {"decision": report.decision, "chosen": report.chosen, "forms": changed(forms, args.seed)}
            file = args.out / f"{judge}.{data_set}.{args.kind}.{args.items}.json"
            file.write_text(json.dumps(to_json(row), indent=1) + "\n", encoding="utf-8")
    records = [read_json(file) for file in sorted(args.out.glob("*.*.*.*.json"))]
    finish(args, "probes", of_compiled(records), section="compiled")


def of_compiled(rows: Sequence[Any]) -> str:
    """Return the section of compiled judges: each form on inputs that neither the search nor the choice saw."""
    lines = list[tuple[str, ...]]()
    for row in rows:
        for form, found in row["forms"].items():
            cells = [
                mitigation.interval_of(found[name + more])
                for name in ("effect", "agreement")
                for more in ("", "_change")
            ]
            name = form if form == "given" else f"{row['k']} {form}"
            title = row["judge"], row["set"], row["kind"], str(row["items"]), name
            lines.append((*title, *cells[:2], f"{found['spread']:.2f}", *cells[2:]))
    headings = ["judge", "data", "against", "items", "demonstrations"]
    headings += ["effect", "change", "spread", "Spearman", "change"]
    decisions = [f"- {r['judge']}, {r['set']}, {r['kind']} ({r['items']} items): {r['decision']}" for r in rows]
    return "\n\n".join(["## Compiled against a probe", markdown(headings, lines), "\n".join(decisions)])


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Run the benchmark and return the share of data sets with a finding, by judge."""
    parser = argument_parser(__doc__, out="probes")
    parser.add_argument("--sets", type=int, default=300, help="data sets of each row; 0 simulates none")
    parser.add_argument("--peer-sets", type=int, default=100, help="the first of these, which peers see; 0 for none")
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="folders of evalbias probe run")
    parser.add_argument("--compiled", nargs="*", choices=list(mitigation.JUDGES), help="compile real judges")
    parser.add_argument("--kind", default="injection", help="what they are compiled against")
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS, help="on which data")
    parser.add_argument("--items", type=int, default=60, help="items to search and choose on")
    parser.add_argument("-k", type=int, default=4, help="number of demonstrations")
    args = parser.parse_args(argv)
    if args.compiled is not None:
        compiled(args)
    shares = compared(args) if args.sets else {}
    for run in args.runs:
        finish(args, "probes", told(run), section=run.name)
    return shares


if __name__ == "__main__":
    main()
