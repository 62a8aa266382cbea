"""The throughput benchmark: its ways agree, and its table says what was run."""

from benchmarks.throughput.__main__ import rows
from benchmarks.throughput.ways import HARNESS, OURS, TITLES, WAYS, applies
from benchmarks.throughput.workloads import WORKLOADS, model
from evalbias import LocalLM


def test_every_workload_is_answered_alike_by_every_way(data_dir, tmp_path):
    path = model(data_dir, hidden=64, layers=2, vocabulary=9000, save_to=tmp_path)
    lm = LocalLM(str(path), device="cpu", dtype="float32")
    for name, make in WORKLOADS.items():
        work = make(data_dir, 5)
        assert len(work.prompts) == len(work.choices) == 5
        ways = {way: ask for way, ask in WAYS.items() if way != HARNESS and applies(way, work)}
        found = rows(lm, work, ways, 1)  # refuses answers that differ
        assert len(found) == (2 if name == "likelihood" else 3)
        assert found[-1][1] == TITLES[OURS]
        assert found[-1][5] == "1.000"  # every distinct token is run once
        assert all(int(row[8].split()[0]) > 50 for row in found)
