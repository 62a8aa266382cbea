"""Every known data set: the published form is the recorded one, each value stands, and what is malformed is named."""

import gzip
import json
import math
import re
import shutil
from collections import Counter

import pytest
from commands import as_jsonl

import evalbias
from evalbias import data
from evalbias.data import DataError
from evalbias.data.sets import SETS
from evalbias.programs.criterion import BINS, PRESETS

FORMS = {  # published, recorded, items, inputs
    "webnlg2020": ("upstream/webnlg-challenge-2020", "webnlg2020_en.jsonl.gz", 2846, 178),
    "tmu-gfm": ("upstream/tmu-gfm-dataset.csv", "tmu_gfm.jsonl.gz", 4221, 1378),
    "newsroom": ("upstream/newsroom.json", "newsroom.jsonl.gz", 420, 60),
    "topicalchat": ("upstream/topical_chat.json", "topicalchat_usr.jsonl", 360, 60),
}


def published(name, data_dir):
    return data.read(f"{name}:{data_dir / FORMS[name][0]}")


def recorded(name, data_dir):
    return data.read(f"{name}:{data_dir / FORMS[name][1]}")


def refused(source, match):
    with pytest.raises(DataError, match=match):
        data.read(source)


def records(path):
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line) for line in content.decode("utf-8").split("\n") if line]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_the_published_form_equals_the_recorded_one(name, data_dir):
    ours, theirs, (*_, count, inputs) = published(name, data_dir), recorded(name, data_dir), FORMS[name]
    assert [e.id for e in ours] == [e.id for e in theirs]
    assert len(ours) == count
    assert len(data.by_input(ours)) == inputs
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.output.split(), mine.source.split()) == (other.output.split(), other.source.split())
        if name in ("webnlg2020", "tmu-gfm"):
            assert (mine.source, mine.output) == (other.source, other.output)
            assert mine.get("n_annotators") == other.get("n_annotators")
        assert mine.scores == pytest.approx(other.scores, abs=1e-6, nan_ok=True)  # six digits are recorded
        assert mine.get("system") == other.get("system")
        assert set(mine.inputs().keys()) == {"source", "output"}


def test_every_value_is_the_recorded_one(data_dir):
    items = recorded("tmu-gfm", data_dir)
    for item, record in zip(items, records(data_dir / FORMS["tmu-gfm"][1]), strict=True):
        assert all(item[name] == record[name] for name in ("id", "source", "output", "system"))
        scores = {k: math.nan if v is None else v for k, v in record["scores"].items()}
        assert item.scores == pytest.approx(scores, nan_ok=True)
        for aspect, single in record["annotations"].items():
            assert item.ratings[aspect] == pytest.approx([r if r > 0 else math.nan for r in single], nan_ok=True)
    for name, file in (("newsroom", "newsroom.jsonl.gz"), ("summeval", "summeval.jsonl.gz")):
        items = data.read(f"{name}:{data_dir / file}")
        for item, record in zip(items, records(data_dir / file), strict=True):
            assert (item.source, item.output, item.input_id) == (record["source"], record["summary"], record["doc_id"])
            assert item.scores == record["scores"]
    assert (len(items), len({e.input_id for e in items}), len({e.system for e in items})) == (1120, 70, 16)


@pytest.mark.parametrize("name", [name for name, known in SETS.items() if known.criteria and name != "summeval-judges"])
def test_the_criteria_of_a_set_are_rated_in_it_on_their_scale(name, data_dir):
    items = data.read(f"{name}:{data_dir / (FORMS[name][1] if name in FORMS else 'summeval.jsonl.gz')}")
    assert all(set(SETS[name].rated) <= e.scores.keys() for e in items)
    for criterion in PRESETS[name]:
        low, high = (0, 100) if name in BINS else criterion.scale
        assert all(low <= e.scores[criterion.name] <= high or math.isnan(e.scores[criterion.name]) for e in items)


