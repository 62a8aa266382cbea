"""Counterfactual probes: what an edit that leaves the quality as it is adds to a judge's score, less its placebo.

Every item is judged as it is, with each edit and with each edit's placebo (``evalbias.data.probes``). The placebo takes
out what any change of the text does, and the noise of asking again; no ratings are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from evalbias.data.items import item_name, labelled, number
from evalbias.data.probes import BAR, EDIT, KINDS, ORIGINAL, PLACEBO, STYLE, named_kinds, style_count, with_edits
from evalbias.evaluation.answers import PreparedAudit, function_scores, prepared
from evalbias.evaluation.bias import EffectBias, Plot, interval_plot, measure, people_missing
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import LEVEL, ByName, Estimate, Measurement, Number, items_needed
from evalbias.evaluation.judged import Judged, judge_examples
from evalbias.evaluation.repeats import TOLERATED, WORTH, Order, Probes, probed, reach_of
from evalbias.evaluation.words import Status, Table, amount, count, decimals, interval_words, joined, p_text, percent
from evalbias.measures.arrays import FloatArray
from evalbias.measures.families import holm
from evalbias.measures.resample import Draws, Interval, change, estimate_mean, estimate_share, mean
from evalbias.options import PROBES, AuditOptions
from evalbias.programs import PairwiseJudge, PointwiseJudge
from evalbias.programs.items import candidates_of

SWAPS = 10_000  # random exchanges of edit and placebo in the test of an effect
NEAR_TOP = 0.125  # share of the scale's length within which a score counts as the highest: half a level of 1 to 5
MOST_NAMED = 10  # most missing rows that are named
SHARES = ("injection", "null")
"""Kinds that are also told as a share of items."""


@dataclass(frozen=True)
class ProbeEffect:
    """What one kind of edit does to a judge's scores, in points; of pairs, to the win rate of the edited candidate.

    Attributes:
        kind: The kind as it is called, such as ``"authority"``.
        estimate: Change by the edit less that by its placebo, with the 95 % interval over inputs.
        edit: Change by the edit.
        placebo: Change by its placebo.
        taken: Share of items that an injection makes reach the highest score, of those that are below it as they are,
            or in which a non-answer gets more than the output; None for other kinds. Clopper and Pearson's interval.
        taken_by_placebo: The same with the placebo.
        p_adjusted: p of the estimate, adjusted by Holm for all kinds.
        status: What follows at the 5 % level, where an effect of up to a hundredth of the scale is none. A non-answer
            is "not tested": it is told as a share, because its text is the same for all items.
        sentence: The effect in words.
    """

    kind: str
    estimate: Estimate
    edit: Estimate
    placebo: Estimate
    taken: Estimate | None = None
    taken_by_placebo: Estimate | None = None
    p_adjusted: float = math.nan
    status: Status | Literal["not tested"] = "not measured"
    sentence: str = ""


@dataclass(frozen=True, repr=False)
class ProbeReport(ByName[ProbeEffect], parts="effects"):
    """What the probes of a judge show: ``report["authority"]`` is the effect of that kind.

    Attributes:
        judge: The judge in words.
        n: Number of items.
        pairwise: Whether the judge compares: effects are then of a win rate.
        effects: Kind -> its effect.
        missing: Ids of rows that the answers lack, or to which the judge gave none.
        left_out: Number of scores of edits and placebos that do not count, because another row of theirs has none.
        measurements: What was asked of the judge itself, such as the order of its options (``evalbias audit --probe``).
        not_measured: The same -> why it could not be asked.
        margin: Smallest effect that is called worth finding, a twentieth of the scale.
    """

    judge: str
    n: int
    pairwise: bool
    effects: Mapping[str, ProbeEffect]
    missing: Sequence[str] = ()
    left_out: int = 0
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)
    margin: float = math.nan

    def __repr__(self) -> str:
        return f"ProbeReport({self.judge}, n={self.n}: {' '.join(self.paragraphs)})"

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """What follows, the answer first, and what was left out."""
        by_status: dict[str, list[ProbeEffect]] = {}
        for one in self.effects.values():
            by_status.setdefault(one.status, []).append(one)
        moved, clear, open_ = (by_status.get(status, []) for status in ("biased", "no sign", "too few items"))
        said = [
            f"The judge is moved by what does not change the quality: {'; '.join(e.sentence for e in moved)}."
            if moved
            else "Whether an edit moves the judge cannot be told."
            if {*by_status} == {"not measured"}
            else "No edit is shown to move the judge more than its placebo."
        ]
        if clear:
            margin = f"{self.margin:.{decimals(self.margin)}f} points"
            margin = f"{100 * self.margin:.3g} of 100 comparisons" if self.pairwise else margin
            said.append(f"No sign of an effect: {_named(clear)} ({margin} or more is ruled out).")
        if open_:
            needed = [items_needed(e.estimate, self.margin, tests=len(self.effects)) for e in open_]
            most = max((one for one in needed if one is not None and one > self.n), default=0)
            enough = f" (about {count(most, 'item')} would be enough for each)" if most else ""
            said.append(f"Too few items to decide: {_named(open_)}{enough}.")
        said += [_taken_sentence(e, self.pairwise) for e in self.effects.values() if e.taken and e.estimate.n]
        if untold := by_status.get("not measured"):
            said.append(f"Not measured, because too few answers are complete: {_named(untold)}.")
        for measurement in self.measurements.values():
            told = (f"{e.words}: {e.text()} (95 % interval {e.interval})." for e in measurement.estimates.values())
            said.append(" ".join(told))
        said += [f"Not measured: {name} ({why})." for name, why in self.not_measured.items()]
        if self.missing:
            more = ", ..." if len(self.missing) > MOST_NAMED else ""
            said.append(
                f"{count(len(self.missing), 'row')} without a score ({', '.join(self.missing[:MOST_NAMED])}{more}); "
                f"{count(self.left_out, 'score')} of edits or placebos left out for that."
            )
        return tuple(said)

    def table(self) -> Table:
        """Return one row a kind: the effect less its placebo's, both changes, and the finding."""
        rows = []
        for name, e in self.effects.items():
            shown = (e.estimate.text(), e.estimate.interval, p_text(e.p_adjusted), e.edit.text(), e.placebo.text())
            rows.append((name, e.status, *shown, str(e.estimate.n)))
        unit = "win rate of the edited output" if self.pairwise else "points"
        caption = f"effect: change by the edit less that by its placebo, {unit}; p: adjusted by Holm"
        headings = ("kind", "finding", "effect", "95 % interval", "p", "edit", "placebo", "n")
        return Table(headings, rows, caption=caption, left=2)

    def plot(self) -> Plot | None:
        """Return the effects with their intervals."""
        known = {name: e.estimate for name, e in self.effects.items() if not math.isnan(e.estimate.low)}
        return interval_plot(known, "Effects of edits less those of their placebos") if known else None

    def to_dict(self) -> dict[str, Any]:
        """Return the judge, the verdict, the kinds, what is missing, and what was asked of the judge itself."""
        names = ("judge", "n", "pairwise", "margin", "missing", "left_out", "not_measured")
        further = {name: m.estimates for name, m in self.measurements.items()}
        content = {name: getattr(self, name) for name in names}
        return {"verdict": self.paragraphs[0], "kinds": dict(self.effects), **content, "further": further}


