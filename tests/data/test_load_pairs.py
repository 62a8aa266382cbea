"""The data sets of the pairwise paper, and pairs of their outputs."""

import gzip
import json

import dspy
import pytest

from evalbias import data
from evalbias.data import DataError, newsroom, summeval, topicalchat

FORMS = {
    "newsroom": ("upstream/newsroom.json", "newsroom.jsonl.gz", 420, 60),
    "topicalchat": ("upstream/topical_chat.json", "topicalchat_usr.jsonl", 360, 60),
}


def records(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").split("\n") if line]


@pytest.mark.parametrize("name", FORMS)
def test_the_published_form_equals_the_recorded_one(name, data_dir):
    published, recorded, count, documents = FORMS[name]
    ours, theirs = data.load(name, data_dir / published), data.load(name, data_dir / recorded)
    assert len(ours) == len(theirs) == count
    assert len({e.input_id for e in ours}) == documents
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.id == other.id
        assert mine.output.split() == other.output.split()
        assert mine.source.split() == other.source.split()
        assert mine.scores == pytest.approx(other.scores, abs=1e-6)


def test_every_score_is_the_recorded_one(data_dir):
    for name, file in (("newsroom", "newsroom.jsonl.gz"), ("summeval", "summeval.jsonl.gz")):
        told = records(data_dir / file)
        found = data.load(name, data_dir / file)
        assert [(e.source, e.output, e.input_id) for e in found] == [
            (r["source"], r["summary"], r["doc_id"]) for r in told
        ]
        assert [e.scores for e in found] == [r["scores"] for r in told]
    assert len(found) == 1120
    assert (len({e.input_id for e in found}), len({e.system for e in found})) == (70, 16)


def test_a_dialogue_without_a_fact_has_none(data_dir):
    found = data.load("topicalchat", data_dir / "topicalchat_usr.jsonl")
    bare = [e for e in found if e.fact is None]
    assert len(bare) == 48
    assert not any("_nofact" in e.source for e in found)
    assert found[0].source.endswith(f"\nFact: {found[0].fact}")


def test_summevals_own_form(data_dir, tmp_path):
    told = records(data_dir / "summeval.jsonl.gz")
    told = [r for r in told if r["expert_annotations"]]
    rows = [
        {
            "id": r["doc_id"],
            "model_id": r["system"],
            "text": r["source"],
            "decoded": r["summary"],
            "references": [r["reference"]],
            "expert_annotations": r["expert_annotations"],
        }
        for r in told
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = data.load("summeval", tmp_path / "a.jsonl")
    assert len(found) == len(told) == 840
    for item, record in zip(found, told, strict=True):
        assert item.scores == pytest.approx(record["scores"], abs=1e-6)
    del rows[3]["text"]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(DataError, match=r"b\.jsonl:4: 'text' is missing: the annotations must be paired"):
        data.load("summeval", tmp_path / "b.jsonl")
    rows[3] |= {"text": "x", "expert_annotations": [{"coherence": 9}]}
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(DataError, match=r"c\.jsonl:4: coherence is 9; it must be a number from 1 to 5"):
        data.load("summeval", tmp_path / "c.jsonl")


@pytest.mark.parametrize("name", ["newsroom", "topicalchat"])
def test_a_malformed_record_is_named(name, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(DataError, match="must be a JSON list of records"):
        data.load(name, tmp_path / "x.json")
    (tmp_path / "x.json").write_text('[{"doc_id": "1"}]')
    with pytest.raises(DataError, match=r"x\.json\[0\]: '.*' is missing"):
        data.load(name, tmp_path / "x.json")


def test_the_papers_sizes(data_dir):
    items = data.load("newsroom", data_dir / "upstream/newsroom.json")
    full = [e for group in data.by_input(items).values() if len({x.output for x in group}) == 7 for e in group]
    assert len(data.pairs(full, inputs=20, seed=0)) == 840
    summaries = data.load("summeval", data_dir / "summeval.jsonl.gz")
    full = [e for group in data.by_input(summaries).values() if len({x.output for x in group}) == 16 for e in group]
    assert len(data.pairs(full, inputs=10, seed=0)) == 2400


def test_pairs_are_ordered_seeded_and_of_one_input():
    items = [dspy.Example(id=str(i), source=f"s{i % 3}", output=f"o{i // 3}") for i in range(9)]
    items.append(dspy.Example(id="twice", source="s0", output="o0"))
    items.append(dspy.Example(id="alone", source="s9", output="o0"))
    found = data.pairs(items, seed=0)
    assert len(found) == 3 * 6
    assert len({(p.source, *p.candidates) for p in found}) == 18
    assert all(a != b for a, b in (p.candidates for p in found))
    assert not any({"twice", "alone"} & {*p.ids} for p in found)
    few = data.pairs(items, inputs=2, limit=5, seed=1)
    assert len(few) == 5
    assert [p.ids for p in few] == [p.ids for p in data.pairs(items, inputs=2, limit=5, seed=1)]
    assert len({p.input_id for p in few}) <= 2
    with pytest.raises(ValueError, match="3 inputs have two different outputs"):
        data.pairs(items, inputs=4, seed=0)


def test_the_aspects_are_named_once():
    assert {len(m.ASPECTS) for m in (newsroom, summeval)} == {4}
    assert len(topicalchat.ASPECTS) == 6
