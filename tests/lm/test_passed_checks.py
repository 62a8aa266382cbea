"""Checks at load that a model has passed are not run again, unless anything that decides their outcome has changed."""

import json

import pytest
import torch
from models import save

from evalbias import LocalLM
from evalbias.lm import load as loading
from evalbias.lm import passed_checks
from evalbias.lm import score as scorer
from evalbias.lm.passed_checks import PassedChecks


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Names of the checks that were run so far, with a cache folder of its own and no model too small."""
    monkeypatch.setenv("EVALBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(passed_checks, "SMALL", 0)
    names = []
    for module, name in ((loading, "check_model"), (scorer, "disagreement")):
        check = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, check=check, name=name: names.append(name) or check(*given))
    return names


@pytest.fixture
def folder(tmp_path):
    return save("llama", tmp_path / "model")


BOTH = ["check_model", "disagreement"]


def load(folder, **options):
    return LocalLM(str(folder), device="cpu", dtype=options.pop("dtype", "float32"), **options)


def notes(tmp_path):
    return sorted((tmp_path / "cache/checks").iterdir())


def test_a_model_that_passed_is_not_checked_again_and_answers_the_same(runs, folder):
    first = load(folder).choice_logprobs(["a text: yes or no?"], ["yes", "no"]).logprobs
    assert runs == BOTH
    second = load(folder)
    assert runs == BOTH
    assert second.engine.scorer.share
    assert (second.choice_logprobs(["a text: yes or no?"], ["yes", "no"]).logprobs == first).all()


def test_a_changed_weight_is_checked_again(runs, folder):
    load(folder)
    model = loading.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    model.save_pretrained(folder)
    load(folder)
    assert runs == BOTH + BOTH


def test_another_dtype_is_checked_again(runs, folder):
    load(folder)
    load(folder, dtype="bfloat16")
    assert runs == BOTH + BOTH


def test_other_settings_of_the_engine_are_tried_again(runs, folder):
    load(folder)
    load(folder, prefix_bytes=0)
    load(folder, batch_tokens=64)
    assert runs == [*BOTH, "disagreement", "disagreement"]


@pytest.mark.parametrize("fact", ["_packages", "_code", "_device", "version"])
def test_other_packages_code_devices_or_versions_are_checked_again(runs, folder, monkeypatch, fact):
    load(folder)
    monkeypatch.setattr(passed_checks, fact, lambda *_: "another")
    load(folder)
    assert runs == BOTH + BOTH


def test_the_version_of_any_package_counts(tmp_path, monkeypatch):
    (tmp_path / "torch-2.13.0.dist-info").mkdir()
    monkeypatch.setattr(passed_checks.sys, "path", ["", str(tmp_path), str(tmp_path / "missing")])
    seen = []
    for name in ("torch-2.13.0.dist-info", "torch-2.14.0.dist-info"):
        passed_checks._packages.cache_clear()
        (tmp_path / "torch-2.13.0.dist-info").rename(tmp_path / name)
        seen.append(passed_checks._packages())
    assert seen[0] != seen[1]
    (tmp_path / "evalbias.egg-info").mkdir()  # as in a checkout's folder
    passed_checks._packages.cache_clear()
    assert passed_checks._packages() == seen[1]
    passed_checks._packages.cache_clear()


def test_the_code_of_every_layer_counts(tmp_path, monkeypatch):
    (tmp_path / "own_layers.py").write_text("import torch\n\n\nclass Own(torch.nn.Identity):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    from own_layers import Own

    model = torch.nn.Sequential(torch.nn.Linear(1, 1), Own())
    before = passed_checks._code(model)
    assert passed_checks._code(model) == before
    (tmp_path / "own_layers.py").write_text("class Own: ...\n")
    assert passed_checks._code(model) != before
    monkeypatch.setattr(Own, "__module__", "a module without a file")
    assert passed_checks._code(model) is None


@pytest.mark.parametrize("content", ["", "{", "{}", "null", '"passed"', "\udcff"])
def test_a_damaged_note_is_ignored_and_written_anew(runs, folder, tmp_path, content):
    load(folder)
    whole = [note.read_bytes() for note in notes(tmp_path)]
    assert len(whole) == 2
    for note in notes(tmp_path):
        note.write_bytes(content.encode("utf-8", "surrogateescape"))
    load(folder)
    assert runs == BOTH + BOTH
    assert [note.read_bytes() for note in notes(tmp_path)] == whole


def test_the_note_of_another_model_is_ignored(runs, folder, tmp_path):
    load(folder)
    for note in notes(tmp_path):
        note.write_text(json.dumps({**json.loads(note.read_text()), "model": "0123456789ab"}))
    load(folder)
    assert runs == BOTH + BOTH


def test_a_failed_check_is_run_again(runs, folder, monkeypatch, tmp_path):
    def differ(*_):
        runs.append("disagreement")
        return "its answers differ by 1 nats"

    monkeypatch.setattr(scorer, "disagreement", differ)
    assert not load(folder).engine.scorer.share
    tried = runs.count("disagreement")
    assert tried == 3  # packs with and without cascade attention, and branches
    assert not load(folder).engine.scorer.share
    assert runs.count("disagreement") == 2 * tried
    assert len(notes(tmp_path)) == 1  # of ``check_model``


def test_a_model_that_may_run_its_own_code_is_always_checked(runs, folder):
    for _ in range(2):
        load(folder, trust_remote_code=True)
    assert runs == BOTH + BOTH


def test_files_that_change_while_they_are_read_leave_no_note(runs, folder, tmp_path, monkeypatch):
    read = loading.AutoModelForCausalLM.from_pretrained

    def read_and_replace(*given, **options):
        loaded = read(*given, **options)
        (tmp_path / "model/added.json").write_text("{}")
        return loaded

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", read_and_replace)
    load(folder)
    assert runs == BOTH
    assert not (tmp_path / "cache/checks").exists()


def test_a_cache_that_cannot_be_written_is_done_without(runs, folder, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder would be")
    for _ in range(2):
        load(folder)
    assert runs == BOTH + BOTH


def test_small_models_leave_no_notes(monkeypatch, tmp_path, folder):
    monkeypatch.setenv("EVALBIAS_CACHE", str(tmp_path / "cache"))
    load(folder)
    assert not (tmp_path / "cache/checks").exists()


def test_nothing_is_remembered_without_facts(monkeypatch, tmp_path):
    monkeypatch.setenv("EVALBIAS_CACHE", str(tmp_path))
    checks = PassedChecks().under({"batch_tokens": 1})
    checks.add("causal")
    assert "causal" not in checks
    assert not list(tmp_path.iterdir())
