"""Recorded judges of the same items as a jury: its worth, which members to keep, and what biases they share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from evalbias.data.reading import table_of
from evalbias.evaluation.answers import answers_of, resolve, tell_left_out
from evalbias.evaluation.bias import MARGINS, Intervals, Plot, Report, Section
from evalbias.evaluation.biases import BIASES, SelfPreference, title_of
from evalbias.evaluation.estimates import Estimate, decide, significant
from evalbias.evaluation.judged import Judged, rated_again, ratings_left_out, written_by
from evalbias.evaluation.words import Table, count, ends, joined, short, signed, with_interval
from evalbias.measures import juries
from evalbias.measures.arrays import FloatArray, defined, standardized
from evalbias.measures.equal_quality import MIN_CLUSTERS, SCORE_SD
from evalbias.measures.juries import Panel
from evalbias.measures.resample import SHARE, Interval
from evalbias.options import AuditOptions, JuryOptions
from evalbias.programs.judges import read_for
from evalbias.values import keywords, to_json

MEAN = "mean of all"  # name of the jury with equal weights
EFFECTS = ("likelihood_effect", "length_effect", "first_rate")  # numbers of biases that members may share
FEWEST = 30  # fewest items for describing or learning a jury
AVERAGED = {"biased": "averaging does not remove it", "no sign": "averaging cancels it, or leaves too little to matter"}
FOR_JUDGE = "{judge}"  # placeholder of a judge's name in the field of its choices in the other order


def panel_of(options: JuryOptions) -> list[Judged]:
    """Read the recorded answers of each judge; ValueError if fewer than two are named, or the items lack a field."""
    if len(set(options.judges)) < 2 or len(set(options.judges)) < len(options.judges):
        raise ValueError(f"`judges` {', '.join(options.judges) or 'none'}: name two or more fields, each once.")
    pattern = options.swapped_field
    fields_of = {name: None if pattern is None else pattern.replace(FOR_JUDGE, name) for name in options.judges}
    pairwise = not {"outputs", "candidates", "output_1"}.isdisjoint(table_of(options.data, options.mapping).columns)
    choices = dict.fromkeys([*fields_of, *filter(None, fields_of.values())], ()) if pairwise else {}
    items = read_for(None, options, choices=choices, numbers=() if pairwise else options.judges)
    if not items:
        raise ValueError(f"{items.path} holds no items: give at least one row with an output.")
    tell_left_out(items)
    settings = AuditOptions.of(options, data=items, mapping=None, swapped_field=None)
    first, judged = None, list[Judged]()
    for name, other in fields_of.items():
        scores, winner, swapped = (None, name, other) if pairwise else (name, None, None)
        if first is None:
            first = resolve(replace(settings, scores_field=scores, winner_field=winner, swapped_field=swapped))
            judged.append(replace(answers_of(first).counted_in(options.length), judge=name))
        else:  # the covariates of the items are the first judge's
            ready = replace(first, scores_field=scores, winner_field=winner, swapped_field=swapped, likelihood_lm=None)
            answers = answers_of(replace(ready, lm=None))
            judged.append(replace(judged[0], answers=answers.answers, ties=answers.ties, judge=name))
    return judged


def mean_of(judged: Sequence[Judged]) -> Judged:
    """Return the answers of a jury with equal weights: mean standardized scores, or win probabilities of pairs."""
    if judged[0].pairwise:
        wins = np.mean([member.first_wins for member in judged], axis=0)
        return replace(judged[0], answers=np.stack([wins, 1 - wins], axis=2), ties=False, judge=MEAN)
    table = np.column_stack([member.answers for member in judged])
    kept, scores = defined(table), np.full(len(table), np.nan)
    scores[kept] = np.mean([standardized(column) for column in table[kept].T], axis=0)
    return replace(judged[0], answers=scores, scale=None, judge=MEAN)


@dataclass(frozen=True)
class Shared:
    """A bias of every member and of their jury."""

    bias: str
    members: Mapping[str, Estimate]  # judge -> its estimate minus the value of an unbiased judge
    mean: Estimate  # of the jury
    jury: str = MEAN

    @property
    def biased(self) -> dict[str, Estimate]:
        """Members with a significant bias, after Holm's correction over the members."""
        return significant(self.members)

    def sentence(self) -> str:
        """Say whether the jury keeps the bias of its members; empty if no member's bias is shown."""
        if not self.biased:
            return ""
        unit = "of the wins" if self.mean.unit == SHARE else self.mean.unit
        mean, of_each = self.mean, joined([f"{judge} {signed(e.value)}" for judge, e in self.biased.items()])
        sentence = f"{title_of(self.bias).capitalize()}: {of_each} {unit}, the {self.jury} {with_interval(mean)}"
        status = decide(mean, MARGINS.get(mean.unit, 0.1), 0.0 if mean.low > 0 or mean.high < 0 else 1.0)
        return f"{sentence}: {AVERAGED.get(status, 'too few items to say whether averaging cancels it')}."