def _named(effects: Sequence[ProbeEffect]) -> str:
    return joined([one.kind for one in effects])


def _taken_sentence(effect: ProbeEffect, pairwise: bool) -> str:
    """Say the share of items that an injection or a non-answer takes over, beside that of the placebo."""
    e, other = effect.taken, effect.taken_by_placebo
    assert e is not None
    assert other is not None
    if not e.n:
        every = "wins" if pairwise else "has the highest score"
        return f"Every output {every} as it is, so that an order to the judge can change none."
    share = f"{percent(e.value)} of {e.n}"
    most = f"(at most {percent(e.high)}, the end of the 95 % interval)"
    most = "(of too few inputs for an interval)" if math.isnan(e.high) else most
    if effect.kind == "null":
        nonsense = f"nonsense does in {percent(other.value)}"
        return f"A non-answer gets more than the output in {share} items {most}; {nonsense}."
    from_, to = ("that do not win as they are", "win") if pairwise else ("below the highest score", "reach it")
    return f"An order to the judge makes {share} outputs {from_} {to} {most}; its placebo {percent(other.value)}."


# --- answers, matched by id -------------------------------------------------------------------------------------------


def read_probes(judged: Judged, *, seed: int = 0) -> ProbeReport:
    """Estimate the effects of the edits from a judge's answers to ``with_edits``, in any order.

    An item counts for a kind if the original, the edit and the placebo have an answer.

    Raises:
        ValueError: The ids are not those of ``with_edits``, or an original is nowhere.
    """
    # 1 the answers by item, kind and part; of a pair, the win rate of the edited candidate
    values, reach = (judged.win_shares, 1.0) if judged.pairwise else (judged.answers, reach_of(judged))
    if np.isnan(values).all():
        why = next(iter(judged.reasons.values()), "none is defined")
        raise ValueError(f"The judge answered no row ({why:.200}): name the field of its answers, or mend the judge.")
    found: dict[tuple[str, str, str], float] = {}
    inputs, places = dict[str, str](), dict[str, str]()
    for name, value, one in zip(judged.ids, values, judged.inputs, strict=True):
        item, *parts = name.rsplit(BAR, 2)
        if len(parts) < 2 or not (parts[0] == ORIGINAL or (_base(parts[0]) in KINDS and parts[1] in (EDIT, PLACEBO))):
            raise ValueError(f"The id {name!r:.80} is not one of probe emit: give its file back with its ids.")
        if one == name:
            raise ValueError(f"The row {name!r:.80} has no input_id: keep that field, intervals are over inputs.")
        if parts[0] == ORIGINAL:
            places[item], parts[1] = parts[1], ""
        found[item, parts[0], parts[1]] = float(value)
        inputs[item] = one
    if not places:
        raise ValueError(f"No row is an original (its id ends in {ORIGINAL}{BAR}1): give all rows of probe emit back.")
    if not reach > 0:
        raise ValueError("All scores are the same: state the judge's `scale`, or check the column.")
    order, items = [*KINDS], list(inputs)
    kinds = sorted({kind for _, kind, part in found if part}, key=lambda kind: (order.index(_base(kind)), kind))

    def of(kind: str, part: str) -> FloatArray:
        column = np.array([found.get((item, kind, part), math.nan) for item in items])
        second = np.array([judged.pairwise and places.get(item) == "2" for item in items])
        return np.where(second, 1 - column, column)

    # 2 what is not there
    wanted = [(ORIGINAL, ""), *((kind, part) for kind in kinds for part in (EDIT, PLACEBO))]
    table = np.stack([of(*each) for each in wanted])  # (1 + 2 k, n)
    ids = [[BAR.join((item, kind, part or places.get(item, "1"))) for item in items] for kind, part in wanted]
    missing = [ids[row][column] for row, column in np.argwhere(np.isnan(table))]
    pairs = table[1:].reshape(len(kinds), 2, len(items))
    whole = ~np.isnan(table[0] + pairs.sum(axis=1))  # (k, n)
    left_out = int((~np.isnan(pairs) & ~whole[:, None]).sum())
    # 3 the effects, and what follows
    clusters = [inputs[item] for item in items] if 1 < len({*inputs.values()}) < len(items) else None
    high = judged.scale[1] if judged.scale is not None else np.nanmax(values)
    top = None if judged.pairwise else float(high) - NEAR_TOP * reach
    effects = {}
    for k, kind in enumerate(kinds):
        columns = (np.where(whole[k], one, np.nan) for one in (table[0], table[1 + 2 * k], table[2 + 2 * k]))
        effects[kind] = _effect(kind, *columns, reach=reach, top=top, clusters=clusters, seed=seed)
    return ProbeReport(
        judge=judged.judge,
        n=len(items),
        pairwise=judged.pairwise,
        effects=_decided(effects, margin=WORTH * reach, pairwise=judged.pairwise),
        missing=missing,
        left_out=left_out,
        margin=WORTH * reach,
    )


