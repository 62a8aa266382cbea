"""The benchmark of speed: exact methods must agree, others show their deviation, and every token is run once."""

import numpy as np
import pytest

from benchmarks.speed import HARNESS, METHODS, OURS, Contender, applies, measured, ours, published_style, rows
from benchmarks.workloads import WORKLOADS, model
from evalbias import LocalLM


def off(lm, work):
    return (np.array(ours(lm, work)) + 0.25).tolist()


@pytest.fixture(scope="module")
def lm(data_dir, tmp_path_factory):
    path = model(hidden=64, layers=1, vocabulary=9000, save_to=tmp_path_factory.mktemp("model"))
    return LocalLM(str(path), device="cpu", dtype="float32")


@pytest.mark.slow
def test_a_method_of_few_bits_shows_its_deviation_and_an_exact_one_must_agree(lm):
    work = WORKLOADS["llmbar"](4)
    assert work.prompts[0] != work.prompts[1]  # the two orders of a pair
    contenders = {OURS: Contender("evalbias", "float32", ours, True, 4)}
    contenders |= {"published": Contender("one by one", "float32", published_style, True, 4)}
    contenders |= {"off": Contender("rounded", "Q4", off, False, 4)}
    results = measured(lm, work, contenders, 2)
    assert results["published"].deviation < 1e-4
    assert results["off"].deviation == pytest.approx(0.25, abs=1e-6)
    assert [len(result.seconds) for result in results.values()] == [2, 2, 2]
    body = rows(lm, work, contenders, results)
    assert [row[2] for row in body] == ["evalbias", "one by one", "rounded"]
    assert [row[7] for row in body][0::2] == ["", "2.5e-01"]
    assert [row[11] for row in body] == ["1.000", "", ""]  # every distinct token is processed once
    contenders["off"] = Contender("rounded", "float32", off, True, 4)
    with pytest.raises(AssertionError, match=r"rounded deviates by 0\.25 nats on LLMBar"):
        measured(lm, work, contenders, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_all_methods_agree_on_every_workload(name, lm):
    work = WORKLOADS[name](5)
    assert len(work.prompts) == len(work.choices) == 5
    methods = {key: method for key, method in METHODS.items() if key != HARNESS and applies(key, work)}
    contenders = {key: Contender(key, "float32", method, True, 5) for key, method in {OURS: ours, **methods}.items()}
    results = measured(lm, work, contenders, 1)  # raises if answers differ
    assert len(results) == (2 if name in ("likelihood", "summaries") else 3)
    assert all(result.memory > 50 * 2**20 for result in results.values())
