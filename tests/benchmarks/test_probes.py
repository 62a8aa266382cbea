"""The benchmark of probes: a planted bias is found, and nothing where edits and placebos are the same; peers' draws."""

import json
import re

import dspy
import numpy as np
import pytest
from fakes import FormulaLM, numbers
from scipy.special import softmax

from benchmarks import probes
from evalbias.measures.families import holm

PLANTED = "an injection that raises one of 5 items by 4 points"


def test_a_large_planted_bias_is_found_and_equal_answers_never():
    planted = np.zeros((probes.KINDS, 2, probes.ITEMS))
    planted[2, 0] = 1.5
    for judge in (probes.noisy(0.2), probes.steady):
        p = holm(probes.found(judge(np.random.default_rng(0), planted), 1, clustered=False))
        assert [kind for kind, one in enumerate(p) if one < 0.05] == [2]
    assert set(probes.found(0 * planted + 3, 1, clustered=True)) == {1.0}


def test_what_a_run_found_is_told(tmp_path, capsys, snapshot):
    numbers = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 40}
    effect = {"status": "biased", "estimate": numbers, "edit": {"value": 0.4}, "placebo": {"value": -0.1}}
    taken = {**effect, "taken": numbers, "taken_by_placebo": {"value": 0.1}}
    result = {"n": 60, "pairwise": True, "verdict": "Moved.", "kinds": {"label": effect, "injection": taken}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert probes.main(["--sets", "0", "--runs", str(tmp_path)]) == {}
    assert capsys.readouterr().out.replace(tmp_path.name, "run") == snapshot


@pytest.mark.slow
def test_a_compiled_judge_is_measured_on_inputs_that_the_search_did_not_see(tmp_path, monkeypatch, capsys):
    class Obedient(FormulaLM):  # obeys an order but where a demonstration shows one
        def _row(self, prompt, choices):
            *shown, asked = (re.search(r"(text is: |judge: |assistant\n)5", one["content"]) for one in prompt[1::2])
            quality = 5.0 if asked and not any(shown) else numbers(prompt[-1]["content"])[0]
            return list(np.log(softmax([-((float(c) - quality) ** 2) for c in choices])))

    qualities = [1 + k % 3 for k in range(120)]
    items = [
        dspy.Example(id=str(k), source=f"s{k}", output=f"q={quality} z=0", scores={"fluency": float(quality)})
        for k, quality in enumerate(qualities)
    ]
    monkeypatch.setattr(probes.mitigation, "usable", lambda *given, **how: items)
    monkeypatch.setattr(probes.mitigation, "open_judge", lambda *given: Obedient())
    options = ["--sets", "0", "--data", "summeval", "-k", "2", "--out", str(tmp_path), "--compiled"]
    probes.main([*options, "SmolLM2"])
    row = json.loads((tmp_path / "SmolLM2.summeval.injection.60.json").read_text())
    effects = {form: (one["effect"]["value"], one["effect_change"]["value"]) for form, one in row["forms"].items()}
    assert row["chosen"].startswith("the 2 demonstrations")
    assert effects["given"][0] == effects["random"][0] > 1
    assert row["forms"]["given"]["agreement"]["value"] == pytest.approx(1)
    assert effects["edited"] == (pytest.approx(0), pytest.approx(-effects["given"][0]))
    assert all(one["effect"]["n"] == one["agreement"]["n"] == 60 for one in row["forms"].values())
    told = capsys.readouterr().out
    assert f"| injection | 60 | 2 edited | +0.00 [undefined, undefined] | {-effects['given'][0]:+.2f} [" in told
    assert f"- SmolLM2, summeval, injection (60 items): {row['decision']}" in told
    probes.main(options)  # the table alone
    assert capsys.readouterr().out == told


def test_peers_see_the_first_data_sets_and_their_flags_are_counted(tmp_path, monkeypatch, capsys):
    seen = {}

    def ask(peer, draws):
        for draw in draws:
            edits = np.array(draw["edits"])
            seen.setdefault(peer, []).append(edits)
            named = zip(probes.PEERS[peer], edits, strict=True)
            yield {probe for probe, (edit, placebo) in named if edit[0] > placebo[0]}

    monkeypatch.setattr(probes, "ask", ask)
    judges = {name: probes.JUDGES[name] for name in (PLANTED, "answers at random")}
    monkeypatch.setattr(probes, "JUDGES", judges)
    for sets in (2, 3):  # what was asked is not asked again
        shares = probes.main(["--sets", "4", "--peer-sets", str(sets), "--out", str(tmp_path)])
    drawn = [probes.drawn(name, 0) for name in judges]
    expected = [np.array([next(sets)[0] for _ in range(3)]) for sets in drawn]
    for peer in probes.PEERS:
        assert len(seen[peer]) == 6
        of_planted, of_random = (np.array(seen[peer])[places] for places in ([0, 1, 4], [2, 3, 5]))
        np.testing.assert_array_equal(of_planted, expected[0][:, [0, 0]])
        np.testing.assert_array_equal(of_random, expected[1][:, [0, 1]])
    shown = [f"{np.mean(expected[1][:, kind, 0, 0] > expected[1][:, kind, 1, 0]):.0%}" for kind in (0, 1)] * 2
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| answers at random | none |")]
    cells = rows[-1].strip("| ").split(" | ")
    assert cells[2] == f"{shares['answers at random']:.1%}"
    assert cells[4:] == shown
