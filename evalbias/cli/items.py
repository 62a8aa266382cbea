"""Items, criteria and judges that options name, read and checked."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from evalbias import data
from evalbias.cli.options import read_scale
from evalbias.cli.terminal import say
from evalbias.data import world
from evalbias.data.cells import choice_codes
from evalbias.data.columns import lacking, parse_mapping
from evalbias.data.files import decoded
from evalbias.data.items import check_field
from evalbias.programs import PointwiseJudge, load_judge
from evalbias.programs.criterion import BINS, PRESETS, SYNTHETIC, Criterion
from evalbias.values import digest, file_digest

# The criteria that a command judges on, and whether people's ratings fit them.


def criteria_of(
    spec: str, names: list[str] | None, scale: str | None = None, *, written: Mapping[str, str | None] | None = None
) -> tuple[Criterion, ...]:
    """Return the data set's own criteria by name, or new ones by definition.

    Args:
        spec: Name of the data.
        names: Names and definitions; None takes all of the data set's own.
        scale: Scale of the defined ones, such as ``1-7``; None is 1 to 5.
        written: The criteria's ``task``, ``source_label`` and ``output_label``, where they are given.

    Raises:
        typer.BadParameter: The data set has no criteria of its own, or the scale does not fit.
    """
    presets = {c.name: c for c in PRESETS.get(data.parse_spec(spec)[0], ())}
    if not names and not presets:
        raise typer.BadParameter("the data have no criteria of their own: give --criterion 'name: definition'.")
    chosen = names or list(presets)
    if scale is not None and all(name in presets for name in chosen):
        raise typer.BadParameter(
            f"--scale {scale}: the data set's own criteria have a scale of their own. Leave it out."
        )
    ends = (1, 5) if scale is None else _whole(scale)
    given: dict[str, Any] = {field: text for field, text in (written or {}).items() if text is not None}
    return tuple(replace(presets.get(name) or Criterion.parse(name, scale=ends), **given) for name in chosen)


def _whole(scale: str) -> tuple[int, int]:
    """Read the scale of a prompt, in which every whole number is a label."""
    low, high = read_scale(scale)
    if not (low.is_integer() and high.is_integer()):
        raise typer.BadParameter(f"--scale {scale}: a judge answers with whole numbers. Write the scale as 1-5.")
    return int(low), int(high)


def named_criterion(spec: str, text: str, labels: tuple[str | None, str | None]) -> Criterion:
    """Return a criterion for comparisons.

    Args:
        spec: Name of the data.
        text: Name of one of the data set's own criteria, or a definition.
        labels: Names of source and output in prompts, instead of the criterion's own.
    """
    source, output = labels
    (criterion,) = criteria_of(spec, [text], written={"source_label": source, "output_label": output})
    return criterion


def check_rated(items: Sequence[Any], criteria: Sequence[Criterion], spec: str) -> None:
    """Refuse items that nobody rated, and one score for several criteria.

    Raises:
        DataError: No item has a score on any of the criteria, or ``score`` could be that of each.
    """
    if not any(e.get("scores") or "score" in e for e in items):
        raise lacking(spec, list(dict.fromkeys(name for e in items for name in e.keys() if name != "scores")), "score")  # noqa: SIM118
    one = next((e for e in items if "score" in e and e.get("scores") is None), None)
    if one is not None and len(criteria) > 1:
        raise data.DataError(
            f"The item {one.id!r:.80} of {spec} has one score, and {len(criteria)} criteria are judged: give one "
            "--criterion, or scores by criterion ('scores', or columns such as scores.fluency)."
        )


def check_scale(items: Sequence[Any], criteria: Sequence[Criterion]) -> None:
    """Refuse human scores off the scale: one slip would decide the normalization of all of them.

    Raises:
        ValueError: A score lies outside its criterion's scale; the item is named.
    """
    for criterion in criteria:
        low, high = criterion.scale
        for item in items:
            score = data.human_score(item, criterion.name, required=False)
            if score < low or score > high:  # NaN is undefined, not off the scale
                raise ValueError(
                    f"The item {item.id!r:.80} has {score:g} on {criterion.name}, outside the scale {low} to {high}: "
                    "correct it, or give the scale that people rated on with --scale."
                )


# Open the judges that a command scores with: a saved one, or new ones for criteria.


def open_judges(
    judge: Path | None, criteria: list[str] | None, spec: str, scale: str | None, *, written: Mapping[str, str | None]
) -> tuple[list[PointwiseJudge], dict[str, Any]]:
    """Open a saved judge, or a new one for each criterion; also return what identifies the file, for run.json.

    Raises:
        BadParameter: Options that define a criterion stand beside a saved judge, which has its own.
    """
    if judge is None:
        return [PointwiseJudge(c) for c in criteria_of(spec, criteria, scale, written=written)], {}
    defining = {"criterion": criteria or None, "scale": scale, **written}
    given = [f"--{name.replace('_', '-')}" for name, value in defining.items() if value is not None]
    if given:
        raise typer.BadParameter(
            f"--judge: a saved judge has its own criterion, scale, task and labels. Leave out {', '.join(given)}."
        )
    return [load_judge(judge)], {"judge": file_digest(judge)}


def open_judge(
    judge: Path | None, criterion: str | None, spec: str, scale: str | None, *, written: Mapping[str, str | None]
) -> tuple[PointwiseJudge, dict[str, Any]]:
    """Open the one judge that is named; see ``open_judges``.

    Raises:
        BadParameter: Neither a saved judge nor a criterion is named.
    """
    if judge is None and criterion is None:
        raise typer.BadParameter("say which judge: --criterion 'name: definition' for a new one, or --judge FILE.")
    (program,), settings = open_judges(judge, None if criterion is None else [criterion], spec, scale, written=written)
    return program, settings


# The items and criteria that a command works on.


@dataclass(frozen=True)
class Task:
    """Items on two sides of a split, and the criteria that they are judged on.

    Attributes:
        spec: The data as the user named them.
        sha256: Hash of the data.
        criteria: Criteria, at least one.
        bins: Edges that cut human scores into labels; see ``label_of``.
        train: Items from which demonstrations are taken.
        test: Items on which bias is measured.
        left_out: Reason -> ids of the data set's items that cannot be used.
        split: Settings of the split.
        mapping: Our field -> the data's column.
        codes: Codes of the first output, the second and a tie in people's choices; empty for evalbias's own.
    """

    spec: str
    sha256: str
    criteria: tuple[Criterion, ...]
    bins: Sequence[float] | None
    train: list[Any]
    test: list[Any]
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, str] = field(default_factory=dict)
    codes: Sequence[str] = ()

    def settings(self) -> dict[str, Any]:
        """Return what decides the numbers, for run.json: the items and criteria themselves, not only their names."""
        return {
            "data": self.spec,
            "data_sha256": self.sha256,
            **({"map": dict(self.mapping)} if self.mapping else {}),
            **({"labels": list(self.codes)} if self.codes else {}),
            "left_out": {reason: len(ids) for reason, ids in self.left_out.items()},
            "split": dict(self.split),
            "train": _fingerprint(self.train),
            "test": _fingerprint(self.test),
            "criteria": [asdict(c) for c in self.criteria],
            "bins": None if self.bins is None else list(self.bins),
        }


def _fingerprint(items: Sequence[Any]) -> dict[str, Any]:
    return {"items": len(items), "ids": digest([str(e.get("id", i)) for i, e in enumerate(items)])}


def load_items(
    spec: str, mapping: Mapping[str, str], *, pairs: bool = False, codes: Sequence[str] = ()
) -> data.Dataset:
    """Load outputs that a model can be asked about; says on stderr which were left out.

    Args:
        spec: Name of the data.
        mapping: Our field -> the data's column.
        pairs: Whether the items may be pairs of outputs.
        codes: Codes of people's choices between the outputs of a pair; see ``choice_codes``.

    Raises:
        DataError: An item has no source, or is a pair where the command takes none.
    """
    items = data.read(spec, mapping=mapping, choices={"better": codes})
    if items.left_out:
        say(items.summary())
    if not pairs and any("candidates" in e for e in items):
        raise data.DataError(
            f"{spec} holds pairs, and this command takes one output a row. Use evalbias audit, measure preference or "
            "optimize."
        )
    check_field(items, "source", spec)
    return items


def open_task(
    spec: str,
    criteria: tuple[Criterion, ...],
    *,
    seed: int,
    split_by: str,
    limit: int | None,
    candidates: Path | None,
    columns: list[str] | None = None,
) -> Task:
    """Open the task that a command's options name.

    Args:
        spec: Name of the data.
        criteria: Criteria, at least one.
        seed: Seed for the split and for ``limit``.
        split_by: See ``data.split``.
        limit: Number of items to draw before the split.
        candidates: File of ids, one per line: the training items that stay.
        columns: Names of the data's columns, as the user gave them.
    """
    mapping = parse_mapping(columns or ())
    dataset = load_items(spec, mapping)
    items = list(dataset)
    if not items:
        raise ValueError(f"{spec} holds no items: give a file with rated outputs.")
    if limit is not None and limit < len(items):
        items = random.Random(seed).sample(items, limit)
    name = data.parse_spec(spec)[0]
    train, test = data.split(items, seed=seed, by=split_by)
    if candidates is not None:
        train = _only(train, candidates)
    split = {"by": split_by, "seed": seed, "limit": limit}
    check_rated(items, criteria, spec)
    if name not in BINS:
        check_scale(items, criteria)
    return Task(
        spec,
        dataset.sha256,
        criteria,
        BINS.get(name),
        train,
        test,
        left_out=dataset.left_out,
        split=split,
        mapping=mapping,
    )


def open_documents(
    spec: str,
    criterion: str | Criterion,
    *,
    labels: tuple[str | None, str | None] = (None, None),
    seed: int,
    documents: int | None,
    test_fraction: float | None = None,
    columns: list[str] | None = None,
    codes: str | None = None,
    pairs: bool = True,
) -> Task:
    """Open a task of comparisons: outputs by document, rated or not, or pairs of them, and one criterion.

    Args:
        spec: Name of the data.
        criterion: Name of one of the data set's own criteria, a definition, or a criterion.
        labels: Names of source and output in prompts, instead of the criterion's own.
        seed: Seed for the split and for ``documents``.
        documents: Number of inputs to draw before the split.
        test_fraction: Fraction of the documents that are kept apart; None keeps all on the test side.
        columns: Names of the data's columns, as the user gave them.
        codes: Codes of people's choices between the outputs of a pair, as the user gave them.
        pairs: Whether the items may be pairs; ranking takes none.

    Raises:
        ValueError: Too few documents with two different outputs, or pairs to rank.
    """
    mapping, choices = parse_mapping(columns or ()), choice_codes(codes)
    dataset = load_items(spec, mapping, pairs=True, codes=choices)
    if not pairs and data.hold_pairs(dataset):
        raise data.DataError(
            f"{spec} holds pairs, and a ranking orders all outputs of a document: give one output a row, or ask about "
            "the pairs with 'evalbias measure preference'."
        )
    groups = {k: v for k, v in data.by_input(dataset).items() if _comparable(v)}
    needed = 1 if test_fraction is None else 2
    if len(groups) < max(needed, documents or 0):
        raise ValueError(
            f"{spec} has {len(groups)} documents with two different outputs or more: a comparison needs at least "
            f"{max(needed, documents or 0)}. Outputs of one document have the same source or the same input_id."
        )
    keys = sorted(groups)
    if documents is not None:
        keys = sorted(random.Random(seed).sample(keys, documents))
    items = [e for key in keys for e in groups[key]]
    train, test = (
        ([], items) if test_fraction is None else data.split(items, seed=seed, by="input", test_fraction=test_fraction)
    )
    if isinstance(criterion, str):
        criterion = named_criterion(spec, criterion, labels)
    _notice(items, criterion.name)
    split = {"by": "input", "seed": seed, "documents": documents, "test_fraction": test_fraction}
    return Task(
        spec,
        dataset.sha256,
        (criterion,),
        None,
        train,
        test,
        left_out=dataset.left_out,
        split=split,
        mapping=mapping,
        codes=choices,
    )


def _comparable(items: Sequence[Any]) -> bool:
    """Return whether the items of a document hold two different outputs that can be compared."""
    if data.hold_pairs(items):
        return any(len(set(e.candidates)) > 1 for e in items)
    return len({e.output for e in items}) > 1


def _notice(items: Sequence[Any], name: str) -> None:
    """Say on stderr if people rated, but not on this criterion."""
    names = {n for e in items for n in (e.get("scores") or {})}
    if names and not any(data.is_rated(e, name) for e in items):
        say(f"Nobody rated on {name!r}, only on {sorted(names)!s:.500}: no agreement can be measured.")


def _only(train: Sequence[Any], file: Path) -> list[Any]:
    """Return the training items whose ids the file lists.

    Raises:
        ValueError: An id is not one of theirs, or the file is not UTF-8.
    """
    lines = decoded(file.read_bytes(), file).splitlines()
    ids = dict.fromkeys(line.strip() for line in lines if line.strip())
    unknown = ids.keys() - {str(e.id) for e in train}
    if unknown:
        raise ValueError(
            f"{file} lists {min(unknown)!r:.80}, which is no training item of this split ({len(unknown)} such ids): "
            "give the seed and the data that the list was made for."
        )
    return [e for e in train if str(e.id) in ids]


def demo_task(seed: int) -> Task:
    """Return fresh items of the synthetic world, none of which the embedded judge has seen."""
    train, test = world.examples(400, seed=2 * seed + 1_000_001), world.examples(300, seed=2 * seed + 1_000_002)
    return Task("synthetic world", "generated", (SYNTHETIC,), None, train, test)


def demo_documents(seed: int) -> tuple[list[Any], list[Any]]:
    """Return fresh documents of the synthetic world with six outputs each, to search on and to test on."""
    searched, tested = 2 * seed + 1_100_001, 2 * seed + 1_100_002
    return world.documents(20, 6, seed=searched), world.documents(30, 6, seed=tested)
