"""Refine loops over many items: running, scoring, self-bias by round, comparisons and conclusions."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.answers import in_threads
from evalbias.evaluation.bias import Lines, Plot, Section, Shown, comparison_section, measure, measurement_section
from evalbias.evaluation.biases import SelfBias
from evalbias.evaluation.estimates import LEVEL, N_RESAMPLES, Comparison, Measurement, compare_judges
from evalbias.evaluation.judged import EXPECTED, QUALITY, Judged
from evalbias.evaluation.words import conclude, count, signed, with_interval
from evalbias.lm.dspy_seam import keys_hidden
from evalbias.measures.arrays import FloatArray
from evalbias.measures.resample import Draws, estimate_mean
from evalbias.programs.feedback import Feedback, FeedbackSource, checked_source, expected_scores, validated
from evalbias.programs.loops import Step, count_usage, take_step
from evalbias.programs.writing import PlainPredict
from evalbias.runs import Journal, check_settings, lock_folder
from evalbias.values import describe, digest, json_number

STEP_LOG, IDENTITY = "steps.jsonl", "loop.json"  # files of a run's folder
OWN = "own_score"  # field of a loop's own score of an output


# --- scores of outputs by a source outside the loop -------------------------------------------------------------------


class CachedScorer:
    """Feedback source whose scores are cached, so that no output is scored twice.

    ``log`` is a JSONL file that keeps the scores for a later run, which ignores those of another source. ``failed`` is
    item -> error that the source raised: its outputs are undefined (NaN), and a later run tries again.
    """

    def __init__(self, source: FeedbackSource, log: Path | None = None) -> None:
        self.source, self.name = checked_source(source), source.name
        self.failed: dict[str, str] = {}
        self._journal = None if log is None else Journal(log)
        self._identity = digest(describe(source))
        records = self._journal.read("item", "output", "by", "score") if self._journal else []
        self._scores = {(r["item"], r["output"]): json_number(r["score"]) for r in records if r["by"] == self._identity}

    def __call__(self, example: Mapping[str, Any], output: str) -> float:
        """Return the score of an output for an example with ``id``; NaN if undefined."""
        key = (digest(dict(example.items()), 64), output)
        if not output.strip():
            return math.nan
        if key not in self._scores:
            try:
                score = validated(self.source, self.source(example, output)).score
            except Exception as error:  # a user's source may raise anything; the item is reported by its id
                self.failed[str(example["id"])] = f"{type(error).__name__}: {error}"
                return math.nan
            self._scores[key] = score
            if self._journal:
                self._journal.append([{"item": key[0], "output": output, "by": self._identity, "score": score}])
        return self._scores[key]


# --- results of loops -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """The loop of an item: every output from the first on; empty if the item failed."""

    id: str
    steps: tuple[Step, ...]
    stopped: str = ""  # why the loop ended
    error: str = ""
    calls: int = 0  # requests to models, including those of a failed item

    def at(self, iteration: int) -> Step | None:
        """Return the step with the current output after ``iteration`` refinements; None if the item failed."""
        accepted = [step for step in self.steps if step.accepted and step.iteration <= iteration]
        return accepted[-1] if accepted else None


@dataclass(frozen=True)
class LoopRun:
    """Loops over n items, with at most t refinements.

    Attributes:
        loops: A loop for each item, in the items' order.
        feedback: Name of the feedback source.
        low: Its lowest score.
        high: Its highest score.
    """

    loops: tuple[Loop, ...]
    feedback: str
    low: float
    high: float

    @property
    def iterations(self) -> int:
        """Largest number of refinements of an item."""
        return max((loop.steps[-1].iteration for loop in self.loops if loop.steps), default=0)

    @property
    def failed(self) -> dict[str, str]:
        """Item -> error that stopped it."""
        return {loop.id: loop.error for loop in self.loops if loop.error}

    def checked(self) -> LoopRun:
        """Return the run; ValueError if every item failed."""
        if len(self.failed) == len(self.loops):
            raise ValueError(f"No item came through the loop: {next(iter(self.failed.values()), 'there are none')}")
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """Identifiers of the items."""
        return tuple(loop.id for loop in self.loops)

    def own(self) -> FloatArray:
        """Return (t + 1, n) the loop's own score after each number of refinements; NaN where undefined or failed."""
        return self._each(lambda loop, step: step.score)

    def quality(self, examples: Sequence[dspy.Example], scorer: CachedScorer | FeedbackSource) -> FloatArray:
        """Return (t + 1, n) the scorer's scores of the outputs after each number of refinements, in its points.

        ``examples`` are the run's, in its order. Each distinct output is scored once; NaN where undefined or failed.
        """
        score = scorer if isinstance(scorer, CachedScorer) else CachedScorer(scorer)
        by_id = {str(e["id"]): e for e in examples}
        return self._each(lambda loop, step: score(by_id[loop.id], step.output))

    def tokens(self) -> FloatArray:
        """Return (t + 1,) mean tokens spent on an item up to each number of refinements."""
        return self._spent(lambda step: step.tokens)

    def calls(self) -> FloatArray:
        """Return (t + 1,) mean requests to models for an item up to each number of refinements."""
        return self._spent(lambda step: step.calls)

    def _spent(self, cost: Callable[[Step], int]) -> FloatArray:
        run, rounds = [loop.steps for loop in self.loops if loop.steps], range(self.iterations + 1)
        spent = [[sum(cost(step) for step in steps if step.iteration <= k) for steps in run] for k in rounds]
        return np.array([np.mean(row) if row else math.nan for row in spent])

    def _each(self, value: Callable[[Loop, Step], float]) -> FloatArray:
        rows = [[(loop, loop.at(k)) for loop in self.loops] for k in range(self.iterations + 1)]
        values = [[math.nan if step is None else value(loop, step) for loop, step in row] for row in rows]
        return np.array(values, dtype=np.float64).reshape(len(rows), len(self.loops))


