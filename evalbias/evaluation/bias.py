"""Interface of a bias: its question, requirements, numbers, sentences, remedies and plot.

A bias is a class: ``Bias``, or ``EffectBias`` for the effect of a property of the text at equal quality. Tables, pages,
JSON, audits and searches need nothing but this class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import scipy

from evalbias.data.hints import like_ratings
from evalbias.data.items import rated_criteria
from evalbias.evaluation.estimates import LEVEL, N_RESAMPLES, Comparison, Estimate, Measurement, Number, measured
from evalbias.evaluation.judged import BY_CONSTRUCTION, LENGTHS, Judged, mean_of_raters, written_by
from evalbias.evaluation.words import Table, amount_words, decimals, ends, interval_words, joined, signed
from evalbias.measures.arrays import FloatArray
from evalbias.measures.equal_quality import SCORE_SD, Effect, EqualQuality, estimate_effect
from evalbias.measures.resample import SHARE, estimate_share
from evalbias.measures.scale_use import LEAST, SLOPE
from evalbias.programs.judges import median_coverage

MARGINS = {SCORE_SD: 0.2, SHARE: 0.1, SLOPE: 0.3}
"""Unit of an estimate -> smallest distance from an unbiased judge that is worth finding."""
ALLOWANCES = {SLOPE: 1 - LEAST}  # unit -> distance from an unbiased judge that its test tolerates
JUDGES = {"pairs": "compares", "scores": "scores", "probabilities": "gives the probability of each score"}
"""Kind of judge -> what it does."""
MOST_ROWS = 10  # most estimates in the default plot
MOST_DOTS = 300  # most dots of the plot of an effect

AnyBias = TypeVar("AnyBias", bound="Bias")


@dataclass(frozen=True)
class Bias:
    """Base of biases: a question about a judge, and the numbers that answer it."""

    name: ClassVar[str]  # key in the registry, in reports, in JSON and on the command line
    title: ClassVar[str]  # name in running text
    question: ClassVar[str]  # question that a report asks
    favored: ClassVar[str] = "what the bias favors"  # subject of sentences such as "... gets 0.2 more points"
    kind: ClassVar[Literal["bias", "validity", "explanation"]] = "bias"  # tested; agreement with people; not a finding
    judges: ClassVar[str] = ""  # key in ``JUDGES`` if only this kind of judge can have it
    # Names of the numbers in a short table. The first with a null (value of an unbiased judge) that differences in
    # quality cannot explain decides whether the judge is biased.
    headlines: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[tuple[str, ...]] = ()  # names of numbers that share the headlines' plot
    helps: ClassVar[Mapping[str, str]] = {}  # "pairs", "scores", "others" (not of evalbias) -> remedy and its cost

    def numbers(self, judged: Judged) -> list[Number]:
        """Return the numbers that these items allow, possibly none; only the items' values are computed yet."""
        raise NotImplementedError

    def applies(self, judged: Judged) -> bool:
        """Return whether any of its numbers can be measured."""
        return self.suits(judged) and bool(self.numbers(judged))

    def number(self, name: str, judged: Judged) -> Number:
        """Return a number by name; ValueError if the items do not allow it."""
        for number in self.numbers(judged):
            if number.name == name:
                return number
        raise ValueError(self._unmeasured(name, judged))

    def suits(self, judged: Judged) -> bool:
        """Return whether this kind of judge can have the bias."""
        kinds = {"pairs": judged.pairwise, "scores": not judged.pairwise, "probabilities": judged.probabilities}
        return not self.judges or kinds[self.judges]

    def configured(self: AnyBias, **settings: Any) -> AnyBias:
        """Return the bias with those settings that are fields of its class and not None."""
        values = {f.name: settings.get(f.name) for f in fields(self)}
        return replace(self, **{name: value for name, value in values.items() if value is not None})

    def missing(self, judged: Judged) -> Iterator[str]:
        """Name each requirement of a test that the items lack."""
        return iter(())

    def lacks(self, judged: Judged) -> str:
        """Return the requirements that the items lack, as the end of "it needs ..."; empty if none."""
        return joined([*self.missing(judged)])

    def _unmeasured(self, what: str, judged: Judged) -> str:
        needs = self.lacks(judged) if self.suits(judged) else f"a judge that {JUDGES[self.judges]}"
        return f"{what} on {judged.criterion} cannot be measured" + (f": it needs {needs}." if needs else ".")

    def margin(self, estimate: Estimate) -> float:
        """Return the smallest distance from an unbiased judge that is worth finding."""
        return MARGINS.get(estimate.unit, 0.1)  # without a unit: correlations, differences of shares

    def sentence(self, estimate: Estimate, judged: Judged) -> str:
        """Describe an estimate in units that people understand."""
        null = estimate.null or 0.0
        if estimate.unit == SHARE:
            value, low, high = estimate.scaled(100).numbers
            wins = f"wins {value:.3g} of 100 comparisons instead of {100 * null:.3g}"
            return f"{self.favored} {wins} (95 % interval {low:.3g} to {high:.3g})"
        interval = ends(estimate.text(estimate.low - null), estimate.text(estimate.high - null))
        differs = f"{estimate.label} differs by {signed(estimate.value - null)} from that of an unbiased judge"
        return f"{differs} (95 % interval {interval})"

    def margin_words(self, estimate: Estimate, judged: Judged) -> str:
        """Describe the smallest effect worth finding: "an effect of 10 of 100 comparisons or more"."""
        margin = self.margin(estimate)
        if estimate.unit == SHARE:
            return f"an effect of {100 * margin:g} of 100 comparisons or more"
        return f"an effect of {margin:g} {estimate.unit}".rstrip() + " or more"

    def other_cause(self, measurement: Measurement) -> str:
        """Name another cause that may look like this bias; empty if none is known."""
        return ""

    def ruled_out(self, measurement: Measurement) -> tuple[Estimate, str] | None:
        """Return an estimate minus its null, and a sentence, that rule the bias out whatever its headline, or None."""
        return None

    def remedy(self, estimate: Estimate, judged: Judged) -> str:
        """Return the remedy and its cost; empty if evalbias has none."""
        ours = self.helps.get("pairs" if judged.pairwise else "scores", "")
        return ours if judged.asked.compilable else self.helps.get("others", ours)

    def conclusion(self, measurement: Measurement) -> str:
        """Return a sentence for the end of the verdict; empty if there is nothing to add."""
        return ""

    def plot(self, measurement: Measurement) -> Plot | None:
        """Return the plot: the first defined headline, and estimates that can share its axis."""
        defined = [e for e in measurement.estimates.values() if not math.isnan(e.value)]
        headlines = [e for e in defined if e.name in self.headlines]
        if not defined:
            return None
        first = (headlines or defined)[0]
        alike = [e for e in defined if e is not first and (_axis(e) == _axis(first) or e.name in self.beside)]
        title = f"{first.words}: {first.text()} (95 % interval {first.interval})"
        return interval_plot({e.words: e for e in [first, *alike][:MOST_ROWS]}, title)


