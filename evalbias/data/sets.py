"""The known data sets, one section each: how a row of ``evalbias.data.read`` is made of the published files.

A section is a generator of (place, row). Its docstring says what the path is; what a judge of the set is asked is in
sets.json. Rows have the fields that any file may have, and are checked in the same way.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from evalbias.data.files import Rows, Source, csv_rows
from evalbias.data.items import DataError, number, ratings, scores, text
from evalbias.values import read_json


@dataclass(frozen=True, kw_only=True)
class KnownSet:
    """Published data set."""

    rows: Callable[[Source], Rows]
    rated: Sequence[str] = ()  # criteria on which every item has a score, null where undefined; by default all
    # Name -> definition, in our own words, or (definition, scale). Those of webnlg2020 and tmu-gfm say what the prompts
    # of Ohi et al. (2024, appendices A and B) say.
    criteria: Mapping[str, str | tuple[str, tuple[int, int]]] = field(default_factory=dict)
    scale: tuple[int, int] = (1, 5)  # of the criteria that name none
    task: str = ""  # instruction under which the outputs were written
    labels: tuple[str, str] = ("Source", "Output")  # words that introduce source and output in a prompt
    bins: tuple[float, ...] | None = None  # edges that cut people's scores into labels; of webnlg2020, the paper's
    signs: Sequence[str] = ()  # columns of a record, or a path in a folder, by which the set is recognised
    groups: str | None = None  # field whose values name the groups of items that the set was made to tell apart


SETS: dict[str, KnownSet] = {}  # known data sets by the name with which a path is read as one
_ASKED = read_json(Path(__file__).with_name("sets.json"), "install evalbias again")


def data_set(name: str, **more: Any) -> Callable[[Callable[[Source], Rows]], Callable[[Source], Rows]]:
    """Register the function below as the reader of a data set; see ``KnownSet``."""

    def register(rows: Callable[[Source], Rows]) -> Callable[[Source], Rows]:
        about = _ASKED.get(name, {}) | more
        SETS[name] = KnownSet(rows=rows, **({"rated": tuple(about.get("criteria", ()))} | about))
        return rows

    return register


def known_set(path: Path, columns: Sequence[str] = ()) -> str | None:
    """Return the name of the known data set that a folder, or a file with these columns, seems to hold."""
    signs = {sign: name for name, known in SETS.items() for sign in known.signs}
    held = [s for s in signs if ((path / s).exists() if path.is_dir() else {*s.split()} <= {*columns})]
    return signs[max(held, key=len)] if held else None


def _known(code: object, what: str, codes: Mapping[str, int]) -> int:
    """Return what a code stands for; one that is none of them is refused."""
    if str(code) not in codes:
        raise DataError(f"{what} is {code!r:.80}; it must be one of {', '.join(codes)}.")
    return codes[str(code)]


LABELS = {"1": 0, "2": 1}  # label of the better output -> its index


# WebNLG+ 2020 (Castro Ferreira et al. 2020): English texts of 16 systems, rated 0 to 100 on five criteria.

RESULTS = "evaluation/human-evaluation/results/en"
TABLES = "evaluation/human-evaluation/amt-scripts/data/en/tables/tables_xml.json"
SUBMISSIONS = "submissions/rdf2text/en"
REFERENCE = "WebNLG-2020-reference"
_CELL = re.compile(r'<td class="tg-0lax">(.*?)</td>', re.DOTALL)
_RATED = ("correctness", "data_coverage", "fluency", "relevance", "text_structure")  # as Correctness, DataCoverage, ...


@data_set("webnlg2020")
def webnlg(source: Source) -> Rows:
    """Path: a checkout of the challenge's repository, or our recording.

    The source is the triples as XML, made from the tables that the raters saw, and ``input_id`` the line of the test
    set. A score is the mean over the raters, whose single ``ratings`` a checkout has. Reference texts, and items and
    systems without ratings, are left out.
    """
    for where, record in _checkout(source) if source.path.is_dir() else source.json_lines():
        triples = record.get("triples")
        if not isinstance(triples, list) or not triples or not all(map(_is_triple, triples)):
            raise DataError(
                f"{where}: 'triples' is {triples!r:.80}; it must hold [subject, predicate, object] strings."
            )
        shown = [[part.replace("_", " ").strip() for part in triple] for triple in triples]  # as the raters saw them
        xml = "".join(f"\n  <triple>{escape(' | '.join(triple))}</triple>" for triple in shown)
        sample = number(record.get("sample_id"), f"{where}: sample_id", low=1, texts=True, required=True)
        row: dict[str, Any] = {name: text(record, name, where) for name in ("id", "system")}
        row |= {"input_id": f"{sample:.0f}", "source": f"<entry>{xml}\n</entry>", "triples": shown}
        row["output"] = text(record, "output", where, blank=True).strip()
        yield where, row | {name: record[name] for name in ("scores", "ratings", "n_annotators") if name in record}


def _is_triple(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value)


def _checkout(source: Source) -> Rows:
    results, submissions, tables = (source.path / folder for folder in (RESULTS, SUBMISSIONS, TABLES))
    # 1. the triples of the rated samples, in the order of the test set
    cells = source.json_object(tables)
    if wrong := [sample for sample in cells if not (sample.isdecimal() and int(sample) > 0)]:
        raise DataError(f"{tables}: the samples {wrong[:5]} are not line numbers of the test set; download it again.")
    triples = {sample: _triples(cells[sample], f"{tables}, sample {sample}") for sample in sorted(cells, key=int)}
    # 2. the outputs of the rated systems: line k is sample k
    systems, submitted = _folders(results), _folders(submissions)
    outputs = _outputs(source, {name: submissions / name / "primary.en" for name in systems if name != REFERENCE})
    # 3. their ratings
    for system in systems:
        file = results / system / "primary.json"
        rated = source.json_object(file)
        if unknown := sorted(set(rated) - set(triples)):
            raise DataError(f"{file}: the samples {unknown[:5]} have no table in {TABLES}; complete the checkout.")
        if system == REFERENCE:
            for sample in rated:
                source.leave_out("reference text", f"{system}/{sample}")
            continue
        for sample, facts in triples.items():
            name, where, lines = f"{system}/{sample}", f"{file}, sample {sample}", outputs[system]
            if rated.get(sample, {}) == {}:
                source.leave_out("no ratings", name)
                continue
            given = _ratings_by_criterion(rated[sample], where)
            if int(sample) > len(lines):
                raise DataError(
                    f"{where} is rated, but the system's primary.en has only {len(lines)} lines; download it again."
                )
            row = {"id": name, "system": system, "sample_id": sample, "output": lines[int(sample) - 1]}
            yield name, row | {"triples": facts, "ratings": given, "n_annotators": len(rated[sample])}
    for system in sorted(set(submitted) - set(systems)):
        source.leave_out("system without ratings", system)


def _triples(table: object, where: str) -> list[list[str]]:
    cells = [html.unescape(cell) for cell in _CELL.findall(table)] if isinstance(table, str) else []
    if not cells or len(cells) % 3:
        raise DataError(f"{where} holds {len(cells)} table cells; it must hold three for every triple.")
    return [cells[i : i + 3] for i in range(0, len(cells), 3)]


def _folders(path: Path) -> list[str]:
    """List the subfolders in sorted order, because a folder's own order differs between machines."""
    names = sorted(p.name for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
    if not names:
        raise DataError(f"{path} contains no system folder; give the top folder of a WebNLG 2020 challenge checkout.")
    return names


def _outputs(source: Source, files: Mapping[str, Path]) -> dict[str, list[str]]:
    """Read system -> lines and check that all have the same number, because a missing line shifts all later ones."""
    outputs = {system: source.text(path).removesuffix("\n").split("\n") for system, path in files.items()}
    lengths = Counter(len(lines) for lines in outputs.values())
    usual = lengths.most_common(1)[0][0] if lengths else 0
    if differing := {str(files[s]): len(lines) for s, lines in outputs.items() if len(lines) != usual}:
        raise DataError(
            f"Most systems have {usual} lines, but {differing}; line k must be sample k, so download these files again."
        )
    return outputs


def _ratings_by_criterion(raters: object, where: str) -> dict[str, list[float]]:
    if not isinstance(raters, dict) or not all(isinstance(rater, dict) for rater in raters.values()):
        raise DataError(f"{where} holds {raters!r:.80}; it must hold the raters, each with a rating per criterion.")

    def one(rater: Mapping[str, Any], who: str, name: str) -> float:
        return number(rater.get(name), f"{where}, {who}: {name}", low=0, high=100, required=True)

    names = {criterion: criterion.title().replace("_", "") for criterion in _RATED}
    return {criterion: [one(rater, who, name) for who, rater in raters.items()] for criterion, name in names.items()}


# TMU-GFM (Yoshimura et al. 2020): corrected sentences rated 0 to 4 on grammar, fluency and meaning.

_ASPECTS = {"grammar": ("grammer", "ave_g"), "fluency": ("fluency", "ave_f"), "meaning": ("meaning", "ave_m")}
"""Aspect -> the columns of its five ratings, so spelled, and of their mean."""
_COLUMNS = {"source", "output", "system", *(column for columns in _ASPECTS.values() for column in columns)}
RATERS = 5
ROUNDING = 0.01  # the means are published with one decimal place or more


@data_set("tmu-gfm", rated=tuple(_ASPECTS))
def tmu_gfm(source: Source) -> Rows:
    """Path: the published CSV file, or our recording; both give the same items.

    ``system`` lists the systems that share the output, separated by commas. The rating 0 means "other": it is NaN in
    ``ratings`` and does not enter the published mean, which is undefined without any other rating.
    """
    for where, record in source.json_lines() if source.recorded else _published_tmu_gfm(source):
        row = {name: text(record, name, where, blank=name == "output") for name in ("id", "source", "output", "system")}
        given = ratings(record.get("annotations"), where)
        counted = {aspect: [one if one > 0 else math.nan for one in single] for aspect, single in given.items()}
        yield where, row | {"scores": record.get("scores"), "ratings": counted}


def _published_tmu_gfm(source: Source) -> Rows:
    rows = list(csv_rows(source))
    if missing := sorted(_COLUMNS - {*(rows[0][1] if rows else ())}):
        raise DataError(f"{source.path}:1 lacks the columns {missing}; give the CSV file of TMU-GFM.")
    for index, (where, row) in enumerate(rows):
        annotations, means = {}, {}
        for aspect, (column, mean) in _ASPECTS.items():
            cells = row[column].split(",")
            if len(cells) != RATERS or not all(cell in {"0", "1", "2", "3", "4"} for cell in cells):
                raise DataError(
                    f"{where}: {column} is {row[column]!r:.80}; it must hold {RATERS} ratings from 0 to 4 between "
                    "commas."
                )
            annotations[aspect] = single = list(map(int, cells))
            means[aspect] = _mean(row[mean], single, f"{where}: {mean}")
        yield where, row | {"id": f"tmu-{index:04d}", "annotations": annotations, "scores": means}


def _mean(cell: str, single: Sequence[int], where: str) -> float:
    """Return the published mean after checking it against its ratings; NaN if all of them are 0."""
    counted = [one for one in single if one > 0]
    if not counted:
        return math.nan
    mean, exact = number(cell, where, texts=True, required=True), sum(counted) / len(counted)
    if abs(mean - exact) > ROUNDING:
        raise DataError(
            f"{where} is {cell}, but the ratings {single} without 0 have the mean {exact:.3f}; correct one."
        )
    return mean


# Newsroom (Grusky et al. 2018): 60 news articles with seven summaries each, rated 1 to 5 on four aspects.


@data_set("newsroom")
def newsroom(source: Source) -> Rows:
    """Path: the published JSON file, or our recording; both give the same items.

    ``input_id`` is the document. The id adds the place among the document's summaries, which does not identify the
    system. The published texts are HTML: paragraphs become lines, and entities become characters.
    """
    seen = Counter[str]()
    for where, record in source.json_list():
        document, article = text(record, "doc_id", where), text(record, "source", where)
        summary = text(record, "summary" if source.recorded else "system_output", where, blank=True)
        if not source.recorded:
            article, summary = (html.unescape(one.replace("</p><p>", "\n")) for one in (article, summary))
        row = {"id": f"newsroom-{document}-{seen[document]}", "input_id": document, "source": article}
        yield where, row | {"output": summary, "scores": record.get("scores")}
        seen[document] += 1


# SummEval (Fabbri et al. 2021): articles with 16 summaries each, rated 1 to 5 by three experts on four aspects.


@data_set("summeval")
def summeval(source: Source) -> Rows:
    """Path: ``model_annotations.aligned.paired.jsonl`` (100 articles), or our recording of 70 articles.

    ``input_id`` is the document; the id joins it with ``system``. A score is the mean over the experts, whose single
    ``ratings`` are given where they are known.
    """
    for where, record in source.json_lines():
        recorded = "summary" in record
        if not recorded and "text" not in record:
            raise DataError(
                f"{where}: 'text' is missing: the annotations must be paired with the news articles first. SummEval's "
                "pairing script writes model_annotations.aligned.paired.jsonl."
            )
        names = ("doc_id", "system", "source", "summary") if recorded else ("id", "model_id", "text", "decoded")
        document, system, article, summary = (text(record, name, where, blank=name == names[3]) for name in names)
        row: dict[str, Any] = {"id": f"{document}/{system}", "input_id": document, "system": system, "source": article}
        row |= {"output": summary, "scores": record.get("scores") if recorded else None}
        experts = record.get("expert_annotations")
        if not recorded or experts is not None:
            row["ratings"] = _expert_ratings(experts, where)
        yield where, row


def _expert_ratings(experts: Any, where: str) -> dict[str, list[float]]:
    rated: dict[str, list[float]] = {}
    given = experts if isinstance(experts, list) else []
    for aspect in ("coherence", "consistency", "fluency", "relevance"):
        if not given or not all(isinstance(one, dict) and aspect in one for one in given):
            raise DataError(f"{where}: 'expert_annotations' must be a list of objects that each hold {aspect!r}.")
        rated[aspect] = [number(one[aspect], f"{where}: {aspect}", low=1, high=5, required=True) for one in given]
    return rated


# Judgments of 1,200 SummEval summaries by GPT-4, GPT-3.5 and Llama 2 (Shen et al. 2023), beside the experts' ratings.

_OPTIONS = {letter: score for score, letter in enumerate("ABCDE", start=1)}
_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_SCORE = rf"([1-5](?:\.\d+)?|{'|'.join(_WORDS)})\b"
_STATED = [
    re.compile(pattern)
    for pattern in (
        rf"final score\W*(?:(?:is|of)\W+)?{_SCORE}",
        rf"scor(?:e|es|ed|ing)\W+(?:(?:is|of|it|this|the|summary|fluency|an?|as|at)\W+)*{_SCORE}",
        rf"{_SCORE}(?:(?: ?/ ?| out of )(?:5|five)| stars?)",
        rf"{_SCORE}\W*$",
    )
]
"""Where an answer states its score, in lower case; the first that is there counts, and of it the first place."""


@data_set("summeval-judges", criteria=SETS["summeval"].criteria)
def summeval_judges(source: Source) -> Rows:
    """Path: a checkout of the repository DAMO-NLP-SG/LLM_summeval.

    Items are summaries of 12 systems with the experts' ``ratings`` and every judge's scores: the folder and the file
    below ``eval_model_generations`` name the field, such as ``gpt-4-0314/coherence_rts``. A score is the option chosen
    (``mcq``) or the one that an answer states ("Final score: 4", "4 out of 5"); None where it states none. Of two
    answers about one summary, the last counts. The source is the article in ``comp_data``, tokenized as the summaries.
    """
    annotated, judged = (source.path / folder for folder in ("model_output_annotations", "eval_model_generations"))
    files, compared = sorted(annotated.glob("M*_outputs_annotations.jsonl")), [*source.path.glob("comp_data/*.txt")]
    if not (files and compared):
        raise DataError(
            f"{source.path} lacks model_output_annotations/M*_outputs_annotations.jsonl or comp_data/*.txt; give a "
            "checkout of LLM_summeval."
        )
    articles = {text(r, "id", where): text(r, "src", where) for where, r in source.json_lines(min(compared))}
    for file in files:
        system, given = file.name.partition("_")[0], dict[str, dict[str, float | None]]()
        # the answers of every judge about this system's summaries: document -> field -> score
        for aspect in SETS["summeval-judges"].criteria:
            for answers in sorted(judged.glob(f"*/eval_{system}_generations/{aspect}_*.txt")):
                name = f"{answers.parts[-3]}/{answers.stem}"
                for where, record in source.json_lines(answers):
                    answer = text(record, "resp", where)
                    score = _OPTIONS.get(answer.strip()) if answers.stem.endswith("mcq") else _stated(answer)
                    given.setdefault(text(record, "id", where), {})[name] = score
        for where, record in source.json_lines(file):
            document, summary = text(record, "id", where), text(record, "decoded", where, blank=True)
            if document not in articles:
                raise DataError(f"{where}: {min(compared)} has no article {document!r:.80}; download both again.")
            row: dict[str, Any] = {"id": f"{document}/{system}", "input_id": document, "system": system}
            row |= {"source": articles[document], "output": summary}
            row["ratings"] = _expert_ratings(record.get("expert_annotations"), where)
            yield where, row | given.get(document, {})


def _stated(answer: str) -> float | None:
    """Return the score from 1 to 5 that an answer in prose states; None where it states none."""
    for pattern in _STATED:
        if stated := pattern.search(answer.lower()):
            return float(_WORDS.get(stated[1], stated[1]))
    return None


# TopicalChat-USR (Mehri and Eskenazi 2020): 60 dialogues with six responses each, rated on six aspects.


@data_set("topicalchat")
def topicalchat(source: Source) -> Rows:
    """Path: the published JSON file, or our recording; both give the same items.

    The source is the dialogue, followed on its own line by the fact that the response should use, if it has one (else
    ``fact`` is None). ``input_id`` is the number of the dialogue; the id adds the place among its responses.
    """
    names = ("source", "context", "system_output", "system_id")
    if source.recorded:
        names = ("context", "fact", "response", "system")
    ours = {"maintains_context": "coherence", "uses_knowledge": "groundedness"}  # as our recording names them
    numbers: dict[tuple[str, str], int] = {}
    seen = Counter[int]()
    for where, record in source.json_list():
        dialogue, fact, reply, system = (text(record, name, where, blank=name == names[2]).strip() for name in names)
        place = numbers.setdefault((dialogue, fact), len(numbers))
        row: dict[str, Any] = {"id": f"topicalchat-{place:02d}-{seen[place]}", "input_id": f"{place:02d}"}
        row |= {"system": system, "fact": None if fact == "_nofact" else fact, "output": reply}
        row["source"] = dialogue if row["fact"] is None else f"{dialogue}\nFact: {fact}"
        given = scores(record.get("scores"), where).items()
        yield where, row | {"scores": {ours.get(name, name): score for name, score in given}}
        seen[place] += 1


# LLMBar (Zeng et al. 2024): pairs of outputs of one instruction, one of which follows it objectively better.


@data_set("llmbar")
def llmbar(source: Source) -> Rows:
    """Path: the repository's folder ``Dataset``, or a ``dataset.json`` in it; or our recording.

    Of a folder, every ``dataset.json`` below it is read, without ``CaseStudy``. Items have ``set``, such as
    ``LLMBar-Natural``; the id is the set and the place in it. Recorded verdicts are added by ``evalbias.data.join``.
    """
    path = source.path
    if source.recorded:
        yield from source.json_lines()
        return
    files = sorted(f for f in path.rglob("dataset.json") if "CaseStudy" not in f.relative_to(path).parts)
    if path.is_dir() and not files:
        raise DataError(f"{path} holds no dataset.json; give the folder 'Dataset' of LLMBar's repository.")
    for file in files if path.is_dir() else [path]:
        parts = file.resolve().parent.parts  # .../Dataset/LLMBar/Natural
        depth = parts[-2::-1].index("Dataset") + 1 if "Dataset" in parts[:-1] else 1
        name = "-".join(parts[-depth:])
        for index, (where, record) in enumerate(source.json_list(file)):
            row: dict[str, Any] = {"id": f"{name}/{index}", "set": name, "source": text(record, "input", where)}
            row["outputs"] = [text(record, f"output_{k}", where, blank=True) for k in (1, 2)]
            yield where, row | {"better": _known(record.get("label"), f"{where}: 'label'", LABELS)}


# EvalBiasBench (Park et al. 2024): 80 pairs in which a bias of one of six kinds favors the worse output.


@data_set("evalbiasbench", groups="bias")
def evalbiasbench(source: Source) -> Rows:
    """Path: the published ``biasbench.json``, or our recording; both give the same items.

    Items have ``bias``, its kind. The better output always stands first (``better`` is 0), so a judge that prefers the
    first position is right on all of them: ask in both orders.
    """
    if source.recorded:
        yield from source.json_lines()
        return
    for bias, records in source.json_object(source.path).items():
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise DataError(f"{source.path}: {bias!r} holds {records!r:.80}; it must hold a list of records.")
        for index, record in enumerate(records):
            where = f"{source.path}: {bias}[{index}]"
            row: dict[str, Any] = {"id": f"{bias.replace(' ', '-')}/{index}", "bias": bias}
            row["source"] = text(record, "instruction", where)
            row["outputs"] = [text(record, f"response{k}", where, blank=True) for k in (1, 2)]
            yield where, row | {"better": _known(record.get("label"), f"{where}: 'label'", LABELS)}


# JudgeBench (Tan et al. 2025): pairs of answers by one model, one right and one wrong, and verdicts of many judges.

_DECISIONS = {"A>B": 0, "B>A": 1, "A=B": -1}


@data_set("judgebench")
def judgebench(source: Source) -> Rows:
    """Path: a file of the repository's folder ``outputs``, the verdicts of one judge; or of ``data``, pairs alone.

    ``winner`` and ``winner_swapped`` are the judge's choices in both orders (0 or 1 of the pair as it stands, -1 for a
    tie, None where it named none); ``subset`` is the set that the question is from, and ``systems`` the one writer.
    """
    for where, record in source.json_lines():
        row: dict[str, Any] = {"id": text(record, "pair_id", where), "subset": text(record, "source", where)}
        row |= {"source": text(record, "question", where), "systems": [text(record, "response_model", where)] * 2}
        row["outputs"] = [text(record, f"response_{side}", where, blank=True) for side in "AB"]
        row["better"] = _known(record.get("label"), f"{where}: a decision", _DECISIONS)
        judgments = record.get("judgments", [])
        if not isinstance(judgments, list) or not all(isinstance(one, dict | None) for one in judgments):
            raise DataError(f"{where}: 'judgments' is {judgments!r:.80}; it must be a list of objects.")
        for name, judgment in zip(("winner", "winner_swapped"), judgments, strict=False):
            decision = None if judgment is None else judgment.get("decision")
            chosen = None if decision is None else _known(decision, f"{where}: a decision", _DECISIONS)
            row[name] = 1 - chosen if chosen in (0, 1) and name == "winner_swapped" else chosen
        yield where, row


# PandaLM's test set (Wang et al. 2024): pairs of outputs with the choices of three people and of two judges.

_JUDGES = {
    "gpt35": ("gpt-3.5-turbo-testset-v1.json", "gpt_result"),
    "pandalm7b": ("pandalm-7b-testset-v1.json", "pandalm_result"),
}
"""Recorded judge -> its file and field in the repository."""
_CHOICES = {"0": -1, "1": 0, "2": 1, "Tie": -1}


@data_set("pandalm")
def pandalm(source: Source) -> Rows:
    """Path: the repository's folder ``data``, its ``testset-v1.json`` alone (without judges), or our recording.

    Items have ``systems``; ``annotators``, three choices as published (0 tie, 1 first, 2 second); ``ratings``, the same
    as differences (1 the first output is better, 0 a tie, -1 the second); ``better``, the choice of at least two
    people, None for a tie; and recorded choices of ``gpt35`` and ``pandalm7b`` (0 or 1, -1 for a tie, None where
    unreadable). Six outputs of one word are published as the JSON value ``true``; they are read as ``True``.
    """
    for where, record in source.json_lines() if source.recorded else _published_pandalm(source):
        annotators, outputs = record.get("annotators"), record.get("outputs")
        if not isinstance(annotators, list) or not annotators or not all(one in (0, 1, 2) for one in annotators):
            raise DataError(f"{where}: the annotators' choices are {annotators!r:.80}; each must be 0, 1 or 2.")
        ((common, count),) = Counter(annotators).most_common(1)
        row: dict[str, Any] = {
            "outputs": [str(one) if one is True else one for one in outputs] if isinstance(outputs, list) else outputs,
            "systems": text(record, "systems", where).split("_"),
            "ratings": [{0: 0.0, 1: 1.0, 2: -1.0}[one] for one in annotators],
            "better": _CHOICES[str(common)] if common and count > len(annotators) / 2 else None,
        }
        yield where, record | row | {name: _CHOICES.get(str(record[name])) for name in _JUDGES if name in record}


def _published_pandalm(source: Source) -> Rows:
    path = source.path
    verdicts: dict[str, dict[str, Any]] = {}
    for judge, (name, field_name) in _JUDGES.items() if path.is_dir() else ():
        verdicts[judge] = {str(r.get("idx")): r.get(field_name) for _, r in source.json_list(path / name)}
    for where, record in source.json_list(path / "testset-v1.json" if path.is_dir() else None):
        instruction, given, idx = text(record, "instruction", where, blank=True), record.get("input"), record.get("idx")
        row = {
            "id": f"pandalm/{idx}",
            "systems": record.get("cmp_key"),
            "source": f"{instruction}\n\n{given}" if isinstance(given, str) and given.strip() else instruction,
            "outputs": [record.get(f"response{k}") for k in (1, 2)],
            "annotators": [record.get(f"annotator{k}") for k in (1, 2, 3)],
        }
        yield where, row | {judge: choices.get(str(idx)) for judge, choices in verdicts.items()}