# --- running loops: every step is logged, a stopped run continues, a failed item does not stop it ---------------------


def run_loops(
    program: Any,
    examples: Sequence[dspy.Example],
    *,
    lm: Any = None,
    log_dir: Path | None = None,
    num_threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> LoopRun:
    """Run a loop on every item; an item whose generator, feedback or refiner raises goes to ``failed``.

    ``program`` is ``SelfRefine``, ``BestOfK``, or any DSPy module with the ``feedback`` of its steps whose predictions
    have ``steps`` and ``stopped``; ``examples`` have ``id`` and its inputs, other fields (a reference) go to the
    feedback. ``lm`` defaults to the modules' own, else DSPy's. The ``steps.jsonl`` of ``log_dir``, locked while the
    loops run, grows; items in it are not run again. ``progress`` is called with 1 after every item. ValueError for
    examples without an id or with equal ids, or a log of another program.
    """
    _check_ids(examples)
    log, logged, lock = None, dict[str, Loop](), threading.Lock()

    def loop_of(example: dspy.Example) -> Loop:
        item = digest(dict(example.items()), 64)
        loop = logged.get(item) or _run(program, example)
        with lock:
            if log is not None and item not in logged and not loop.error:
                record = {"id": loop.id, "item": item, "stopped": loop.stopped, "calls": loop.calls}
                log.append([{**record, "steps": loop.steps}])
            if progress is not None:
                progress(1)
        return loop

    with ExitStack() as run:
        run.enter_context(dspy.context(**({} if lm is None else {"lm": lm})))
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)
            run.enter_context(lock_folder(log_dir))
            # another program would have written other outputs
            check_settings(log_dir / IDENTITY, {"program": digest(describe(program))})
            log = Journal(log_dir / STEP_LOG)
            logged |= _logged(log)
        loops = tuple(in_threads(loop_of, examples, num_threads))
    source = program.feedback
    return LoopRun(loops, source.name, source.low, source.high)


def _run(program: Any, example: dspy.Example) -> Loop:
    name = str(example.id)
    with count_usage() as spent:
        try:
            with keys_hidden(dspy.settings.lm, *(predictor.lm for predictor in program.predictors())):
                prediction = program(**dict(example.items()))
        except Exception as error:  # a user's module may raise anything; the item is reported by its id
            return Loop(name, (), error=f"{type(error).__name__}: {error}", calls=spent.calls)
    return Loop(name, tuple(prediction.steps), prediction.stopped, calls=spent.calls)


