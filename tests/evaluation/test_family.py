"""What a judge gives its own system, and what its family."""

import json

import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused
from dspy import Example
from planted import by_hand

from benchmarks.statistical_truth import judged_relatives
from evalbias import audit, recorded_scores
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.judged import writers_of
from evalbias.evaluation.probes import features_of, with_features
from evalbias.measures import EqualQuality

NAMED = {"own_system": "gpt-4", "own_family": "gpt-*"}


def judged(seed, *, n=300, **planted):
    return judged_relatives(np.random.default_rng(seed), n, **planted)


@pytest.mark.slow
def test_a_bonus_for_the_family_is_found_beside_that_for_itself():
    found = {f.bias: f for f in audit_answers(judged(0, n=600, own=0.8, family=0.6), **NAMED).findings}
    assert found["self_preference"].status == found["family_preference"].status == "biased"
    assert "judge's family" in found["family_preference"].sentence


@pytest.mark.slow
def test_what_a_judge_gives_itself_is_taken_from_no_relative():
    one = judged(1, n=2000, own=0.8)
    found = audit_answers(one, **NAMED).measurements["family_preference"]["family_excess"]
    assert found.low < 0 < found.high
    assert found.excluded == sum(writer == "gpt-4" for writer in one.writers)
    assert found.n == 2000 - found.excluded


def test_writers_go_by_names_and_patterns():
    one = judged(0, n=60)
    assert writers_of(one, "gpt-4") == ["gpt-4"]  # no beginning of another name
    assert writers_of(one, "gpt-4*, claude") == ["claude", "gpt-4", "gpt-4-turbo"]
    assert writers_of(one, None) == writers_of(one, "GPT-4") == []


LACKING = [("family_preference", {"own_family": "qwen*"})]
LACKING += [("family_preference", {"own_system": "gpt-*", "own_family": "gpt-4"})]
LACKING += [("family_preference", {"own_family": "gpt-*,llama,mistral"}), ("self_preference", {"own_system": "*"})]


@pytest.mark.parametrize(("bias", "named"), LACKING)
def test_what_is_lacking_is_named(bias, named, snapshot):
    assert audit_answers(judged(0, n=60), **named).not_measured[bias] == snapshot


def test_the_family_alone_can_be_tested_and_a_judge_without_one_is_told_nothing_of_families():
    (only,) = audit_answers(judged(0, n=60), **NAMED, only="family_preference").findings
    assert only.bias == "family_preference"
    told = json.dumps(audit_answers(judged(0, n=60), own_system="gpt-4").to_dict())
    assert "family" not in told.replace("family_wise_error", "")