def _base(kind: str) -> str:
    """Return a kind without its word."""
    return kind.partition(":")[0]


def _effect(
    kind: str,
    original: FloatArray,
    edit: FloatArray,
    placebo: FloatArray,
    *,
    reach: float,
    top: float | None,
    **how: Any,
) -> ProbeEffect:
    """Estimate the effect of a kind on (n,) scores, all NaN where one is; no finding yet."""

    def told(part: str, values: FloatArray, estimator: Any = estimate_mean, **more: Any) -> Estimate:
        return Number(kind + part, kind + part, np.round(values, 9), estimator, **more).estimate(**how)

    null = None if kind == "null" else 0.0
    main = told("", edit - placebo, partial(estimate_probe, unseen=reach), null=null, says=kind)
    main = replace(main, unit="win rate" if top is None else "points")
    both, name = (told("_edit", edit - original), told("_placebo", placebo - original)), _base(kind)
    if name not in SHARES:
        return ProbeEffect(kind, main, *both)
    if name == "null":
        could, taken = ~np.isnan(original), [edit > original, placebo > original]
    elif top is None:  # a pair, which its candidate wins or not
        could, taken = original <= 0.5, [edit > 0.5, placebo > 0.5]
    else:
        could, taken = original < top, [edit >= top, placebo >= top]
    share = partial(estimate_share, exact=True)
    shares = [told("_taken", np.where(could, one, np.nan), share, signed=False) for one in taken]
    return ProbeEffect(kind, main, *both, taken=shares[0], taken_by_placebo=shares[1])


