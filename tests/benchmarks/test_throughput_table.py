"""The throughput benchmark: the methods agree, and the table names them and their costs."""

import pytest

from benchmarks.throughput.__main__ import rows
from benchmarks.throughput.methods import HARNESS, METHODS, OURS, TITLES, applies
from benchmarks.throughput.workloads import WORKLOADS, model
from evalbias import LocalLM


@pytest.mark.slow
def test_all_methods_agree_on_every_workload(data_dir, tmp_path):
    path = model(data_dir, hidden=64, layers=2, vocabulary=9000, save_to=tmp_path)
    lm = LocalLM(str(path), device="cpu", dtype="float32")
    for name, make in WORKLOADS.items():
        work = make(data_dir, 5)
        assert len(work.prompts) == len(work.choices) == 5
        methods = {key: method for key, method in METHODS.items() if key != HARNESS and applies(key, work)}
        body = rows(lm, work, methods, 1)  # raises if answers differ
        assert len(body) == (2 if name == "likelihood" else 3)
        assert body[-1][1] == TITLES[OURS]
        assert body[-1][5] == "1.000"  # every distinct token is processed once
        assert all(int(row[8].split()[0]) > 50 for row in body)