def test_webnlg_has_the_recorded_triples_as_xml_and_the_ratings_of_every_worker(data_dir):
    items = published("webnlg2020", data_dir)
    for item, record in zip(items, records(data_dir / FORMS["webnlg2020"][1]), strict=True):
        assert (item.input_id, item.n_annotators) == (str(record["sample_id"]), record["n_annotators"])
        facts = [[part.replace("_", " ") for part in triple] for triple in record["triples"]]
        assert [[p.strip() for p in t] for t in facts] == item.triples
        theirs = re.findall("<mtriple>(.*?)</mtriple>", record["xml"])
        ours = re.findall("<triple>(.*?)</triple>", item.source)
        assert [" ".join(t.replace("_", " ").split()) for t in theirs] == [" ".join(t.split()) for t in ours]
        for criterion, single in item.ratings.items():
            assert len(single) == item.n_annotators
            assert sum(single) / len(single) == pytest.approx(item.scores[criterion])
    assert len({e.system for e in items}) == 16
    assert len({e.input_id for e in items}) == len({e.source for e in items}) == 178
    left_out = {reason: len(names) for reason, names in items.left_out.items()}
    assert left_out == {"empty output": 1, "no ratings": 1, "reference text": 178}
    assert items.summary().startswith("webnlg2020: 2846 items; 1 left out (")
    first = next(e for e in items if e.id == "Amazon_AI_(Shanghai)/3")
    assert first.source == "<entry>\n  <triple>MotorSport Vision | city | Fawkham</triple>\n</entry>"
    assert first.scores["correctness"] == 98.5


def test_tmu_gfm_leaves_the_rating_0_out_of_the_mean(data_dir):
    items = published("tmu-gfm", data_dir)
    undefined = [(e, a) for e in items for a, r in e.ratings.items() if any(map(math.isnan, r))]
    assert len(undefined) == 99
    for item, aspect in undefined:
        rest = [r for r in item.ratings[aspect] if not math.isnan(r)]
        mean = sum(rest) / len(rest) if rest else math.nan
        assert item.scores[aspect] == pytest.approx(mean, abs=0.01, nan_ok=True)


def test_the_hash_depends_only_on_the_contents(data_dir, tmp_path):
    shutil.copy(data_dir / FORMS["tmu-gfm"][0], tmp_path / "other-name.csv")
    assert data.read(f"tmu-gfm:{tmp_path / 'other-name.csv'}").sha256 == published("tmu-gfm", data_dir).sha256


def test_a_dialogue_without_a_fact_has_none(data_dir):
    items = data.read(f"topicalchat:{data_dir / 'topicalchat_usr.jsonl'}")
    without_fact = [e for e in items if e.fact is None]
    assert len(without_fact) == 48
    assert not any("_nofact" in e.source for e in items)
    assert items[0].source.endswith(f"\nFact: {items[0].fact}")


def test_summeval_in_its_published_form(data_dir, tmp_path):
    recorded = [r for r in records(data_dir / "summeval.jsonl.gz") if r["expert_annotations"]]
    names = {"id": "doc_id", "model_id": "system", "text": "source", "decoded": "summary"}
    rows = [
        {**{theirs: r[ours] for theirs, ours in names.items()}, "expert_annotations": r["expert_annotations"]}
        for r in recorded
    ]
    items = data.read(f"summeval:{as_jsonl(tmp_path / 'a.jsonl', rows)}")
    assert len(items) == len(recorded) == 840
    for item, record in zip(items, recorded, strict=True):
        assert item.scores == pytest.approx(record["scores"], abs=1e-6)
        assert item.ratings["fluency"] == [expert["fluency"] for expert in record["expert_annotations"]]
    whole = data.read(f"summeval:{data_dir / 'summeval.jsonl.gz'}")
    assert {e.id: e.ratings for e in whole if "ratings" in e} == {e.id: e.ratings for e in items}
    assert len(whole) == 1120


TMU = "source,output,grammer,fluency,meaning,system,ave_g,ave_f,ave_m\n"
ROW = {"source": "s", "output": "o", "grammer": "4,4,4,4,4", "fluency": "4,4,4,4,4", "meaning": "4,4,4,4,4"}


def row(**cells):
    """Return a CSV file of one valid row with the given cells replaced."""
    values = {**ROW, "system": "lstm", "ave_g": "4.0", "ave_f": "4.0", "ave_m": "4.0", **cells}
    return TMU + ",".join(f'"{cell}"' for cell in values.values()) + "\n"


def test_a_mean_of_only_zero_ratings_is_undefined_and_ids_count_rows(tmp_path):
    undefined = row(grammer="0,0,0,0,0", ave_g="0", fluency="4,0,0,0,0")
    (tmp_path / "t.csv").write_text(row(output="") + undefined[len(TMU) :])
    items = data.read(f"tmu-gfm:{tmp_path / 't.csv'}")
    assert [e.id for e in items] == ["tmu-0001"]
    assert items.left_out == {"empty output": (f"{tmp_path / 't.csv'}:2",)}
    assert math.isnan(items[0].scores["grammar"])
    assert items[0].scores["fluency"] == 4.0