def _axis(e: Estimate) -> tuple[object, ...]:
    return e.null, e.signed, e.unit == "points"


MAPPED = "name yours in mapping, or by --map rating_1=COLUMN,rating_2=COLUMN"


def people_missing(judged: Judged) -> Iterator[str]:
    """Name the missing human ratings or choices, if nobody rated the items."""
    if judged.rated:
        return
    if judged.pairwise:
        yield "people's choices between the outputs (field better; name yours in mapping, or by --map better=COLUMN)"
    elif others := rated_criteria(judged.examples):
        names = joined([repr(name) for name in others])
        yield f"people's ratings on {judged.criterion!r:.80} (the items are rated on {names:.500})"
    else:
        mapped = like_ratings(judged.examples, judged.judge) or MAPPED
        yield f"people's ratings (columns rating_1, rating_2, ...; {mapped}) or scores (column score)"


def interval_plot(rows: Mapping[str, Estimate], title: str) -> Plot | None:
    """Return a plot of estimates that share a null, a row for each; None without any."""
    if not rows:
        return None
    null, units = next(iter(rows.values())).null, {e.unit for e in rows.values()}
    caption = "Dots are estimates, bars their 95 % intervals."
    words = "" if null is None else f"{null:g} = no bias"
    label = units.pop() if len(units) == 1 else ""
    mark = Intervals({name: [e] for name, e in rows.items()}, null=null, null_words=words, x_label=label)
    return Plot(title, f"{caption} {words}." if words else caption, [mark])