def _check_ids(examples: Sequence[dspy.Example]) -> None:
    seen: set[str] = set()
    for place, example in enumerate(examples):
        name = example.get("id")
        if name is None or str(name) in seen:
            fault = f"Item {place} has no id" if name is None else f"Two items have the id {str(name)!r:.80}"
            raise ValueError(f"{fault}: give each item its own, because a stopped run is resumed by id.")
        seen.add(str(name))


def _logged(log: Journal) -> dict[str, Loop]:
    """Return the logged loops by the digest of their whole item: a changed item with the same id is run again."""
    loops = {}
    for record in log.read("id", "item", "stopped", "calls", "steps"):
        steps = tuple(Step(**{**step, "score": json_number(step["score"])}) for step in record["steps"])
        loops[record["item"]] = Loop(record["id"], steps, record["stopped"], calls=record["calls"])
    return loops


# --- self-bias by round -----------------------------------------------------------------------------------------------


def measure_rounds(
    own: ArrayLike,
    expected: ArrayLike,
    *,
    quality: ArrayLike | None = None,
    ids: Sequence[str] | None = None,
    inputs: Sequence[str] = (),
    n_resamples: int = N_RESAMPLES,
    seed: int,
) -> list[Measurement]:
    """Measure self-bias in every round of a loop (Xu et al. 2024, figures 3 to 5).

    ``own`` are (t, n) scores by the loop itself, a row per round; ``expected`` are on the same range, and ``quality``,
    expected scores in their original points, is reported too. ``ids`` (n,) default to the items' numbers. The intervals
    come from ``n_resamples`` bootstrap resamples of ``inputs`` (n,), or of items. ValueError for different shapes.
    """
    rows = [np.asarray(v, dtype=np.float64) for v in (own, expected, *([] if quality is None else [quality]))]
    if rows[0].ndim != 2 or len({row.shape for row in rows}) > 1:
        shapes = ", ".join(str(row.shape) for row in rows)
        raise ValueError(f"The scores have the shapes {shapes}: give (rounds, items) each time.")
    names = tuple(map(str, range(rows[0].shape[1]))) if ids is None else tuple(ids)
    rounds = []
    for scores, *others in zip(*rows, strict=True):
        judged = Judged(names, "own score", scores, dict(zip((EXPECTED, QUALITY), others, strict=False)), inputs=inputs)
        rounds.append(measure(SelfBias(), judged, seed=seed, n_resamples=n_resamples))
    return rounds


@dataclass(frozen=True)
class LoopSummary(Shown):
    """Self-bias of a loop by round."""

    name: str  # of the model
    numbers: tuple[int, ...]  # (t,) number of each round
    rounds: tuple[Measurement, ...]
    change: Comparison  # the last round that has scores against the first
    last: int = -1  # index of that round

    def sections(self) -> list[Section]:
        last = measurement_section(self.rounds[self.last], f"Self-bias of {self.name}")
        question, *blocks = last.blocks
        by_round = replace(last, blocks=[question, rounds_plot({self.name: (self.numbers, self.rounds)}), *blocks])
        return [by_round, comparison_section(self.change)] if self.change["bias"].after.n else [by_round]


def rounds_plot(loops: Mapping[str, tuple[Sequence[int], Sequence[Measurement]]]) -> Plot | None:
    """Draw the Bias of loops (numbers and measurements of rounds) by round; None if no loop has two rounds of it."""
    lines = {}
    for name, (numbers, measurements) in loops.items():
        estimates = [m["bias"] for m in measurements]
        if sum(not np.isnan(e.value) for e in estimates) > 1:
            lines[name] = np.array([[k, e.value, e.low, e.high] for k, e in zip(numbers, estimates, strict=True)])
    if not lines:
        return None
    first, last = next(iter(lines.values()))[[0, -1], 1]
    title = f"The bias goes from {first:+.2f} in the first round to {last:+.2f} in the last"
    caption = (
        "Points by which the model's own score exceeds the expected one, on average over the items; the bands are 95 % "
        "intervals. 0 = no bias. A rising line: the loop pleases its own judge more than it improves the text."
    )
    return Plot(title, caption, (Lines(lines, "round", "points above the expected score", null="0 = no bias"),))


