"""The throughput benchmark on real models: exact methods must agree, others show their deviation."""

import numpy as np
import pytest

from benchmarks.throughput import breakdown, int8
from benchmarks.throughput.methods import OURS, ours, published_style
from benchmarks.throughput.real import Contender, measured, rows
from benchmarks.throughput.workloads import WORKLOADS, model
from evalbias import LocalLM


def off(lm, work):
    return (np.array(ours(lm, work)) + 0.25).tolist()


@pytest.fixture(scope="module")
def lm(data_dir, tmp_path_factory):
    path = model(data_dir, hidden=64, layers=1, vocabulary=9000, save_to=tmp_path_factory.mktemp("model"))
    return LocalLM(str(path), device="cpu", dtype="float32")


def test_a_method_of_few_bits_shows_its_deviation_and_an_exact_one_must_agree(lm, data_dir):
    work = WORKLOADS["llmbar"](data_dir, 4)
    assert work.prompts[0] != work.prompts[1]  # the two orders of a pair
    contenders = {
        OURS: Contender("evalbias", "float32", ours, True, 4),
        "published": Contender("one by one", "float32", published_style, True, 4),
        "off": Contender("rounded", "Q4", off, False, 4),
    }
    results = measured(lm, work, contenders, 2)
    assert results["published"].deviation < 1e-4
    assert results["off"].deviation == pytest.approx(0.25, abs=1e-6)
    assert [len(result.seconds) for result in results.values()] == [2, 2, 2]
    body = rows(work, contenders, results)
    assert [row[1] for row in body] == ["evalbias", "one by one", "rounded"]
    assert [row[6] for row in body][0::2] == ["", "2.5e-01"]
    contenders["off"] = Contender("rounded", "float32", off, True, 4)
    with pytest.raises(AssertionError, match=r"rounded deviates by 0\.25 nats on LLMBar"):
        measured(lm, work, contenders, 1)


@pytest.mark.slow
def test_weights_of_8_bits_are_timed_and_compared_with_those_of_32(data_dir, tmp_path):
    path = str(model(data_dir, hidden=64, layers=1, vocabulary=9000, save_to=tmp_path))
    layers = int8.opened(path, int8.EIGHT).engine.loaded.model.base_model.modules()
    assert sum(type(layer).__module__ == "torch.ao.nn.quantized.dynamic.modules.linear" for layer in layers) == 7
    exact, half, eight = int8.rows(path, "tiny", WORKLOADS["pointwise"](data_dir, 2), 1)
    assert exact[3:] == ["1.00", "", "", ""]
    assert 0 < float(half[4]) < 0.1
    assert 0 < float(eight[5]) <= float(eight[4]) < 1
    assert 0 < float(eight[6]) < 4


def test_the_time_of_a_call_is_told_apart_by_kinds_of_operators(lm, data_dir):
    work = WORKLOADS["pointwise"](data_dir, 4)
    whole, spent = breakdown.seconds_by_kind(lm, work)
    assert set(spent) == {breakdown.PRODUCTS, breakdown.ATTENTION, breakdown.OTHERS}
    assert 0 < spent.total() < whole
    name, _, *shares = breakdown.row(lm, work)
    assert name == work.name
    products, _, attention, _, others, python = (float(share.rstrip("%")) for share in shares)
    assert products + attention + others + python == pytest.approx(100, abs=3)