def share_number(name: str, label: str, values: FloatArray, **described: Any) -> Number:
    """Return the mean of (n,) values in [0, 1] as a share."""
    return Number(name, label, values, estimate_share, signed=False, **described)


# --- the effect of a property of the text at equal quality ------------------------------------------------------------


@dataclass(frozen=True)
class EffectBias(Bias):
    """Effect of a property of the outputs at equal quality: the judge's reward for it beyond people's.

    In standard deviations of the score (for pairs, of the log-odds of a win, or of the verdicts if there are no
    probabilities), per standard deviation of the property or, if it is 0 or 1, for having it. NaN if items have a
    single rating of unknown reliability. All known effects are also estimated in a joint model.
    """

    reliability: float | None = None  # share of a single rating's variance that is quality, for items with one rating
    feature_name: ClassVar[str]  # name of the property in messages, and of its number in the joint model
    effect_name: ClassVar[str]  # name of the number
    effect_of: ClassVar[str]  # the property in words: "effect of length"
    label: ClassVar[str] = ""  # heading of the number in tables, unless it is "effect of ..."
    says: ClassVar[str] = ""  # name in a report, unless it is "Effect of ... at equal quality"
    more: ClassVar[str] = "with it"  # word for an output with more of it
    less: ClassVar[str] = "without"
    standardized: ClassVar[bool] = True  # True if the effect is per standard deviation

    def missing(self, judged: Judged) -> Iterator[str]:
        if LENGTHS not in judged.covariates:
            field = "outputs, or output_1 and output_2" if judged.pairwise else "output"
            yield f"the texts that were judged (field {field})"
        yield from people_missing(judged)

    def feature(self, judged: Judged) -> FloatArray | None:
        """Return the property of the outputs, (n,) or (n, 2) for pairs; None if unknown."""
        raise NotImplementedError

    def numbers(self, judged: Judged) -> list[Number]:
        feature = self.feature(judged)
        if not judged.rated or feature is None:
            return []
        numbers = [self.effect(judged, feature)]
        if self.standardized and judged.systems is not None and 1 < len(judged.writer_names) <= len(judged.ids) / 2:
            held = {f"system {writer}": written_by(judged, [writer]) for writer in judged.writer_names[1:]}
            named = {"name": f"{self.effect_name}_within", "label": f"{self.effect_of} within systems"}
            says = f"Effect of {self.effect_of} among outputs of one system"
            numbers.append(self.effect(judged, feature, held, **named, says=says, within=True))
        return numbers

    def effect(
        self,
        judged: Judged,
        feature: FloatArray,
        others: Mapping[str, FloatArray] = MappingProxyType({}),
        *,
        name: str = "",
        label: str = "",
        says: str = "",
        within: bool = False,
    ) -> Number:
        """Return the effect of an (n,) or (n, 2) property on the judge's scores, with ``others`` held fixed.

        Unless ``within`` systems, its interval allows for errors that outputs of the same system share.
        """
        estimator = partial(
            estimate_effect,
            names=(self.feature_name, *others),
            unscaled=() if self.standardized else (self.feature_name,),
            reliability=self.reliability,
            differences=judged.pairwise,
            mirrored=judged.both_orders,
            systems=judged.systems if self.standardized and not within else None,  # there is only one own system
        )
        columns = (judged.first_less_second(values) for values in (feature, *others.values()))
        return Number(
            name or self.effect_name,
            label or self.label or f"effect of {self.effect_of}",
            judged.strength,
            estimator,
            columns=(judged.ratings, *columns),
            null=0.0,
            tested=False,
            width=judged.width,
            says=says or self.says or f"Effect of {self.effect_of} at equal quality",
        )

    def within(self, measurement: Measurement, judged: Judged, tests: int) -> str:
        """Describe the effect among outputs of the same system, if significant among ``tests`` tests; else empty."""
        e = measurement.estimates.get(f"{self.effect_name}_within")
        if e is None or not e.p_value * tests < LEVEL:
            return ""
        return f"{self.favored} gets {self._points(e, judged)}"

    def _points(self, e: Estimate, judged: Judged) -> str:
        """Describe an effect on scores in points, with its interval."""
        what, note = f"points at equal quality{_scale(judged)}", self._stated(judged)
        return amount_words(e.scaled(e.points), what, held_if=judged.held_if, note=note)

    def _stated(self, judged: Judged) -> str:
        """Describe the stated reliability that an interval assumes; empty if it is measured, or 1."""
        if self.reliability in (None, 1):
            return ""
        return f", if the reliability of one {judged.one_rating} is {f'{self.reliability:.2g}'.lstrip('0')}"

    def sentence(self, estimate: Estimate, judged: Judged) -> str:
        if estimate.unit != SCORE_SD:
            return super().sentence(estimate, judged)
        if not judged.pairwise:
            return f"{self.favored} gets {self._points(estimate, judged)}"
        value, low, high = (100 * _even_pair(end, judged) for end in estimate.scaled(estimate.points).numbers)
        interval = interval_words(value, low, high, digits=0, held_if=judged.held_if)
        interval += self._stated(judged)
        among = f"between {low:.0f} and {high:.0f}" if judged.verdicts else f"{low:.0f} to {high:.0f}"
        wins = among if math.isnan(value) else f"{value:.0f}"
        if judged.verdicts:
            return f"{self.favored} wins {wins} of 100 pairs of equal quality instead of 50 ({interval})"
        pair = "in a pair of equal quality that the judge would otherwise find even"
        return f"{pair}, {self.favored} gets a win probability of {wins} % ({interval})"

    def margin_words(self, estimate: Estimate, judged: Judged) -> str:
        if estimate.unit != SCORE_SD:
            return super().margin_words(estimate, judged)
        points = self.margin(estimate) * estimate.points
        if not judged.pairwise:
            return f"an effect of {points:.{decimals(points)}f} points or more"
        share = _even_pair(points, judged)
        if judged.verdicts:
            return f"an effect of {100 * (share - 0.5):.0f} of 100 pairs or more"
        return f"a shift of an even pair from 50 % to {100 * share:.0f} % or more"

    def plot(self, measurement: Measurement) -> Plot | None:
        judged, recipe = measurement.judged, measurement.numbers.get(self.effect_name)
        if judged is None or recipe is None or not self.standardized or math.isnan(measurement[self.effect_name].low):
            return super().plot(measurement)
        e = measurement[self.effect_name]
        # 1 dots: the property in standard deviations, and the score minus the part explained by quality
        x, y = beyond_quality(recipe, full_effect(recipe, measurement.clusters), mirrored=judged.both_orders)
        # 2 the line of the effect, in points, log-odds or verdicts
        value, low, high = e.scaled(e.points).numbers
        unit = "log-odds" if judged.pairwise else "points"
        unit = "on a scale from -1 (loses) to 1 (wins)" if judged.verdicts else unit
        form = f"+.{decimals(value, low, high)}f"
        span = f"{low:{form}} to {high:{form}}"
        # 3 in words
        title = f"Of two equally good texts, the {self.more} one gets {span} {unit} (95 % interval)"
        if not math.isnan(value):
            gets = f"gets {value:{form}} {unit} at equal quality (95 % interval {span})"
            title = f"An output that is one standard deviation {self.more} {gets}"
        dot = "one output of a pair, compared with the other" if judged.pairwise else "one output"
        caption = (
            f"Each dot is {dot}. A dot above 0 got more than its quality, as people rated it, explains. A judge "
            "without this bias has a flat line: quality alone decides. The band around the line is its 95 % interval."
        )
        order, n = np.argsort(x, kind="stable"), len(x)
        if n > MOST_DOTS:
            caption += f" {MOST_DOTS} of {n:,} dots are drawn, evenly spaced from {self.less} to {self.more}."
        chosen = order[np.unique(np.linspace(0, n - 1, min(n, MOST_DOTS)).astype(int))]
        along = np.linspace(x.min(), x.max(), 50)
        dots = Dots(
            {"": (x[chosen], y[chosen])},
            line=np.column_stack([along, along * value, along * low, along * high]),
            x_label=(self.less, "standard deviations", self.more),
            y_label=f"{'verdict' if judged.verdicts else unit} beyond quality",
            y_null="0 =\nno bias",
        )
        return Plot(title, caption, [dots])


