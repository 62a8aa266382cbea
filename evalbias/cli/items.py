"""Items, criteria and judges that options name, read and checked before a model is opened."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import MISSING, asdict, fields
from typing import Any

from evalbias import data
from evalbias.cli.run import Split
from evalbias.cli.terminal import say
from evalbias.data.files import memory_table
from evalbias.data.hints import lacking
from evalbias.data.items import check_rated_apart, comparable
from evalbias.data.reading import check_field
from evalbias.evaluation import answers
from evalbias.evaluation.answers import PROMPT, ResolvedAudit, criteria_of, language_of, resolve, tell_left_out
from evalbias.evaluation.words import joined
from evalbias.options import AuditOptions, Items, Options
from evalbias.program_options import AlignOptions, ComparingAim, RankOptions, ScoreOptions, ScoringAim
from evalbias.programs import PairwiseJudge, PointwiseJudge, Rubric
from evalbias.programs.criterion import Criterion
from evalbias.programs.files import load
from evalbias.programs.judges import read_for
from evalbias.values import file_digest

# Options of a form of a command, from those of all its forms.


def narrowed(options: Options, form: str, forms: Mapping[str, type[Options]], typed: Set[str]) -> Any:
    """Return the options of a form of a command; refuse typed options that only other ``forms`` take.

    Raises:
        ValueError: An option on the command line (``typed``) belongs to other forms, or this form lacks one.
    """
    taken = {words: {f.name for part in (group, *group.beside) for f in fields(part)} for words, group in forms.items()}
    for name in sorted(typed - taken[form]):
        if takers := [words for words, names in taken.items() if name in names]:
            raise ValueError(f"`{name}` is not for {form}, only for {joined(takers)}: leave it out.")
    own = {f.name: getattr(options, f.name) for f in fields(forms[form]) if f.name in typed}
    if lacking := [f.name for f in fields(forms[form]) if f.default is MISSING and f.name not in own]:
        raise ValueError(f"{form} needs `{lacking[0]}`: add it.")
    return forms[form](**own)


# The judges that options name.


def scoring_judges(options: ScoreOptions | ScoringAim | AlignOptions) -> list[Any]:
    """Open a saved judge, which has its own criterion, or make a new one for each criterion."""
    if options.judge is not None:
        _refuse_own(options, "criterion", "scale", "language", "no_cue", *PROMPT)
        return [load(options.judge, PointwiseJudge, *([Rubric] if isinstance(options, ScoreOptions) else []))]
    if options.criterion is None:
        raise ValueError("Say which judge: `criterion` 'name: definition' for a new one, or `judge` FILE.")
    named = options.criterion if isinstance(options.criterion, list) else [options.criterion]
    language, cue = language_of(options), not options.no_cue
    return [PointwiseJudge(criterion, language=language, cue=cue) for criterion in criteria_of(options, named)]


def _refuse_own(options: Any, *names: str) -> None:
    if named := [f"`{name}`" for name in names if getattr(options, name, None)]:
        raise ValueError(
            "`judge`: a saved judge has its own criterion, scale, language, cue, task, labels and answers. Leave out "
            f"{', '.join(named)}."
        )


def comparing_judge(options: RankOptions | ComparingAim | AlignOptions) -> PairwiseJudge:
    """Open a saved judge, whose debiasing and calibration may be replaced, or make a new one for the criterion."""
    if isinstance(options.criterion, list):
        raise ValueError("`criterion`: a judge that compares has one. Name one.")
    if (options.judge is None) == (options.criterion is None):
        raise ValueError("Give either `criterion` 'name: definition' or `judge` FILE.")
    if options.judge is not None:
        _refuse_own(options, "ties", "language", "no_cue", "instruction", "instruction_place", *PROMPT)
        judge: PairwiseJudge = load(options.judge, PairwiseJudge)
    else:
        (criterion,) = criteria_of(options, [options.criterion])
        judge = PairwiseJudge(
            criterion,
            ties=options.ties,
            language=language_of(options),
            cue=not options.no_cue,
            instruction=getattr(options, "instruction", None),
            instruction_place=getattr(options, "instruction_place", None) or answers.instruction_place_for(options.lm),
        )
    for name in ("debias", "calibration"):
        if (value := getattr(options, name, None)) is not None:
            setattr(judge, name, None if value == "none" else value)
    return judge


# The items that options name, as an audit reads them.


def audited_items(options: Any) -> ResolvedAudit:
    """Read the items and the judge of a command's options as an audit does; report on stderr the items left out."""
    ready = resolve(AuditOptions.of(options))
    tell_left_out(ready.dataset, say)
    return ready