@dataclass(frozen=True)
class SharedErrors:
    """What the members' errors at equal quality have in common."""

    correlation: Interval  # mean correlation of two members' errors
    seeming: float  # the same computed against the mean rating, whose noise all members share
    correlations: FloatArray  # (K, K)
    noise: float  # share of the mean rating's variance that is noise


@dataclass(frozen=True, repr=False)
class JuryReport(Report):
    """Joint worth of several judges of the same items; correlations are with quality, without the raters' noise.

    Attributes:
        criterion: Name of the judged criterion.
        judges: Names of the members.
        costs: Cost of an answer of each judge.
        validities: Judge, or ``MEAN``, -> correlation with quality.
        gain: Correlation of the mean of all minus that of the member that is best on these items, who may owe it to
            chance: of members that are nearly equal, the gain over the one that is best in truth is up to .02 higher.
        votes: Number of judges with independent errors that would do as well; see ``measures.juries.Panel.votes``.
        errors: Correlations of the members' errors at equal quality, and the raters' noise.
        worth: Judge -> correlation of the mean of all minus that of the mean of the others.
        shared: Biases of the members and of their mean.
        writers: Judge -> writer -> excess that its outputs get from this judge over other outputs, at equal quality.
        own: Judge that wrote outputs -> excess that it gives them over the other judges, at equal quality, in standard
            deviations of a score.
        notes: Sentences about ratings that were left out, or that exist because of other ratings.
    """

    criterion: str
    judges: tuple[str, ...]
    costs: tuple[float, ...]
    validities: Mapping[str, Interval]
    gain: Interval
    votes: Interval
    errors: SharedErrors
    worth: Mapping[str, Interval]
    shared: tuple[Shared, ...]
    writers: Mapping[str, Mapping[str, Estimate]]
    own: Mapping[str, Estimate]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """Name of the member whose scores correlate best with quality."""
        return max(self.judges, key=lambda judge: self.validities[judge].value)

    @property
    def paragraphs(self) -> tuple[str, ...]:  # type: ignore[override]  # made of the numbers, not kept
        v, rho, k, mean = self.votes, self.errors.correlation, len(self.judges), self.validities[MEAN]
        several = f"{k} judges" if k > 2 else "two judges"
        high = f"to {v.high:.1f}" if math.isfinite(v.high) else "or more"
        worth = f"These {several} are worth {v.value:.1f} independent votes (95 % interval {v.low:.1f} {high})"
        if math.isnan(v.value):
            worth = f"How many independent votes these {several} are worth cannot be told: {v.reason}"
        if math.isnan(rho.value):
            paragraphs = [f"{worth}. How their errors correlate is unknown, because one of them shows none."]
        else:
            alike = f"at equal quality their errors correlate at {with_interval(rho)} on average"
            naive = f"; against people's ratings as they are, they seem to correlate at {signed(self.errors.seeming)}"
            paragraphs = [f"{worth}: {alike}{naive if self.errors.noise > 0 else ''}."]
        verdict = "worse" if self.gain.high < 0 else "not shown to be better or worse"
        verdict = "better" if self.gain.low > 0 else verdict
        paragraphs.append(
            f"Their mean correlates with quality at {with_interval(mean)}, the best judge alone, {self.best}, at "
            f"{with_interval(self.validities[self.best])}. The mean is {verdict}: {with_interval(self.gain)}."
        )
        if not any(self.validities[judge].low > 0 for judge in self.judges):
            paragraphs.append("No judge is shown to follow quality at all.")
        less = {judge: e for judge, e in self.worth.items() if e.high < 0}
        if less:
            without = joined([f"{judge} ({signed(-e.value)})" for judge, e in less.items()])
            paragraphs.append(f"The mean is better without {without}.")
        biases = (shared.sentence() for shared in self.shared)
        return (*paragraphs, *filter(None, (self._own_sentence(), *biases, *self.notes)))

    def _own_sentence(self) -> str:
        """Name judges that score their own outputs higher than the other judges do; empty if unknown."""
        bonuses = {judge: e for judge, e in self.own.items() if not math.isnan(e.value)}
        more = [f"{judge} ({signed(e.value)})" for judge, e in significant(bonuses).items() if e.value > 0]
        if not more:
            nobody = f"No judge of the {len(bonuses)} that wrote outputs is shown to give its own more than others do."
            return nobody if bonuses else ""
        favors = f"What they wrote themselves gets more at equal quality from {joined(more)} than from the other judges"
        adjusted = f"adjusted for {len(bonuses)} judges that wrote outputs"
        return f"{favors}, in standard deviations of a score ({adjusted})."

    def sections(self) -> list[Section]:
        rows = []
        for place, judge in enumerate((*self.judges, MEAN)):
            e, worth = self.validities[judge], self.worth.get(judge)
            cost = self.costs[place] if judge != MEAN else sum(self.costs)
            effects = [_brief(s.mean if judge == MEAN else s.members[judge]) for s in self.shared]
            rows.append((judge, f"{cost:g}", _brief(e), "" if worth is None else _brief(worth), *effects))
        names = ["judge", "cost", "with quality", "adds to the others", *(title_of(s.bias) for s in self.shared)]
        items = f"{self.votes.n} items, {self.votes.undefined} undefined"
        note = f"correlations with quality, without the raters' noise; in brackets: 95 % intervals; {items}"
        errors = [(judge, *map(signed, row)) for judge, row in zip(self.judges, self.errors.correlations, strict=True)]
        rows_of = {judge: [Estimate.of(e, judge)] for judge, e in self.validities.items()}
        caption = "Correlation of the scores with quality, without the raters' noise, with 95 % intervals."
        plot = Plot("How well each judge follows quality, and their mean", caption, [Intervals(rows_of)])
        members = Table(names, rows, f"What each judge is worth, on {self.criterion}", note)
        alike = Table(("", *self.judges), errors, "Correlations of errors at equal quality")
        answer, *others = self.paragraphs
        return [
            Section("Is a jury worth it?", [*others, members, plot], answer),
            Section("What the errors share", [alike]),
            *self._writers(),
        ]

    def _writers(self) -> Iterator[Section]:
        """Yield a table of each writer's (column) excess from each judge (row), if there are two writers or more."""
        if not self.writers:
            return
        rows = []
        for judge, excess in self.writers.items():
            cells = [signed(e.value) + ("*" if e.low > 0 or e.high < 0 else "") for e in excess.values()]
            own = [f"[{cell}]" if writer == judge else cell for writer, cell in zip(excess, cells, strict=True)]
            rows.append((judge, *map(short, own)))
        excess = next(iter(self.writers.values()))
        caption = (
            f"in {next(iter(excess.values())).unit}: what outputs of a writer get more than those of the others, at "
            "equal quality; in brackets: the judge's own; *: the 95 % interval leaves out 0 (by chance in 5 of 100)"
        )
        table = Table(("judge", *excess), rows, "What each writer gets from each judge", caption)
        yield Section(table.title, [table])

    def to_dict(self) -> dict[str, Any]:
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "errors"} | vars(self.errors)
        shared = {s.bias: {**s.members, MEAN: s.mean} for s in self.shared}
        content |= {"error_correlation": content.pop("correlation"), "shared": shared, "paragraphs": self.paragraphs}
        return dict(to_json(content))


