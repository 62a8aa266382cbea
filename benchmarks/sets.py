"""Published data sets in the form that evalbias reads: what people, and some judges, said of outputs or pairs of them.

usage: python -m benchmarks.sets NAME PATH > ITEMS.jsonl

Each name is a function below, which says what the path is; ``evalbias --data ITEMS.jsonl`` reads what is printed.
Files are trusted to be the published ones: their hash stands on every page of results.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.harness import data_folder, lines
from evalbias import data
from evalbias.data.files import Rows, Source, csv_rows
from evalbias.data.items import DataError
from evalbias.programs.criterion import PRESETS
from evalbias.values import to_json

FILES = {
    "webnlg2020": "upstream/webnlg-challenge-2020",
    "tmu-gfm": "upstream/tmu-gfm-dataset.csv",
    "newsroom": "upstream/newsroom.json",
    "topicalchat": "upstream/topical_chat.json",
    "summeval": "summeval.jsonl.gz",
    "llmbar": "pairs/llmbar.jsonl.gz",
    "pandalm": "pairs/pandalm.jsonl.gz",
}
"""Data set -> its place below ``EVALBIAS_DATA``."""
BINS = {"webnlg2020": (15.0, 40.0, 65.0, 90.0)}
"""Edges that cut people's scores into labels, where they are on another scale (Ohi et al. 2024)."""
SUMMARIES = tuple(replace(criterion, task="Summarize the article.") for criterion in PRESETS["summeval"])
"""Criteria of SummEval, with the task that the likelihoods of its recorded judges are measured after."""


def read(name: str, path: Path | None = None) -> data.Dataset:
    """Read a data set by its name, by default from ``EVALBIAS_DATA``."""
    source = Source(name, data_folder(FILES[name]) if path is None else path)
    source.rows = list(SETS[name](source))
    return data.read(source)


def judged_summaries() -> list[dict[str, Any]]:
    """Return 1,200 summaries of SummEval with recorded judges, their articles, and log-likelihoods under SmolLM2."""
    articles = {article["input_id"]: article["source"] for article in lines("judges/summeval_documents.jsonl.gz")}
    likelihoods = {row["id"]: row["smollm2-135m-instruct"] for row in lines("judges/summeval_likelihoods.jsonl")}
    return [
        row | {"source": articles[row["input_id"]], "likelihood": likelihoods[row["id"]]}
        for row in lines("judges/summeval_scores.jsonl.gz")
    ]


RESULTS = "evaluation/human-evaluation/results/en"
TABLES = "evaluation/human-evaluation/amt-scripts/data/en/tables/tables_xml.json"
REFERENCE = "WebNLG-2020-reference"
RATED = {name: name.title().replace("_", "") for name in sorted(criterion.name for criterion in PRESETS["webnlg2020"])}
_CELL = re.compile(r'<td class="tg-0lax">(.*?)</td>', re.DOTALL)


def webnlg2020(source: Source) -> Rows:
    """Read English texts of 16 systems, rated from 0 to 100 (Castro Ferreira et al. 2020).

    The path is a checkout of the challenge's repository. The source is the triples as XML, made from the tables that
    the raters saw, and ``input_id`` the line of the test set. Reference texts, and items without ratings, are left out.
    """
    root, triples = source.path, dict[str, list[list[str]]]()
    for sample, table in sorted(json.loads(source.text(root / TABLES)).items(), key=lambda entry: int(entry[0])):
        cells = [html.unescape(cell).replace("_", " ").strip() for cell in _CELL.findall(table)]
        triples[sample] = [cells[i : i + 3] for i in range(0, len(cells), 3)]
    systems, outputs = sorted(folder.name for folder in (root / RESULTS).iterdir()), {}
    for system in (name for name in systems if name != REFERENCE):
        text = source.text(root / "submissions/rdf2text/en" / system / "primary.en")
        outputs[system] = text.removesuffix("\n").split("\n")
    counts = {system: len(lines) for system, lines in outputs.items()}
    if len({*counts.values()}) > 1:
        raise DataError(f"{root}: the systems have {counts} lines; line k must be sample k, so download it again.")
    for system in systems:
        rated = json.loads(source.text(root / RESULTS / system / "primary.json"))
        for sample in rated if system == REFERENCE else triples:
            name, raters = f"{system}/{sample}", rated.get(sample)
            if system == REFERENCE or not raters:
                source.leave_out("no ratings" if system != REFERENCE else "reference text", name)
                continue
            row = {"id": name, "system": system, "input_id": sample, "triples": triples[sample]}
            xml = "".join(f"\n  <triple>{escape(' | '.join(triple))}</triple>" for triple in triples[sample])
            row |= {"source": f"<entry>{xml}\n</entry>", "output": outputs[system][int(sample) - 1].strip()}
            row["ratings"] = {ours: [rater[theirs] for rater in raters.values()] for ours, theirs in RATED.items()}
            yield name, row | {"n_annotators": len(raters)}


