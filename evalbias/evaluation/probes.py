"""Counterfactual probes: effect on a judge's score of edits that do not change the quality, minus their placebos.

Every item is judged unchanged, with each edit and with each edit's placebo (``evalbias.data.probes``). The placebo
removes the effect of any change of the text, and the noise of asking again; no ratings are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np

from evalbias.data import probes
from evalbias.data.items import item_name, labelled, number
from evalbias.data.probes import BAR, DIGEST, EDIT, KINDS, ORIGINAL, PLACEBO, STYLE, text_digest, with_edits
from evalbias.evaluation import words
from evalbias.evaluation.answers import ResolvedAudit, answers_of, resolve
from evalbias.evaluation.bias import EffectBias, Report, Section, interval_plot, people_missing
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import ByName, Estimate, Number, decide, items_needed
from evalbias.evaluation.judged import Judged, judge_examples, shared_inputs
from evalbias.evaluation.repeats import TOLERATED, WORTH, reach_of
from evalbias.evaluation.words import Status, Table, amount_words, count, decimals, joined, p_text, percent
from evalbias.measures import resample
from evalbias.measures.arrays import FloatArray, complete
from evalbias.measures.families import holm
from evalbias.measures.resample import ALIKE, Draws, Interval, estimate_mean, estimate_share
from evalbias.options import AuditOptions
from evalbias.programs import PointwiseJudge
from evalbias.programs.items import candidates_of
from evalbias.programs.jury import AnyJudge, Rubric
from evalbias.values import first_few

SWAPS = 10_000  # random exchanges of edit and placebo in the test of an effect
NEAR_TOP = 0.125  # share of the scale's length below the top that counts as the highest score: half a level of 1 to 5
MOST_NAMED = 10  # most missing rows to name


@dataclass(frozen=True)
class ProbeEffect:
    """Effect of a kind of edit on a judge's scores, in points; for pairs, on the edited candidate's win rate.

    Attributes:
        kind: Name of the kind, such as ``"authority"``.
        estimate: Change by the edit minus the change by its placebo, with the 95 % interval over inputs.
        edit: Change by the edit.
        placebo: Change by its placebo.
        taken: For an injection, share of items lifted to the highest score, among those below it unedited; for a
            non-answer, share in which it gets more than the output; else None. Clopper and Pearson's interval.
        taken_by_placebo: The same share for the placebo.
        p_adjusted: p-value of the estimate, adjusted by Holm for all kinds.
        status: Conclusion at the 5 % level, where an effect of up to a hundredth of the scale counts as none. A
            non-answer is "not tested": it is reported as a share, because its text is the same for all items.
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
class ProbeReport(Report, ByName[ProbeEffect], parts="effects"):
    """Effects of the probes on a judge: ``report["authority"]`` is the effect of that kind.

    Attributes:
        judge: The judge in words.
        n: Number of items.
        pairwise: Whether the judge compares: effects are then of a win rate.
        effects: Kind -> its effect.
        missing: Ids of rows that the answers lack, or that the judge did not answer.
        left_out: Number of unused scores of edits and placebos, because another row of the item lacks an answer.
        margin: Smallest effect worth finding, a twentieth of the scale.
    """

    judge: str
    n: int
    pairwise: bool
    effects: Mapping[str, ProbeEffect]
    missing: Sequence[str] = ()
    left_out: int = 0
    margin: float = math.nan

    def _having(self, status: str) -> list[ProbeEffect]:
        return [effect for effect in self.effects.values() if effect.status == status]

    @property
    def paragraphs(self) -> tuple[str, ...]:  # type: ignore[override]  # made of the numbers, not kept
        moved, clear, open_, untold = map(self._having, ("biased", "no sign", "too few items", "not measured"))
        sentences = ["No edit is shown to move the judge more than its placebo."]
        if moved:
            effects = "; ".join(e.sentence for e in moved)
            sentences = [f"The judge is moved by what does not change the quality: {effects}."]
        elif len(untold) == len(self.effects):
            sentences = ["Whether an edit moves the judge cannot be told."]
        if clear:
            margin = f"{self.margin:.{decimals(self.margin)}f} points"
            margin = f"{100 * self.margin:.3g} of 100 comparisons" if self.pairwise else margin
            sentences.append(f"No sign of an effect: {_named(clear)} ({margin} or more is ruled out).")
        if open_:
            needed = [items_needed(e.estimate, self.margin, tests=len(self.effects)) for e in open_]
            most = max((n for n in needed if n is not None and n > self.n), default=0)
            enough = f" (about {count(most, 'item')} would be enough for each)" if most else ""
            sentences.append(f"Too few items to decide: {_named(open_)}{enough}.")
        for e in self.effects.values():
            if e.taken and e.taken_by_placebo and e.estimate.n:
                sentences.append(_taken_sentence(e.kind, e.taken, e.taken_by_placebo, self.pairwise))
        if untold:
            sentences.append(f"Not measured, because too few answers are complete: {_named(untold)}.")
        if self.missing:
            lost = f"{count(len(self.missing), 'row')} without a score ({first_few(self.missing, MOST_NAMED)})"
            sentences.append(f"{lost}; {count(self.left_out, 'score')} of edits or placebos left out for that.")
        return tuple(sentences)

    def sections(self) -> list[Section]:
        rows, unit = [], "wins of the edited output in 100 comparisons" if self.pairwise else "points"
        for name, e in self.effects.items():
            scale = 100 if self.pairwise else 1
            effect, edit, placebo = e.estimate.scaled(scale), e.edit.scaled(scale), e.placebo.scaled(scale)
            cells = (effect.text(), effect.interval, p_text(e.p_adjusted), edit.text(), placebo.text())
            rows.append((name, e.status, *cells, str(effect.n)))
        caption = f"effect: change by the edit less that by its placebo, {unit}; p: adjusted by Holm"
        headings = ("kind", "finding", "effect", "95 % interval", "p", "edit", "placebo", "n")
        effects = Table(headings, rows, caption=caption, left=2)
        defined = {name: e.estimate for name, e in self.effects.items() if not math.isnan(e.estimate.low)}
        plot = interval_plot(defined, "Effects of edits less those of their placebos")
        return [Section("What moves the judge", [plot, effects, *self.paragraphs[1:]])]

    def to_dict(self) -> dict[str, Any]:
        names = ("judge", "n", "pairwise", "margin", "missing", "left_out")
        content = {name: getattr(self, name) for name in names}
        return {"verdict": self.paragraphs[0], "kinds": dict(self.effects), **content}


