"""Published data sets: each value is the recorded one, and what is printed is read back."""

import gzip
import json
import math
import re
from collections import Counter

import pytest
from commands import as_jsonl

import evalbias
from benchmarks import sets
from benchmarks.sets import BINS, FILES, read, stated
from evalbias import data
from evalbias.data import DataError
from evalbias.programs import PRESETS

READ = {  # items, inputs, what is left out, and the beginning of the SHA-256
    "webnlg2020": (2846, 178, {"no ratings": 1, "reference text": 178, "empty output": 1}, "a36f507e8983"),
    "tmu-gfm": (4221, 1378, {}, "4e3ede9107aa"),
    "newsroom": (420, 60, {}, "d743ce7aa4ba"),
    "topicalchat": (360, 60, {}, "f6361daa6fe1"),
    "summeval": (1120, 70, {}, "ab8603081d5b"),
    "llmbar": (885, None, {}, "ec44590cf8dd"),
    "pandalm": (699, None, {}, "a86050b22abe"),
}
RECORDED = {  # published set -> our recording of it, and how that names the fields
    "webnlg2020": ("webnlg2020_en.jsonl.gz", {}),
    "tmu-gfm": ("tmu_gfm.jsonl.gz", {}),
    "newsroom": ("newsroom.jsonl.gz", {"output": "summary"}),
    "topicalchat": ("topicalchat_usr.jsonl", {"output": "response"}),
    "summeval": ("summeval.jsonl.gz", {"output": "summary"}),
}


def records(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("name", READ)
def test_what_is_read_of_a_set(name):
    items = read(name)
    count, inputs, left_out, digest = READ[name]
    assert len(items) == count
    assert inputs in (None, len(data.by_input(items)))
    assert {reason: len(names) for reason, names in items.left_out.items()} == left_out
    assert items.sha256.startswith(digest)
    for criterion in PRESETS.get(name, ()):
        low, high = (0, 100) if name in BINS else criterion.scale
        scores = [item.scores[criterion.name] for item in items]
        assert all(low <= score <= high or math.isnan(score) for score in scores)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_every_value_is_the_recorded_one(name, data_dir):
    file, ours = RECORDED[name]
    names = {"coherence": "maintains_context", "groundedness": "uses_knowledge"} if name == "topicalchat" else {}
    for item, record in zip(read(name), records(data_dir / file), strict=True):
        assert item.output.split() == record[ours.get("output", "output")].split()
        scores = {one: record["scores"][names.get(one, one)] for one in item.scores}
        scores = {one: math.nan if score is None else score for one, score in scores.items()}
        assert item.scores == pytest.approx(scores, abs=1e-6, nan_ok=True)  # six digits are recorded
        assert set(item.inputs().keys()) == {"source", "output"}
        if name != "newsroom":
            assert item.system == record["system"]
        if name == "webnlg2020":
            assert (item.id, item.input_id) == (record["id"], str(record["sample_id"]))
            assert len(item.ratings["fluency"]) == item.n_annotators == record["n_annotators"]
            theirs = re.findall("<mtriple>(.*?)</mtriple>", record["xml"])
            triples = re.findall("<triple>(.*?)</triple>", item.source)
            assert [" ".join(t.replace("_", " ").split()) for t in theirs] == [" ".join(t.split()) for t in triples]
        elif name == "topicalchat":
            said = record["context"].strip().split()
            assert item.source.split()[: len(said)] == said
            assert (item.fact is None) == (record["fact"].strip() == "_nofact")
            assert item.fact is None or item.source.endswith(f"\nFact: {item.fact}")
        else:
            assert item.source.split() == record["source"].split()
        if name == "tmu-gfm":  # 0 means "other"
            for aspect, single in record["annotations"].items():
                assert item.ratings[aspect] == pytest.approx([r if r > 0 else math.nan for r in single], nan_ok=True)
        if name == "summeval" and record["expert_annotations"]:
            assert item.ratings["fluency"] == [expert["fluency"] for expert in record["expert_annotations"]]


def put(path, *content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in content), encoding="utf-8")
    return path


