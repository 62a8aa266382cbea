"""Differences between judged outputs: which system is better (compare), and whether judge or system changed (drift)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

import dspy
import numpy as np

from evalbias.data.items import LARGEST, DataError
from evalbias.data.rating_values import on_a_lower_scale, question, unexplained
from evalbias.evaluation import words
from evalbias.evaluation.agreement import SWAPS, headline_number
from evalbias.evaluation.answers import answers_of, resolve, tell_left_out
from evalbias.evaluation.audit import AuditReport, AuditReports
from evalbias.evaluation.bias import Lines, Plot, Report, Section, interval_plot, measure
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import (
    LEVEL,
    ByName,
    Comparison,
    Estimate,
    compare_judges,
    decide,
    items_needed,
    significant,
)
from evalbias.evaluation.findings import AGREEMENT
from evalbias.evaluation.judged import (
    BETTER,
    HUMAN_SCORES,
    LENGTHS,
    LIKELIHOODS,
    RATINGS,
    SAMPLES,
    Judged,
    mean_of_raters,
    padded,
    writers_of,
    written_by,
)
from evalbias.evaluation.probes import with_features
from evalbias.evaluation.words import Table, conclude, count, ends, joined, percent, signed, unsigned
from evalbias.measures.agreement import estimate_pearson
from evalbias.measures.arrays import FloatArray, IntArray
from evalbias.measures.corrections import MeansCompared, compare_means, part_of
from evalbias.measures.drift import SplitChange, split_change
from evalbias.measures.equal_quality import Effect, EqualQuality
from evalbias.measures.missing import missing_by_size
from evalbias.measures.resample import FEWEST_UNITS, Draws, Interval
from evalbias.options import AuditOptions, CompareOptions, DriftOptions
from evalbias.programs.items import candidates_of, length_feature, text_problem
from evalbias.programs.jury import Jury, Rubric
from evalbias.programs.metrics import ProgramMetric
from evalbias.runs import RESULT, SETTINGS, read_run
from evalbias.values import digest, get_logger, keywords, to_json

LABELS = {"change": "change of the mean", "drift": "the judge's part", "system": "the system's part"}
CHANGED = (AGREEMENT, "scale_use", "likelihood", "verbosity")  # for a judge that scores, compared on rated anchors
MARGIN = 0.2  # default of the smallest change worth finding, in standard deviations of the old scores
MOST_LEVELS = 9  # most rows of the table of scores


KEPT = {"people": (RATINGS, HUMAN_SCORES, BETTER), "texts": (LENGTHS, LIKELIHOODS, SAMPLES)}
"""Part of a baseline -> covariates of its items in this part."""


def by_item(judged: Judged) -> dict[str, Any]:
    """Return a judge's baseline for ``drift`` and ``compare`` as JSON data.

    ``ids`` identify items by id, input and texts; ``outputs`` identify an output and its input, whatever the id.
    """
    covariates = judged.covariates
    parts = {part: {name: covariates[name] for name in names if name in covariates} for part, names in KEPT.items()}
    kept = {name: getattr(judged, name) for name in ("criterion", "answers", "ties", "scale", "judge", "writers")}
    texts = [str(list(candidates_of(e)) or e.get("output")) for e in judged.examples]
    keys = [*zip(judged.ids, judged.inputs or judged.ids, texts or judged.ids, strict=True)]
    answered = [[_bare(e.get("source") or e.get("input_id")), _bare(e.get("output"))] for e in judged.examples]
    outputs = [text if text[1] else key for text, key in zip(answered, keys, strict=False)] or keys
    columns = {"ids": keys, "inputs": judged.inputs, "outputs": outputs}
    return {**{name: [*map(digest, column)] for name, column in columns.items()}, **parts, **kept}


def _bare(text: Any) -> Any:
    """Return a text without the spaces at its ends, which exports add and remove."""
    return text.strip() if isinstance(text, str) else text


def judged_of(content: Mapping[str, Any]) -> Judged:
    """Read a result of ``by_item``; raises an error in ``UNREAD`` for anything else."""
    columns = {**content["people"], **content.get("texts", {})}  # earlier files lack "texts"
    numbers = {name: np.array(column, dtype=np.float64) for name, column in {**columns, "": content["answers"]}.items()}
    answers, scale = numbers.pop(""), content["scale"] and tuple(map(float, content["scale"]))
    writers: Any = [name if isinstance(name, str) else tuple(name) for name in content.get("writers", ())]
    texts = [content["ids"], content["inputs"], content["outputs"], writers]
    if any(np.abs(column[np.isfinite(column)]).max(initial=0.0) > LARGEST for column in (*numbers.values(), answers)):
        raise ValueError("A number is larger than any score.")
    if {len(column) for column in [answers, *numbers.values(), *texts] if len(column)} != {len(content["ids"])}:
        raise ValueError("The items and what is known of them differ in number.")
    names = [name for column in texts for entry in column for name in (entry if isinstance(entry, tuple) else [entry])]
    if not all(isinstance(name, str) for name in [*names, content["criterion"], content["judge"]]):
        raise TypeError("A name is no text.")
    if scale and not (len(scale) == 2 and scale[0] < scale[1]):
        raise ValueError("The scale has no lowest and highest score.")
    kept = {name: content[name] for name in ("criterion", "inputs", "ties", "judge")}
    return Judged(tuple(content["ids"]), answers=answers, covariates=numbers, writers=writers, scale=scale, **kept)


UNREAD = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""Errors of reading JSON that ``by_item`` did not write."""