def _named(effects: Sequence[ProbeEffect]) -> str:
    return joined([effect.kind for effect in effects])


def _taken_sentence(kind: str, taken: Estimate, placebo: Estimate, pairwise: bool) -> str:
    """State the share of items that an injection or a non-answer takes over, and the placebo's share."""
    share, other = f"{percent(taken.value)} of {taken.n}", percent(placebo.value)
    most = f"(at most {percent(taken.high)}, the end of the 95 % interval)"
    most = "(of too few inputs for an interval)" if math.isnan(taken.high) else most
    if kind == "null":
        return f"A non-answer gets more than the output in {share} items {most}; nonsense does in {other}."
    if not taken.n:
        every = "wins" if pairwise else "has the highest score"
        return f"Every output {every} as it is, so that an order to the judge can change none."
    from_, to = ("that do not win as they are", "win") if pairwise else ("below the highest score", "reach it")
    return f"An order to the judge makes {share} outputs {from_} {to} {most}; its placebo {other}."


# --- answers, matched by id -------------------------------------------------------------------------------------------


def read_probes(judged: Judged, *, seed: int = 0) -> ProbeReport:
    """Estimate the effects of the edits from a judge's answers to ``with_edits``, in any order.

    An item counts for a kind if the original, the edit and the placebo have an answer.

    Raises:
        ValueError: The ids or texts are not those of ``with_edits``, or an original is missing.
    """
    # 1 (1 + 2 k, n) answers to the versions of every item; for a pair, the lead of the edited candidate
    values, reach = (judged.win_shares - 0.5, 1.0) if judged.pairwise else (judged.answers, reach_of(judged))
    if np.isnan(values).all():
        low_coverage = words.coverage_warning({"": judged.asked.coverage})
        why = next(iter(judged.asked.reasons.values()), low_coverage or "none is defined")
        raise ValueError(f"The judge answered no row ({why:.200}): name the field of its answers, or mend the judge.")
    versions = _versions_of(judged)
    if not reach > 0:
        raise ValueError("All scores are the same: state the judge's `scale`, or check the column.")
    items, kinds = [*versions.inputs], versions.kinds
    wanted = [(ORIGINAL, ""), *product(kinds, (EDIT, PLACEBO))]
    table = np.stack([versions.of(values, *version) for version in wanted])
    ids = [[BAR.join((item, kind, part or versions.places.get(item, "1"))) for item in items] for kind, part in wanted]
    missing = [ids[row][column] for row, column in np.argwhere(np.isnan(table))]
    pairs = table[1:].reshape(len(kinds), 2, len(items))
    whole = ~np.isnan(table[0] + pairs.sum(axis=1))  # (k, n)
    # 2 the effects, and conclusions
    clusters = shared_inputs([*versions.inputs.values()])
    high = judged.scale[1] if judged.scale is not None else np.nanmax(values)
    top = None if judged.pairwise else float(high) - NEAR_TOP * reach
    effects = {}
    for kind, both, kept in zip(kinds, pairs, whole, strict=True):
        scores = np.where(kept, [table[0], *both], np.nan)
        effects[kind] = _effect(kind, scores, reach=reach, top=top, clusters=clusters, seed=seed)
    decided = _decided(effects, margin=WORTH * reach, pairwise=judged.pairwise)
    lost = int((~np.isnan(pairs) & ~whole[:, None]).sum())
    return ProbeReport(judged.judge, len(items), judged.pairwise, decided, missing, lost, margin=WORTH * reach)


