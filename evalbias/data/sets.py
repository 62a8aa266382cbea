"""Read data: users' own files by format, and the published data sets by name."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import dspy

from evalbias.data.cells import DataError, check_labels, number, ratings, scores, text
from evalbias.data.columns import listed
from evalbias.data.files import FORMATS, HUB, Dataset, Source, Table, file_table, format_of, hub_table, memory_table
from evalbias.data.items import item_name, items_of, load_records

# EvalBiasBench (Park et al. 2024): 80 pairs in which a bias of one of six kinds favors the worse output.


def load_evalbiasbench(path: Path) -> Dataset:
    """Read the published ``biasbench.json``, or its recorded JSONL form; both give the same items.

    Items have the fields of pairs and ``bias``, its kind. The better output always stands first (``better`` is 0), so a
    judge that prefers the first position is right on all of them: ask in both orders.

    Raises:
        DataError: A record is malformed; the message names the place.
    """
    source = Source("evalbiasbench", path)
    recorded = path.name.endswith((".jsonl", ".jsonl.gz"))
    return load_records(source, source.rows() if recorded else _published(source))


def _published(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    for bias, records in source.json_object(source.path).items():
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise DataError(f"{source.path}: {bias!r} holds {records!r:.80}; it must hold a list of records.")
        for index, record in enumerate(records):
            where = f"{source.path}: {bias}[{index}]"
            if record.get("label") not in (1, 2):
                raise DataError(f"{where}: 'label' is {record.get('label')!r:.80}; it must be 1 or 2.")
            outputs = [text(record, f"response{number}", where, blank=True) for number in (1, 2)]
            row = {
                "id": f"{bias.replace(' ', '-')}/{index}",
                "bias": bias,
                "source": text(record, "instruction", where),
            }
            yield where, {**row, "outputs": outputs, "better": record["label"] - 1}


# LLMBar (Zeng et al. 2024): pairs of outputs of one instruction, one of which follows it objectively better.


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
    return load_records(source, (row for file in files for row in _published_llmbar(source, file)))


def _published_llmbar(source: Source, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
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


# Newsroom (Grusky et al. 2018): 60 news articles with seven summaries each, rated 1 to 5 on four aspects.


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


# PandaLM's test set (Wang et al. 2024): pairs of outputs with the choices of three people and of two judges.


ITEMS = "testset-v1.json"
VERDICTS = {
    "gpt35": ("gpt-3.5-turbo-testset-v1.json", "gpt_result"),
    "pandalm7b": ("pandalm-7b-testset-v1.json", "pandalm_result"),
}
"""Recorded judge -> its file and field in the repository."""
PANDALM_CHOICES: Mapping[object, int] = {0: -1, 1: 0, 2: 1, "0": -1, "1": 0, "2": 1, "Tie": -1}
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
    rows = source.rows() if recorded else _published_pandalm(source, path)
    return load_records(source, ((where, _item(record, where)) for where, record in rows))


def _published_pandalm(source: Source, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
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
        **{judge: PANDALM_CHOICES.get(record[judge]) for judge in VERDICTS if judge in record},
    }


def _majority(annotators: Sequence[int]) -> int | None:
    choice, count = Counter(annotators).most_common(1)[0]
    return PANDALM_CHOICES[choice] if count > len(annotators) / 2 and choice else None


# SummEval (Fabbri et al. 2021): articles with 16 summaries each, rated 1 to 5 by three experts on four aspects.


SUMMEVAL_ASPECTS = ("coherence", "consistency", "fluency", "relevance")
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
        source.add(_summeval_item(record, where, recorded="summary" in record), where)
    return source.dataset()


def _summeval_item(record: Mapping[str, Any], where: str, *, recorded: bool) -> dict[str, Any]:
    if not recorded and "text" not in record:
        raise DataError(
            f"{where}: 'text' is missing: the annotations must be paired with the news articles first. SummEval's "
            "pairing script writes model_annotations.aligned.paired.jsonl."
        )
    document, system, article, summary = FIELDS[recorded]
    fields = {"input_id": text(record, document, where), "system": text(record, system, where)}
    experts = record.get("expert_annotations")
    ratings = (
        {}
        if recorded and experts is None
        else {aspect: _ratings(experts, aspect, where) for aspect in SUMMEVAL_ASPECTS}
    )
    means = {aspect: sum(given) / len(given) for aspect, given in ratings.items()}
    return {
        "id": f"{fields['input_id']}/{fields['system']}",
        **fields,
        "source": text(record, article, where),
        "output": text(record, summary, where, blank=True),
        "scores": scores(record, where, required=SUMMEVAL_ASPECTS) if recorded else means,
        **({"ratings": ratings} if ratings else {}),
    }


def _ratings(experts: Any, aspect: str, where: str) -> list[float]:
    if not isinstance(experts, list) or not experts or not all(isinstance(e, dict) and aspect in e for e in experts):
        raise DataError(f"{where}: 'expert_annotations' must be a list of objects that each hold {aspect!r}.")
    return [number(e[aspect], f"{where}: {aspect}", low=1, high=5) for e in experts]


# TMU-GFM (Yoshimura et al. 2020): corrected sentences rated 0 to 4 on grammar, fluency and meaning.
#
# Each cell of the CSV file holds five ratings; another column holds their published mean. The rating 0 means "other"
# and does not enter the mean, which is undefined without any other rating. The grammar column is spelled ``grammer``.


TMU_GFM_ASPECTS = {"grammar": ("grammer", "ave_g"), "fluency": ("fluency", "ave_f"), "meaning": ("meaning", "ave_m")}
COLUMNS = frozenset({"source", "output", "system", *(column for pair in TMU_GFM_ASPECTS.values() for column in pair)})
RATERS = 5
ROUNDING = 0.01  # the means are published with one decimal place or more


def load_tmu_gfm(path: Path) -> Dataset:
    """Read the published CSV file, or its recorded JSONL form; both give the same items.

    ``system`` lists the systems that share the output, separated by commas; ``ratings`` maps each aspect to its five
    ratings, NaN for the rating 0; the id is the row number. Items with an empty output are left out.

    Raises:
        DataError: A row is malformed; the message names file and line.
    """
    source = Source("tmu-gfm", path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        for where, record in source.rows():
            fields = {name: text(record, name, where) for name in ("id", "source", "system")}
            single = ratings({"ratings": record.get("annotations")}, where)
            rated = {"scores": scores(record, where, required=TMU_GFM_ASPECTS), "ratings": _without_other(single)}
            source.add({**fields, **rated, "output": text(record, "output", where, blank=True)}, where)
        return source.dataset()
    for index, (where, row) in enumerate(_rows(source)):
        given = {name: _tmu_gfm_ratings(row[column], where, column) for name, (column, _) in TMU_GFM_ASPECTS.items()}
        means = {name: _mean(row[mean], given[name], where, mean) for name, (_, mean) in TMU_GFM_ASPECTS.items()}
        fields = {"source": text(row, "source", where), "output": row["output"], "system": text(row, "system", where)}
        source.add({"id": f"tmu-{index:04d}", **fields, "scores": means, "ratings": _without_other(given)}, where)
    return source.dataset()


def _rows(source: Source) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (``file:line``, row) for every row, with the number of its first line."""
    path = source.path
    reader = csv.reader(io.StringIO(source.read(path), newline=""), strict=True)
    line = 1
    try:
        header = next(reader, [])
        missing = sorted(COLUMNS - set(header))
        if missing:
            raise DataError(f"{path}:1 lacks the columns {missing}; give the CSV file of TMU-GFM.")
        line = reader.line_num + 1
        for cells in reader:
            if len(cells) != len(header):
                raise DataError(f"{path}:{line} has {len(cells)} cells, the header has {len(header)}; correct the row.")
            yield f"{path}:{line}", dict(zip(header, cells, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{line} is not valid CSV ({error}); correct the row.") from error


def _without_other(given: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {name: [float(r) if r > 0 else math.nan for r in row] for name, row in given.items()}


def _tmu_gfm_ratings(cell: str, where: str, column: str) -> list[int]:
    parts = cell.split(",")
    if len(parts) != RATERS or not all(part in {"0", "1", "2", "3", "4"} for part in parts):
        raise DataError(f"{where}: {column} is {cell!r:.80}; it must hold {RATERS} ratings from 0 to 4 between commas.")
    return [int(part) for part in parts]


def _mean(cell: str, given: list[int], where: str, column: str) -> float:
    """Return the published mean after checking it against its ratings; NaN if all of them are 0."""
    counted = [r for r in given if r > 0]
    if not counted:
        return math.nan
    try:
        mean = number(float(cell), f"{where}: {column}")
    except ValueError as error:
        raise DataError(f"{where}: {column} is {cell!r:.80}; it must be a finite number.") from error
    exact = sum(counted) / len(counted)
    if abs(mean - exact) > ROUNDING:
        raise DataError(
            f"{where}: {column} is {cell}, but the ratings {given} without 0 have the mean {exact:.3f}; correct one."
        )
    return mean


# TopicalChat-USR (Mehri and Eskenazi 2020): 60 dialogues with six responses each, rated on six aspects.


TOPICALCHAT_ASPECTS = ("understandability", "naturalness", "coherence", "engagingness", "groundedness", "overall")
RECORDED = {"maintains_context": "coherence", "uses_knowledge": "groundedness"}
"""Names of aspects in the recorded form -> names used here."""

TOPICALCHAT_FIELDS = {
    False: ("source", "context", "system_output", "system_id"),
    True: ("context", "fact", "response", "system"),
}
"""Names of the fields for dialogue, fact, response and system in the published (False) and recorded (True) form."""

NO_FACT = "_nofact"


def load_topicalchat(path: Path) -> Dataset:
    """Read the published JSON file, or its recorded JSONL form; both give the same items.

    The source is the dialogue, followed on its own line by the fact that the response should use, if it has one (else
    ``fact`` is None). ``input_id`` is the number of the dialogue; the id adds the position among its responses.

    Raises:
        DataError: A record is malformed; the message names the file and the line or item.
    """
    source = Source("topicalchat", path)
    recorded = path.name.endswith((".jsonl", ".jsonl.gz"))
    names = TOPICALCHAT_FIELDS[recorded]
    numbers: dict[tuple[str, str], int] = {}
    places: dict[int, int] = {}
    for where, record in source.rows() if recorded else source.json_records():
        dialogue, fact, output, system = (text(record, name, where, blank=name == names[2]).strip() for name in names)
        number = numbers.setdefault((dialogue, fact), len(numbers))
        places[number] = places.get(number, -1) + 1
        stated_fact = None if fact == NO_FACT else fact
        renamed = {RECORDED.get(k, k): v for k, v in scores(record, where).items()}
        source.add(
            {
                "id": f"topicalchat-{number:02d}-{places[number]}",
                "input_id": f"{number:02d}",
                "system": system,
                "fact": stated_fact,
                "source": dialogue if stated_fact is None else f"{dialogue}\nFact: {stated_fact}",
                "output": output,
                "scores": scores({"scores": renamed}, where, required=TOPICALCHAT_ASPECTS),
            },
            where,
        )
    return source.dataset()


# WebNLG+ 2020 (Castro Ferreira et al. 2020): English texts of 16 systems, rated 0 to 100 on five criteria.
#
# The loader reads a checkout of the challenge's repository or the recorded JSONL form, which give the same items. The
# source is the triples as XML, made from the tables that the raters saw.


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
        source.add(_webnlg_item(names, sample, facts, output=_line(outputs, int(sample), where), **rated), name)


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
    return _webnlg_item(
        {name: text(record, name, where) for name in ("id", "system")},
        f"{number(record.get('sample_id'), f'{where}: sample_id', low=1):.0f}",
        triples,
        output=text(record, "output", where, blank=True).strip(),
        scores=scores(record, where, required=CRITERIA),
        n_annotators=record.get("n_annotators"),
    )


def _is_triple(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value)


def _webnlg_item(names: Mapping[str, str], sample: str, triples: Triples, **rated: Any) -> dict[str, Any]:
    triples = [[part.replace("_", " ").strip() for part in triple] for triple in triples]  # as the raters saw them
    rows = "".join(f"\n  <triple>{escape(' | '.join(triple))}</triple>" for triple in triples)
    return {**names, "source": f"<entry>{rows}\n</entry>", "input_id": sample, "triples": triples, **rated}


# Read data: files, data in memory, the Hugging Face hub, and known data sets by name.


LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "webnlg2020": load_webnlg,
    "tmu-gfm": load_tmu_gfm,
    "newsroom": load_newsroom,
    "summeval": load_summeval,
    "topicalchat": load_topicalchat,
    "llmbar": load_llmbar,
    "evalbiasbench": load_evalbiasbench,
    "pandalm": load_pandalm,
}
"""Known data sets, whose columns and criteria need not be named."""
GROUPS = {"evalbiasbench": "bias"}
"""Known data set -> field whose values name the groups of items that it was made to tell apart."""


def read(
    source: Any,
    *,
    mapping: Mapping[str, str] | None = None,
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
) -> Dataset:
    """Read items to judge, or pairs to compare, with what people and other judges said about them.

    Fields of an item: ``id`` (by default the number of its line or row), ``source`` (the input; judges recorded by
    others may lack it), ``output``, people's ``score`` on the criterion that is judged or ``scores`` (criterion ->
    number), single ``ratings`` (list, or criterion -> list), ``system`` (the writer) and ``input_id``. A pair has two
    ``outputs`` instead, which become ``candidates``, ``systems``, and ``better``: 0 or 1 (also A or B), the one that
    people prefer.
    Tables spell lists as ``rating_1, rating_2, ...``, ``output_1, output_2`` and ``system_1, system_2``. All other
    columns stay under their names. Empty cells are undefined: None, or NaN for scores. Items with an empty output, and
    pairs of two, are left out; see ``Dataset.left_out``.

    Args:
        source: A ``.jsonl``, ``.json``, ``.csv``, ``.tsv`` or ``.parquet`` file (also ``.gz``); ``NAME:PATH`` of a
            known data set, see ``load``; ``hf:NAME`` or ``hf:NAME:SPLIT`` of the Hugging Face hub; a pandas data frame;
            or dicts or ``dspy.Example``.
        mapping: Our field -> the source's column, such as ``{"source": "question", "output": "answer"}``.
        choices: Field of recorded choices between two outputs, after the mapping -> codes of the first output, the
            second and a tie, such as ``{"better": (1, 2, "tie")}``; no codes where 0 or ``"A"`` is the first, 1 or
            ``"B"`` the second, and -1 or ``"tie"`` neither. The items have 0, 1, -1 or None.
        numbers: Fields of recorded numbers, such as a judge's scores. The items have a number or None.

    Returns:
        List of ``dspy.Example``.

    Raises:
        DataError: A row is not a valid item, or a column is missing; the message names the place and the likely column.
        ValueError: The source is unknown, a mapping or codes are given for a known data set, or the codes of a field do
            not tell the outputs apart.
        FileNotFoundError: The file does not exist.
        ImportError: A library that reads the source is not installed.

    Examples:
        >>> (item,) = read([{"question": "What is 2 + 2?", "output": "4", "score": 5}], mapping={"source": "question"})
        >>> item.source, item.score
        ('What is 2 + 2?', 5.0)
    """
    for labels in (choices or {}).values():
        check_labels(labels)
    if isinstance(source, str | os.PathLike):
        name, path = parse_spec(os.fspath(source))
        if name in LOADERS:
            if mapping:
                raise ValueError(f"The columns of {name} are known: give {name}:{path} without a mapping (--map).")
            if any((choices or {}).values()):
                raise ValueError(f"The choices of {name} are known: give {name}:{path} without labels (--labels).")
            return load(name, path)
    return items_of(read_table(source, mapping=mapping), choices=choices, numbers=numbers)


def read_table(source: Any, *, mapping: Mapping[str, str] | None = None) -> Table:
    """Read the rows of a source that is no known data set, under our column names; arguments and errors as in ``read``.

    The rows need no output.
    """
    if not isinstance(source, str | os.PathLike):
        return memory_table(source, mapping)
    name, path = parse_spec(os.fspath(source))
    if name == HUB:
        return hub_table(path, mapping)
    if name in LOADERS:
        raise ValueError(f"{source}: {name} holds outputs to judge; give a file with the fields that are needed here.")
    _check_exists(path)
    return file_table(name, Path(path), mapping)


def load(name: str, path: str | os.PathLike[str]) -> Dataset:
    """Read a known data set, or a file whose format is named.

    Args:
        name: ``webnlg2020``, ``tmu-gfm``, ``newsroom``, ``summeval`` or ``topicalchat``; of pairs,
            ``llmbar``, ``evalbiasbench`` or ``pandalm``; or a format: ``jsonl``,
            ``json``, ``csv``, ``tsv`` or ``parquet``.
        path: File or folder as published by the authors of the data set; each loader describes its form.

    Raises:
        ValueError: The name is unknown, or (``DataError``) a file is malformed or missing from a folder.
        FileNotFoundError: ``path`` does not exist.
    """
    if name not in LOADERS and name not in FORMATS:
        raise ValueError(f"The data set {name!r} is unknown; choose one of {sorted([*LOADERS, *FORMATS])}.")
    _check_exists(path)
    return LOADERS[name](Path(path)) if name in LOADERS else items_of(file_table(name, Path(path)))


def parse_spec(spec: str) -> tuple[str, str]:
    """Split ``NAME:PATH`` into name and path; the name of a path alone is its format, from the ending.

    Raises:
        ValueError: The text has neither form.

    Examples:
        >>> parse_spec("tmu-gfm:ratings.csv"), parse_spec("outputs.csv.gz"), parse_spec("hf:owner/name:test")
        (('tmu-gfm', 'ratings.csv'), ('csv', 'outputs.csv.gz'), ('hf', 'owner/name:test'))
    """
    name, colon, path = spec.partition(":")
    if colon and (name in LOADERS or name in FORMATS or name == HUB) and path:
        return name, path
    if (ending := format_of(spec)) is not None:
        return ending, spec
    what = "is a folder, not a file of data" if Path(spec).is_dir() else "names no data"
    raise ValueError(
        f"{spec!r} {what}; give a file that ends in {', '.join('.' + name for name in FORMATS)} (also .gz), NAME:PATH "
        f"with a NAME of {', '.join(sorted(LOADERS))}, or hf:NAME. Save a spreadsheet as CSV (in UTF-8)."
    )


def _check_exists(path: str | os.PathLike[str]) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; check the path.")


# Add what stands in another table, such as the recorded verdicts of a judge, to items by their ids.


def join(examples: Sequence[dspy.Example], rows: Any, **chosen: Any) -> Dataset:
    """Add the columns of another table to the items with the same ``id``.

    Args:
        examples: Items with ``id``.
        rows: File, data frame or list of dicts with a column ``id``; see ``read``.
        **chosen: Column -> its value in the rows to use, such as ``judge="ChatGPT", prompt="Vanilla"``.

    Returns:
        The items that have a row, in their order; the others are in ``left_out``.

    Raises:
        DataError: No item has a row, an item has several, a column does not exist, or item and row have a column with
            different values.

    Examples:
        >>> item, verdict = dspy.Example(id="a", output="Yes."), {"id": "a", "judge": "mine", "verdict": 4}
        >>> join([item], [verdict], judge="mine")[0].verdict
        4
    """
    table = read_table(rows)
    name, columns = str(table.source.path), table.columns
    for column in ("id", *chosen):
        if column not in columns:
            raise DataError(f"{name} has no column {column!r}; it has {listed(columns)}.")
    rows_by_id: dict[str, dict[str, Any]] = {}
    for where, row in table.rows:
        if row.get("id") is None:
            raise DataError(f"{where} has no 'id'; name the item that the row is about.")
        if all(row.get(column) == value for column, value in chosen.items()):
            first = rows_by_id.setdefault(str(row["id"]), row)
            if first is not row:
                differing = {c: (first.get(c), row.get(c)) for c in columns if first.get(c) != row.get(c)}
                raise DataError(
                    f"{where}: a second row for the item {row['id']!r:.80}, with other values {differing!r:.400}; "
                    "choose one by its columns, such as join(..., judge=NAME)."
                )
    joined = [_with(e, rows_by_id[str(e.get("id"))], name) for e in examples if str(e.get("id")) in rows_by_id]
    if not joined:
        raise DataError(f"No item has a row in {name} with {chosen}: compare the ids and the chosen values.")
    missing = [str(e.get("id")) for e in examples if str(e.get("id")) not in rows_by_id]
    before = examples if isinstance(examples, Dataset) else None
    left_out = {**(before.left_out if before else {}), **({f"no row in {name}": missing} if missing else {})}
    sha256 = hashlib.sha256(f"{before.sha256 if before else ''} {table.source.digest.hexdigest()} {chosen}".encode())
    return Dataset(
        joined,
        name=before.name if before else "list",
        path=before.path if before else Path("list"),
        sha256=sha256.hexdigest(),
        left_out=left_out,
    )


def _with(example: dspy.Example, row: dict[str, Any], name: str) -> dspy.Example:
    joined = example.copy()
    for column, value in row.items():
        if column == "id":
            continue
        if column in example and example[column] != value:
            raise DataError(
                f"The item {item_name(example)!r:.80} and its row in {name} both have {column!r:.80}, "
                f"{example[column]!r:.80} and {value!r:.80}; rename one of the columns."
            )
        joined[column] = value
    return joined
