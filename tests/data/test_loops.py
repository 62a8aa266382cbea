"""Recorded loops give the published figures; items of loops and quantile maps are read from any table."""

import gzip
import json

import numpy as np
import pytest

from evalbias.data.loops import loop_items, quantile_map, recorded_loop
from evalbias.measures import estimate_skewness
from evalbias.measures.resample import ALONE

PAIRS = [(0.2, -25.0), (0.5, -10.0), (0.8, 0.0)]


@pytest.fixture(scope="module")
def folder(data_dir):
    return data_dir / "self_bias_recorded"


def test_best_of_k_as_published(folder):
    loops = recorded_loop(folder / "best_of_k/deepseek_moe__yor-en.jsonl", by="k")
    expected = loops.scores("bleurt_mapped")
    published = {1: (14.8, 0.735), 4: (16.1, 0.795), 8: (16.7, 0.8), 16: (18.0, 0.83), 32: (18.5, 0.84)}
    assert loops.numbers == tuple(published)
    for row, (k, (bias, skewness)) in enumerate(published.items()):
        field = "self_score_crit10" if k == 1 else "self_score"  # the weight of the published run with k = 1
        own = loops.scores(field)[row]
        assert round(np.nanmean(own - expected[row]), 1) == bias
        # printed as .735 and .795, then rounded to .005 or .01
        assert estimate_skewness(own - expected[row], draws=ALONE).value == pytest.approx(skewness, abs=0.005)


ROUND, SCORED = '{"iteration": 0, "i": 1}\n', '{"chrf": 1, "mqm": 0}\n'
BROKEN = {  # what is read -> the reader, the ending of the file, and its contents
    "rounds": (recorded_loop, "jsonl", [ROUND * 2, '{"i": 1}', '{"iteration": true, "i": 1}', '{"iteration": 0}', ""]),
    "items": (loop_items, "jsonl", ['{"id": 1}\n{"id": "1"}\n', "\n"]),
    "pairs": (quantile_map, "jsonl", ['{"chrf": 1, "bleu": 2}', '{"score": 1, "mqm": 0}', SCORED + "{}", SCORED]),
    "table": (quantile_map, "csv", ["0.5,-10\n0.7,-2\n", ",mqm\n0.7,-2\n", "chrf,mqm\n1,-1\nx,-2\n", "chrf,mqm\n"]),
    "list": (quantile_map, "json", ["[]"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_invalid_files_are_refused(tmp_path, name, snapshot):
    read, ending, contents = BROKEN[name]
    for content in contents:
        (path := tmp_path / f"a.{ending}").write_text(content)
        with pytest.raises(ValueError, match=r".+") as raised:
            read(path)
        assert str(raised.value).replace(f"{tmp_path}/", "") == snapshot


def test_items_keep_their_fields_and_get_an_id(data_dir, tmp_path):
    items, digest = loop_items(data_dir / "commongen_hard.jsonl")
    assert len(items) == 200
    assert all(20 <= len(e.concepts) <= 30 for e in items)
    assert len({e.id for e in items}) == 200
    assert len(digest) == 64
    file = tmp_path / "items.jsonl"
    file.write_text('{"source": "a"}\n\n{"source": "b"}\n')
    assert [(e.id, e.source) for e in loop_items(file)[0]] == [("1", "a"), ("3", "b")]


def test_pairs_are_read(tmp_path):
    jsonl, table, packed = (tmp_path / name for name in ("a.jsonl", "b.csv", "b.csv.gz"))
    jsonl.write_text("".join(json.dumps({"chrf": x, "human_mqm": y}) + "\n" for x, y in PAIRS))
    rows = [[k, x, y] for k, (x, y) in enumerate(PAIRS)]  # with the index that pandas writes
    table.write_text(";chrf;MQM\n" + "".join(";".join(map(str, row)).replace(".", ",") + "\n" for row in rows))
    packed.write_bytes(gzip.compress(table.read_bytes()))
    for file in (jsonl, table, packed):
        to_mqm, sha256 = quantile_map(file)
        assert to_mqm([0.1, 0.35, 0.8]).tolist() == pytest.approx([-25, -17.5, 0])
        assert len(sha256) == 64
        assert to_mqm.metric == "chrf"


def test_the_recorded_pairs_give_the_recorded_map(data_dir):
    to_mqm, _ = quantile_map(data_dir / "self_bias_recorded/bleurt_to_mqm_pairs.jsonl")
    with open(data_dir / "self_bias_recorded/mt/gpt-3.5-turbo__yor-en.jsonl") as file:
        records = [json.loads(line) for line in file][:100]
    difference = np.abs(to_mqm([r["bleurt_raw"] for r in records]) - [r["bleurt_mapped"] for r in records])
    assert difference.max() < 0.5  # between two pairs of the recording
    assert difference.mean() < 0.01