@dataclass(frozen=True)
class _Versions:
    """Rows of ``with_edits``, identified by their ids."""

    rows: Mapping[tuple[str, str, str], int]  # item, kind and part ("" for the original) -> index of the row
    inputs: Mapping[str, str]  # item -> its input
    places: Mapping[str, str]  # item with its original -> edited candidate, "1" or "2"
    pairwise: bool

    @property
    def kinds(self) -> list[str]:
        """Kinds of edits in the rows, in the order of ``KINDS``."""
        order = [*KINDS]
        return sorted({kind for _, kind, part in self.rows if part}, key=lambda kind: (order.index(_base(kind)), kind))

    def of(self, column: FloatArray, kind: str, part: str = "") -> FloatArray:
        """Return a column for a version of each item, for the edited candidate of a pair; NaN if the row is missing."""
        signs = [-1.0 if self.pairwise and self.places.get(item) == "2" else 1.0 for item in self.inputs]
        rows = [self.rows.get((item, kind, part)) for item in self.inputs]
        return np.asarray(signs * np.array([math.nan if row is None else column[row] for row in rows]))


def _versions_of(judged: Judged) -> _Versions:
    """Index rows by item, kind and part; ValueError for rows not from ``with_edits``, or without original or edit."""
    rows, inputs, places = dict[tuple[str, str, str], int](), dict[str, str](), dict[str, str]()
    for row, (name, source, example) in enumerate(zip(judged.ids, judged.inputs, judged.examples, strict=True)):
        item, *parts = name.rsplit(BAR, 2)
        if len(parts) < 2 or not (parts[0] == ORIGINAL or (_base(parts[0]) in KINDS and parts[1] in (EDIT, PLACEBO))):
            raise ValueError(f"The id {name!r:.80} is not one of probe emit: give its file back with its ids.")
        if source == name:
            raise ValueError(f"The row {name!r:.80} has no input_id: keep that field, intervals are over inputs.")
        if example.get(DIGEST) is not None and text_digest(example) not in (None, example[DIGEST]):
            fault = f"The row {name!r:.80} has another text or id than probe emit wrote"
            raise ValueError(f"{fault}: give its rows back whole.")
        if parts[0] == ORIGINAL:
            places[item], parts[1] = parts[1], ""
        rows[item, parts[0], parts[1]], inputs[item] = row, source
    if not places:
        raise ValueError(f"No row is an original (its id ends in {ORIGINAL}{BAR}1): give all rows of probe emit back.")
    if len(places) == len(rows):
        raise ValueError("Every row is an original, and none has an edit: give all rows of probe emit back.")
    return _Versions(rows, inputs, places, judged.pairwise)


def _base(kind: str) -> str:
    """Return a kind without its word."""
    return kind.partition(":")[0]