def read_side(source: Any, options: Any) -> tuple[Judged, list[str]]:
    """Read judged outputs: a ``Judged``, an audit, its run folder, or data with recorded scores; and text identifiers.

    A DSPy program is run on the examples of the option ``evaluate``, whose judge scores outputs that have no score yet.
    Inputs are digests, so that those of a folder and of a file are the same. ValueError for anything else, or for a
    judge that compares.
    """
    if isinstance(source, str | os.PathLike) and any((Path(source) / name).is_file() for name in (SETTINGS, RESULT)):
        run = read_run(Path(source))
        if run.result is None:
            raise ValueError(run.damage or f"{source} holds a run that is not finished: run its command again.")
        try:
            kept = run.result.get("criteria", {}).get(options.criterion, run.result).get("items")
            judged, texts = judged_of(kept), kept["outputs"]
        except UNREAD as error:
            which = " of this `criterion`" if "criteria" in run.result else ""
            message = f"{source} holds no audit{which}: give data with scores, or an audit's run folder."
            raise ValueError(message) from error
    else:
        judged = _judged(source, options)
        content = by_item(judged)
        judged, texts = replace(judged, inputs=content["inputs"] or content["ids"]), content["outputs"]
    if judged.pairwise:
        raise ValueError("A judge that compares has no mean score: give one that scores.")
    return judged, texts


def _judged(source: Any, options: Any) -> Judged:
    """Return the scores of outputs: already judged, recorded in data, or written and judged now."""
    if isinstance(source, AuditReports):
        source = source[options.criterion]
    if isinstance(source, Judged | AuditReport):
        return source if isinstance(source, Judged) else source.judged
    evaluate, judge = getattr(options, "evaluate", None), None
    if evaluate is not None:
        if not isinstance(metric := evaluate.metric, ProgramMetric) or metric.judge is None:
            raise ValueError("The metric of `evaluate` is no judge's: make it by evalbias.judge_metric(JUDGE).")
        if isinstance(source, dspy.Module):
            options = replace(options, mapping=None, scores_field=None, samples_field=None)
            source = outputs_of(source, evaluate)
        judge = metric.judge if options.scores_field is None and options.samples_field is None else None
    elif isinstance(source, dspy.Module):
        raise ValueError("A program takes `evaluate`: dspy.Evaluate(devset=..., metric=evalbias.judge_metric(JUDGE)).")
    ready = resolve(AuditOptions.of(options, data=source, judge=judge), get_logger(__name__).warning)
    tell_left_out(ready.dataset)
    return answers_of(ready)


def _check_codes(sides: Mapping[str, Judged], options: Any) -> None:
    """Refuse scores of a side that look like missing scores beside the others; each side was checked by itself."""
    scores = {name: side.answers[~np.isnan(side.answers)] for name, side in sides.items()}
    keep = [*options.keep, *(end for side in sides.values() for end in side.scale or ())]
    for name, codes in unexplained(scores, {name: name for name in scores}, keep).items():
        raise DataError(question(name, scores[name], codes))


def outputs_of(program: dspy.Module, evaluate: dspy.Evaluate) -> list[dspy.Example]:
    """Run a program on a devset; its outputs as items for the judge. Runs that fail or write nothing are left out.

    ValueError if all are left out.
    """
    metric, devset, items = evaluate.metric, evaluate.devset, []
    judge = metric.judge.judges[0] if isinstance(metric.judge, Jury | Rubric) else metric.judge
    run = dspy.Parallel(evaluate.num_threads, evaluate.max_errors, disable_progress_bar=not evaluate.display_progress)
    for example, prediction in zip(devset, run([(program, example) for example in devset]), strict=True):
        text = None if prediction is None else prediction.get(metric.output)
        if not text_problem(text):
            ids = {name: example[name] for name in ("id", "input_id") if name in example}
            inputs = {name: example.get(metric.source if name == "source" else name) for name in judge.inputs}
            items.append(dspy.Example({**ids, **inputs, judge.judged: str(text)}))
    if not items:
        raise ValueError(f"The program left no text in {metric.output!r}: name its output in evalbias.judge_metric.")
    if lost := len(devset) - len(items):
        get_logger(__name__).warning("%d of %d runs failed or left no text, and do not count.", lost, len(devset))
    return items