# --- a checkout of the judges of SummEval ---

ANSWERS = {
    "The text drifts; final score: 2. It names 4 of 5 points.": 2,
    "Final Score: 3.5/5 (nearly good)": 3.5,
    "It is clear, earning a score of 4 out of 5. Style: 5/5": 4,
    "It has no thread, so it scores a one.": 1,
    "I would score this summary a 2 in terms of order.": 2,
    "Well kept, 3 out of 5 overall, not 4 out of 5.": 3,
    "Four stars. It names 2 of the teams.": 4,
    "All sentences hold. 4.5": 4.5,
    "The team won 6 to 3 in 1987, and the summary says so.": None,
}
"""What an invented judge answered -> the score that it states."""


def judges_of_summeval(root, answers=tuple(ANSWERS), options=("E", " B\n", "F")):
    documents = [f"doc-{k}" for k in range(len(answers))]
    experts = [{"coherence": 1, "consistency": 2, "fluency": 3, "relevance": 4}, dict.fromkeys(RATED, 5)]
    texts = [{"id": d, "decoded": f"Summary of {d}.", "expert_annotations": experts, "text": "-"} for d in documents]
    articles = [{"id": d, "src": f"Article {d} .", "summary_1": "-"} for d in documents]
    written = [{"id": d, "resp": answer, "prompt_len": 9} for d, answer in zip(documents, answers, strict=True)]
    chosen = [{"id": d, "resp": option} for d, option in zip(documents, options, strict=False)]
    for path, lines in {
        "model_output_annotations/M8_outputs_annotations.jsonl": texts,
        "comp_data/M8-M9_fluency.txt": articles,
        "eval_model_generations/judge-9/eval_M8_generations/coherence_rts.txt": written,
        "eval_model_generations/judge-9/eval_M8_generations/fluency_mcq.txt": [{"id": "doc-0", "resp": "A"}, *chosen],
    }.items():
        put(root / path, "\n".join(map(json.dumps, lines)))
    return root


RATED = ("coherence", "consistency", "fluency", "relevance")


def test_the_judges_of_summeval_as_their_owners_publish_them(tmp_path):
    items = data.read(f"summeval-judges:{judges_of_summeval(tmp_path)}")
    assert [e["judge-9/coherence_rts"] for e in items] == [*ANSWERS.values()]
    assert [e.get("judge-9/fluency_mcq", "none") for e in items][:4] == [5, 2, None, "none"]  # the last of two counts
    first = items[0]
    assert (first.id, first.input_id, first.system) == ("doc-0/M8", "doc-0", "M8")
    assert (first.source, first.output) == ("Article doc-0 .", "Summary of doc-0.")
    assert first.ratings == {"coherence": [1, 5], "consistency": [2, 5], "fluency": [3, 5], "relevance": [4, 5]}
    assert first.scores["relevance"] == 4.5
    assert PRESETS["summeval-judges"][0].task == "Summarize the article."


def test_incomplete_checkouts_of_the_judges_of_summeval_are_refused(tmp_path):
    judges_of_summeval(tmp_path / "a")
    put(tmp_path / "a/comp_data/M8-M9_fluency.txt", json.dumps({"id": "doc-1", "src": "Article."}))
    refused(f"summeval-judges:{tmp_path / 'a'}", r"jsonl:1: .*M8-M9_fluency\.txt has no article 'doc-0'; download")
    (tmp_path / "a/comp_data/M8-M9_fluency.txt").unlink()
    refused(f"summeval-judges:{tmp_path / 'a'}", r"lacks .* or comp_data/\*\.txt; give a checkout of LLM_summeval")


# --- a checkout of WebNLG ---

TABLES = "evaluation/human-evaluation/amt-scripts/data/en/tables/tables_xml.json"
CELL = '<td class="tg-0lax">{}</td>'
FAIR = {"Correctness": 90, "DataCoverage": 80, "Fluency": 70, "Relevance": 60, "TextStructure": 50}


def table(*parts):
    return "".join(CELL.format(part) for part in parts)


def ratings(root, system):
    return root / "evaluation/human-evaluation/results/en" / system / "primary.json"