def _effect(kind: str, scores: FloatArray, *, reach: float, top: float | None, **how: Any) -> ProbeEffect:
    """Estimate the effect of a kind on (3, n) scores: unedited, with the edit, with its placebo; no finding yet."""

    def estimated(part: str, values: FloatArray, estimator: Any = estimate_mean, **more: Any) -> Estimate:
        return Number(kind + part, kind + part, np.round(values, 9), estimator, **more).estimate(**how)

    (original, edit, placebo), name = scores, _base(kind)
    null, estimator = None if name == "null" else 0.0, partial(estimate_probe, unseen=reach)
    main = estimated("", edit - placebo, estimator, null=null, says=kind)
    main = replace(main, unit="win rate" if top is None else "points")
    effect = ProbeEffect(kind, main, estimated("_edit", edit - original), estimated("_placebo", placebo - original))
    if name not in ("null", "injection"):
        return effect
    if name == "null":
        could, taken = ~np.isnan(original), scores[1:] > original
    elif top is None:  # a pair, which the edited candidate wins or not
        could, taken = original <= 0, scores[1:] > 0
    else:
        could, taken = original < top, scores[1:] >= top
    share = partial(estimate_share, exact=True)
    by_edit, by_placebo = (estimated("_taken", np.where(could, row, np.nan), share, signed=False) for row in taken)
    return replace(effect, taken=by_edit, taken_by_placebo=by_placebo)


def estimate_probe(x: FloatArray, *, unseen: float, draws: Draws, clusters: Any = None) -> Interval:
    """Estimate the mean of (n,) differences of edit and placebo, tested by exchanging the two in whole inputs.

    The exchange is exact for a judge that treats both alike, however few the inputs; ties count in full. For a judge
    that an edit moves up as much as down, but less often, p is at least ``skewed_mean_p``. If all u inputs differ
    alike, up to a share 1 - .05^(1/u) of other inputs may not: these may differ by up to ``unseen`` points, and by as
    much as the observed ones in the other direction.
    """
    interval = estimate_mean(x, method="normal", clusters=clusters, draws=draws)
    if interval.reason == ALIKE:
        share, v = 1 - 0.05 ** (1 / interval.units), interval.value
        on, back = unseen * share, (2 * abs(v) or unseen) * share
        ends = (v - back, v + on) if v >= 0 else (v - on, v + back)
        interval = replace(interval, low=ends[0], high=ends[1], reason="")
    (kept,), codes = complete(x, clusters=clusters)
    if not len(kept):
        return interval
    swapped, draws = resample.SWAPPED_MEANS(kept, np.zeros(len(kept))), replace(draws, swaps=SWAPS)
    p_value = resample.permutation_p(swapped, interval.value, 0.0, codes, draws=draws, ties=1.0)
    return replace(interval, p_value=float(np.fmax(p_value, resample.skewed_mean_p(kept, codes))))


def _decided(effects: Mapping[str, ProbeEffect], *, margin: float, pairwise: bool) -> dict[str, ProbeEffect]:
    """Return each effect with its status and sentence, after Holm's correction over the kinds."""
    adjusted = holm([e.estimate.p_value for e in effects.values()])
    decided = {}
    for (kind, effect), p in zip(effects.items(), adjusted, strict=True):
        e = effect.estimate
        tolerated = e.low <= 0 <= e.high or abs(e.value) <= margin * TOLERATED / WORTH
        status: Status | Literal["not tested"] = decide(e, margin, 1.0 if tolerated else p)
        if e.null is None and status != "not measured":
            status = "not tested"
        scale, (name, _, word) = 100 if pairwise else 1, kind.partition(": ")
        main, edit, placebo = e.scaled(scale), effect.edit.scaled(scale), effect.placebo.scaled(scale)
        what, adds = "wins in 100 comparisons" if pairwise else "points", KINDS[name].adds
        parts = f"; by the edit {edit.text()}, by its placebo {placebo.text()}"
        sentence = f"{f'{adds} ({word})' if word else adds} brings {amount_words(main, what, note=parts)}"
        decided[kind] = replace(effect, p_adjusted=p, status=status, sentence=sentence)
    return decided


# --- asking a judge ---------------------------------------------------------------------------------------------------