ASPECTS = {"grammar": "grammer", "fluency": "fluency", "meaning": "meaning"}  # of TMU-GFM -> its column, so spelled


def tmu_gfm(source: Source) -> Rows:
    """Read corrected sentences, rated from 0 to 4 on grammar, fluency and meaning (Yoshimura et al. 2020).

    The path is the published CSV file. ``system`` lists the systems that share the output. The rating 0 means "other":
    it is NaN in ``ratings`` and does not enter the published mean, which is undefined without any other rating.
    """
    for index, (where, row) in enumerate(csv_rows(source)):
        kept: dict[str, Any] = {name: row[name] for name in ("source", "output", "system")}
        ratings, scores = {}, {}
        for aspect, column in ASPECTS.items():
            ratings[aspect] = single = [float(cell) or math.nan for cell in row[column].split(",")]
            scores[aspect] = math.nan if all(map(math.isnan, single)) else float(row[f"ave_{column[0]}"])
        yield where, kept | {"id": f"tmu-{index:04d}", "scores": scores, "ratings": ratings}


def newsroom(source: Source) -> Rows:
    """Read 60 news articles with seven summaries each, rated from 1 to 5 (Grusky et al. 2018).

    The path is the published JSON file. The id's number, the place among the summaries, does not tell the system.
    """
    seen = Counter[str]()
    for where, record in source.json_list():
        document = record["doc_id"]
        article, summary = (html.unescape(record[n].replace("</p><p>", "\n")) for n in ("source", "system_output"))
        row = {"id": f"newsroom-{document}-{seen[document]}", "input_id": document, "source": article}
        yield where, {**row, "output": summary, "scores": record["scores"]}
        seen[document] += 1


def topicalchat(source: Source) -> Rows:
    """Read 60 dialogues with six replies each, rated on six aspects (Mehri and Eskenazi 2020).

    The path is the published JSON file. The source is the dialogue, followed on its own line by the fact that the reply
    should use, if there is one (else ``fact`` is None).
    """
    numbers, seen = dict[tuple[str, str], int](), Counter[int]()
    for where, record in source.json_list():
        dialogue, fact, reply, system = (record[n].strip() for n in ("source", "context", "system_output", "system_id"))
        place = numbers.setdefault((dialogue, fact), len(numbers))
        row = {"id": f"topicalchat-{place:02d}-{seen[place]}", "input_id": f"{place:02d}", "system": system}
        row |= {"fact": None if fact == "_nofact" else fact, "output": reply, "scores": record["scores"]}
        yield where, {**row, "source": dialogue if fact == "_nofact" else f"{dialogue}\nFact: {fact}"}
        seen[place] += 1


def summeval(source: Source) -> Rows:
    """Read 70 articles with 16 summaries each, rated from 1 to 5 by three experts (Fabbri et al. 2021).

    The path is our recording. A score is the mean over the experts, whose single ``ratings`` are given where known.
    """
    for where, record in source.json_lines():
        document, system = record["doc_id"], record["system"]
        row = {"id": f"{document}/{system}", "input_id": document, "system": system, "source": record["source"]}
        experts = record["expert_annotations"]
        more = {} if experts is None else {"ratings": _expert_ratings(experts)}
        yield where, {**row, "output": record["summary"], "scores": record["scores"], **more}


def _expert_ratings(experts: Sequence[Any]) -> dict[str, list[float]]:
    return {name: [expert[name] for expert in experts] for name in sorted(criterion.name for criterion in SUMMARIES)}


_OPTIONS = {letter: score for score, letter in enumerate("ABCDE", start=1)}
_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_SCORE = rf"([1-5](?:\.\d+)?|{'|'.join(_WORDS)})\b"
_STATED = (
    rf"final score\W*(?:(?:is|of)\W+)?{_SCORE}",
    rf"scor(?:e|es|ed|ing)\W+(?:(?:is|of|it|this|the|summary|fluency|an?|as|at)\W+)*{_SCORE}",
    rf"{_SCORE}(?:(?: ?/ ?| out of )(?:5|five)| stars?)",
    rf"{_SCORE}\W*$",
)
"""Where an answer states its score, in lower case; the first that is there counts, and of it the first place."""