def outputs(root, system):
    return root / "submissions/rdf2text/en" / system / "primary.en"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@pytest.fixture
def checkout(tmp_path):
    """Create a checkout with two systems and the reference, in which samples 2 and 10 of ten lines are rated."""
    put(
        tmp_path / TABLES,
        {"10": table("A_b", "is &lt; than", "C"), "2": table("D", "e", "F", "G", "h", "&quot;I&quot;")},
    )
    for system in ("b", "a"):
        put(outputs(tmp_path, system), "\n".join(f"{system}{k}" for k in range(1, 11)))
        put(ratings(tmp_path, system), {"10": {"w1": FAIR, "w2": {**FAIR, "Fluency": 71}}, "2": {"w1": FAIR}})
    put(ratings(tmp_path, "WebNLG-2020-reference"), {"2": {"w1": FAIR}})
    return tmp_path


def test_line_k_is_sample_k_in_the_order_of_systems_and_samples(checkout):
    items = data.read(f"webnlg2020:{checkout}")
    assert [(e.id, e.output, e.input_id) for e in items] == [
        ("a/2", "a2", "2"),
        ("a/10", "a10", "10"),
        ("b/2", "b2", "2"),
        ("b/10", "b10", "10"),
    ]
    assert items[1].scores["fluency"] == 70.5
    assert items[1].n_annotators == 2
    assert items[1].ratings["fluency"] == [70.0, 71.0]
    assert items[1].source == "<entry>\n  <triple>A b | is &lt; than | C</triple>\n</entry>"
    assert items[0].triples == [["D", "e", "F"], ["G", "h", '"I"']]
    assert items.left_out == {"reference text": ("WebNLG-2020-reference/2",)}


def test_items_left_out_are_listed_by_reason(checkout):
    before = data.read(f"webnlg2020:{checkout}").sha256
    assert data.read(f"webnlg2020:{checkout}").sha256 == before
    put(outputs(checkout, "a"), "\n".join(["a", " ", *"abcdefgh"]) + "\n")
    put(ratings(checkout, "b"), {"2": {}})
    put(outputs(checkout, "c"), "unrated")
    items = data.read(f"webnlg2020:{checkout}")
    assert [e.id for e in items] == ["a/10"]
    assert items.left_out == {
        "empty output": ("a/2",),
        "no ratings": ("b/2", "b/10"),
        "reference text": ("WebNLG-2020-reference/2",),
        "system without ratings": ("c",),
    }
    assert items.sha256 != before


def test_a_missing_line_is_refused(checkout):
    put(outputs(checkout, "c"), "\n".join("abcdefghi"))
    put(ratings(checkout, "c"), {"2": {"w1": FAIR}})
    refused(f"webnlg2020:{checkout}", r"Most systems have 10 lines, but .*c/primary\.en': 9")
    for system in "abc":
        put(outputs(checkout, system), "a\nb\nc\n")
    refused(f"webnlg2020:{checkout}", r"a/primary\.json, sample 10 is rated, but .* only 3 lines")


@pytest.mark.parametrize(
    ("place", "content", "match"),
    [
        ("b", "{", r"b/primary\.json:1 is not valid JSON"),
        ("b", "[1]", r"b/primary\.json holds \[1\]"),
        ("b", {"3": {"w": FAIR}}, r"b/primary\.json: the samples \['3'\] have no table"),
        ("b", {"2": [FAIR]}, r"b/primary\.json, sample 2 holds \[.* it must hold the raters"),
        ("b", {"2": {"w": 5}}, r"b/primary\.json, sample 2 holds \{'w': 5\}"),
        ("b", {"2": {"w": {**FAIR, "Fluency": 101}}}, "sample 2, w: Fluency is 101: give a number from 0 to 100"),
        ("b", {"2": {"w": {**FAIR, "Fluency": True}}}, "sample 2, w: Fluency is True"),
        ("b", {"2": {"w": {**FAIR, "Fluency": None}}}, "sample 2, w: Fluency is None"),
        ("b", '{"2": {"w": {"Correctness": NaN}}}', r"b/primary\.json:1 is not valid JSON \(NaN is not a JSON value"),
        (TABLES, {"2": table("a", "b")}, r"tables_xml\.json, sample 2 holds 2 table cells"),
        (TABLES, {"2": None}, "sample 2 holds 0 table cells"),
        (TABLES, {"x": table("a", "b", "c")}, r"the samples \['x'\] are not line numbers"),
    ],
)
def test_a_malformed_checkout_is_named(checkout, place, content, match):
    put(ratings(checkout, "b") if place == "b" else checkout / TABLES, content)
    refused(f"webnlg2020:{checkout}", match)


