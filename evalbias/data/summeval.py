"""SummEval (Fabbri et al. 2021): news texts, 16 summaries each, rated 1 to 5 by three experts on four aspects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.reading import Source, number, scores, text

ASPECTS = ("coherence", "consistency", "fluency", "relevance")
FIELDS = {
    False: ("id", "model_id", "text", "decoded"),
    True: ("doc_id", "system", "source", "summary"),
}
"""Document, system, text and summary, as the published and the recorded form call them."""


def load_summeval(path: Path) -> Dataset:
    """Read ``model_annotations.aligned.paired.jsonl``, or the recorded JSONL form.

    Items have ``input_id``, the document, and ``system``; their id is both. A score is the mean of the experts.

    Raises:
        DataError: A malformed record, or annotations that were not paired with their texts; file and line are named.
    """
    source = Source("summeval", path)
    for where, record in source.rows():
        source.add(_item(record, where, recorded="summary" in record), where)
    return source.dataset()


def _item(record: Mapping[str, Any], where: str, *, recorded: bool) -> dict[str, Any]:
    if not recorded and "text" not in record:
        raise DataError(
            f"{where}: 'text' is missing: the annotations must be paired with the news texts first; SummEval's own "
            "script for that writes model_annotations.aligned.paired.jsonl."
        )
    document, system, article, summary = FIELDS[recorded]
    fields = {"input_id": text(record, document, where), "system": text(record, system, where)}
    experts = record.get("expert_annotations")
    return {
        "id": f"{fields['input_id']}/{fields['system']}",
        **fields,
        "source": text(record, article, where),
        "output": text(record, summary, where, blank=True),
        "scores": scores(record, where, wanted=ASPECTS) if recorded else {a: _mean(experts, a, where) for a in ASPECTS},
    }


def _mean(experts: Any, aspect: str, where: str) -> float:
    if not isinstance(experts, list) or not experts or not all(isinstance(e, dict) and aspect in e for e in experts):
        raise DataError(f"{where}: 'expert_annotations' must be a list of objects that each hold {aspect!r}.")
    return sum(number(e[aspect], f"{where}: {aspect}", low=1, high=5) for e in experts) / len(experts)
