"""PandaLM's test set (Wang et al. 2024): pairs of outputs with the choices of three people and of two judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.items import load_records
from evalbias.data.reading import Source, text

ITEMS = "testset-v1.json"
VERDICTS = {
    "gpt35": ("gpt-3.5-turbo-testset-v1.json", "gpt_result"),
    "pandalm7b": ("pandalm-7b-testset-v1.json", "pandalm_result"),
}
"""Recorded judge -> its file and field in the repository."""
CHOICES: Mapping[object, int] = {0: -1, 1: 0, 2: 1, "0": -1, "1": 0, "2": 1, "Tie": -1}
DIFFERENCES = {0: 0.0, 1: 1.0, 2: -1.0}
"""An annotator's choice (0 tie, 1 first, 2 second) as a rating of the first output less that of the second."""


def load_pandalm(path: Path) -> Dataset:
    """Read the published form, or its recorded JSONL form; both give the same items.

    Items have the fields of pairs; ``systems``; ``annotators``, three choices as published; ``ratings``, the same as
    differences (1 the first output is better, 0 a tie, -1 the second); ``better``, the choice of at least two people,
    None for a tie; and recorded choices of ``gpt35`` and ``pandalm7b`` (0 or 1, -1 for a tie, None where unreadable).

    Six outputs of one word are published as the JSON value ``true``; they are read as ``True``, as they were written.

    Args:
        path: The repository's folder ``data``, its ``testset-v1.json`` alone (without recorded judges), or JSONL.

    Raises:
        DataError: A record is malformed; the message names the place.
    """
    source = Source("pandalm", path)
    recorded = path.name.endswith((".jsonl", ".jsonl.gz"))
    rows = source.rows() if recorded else _published(source, path)
    return load_records(source, ((where, _item(record, where)) for where, record in rows))


def _published(source: Source, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    file = path / ITEMS if path.is_dir() else path
    verdicts: dict[str, dict[Any, Any]] = {}
    if path.is_dir():
        for judge, (name, field) in VERDICTS.items():
            rows = source.listed(source.read(path / name), path / name)
            verdicts[judge] = {record.get("idx"): record.get(field) for _, record in rows}
    for where, record in source.listed(source.read(file), file):
        instruction, given = text(record, "instruction", where, blank=True), record.get("input")
        more = f"\n\n{given}" if isinstance(given, str) and given.strip() else ""
        yield (
            where,
            {
                "id": f"pandalm/{record.get('idx')}",
                "systems": record.get("cmp_key"),
                "source": instruction + more,
                "outputs": [record.get(f"response{number}") for number in (1, 2)],
                "annotators": [record.get(f"annotator{number}") for number in (1, 2, 3)],
                **{judge: choices.get(record.get("idx")) for judge, choices in verdicts.items()},
            },
        )


def _item(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    annotators = record.get("annotators")
    if not isinstance(annotators, list) or not all(choice in DIFFERENCES for choice in annotators):
        raise DataError(f"{where}: the annotators' choices are {annotators!r:.80}; each must be 0, 1 or 2.")
    outputs = record.get("outputs")
    return {
        **record,
        "outputs": [str(one) if one is True else one for one in outputs] if isinstance(outputs, list) else outputs,
        "systems": text(record, "systems", where).split("_"),
        "ratings": [DIFFERENCES[choice] for choice in annotators],
        "better": _majority(annotators),
        **{judge: CHOICES.get(record[judge]) for judge in VERDICTS if judge in record},
    }


def _majority(annotators: Sequence[int]) -> int | None:
    choice, count = Counter(annotators).most_common(1)[0]
    return CHOICES[choice] if count > len(annotators) / 2 and choice else None
