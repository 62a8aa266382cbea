"""LLMBar (Zeng et al. 2024): pairs of outputs of one instruction, one of which follows it objectively better."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.items import load_records
from evalbias.data.reading import Source, text

CHOICES = {"1": 0, "2": 1}
LABELS = {1: 0, 2: 1}
ROOT, OTHER = "Dataset", "CaseStudy"
"""Folder of the repository that holds the sets, and its sets that are not part of the benchmark."""


def load_llmbar(path: Path) -> Dataset:
    """Read LLMBar, or verdicts that were recorded on it.

    Items have the fields of pairs, ``set`` (such as ``LLMBar-Natural``) and ``better``; the id is the set and the place
    in it. Verdicts of other judges in a file of their own are added by ``evalbias.data.join``.

    Args:
        path: The repository's folder ``Dataset``, or one of its sets' (``dataset.json`` of every set below, without
            ``CaseStudy``); one ``dataset.json``; one ``result.json`` of a set's ``evaluators``, which adds the judge's
            choices ``winner`` and ``winner_swapped`` (0 or 1, None where it gave none); or the recorded JSONL form.

    Raises:
        DataError: A record is malformed, or the folder holds no set; the message names the place.
    """
    source = Source("llmbar", path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return load_records(source, source.rows())
    files = sorted(f for f in path.rglob("dataset.json") if OTHER not in f.parts) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} holds no dataset.json; give the folder {ROOT!r} of LLMBar's repository.")
    return load_records(source, (row for file in files for row in _published(source, file)))


def _published(source: Source, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    folder = file.parents[3] if "evaluators" in file.parts else file.parent
    parts = folder.resolve().parts
    name = "-".join(parts[parts.index(ROOT) + 1 :] if ROOT in parts else parts[-1:])
    for index, (where, record) in enumerate(source.listed(source.read(file), file)):
        if record.get("label") not in LABELS:
            raise DataError(f"{where}: 'label' is {record.get('label')!r:.80}; it must be 1 or 2.")
        outputs = [text(record, f"output_{number}", where, blank=True) for number in (1, 2)]
        row = {"id": f"{name}/{index}", "set": name, "source": text(record, "input", where), "outputs": outputs}
        yield where, {**row, "better": LABELS[record["label"]], **_verdict(record, where)}


def _verdict(record: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the recorded choices in both orders; they stand last, after the reference and metrics of some prompts."""
    if "results" not in record:
        return {}
    try:
        last = record["results"][-1]
        winners = [last[f"swap = {swapped}"]["winner"] for swapped in (False, True)]
    except (LookupError, TypeError) as error:
        raise DataError(f"{where}: 'results' holds no winners in both orders; give verdicts of pairs.") from error
    return {"winner": CHOICES.get(winners[0]), "winner_swapped": CHOICES.get(winners[1])}