def full_effect(recipe: Number, clusters: Sequence[object] | None) -> Effect:
    """Return the effect of ``EffectBias.effect`` with its bounds, its F and the reason if it is undefined."""
    effect = recipe.estimator(recipe.values, *recipe.columns, clusters=clusters)
    assert isinstance(effect, Effect)
    return effect


def holding(recipe: Number, clusters: Sequence[object] | None) -> tuple[float, float]:
    """Return the reliabilities of the mean rating between which the effect of ``EffectBias.effect`` excludes 0."""
    assert isinstance(recipe.estimator, partial)
    options = dict(recipe.estimator.keywords)
    features = dict(zip(names := options.pop("names"), recipe.columns[1:], strict=True))
    return EqualQuality(recipe.values, recipe.columns[0], features, clusters=clusters, **options).holding(names[0])


def beyond_quality(recipe: Number, fit: Effect, *, mirrored: bool) -> tuple[FloatArray, FloatArray]:
    """Return the (m,) property in standard deviations, and the (m,) score minus the part explained by quality."""
    ratings, x, scores = recipe.columns[0], recipe.columns[1], recipe.values
    fewest = 2 if ratings.shape[1] > 1 else 1
    quality = np.where((~np.isnan(ratings)).sum(axis=1) >= fewest, mean_of_raters(ratings), np.nan)
    kept = ~np.isnan(x + quality + scores)
    signs = (1, -1) if mirrored else (1,)
    x, quality, scores = (np.concatenate([sign * v[kept] for sign in signs]) for v in (x, quality, scores))
    x, quality, scores = (x - x.mean()) / x.std(), quality - quality.mean(), scores - scores.mean()
    slope = fit.quality * fit.score_sd
    if math.isnan(slope):  # unknown: use the least-squares slope
        slope = float(np.linalg.lstsq(np.stack([quality, x], axis=1), scores, rcond=None)[0][0])
    return x, scores - slope * quality