def _brief(e: Interval) -> str:
    return f"{signed(e.value)} ({ends(signed(e.low), signed(e.high))})"


@keywords(JuryOptions)
def jury(options: JuryOptions) -> JuryReport:
    """Estimate what several recorded judges of the same items are worth together, and which to keep.

    Args:
        options: The options, each as a keyword; see ``evalbias.options.JuryOptions``.

    Raises:
        ValueError: Fewer than two judges, or items that do not reveal quality: with fewer than two ratings and no
            ``reliability``, or too few.
    """
    return jury_worth(panel_of(options), costs=options.costs, reliability=options.reliability)


def prices_of(names: Sequence[str], costs: Mapping[str, float] | None) -> tuple[float, ...]:
    """Return the cost of an answer of each judge, 1 if not given; ValueError for another judge, or for no number."""
    for name, cost in (costs or {}).items():
        if name not in names:
            raise ValueError(f"`costs` names {name!r:.80}, which is none of the judges {', '.join(names)}.")
        if not (isinstance(cost, int | float) and 0 <= cost < math.inf):
            raise ValueError(f"`costs` says {cost!r:.80} of {name}: give finite numbers of 0 or more, such as 30.")
    return tuple(float((costs or {}).get(name, 1.0)) for name in names)


def jury_worth(
    judged: Sequence[Judged],
    *,
    costs: Mapping[str, float] | None = None,
    reliability: float | None = None,
) -> JuryReport:
    """Estimate the joint worth of judges of the same items; the name of each is its ``judge``."""
    names, k = tuple(member.judge for member in judged), len(judged)
    prices = prices_of(names, costs)
    panel = panel_of_answers(judged, reliability=reliability)
    # 1 each judge, the mean, and each judge's contribution to it
    alone, everyone = np.eye(k), np.ones(k)
    weights = zip((*names, MEAN), (*alone, everyone), strict=True)
    validities = {name: panel.estimate(partial(juries.validity, weights=own)) for name, own in weights}
    best = alone[int(np.argmax(panel.validities))]

    def gain_over(weights: FloatArray) -> Interval:
        both = np.stack([weights, everyone])
        return panel.estimate(lambda *moments: np.diff(juries.validity(*moments, weights=both), axis=1)[:, 0], most=2.0)

    # 2 correlation of their errors
    noisy, whole = panel.validities * math.sqrt(max(1 - panel.noise, 0.0)), panel.correlations[None]
    seeming = float(juries.error_correlation(whole, noisy[None])[0])
    each = np.clip(juries.error_correlations(whole, panel.validities[None])[0], -1, 1)
    return JuryReport(
        criterion=judged[0].criterion,
        judges=names,
        costs=prices,
        validities=validities,
        gain=gain_over(best),
        votes=panel.votes(),
        errors=SharedErrors(panel.estimate(juries.error_correlation), seeming, each, panel.noise),
        worth={name: gain_over(others) for name, others in zip(names, 1 - alone, strict=True)},
        shared=tuple(shared_biases(judged, mean_of(judged), reliability)),
        writers=by_writer(judged, reliability),
        own=own_bonus(judged, reliability),
        notes=tuple(filter(None, (*ratings_left_out(judged[0]), rated_again(judged[0])))),
    )