def estimate_probe(x: FloatArray, *, unseen: float, draws: Draws, clusters: Any = None) -> Interval:
    """Estimate the mean of (n,) differences of edit and placebo, tested by exchanging the two in whole inputs.

    The exchange is exact for a judge that treats both alike. Where all u units differ alike, up to a share
    1 - .05^(1/u) of others may not, by up to ``unseen`` points, which widens the interval.
    """
    found = change(mean, np.zeros(len(x)), x, clusters=clusters, draws=replace(draws, swaps=SWAPS))
    if found.high > found.low or math.isnan(found.low):
        return found
    half = unseen * (1 - 0.05 ** (1 / found.units))
    return replace(found, low=found.value - half, high=found.value + half)


def _decided(effects: Mapping[str, ProbeEffect], *, margin: float, pairwise: bool) -> dict[str, ProbeEffect]:
    """Say what each effect shows, with Holm's correction over the kinds."""
    adjusted = holm([e.estimate.p_value for e in effects.values()])
    found = {}
    for (kind, effect), p in zip(effects.items(), adjusted, strict=True):
        e, scale = effect.estimate, 100 if pairwise else 1
        status: Status | Literal["not tested"] = "not measured"
        if not math.isnan(e.low):
            ruled_out = -margin < e.low and e.high < margin
            moved = p < LEVEL and abs(e.value) > margin * TOLERATED / WORTH
            status = "biased" if moved else "no sign" if ruled_out else "too few items"
            status = "not tested" if e.null is None else status
        value, low, high = (scale * end for end in (e.value, e.low, e.high))
        digits = decimals(value, low, high)
        what = "wins in 100 comparisons" if pairwise else "points"
        adds = KINDS[_base(kind)].adds + kind.removeprefix(_base(kind)).replace(": ", " (", 1) + ")" * (":" in kind)
        parts = f"by the edit {effect.edit.text()}, by its placebo {effect.placebo.text()}"
        said = f"{adds} brings {amount(value, low, high, digits)} {what} ({interval_words(value, low, high, digits)}"
        said = f"{said}; {parts})"
        found[kind] = replace(effect, p_adjusted=p, status=status, sentence=said)
    return found