def audit_settings(*each: ResolvedAudit) -> dict[str, Any]:
    """Return a judge's settings on each criterion that affect the numbers besides the options; see ``Split``."""
    ready, criteria = each[0], tuple(audit.criterion for audit in each)
    settings = Split(ready.dataset, criteria, ready.questions).settings()
    names = [criterion.name for criterion in criteria]
    if ready.judge is None:  # a criterion's own scale is of prompts, and none is made
        settings["criteria"] = [{n: value for n, value in asdict(c).items() if n != "scale"} for c in criteria]
        judge = None
    else:
        judge = f"new {ready.judge.kind}" if ready.requested.judge is None else file_digest(ready.requested.judge)
    return {**settings, "criterion": names if ready.requested.several else names[0], "judge": judge}


# The items that options name, on two sides of a split.


def load_items(options: Items, judge: Any, *, pairs: bool = False) -> data.Dataset:
    """Load outputs, or also pairs of them, for a saved or new judge; report on stderr the items left out."""
    items = read_for(judge, options, choices={"better": tuple(getattr(options, "labels", ()))})
    tell_left_out(items, say)
    if not pairs and any("candidates" in e for e in items):
        raise data.DataError(
            f"{options.data} holds pairs, and this command takes one output a row. Use evalbias audit or optimize."
        )
    if judge is None or "source" in judge.inputs:
        check_field(items, "source", options.data)
    return items


def scored(options: ScoringAim, judges: Sequence[PointwiseJudge]) -> Split:
    """Split rated items into those that demonstrations are taken from and those that are measured."""
    spec, dataset = str(options.data), load_items(options, judges[0])
    items, criteria = list(dataset), tuple(judge.criterion for judge in judges)
    if not items:
        raise ValueError(f"{spec} holds no items: give a file with rated outputs.")
    if options.limit is not None and options.limit < len(items):
        items = random.Random(options.seed).sample(items, options.limit)
    train, test = data.split(items, seed=options.seed, by=options.split_by)
    check_ratings(items, criteria, spec)
    return Split(dataset, criteria, test, train)


def compared(options: RankOptions | ComparingAim, judge: PairwiseJudge, *, searches: bool = False) -> Split:
    """Put outputs on the test side; if it ``searches``, pairs too, and half of the documents for training."""
    spec, dataset, criterion = str(options.data), load_items(options, judge, pairs=True), judge.criterion
    if not searches and data.hold_pairs(dataset):
        raise data.DataError(
            f"{spec} holds pairs, and a ranking orders all outputs of a document: give one output a row, or ask about "
            "the pairs with 'evalbias audit'."
        )
    by_input = data.by_input(dataset)
    groups = {key: by_input[key] for key in comparable(dataset)}
    needed = max(2 if searches else 1, options.documents or 0)
    if len(groups) < needed:
        raise ValueError(
            f"{spec} has {len(groups)} documents with two different outputs or more: a comparison needs at least "
            f"{needed}. Outputs of one document have the same source or the same input_id."
        )
    keys = sorted(groups)
    if options.documents is not None:
        keys = sorted(random.Random(options.seed).sample(keys, options.documents))
    items, train = [e for key in keys for e in groups[key]], list[Any]()
    test = items
    if searches:
        train, test = data.split(items, seed=options.seed, by="input", test_fraction=0.5)
    names = {n for e in items for n in (e.get("scores") or {})}
    if names and not any(data.is_rated(e, criterion.name) for e in items):
        say(f"Nobody rated on {criterion.name!r}, only on {sorted(names)!s:.500}: no agreement can be measured.")
    return Split(dataset, (criterion,), test, train)


def has_ratings(items: Sequence[Any]) -> bool:
    """Return whether people rated an item."""
    return any(e.get("scores") or "score" in e for e in items)


def check_ratings(items: Sequence[Any], criteria: Sequence[Criterion], spec: str) -> None:
    """Refuse items without ratings, a common score for several criteria, and human scores off the scale.

    A single slip would change the normalization of all scores.
    """
    if not has_ratings(items):
        raise lacking(spec, memory_table([{n: v for n, v in e.items() if n != "scores"} for e in items]), "score")
    check_rated_apart(items, [criterion.name for criterion in criteria])
    for criterion in criteria:
        low, high = criterion.scale
        for item in items:
            score = data.human_score(item, criterion.name, required=False)
            if score < low or score > high:  # NaN is undefined, not off the scale
                raise ValueError(
                    f"The item {item.id!r:.80} has {score:g} on {criterion.name}, outside the scale {low} to {high}: "
                    "correct it, or give the scale that people rated on with --scale."
                )
