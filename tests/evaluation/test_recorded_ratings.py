"""Recorded judgments of real judges beside people's: what an audit says of them, and the figures published of them."""

import numpy as np
import pytest
from scipy import stats

import evalbias
from benchmarks.sets import read
from evalbias import data


@pytest.fixture(scope="module")
def summeval(recorded):
    """Audit of one judge's scores on one criterion, with the experts' ratings."""
    rows = recorded("summeval_scores")

    def audited(judge, criterion):
        items = [{name: row[name] for name in ("id", "input_id", "output", "system")} for row in rows]
        for item, row in zip(items, rows, strict=True):
            item |= {"ratings": row["ratings"][criterion], "mine": row["judges"][judge][criterion]}
        return evalbias.audit(items, scores_field="mine", scale=(1, 5))

    return audited


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["consistency", "fluency"])
def test_experts_who_mostly_give_the_best_rating_agree_as_scipy_says(summeval, criterion):
    found = summeval("gpt-4-0314", criterion)
    ratings = found.judged.covariates["ratings"]
    assert (ratings == 5).mean() > 0.75
    each = [stats.spearmanr(ratings[:, j], np.delete(ratings, j, axis=1).mean(axis=1)).statistic for j in range(3)]
    ceiling = found["agreement"]["human_ceiling"]
    assert ceiling.value == pytest.approx(np.mean(each))
    assert ceiling.low > 0.55
    assert ceiling.low > found["agreement"]["spearman"].high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("judge", "criterion", "validity", "points"),
    [
        ("gpt-4-0314", "coherence", "valid", "1.00 more"),
        ("gpt-3.5-turbo-0301", "fluency", "valid", "2.02 fewer"),
        ("llama-2-7b-chat", "coherence", "says nothing", "1.50 more"),
        ("llama-2-7b-chat", "consistency", "says little", "0.13 fewer"),
    ],
)
def test_a_lenient_a_noisy_and_a_useless_judge_are_told_so_and_not_biased_in_their_use_of_the_scale(
    summeval, judge, criterion, validity, points
):
    found = summeval(judge, criterion)
    assert found.validity.status == validity
    assert found.paragraphs[0] == found.validity.sentence
    assert found.paragraphs[1].startswith(f"The judge gives {points} points than people on average (95 % interval ")
    (scale,) = [f for f in found.findings if f.bias == "scale_use"]
    assert scale.estimate.high < -0.1
    assert scale.status == "not measured"


def test_claude_3_haiku_says_no_more_about_right_answers_than_that_they_are_shorter(recorded):
    pairs = {pair["id"]: pair for pair in recorded("judgebench")}
    verdicts = [v for v in recorded("judgebench_verdicts") if v["judge"].startswith("claude-3-haiku")]
    recorded = [{**pairs[v["id"]], **{f: v[f] for f in ("winner", "winner_swapped")}} for v in verdicts]
    found = evalbias.audit(recorded, winner_field="winner", swapped_field="winner_swapped")
    assert (found.validity.status, found.validity.no_better_than) == ("says nothing", ("shorter",))
    assert "accuracy 0.50 (95 %" in found.validity.sentence
    assert [finding.bias for finding in found.having("biased")] == ["position"]


def test_passing_more_than_experts_do_is_leniency_and_experts_agree_beyond_chance_as_the_judge_hardly_does(recorded):
    rows = [{**row, "mine": row["gpt-4-turbo"]} for row in recorded("ttcw_verdicts")]
    found = evalbias.audit(rows, scores_field="mine", scale=(0, 1))
    agreement = found["agreement"]
    assert agreement["human_ceiling"].low > 0
    assert 0 < agreement["kappa"].value < agreement["human_kappa"].value
    assert agreement["human_kappa"].low > 0
    assert "the judge passes 57 more" in found.leniency
    assert found.validity.status == "no better than a floor"
    assert "+0.07 (95 % interval +0.01 to +0.12; kappa between annotators +0.14)" in found.validity.sentence
    assert "scale_use" in found.not_measured


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