@dataclass(frozen=True, repr=False)
class Parts(Report, ByName[Estimate], parts="estimates"):
    """Parts of the change of a mean score, in points.

    Attributes:
        paragraphs: Findings in words.
        estimates: Name of each part -> its estimate.
    """

    question: ClassVar[str]  # question of the report
    counted: ClassVar[str]  # words for the whole that the parts add up to
    paragraphs: Sequence[str]
    estimates: Mapping[str, Estimate]

    def to_dict(self) -> dict[str, Any]:
        return dict(to_json({f.name: getattr(self, f.name) for f in fields(self)}))

    def table(self) -> Table:
        """Return a table of the parts."""
        rows = [(e.words, e.text(), e.interval) for e in self.estimates.values()]
        caption = self.counted.format(**vars(next(iter(self.estimates.values()))))
        return Table(("", "points", "95 % interval"), rows, caption=caption)


# Drift: did the judge change, or the system?


@dataclass(frozen=True, repr=False)
class DriftReport(Parts):
    """Change of a mean score between two periods, ``"change"``; ``drift["drift"]`` is the judge's part.

    ``drift["system"]`` is the system's.

    Attributes:
        split: Basis of the parts, including the map between both judges' scores.
        comparisons: ``"agreement"`` with people, or bias -> its change on the anchors, if people rated them.
        margin: Smallest change of the judge worth finding, in points.
        enough: Number of anchors that show a change of that size in 80 % of cases; None if unknown.
    """

    question, counted = "Did the system improve, or did the judge change?", "{n} anchors; intervals over inputs"
    margin: float
    enough: int | None
    split: SplitChange
    comparisons: Mapping[str, Comparison]

    def map_table(self) -> Table:
        """Return the new judge's score of equal rank for up to ``MOST_LEVELS`` old scores, and their anchors."""
        places = np.unique(np.linspace(0, len(self.split.levels) - 1, MOST_LEVELS).round().astype(int))
        columns = self.split.levels[places], self.split.mapped[places], self.split.met[places]
        rows = [
            (f"{level:.4g}", unsigned(value), ends(unsigned(low), unsigned(high)), f"{texts:,.0f}", unsigned(mean))
            for level, (value, low, high), (texts, mean) in zip(*columns, strict=True)
        ]
        headings = ("old judge", "new judge, same rank", "95 % interval", "texts", "their new mean")
        note = "noise alone moves the new mean of texts with one old score to the mean of all"
        return Table(headings, rows, "Scores of the same rank by both judges", note)

    def sections(self) -> list[Section]:
        levels, nan = self.split.levels, np.full(len(self.split.levels), math.nan)
        mapped, unmoved = np.column_stack([levels, self.split.mapped]), np.column_stack([levels, levels, nan, nan])
        caption = (
            "Scores of the same rank among the texts that both judged. A line below the other is a judge that became "
            "stricter with such texts. Bands are 95 % intervals."
        )
        marks = [Lines({"new judge": mapped, "no change": unmoved}, "score of the old judge", "score of the new judge")]
        plot = Plot("Scores of the same rank by both judges", caption, marks)
        change = Section("The change and its parts", [*self.paragraphs[1:], self.table()])
        return [change, Section(plot.title, [plot, self.map_table()])]


@keywords(DriftOptions)
def drift(options: DriftOptions) -> DriftReport:
    """Split the change of a mean score between two periods into the judge's part and the system's: a ``DriftReport``.

    Args:
        options: The options, each as a keyword; see ``evalbias.options.DriftOptions``. ``before`` and ``after`` are
            files, lists of examples or dicts, run folders of audits, ``AuditReport`` or ``Judged``.

    Raises:
        ValueError: No text was scored by both judges, or the two differ in criterion or scale.
    """
    (old, old_texts), (new, new_texts) = (read_side(side, options) for side in (options.before, options.after))
    for what in ("criterion", "scale"):
        if (earlier := getattr(old, what)) != (later := getattr(new, what)):
            raise ValueError(f"The two differ in {what} ({earlier} and {later}): give two versions of one judge.")
    _check_codes({"the score before": old, "the score after": new}, options)
    # 1. anchors: texts of both; a repeated text as often as both have it
    pairs = _in_common(old_texts, new_texts)
    if not len(pairs):
        raise ValueError("`before` and `after` have no text in common: let both judges score some anchors.")
    sides = old, new
    first, second = (replace(side.take(rows), examples=()) for side, rows in zip(sides, pairs.T, strict=True))
    second = replace(second, ids=first.ids, inputs=first.inputs)
    others = [np.setdiff1d(np.arange(len(side.ids)), rows) for side, rows in zip(sides, pairs.T, strict=True)]
    periods = [side.take(rows) for side, rows in zip(sides, others, strict=True)]
    # 2. the split, and what else changed on the anchors
    repeated = all(SAMPLES in side.covariates for side in sides)
    columns = [side.covariates[SAMPLES] if repeated else side.answers for side in (*periods, first, second)]
    inputs = (periods[0].inputs, periods[1].inputs, first.inputs)
    split = split_change(*columns, clusters=inputs, draws=Draws(seed=options.seed))
    estimates = {
        name: Estimate.of(e, name, LABELS[name], null=0.0 if name == "drift" else None)
        for name, e in zip(LABELS, split.parts.values(), strict=True)
    }
    comparisons = _compared(*_with_equal_covariates(first, second), seed=options.seed)
    # 3. in words
    margin = options.margin or MARGIN * float(np.nanstd(old.answers))
    enough = items_needed(estimates["drift"], margin) if margin > 2 * split.unsure else None  # else more do not help
    alone = not any(len(period.ids) for period in periods)
    drifted = _drift_words(estimates["drift"], margin, enough, moved=split.spread != 0)
    sentences = [*_split_words(estimates, judge_alone=alone), drifted, *_level_words(split)]
    sentences += [_agreement_words(comparisons[AGREEMENT])] if AGREEMENT in comparisons else []
    sentences += _bias_words([c for name, c in comparisons.items() if name != AGREEMENT])
    sentences += [*_cautions(split, margin), *_unlike_anchors(first, second, periods[0], split)]
    anchors, outputs = estimates["drift"].undefined, sum(int(np.isnan(period.answers).sum()) for period in periods)
    if anchors or outputs:
        lost = f"{count(anchors, 'anchor')} and {count(outputs, 'other output')}"
        sentences.append(f"Without a score, and left out: {lost}.")
    return DriftReport(tuple(sentences), estimates, margin, enough, split, comparisons)


