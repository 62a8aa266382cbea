"""Load the data sets of Zhou et al. (2024) and pair their outputs."""

import gzip
import json

import dspy
import pytest

from evalbias import data
from evalbias.data import DataError

FORMS = {
    "newsroom": ("upstream/newsroom.json", "newsroom.jsonl.gz", 420, 60),
    "topicalchat": ("upstream/topical_chat.json", "topicalchat_usr.jsonl", 360, 60),
}


def records(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").split("\n") if line]


@pytest.mark.parametrize("name", FORMS)
def test_the_published_form_equals_the_recorded_one(name, data_dir):
    published, recorded, count, documents = FORMS[name]
    ours, theirs = data.read(f"{name}:{data_dir / published}"), data.read(f"{name}:{data_dir / recorded}")
    assert len(ours) == len(theirs) == count
    assert len({e.input_id for e in ours}) == documents
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.id == other.id
        assert mine.output.split() == other.output.split()
        assert mine.source.split() == other.source.split()
        assert mine.scores == pytest.approx(other.scores, abs=1e-6)


def test_every_score_is_the_recorded_one(data_dir):
    for name, file in (("newsroom", "newsroom.jsonl.gz"), ("summeval", "summeval.jsonl.gz")):
        recorded = records(data_dir / file)
        items = data.read(f"{name}:{data_dir / file}")
        assert [(e.source, e.output, e.input_id) for e in items] == [
            (r["source"], r["summary"], r["doc_id"]) for r in recorded
        ]
        assert [e.scores for e in items] == [r["scores"] for r in recorded]
    assert len(items) == 1120
    assert (len({e.input_id for e in items}), len({e.system for e in items})) == (70, 16)


def test_a_dialogue_without_a_fact_has_none(data_dir):
    items = data.read(f"topicalchat:{data_dir / 'topicalchat_usr.jsonl'}")
    without_fact = [e for e in items if e.fact is None]
    assert len(without_fact) == 48
    assert not any("_nofact" in e.source for e in items)
    assert items[0].source.endswith(f"\nFact: {items[0].fact}")


def test_summeval_in_its_published_form(data_dir, tmp_path):
    recorded = records(data_dir / "summeval.jsonl.gz")
    recorded = [r for r in recorded if r["expert_annotations"]]
    rows = [
        {
            "id": r["doc_id"],
            "model_id": r["system"],
            "text": r["source"],
            "decoded": r["summary"],
            "references": [r["reference"]],
            "expert_annotations": r["expert_annotations"],
        }
        for r in recorded
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    items = data.read(f"summeval:{tmp_path / 'a.jsonl'}")
    assert len(items) == len(recorded) == 840
    for item, record in zip(items, recorded, strict=True):
        assert item.scores == pytest.approx(record["scores"], abs=1e-6)
        assert item.ratings["fluency"] == [expert["fluency"] for expert in record["expert_annotations"]]
    whole = data.read(f"summeval:{data_dir / 'summeval.jsonl.gz'}")
    with_ratings = {e.id: e.ratings for e in whole if "ratings" in e}
    assert with_ratings == {e.id: e.ratings for e in items}
    assert len(whole) == 1120
    del rows[3]["text"]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(DataError, match=r"b\.jsonl:4: 'text' is missing: the annotations must be paired"):
        data.read(f"summeval:{tmp_path / 'b.jsonl'}")
    rows[3] |= {"text": "x", "expert_annotations": [{"coherence": 9}]}
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(DataError, match=r"c\.jsonl:4: coherence is 9: give a number from 1 to 5"):
        data.read(f"summeval:{tmp_path / 'c.jsonl'}")


@pytest.mark.parametrize("name", ["newsroom", "topicalchat"])
def test_a_malformed_record_is_named(name, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(DataError, match="must be a JSON list of records"):
        data.read(f"{name}:{tmp_path / 'x.json'}")
    (tmp_path / "x.json").write_text('[{"doc_id": "1"}]')
    with pytest.raises(DataError, match=r"x\.json\[0\]: '.*' is missing"):
        data.read(f"{name}:{tmp_path / 'x.json'}")


def test_the_papers_sizes(data_dir):
    items = data.read(f"newsroom:{data_dir / 'upstream/newsroom.json'}")
    full = [e for group in data.by_input(items).values() if len({x.output for x in group}) == 7 for e in group]
    assert len(data.pairs(full, inputs=20, seed=0)) == 840
    summaries = data.read(f"summeval:{data_dir / 'summeval.jsonl.gz'}")
    full = [e for group in data.by_input(summaries).values() if len({x.output for x in group}) == 16 for e in group]
    assert len(data.pairs(full, inputs=10, seed=0)) == 2400


def test_pairs_are_ordered_seeded_and_of_one_input():
    items = [dspy.Example(id=str(i), source=f"s{i % 3}", output=f"o{i // 3}") for i in range(9)]
    items.append(dspy.Example(id="twice", source="s0", output="o0"))
    items.append(dspy.Example(id="alone", source="s9", output="o0"))
    pairs = data.pairs(items, seed=0)
    assert len(pairs) == 3 * 6
    assert len({(p.source, *p.candidates) for p in pairs}) == 18
    assert all(a != b for a, b in (p.candidates for p in pairs))
    assert not any({"twice", "alone"} & {*p.ids} for p in pairs)
    few = data.pairs(items, inputs=2, limit=5, seed=1)
    assert len(few) == 5
    assert [p.ids for p in few] == [p.ids for p in data.pairs(items, inputs=2, limit=5, seed=1)]
    assert len({p.input_id for p in few}) <= 2
    with pytest.raises(ValueError, match="3 inputs have two different outputs"):
        data.pairs(items, inputs=4, seed=0)
