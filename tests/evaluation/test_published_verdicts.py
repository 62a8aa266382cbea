"""Recorded verdicts of real judges on LLMBar: an audit gives the published figures, to the digit."""

import pytest

import evalbias
from benchmarks.sets import read
from evalbias import data

PUBLISHED = {  # Zeng et al. 2024, appendix, prompt "Vanilla"
    ("LLMBar-Natural", "ChatGPT"): (80, 83, 71),
    ("LLMBar-Natural", "LLaMA2"): (79, 82, 79),
    ("LLMBar-Natural", "Falcon"): (71, 77, 52),
    ("LLMBar-Adversarial-Neighbor", "ChatGPT"): (30, 22, 96),
    ("LLMBar-Adversarial-Neighbor", "LLaMA2"): (34, 32, 104),
    ("LLMBar-Adversarial-Neighbor", "Falcon"): (70, 65, 57),
}
"""(Set, judge) -> pairs judged right, right in the swapped order, and alike in both."""
FIGURES = ("accuracy", "accuracy_swapped", "consistency")


@pytest.mark.parametrize("judge", ["ChatGPT", "LLaMA2", "Falcon"])
def test_recorded_verdicts_give_the_published_figures_set_by_set(data_dir, judge):
    items = read("llmbar")
    pairs = data.join(items, data_dir / "pairs/llmbar_verdicts.jsonl.gz", judge=judge, prompt="Vanilla")
    assert (len(pairs), [len(ids) for ids in pairs.left_out.values()]) == (419, [466])  # not asked on processed sets
    assert pairs.sha256 != items.sha256
    found = evalbias.audit(pairs, winner_field="winner", swapped_field="winner_swapped", by="set")
    assert len(found.groups) == 5
    for name, right in ((name, right) for (name, one), right in PUBLISHED.items() if one == judge):
        n = sum(pair["set"] == name for pair in pairs)
        assert [found.groups[name][figure].value * n for figure in FIGURES] == pytest.approx([*right])
    with pytest.raises(ValueError, match="'kind'"):
        evalbias.audit(pairs, winner_field="winner", by="kind")
