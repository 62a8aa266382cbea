"""Decoding writes into the cache's spare room, and attends to what a cache that copies would hold."""

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from evalbias.lm.generate import ROOM, GrowingLayer, make_growing


def states(rows, tokens, seed):
    return torch.randn(rows, 2, tokens, 4, generator=torch.Generator().manual_seed(seed))


def test_steps_give_the_keys_and_values_of_a_cache_that_copies():
    plain, growing = DynamicCache(), DynamicCache()
    for cache in (plain, growing):
        cache.update(states(3, 5, 0), states(3, 5, 1), 0)
    make_growing(growing)
    copies = 0
    for step in range(2 * ROOM + 10):
        before = growing.layers[0].keys.data_ptr()
        new = states(len(plain.layers[0].keys), 1, 10 + step), states(len(plain.layers[0].keys), 1, 900 + step)
        expected, got = plain.update(*new, 0), growing.update(*new, 0)
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])
        assert growing.get_seq_length() == 5 + step + 1
        copies += growing.layers[0].keys.data_ptr() != before
        if step == 20:  # a row ends
            for cache in (plain, growing):
                cache.batch_select_indices(torch.tensor([0, 2]))
    assert copies == 3  # at the start, after the row's end, and when the room was full


def test_only_layers_of_full_attention_are_replaced():
    class OtherLayer(DynamicLayer):
        pass

    cache = DynamicCache()
    cache.layers = [DynamicLayer(), OtherLayer()]
    for layer in cache.layers:
        layer.update(states(1, 2, 0), states(1, 2, 1))
    make_growing(cache)
    assert [type(layer) for layer in cache.layers] == [GrowingLayer, OtherLayer]
    make_growing(None)  # a model with a state of its own