def _even_pair(shift: float, judged: Judged) -> float:
    """Return the win probability of an even pair after an effect; for verdicts, the share of wins.

    In log-odds it is not a share of wins: a confident judge has few nearly even pairs, so an effect that moves an even
    pair from 50 to 76 % may change 11 decisions of 100, or 2.
    """
    # For verdicts, the effect is linear, and a share is limited to [0, 1].
    return float(np.clip(0.5 + shift / 2, 0, 1) if judged.verdicts else scipy.special.expit(shift))


def _scale(judged: Judged) -> str:
    if judged.scale is not None:
        return f" on the scale of {judged.scale[0]:g} to {judged.scale[1]:g}"
    scores = judged.answers[~np.isnan(judged.answers)]
    return f", where the judge's scores run from {scores.min():g} to {scores.max():g}" if len(scores) else ""


def measure(bias: Bias, judged: Judged, *, seed: int, n_resamples: int = N_RESAMPLES) -> Measurement:
    """Measure a bias in ``BIASES`` on a judge's answers (see ``judge_examples``); no model is asked.

    The 95 % intervals come from ``n_resamples`` bootstrap resamples, drawn with ``seed``.

    TypeError for the name of a bias; ValueError if judge and items allow none of its numbers.
    """
    if isinstance(bias, str):
        raise TypeError(f"The bias {bias!r} is a name: give evalbias.BIASES[{bias!r}].")
    if not (numbers := bias.numbers(judged)):
        raise ValueError(bias._unmeasured(bias.title.capitalize(), judged))
    return measured(
        numbers,
        clusters=judged.clusters,
        bias=bias,
        judged=judged,
        criterion=judged.criterion,
        ids=judged.ids,
        columns=judged.columns,
        seed=seed,
        n_resamples=n_resamples,
        coverage=median_coverage(judged.asked.coverage),
        cost={"judgments": judged.asked.judgments},
        provenance={**judged.provenance, "seed": seed, "n_resamples": n_resamples},
    )


