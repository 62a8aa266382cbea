"""Newsroom (Grusky et al. 2018): 60 news articles with seven summaries each, rated 1 to 5 on four aspects."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from evalbias.data.dataset import Dataset
from evalbias.data.reading import Source, scores, text

ASPECTS = ("coherence", "fluency", "informativeness", "relevance")


def load_newsroom(path: Path) -> Dataset:
    """Read the published JSON file, or its recorded JSONL form; both give the same items.

    ``input_id`` is the document. The id adds the position among the document's summaries, which does not identify the
    system. The published texts are HTML: paragraphs become lines, and entities become characters.

    Raises:
        DataError: A record is malformed; the message names the file and the line or item.
    """
    source = Source("newsroom", path)
    recorded = path.name.endswith((".jsonl", ".jsonl.gz"))
    seen: dict[str, int] = {}
    for where, record in source.rows() if recorded else source.json_records():
        document = text(record, "doc_id", where)
        place = seen[document] = seen.get(document, -1) + 1
        fields: dict[str, Any] = {"id": f"newsroom-{document}-{place}", "input_id": document}
        if recorded:
            output = text(record, "summary", where, blank=True)
            fields |= {"source": text(record, "source", where), "output": output}
        else:
            output = text(record, "system_output", where, blank=True)
            fields |= {"source": _plain(text(record, "source", where)), "output": _plain(output)}
        source.add({**fields, "scores": scores(record, where, required=ASPECTS)}, where)
    return source.dataset()


def _plain(content: str) -> str:
    return html.unescape(content.replace("</p><p>", "\n"))
