"""Recorded judgments of real judges beside several people's ratings: what an audit says of them."""

import gzip
import json

import numpy as np
import pytest
from scipy import stats

import evalbias


def lines(data_dir, name):
    with gzip.open(data_dir / f"judges/{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def summeval(data_dir):
    """Audit of one judge's scores on one criterion, with the experts' ratings."""
    rows = lines(data_dir, "summeval_scores")

    def audited(judge, criterion):
        fields = ("id", "input_id", "output", "system")
        return evalbias.audit(
            [
                {**{f: r[f] for f in fields}, "ratings": r["ratings"][criterion], "mine": r["judges"][judge][criterion]}
                for r in rows
            ],
            scores_field="mine",
            scale=(1, 5),
        )

    return audited


@pytest.fixture(scope="module")
def ttcw(data_dir):
    return lines(data_dir, "ttcw_verdicts")


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


def test_experts_on_creativity_agree_beyond_chance_as_the_judge_hardly_does(ttcw):
    found = evalbias.audit([{**row, "mine": row["gpt-4-turbo"]} for row in ttcw], scores_field="mine")["agreement"]
    assert found["human_kappa"].low > 0
    assert found["human_ceiling"].low > 0
    assert 0 < found["kappa"].value < found["human_kappa"].value