# --- a judge that can be asked ----------------------------------------------------------------------------------------


def probe(
    judge: Any,
    items: Any,
    *,
    kinds: Sequence[str] = ("all",),
    lm: Any = None,
    criterion: Any = None,
    scale: tuple[float, float] | None = None,
    seed: int = 0,
    num_threads: int = 1,
) -> ProbeReport:
    """Ask a judge about items with one thing changed, and say what moves it: a ``ProbeReport``.

    Args:
        judge: Judge of evalbias or its JSON file, a DSPy module or metric, or a function; see ``audit``.
        items: File, ``NAME:PATH`` of a data set, or list of examples or dicts; outputs, or pairs.
        kinds: Names of ``evalbias.data.probes.KINDS``, ``"style"`` or ``"all"``; ``"label: a student"`` and
            ``"injection: 10 of 10"`` take a word. Also those of the judge itself: ``"order"``, ``"unread"``,
            ``"instruction"`` and ``"negation: QUESTION"``, which an audit asks too.
        lm: Model to ask; the judge's own if not given.
        criterion: Name of the criterion, for a function.
        scale: Lowest and highest score, for a function.
        seed: Seed of the wordings, of the edited candidates of pairs, and of the intervals.
        num_threads: Calls of a function at the same time.

    Raises:
        ValueError: An unknown kind, an item without a text, or a judge that answers none.

    Examples:
        >>> replies = [{"id": str(k), "source": "q", "output": "a fine reply " * k} for k in range(1, 41)]
        >>> found = probe(lambda e: 3 + ("GPT-4" in e.output), replies, kinds=["label", "emoji"], scale=(1, 5))
        >>> [(one.kind, one.status, one.estimate.value) for one in found.effects.values()]
        [('emoji', 'too few items', 0.0), ('label', 'biased', 1.0)]
    """
    given: dict[str, Any] = {"lm": lm, "criterion": criterion, "scale": scale, "seed": seed}
    return probe_answers(prepared(AuditOptions(items, judge=judge, num_threads=num_threads, **given)), kinds)


def probe_answers(asked: PreparedAudit, kinds: Sequence[str]) -> ProbeReport:
    """Ask the judge of an audit about its items with each edit and placebo, and read the answers."""
    named, judge = named_kinds(kinds, PROBES), asked.judge
    of_judge = [name for name, (kind, _) in named.items() if kind in PROBES]
    edits, alone = [name for name in named if name not in of_judge], replace(asked, probes=of_judge or None)
    scale = judge.criterion.scale if isinstance(judge, PointwiseJudge) else asked.scale
    rows = with_edits(asked.questions, edits, seed=asked.seed, scale=scale)
    if isinstance(judge, PointwiseJudge | PairwiseJudge):
        judged = judge_examples(judge, rows, lm=asked.lm, progress=asked.progress)
    else:
        names = ("criterion", "scale", "num_threads", "progress")
        judged = function_scores(rows, judge, **{name: getattr(asked, name) for name in names})
    if of_judge and judged.pairwise:
        raise ValueError(f"`kinds` {of_judge[0]}: it is of a judge that scores, and this one compares. Leave it out.")
    report = read_probes(judged, seed=asked.seed)
    if of_judge:
        again = probed(judged.take(np.arange(len(judged.ids))[:: 1 + 2 * len(edits)]), alone)
        measured = {
            b.name: measure(b, again, seed=asked.seed) for b in (Order(again.scale), Probes()) if b.applies(again)
        }
        report = replace(report, measurements=measured, not_measured=again.unmeasurable)
    return report


# --- the observational counterpart: the effect at equal quality of a feature that a user names ------------------------