def test_a_missing_file_is_named(checkout):
    for missing in (ratings, outputs):
        content = missing(checkout, "b").read_text()
        missing(checkout, "b").unlink()
        refused(f"webnlg2020:{checkout}", r"b/primary\.\w+ is missing; give the file that webnlg2020 is read from")
        put(missing(checkout, "b"), content)
    shutil.rmtree(checkout / "submissions")
    refused(f"webnlg2020:{checkout}", "contains no system folder; give the top folder")


# --- what is malformed is named ---

WEBNLG = {"id": "a/2", "sample_id": 2, "system": "a", "triples": [["A_b", "c", "D"]], "output": "o", "n_annotators": 1}
WEBNLG |= {"scores": dict.fromkeys(SETS["webnlg2020"].rated, 50.0)}
EXPERTS = {"id": "d", "model_id": "M0", "text": "x", "decoded": "o", "expert_annotations": [{"coherence": 9}]}
PANDA = {"source": "q", "outputs": ["a", "b"], "systems": "x_y"}


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("webnlg2020", WEBNLG | {"triples": []}, r":1: 'triples' is \[\]"),
        ("webnlg2020", WEBNLG | {"triples": [["a", "b", 3]]}, ":1: 'triples' is"),
        ("webnlg2020", WEBNLG | {"triples": [["a", "b"]]}, ":1: 'triples' is"),
        ("webnlg2020", WEBNLG | {"sample_id": None}, ":1: sample_id is None"),
        ("webnlg2020", WEBNLG | {"scores": {"fluency": 1}}, r":1: 'scores' lacks \['correctness', .*null"),
        ("tmu-gfm", "a,b\n", r"lacks the columns \['ave_f'"),
        ("tmu-gfm", row(grammer="4,4,4,4,x"), ":2: grammer is '4,4,4,4,x'; it must hold 5 ratings from 0 to 4"),
        ("tmu-gfm", row(fluency="4,4"), "fluency is '4,4'; it must hold 5 ratings"),
        ("tmu-gfm", row(meaning="4,4,4,2,2"), r"ave_m is 4\.0, but the ratings \[4, 4, 4, 2, 2\] .* the mean 3\.200"),
        ("tmu-gfm", row(ave_g="nan"), "ave_g is 'nan': give a number"),
        ("tmu-gfm", row(source="a\nb") + "s,o,4,4\n", ":4 has 4 cells, the header has 9"),
        ("tmu-gfm", row(source=" "), ":2: 'source' is ' '"),
        ("newsroom", {}, "must be a JSON list of records"),
        ("newsroom", [{"doc_id": "1"}], r"\[0\]: 'source' is missing"),
        ("topicalchat", [{"source": "1"}], r"\[0\]: 'context' is missing"),
        ("summeval", {"id": "d"}, ":1: 'text' is missing: the annotations must be paired"),
        ("summeval", EXPERTS, ":1: coherence is 9: give a number from 1 to 5"),
        (
            "llmbar",
            [{"input": "q", "output_1": "a", "output_2": "b", "label": [1]}],
            r"'label' is \[1\]; it must be one of 1, 2",
        ),
        *(
            (
                "pandalm",
                PANDA | {"annotators": given},
                f":1: the annotators' choices are {re.escape(str(given))}; each must",
            )
            for given in ([3], [1, 1, [2]], [])
        ),
    ],
)
def test_a_malformed_record_is_named(tmp_path, name, content, match):
    recorded = name in ("webnlg2020", "summeval", "pandalm")  # in lines; the others in the published form
    file = tmp_path / ("x.jsonl" if recorded else "x.csv" if name == "tmu-gfm" else "x.json")
    put(file, content)
    refused(f"{name}:{file}", rf"x\.\w+{match}" if match[0] in ":" else match)


# --- sets of pairs ---


@pytest.fixture(scope="module")
def pairs(data_dir):
    return data_dir / "pairs"


