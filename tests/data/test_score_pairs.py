"""Quantile maps from files of pairs."""

import gzip
import json

import numpy as np
import pytest

from evalbias.data.cells import DataError
from evalbias.data.loops import quantile_map
from evalbias.measures import QuantileMap

PAIRS = [(0.2, -25.0), (0.5, -10.0), (0.8, 0.0)]


def test_pairs_and_saved_maps_are_read(tmp_path):
    jsonl, packed, table, saved = (tmp_path / name for name in ("a.jsonl", "a.jsonl.gz", "a.csv", "a.json"))
    jsonl.write_text("".join(json.dumps({"chrf": x, "human_mqm": y}) + "\n" for x, y in PAIRS))
    packed.write_bytes(gzip.compress(jsonl.read_bytes()))
    table.write_text("MQM,chrf\n" + "".join(f"{y},{x}\n" for x, y in PAIRS))
    rows = [[k, x, y] for k, (x, y) in enumerate(PAIRS)]  # with the index that pandas writes
    semicolons, tabs, gz = (tmp_path / name for name in ("b.csv", "a.tsv", "a.csv.gz"))
    semicolons.write_text(";chrf;MQM\n" + "".join(";".join(map(str, row)).replace(".", ",") + "\n" for row in rows))
    tabs.write_text(semicolons.read_text().replace(";", "\t").replace(",", "."))
    gz.write_bytes(gzip.compress(table.read_bytes()))
    QuantileMap.fit(*zip(*PAIRS, strict=True), metric="chrf").save(saved)
    for file in (jsonl, packed, table, saved, semicolons, tabs, gz):
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


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.jsonl", '{"chrf": 1, "bleu": 2}\n', r"a.jsonl:1 has the fields \['bleu', 'chrf'\]; a pair has two"),
        ("a.jsonl", '{"score": 1, "mqm": 0}\n', r"a.jsonl:1: 'score' does not name a metric; .*\n.*chrf.*\n.*mqm"),
        ("a.csv", "0.5,-10\n0.7,-2\n", r"a.csv:2 has the fields \['-10', '0.5'\]; a pair has two"),
        ("a.csv", ",mqm\n0.7,-2\n", r"a.csv:2 has the fields \['mqm'\]; a pair has two"),
        ("a.jsonl", '{"chrf": 1, "mqm": 0}\n{"chrf": 1}\n', r"a.jsonl:2: 'mqm' is None"),
        ("a.csv", "chrf,mqm\n1,-1\nx,-2\n", r"a.csv:3: 'chrf' is 'x'"),
        ("a.csv", "chrf,mqm\n", "holds no pairs"),
        ("a.json", "{}", "is not a quantile map"),
        ("a.jsonl", '{"chrf": 1, "mqm": 0}\n', "fit needs at least two"),
    ],
)
def test_other_files_are_refused(name, content, match, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises((DataError, ValueError), match=match):
        quantile_map(tmp_path / name)