# --- plots as data: five kinds of marks, independent of colors, widths and matplotlib ---------------------------------

Label = str | tuple[str, str, str]  # label of an axis; or words for less, for the quantity, and for more


@dataclass(frozen=True)
class Intervals:
    """Estimates with their 95 % intervals on a shared axis."""

    rows: Mapping[str, Sequence[Estimate]]  # name of the row -> its estimate, or two of them: before above after
    null: float | None = None  # value of an unbiased judge; None if the estimates are not of a bias
    null_words: str = ""  # label at this value
    x_label: str = ""  # label of the axis
    percent: bool = False  # True if the axis runs from 0 to 100 %


@dataclass(frozen=True)
class Dots:
    """Points, and a line with its 95 % band."""

    points: Mapping[str, tuple[FloatArray, FloatArray]]  # group -> (n,) x, (n,) y; several get a legend
    line: FloatArray | None = None  # (k, 4) x, y, and the ends of the band; NaN is not drawn
    x_label: Label = ""
    y_label: str = ""
    y_null: str = ""  # label at y = 0, the height of an unbiased judge; empty for no line


@dataclass(frozen=True)
class Bars:
    """Histograms on the same edges."""

    heights: Mapping[str, FloatArray]  # name -> (b,) counts, or shares in percent; several get a legend
    edges: FloatArray  # (b + 1,) edges of the bars
    x_label: Label = ""
    y_label: str = ""
    percent: bool = False  # True if the heights are shares


@dataclass(frozen=True)
class Lines:
    """Lines over steps, such as the rounds of a loop."""

    series: Mapping[str, FloatArray]  # name (in the legend) -> (t, 4) x, y, ends of the 95 % band (NaN: none)
    x_label: str = ""
    y_label: str = ""
    percent: bool = False  # True if y is a share
    null: str = ""  # label at y = 0, the height of an unbiased judge; empty for no line