def summarize_loop(
    name: str,
    own: ArrayLike,
    expected: ArrayLike,
    *,
    numbers: Sequence[int] | None = None,
    inputs: Sequence[str] = (),
    n_resamples: int = N_RESAMPLES,
    seed: int,
) -> LoopSummary:
    """Measure every round of a loop and test the last against the first.

    ``own`` and ``expected`` are (t, n) scores on the same range; ``numbers`` number the t rounds, by default 0, 1, ...
    Items of the same of the ``inputs`` (n,) are resampled and swapped together.
    """
    rounds = measure_rounds(own, expected, inputs=inputs, n_resamples=n_resamples, seed=seed)
    last = max((k for k, m in enumerate(rounds) if m["bias"].n), default=len(rounds) - 1)  # a cut loop ends empty
    change = compare_judges(rounds[0], rounds[last], n_resamples=n_resamples, n_intervals=n_resamples, seed=seed)
    return LoopSummary(name, tuple(range(len(rounds)) if numbers is None else numbers), tuple(rounds), change, last)


# --- two models' loops on the same items ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoopScores:
    """A model's loop, with own and expected scores on the same range."""

    name: str
    numbers: tuple[int, ...]  # (t,) number of each round
    items: tuple[str, ...]  # (n,) identifiers, equal in two loops for the same input
    own: FloatArray  # (t, n)
    expected: FloatArray  # (t, n)
    _: KW_ONLY
    inputs: Sequence[str] = ()  # (n,) input of each item


@dataclass(frozen=True)
class LoopPair(Shown):
    """Two loops in their last common round, on their common items."""

    first: str
    second: str
    number: int  # of the round
    items: int  # number of common items
    comparison: Comparison  # the second loop against the first

    def sections(self) -> list[Section]:
        return [comparison_section(self.comparison, f"{self.second} against {self.first}")]


def compare_loops(loops: Sequence[LoopScores], *, n_resamples: int = N_RESAMPLES, seed: int) -> list[LoopPair]:
    """Compare every two loops that share items, in their last common round; all scores are on the same range.

    The test is the paired permutation test of ``compare``: under the null hypothesis the two models' differences of own
    and expected score are exchangeable item by item. It is two-sided and not corrected for the number of pairs. Pairs
    of loops without a common item or round are left out.
    """
    pairs = []
    for first, second in itertools.combinations(loops, 2):
        places = [{item: place for place, item in enumerate(loop.items)} for loop in (first, second)]
        items = tuple(item for item in first.items if item in places[1])
        rounds = set(first.numbers) & set(second.numbers)
        if not items or not rounds:
            continue
        number, sides = max(rounds), []
        for loop, place in zip((first, second), places, strict=True):
            at = loop.numbers.index(number), [place[item] for item in items]
            own, expected = (scores[at][None] for scores in (loop.own, loop.expected))  # (1, n)
            inputs = [loop.inputs[i] for i in at[1]] if loop.inputs else ()
            sides += measure_rounds(own, expected, ids=items, inputs=inputs, n_resamples=n_resamples, seed=seed)
        comparison = compare_judges(*sides, n_resamples=n_resamples, n_intervals=n_resamples, seed=seed)
        pairs.append(LoopPair(first.name, second.name, number, len(items), comparison))
    return pairs


# --- preference for its own style: others' outputs, judged before and after the model paraphrases them ----------------


class Paraphrase(dspy.Signature):  # type: ignore[misc]
    """Say the text in your own words, in its language and as you would put it. Keep what it means; mend nothing."""

    text: str = dspy.InputField()
    paraphrase: str = dspy.OutputField()


class Paraphrased(dspy.Module):  # type: ignore[misc]
    """A loop of two steps: 0 is an output of another author, 1 the model's paraphrase, which is always accepted.

    ``feedback`` is the model's own, whose score may be biased; ``config`` are settings of the paraphrasing request. The
    example's field ``output`` holds the other author's output.
    """

    def __init__(self, feedback: FeedbackSource, **config: Any) -> None:
        super().__init__()
        self.feedback = feedback
        self.paraphrase = PlainPredict(Paraphrase, **{"temperature": 0.0, "max_tokens": 300, **config})

    def forward(self, **example: Any) -> dspy.Prediction:
        """Judge and paraphrase an example's output."""
        original = str(example["output"])

        def paraphrased() -> str:
            return str(self.paraphrase(text=original).paraphrase)

        def judge(output: str) -> Feedback:
            return validated(self.feedback, self.feedback(example, output))

        steps = [take_step(k, write, judge) for k, write in enumerate((lambda: original, paraphrased))]
        return dspy.Prediction(steps=steps, stopped="iterations")