def test_a_mean_of_only_zero_ratings_is_undefined_and_ids_count_rows(tmp_path):
    rows = [
        ("s", "", *["4,4,4,4,4"] * 3, "lstm", *"444"),
        ("s", "o", "0,0,0,0,0", "4,0,0,0,0", "4,4,4,4,4", "x", *"044"),
    ]
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    path = put(tmp_path / "t.csv", "source,output,grammer,fluency,meaning,system,ave_g,ave_f,ave_m", *lines)
    (item,) = items = read("tmu-gfm", path)
    assert item.id == "tmu-0001"
    assert items.left_out == {"empty output": (f"{path}:2",)}
    assert math.isnan(item.scores["grammar"])
    assert item.scores["fluency"] == 4.0


def test_line_k_of_a_system_of_webnlg_is_sample_k(tmp_path):
    def table(*parts):
        return "".join(f'<td class="tg-0lax">{part}</td>' for part in parts)

    fair = {"Correctness": 90, "DataCoverage": 80, "Fluency": 70, "Relevance": 60, "TextStructure": 50}
    tables = {"10": table("A_b", "is &lt; than", "C"), "2": table("D", "e", "F", "G", "h", "&quot;I&quot;")}
    put(tmp_path / sets.TABLES, tables)
    for system in ("b", "a"):
        put(tmp_path / f"submissions/rdf2text/en/{system}/primary.en", *(f"{system}{k}" for k in range(1, 11)))
        rated = {"10": {"w1": fair, "w2": {**fair, "Fluency": 71}}, "2": {"w1": fair} if system == "a" else {}}
        put(tmp_path / sets.RESULTS / system / "primary.json", rated)
    put(tmp_path / sets.RESULTS / sets.REFERENCE / "primary.json", {"2": {"w1": fair}})
    items = read("webnlg2020", tmp_path)
    expected = [("a/2", "a2", "2"), ("a/10", "a10", "10"), ("b/10", "b10", "10")]
    assert [(e.id, e.output, e.input_id) for e in items] == expected
    assert (items[1].scores["fluency"], items[1].n_annotators, items[1].ratings["fluency"]) == (70.5, 2, [70.0, 71.0])
    assert items[1].source == "<entry>\n  <triple>A b | is &lt; than | C</triple>\n</entry>"
    assert items[0].triples == [["D", "e", "F"], ["G", "h", '"I"']]
    assert items.left_out == {"no ratings": ("b/2",), "reference text": ("WebNLG-2020-reference/2",)}
    put(tmp_path / "submissions/rdf2text/en/b/primary.en", *"bbb")
    with pytest.raises(DataError, match=r"'a': 10, 'b': 3"):
        read("webnlg2020", tmp_path)


STATED = {"The text drifts; final score: 2. It names 4 of 5 points.": 2, "Final Score: 3.5/5 (nearly good)": 3.5}
STATED |= {"It is clear, earning a score of 4 out of 5. Style: 5/5": 4, "It has no thread, so it scores a one.": 1}
STATED |= {"I would score this summary a 2 in terms of order.": 2, "Well kept, 3 out of 5 overall, not 4 out of 5.": 3}
STATED |= {"Four stars. It names 2 of the teams.": 4, "All sentences hold. 4.5": 4.5}
STATED |= {"The team won 6 to 3 in 1987, and the summary says so.": None}
"""What an invented judge answered -> the score that it states."""


