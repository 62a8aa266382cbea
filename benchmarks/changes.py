"""What changed, the judge or the system, and what was gained? On planted judges whose parts are known, and on others.

usage: python -m benchmarks.changes [--sets 1000] [--parts drift recorded loops] [--seed 0] [--write]
       python -m benchmarks.changes --parts --quantized FILE [--write]

A planted judge scores texts of normal quality from 1 to 5 at a temperature that moves a score by .5 points or so; 60 to
200 anchors, two outputs for each of 75 inputs in either period, and a system that gains .3. Of recorded judges, both
scored everything, so what the new one gave the old outputs is known: the old period is 40 articles by the six systems
that people rate lowest, the new one 30 others by the six best, and the anchors are 30 articles by all. ``--quantized``
names SmolLM2's weights in another quantization, and does the same with WebNLG's fluency, 60 inputs and 16 systems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from benchmarks.audit.judges import likert
from benchmarks.harness import argument_parser, data_folder, finish, lines, markdown, percents, simulated
from benchmarks.mitigation import JUDGES, TUNED, criterion_of, usable
from benchmarks.pretrained import models_folder
from evalbias import PointwiseJudge, compare, drift
from evalbias.data.items import by_input
from evalbias.measures import Draws, estimate_mean, split_change
from evalbias.measures.arrays import FloatArray
from evalbias.measures.corrections import compare_means
from evalbias.measures.resample import Interval

Judge = Callable[[FloatArray], FloatArray]
INPUTS, BETTER, NOISE = 75, 0.3, 0.5


def steady(q: FloatArray) -> FloatArray:
    """Return what a judge thinks of quality (n,), in points."""
    return 3 + 0.8 * q


def shifted(q: FloatArray, by: float) -> FloatArray:
    """Return the same, moved."""
    return steady(q) + by


def stricter(q: FloatArray) -> FloatArray:
    """Return what a judge thinks that takes up to .6 points off good texts, which no shift represents."""
    return np.asarray(steady(q) - 0.6 * ndtr((q - 0.3) / 0.4))


@dataclass(frozen=True)
class World:
    """A change of the judge, and anchors."""

    after: Judge = steady
    noise: float = NOISE  # of the new judge
    anchors: int = 200
    lower: float = 0.0  # standard deviations by which the anchors' quality lies below the old period's
    repeats: int = 0  # scores of each text; 0 is one, of unknown noise
    passing: int = 0  # points from which the judge says pass, and else fail; 0 for one that scores

    def scores(self, rng: np.random.Generator, judge: Judge, q: FloatArray, noise: float) -> FloatArray:
        """Draw scores (n,) or (n, repeats)."""
        shape = (len(q), self.repeats) if self.repeats else (len(q),)
        steady = judge(q)[:, None] if self.repeats else judge(q)
        return self.given_as(steady + noise * rng.normal(size=shape))

    def given_as(self, opinion: FloatArray) -> FloatArray:
        """Return what is said of an opinion in points."""
        points = likert(opinion)
        return (points >= self.passing).astype(np.float64) if self.passing else points

    def truth(self, rng: np.random.Generator, n: int = 400_000) -> tuple[float, float]:
        """Return the judge's part and the system's in the population."""
        q = rng.normal(size=n)
        old, new = (
            self.given_as(f(q) + s * rng.normal(size=n)).mean() for f, s in ((steady, NOISE), (self.after, self.noise))
        )
        later = self.given_as(self.after(q + BETTER) + self.noise * rng.normal(size=n)).mean()
        return float(new - old), float(later - new)


WORLDS: Mapping[str, World] = {
    "the same judge": World(),
    "the same judge, anchors .3 sd lower": World(lower=0.3),
    "a shift of .2 sd, anchors as planned": World(partial(shifted, by=0.19), anchors=0),
    "stricter with good texts": World(stricter),
    "stricter with good texts, 60 anchors": World(stricter, anchors=60),
    "stricter with good texts, anchors .3 sd lower": World(stricter, lower=0.3),
    "the same, new judge without noise": World(stricter, noise=0.0, lower=0.3),
    "the same, three scores of a text": World(stricter, noise=0.0, lower=0.3, repeats=3),
    "stricter, pass from 4 points": World(stricter, passing=4),
    "stricter, pass from 4 points, anchors .3 sd lower": World(stricter, lower=0.3, passing=4),
    "half a point lower, pass from 3 points, anchors .3 sd lower": World(
        partial(shifted, by=-0.5), lower=0.3, passing=3
    ),
}


def planned(rng: np.random.Generator) -> int:
    """Return the number of anchors that shows .19 points, a fifth of the scores' standard deviation, in 80 %."""
    q = rng.normal(size=100_000)
    first, second = (likert(steady(q) + NOISE * rng.normal(size=len(q))) for _ in range(2))
    return int(np.ceil((2.80 * (first - second).std() / 0.19) ** 2))