@dataclass(frozen=True)
class StyleReport(Shown):
    """Self-bias before and after paraphrasing; undefined if quality and own scores are on different scales."""

    before: Measurement
    after: Measurement
    change: Comparison
    run: LoopRun  # every output, paraphrase, score and feedback
    failed: dict[str, str]  # item -> error that stopped it

    def sections(self) -> list[Section]:
        sides = {"as given": self.before, "in the model's own words": self.after}
        each = [measurement_section(side, f"Outputs of others, {words}") for words, side in sides.items()]
        return [*each, comparison_section(self.change)]


def measure_style(
    run: LoopRun,
    examples: Sequence[dspy.Example],
    scorer: CachedScorer,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> StyleReport:
    """Measure whether the bias grows as a model paraphrases outputs of others (Xu et al. 2024, figure 7).

    ``run`` is a run of ``Paraphrased`` over the examples; the scorer's source gives the expected scores.
    """
    expected = expected_scores(run.quality(examples, scorer), scorer.source, run)
    summary = summarize_loop("style", run.own(), expected, n_resamples=n_resamples, seed=seed)
    before, after = summary.rounds
    return StyleReport(before, after, summary.change, run, scorer.failed | run.failed)


# --- conclusions: the last sentences of the commands ------------------------------------------------------------------


def conclude_self(summary: LoopSummary, *, rounds: str) -> str:
    """Say whether a model overrates its own outputs in the last round with scores, and how refining changed this."""
    last, change = summary.rounds[summary.last]["bias"], summary.change["bias"]
    if math.isnan(last.low):
        why = last.reason or "too few items have both scores"
        return f"{summary.name}: whether the model overrates its outputs is undefined: {why}."
    interval = f"95 % interval {last.interval}, {count(last.n, 'item')}"
    end, points = f"at {rounds} {summary.numbers[summary.last]}", f"{last.text()} points ({interval})"
    verdict = conclude(
        last,
        above=f"the model overrates its own outputs {end} by {points}",
        below=f"the model underrates its own outputs {end} by {points}",
        neither=f"no self-bias is shown {end}: {points}",
    )
    moved, first, n = change.difference.value, summary.rounds[0]["bias"].n, change.before.n
    both = "" if n == first == last.n else f", in the {count(n, 'item')} with scores in both"
    tested = f"no significant change from {signed(change.before.value)} at {summary.numbers[0]}{both}"
    if change.p_value < LEVEL:
        more = "more" if moved > 0 else "less"
        tested = f"{abs(moved):.2f} {more} than at {summary.numbers[0]}{both}, a significant change"
    remedy = "External feedback decides better: 'evalbias optimize --aim self-bias'."
    return f"{summary.name}: {verdict}; {tested}. {remedy}"


def conclude_style(change: Comparison) -> str:
    """Say whether a model overrates its own paraphrases."""
    gain = change["bias"].difference
    points, own = with_interval(gain, unit=" points"), "paraphrased by itself, an output"
    why = "quality and own scores are on different scales"
    return conclude(
        gain,
        above=f"The model prefers its own style: {own} gains {points} of undue score.",
        below=f"The model does not prefer its own style: {own} loses {points}.",
        neither=f"No preference for the own style is shown: paraphrasing changes the undue score by {points}.",
        undefined=f"Whether the model prefers its own style is undefined: {why}.",
    )


def conclude_quality(quality: ArrayLike, source: str, *, seed: int) -> str:
    """Say whether a loop improved outputs, by their (t, n) expected scores after each number of refinements."""
    values = np.asarray(quality, dtype=np.float64)
    if len(values) < 2:
        return ""
    gain = estimate_mean(values[-1] - values[0], draws=Draws(seed=seed, resamples=10_000))
    points, why = with_interval(gain, unit=f" points of {source}"), gain.reason or f"{source} scores too few of them"
    return conclude(
        gain,
        above=f"The loop improves its outputs by {points}.",
        below=f"The loop makes its outputs worse by {points}: do without it, or compile it ('evalbias optimize --aim "
        "self-bias').",
        neither=f"The loop is not shown to improve its outputs: {points}.",
        undefined=f"Whether the loop improves its outputs is undefined: {why}.",
    )