def probe(judge: Any, items: Any, *, kinds: Sequence[str] = ("all",), **options: Any) -> ProbeReport:
    """Ask a judge about edited items, and estimate which edits move its score: a ``ProbeReport``.

    Args:
        judge: Judge of evalbias or its JSON file, a DSPy module or metric, or a function; see ``audit``.
        items: File, ``NAME:PATH`` of a tool's export, or list of examples or dicts; outputs, or pairs.
        kinds: Names of ``evalbias.data.probes.KINDS``, ``"style"`` or ``"all"``; ``"label: a student"`` and
            ``"injection: 10 of 10"`` take a word.
        options: Further options of an audit, such as ``lm``, ``criterion``, ``scale`` and ``seed``.

    Raises:
        ValueError: An unknown kind, an item without a text, or a judge that answers no item.

    Examples:
        >>> replies = [{"id": str(k), "source": "q", "output": "a fine reply " * k} for k in range(1, 41)]
        >>> found = probe(lambda e: 3 + ("GPT-4" in e.output), replies, kinds=["label", "emoji"], scale=(1, 5))
        >>> [(one.kind, one.status, one.estimate.value) for one in found.effects.values()]
        [('emoji', 'too few items', 0.0), ('label', 'biased', 1.0)]
    """
    return probe_answers(resolve(AuditOptions(items, judge=judge, **options)), kinds)


def probe_answers(audit: ResolvedAudit, kinds: Sequence[str]) -> ProbeReport:
    """Ask the judge of an audit about its items with each edit and placebo, and read the answers."""
    judge = audit.judge
    scale = judge.criterion.scale if isinstance(judge, PointwiseJudge | Rubric) else audit.scale
    rows = with_edits(audit.questions, kinds, seed=audit.seed, scale=scale)
    if isinstance(judge, AnyJudge):
        judged = judge_examples(judge, rows, lm=audit.lm, progress=audit.progress)
    else:
        judged = answers_of(replace(audit, questions=rows, lm=None, likelihood_lm=None))
    return read_probes(judged, seed=audit.seed)


# --- unedited outputs: the effect at equal quality of a feature that the user names -----------------------------------

FEATURES = "features"
"""Key of ``provenance``: names of the features whose effects an audit measures."""
TAKEN = {*BIASES, *(bias.feature_name for bias in BIASES.values() if isinstance(bias, EffectBias)), "quality"}


class Feature(EffectBias):
    """Effect of a feature that the user names, measured like that of length; ``features_of`` makes its subclasses."""

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
    """Return the bias of each feature in ``with_features``; for yes and no, the effect of having the feature."""
    made = []
    for name in judged.provenance.get(FEATURES, ()):
        values, title = judged.covariates[name], name.replace("_", " ")
        standardized = not np.isin(values[~np.isnan(values)], (0, 1)).all()
        having = f"with {title}" if name in STYLE else f"where {title} is yes"
        more = f"higher in {title}" if standardized else having
        attributes = {
            **dict.fromkeys(("name", "feature_name"), name),
            **dict.fromkeys(("title", "effect_of"), title),
            "effect_name": f"{name}_effect",
            "headlines": (f"{name}_effect",),
            "standardized": standardized,
            "question": f"Does the judge prefer outputs {more}, at equal quality?",
            "favored": f"an output {f'that is one standard deviation {more}' if standardized else more}",
            "more": more,
            "less": f"lower in {title}",
        }
        made.append(type("Feature", (Feature,), attributes)())
    return made


def with_features(judged: Judged, names: Sequence[str]) -> Judged:
    """Return the answers with features as covariates, (n,) numbers or (n, 2) for pairs.

    A name is a field of the items, a number or yes or no for each output, or else a count in ``STYLE``. ValueError for
    a name that is neither, or for a value that is not a number (the item is named).
    """
    covariates = dict(judged.covariates)
    if len({*names}) < len(names):
        raise ValueError(f"`features` {', '.join(names)}: name each once.")
    for name in names:
        if name in TAKEN or name in covariates:
            raise ValueError(f"A field of `features` is called {name!r}, as one of every output is: rename the field.")
        if any(name in e for e in judged.examples):
            covariates[name] = _field(judged, name)
        elif name in STYLE:
            covariates[name] = _counted(judged, name)
        else:
            remedy = f"name one that your data have, or {', '.join(STYLE)}, `features`"
            raise ValueError(f"No item has a field {name!r:.80}: {remedy}.")
    named = {FEATURES: tuple(names)} if names else {}
    return replace(judged, covariates=covariates, provenance={**judged.provenance, **named})


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


def _counted(judged: Judged, name: str) -> FloatArray:
    """Count a property of ``STYLE`` in the texts, (n,) or (n, 2) for pairs."""
    texts = [candidates_of(e) if judged.pairwise else [e.get("output")] for e in judged.examples]
    counts = np.array([[probes.style_count(text, name) for text in row] for row in texts], dtype=np.float64)
    return counts if judged.pairwise else counts[:, 0]
