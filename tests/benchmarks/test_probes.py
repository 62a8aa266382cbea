"""The benchmark of probes: a planted bias is found, and nothing where edits and placebos are the same."""

import json

import numpy as np

from benchmarks import probes


def test_a_large_planted_bias_is_found_and_equal_answers_never():
    planted = np.zeros((probes.KINDS, 2, probes.ITEMS))
    planted[2, 0] = 1.5
    for judge in (probes.noisy(0.2), probes.steady):
        p = probes.found(judge, planted, np.random.default_rng(0), clustered=False)
        assert [kind for kind, one in enumerate(p) if one < 0.05] == [2]
    constant = probes.found(lambda rng, scores: 0 * scores + 3, planted, np.random.default_rng(0), clustered=True)
    assert set(constant) == {1.0}


def test_what_a_run_found_is_told(tmp_path, capsys):
    numbers = {"value": 0.5, "low": 0.25, "high": 0.75}
    effect = {"status": "biased", "estimate": numbers, "edit": {"value": 0.4}, "placebo": {"value": -0.1}}
    (tmp_path / "result.json").write_text(json.dumps({"n": 60, "verdict": "Moved.", "kinds": {"label": effect}}))
    assert probes.main(["--sets", "0", "--runs", str(tmp_path)])["answers at random"] == 0
    assert "| label | biased | +0.50 | +0.25 to +0.75 | +0.40 | -0.10 |" in capsys.readouterr().out
