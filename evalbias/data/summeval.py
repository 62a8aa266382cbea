"""SummEval (Fabbri et al. 2021): articles with 16 summaries each, rated 1 to 5 by three experts on four aspects."""

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
"""Names of the fields for document, system, article and summary in the published (False) and recorded (True) form."""


def load_summeval(path: Path) -> Dataset:
    """Read ``model_annotations.aligned.paired.jsonl``, or the recorded JSONL form.

    ``input_id`` is the document; the id joins it with ``system``. A score is the mean over the experts; where their
    single ratings are recorded, ``ratings`` maps each aspect to them.

    Raises:
        DataError: A record is malformed, or the annotations were not paired with the articles; the message names file
            and line.
    """
    source = Source("summeval", path)
    for where, record in source.rows():
        source.add(_item(record, where, recorded="summary" in record), where)
    return source.dataset()


def _item(record: Mapping[str, Any], where: str, *, recorded: bool) -> dict[str, Any]:
    if not recorded and "text" not in record:
        raise DataError(
            f"{where}: 'text' is missing: the annotations must be paired with the news articles first. SummEval's "
            "pairing script writes model_annotations.aligned.paired.jsonl."
        )
    document, system, article, summary = FIELDS[recorded]
    fields = {"input_id": text(record, document, where), "system": text(record, system, where)}
    experts = record.get("expert_annotations")
    ratings = {} if recorded and experts is None else {aspect: _ratings(experts, aspect, where) for aspect in ASPECTS}
    means = {aspect: sum(given) / len(given) for aspect, given in ratings.items()}
    return {
        "id": f"{fields['input_id']}/{fields['system']}",
        **fields,
        "source": text(record, article, where),
        "output": text(record, summary, where, blank=True),
        "scores": scores(record, where, required=ASPECTS) if recorded else means,
        **({"ratings": ratings} if ratings else {}),
    }


def _ratings(experts: Any, aspect: str, where: str) -> list[float]:
    if not isinstance(experts, list) or not experts or not all(isinstance(e, dict) and aspect in e for e in experts):
        raise DataError(f"{where}: 'expert_annotations' must be a list of objects that each hold {aspect!r}.")
    return [number(e[aspect], f"{where}: {aspect}", low=1, high=5) for e in experts]