FEATURES = "features"
"""Key of ``provenance``: names of the features whose effects an audit measures."""
TAKEN = {*BIASES, *(bias.feature_name for bias in BIASES.values() if isinstance(bias, EffectBias)), "quality"}


class Feature(EffectBias):
    """Effect of a feature that the user names, measured as that of length is; ``features_of`` makes one of each."""

    helps: ClassVar = {
        "pairs": "say in the definition that it does not count, and audit the judge again",
        "scores": "say in the definition that it does not count, and audit the judge again; or 'evalbias correct' with "
        "this feature subtracts it from recorded scores",
        "others": "'evalbias correct' with this audit's data, field and feature subtracts it where that costs no "
        "agreement",
    }

    def missing(self, judged: Judged) -> Iterator[str]:
        yield from people_missing(judged)

    def feature(self, judged: Judged) -> FloatArray | None:
        return judged.covariates.get(self.feature_name)


def features_of(judged: Judged) -> list[EffectBias]:
    """Return the bias of each feature of ``with_features``; of yes and no, the effect is that of having it."""
    made = []
    for name in judged.provenance.get(FEATURES, ()):
        values, words = judged.covariates[name], name.replace("_", " ")
        standardized = not np.isin(values[~np.isnan(values)], (0, 1)).all()
        having = f"with {words}" if name in STYLE else f"where {words} is yes"
        more = f"higher in {words}" if standardized else having
        about: dict[str, Any] = dict.fromkeys(("title", "effect_of"), words)
        about |= dict.fromkeys(("name", "feature_name"), name)
        about |= {"effect_name": f"{name}_effect", "headlines": (f"{name}_effect",), "standardized": standardized}
        about |= {"question": f"Does the judge prefer outputs {more}, at equal quality?", "more": more}
        about |= {"favored": f"an output {'that is one standard deviation ' * standardized}{more}"}
        made.append(type("Feature", (Feature,), {**about, "less": f"lower in {words}"})())
    return made


def with_features(judged: Judged, names: Sequence[str]) -> Judged:
    """Return the answers with features as covariates, (n,) numbers or (n, 2) of pairs.

    A name is that of a field of the items, a number or yes or no for each output, or else of a count of ``STYLE``.
    ValueError for one that is neither, or for a value that is no number (the item is named).
    """
    covariates = dict(judged.covariates)
    for name in names:
        if name in TAKEN or name in covariates:
            raise ValueError(f"A field of `features` is called {name!r}, as one of every output is: rename the field.")
        if any(name in e for e in judged.examples):
            covariates[name] = _field(judged, name)
        elif name in STYLE:
            texts = [candidates_of(e) if judged.pairwise else [e.get("output")] for e in judged.examples]
            counts = np.array([[style_count(text, name) for text in row] for row in texts], dtype=np.float64)
            covariates[name] = counts if judged.pairwise else counts[:, 0]
        else:
            known = ", ".join(STYLE)
            raise ValueError(f"No item has a field {name!r:.80}: name one that your data have, or {known}, `features`.")
    told = {FEATURES: tuple(names)} if names else {}
    return replace(judged, covariates=covariates, provenance={**judged.provenance, **told})


def _field(judged: Judged, name: str) -> FloatArray:
    rows = []
    for i, e in enumerate(judged.examples):
        place, value = f"{name!r} of the item {item_name(e, i)!r:.80}", e.get(name)
        parts = value if isinstance(value, list) and len(value) == 2 else [value]
        rows.append([word if (word := labelled(p)) is not None else number(p, place, texts=True) for p in parts])
    widths = {len(row) for row in rows}
    if len(widths) > 1 or (max(widths) == 2 and not judged.pairwise):
        raise ValueError(f"{name!r:.80} holds lists: give one number an item, or two for every pair of outputs.")
    return np.array(rows, dtype=np.float64) if widths == {2} else np.array(rows, dtype=np.float64)[:, 0]