def panel_of_answers(judged: Sequence[Judged], *, reliability: float | None) -> Panel:
    """Reduce the answers of several judges to their correlations with each other and with quality."""
    first = judged[0]
    if not first.rated:
        raise ValueError(f"Nobody rated the items on {first.criterion}: give people's ratings of them, or choices.")
    if len({member.answers.shape[:2] for member in judged}) > 1:
        raise ValueError("The judges answered different items, or pairs in one order and in both: give the same.")
    panel = Panel(
        np.column_stack([member.strength for member in judged]),
        first.ratings,
        names=[member.judge for member in judged],
        clusters=first.clusters,
        systems=first.systems,
        reliability=reliability,
        mirrored=first.both_orders,
    )
    if panel.n < FEWEST or panel.units < MIN_CLUSTERS:
        scored = f"{panel.n} items of {count(panel.units, 'input')} are scored by all judges and rated"
        raise ValueError(f"{scored}: give {FEWEST} or more, of {MIN_CLUSTERS} inputs or more.")
    return panel


def shared_biases(judged: Sequence[Judged], jury: Judged, reliability: float | None) -> list[Shared]:
    """Measure the biases of each member, and of their jury."""
    shared = list[Shared]()
    for bias in (b.configured(reliability=reliability) for b in BIASES.values()):
        each = {}
        for member in (*judged, jury):
            numbers = [n for n in bias.numbers(member) if n.name in EFFECTS] if bias.suits(member) else []
            if numbers and (member.both_orders or numbers[0].name != "first_rate"):
                each[member.judge] = numbers[0].estimate(member.clusters, seed=0).less_null()
        if each and not any(math.isnan(e.value) for e in each.values()):
            shared.append(Shared(bias.name, each, each.pop(jury.judge), jury.judge))
    return shared