def summeval_judges(source: Source) -> Rows:
    """Read 1,200 summaries of SummEval with the scores of GPT-4, GPT-3.5 and Llama 2 (Shen et al. 2023).

    The path is a checkout of DAMO-NLP-SG/LLM_summeval. The folder and the file below ``eval_model_generations`` name
    the field of a judge's scores, such as ``gpt-4-0314/coherence_rts``. A score is the option chosen (``mcq``) or the
    one that an answer states; None where it states none. Of two answers about one summary, the last counts.
    """
    root = source.path
    articles = {record["id"]: record["src"] for _, record in source.json_lines(min(root.glob("comp_data/*.txt")))}
    for file in sorted(root.glob("model_output_annotations/M*_outputs_annotations.jsonl")):
        system, scored = file.name.partition("_")[0], defaultdict[str, dict[str, float | None]](dict)
        for criterion in SUMMARIES:
            answered = f"eval_model_generations/*/eval_{system}_generations/{criterion.name}_*.txt"
            for answers in sorted(root.glob(answered)):
                for _, record in source.json_lines(answers):
                    answer = record["resp"]
                    score = _OPTIONS.get(answer.strip()) if answers.stem.endswith("mcq") else stated(answer)
                    scored[record["id"]][f"{answers.parts[-3]}/{answers.stem}"] = score
        for where, record in source.json_lines(file):
            document = record["id"]
            row = {"id": f"{document}/{system}", "input_id": document, "system": system, "source": articles[document]}
            row |= {"output": record["decoded"], "ratings": _expert_ratings(record["expert_annotations"])}
            yield where, {**row, **scored[document]}


def stated(answer: str) -> float | None:
    """Return the score from 1 to 5 that an answer in prose states; None where it states none."""
    match = next(filter(None, (re.search(pattern, answer.lower()) for pattern in _STATED)), None)
    return None if match is None else float(_WORDS.get(match[1], match[1]))


_DECISIONS = {"A>B": 0, "B>A": 1, "A=B": -1, None: None}


def judgebench(source: Source) -> Rows:
    """Read pairs of answers by one model, one right and one wrong, with a judge's verdicts (Tan et al. 2025).

    The path is a file of the folder ``outputs`` of ScalerLab/JudgeBench. ``winner`` and ``winner_swapped`` are the
    judge's choices in both orders (0 or 1 of the pair as it stands, -1 for a tie, None where it named none).
    """
    for where, record in source.json_lines():
        row = {"id": record["pair_id"], "subset": record["source"], "source": record["question"]}
        row |= {"systems": [record["response_model"]] * 2, "better": _DECISIONS[record["label"]]}
        first, second = (_DECISIONS[(judgment or {}).get("decision")] for judgment in record["judgments"])
        row |= {"winner": first, "winner_swapped": 1 - second if second in (0, 1) else second}
        yield where, {**row, "outputs": [record["response_A"], record["response_B"]]}


_CHOICES = {"0": -1, "1": 0, "2": 1, "Tie": -1}


def pandalm(source: Source) -> Rows:
    """Read pairs of outputs with the choices of three people and of two judges (Wang et al. 2024).

    The path is our recording. ``annotators`` are choices as published (0 tie, 1 first, 2 second), ``better`` is that of
    most, None for a tie. ``gpt35`` and ``pandalm7b`` are 0 or 1, -1 for a tie, None where unreadable.
    """
    for where, record in source.json_lines():
        people = record["annotators"]
        ((common, count),) = Counter[int](people).most_common(1)
        ratings = [{0: 0.0, 1: 1.0, 2: -1.0}[choice] for choice in people]
        row = {"systems": record["systems"].split("_"), "ratings": ratings}
        row["outputs"] = [str(text) if text is True else text for text in record["outputs"]]  # as published
        row["better"] = _CHOICES[str(common)] if common and count > len(people) / 2 else None
        yield where, record | row | {judge: _CHOICES.get(str(record[judge])) for judge in ("gpt35", "pandalm7b")}


SETS: dict[str, Callable[[Source], Rows]] = {
    reader.__name__.replace("_", "-"): reader
    for reader in (webnlg2020, tmu_gfm, newsroom, topicalchat, summeval, summeval_judges, judgebench, pandalm)
} | {"llmbar": Source.json_lines}  # recorded under our names: pairs, one of which follows its instruction better
"""Data set -> its reader."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the items of a data set, one a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*SETS])
    parser.add_argument("path", type=Path)
    args = parser.parse_args(arguments)
    items = read(args.name, args.path)
    print(*(json.dumps(to_json(item.toDict())) for item in items), sep="\n")
    print(items.summary(), file=sys.stderr)


if __name__ == "__main__":
    main()