# Correct in the given order, in the swapped order, agreement of both orders (Zeng et al. 2024, appendix, "Vanilla").
PUBLISHED = {
    ("ChatGPT", "LLMBar-Natural"): (80, 83, 71),
    ("LLaMA2", "LLMBar-Natural"): (79, 82, 79),
    ("Falcon", "LLMBar-Natural"): (71, 77, 52),
    ("ChatGPT", "LLMBar-Adversarial-Neighbor"): (30, 22, 96),
    ("LLaMA2", "LLMBar-Adversarial-Neighbor"): (34, 32, 104),
    ("Falcon", "LLMBar-Adversarial-Neighbor"): (70, 65, 57),
}


@pytest.mark.parametrize("judge", ["ChatGPT", "LLaMA2", "Falcon"])
def test_joined_verdicts_give_the_published_counts(pairs, judge):
    items = data.read(f"llmbar:{pairs / 'llmbar.jsonl.gz'}")
    assert len(items) == 885
    joined = data.join(items, pairs / "llmbar_verdicts.jsonl.gz", judge=judge, prompt="Vanilla")
    assert len(joined) == 419  # this prompt was not asked on the processed sets
    assert [len(ids) for ids in joined.left_out.values()] == [466]
    for (who, name), expected in PUBLISHED.items():
        if who == judge:
            of = [e for e in joined if e.set == name]
            right = [sum(e[field] == e.better for e in of) for field in ("winner", "winner_swapped")]
            assert (*right, sum(e.winner == e.winner_swapped for e in of)) == expected
    assert joined.sha256 != items.sha256


ROW_OF_LLMBAR = {"input": "q", "output_1": "a", "output_2": "b", "label": 2}


def dataset(folder, name):
    put(folder / "Dataset" / name / "dataset.json", [ROW_OF_LLMBAR])


def test_llmbar_as_its_owners_publish_it(tmp_path):
    for name in ("LLMBar/Natural", "LLMBar/Adversarial/Neighbor", "Processed/LLMEval^2", "CaseStudy/Base_9"):
        dataset(tmp_path, name)
    items = data.read(f"llmbar:{tmp_path / 'Dataset'}")
    names = ["LLMBar-Adversarial-Neighbor", "LLMBar-Natural", "Processed-LLMEval^2"]
    assert [e.id for e in items] == [f"{name}/0" for name in names]
    assert (items[0].source, items[0].candidates, items[0].better, items[0].preference) == ("q", ["a", "b"], 1, "B")
    (tmp_path / "empty").mkdir()
    refused(f"llmbar:{tmp_path / 'empty'}", r"holds no dataset\.json; give the folder 'Dataset'")


@pytest.mark.parametrize("above", ["evaluators", "CaseStudy", "Dataset", "evaluators/judge"])
def test_folders_above_the_repository_name_nothing(tmp_path, above):
    for name in ("LLMBar/Natural", "LLMBar/Adversarial/Neighbor", "CaseStudy/Base_9"):
        dataset(tmp_path / above, name)
    for given in ("", "Dataset", "Dataset/LLMBar"):
        items = data.read(f"llmbar:{tmp_path / above / given}")
        assert [e.id for e in items] == ["LLMBar-Adversarial-Neighbor/0", "LLMBar-Natural/0"]
    (item,) = data.read(f"llmbar:{tmp_path / above / 'Dataset/LLMBar/Natural/dataset.json'}")
    assert item.id == "LLMBar-Natural/0"


def test_evalbiasbench(pairs, tmp_path):
    recorded = data.read(f"evalbiasbench:{pairs / 'evalbiasbench.jsonl'}")
    assert len(recorded) == 80
    assert Counter(e.bias for e in recorded)["length bias"] == 17
    assert {e.better for e in recorded} == {0}
    published = {}
    for e in recorded:
        row = {"bias": e.bias, "instruction": e.source, "label": 1}
        published.setdefault(e.bias, []).append(row | {f"response{k}": e.candidates[k - 1] for k in (1, 2)})
    (tmp_path / "biasbench.json").write_text(json.dumps(published))
    again = data.read(f"evalbiasbench:{tmp_path / 'biasbench.json'}")
    assert [e.toDict() for e in again] == [e.toDict() for e in recorded]
    published["length bias"][3]["label"] = 0
    (tmp_path / "biasbench.json").write_text(json.dumps(published))
    refused(f"evalbiasbench:{tmp_path / 'biasbench.json'}", r"length bias\[3\]: 'label' is 0; it must be one of 1, 2")


