"""WebNLG+ 2020 (Castro Ferreira et al. 2020): English texts of 16 systems, rated 0 to 100 on five criteria.

The loader reads a checkout of the challenge's repository or the recorded JSONL form, which give the same items. The
source is the triples as XML, made from the tables that the raters saw.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.reading import Source, number, scores, text

RESULTS = "evaluation/human-evaluation/results/en"
TABLES = "evaluation/human-evaluation/amt-scripts/data/en/tables/tables_xml.json"
SUBMISSIONS = "submissions/rdf2text/en"
REFERENCE = "WebNLG-2020-reference"
CRITERIA = {
    "correctness": "Correctness",
    "data_coverage": "DataCoverage",
    "fluency": "Fluency",
    "relevance": "Relevance",
    "text_structure": "TextStructure",
}
_CELL = re.compile(r'<td class="tg-0lax">(.*?)</td>', re.DOTALL)
Triples = list[list[str]]


def load_webnlg(path: Path) -> Dataset:
    """Read the folder of a checkout, or a ``.jsonl`` or ``.jsonl.gz`` file.

    Items have ``system``, ``input_id`` (line of the test set), ``triples`` and ``n_annotators``; a score is the mean
    over the annotators. Those of a checkout have the single ``ratings`` too. Reference texts, empty outputs, and items
    and systems without ratings are left out.

    Raises:
        DataError: A file is missing or malformed; the message names the file and the line or sample.
    """
    source = Source("webnlg2020", path)
    if path.is_dir():
        _read_checkout(source)
    else:
        for where, record in source.rows():
            source.add(_recorded(record, where), where)
    return source.dataset()


def _read_checkout(source: Source) -> None:
    results, submissions = source.path / RESULTS, source.path / SUBMISSIONS
    triples = _tables(source, source.path / TABLES)
    rated, submitted = _folders(results), _folders(submissions)
    outputs = _outputs(source, {s: submissions / s / "primary.en" for s in rated if s != REFERENCE})
    for system in rated:
        file = results / system / "primary.json"
        ratings = source.json_object(file)
        unknown = sorted(set(ratings) - set(triples))
        if unknown:
            raise DataError(f"{file}: the samples {unknown[:5]} have no table in {TABLES}; complete the checkout.")
        if system == REFERENCE:
            for sample in ratings:
                source.leave_out("reference text", f"{system}/{sample}")
        else:
            _read_system(source, system, file, triples, outputs[system], ratings)
    for system in sorted(set(submitted) - set(rated)):
        source.leave_out("system without ratings", system)


def _read_system(
    source: Source,
    system: str,
    file: Path,
    triples: Mapping[str, Triples],
    outputs: Sequence[str],
    ratings: Mapping[str, Any],
) -> None:
    for sample, facts in triples.items():
        name, where = f"{system}/{sample}", f"{file}, sample {sample}"
        if ratings.get(sample, {}) == {}:
            source.leave_out("no ratings", name)
            continue
        rated = _rated(ratings[sample], where)
        names = {"id": name, "system": system}
        source.add(_item(names, sample, facts, output=_line(outputs, int(sample), where), **rated), name)


def _folders(path: Path) -> list[str]:
    """List the subfolders in sorted order, because a folder's own order differs between machines."""
    names = sorted(p.name for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
    if not names:
        raise DataError(f"{path} contains no system folder; give the top folder of a WebNLG 2020 challenge checkout.")
    return names


def _tables(source: Source, path: Path) -> dict[str, Triples]:
    """Read sample -> triples, in the order of the test set."""
    tables = source.json_object(path)
    invalid = [sample for sample in tables if not (sample.isdecimal() and int(sample) > 0)]
    if invalid:
        raise DataError(f"{path}: the samples {invalid[:5]} are not line numbers of the test set; download it again.")
    return {sample: _triples(tables[sample], f"{path}, sample {sample}") for sample in sorted(tables, key=int)}


def _triples(table: object, where: str) -> Triples:
    cells = [html.unescape(cell) for cell in _CELL.findall(table)] if isinstance(table, str) else []
    if not cells or len(cells) % 3:
        raise DataError(f"{where} holds {len(cells)} table cells; it must hold three for every triple.")
    return [cells[i : i + 3] for i in range(0, len(cells), 3)]


def _outputs(source: Source, files: Mapping[str, Path]) -> dict[str, list[str]]:
    """Read system -> lines and check that all have the same number, because a missing line shifts all later ones."""
    outputs = {system: source.read(path).removesuffix("\n").split("\n") for system, path in files.items()}
    lengths = Counter(len(lines) for lines in outputs.values())
    usual = lengths.most_common(1)[0][0] if lengths else 0
    differing = {str(files[s]): len(lines) for s, lines in outputs.items() if len(lines) != usual}
    if differing:
        raise DataError(
            f"Most systems have {usual} lines, but {differing}; line k must be sample k, so download these files again."
        )
    return outputs


def _line(lines: Sequence[str], number: int, where: str) -> str:
    if number > len(lines):
        raise DataError(
            f"{where} is rated, but the system's primary.en has only {len(lines)} lines; download it again."
        )
    return lines[number - 1].strip()


def _rated(raters: object, where: str) -> dict[str, Any]:
    if not isinstance(raters, dict) or not all(isinstance(r, dict) for r in raters.values()):
        raise DataError(f"{where} holds {raters!r:.80}; it must hold the raters, each with a rating per criterion.")
    ratings = {
        name: [number(r.get(column), f"{where}, {rater}: {column}", low=0, high=100) for rater, r in raters.items()]
        for name, column in CRITERIA.items()
    }
    means = {name: sum(given) / len(given) for name, given in ratings.items()}
    return {"scores": means, "ratings": ratings, "n_annotators": len(raters)}


def _recorded(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    triples = record.get("triples")
    if not isinstance(triples, list) or not triples or not all(_is_triple(t) for t in triples):
        raise DataError(f"{where}: 'triples' is {triples!r:.80}; it must hold [subject, predicate, object] strings.")
    return _item(
        {name: text(record, name, where) for name in ("id", "system")},
        f"{number(record.get('sample_id'), f'{where}: sample_id', low=1):.0f}",
        triples,
        output=text(record, "output", where, blank=True).strip(),
        scores=scores(record, where, required=CRITERIA),
        n_annotators=record.get("n_annotators"),
    )


def _is_triple(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value)


def _item(names: Mapping[str, str], sample: str, triples: Triples, **rated: Any) -> dict[str, Any]:
    triples = [[part.replace("_", " ").strip() for part in triple] for triple in triples]  # as the raters saw them
    rows = "".join(f"\n  <triple>{escape(' | '.join(triple))}</triple>" for triple in triples)
    return {**names, "source": f"<entry>{rows}\n</entry>", "input_id": sample, "triples": triples, **rated}
