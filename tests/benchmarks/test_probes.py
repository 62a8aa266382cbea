"""The benchmark of probes: a planted bias is found, and nothing where edits and placebos are the same; peers' draws."""

import io
import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import dspy
import numpy as np
import pytest
from fakes import FormulaLM, numbers
from scipy.special import softmax

from benchmarks import probes
from benchmarks.audit import peers
from evalbias.measures.families import holm

AUDIT = Path(peers.__file__).parent
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


def asked_again(judge, outputs, rubric):
    """Add something to outputs, as juryrig does, and flag a judge that gives them more than a tenth more."""
    scores = [
        [judge.judge(prompt=prompt, response=response + more, rubric=rubric).score for prompt, response in outputs]
        for more in (" And more.", "")
    ]
    assert scores[1] == [0.75, 0.25]
    return SimpleNamespace(flagged=np.subtract(*scores).mean() > 0.1)


def probe(variant):
    """Read a file as judge-audit-mcp does, and flag a judge that gives a variant more."""

    def severity(file):
        rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
        assert [row["item_id"] for row in rows] == ["0", "1"] * 2
        scores = {name: [row["score"] for row in rows if row["variant"] == name] for name in ("", variant)}
        return SimpleNamespace(findings=[SimpleNamespace(severity=sum(scores[variant]) > sum(scores[""]))])

    return severity


STUBS = {
    "juryrig": {"position_bias": None, "verbosity_bias": asked_again, "prompt_injection_bias": asked_again},
    "juryrig.judge": {"Judgment": lambda score: SimpleNamespace(score=score)},
    "judge_audit_mcp": {},
    "judge_audit_mcp.models": {"SEV_CLEAN": False},
    "judge_audit_mcp.probes": {"PROBES": {"verbosity": probe("padded"), "sycophancy": probe("hinted")}},
}
"""Modules in the peers' places."""


@pytest.mark.parametrize("peer", probes.PEERS)
def test_a_peer_is_given_the_scores_of_edited_outputs_beside_the_placebos(peer, monkeypatch, capsys):
    for name, content in STUBS.items():
        stub = ModuleType(name)
        vars(stub).update(content)
        monkeypatch.setitem(sys.modules, name, stub)
    monkeypatch.syspath_prepend(AUDIT)
    plain, moved = [4, 2], [5, 2]
    draws = [{"edits": edits} for edits in ([[moved, plain], [plain, plain]], [[plain, plain], [moved, plain]])]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(one) + "\n" for one in draws)))
    runpy.run_path(str(AUDIT / f"peer_{peer.replace('-', '_')}.py"))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [[one] for one in probes.PEERS[peer]]
