"""What findings at equal quality take for granted about the raters."""

import gzip
import json

import numpy as np
import pytest

from evalbias import audit
from evalbias.evaluation.audit import Finding
from evalbias.evaluation.estimates import Estimate
from evalbias.measures import EqualQuality


@pytest.fixture(scope="session")
def summeval(data_dir):
    """SummEval's summaries with recorded judgments, and their log-likelihoods."""
    folder = data_dir / "judges"
    lines = (folder / "summeval_likelihoods.jsonl").read_text().splitlines()
    likelihoods = {row["id"]: row["smollm2-135m-instruct"] for row in map(json.loads, lines)}
    with gzip.open(folder / "summeval_scores.jsonl.gz", "rt", encoding="utf-8") as file:
        return [{**row, "likelihood": likelihoods[row["id"]]} for row in map(json.loads, file)]


@pytest.mark.parametrize(
    ("judge", "criterion", "feature", "vanishes", "estimated"),
    [
        ("gpt-4-0314", "coherence", "likelihood", 0.47, 0.86),
        ("gpt-4-0314", "fluency", "likelihood", 0.62, 0.90),
        ("gpt-4-0314", "relevance", "likelihood", 0.34, 0.79),
        ("gpt-4-0314", "coherence", "length", np.nan, 0.86),
        ("gpt-3.5-turbo-0301", "fluency", "likelihood", 0.61, 0.90),
    ],
)
def test_how_much_of_experts_ratings_must_be_error_to_explain_a_recorded_judge(
    summeval, judge, criterion, feature, vanishes, estimated
):
    scored = [row for row in summeval if row["judges"][judge][criterion] is not None]
    features = {"likelihood": [row["likelihood"] for row in scored]}
    features["length"] = np.log([len(row["output"]) for row in scored])
    found = EqualQuality(
        [row["judges"][judge][criterion] for row in scored],
        [row["ratings"][criterion] for row in scored],
        {feature: features[feature]},
        clusters=[row["input_id"] for row in scored],
    ).effect(feature)
    assert found.robustness == pytest.approx(vanishes, abs=0.005, nan_ok=True)
    assert found.reliability == pytest.approx(estimated, abs=0.006)


def test_a_verdict_says_on_which_reliability_it_rests():
    rng = np.random.default_rng(1)
    quality = rng.normal(size=300)
    length = 0.5 * quality + rng.normal(size=300)
    scores = quality + 0.8 * length + 0.5 * rng.normal(size=300)
    ratings = quality[:, None] + 0.7 * rng.normal(size=(300, 2))
    rows = [
        {"output": "x" * round(np.exp(4 + length[k])), "mine": scores[k], "rating_1": a, "rating_2": b}
        for k, (a, b) in enumerate(ratings.tolist())
    ]
    found = audit(rows, scores_field="mine")
    e = found["verbosity"]["length_effect"]
    assert 0 < e.robustness < e.reliability < 1
    share, taken = f"{100 * e.robustness:.0f} %", f"{100 * e.reliability:.0f} %"
    condition = f"holds unless {share} or less of the variance of the mean rating is quality, where {taken} is taken"
    assert f"what raters share or copy counts as quality. The finding of verbosity {condition}." in found.verdict
    told = found.to_dict()["biases"]["verbosity"]
    assert (told["robustness"], told["reliability"], told["condition"]) == (e.robustness, e.reliability, condition)
    # a verdict that rests on no rating says nothing of raters
    bare = audit(
        [{"outputs": ["a", "b"], "w": k % 2, "v": 1 - k % 2} for k in range(50)], winner_field="w", swapped_field="v"
    )
    assert "raters" not in bare.verdict


@pytest.mark.parametrize(
    ("robustness", "condition"),
    [
        (np.nan, "holds whatever share of the variance of the mean rating is quality"),
        (0.9, "holds unless 90 % or more of the variance of the mean rating is quality, where 80 % is taken"),
    ],
)
def test_conditions_name_the_side(robustness, condition):
    e = Estimate("x", "x", value=1, low=0.5, high=1.5, n=9, undefined=0, reliability=0.8, robustness=robustness)
    assert Finding("verbosity", "biased", e, "").condition == condition
    assert Finding("verbosity", "no sign", e, "").condition == ""