def _in_common(old: Sequence[str], new: Sequence[str]) -> IntArray:
    """Return the (a, 2) places of texts in both lists, in the order of the first."""
    places: dict[str, list[int]] = {}
    for place, text in enumerate(new):
        places.setdefault(text, []).append(place)
    pairs = [(place, places[text].pop(0)) for place, text in enumerate(old) if places.get(text)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _split_words(estimates: Mapping[str, Estimate], *, judge_alone: bool) -> list[str]:
    change, judge, system = (estimates[name] for name in LABELS)
    sentence = f"The mean score changes by {change.text()} points (95 % interval {change.interval})"
    if judge_alone:
        return [f"{sentence}; all texts are anchors, so this is the judge's part."]
    parts = f"{judge.with_interval} is the judge's part, {system.with_interval} the system's"
    phrases = {"above": "The system improved.", "below": "The system got worse."}
    neither, unknown = "Whether the system changed is open.", "Whether the system changed cannot be told."
    return [f"{sentence}: {parts}.", conclude(system, **phrases, neither=neither, undefined=unknown)]


def _drift_words(e: Estimate, margin: float, enough: int | None, *, moved: bool) -> str:
    """Say whether the judge changed, and if this is open, how many anchors are needed."""
    if math.isnan(e.low):
        return f"Whether the judge changed cannot be told: {e.why_undefined}."
    if e.low == e.high == 0 and not moved:
        most = percent(1 - LEVEL ** (1 / e.units))
        return f"The judge gave all {e.n:,} anchors the same score again: at most {most} of texts have another one now."
    change = words.amount_words(e, "points", 2)
    if (status := decide(e, margin, e.p_value)) == "biased":
        return f"The judge changed: it would have given the old outputs {change}."
    if not margin > 0:
        return f"No change of the judge is shown ({change}); the old scores are all the same: name a `margin`."
    if status == "no sign":
        return f"No change of the judge is shown, and one of {margin:.2g} points or more is ruled out."
    sentence = f"Whether the judge changed is open: too few anchors to rule out {margin:.2g} points ({change})"
    return f"{sentence}{f'; about {enough:,} would be enough' if enough is not None and enough > e.n else ''}."


def _level_words(split: SplitChange) -> list[str]:
    """Say at which scores the judge changed more than at others, if intervals of two shifts do not overlap."""
    shifts = split.mapped - split.levels[:, None]
    least, most = np.nanargmin(shifts[:, 0]), np.nanargmax(shifts[:, 0])
    if not shifts[least, 2] < shifts[most, 1]:
        return []
    moved = [f"a {split.levels[k]:.3g} by {signed(shifts[k, 0])}" for k in (least, most)]
    sentence = f"This is no shift of all scores: by rank, the judge moves {joined(moved)}."
    if (met := split.met[[least, most]])[:, 0].min() < FEWEST_UNITS:
        return [sentence]
    texts = joined([f"the {n:.0f} that had it have {mean:.2f}" for n, mean in met])
    return [f"{sentence} Single texts are moved by noise too: now {texts} on average."]


def _with_equal_covariates(before: Judged, after: Judged) -> tuple[Judged, Judged]:
    """Return two judges of the same items with the same covariates and writers.

    Human ratings are those of ``after``, or of ``before`` if it has none. Lengths and likelihoods are left out if the
    two were measured differently.
    """
    both = {**before.covariates, **after.covariates}
    shared = {name: column for name, column in both.items() if name in KEPT["people"]}
    for name in before.covariates.keys() & after.covariates.keys() & {*KEPT["texts"]}:
        if np.array_equal(before.covariates[name], after.covariates[name], equal_nan=True):
            shared[name] = after.covariates[name]
    return replace(before, covariates=shared, writers=after.writers), replace(after, covariates=shared)


def _compared(before: Judged, after: Judged, *, seed: int) -> dict[str, Comparison]:
    """Compare two judges on the same items by paired tests of their agreement with people and biases."""
    comparisons = {}
    for bias in (BIASES[name] for name in CHANGED):
        if bias.applies(before) and bias.applies(after):
            sides = [measure(bias, judged, seed=seed, n_resamples=0) for judged in (before, after)]
            if bias.name == AGREEMENT:  # only its headline is tested
                sides = [replace(m, numbers={(n := headline_number(m.numbers)).name: n}) for m in sides]
            comparisons[bias.name] = compare_judges(*sides, n_resamples=SWAPS, seed=seed)
    return comparisons


def _agreement_words(agreement: Comparison) -> str:
    """Say whether the second version agrees with people more; only a significant difference counts."""
    change = agreement[agreement.headlines[0]]
    if math.isnan((d := change.difference).value):
        return "Whether the second version agrees with people more or less cannot be told from these items."
    finding = "Nothing shows that the second version agrees with people more or less"
    if d.p_value < LEVEL:  # NaN is not below
        finding = f"The second version agrees with people {'more' if d.value > 0 else 'less'}"
    figures = f"{change.label} {change.before.text()} before, {change.after.text()} after"
    return f"{finding}: {figures}; difference {words.with_interval(d, note=f', {words.p_equals(d.p_value)}')}."


def _bias_words(comparisons: Sequence[Comparison]) -> list[str]:
    """Name the biases that changed, after Holm's correction; empty if none was compared."""
    changes = {c.bias.title: c[c.headlines[0]] for c in comparisons if c.headlines}
    tested = {title: change for title, change in changes.items() if not math.isnan(change.p_value)}
    certain = significant(tested).values()
    if changed := [f"{c.after.words} {c.before.text()} before, {c.after.text()} after" for c in certain]:
        return [f"Its biases changed: {'; '.join(changed)}."]
    names = joined([*tested])
    return [f"No change of its biases is shown ({names})."] if names else []


def _cautions(split: SplitChange, margin: float) -> list[str]:
    cautions = []
    if margin / 2 < split.unsure < math.inf:
        cautions.append(
            f"The old outputs had {words.amount(split.apart, 0, 0)} points than the anchors from the old judge, so "
            "the parts lean on the map between the judges, which takes both for equally noisy. If all noise is one "
            f"judge's, the parts move by up to {split.unsure:.2f} points, and their intervals allow for that. Narrower "
            "ones take anchors from the old outputs, or two scores of each anchor."
        )
    if split.beyond:
        cautions.append(f"{percent(split.beyond)} of the old outputs' scores lie beyond those of all anchors.")
    return cautions


def _unlike_anchors(first: Judged, second: Judged, old: Judged, split: SplitChange) -> list[str]:
    """Warn if anchors' old scores spread more than the old outputs', or if lengths differ, which the new judge sees."""
    if not len(old.ids):
        return []
    anchors, inputs = np.arange(len(first.ids) + len(old.ids)) < len(first.ids), [*first.inputs, *old.inputs]
    from_middle = np.concatenate([np.abs(side.answers - np.nanmedian(side.answers)) for side in (first, old)])
    apart, p_value = missing_by_size(anchors, from_middle, clusters=inputs)
    cautions = []
    if apart > 0 and p_value < LEVEL:  # NaN is neither
        cautions.append(
            "The old judge's scores of the anchors lie farther from their middle than those of the old outputs. If the "
            "anchors were chosen by these scores, a judge that stayed the same may seem changed, and the intervals do "
            "not allow for that: draw anchors from the old outputs at random."
        )
    if any(LENGTHS not in judged.covariates for judged in (first, old)):
        return cautions
    ours, theirs = (length_feature(judged.covariates[LENGTHS]) for judged in (first, old))
    apart, p_value = missing_by_size(anchors, np.append(ours, theirs), clusters=inputs)
    beyond = second.answers - np.interp(first.answers, split.levels, split.mapped[:, 0])
    follows = estimate_pearson(beyond, ours, clusters=first.clusters)
    if p_value < LEVEL and (follows.low > 0 or follows.high < 0):
        cautions.append(
            f"The anchors are {abs(apart):.1f} standard deviations {'longer' if apart > 0 else 'shorter'} than the old "
            f"outputs, and of two with the same old score the longer one gets {'more' if follows.low > 0 else 'less'} "
            "from the new judge. The map between the judges knows scores alone, so it is wrong for the old outputs: "
            "draw anchors from these at random."
        )
    return cautions


# Is a system better than another? By human ratings and the judge, and the parts of the judge's difference.

PEOPLE, FAVOR, GAIN = "people", "favor", "gain"
FEATURES = {"length": "length", "likelihood": "likelihood", "own_system": "own writing", GAIN: "by the judge"}
"""Feature -> its name in words; other features are fields of the items."""
NOBODY = "nobody rated items, so what the judge gives for it at equal quality is not known"
SIDES = ("the first version", "the second version", "the further items")
"""Names of two files and of further rated items, also as features in the model of the rated items."""
EXTRAPOLATED = 0.05  # share of outputs beyond the range of rated items that leads to a warning
PAIRED = 0.9  # share of common inputs in each system above which only these count
FEW = 10  # fewest values that reveal a scale


@dataclass(frozen=True, repr=False)
class CompareReport(Parts):
    """Systems compared by people and their judge; ``report["people"]`` is the second's mean rating minus the first's.

    ``"gain"`` is the difference by the judge alone, ``"favor"`` is how much it exceeds people's, and ``"length"`` and
    other features are parts of it. With more systems, a difference is named ``"B - A"``; ``split`` has the means.
    """

    question, counted = "Which system is better?", "{n} outputs in a comparison, {undefined} of all left out"
    split: MeansCompared

    def sections(self) -> list[Section]:
        columns = self.split.judge, self.split.people, self.split.outputs, self.split.labels
        rows = [
            (name, unsigned(judge), unsigned(people), f"{outputs:,.0f}", f"{labels:,.0f}")
            for name, judge, people, outputs, labels in zip(self.split.systems, *columns, strict=True)
        ]
        means = Table(("", "mean by the judge", "by people, of all", "outputs", "rated"), rows)
        drawn = {e.words: e for e in self.estimates.values() if not math.isnan(e.value)}
        blocks = [*self.paragraphs[1:], means, interval_plot(drawn, "What differs"), self.table()]
        return [Section("What differs between the systems", blocks)]


@keywords(CompareOptions)
def compare(options: CompareOptions) -> CompareReport:
    """Compare systems by people's ratings of a few outputs and the judge's scores of all: a ``CompareReport``.

    Args:
        options: The options, each as a keyword; see ``evalbias.options.CompareOptions``. Data are files, lists of
            dicts, run folders of audits, ``AuditReport`` or ``Judged``. Of two DSPy programs, the outputs on the devset
            of ``evaluate`` are judged by its metric's judge, which also scores items of ``rated`` without a score.

    Raises:
        ValueError: There are fewer than two systems, a side lacks a feature that is named, or the scales differ.
    """
    systems, nameless = _systems_of(options)
    sides = [*systems.values(), *([] if options.rated is None else [read_side(options.rated, options)[0]])]
    if options.features and not all(side.examples for side in sides):
        raise ValueError("`features` are of the outputs themselves, which a run folder lacks: give the data.")
    _check_codes({f"the score of {n}": s for n, s in zip([*systems, "`rated`"], sides, strict=False)}, options)
    if len(scales := {side.scale for side in sides} - {None}) > 1:
        raise ValueError(f"The scores are on different scales, {joined([*map(str, scales)])}: let one judge score all.")
    if options.scale is None:
        _check_alike(systems)
    # 1. the outputs that count: if most inputs of a system are common to all, only outputs to these
    sides = [with_features(side, options.features) for side in sides]
    own = sides[: len(systems)]
    scored = [{x for x, score in zip(s.inputs, s.answers, strict=True) if not math.isnan(score)} for s in own]
    common = set.intersection(*scored)
    if common and all(len(common) >= PAIRED * len(inputs) for inputs in scored):
        own = [side.take(np.flatnonzero(np.isin(side.inputs, [*common]))) for side in own]
    ratings = [mean_of_raters(side.ratings) if side.rated else np.full(len(side.ids), np.nan) for side in own]
    scores, inputs = np.concatenate([side.answers for side in own]), [x for side in own for x in side.inputs]
    names = [name for name, side in zip(systems, own, strict=True) for _ in side.ids]
    means = compare_means(scores, np.concatenate(ratings), names, clusters=inputs)
    # 2. the differences in words, and, for two systems, the parts of the judge's difference
    lost = sum(len(side.ids) for side in systems.values()) - sum(means.outputs)
    texts = [sorted((x, str(e.get("output"))) for x, e in zip(s.inputs, s.examples, strict=False)) for s in own]
    reasons = ["their outputs are identical" if texts[a] == texts[b] != [] else "" for a, b in means.pairs]
    each = zip(means.differences, reasons, strict=True)
    differences = [replace(e, undefined=int(lost), reason=reason or e.reason) for e, reason in each]
    if len(systems) > 2:
        estimates, sentences = _ranked(means, differences)
    else:
        estimates = {PEOPLE: Estimate.of(differences[0], PEOPLE, "by people")}
        if any(side.on_peoples_scale for side in own):
            estimates[FAVOR] = Estimate.of(means.favors[0], FAVOR, "the judge's favor", null=0.0)
        parts, more = _parts([*own, *sides[2:]], options)
        sentences, estimates = [*_verdict(means, estimates), *more], estimates | parts
    for name, side in zip(systems, own, strict=True):
        if side.rated_apart:
            caution = f"The rated outputs of {name} score {side.rated_apart} its others"
            sentences.insert(1, f"{caution}: rate a random few, or differences are wrong.")
    if nameless:
        sentences.append(f"Left out: {count(nameless, 'row')} without a system.")
    return CompareReport(tuple(sentences), estimates, means)


def _systems_of(options: CompareOptions) -> tuple[dict[str, Judged], int]:
    """Return the judged outputs of each system, and the number of outputs without a system."""
    if options.data is None:
        return {SIDES[0]: read_side(options.before, options)[0], SIDES[1]: read_side(options.after, options)[0]}, 0
    judged = read_side(options.data, options)[0]
    named = [k for k, e in enumerate(judged.examples) if e.get("system") not in (None, "")]
    nameless = 0 if judged.writers else len(judged.examples) - len(named)
    if nameless and named:
        judged = replace(judged.take(np.array(named)), writers=[str(judged.examples[k]["system"]) for k in named])
    names = [*dict.fromkeys(options.systems or judged.writer_names)]
    if len(names) < 2 or {*names} - {*judged.writer_names}:
        writers = joined([*map(repr, judged.writer_names)]) or "none: name the column system"
        how = f"name two or more, each by a `systems` of its own if names hold commas. The data have {writers}."
        raise ValueError(f"`systems` {joined([*map(repr, names)])}: {how}")
    return {name: judged.take(np.flatnonzero(written_by(judged, [name]))) for name in names}, nameless


def _check_alike(systems: Mapping[str, Judged]) -> None:
    """Refuse systems that seem to be scored, or rated, on different scales."""
    rated = {name: side.ratings for name, side in systems.items() if side.rated}
    for what, columns in (("judge's scores", {n: s.answers for n, s in systems.items()}), ("people's ratings", rated)):
        values = {name: column[~np.isnan(column)] for name, column in columns.items()}
        many = {name: column for name, column in values.items() if len(column) >= FEW}
        if any(on_a_lower_scale(a, b) for a, b in permutations(many.values(), 2)):
            ranges = ", ".join(f"{name} {column.min():g} to {column.max():g}" for name, column in many.items())
            problem = f"The {what} seem to be on different scales ({ranges})"
            raise ValueError(f"{problem}: bring them to one, or give `scale`.")


def _verdict(means: MeansCompared, estimates: Mapping[str, Estimate]) -> Iterator[str]:
    """Say whether the second of two systems is better, how many ratings would decide, and whom the judge favors."""
    (first, second), e, enough = means.systems, estimates[PEOPLE], means.enough[0]
    phrases = {"above": "is better than", "below": "is worse than", "undefined": "cannot be compared with"}
    sentence = f"{second} {conclude(e, **phrases, neither='is not shown to be better or worse than')} {first}"
    how = f"by ratings of {sum(means.labels):,.0f} outputs and the judge's scores of all {e.n:,}"
    figures = e.why_undefined if math.isnan(e.low) else f"{e.text()} points {how} (95 % interval {e.interval})"
    yield f"{sentence[0].upper()}{sentence[1:]}: {figures}."
    if e.low <= 0 <= e.high and (outputs := items_needed(e, abs(e.value)) if e.value else None):
        needed = f"{enough:,.0f} ratings"
        if math.isnan(enough):  # even rating all these outputs would not show it
            rated = math.ceil(outputs * sum(means.labels) / e.n)
            needed = f"{outputs:,} outputs, {f'{rated:,} of them' if rated < outputs else 'all'} rated,"
        yield f"It takes about {needed} to show a difference of this size."
    if FAVOR in estimates and not math.isnan(e.low):
        favor, wrong = estimates[FAVOR], "so a correction that both share would be wrong"
        phrases = {"above": f"The judge favors {second}, {wrong}", "below": f"The judge favors {first}, {wrong}"}
        whom = conclude(favor, **phrases, neither="That the judge favors one of them is not shown")
        alone = signed(means.judge[1] - means.judge[0])
        corrected = f"less the difference with each one's ratings, {favor.with_interval}"
        yield f"{whom}: its scores alone say {alone}; {corrected}."


def _ranked(means: MeansCompared, differences: Sequence[Interval]) -> tuple[dict[str, Estimate], list[str]]:
    """Return the differences between better and worse systems, best first, and sentences on which is best."""
    rank, ordered = np.argsort(np.argsort(-means.people, kind="stable")), dict[tuple[int, int], Estimate]()
    for pair, e in zip(means.pairs, differences, strict=True):
        worse, better = sorted(pair, key=lambda place: -rank[place])
        turned = e if (worse, better) == pair else replace(e, value=-e.value, low=-e.high, high=-e.low)
        name = f"{means.systems[better]} - {means.systems[worse]}"
        ordered[rank[better], rank[worse]] = Estimate.of(turned, name)
    best, *others = (means.systems[place] for place in np.argsort(rank))
    beaten = [name for k, name in enumerate(others) if ordered[0, k + 1].low > 0]
    reasons = dict.fromkeys(e.reason for e in ordered.values() if e.reason)
    unclear = [name for k, name in enumerate(others) if not (name in beaten or ordered[0, k + 1].reason)]
    sentences = [f"{best} is better than {joined(beaten)}."] if beaten else []
    sentences += [f"Whether {best} is better than {joined(unclear, 'or')} is open."] if unclear else []
    compared = [e for e in ordered.values() if not math.isnan(e.low)]
    how = f"By ratings of {sum(means.labels):,.0f} outputs and the judge's scores of all {sum(means.outputs):,.0f}"
    hold = f"the {len(compared)} intervals hold together" if len(compared) > 1 else "the interval holds"
    sentences += [f"{how}; {hold} in 95 % of cases."] if compared else []
    sentences += [f"Not compared: {'; '.join(reasons)}."] if reasons else []
    return {ordered[places].name: ordered[places] for places in sorted(ordered)}, sentences


def _parts(sides: Sequence[Judged], options: CompareOptions) -> tuple[dict[str, Estimate], list[str]]:
    """Return the judge's difference between the first two sides, its parts by features, and sentences."""
    # 1. the features that all sides have, and the model of their effects at equal quality
    by_side = [_features(side, options) for side in sides]
    names = [name for name in by_side[0] if all(name in columns for columns in by_side)]
    if options.own_system and not any(columns["own_system"].any() for columns in by_side):
        raise ValueError(f"No output is by `own_system` {options.own_system!r:.80}: name a system of the data.")
    places = [k for k, side in enumerate(sides) if side.rated]
    inputs, model, features = [x for k in places for x in sides[k].inputs], None, dict[str, FloatArray]()
    if places and names:
        ratings = padded([row for k in places for row in sides[k].ratings])
        scores = np.concatenate([sides[k].answers for k in places])
        features = {name: np.concatenate([by_side[k][name] for k in places]) for name in names}
        whose = np.repeat(places, [len(sides[k].ids) for k in places])
        equal_quality = partial(EqualQuality, scores, ratings, clusters=inputs, reliability=options.reliability)
        kept = equal_quality(features).kept
        features |= {SIDES[k]: (whose == k).astype(np.float64) for k in np.unique(whose[kept])[1:]}
        model = equal_quality(features, unscaled=[*features])
    # 2. differences in scores and features, paired by input, and the parts due to features
    both = {GAIN: [side.answers for side in sides[:2]], **{n: [columns[n] for columns in by_side[:2]] for n in names}}
    systems, clusters = np.repeat([0, 1], [len(s.ids) for s in sides[:2]]), [x for s in sides[:2] for x in s.inputs]
    estimates, sentences = dict[str, Estimate](), list[str]()
    for name, values in both.items():
        written, label = np.concatenate(values), FEATURES.get(name, name.replace("_", " "))
        (e,) = compare_means(written, written, systems.tolist(), clusters=clusters).differences
        if name != GAIN:
            e = part_of(e, model.effect(name) if model else Effect(math.nan, reason=NOBODY))
            rated = features[name][kept] if model else written
            beyond = (written < rated.min(initial=math.inf)) | (written > rated.max(initial=-math.inf))
            if beyond.mean() > EXTRAPOLATED:
                share = percent(beyond.mean())
                sentences.append(f"{share} of the outputs lie beyond the rated in {label}: extrapolated.")
        estimates[name] = Estimate.of(e, name, label)
    return estimates, [*_gain_words(estimates), *sentences]


def _features(judged: Judged, options: CompareOptions) -> dict[str, FloatArray]:
    """Return the known features of the outputs, (n,) each."""
    covariates = judged.covariates
    features = {"length": length_feature(covariates[LENGTHS])} if LENGTHS in covariates else {}
    features |= {"likelihood": covariates[LIKELIHOODS]} if LIKELIHOODS in covariates else {}
    if options.own_system:
        if not len(judged.writers):
            fault = f"`own_system` {options.own_system!r:.80}: a file does not name its systems"
            raise ValueError(f"{fault}. Add the column.")
        features["own_system"] = written_by(judged, writers_of(judged, options.own_system))
    return features | {name: covariates[name] for name in options.features}


def _gain_words(estimates: Mapping[str, Estimate]) -> Iterator[str]:
    """Describe the parts of the judge's difference."""
    whole, *parts = estimates.values()
    if math.isnan(whole.value):
        return
    total = f"{whole.text()} points (95 % interval {whole.interval})"
    if why := "no feature is known" if not parts else next((e.reason for e in parts if math.isnan(e.value)), ""):
        what = joined([e.label for e in parts]) or "length or likelihood"
        yield f"By the judge's scores alone, the difference is {total}; how much of it is {what} cannot be said: {why}."
    else:
        yield f"Of the judge's {total}, {joined([f'{e.with_interval} is {e.label}' for e in parts])}."