def rated(n=200, *, headings=0.0, seed=0):
    """Texts whose headings are more frequent where the quality is high, and a judge that gives points for one."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        quality = rng.normal()
        has = bool(rng.random() < 1 / (1 + np.exp(-quality)))
        text = "# Title\n" * has + "- point\n" * int(rng.integers(0, 3)) + "word " * int(rng.integers(5, 40))
        scores = np.clip(np.round(3 + quality + 0.7 * rng.normal(size=3)), 1, 5).tolist()
        mine = float(np.clip(3 + 0.8 * quality + headings * has + 0.3 * rng.normal(), 1, 5))
        row = {"id": f"r{k}", "input_id": f"i{k // 2}", "source": f"q{k // 2}", "output": text, "ratings": scores}
        rows.append({**row, "mine": mine, "titled": "yes" if has else "no", "tone": rng.normal()})
    return rows


def test_a_count_of_style_is_tested_beside_the_biases_and_stands_in_the_joint_model(snapshot):
    found = audit(rated(headings=0.6), scores_field="mine", scale=(1, 5), features=["headings", "bullets", "bold"])
    findings = {finding.bias: finding for finding in found.findings}
    assert [(findings[name].status, findings[name].sentence) for name in ("headings", "bullets", "bold")] == snapshot
    points = found["headings"]["headings_effect"]
    assert points.low * points.points < 0.6 < points.high * points.points
    assert [*found["joint"]] == ["length", "headings", "bullets"]
    tested = [one for one in found.findings if one.p_adjusted == one.p_adjusted]
    assert {one.bias for one in tested} == {"scale_use", "verbosity", "headings", "bullets"}  # Holm over all four
    assert findings["headings"].p_adjusted == pytest.approx(4 * points.p_value)
    assert found.provenance["features"] == ("headings", "bullets", "bold")


def test_headings_of_better_texts_are_no_bias():
    found = audit(rated(400), scores_field="mine", scale=(1, 5), features=["headings"])
    assert {finding.bias: finding.status for finding in found.findings}["headings"] == "no sign"


def test_the_effect_is_that_of_the_same_column_by_hand():
    rows = rated(120, headings=0.5)
    found = audit(rows, scores_field="mine", scale=(1, 5), features=["titled", "tone"])
    scores, ratings = [row["mine"] for row in rows], [row["ratings"] for row in rows]
    yes = [float(row["titled"] == "yes") for row in rows]
    inputs = [row["input_id"] for row in rows]
    model = EqualQuality(scores, ratings, {"titled": yes}, clusters=inputs, unscaled=["titled"])
    assert found["titled"]["titled_effect"].value == pytest.approx(model.effect("titled").value)
    tone = EqualQuality(scores, ratings, {"tone": [row["tone"] for row in rows]}, clusters=inputs).effect("tone")
    assert found["tone"]["tone_effect"].value == pytest.approx(tone.value)
    assert found["titled"].bias.favored == "an output where titled is yes"
    assert found["tone"].bias.favored == "an output that is one standard deviation higher in tone"


def test_pairs_have_the_difference_of_both_texts():
    rng = np.random.default_rng(0)
    pairs = []
    for k in range(200):
        has = rng.random(2) < 0.5
        texts = [f"{'# Title' * int(one)}\ntext {k} {place}" for place, one in enumerate(has)]
        winner = int(rng.random() < 1 / (1 + np.exp(1.5 * (float(has[0]) - has[1]))))
        better = int(rng.random() < 0.5)
        pairs.append({"id": f"p{k}", "source": f"q{k}", "outputs": texts, "mine": winner, "better": better})
    found = audit(pairs, winner_field="mine", features=["headings"], reliability=0.6)
    assert found["headings"]["headings_effect"].low > 0
    assert found.judged.covariates["headings"].shape == (200, 2)


def test_what_is_no_feature_is_refused():
    rows = rated(20)
    for name in ("fame", "length", "verbosity", "output"):
        with pytest.raises(ValueError, match=f"'{name}'"):
            audit(rows, scores_field="mine", features=[name])
    with pytest.raises(ValueError, match="`features` tone, tone"):
        audit(rows, scores_field="mine", features=["tone"] * 2)
    with pytest.raises(ValueError, match="`features`: `only` verbosity"):
        audit(rows, scores_field="mine", features=["tone"], only="verbosity")


@pytest.mark.slow
def test_a_build_fails_on_a_feature_and_correct_subtracts_a_count(tmp_path):
    as_jsonl(tmp_path / "rated.jsonl", rated(headings=0.8))
    words = ("--data", "rated.jsonl", "--scores-field", "mine", "--feature", "headings")
    done = evalbias("audit", *words, "--fail-on", "headings>0.2", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "failed: headings>0.2: headings is 0." in done.stderr
    assert "'headings' is unknown" in refused("audit", *words[:4], "--fail-on", "headings>0.2", cwd=tmp_path)
    found = answered("correct", *words, cwd=tmp_path)
    assert "headings" in found["correction"]["slopes"]


@pytest.mark.filterwarnings("error")
def test_a_count_in_no_text_is_undefined():
    rows = [{"id": f"r{k}", "mine": k % 3, "output": "# a" if k % 2 else None} for k in range(6)]
    judged = recorded_scores([Example(row) for row in rows], "mine")
    np.testing.assert_array_equal(with_features(judged, ["headings"]).covariates["headings"], [np.nan, 1] * 3)
    rows = [{key: value for key, value in row.items() if key != "output"} for row in rated(40)]
    found = audit(rows, scores_field="mine", scale=(1, 5), features=["sentences"])
    assert "sentences" in found.not_measured


def test_without_features_nothing_is_added():
    assert features_of(by_hand([1, 2, 3])) == []
    assert "features" not in with_features(by_hand([1, 2, 3]), ()).provenance
