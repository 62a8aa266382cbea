"""WebNLG+ 2020, data to text: 16 systems' English texts, rated 0 to 100 on five criteria.

Reads a checkout of the challenge's repository, or the recorded JSONL form of the same data. The source is the
triples as XML, made from the tables that the raters saw; both forms give the same items.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import dspy

from evalbias.data.dataset import DataError, Dataset, Source, example, jsonl_rows, scores, text

EVALUATION = "evaluation/human-evaluation"
REFERENCE = "WebNLG-2020-reference"
CRITERIA = {
    "correctness": "Correctness",
    "data_coverage": "DataCoverage",
    "fluency": "Fluency",
    "relevance": "Relevance",
    "text_structure": "TextStructure",
}
_CELL = re.compile(r'<td class="tg-0lax">(.*?)</td>', re.DOTALL)


def load_webnlg(path: Path) -> Dataset:
    """Read a checkout's folder, or a ``.jsonl`` / ``.jsonl.gz`` file.

    Raises:
        FileNotFoundError: A file of the checkout is missing.
        DataError: A file is malformed; file and item are named.
    """
    source = Source()
    if path.is_file():
        return source.dataset("webnlg2020", [_recorded(where, r) for where, r in jsonl_rows(source, path)])
    results = path / EVALUATION / "results/en"
    tables = source.json(path / EVALUATION / "amt-scripts/data/en/tables/tables_xml.json")
    triples = {sample: _triples(table, sample) for sample, table in tables.items()}
    systems = sorted(p.name for p in results.iterdir() if p.is_dir())  # a folder's own order differs by machine
    done = []
    for system in systems:
        if system == REFERENCE:
            source.leave_out("reference texts, no system", system)
            continue
        done += _system(source, path, results / system / "primary.json", system, triples)
    return source.dataset("webnlg2020", done)


def _system(
    source: Source, path: Path, ratings: Path, system: str, triples: dict[str, list[list[str]]]
) -> list[dspy.Example]:
    outputs = source.read(path / f"submissions/rdf2text/en/{system}/primary.en").split("\n")
    done = []
    for sample, raters in sorted(source.json(ratings).items(), key=lambda pair: int(pair[0])):
        where = f"{ratings}, sample {sample}"
        if sample not in triples or not 1 <= int(sample) <= len(outputs):
            raise DataError(f"{where} has no input or no output: the checkout is not complete.")
        output = outputs[int(sample) - 1].strip()
        reason = "empty output" if not output else "no ratings" if not raters else None
        if reason:
            source.leave_out(reason, f"{system}/{sample}")
            continue
        means = {name: _mean(raters, column, where) for name, column in CRITERIA.items()}
        done.append(_example(f"{system}/{sample}", triples[sample], output, means, system, sample))
    return done


def _mean(raters: dict[str, Any], column: str, where: str) -> float:
    found = [ratings.get(column) for ratings in raters.values()]
    if not all(isinstance(r, int | float) and 0 <= r <= 100 for r in found):
        raise DataError(f"{where}: the ratings on {column} are {found}; they must be numbers from 0 to 100.")
    return float(sum(found) / len(found))


def _triples(table: str, sample: str) -> list[list[str]]:
    cells = [html.unescape(cell) for cell in _CELL.findall(table)]
    if not cells or len(cells) % 3:
        raise DataError(f"The table of sample {sample} has {len(cells)} cells: it must have three a row.")
    return [cells[i : i + 3] for i in range(0, len(cells), 3)]


def _recorded(where: str, record: dict[str, Any]) -> dspy.Example:
    triples = record.get("triples")
    if not isinstance(triples, list) or not all(isinstance(t, list) and len(t) == 3 for t in triples):
        raise DataError(f"{where}: 'triples' is {triples!r}; it must hold lists of subject, predicate and object.")
    sample, system = str(record.get("sample_id")), text(record, "system", where)
    output = text(record, "output", where)
    return _example(text(record, "id", where), triples, output, scores(record, where), system, sample)


def _example(
    name: str, triples: list[list[str]], output: str, rated: dict[str, float], system: str, sample: str
) -> dspy.Example:
    triples = [[part.replace("_", " ").strip() for part in triple] for triple in triples]  # as the raters saw them
    rows = "".join(f"\n  <triple>{escape(' | '.join(triple))}</triple>" for triple in triples)
    xml = f"<entry>{rows}\n</entry>"
    return example(id=name, source=xml, output=output, scores=rated, system=system, input_id=sample, triples=triples)