def split(world: World, *, sets: int, seed: int, resamples: int = 200) -> dict[str, dict[str, float]]:
    """Return what becomes of both parts, the judge's and the system's, by name."""
    rng = np.random.default_rng(seed)
    truth, n = dict(zip(PERIODS, world.truth(rng), strict=True)), world.anchors or planned(rng)

    def once(number: int) -> dict[str, tuple[Interval, float]]:
        rng = np.random.default_rng([seed, number])
        sizes, means = (INPUTS, INPUTS, n // 2), (0.0, BETTER, -world.lower)
        q = [
            m + (np.sqrt([[0.4]]) * rng.normal(size=(k, 1)) + np.sqrt(0.6) * rng.normal(size=(k, 2))).ravel()
            for k, m in zip(sizes, means, strict=True)
        ]
        inputs = tuple(np.repeat([f"{group} {k}" for k in range(size)], 2).tolist() for group, size in enumerate(sizes))
        old, new = (
            partial(world.scores, rng, steady, noise=NOISE),
            partial(world.scores, rng, world.after, noise=world.noise),
        )
        draws = Draws(seed=number, resamples=resamples)
        parts = split_change(old(q[0]), new(q[1]), old(q[2]), new(q[2]), clusters=inputs, draws=draws).parts
        return {name: (parts[name], truth[name]) for name in PERIODS}

    return {name: {**row, "anchors": n} for name, row in simulated(once, sets).items()}


PERIODS = ("judge", "system")


def recorded() -> list[dict[str, Any]]:
    """Split the change from a recorded judge to another, for every criterion that both scored; one record each."""
    summaries = lines("judges/summeval_scores.jsonl.gz")
    replies = [
        row | {"ratings": {name: [value] * (name != "overall") for name, value in row["scores"].items()}}
        for row in lines("judges/topicalchat_samples.jsonl.gz")
    ]
    rows = []
    for name, items, old, new in (
        (
            "GPT-3.5, choices, to free text (SummEval)",
            summaries,
            "gpt-3.5-turbo-0301, multiple choice",
            "gpt-3.5-turbo-0301",
        ),
        ("Llama 2, 7B to 13B (SummEval)", summaries, "llama-2-7b-chat", "llama-2-13b-chat"),
        (
            "GPT-3.5, 'rate' to 'analyze, rate' (TopicalChat)",
            replies,
            "gpt-3.5-turbo, geval_no_auto_cot",
            "gpt-3.5-turbo, analyze_rate",
        ),
    ):
        for criterion in items[0]["judges"][old]:
            for drawn in (False, True):
                found = between(items, old, new, criterion, drawn=drawn)
                rows.append({"change": name, "criterion": criterion, "drawn": drawn, **found})
    return rows


def quantized(file: str, *, inputs: int = 60) -> list[dict[str, Any]]:
    """Split the change from a judge to the same with its model's weights in another file, as of recorded judges."""
    from evalbias import LocalLM  # it loads torch

    criterion, rows = criterion_of("webnlg2020", "fluency"), []
    groups = list(by_input(usable("webnlg2020", criterion.name, tuned=False)).values())[:inputs]
    items = [e for group in groups for e in group]
    judge = PointwiseJudge(criterion)
    for name in ("SmolLM2", TUNED):
        weights_of, adapter = JUDGES[name]
        scored = []
        for weights in (str(models_folder() / weights_of), file):
            lm = LocalLM(weights, adapter=adapter, dtype="float32")
            scored.append([p.score for p in judge.batch(items, lm=lm)])
        judged = [
            {"id": e.id, "input_id": e.input_id, "system": e.system, "output": e.output}
            | {"ratings": {criterion.name: [e.scores[criterion.name]]}}
            | {"judges": {"old": {criterion.name: old}, "new": {criterion.name: new}}}
            for e, old, new in zip(items, *scored, strict=True)
        ]
        change = f"{name}, {weights_of.split('.')[-2]} to {file.split('.')[-2]} (WebNLG)"
        for drawn in (False, True):
            found = between(judged, "old", "new", criterion.name, drawn=drawn)
            rows.append({"change": change, "criterion": criterion.name, "drawn": drawn, **found})
    return rows


def between(items: Sequence[Mapping[str, Any]], old: str, new: str, criterion: str, *, drawn: bool) -> dict[str, Any]:
    """Split one change, and compare the judge's part with what the new judge gave the old outputs.

    The anchors are by all systems, or, as ``drawn`` from outputs like the old ones, by those of the old period.
    """
    inputs = list(dict.fromkeys(row["input_id"] for row in items))
    place, quality = {source: k / len(inputs) for k, source in enumerate(inputs)}, dict[str, list[float]]()
    for row in items:
        quality.setdefault(row["system"], []).append(float(np.mean(row["ratings"][criterion])))
    ranked = sorted(quality, key=lambda system: np.mean(quality[system]))
    worse, kept, anchors = set(ranked[: len(ranked) // 2]), list[Any](), list[Any]()
    sides: tuple[list[Any], list[Any]] = ([], [])
    for row in items:
        scores = [row["judges"][judge].get(criterion) for judge in (old, new)]
        judged = [{"id": row["id"], "input_id": row["input_id"], "output": row["output"], "said": s} for s in scores]
        if place[row["input_id"]] >= 0.7 and (row["system"] in worse or not drawn):
            anchors.append(scores)
            for side, answers in zip(sides, judged, strict=True):
                side.append(answers)
        elif place[row["input_id"]] < 0.7 and (place[row["input_id"]] < 0.4) == (row["system"] in worse):
            sides[row["system"] not in worse].append(judged[row["system"] not in worse])
            kept += [scores] if row["system"] in worse else []
    field: dict[str, Any] = {"samples_field" if isinstance(kept[0][0], list) else "scores_field": "said"}
    found = drift(*sides, **field)
    part, system, moved = found["drift"], found["system"], _moved(kept)
    return {
        "part": part.text(),
        "interval": part.interval,
        "known": moved,
        "inside": bool(part.low <= moved <= part.high),
        "shift": _moved(anchors),
        "system": f"{system.text()} ({system.interval})",
    }


def _moved(pairs: Sequence[Sequence[Any]]) -> float:
    """Return the mean change of scores by two judges, of one draw or several, where both gave any."""
    means = [
        [np.nan if side is None else np.mean([v for v in np.ravel(side) if v is not None]) for side in pair]
        for pair in pairs
    ]
    return float(np.nanmean(np.diff(means, axis=1)))


BETTER, OUTPUTS = 0.15, 400
LABELED = ("at random", "3 of 4 of one system", "all but 5 of one system", "of the same inputs")
ESTIMATORS = ("compare", "labels alone", "gain", "shared")


def compared(labeled: str, n: int, *, paired: bool = True, sets: int, seed: int) -> dict[str, dict[str, float]]:
    """Return what becomes of the difference of two systems of 400 outputs, of n of which people gave labels.

    The second is .15 points better, and longer, for which the judge gives .25 points. ``gain`` took inputs with labels
    of both; ``shared`` is the judge's own difference, corrected by system only where its errors are shown to differ.
    """

    def once(number: int) -> dict[str, tuple[Interval, float]]:
        rng = np.random.default_rng([seed, number, n])
        shared, longer, rated_places = rng.normal(size=(2 - paired, OUTPUTS)), 0.4 * rng.normal(size=(2, OUTPUTS)), []
        quality = 0.6 * shared + 0.8 * rng.normal(size=(2, OUTPUTS)) + BETTER * np.array([[0], [1]])
        people = 3 + quality + 0.5 * rng.normal(size=(2, OUTPUTS))
        judge = 3 + 0.6 * quality + 0.5 * (longer + np.array([[0], [0.5]])) + 0.5 * rng.normal(size=(2, OUTPUTS))
        if labeled == LABELED[0]:
            places = rng.choice(2 * OUTPUTS, n, replace=False)
            rated_places = [places[places < OUTPUTS], places[places >= OUTPUTS] - OUTPUTS]
        elif labeled != LABELED[-1]:
            few = n // 4 if labeled == LABELED[1] else 5
            rated_places = [rng.choice(OUTPUTS, size, replace=False) for size in (n - few, few)]
        else:
            rated_places = [rng.choice(OUTPUTS, n // 2, replace=False)] * 2
        labels = np.full((2, OUTPUTS), np.nan)
        for k, places in enumerate(rated_places):
            labels[k, places] = people[k, places]
        inputs = np.arange(2 * OUTPUTS) % (OUTPUTS if paired else 2 * OUTPUTS)
        of = partial(compare_means, systems=np.repeat(["A", "B"], OUTPUTS).tolist(), clusters=inputs.tolist())
        found, own = of(judge.ravel(), labels.ravel()), of(judge.ravel(), judge.ravel()).differences[0]
        alike = found.favors[0].low < 0 < found.favors[0].high
        before = estimate_mean(labels[1] - labels[0]) if paired else Interval(np.nan)
        alone = of(np.zeros(2 * OUTPUTS), labels.ravel()).differences[0]
        values = found.differences[0], alone, before, own if alike else found.differences[0]
        return {name: (value, BETTER) for name, value in zip(ESTIMATORS, values, strict=True)}

    return simulated(once, sets)


def compared_table(*, sets: int, seed: int) -> str:
    """Return coverage and median width of each estimator by labels and pairing."""
    body = []
    for labeled, paired in [*((size, True) for size in LABELED), *((size, False) for size in LABELED[:3])]:
        for n in (30, 63, 150):
            rows = compared(labeled, n, paired=paired, sets=sets, seed=seed)
            cells = [f"{percents(row['covered'])[0]}, {row['width']:.2f}" for row in rows.values()]
            cells[2] = f"{cells[2]} (of {percents(told)[0]})" if (told := 1 - rows["gain"]["undefined"]) else ""
            body.append([labeled, "shared" if paired else "other", n, *cells])
    return f"{sets} data sets a row.\n\n{markdown(['labels', 'inputs', 'labels in all', *ESTIMATORS], body)}"


def loops() -> list[list[str]]:
    """Split what recorded refine loops gained by their own scores, from the first output to the last one."""
    names = sorted(path.name for path in data_folder("self_bias_recorded/mt").iterdir())
    files = {f"self_bias_recorded/mt/{name}": ("self_score", "bleurt_mapped", 0) for name in names}
    files["self_bias_recorded/commongen/gpt-3.5-turbo.jsonl.gz"] = ("self_all_covered", "exact_coverage", 1)
    rows = []
    for file, (own, quality, first) in files.items():
        records = [row for row in lines(file) if row[own] is not None and row["output"].strip()]
        last = max(row["iteration"] for row in records)
        sides = [
            [
                {"id": f"{row['i']}", "input_id": f"{row['i']}", "output": row["output"], "own": row[own]}
                | {"rating_1": row[quality]}
                for row in records
                if row["iteration"] == iteration
            ]
            for iteration in (first, last)
        ]
        found = compare(before=sides[0], after=sides[1], scores_field="own", reliability=1)
        cells = [f"{found[name].text()} ({found[name].interval})" for name in ("gain", "people", "length")]
        rows.append([file.split("/", 2)[2].split(".jsonl")[0].replace("__", ", "), *cells])
    return rows


def main() -> None:
    """Parse the command line and run the parts."""
    parser = argument_parser(__doc__)
    parser.add_argument("--sets", type=int, default=1000)
    parts: dict[str, Callable[[], str]] = {
        "drift": lambda: drift_table({name: split(world, **how) for name, world in WORLDS.items()}),
        "recorded": lambda: recorded_table(recorded()),
        "loops": lambda: markdown(["loop", "gain by its own scores", "gain in quality", "part of length"], loops()),
    }
    parser.add_argument("--parts", nargs="*", choices=parts, default=[*parts])
    parser.add_argument("--quantized", metavar="FILE")
    args = parser.parse_args()
    how = {"sets": args.sets, "seed": args.seed}
    for part in args.parts:
        finish(args, "changes", parts[part](), section=part)
    if args.quantized:
        finish(args, "changes", recorded_table(quantized(args.quantized)), section="quantized")


def drift_table(rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return what becomes of the parts of planted changes."""
    body = []
    for name, parts in rows.items():
        judge, system = (parts[period] for period in PERIODS)
        shares = percents(judge["covered"], system["covered"], judge["found"])
        body.append([name, judge["anchors"], f"{judge['truth']:+.2f}", f"{judge['mean']:+.2f}", *shares])
    head = ["the new judge", "anchors", "its part", "mean estimate", "judge covered", "system covered", "judge found"]
    return markdown(head, body)


def recorded_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the section of the recorded judges."""
    body = [
        [
            first["change"],
            first["criterion"],
            f"{first['known']:+.2f}",
            *(_part(r) for r in (first, second)),
            first["system"],
        ]
        for first, second in zip(rows[::2], rows[1::2], strict=True)
    ]
    head = ["change", "criterion", "known", "anchors by all systems", "anchors like the old outputs", "system's part"]
    inside = [sum(r["inside"] for r in rows[k::2]) for k in (0, 1)]
    text = (
        f"The known part lies in {inside[0]} of {len(rows) // 2} intervals with anchors by all systems, and in "
        f"{inside[1]} with anchors by those of the old period."
    )
    return f"{text}\n\n{markdown(head, body)}"


def _part(r: Mapping[str, Any]) -> str:
    mark = "" if r["inside"] else "**"
    return f"{mark}{r['part']}, {r['interval']}{mark} ({r['shift']:+.2f})"


if __name__ == "__main__":
    main()
