"""Recorded verdicts of real judges on LLMBar: an audit gives the published figures, to the digit."""

import gzip
import json

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