# Excess of each writer from each judge, if the items name their writers.


def by_writer(judged: Sequence[Judged], reliability: float | None) -> dict[str, dict[str, Estimate]]:
    """Estimate each judge's excess for each writer over the others at equal quality; empty without two writers."""
    bias = SelfPreference(reliability)
    estimates = {}
    for member in judged:
        if len(member.writer_names) <= len(member.ids) / 2 and (numbers := bias.numbers(member)):
            unit = "log-odds" if member.pairwise else "points"
            unit = "verdicts from -1 (loses) to 1 (wins)" if member.verdicts else unit
            estimates[member.judge] = {n.label: _unscaled(n.estimate(member.clusters, seed=0), unit) for n in numbers}
    return estimates


def own_bonus(judged: Sequence[Judged], reliability: float | None) -> dict[str, Estimate]:
    """Estimate by how much each judge that is also a writer overrates its own outputs relative to the other judges.

    This is the effect of "written by itself" at equal quality on its standardized scores minus the mean of the others'.
    So a style that all judges like does not count as self-preference.
    """
    first, bias = judged[0], SelfPreference(reliability)
    writers = [k for k, member in enumerate(judged) if member.judge in first.writer_names and bias.numbers(first)]
    table = np.column_stack([member.strength for member in judged])
    z = table / table[defined(table)].std(axis=0)  # a constant, or the order of a pair, absorbs the means
    bonuses = {}
    for k in writers:
        number = bias.effect(first, written_by(first, [judged[k].judge]), name=judged[k].judge, label=judged[k].judge)
        beyond = replace(number, values=z[:, k] - np.delete(z, k, axis=1).mean(axis=1))
        bonuses[judged[k].judge] = _unscaled(beyond.estimate(first.clusters, seed=0), SCORE_SD)
    return bonuses


def _unscaled(e: Estimate, unit: str) -> Estimate:
    """Return an effect in the unit of its input numbers."""
    return replace(e.scaled(e.points), points=math.nan, unit=unit)
