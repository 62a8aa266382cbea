"""LLMBar, EvalBiasBench and PandaLM, in the recorded form and in their owners'."""

import json
from collections import Counter

import pytest

from evalbias import data
from evalbias.data import DataError


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


def as_published(record):
    return {
        "input": record["source"],
        **{f"output_{k}": record["outputs"][k - 1] for k in (1, 2)},
        "label": record["better"] + 1,
    }


def test_llmbar_as_its_owners_publish_it(tmp_path):
    record = {"source": "q", "outputs": ["a", "b"], "better": 1}
    folders = ("LLMBar/Natural", "LLMBar/Adversarial/Neighbor", "Processed/LLMEval^2", "CaseStudy/Base_9")
    for folder in folders:
        (tmp_path / "Dataset" / folder).mkdir(parents=True)
        (tmp_path / "Dataset" / folder / "dataset.json").write_text(json.dumps([as_published(record)] * 2))
    items = data.read(f"llmbar:{tmp_path / 'Dataset'}")
    assert [e.id for e in items] == [
        f"{name}/{n}"
        for name in ("LLMBar-Adversarial-Neighbor", "LLMBar-Natural", "Processed-LLMEval^2")
        for n in (0, 1)
    ]
    assert (items[0].source, items[0].candidates, items[0].better, items[0].preference) == ("q", ["a", "b"], 1, "B")
    choices = {"swap = False": {"completion": [], "winner": "1"}, "swap = True": {"completion": [], "winner": None}}
    verdicts = tmp_path / "Dataset/LLMBar/Natural/evaluators/ChatGPT/Metrics_Reference"
    verdicts.mkdir(parents=True)
    results = [["metrics", "stop"], ["reference", "stop"], choices]
    (verdicts / "result.json").write_text(json.dumps([{**as_published(record), "results": results}]))
    (item,) = data.read(f"llmbar:{verdicts / 'result.json'}")
    assert (item.id, item.set, item.winner, item.winner_swapped) == ("LLMBar-Natural/0", "LLMBar-Natural", 0, None)
    (verdicts / "result.json").write_text(json.dumps([{**as_published(record), "results": [{"rating": 3}]}]))
    with pytest.raises(DataError, match=r"result\.json\[0\]: 'results' holds no winners in both orders"):
        data.read(f"llmbar:{verdicts / 'result.json'}")
    with pytest.raises(DataError, match=r"holds no dataset\.json; give the folder 'Dataset'"):
        data.read(f"llmbar:{verdicts}")


@pytest.mark.parametrize("above", ["evaluators", "CaseStudy", "Dataset", "evaluators/judge"])
def test_folders_above_the_repository_name_nothing(tmp_path, above):
    record = {"source": "q", "outputs": ["a", "b"], "better": 1}
    for name in ("LLMBar/Natural", "LLMBar/Adversarial/Neighbor", "CaseStudy/Base_9"):
        folder = tmp_path / above / "Dataset" / name
        folder.mkdir(parents=True)
        (folder / "dataset.json").write_text(json.dumps([as_published(record)]))
    for given in ("", "Dataset", "Dataset/LLMBar"):
        items = data.read(f"llmbar:{tmp_path / above / given}")
        assert [e.id for e in items] == ["LLMBar-Adversarial-Neighbor/0", "LLMBar-Natural/0"]
    (item,) = data.read(f"llmbar:{tmp_path / above / 'Dataset/LLMBar/Natural/dataset.json'}")
    assert item.id == "LLMBar-Natural/0"


def test_a_list_for_a_label_is_named(tmp_path):
    row = {"input": "q", "output_1": "a", "output_2": "b", "label": [1]}
    (tmp_path / "dataset.json").write_text(json.dumps([row]))
    with pytest.raises(DataError, match=r"dataset\.json\[0\]: 'label' is \[1\]; it must be 1 or 2"):
        data.read(f"llmbar:{tmp_path}")
    row = {"source": "q", "outputs": ["a", "b"], "systems": "x_y", "annotators": [1, 1, [2]]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=r"a\.jsonl:1: the annotators' choices are \[1, 1, \[2\]\]; each must be"):
        data.read(f"pandalm:{tmp_path / 'a.jsonl'}")
    (tmp_path / "a.jsonl").write_text(json.dumps(row | {"annotators": [1, 1, 2], "gpt35": [1]}))
    assert data.read(f"pandalm:{tmp_path / 'a.jsonl'}")[0].gpt35 is None


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
    with pytest.raises(DataError, match=r"length bias\[3\]: 'label' is 0; it must be 1 or 2"):
        data.read(f"evalbiasbench:{tmp_path / 'biasbench.json'}")


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


def test_recorded_and_published_forms_are_refused_where_malformed(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"source": "q", "outputs": ["a", "b"], "annotators": [3]}))
    with pytest.raises(DataError, match=r"a\.jsonl:1: the annotators' choices are \[3\]; each must be 0, 1 or 2"):
        data.read(f"pandalm:{tmp_path / 'a.jsonl'}")


def test_join_of_ones_own_files(tmp_path):
    items = data.read([{"id": k, "source": "s", "output": k} for k in "abc"])
    (tmp_path / "v.csv").write_text("id,judge,mine\na,x,3\nb,x,\na,y,5\nz,y,1\n")
    joined = data.join(items, tmp_path / "v.csv", judge="x")
    assert [(e.id, e.mine) for e in joined] == [("a", 3), ("b", None)]
    assert joined[0].inputs().keys() == items[0].inputs().keys()
    assert "mine" not in items[0]
    assert list(joined.left_out.values()) == [("c",)]
    with pytest.raises(
        DataError, match=r"v\.csv:4: a second row for the item 'a', with other values {'judge': \('x', 'y'"
    ):
        data.join(items, tmp_path / "v.csv")
    with pytest.raises(DataError, match=r"No item has a row in .*v\.csv with {'judge': 'z'}"):
        data.join(items, tmp_path / "v.csv", judge="z")
    with pytest.raises(DataError, match=r"v\.csv has no column 'model'; it has the columns 'id', 'judge', 'mine'"):
        data.join(items, tmp_path / "v.csv", model="x")
    (item,) = data.join(items[:1], [{"id": "a", "base": 1, "self": 2}])
    assert (item["base"], item["self"], set(item.inputs().keys())) == (1, 2, {"source", "output"})
    with pytest.raises(DataError, match="list, row 2 has no 'id'"):
        data.join(items, [{"id": "a"}, {"mine": 3}])
    with pytest.raises(DataError, match="'a' and its row in list both have 'output', 'a' and 'b'; rename one"):
        data.join(items, [{"id": "a", "output": "b"}])
