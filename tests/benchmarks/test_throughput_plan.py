"""The plan for GPUs: what is counted, by hand; and that tree attention computes a quarter of the dense mask's pairs."""

import numpy as np
import pytest

from benchmarks.throughput import plan
from benchmarks.throughput.shapes import SHAPES, layer_cost
from evalbias.lm.score import GPU_PACKS, gpu_pack_tokens, rows_of
from evalbias.lm.tokens import Scored

LLAMA = SHAPES["Llama-3.1-8B"]


def eight_shot(items):
    """Return prompts of 1200 common tokens and 150 of their own, in which one log-probability is read."""
    rng = np.random.default_rng(0)
    trunk = rng.integers(0, 9999, 1200).tolist()
    return rows_of([Scored((*trunk, *rng.integers(0, 9999, 151).tolist()), 1350) for _ in range(items)])


def test_counts_by_hand():
    rows = rows_of([Scored((1, 2, 3, 0), 3), Scored((1, 2, 4, 0), 3), Scored((1, 5, 0), 2)])
    (count,) = plan.counted(rows, 8)
    assert (count.tokens, count.context, count.prefix, count.reads) == (5, 0, 0, 3)
    assert (count.dense, count.far, count.near) == (25, 0, 25)  # one tile holds all
    assert count.visible == 1 + 2 + 3 + 3 + 2
    first, second = plan.counted(rows, 3)
    assert (second.tokens, second.context, second.prefix) == (2, 2, 1)  # d and e after a, and b, which only d sees
    assert (first.dense, second.dense, second.far, second.near) == (9, 8, 2, 6)


def test_an_8b_model_with_eight_demonstrations_computes_a_quarter_of_the_pairs():
    rows = eight_shot(400)
    dense = sum(c.dense for c in plan.counted(rows, 6656))  # the size for a dense mask
    tree = plan.counted(rows, gpu_pack_tokens(LLAMA.weights, LLAMA.layers))
    assert dense >= 4 * sum(c.far + c.near for c in tree)
    assert sum(c.far + c.near for c in tree) < 1.3 * sum(c.visible for c in tree)


def test_the_layer_is_the_models():
    assert LLAMA.weights == pytest.approx(6.98e9, rel=0.001)  # 8.03e9 less 2 x 128,256 x 4096 of the embeddings
    cost = layer_cost(LLAMA)
    assert cost.pack_bytes == pytest.approx(2 * LLAMA.layer_weights, rel=0.001)
    assert 20 <= cost.launches <= 60


def test_a_roofline_by_hand():
    """One pack without context on a slow GPU: matrix products decide, and the launches of a fast one."""
    (count,) = plan.counted(eight_shot(1), 2000)
    slow = plan.GPU("slow", 1e9, 1e15, 1e15)
    done = plan.estimate(LLAMA, slow, [count], plan.TREE)
    attention = 4 * 32 * 128 * count.near / (1e9 * plan.FLEX)
    products = 2 * LLAMA.layer_weights * 1350 / (1e9 * plan.MATMUL)
    assert done.seconds == pytest.approx(32 * (attention + products), rel=1e-3)
    fast = plan.GPU("fast", 1e30, 1e30, 1e30)
    done = plan.estimate(LLAMA, fast, [count], plan.TREE)
    assert done.seconds == pytest.approx(done.launches * plan.LAUNCH)


def test_pack_sizes_of_a_gpu():
    """Fixed costs weigh more in a small model; the sizes stay between their limits."""
    sizes = [gpu_pack_tokens(shape.weights, shape.layers) for shape in SHAPES.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == GPU_PACKS[1]
    assert sizes[-1] == GPU_PACKS[0]


@pytest.mark.slow
def test_the_report_says_that_it_is_an_estimate(data_dir):
    text = plan.report(data_dir, ["pointwise"], 8, LLAMA)
    assert text.startswith("## Plan for GPUs: Llama-3.1-8B (an estimate: nothing here ran on a GPU)")
    table = [line.split(" | ") for line in text.splitlines() if line.startswith("| 8-shot pointwise")]
    assert [row[1] for row in table] == [plan.DENSE, plan.TREE]
    assert table[0][3] == table[1][3]  # tokens