def test_the_judges_of_summeval(tmp_path):
    assert {answer: stated(answer) for answer in STATED} == STATED
    experts = [{"coherence": 1, "consistency": 2, "fluency": 3, "relevance": 4}]
    experts.append(dict.fromkeys(experts[0], 5))
    names = ("doc-0", "doc-1", "doc-2", "doc-3")
    texts = [{"id": n, "decoded": f"Summary of {n}.", "expert_annotations": experts} for n in names]
    chosen = [("doc-0", "A"), ("doc-0", "E"), ("doc-1", " B\n"), ("doc-2", "F")]
    judge = tmp_path / "eval_model_generations/judge-9/eval_M8_generations"
    put(tmp_path / "model_output_annotations/M8_outputs_annotations.jsonl", *texts)
    put(tmp_path / "comp_data/M8-M9_fluency.txt", *({"id": n, "src": f"Article {n} ."} for n in names))
    put(judge / "coherence_rts.txt", *({"id": n, "resp": answer} for n, answer in zip(names, STATED, strict=False)))
    put(judge / "fluency_mcq.txt", *({"id": n, "resp": option} for n, option in chosen))
    items = read("summeval-judges", tmp_path)
    assert [e["judge-9/coherence_rts"] for e in items] == [2, 3.5, 4, 1]
    assert [e.get("judge-9/fluency_mcq", "none") for e in items] == [5, 2, None, "none"]  # the last of two counts
    first = items[0]
    assert (first.id, first.input_id, first.system) == ("doc-0/M8", "doc-0", "M8")
    assert (first.source, first.output) == ("Article doc-0 .", "Summary of doc-0.")
    assert first.ratings == {"coherence": [1, 5], "consistency": [2, 5], "fluency": [3, 5], "relevance": [4, 5]}
    assert first.scores["relevance"] == 4.5
    assert sets.SUMMARIES[0].task == "Summarize the article."


def test_judgebench_as_its_owners_publish_it_and_as_it_is_printed(tmp_path, capsys):
    rows = []
    for number, two in enumerate([("B>A", "A>B"), ("A>B", "A>B"), ("A=B", None), (None, "B>A")]):
        judgments = [None if one is None else {"judgment": {}, "decision": one} for one in two]
        texts = {"question": "2 + 2?", "response_A": "5", "response_B": "4", "response_model": "writer-9"}
        rows.append({"pair_id": f"{number}", "source": "sums", "label": "B>A", "judgments": judgments, **texts})
    path = as_jsonl(tmp_path / "a.jsonl", rows)
    items = read("judgebench", path)
    assert [(e.winner, e.winner_swapped) for e in items] == [(1, 1), (0, 1), (-1, None), (None, 0)]
    first = items[0]
    assert (first.source, first.candidates, first.better, first.subset) == ("2 + 2?", ["5", "4"], 1, "sums")
    assert first.systems == ["writer-9", "writer-9"]
    found = evalbias.audit(items, winner_field="winner", seed=0)
    assert found["agreement"]["accuracy"].value == pytest.approx((1 + 0 + 0.5) / 3)
    sets.main(["judgebench", str(path)])
    printed = data.read(put(tmp_path / "b.jsonl", capsys.readouterr().out))
    assert [e.toDict() for e in printed] == [e.toDict() for e in items]


def test_pandalm(data_dir):
    items = read("pandalm", data_dir / FILES["pandalm"])
    first = items[0]
    assert (first.systems, first.annotators) == (["bloom-7b", "llama-7b"], [2, 2, 2])
    assert (first.ratings, first.better, first.preference) == ([-1.0, -1.0, -1.0], 1, "B")
    assert (first.gpt35, first.pandalm7b) == (0, 1)
    assert Counter(e.gpt35 for e in items) == {0: 327, 1: 325, -1: 30, None: 17}
    assert Counter(e.pandalm7b for e in items) == {1: 321, 0: 292, -1: 86}
    # 260 + 19 first, 297 + 27 second, 62 + 8 + 5 ties; the 11 + 10 with one tie have a majority all the same
    assert Counter(e.better for e in items) == {0: 260 + 19 + 11, 1: 297 + 27 + 10, None: 62 + 8 + 5}
    assert "score" not in first