def judged_pair(*decisions, label="B>A"):
    judgments = [None if one is None else {"judgment": {}, "decision": one} for one in decisions]
    texts = {"question": "2 + 2?", "response_A": "5", "response_B": "4", "response_model": "writer-9"}
    return {"pair_id": f"pair-{decisions}", "source": "sums", "label": label, "judgments": judgments} | texts


def test_judgebench_as_its_owners_publish_it(tmp_path):
    both = judged_pair("B>A", "A>B"), judged_pair("A>B", "A>B"), judged_pair("A=B", None), judged_pair(None, "B>A")
    rows = [*both, judged_pair("B>A"), {k: v for k, v in judged_pair("-").items() if k != "judgments"}]
    items = data.read(f"judgebench:{as_jsonl(tmp_path / 'a.jsonl', rows)}")
    chosen = [(e.get("winner", "-"), e.get("winner_swapped", "-")) for e in items]
    assert chosen == [(1, 1), (0, 1), (-1, None), (None, 0), (1, "-"), ("-", "-")]
    first = items[0]
    assert (first.source, first.candidates, first.better, first.subset) == ("2 + 2?", ["5", "4"], 1, "sums")
    assert first.systems == ["writer-9", "writer-9"]
    found = evalbias.audit([e for e in items if "winner_swapped" in e], winner_field="winner", seed=0)
    assert found["agreement"]["accuracy"].value == pytest.approx((1 + 0 + 0.5) / 3)
    wrong = {":1: a decision is 'A>>B'; it must be one of A>B": judged_pair("A>>B")}
    wrong[":1: a decision is None"] = judged_pair("A>B", label=None)
    wrong[":1: 'judgments' is 'A>B'; it must be a list of objects"] = judged_pair() | {"judgments": "A>B"}
    for match, row in wrong.items():
        refused(f"judgebench:{as_jsonl(tmp_path / 'b.jsonl', [row])}", match)


def test_pandalm(pairs, tmp_path):
    recorded = data.read(f"pandalm:{pairs / 'pandalm.jsonl.gz'}")
    assert len(recorded) == 699
    first = recorded[0]
    assert (first.systems, first.annotators) == (["bloom-7b", "llama-7b"], [2, 2, 2])
    assert (first.ratings, first.better, first.preference) == ([-1.0, -1.0, -1.0], 1, "B")
    assert (first.gpt35, first.pandalm7b) == (0, 1)
    assert Counter(e.gpt35 for e in recorded) == {0: 327, 1: 325, -1: 30, None: 17}
    assert Counter(e.pandalm7b for e in recorded) == {1: 321, 0: 292, -1: 86}
    # 260 + 19 first, 297 + 27 second, 62 + 8 + 5 ties; the 11 + 10 with one tie have a majority all the same
    assert Counter(e.better for e in recorded) == {0: 260 + 19 + 11, 1: 297 + 27 + 10, None: 62 + 8 + 5}
    assert "score" not in first
    back, choice = {0: 1, 1: 2, -1: "Tie", None: "garbage"}, {0: 1, 1: 2, -1: 0}
    files = {"testset-v1": [], "gpt-3.5-turbo-testset-v1": [], "pandalm-7b-testset-v1": []}
    for e in recorded:
        idx = int(e.id.partition("/")[2])
        instruction, _, given = e.source.partition("\n\n")
        row = {"idx": idx, "cmp_key": "_".join(e.systems), "instruction": instruction, "input": given}
        row |= {f"response{k}": e.candidates[k - 1] == "True" or e.candidates[k - 1] for k in (1, 2)}
        files["testset-v1"].append(row | {f"annotator{k}": e.annotators[k - 1] for k in (1, 2, 3)})
        files["gpt-3.5-turbo-testset-v1"].append({"idx": idx, "gpt_result": str(back[e.gpt35])})
        files["pandalm-7b-testset-v1"].append({"idx": idx, "pandalm_result": choice[e.pandalm7b]})
    for name, rows in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    again = data.read(f"pandalm:{tmp_path}")
    assert [e.toDict() for e in again] == [e.toDict() for e in recorded]
    assert "gpt35" not in data.read(f"pandalm:{tmp_path / 'testset-v1.json'}")[0]
    (item,) = data.read(f"pandalm:{as_jsonl(tmp_path / 'a.jsonl', [PANDA | {'annotators': [1, 1, 2], 'gpt35': [1]}])}")
    assert item.gpt35 is None
