"""Recorded verdicts of real judges on LLMBar: an audit gives the published figures, to the digit."""

import gzip
import json

import dspy
import numpy as np
import pytest

import evalbias

PUBLISHED = {
    ("LLMBar-Natural", "ChatGPT"): (80, 83, 71),
    ("LLMBar-Natural", "LLaMA2"): (79, 82, 79),
    ("LLMBar-Natural", "Falcon"): (71, 77, 52),
    ("LLMBar-Adversarial-Neighbor", "ChatGPT"): (30, 22, 96),
    ("LLMBar-Adversarial-Neighbor", "LLaMA2"): (34, 32, 104),
    ("LLMBar-Adversarial-Neighbor", "Falcon"): (70, 65, 57),
}
"""(Set, judge) -> pairs judged right, right in the swapped order, and alike in both, under the prompt "Vanilla"."""
FIGURES = ("accuracy", "accuracy_swapped", "consistency")


@pytest.fixture(scope="module")
def llmbar(data_dir):
    """(set, judge, prompt) -> pairs with recorded verdicts."""
    with gzip.open(data_dir / "pairs/llmbar.jsonl.gz", "rt") as lines:
        pairs = {pair["id"]: pair for pair in map(json.loads, lines)}
    groups = {}
    with gzip.open(data_dir / "pairs/llmbar_verdicts.jsonl.gz", "rt") as lines:
        for verdict in map(json.loads, lines):
            pair = pairs[verdict["id"]]
            groups.setdefault((pair["set"], verdict["judge"], verdict["prompt"]), []).append({**pair, **verdict})
    return groups


def test_the_figures_of_every_set_judge_and_prompt_by_counting(llmbar):
    assert len(llmbar) == 92
    for pairs in llmbar.values():
        judged = evalbias.recorded_verdicts([dspy.Example(pair) for pair in pairs], "winner", swapped="winner_swapped")
        found = evalbias.measure(evalbias.BIASES["agreement"], judged, seed=0, n_resamples=2)
        both = [(p["winner"], p["winner_swapped"], p["better"]) for p in pairs]
        given = [w == better for w, _, better in both if w is not None]
        swapped = [s == better for _, s, better in both if s is not None]
        alike = [w == s for w, s, _ in both if w is not None and s is not None]
        for figure, counted in zip(FIGURES, (given, swapped, alike), strict=True):
            assert (found[figure].value, found[figure].n) == (pytest.approx(np.mean(counted)), len(counted))


@pytest.mark.parametrize("judge", ["ChatGPT", "LLaMA2", "Falcon"])
def test_recorded_verdicts_give_the_published_figures_set_by_set(llmbar, judge):
    pairs = [pair for (_, *by), some in llmbar.items() if by == [judge, "Vanilla"] for pair in some]
    found = evalbias.audit(pairs, winner_field="winner", swapped_field="winner_swapped", by="set")
    assert len(found.groups) == 5
    for name, right in ((name, right) for (name, one), right in PUBLISHED.items() if one == judge):
        n = sum(pair["set"] == name for pair in pairs)
        assert [found.groups[name][figure].value * n for figure in FIGURES] == pytest.approx([*right])
    with pytest.raises(ValueError, match="No item has a field 'kind' to group by"):
        evalbias.audit(pairs, winner_field="winner", by="kind")
