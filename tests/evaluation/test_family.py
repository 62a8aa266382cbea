"""What a judge gives its own system, and what its family."""

import json

import numpy as np
import pytest

from benchmarks.statistical_truth import judged_relatives
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.judged import writers_of

NAMED = {"own_system": "gpt-4", "own_family": "gpt-*"}


def judged(seed, *, n=300, **planted):
    return judged_relatives(np.random.default_rng(seed), n, **planted)


def bonuses(seed, **planted):
    """Points that the own system, its family and likelihood get in one model, each with its interval."""
    joint = audit_answers(judged(seed, **planted), **NAMED).measurements["joint"].estimates
    chosen = {name: joint[name] for name in ("own_system", "own_family", "likelihood")}
    return {name: (e.points * e.low, e.points * e.high) for name, e in chosen.items()}


@pytest.mark.slow
@pytest.mark.parametrize("planted", [{"own": 0.8}, {"family": 0.6}, {"own": 0.8, "family": 0.4}, {"likelihood": 0.4}])
def test_self_family_and_style_are_told_apart(planted):
    for name, (low, high) in bonuses(5, n=2000, **planted).items():
        short = name.removeprefix("own_").replace("system", "own")
        if short == "likelihood":
            assert (low > 0) == (short in planted), name
        else:
            assert low < planted.get(short, 0.0) < high, name
            assert high - low < 0.5, name


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


@pytest.mark.parametrize(
    ("bias", "named"),
    [
        ("family_preference", {"own_family": "qwen*"}),
        ("family_preference", {"own_system": "gpt-*", "own_family": "gpt-4"}),
        ("family_preference", {"own_family": "gpt-*,llama,mistral"}),
        ("self_preference", {"own_system": "*"}),
    ],
)
def test_what_is_lacking_is_named(bias, named, snapshot):
    assert audit_answers(judged(0, n=60), **named).not_measured[bias] == snapshot


def test_the_family_alone_can_be_tested():
    (only,) = audit_answers(judged(0, n=60), **NAMED, only="family_preference").findings
    assert only.bias == "family_preference"


def test_a_judge_without_a_family_is_told_nothing_of_families():
    told = json.dumps(audit_answers(judged(0, n=60), own_system="gpt-4").to_dict())
    assert "family" not in told.replace("family_wise_error", "")