def without_band(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return (k, 4) points of a line without a band."""
    return np.stack([x, y, *[np.full(len(x), np.nan)] * 2], axis=1)


@dataclass(frozen=True)
class Stack:
    """Shares that add up to 1, in a stacked bar: name -> share. An unbiased judge has only the first."""

    shares: Mapping[str, float]


@dataclass(frozen=True)
class Plot:
    """A plot; its marks are stacked from the top."""

    title: str  # conclusion, as a sentence
    caption: str  # how to read the plot, and what it leaves out
    marks: Sequence[Intervals | Dots | Bars | Lines | Stack]


# --- sections of a result, which a terminal, a page, a notebook and a Markdown summary share --------------------------


@dataclass(frozen=True)
class Quote:
    """A text from a file or a model, whose terms are not explained."""

    text: str


@dataclass(frozen=True)
class ShownItem:
    """An item with its texts."""

    name: str
    reason: str  # reason for listing it, with its numbers
    passages: Sequence[tuple[str, str]] = ()  # (kind, such as "input", and text); empty if unknown
    numbers: Mapping[str, float] = field(default_factory=dict)  # numbers for sorting


Block = str | Quote | Table | Plot | Mapping[str, str] | list[ShownItem] | None
"""Part of a section: our words, whose terms are explained; a foreign text; table; plot; values; items; or nothing."""


@dataclass(frozen=True)
class Section:
    """A heading with its blocks; a page without a verdict repeats its finding at the top."""

    title: str
    blocks: Sequence[Block]
    finding: str = ""  # its result in a sentence
    status: str = ""  # an audit's conclusion from it, such as "biased"


class Shown:
    """Base of results that are displayed as sections."""

    def sections(self) -> list[Section]:
        """Return its sections, which follow the answer, if any."""
        raise NotImplementedError


class Report(Shown):
    """Base of results with an answer in words; a page adds sections for measurements and comparisons in its fields."""

    paragraphs: Sequence[str]  # conclusions, the answer first

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(self.paragraphs)})"

    def __str__(self) -> str:
        return "\n".join(self.paragraphs)

    @property
    def tables(self) -> list[Table]:
        """Tables of its sections, for a terminal and a summary below the paragraphs."""
        return [block for section in self.sections() for block in section.blocks if isinstance(block, Table)]


def by_construction(measurement: Measurement) -> str:
    """Say why the judge's construction settles the number, so that it is no finding; empty if it does not."""
    reason = measurement.provenance.get(BY_CONSTRUCTION, {}).get(measurement.bias.name)
    return f"True by construction, not found: {reason}." if reason else ""


def measurement_section(measurement: Measurement, title: str) -> Section:
    """Return question, plot and numbers of a bias; its finding is the plot's title, if there is a headline."""
    drawing, settled = measurement.bias.plot(measurement), by_construction(measurement) or None
    blocks = [measurement.bias.question, settled, drawing, replace(measurement.table(), title="")]
    if not (names := measurement.headlines):
        return Section(title, blocks)
    return Section(title, blocks, measurement[names[0]].sentence() if drawing is None else f"{drawing.title}.")


def comparison_section(comparison: Comparison, title: str = "") -> Section:
    """Return plots and numbers of a bias in two judges."""
    title = title or f"{comparison.bias.title.capitalize()}, before and after"
    return Section(title, [*change_plots(comparison), comparison.table()])


def change_plots(comparison: Comparison) -> Iterator[Plot]:
    """Yield plots of the headline estimates, before above after, one per axis; none if both are the same judge."""
    ends = [[(e.value, e.low, e.high) for e in (c.before, c.after)] for c in comparison.changes.values()]
    if all(np.array_equal(before, after, equal_nan=True) for before, after in ends):
        return
    names = comparison.headlines or [*comparison.changes]
    defined = [c for c in map(comparison.__getitem__, names) if not np.isnan([c.before.value, c.after.value]).any()]
    for null, has_sign in dict.fromkeys((change.after.null, change.after.signed) for change in defined):
        alike = [c for c in defined if (c.after.null, c.after.signed) == (null, has_sign)]
        first = alike[0]
        title = f"{first.after.words}: {first.before.text()} before, {first.after.text()} after"
        if not np.isnan(first.p_value):  # p itself is in the table
            title += " (no significant change)" if first.p_value >= 0.05 else " (significant)"
        words = "" if null is None else f"{null:g} = no bias"
        caption = "Above: before. Below, in colour: after. Bars: 95 % intervals."
        caption += f" {words}: closer is better." if words else ""
        rows = {change.after.words: [change.before, change.after] for change in alike}
        yield Plot(title, caption, (Intervals(rows, null, words),))
