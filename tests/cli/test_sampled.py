"""The commands on any of DSPy's models."""

import json
from types import SimpleNamespace

import chat_models
import pytest
from commands import as_jsonl, evalbias, records, refused, rows_of
from fake_server import serving

from evalbias import PointwiseJudge
from evalbias.data import world
from evalbias.programs.criterion import SYNTHETIC

CRITERION = ["--criterion", "quality: does the text say the data?"]


@pytest.fixture
def closed(lms, tmp_path, monkeypatch):
    """A server that reports no probabilities, four items, a saved judge, and options that name them."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    as_jsonl(tmp_path / "outputs.jsonl", rows_of(world.documents(2, 2, seed=1), "id", "input_id"))
    PointwiseJudge(SYNTHETIC).save(tmp_path / "judge.json")
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top, fake.context = set(), 0, 4096
        options = ["--data", "outputs.jsonl", "--lm", "dspy:openai/tiny", "--api-base", address]
        yield SimpleNamespace(fake=fake, address=address, options=options, judge=[*options, "--judge", "judge.json"])


@pytest.mark.slow
def test_a_model_without_probabilities_is_sampled_on_request(closed, tmp_path):
    options = ["judge", "--rank", *closed.options, *CRITERION]
    told = refused(*options, "--out", "run", cwd=tmp_path)
    assert "reports no token probabilities" in told
    assert "--samples" in told
    options += ["--samples", 3, "--out", "sampled"]
    shown = evalbias(*options, cwd=tmp_path)
    assert "probabilities are estimates from 3 answers to each prompt" in " ".join(shown.stdout.split())
    settings = json.loads((tmp_path / "sampled/run.json").read_text())
    assert settings["sampling"] == {"samples": 3, "temperature": 1.0, "max_tokens": 16, "seed": 0}
    asked = len(closed.fake.requests)
    assert "answers asked 0, replayed 6" in evalbias(*options, cwd=tmp_path).stdout
    assert len(closed.fake.requests) == asked


@pytest.mark.slow
def test_a_server_without_probabilities_is_sampled_under_its_plain_name(closed, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    options = ["judge", *closed.judge, "--lm", "tiny", "--out", "run"]
    told = refused(*options, cwd=tmp_path)
    assert "tiny at http://127.0.0.1" in told
    assert "reports no token probabilities: tried as chat: status 400" in told
    assert "--samples" in told
    options += ["--samples", 2]
    evalbias(*options, cwd=tmp_path)
    assert [row["samples"] for row in records(tmp_path / "run/scores.jsonl")] == [2] * 4
    two = ["--api-base", f"{closed.address},{closed.address}/"]
    assert "reports no token probabilities" in refused(*options, *two, cwd=tmp_path)


@pytest.mark.slow
def test_settings_of_the_sampled_answers_are_sent_recorded_and_part_of_the_key(closed, tmp_path):
    drawn = []
    for limit, temperature, seed in ((16, 1.0, 0), (5, 0.5, 7)):
        before = len(closed.fake.requests)
        options = ["--samples", 2, "--sample-temperature", temperature, "--sample-tokens", limit, "--seed", seed]
        evalbias("judge", *closed.judge, *options, "--out", f"run{seed}", cwd=tmp_path)
        bodies = [body for _, body, *_ in closed.fake.requests[before:] if body.get("seed") is not None]  # no probes
        assert {body.get("max_completion_tokens", body.get("max_tokens")) for body in bodies} == {limit}
        assert {body["temperature"] for body in bodies} == {temperature}
        drawn.append({body["seed"] for body in bodies})
        settings = json.loads((tmp_path / f"run{seed}/run.json").read_text())
        assert settings["sampling"] == {"samples": 2, "temperature": temperature, "max_tokens": limit, "seed": seed}
    assert [len(seeds) for seeds in drawn] == [8, 8]
    assert not drawn[0] & drawn[1]


@pytest.mark.slow
def test_a_model_that_writes_needs_no_probabilities(closed, tmp_path):
    item = {"source": "Hallo", "reference": "Hello", "source_language": "German", "target_language": "English"}
    as_jsonl(tmp_path / "texts.jsonl", [item])
    options = ["refine", "run", "--task", "translation", "--data", "texts.jsonl", "--lm", "tiny", "--max-iterations", 0]
    options += ["--api-base", closed.address, "--max-tokens", 4, "--out", "run"]
    evalbias(*options, cwd=tmp_path)
    assert json.loads((tmp_path / "run/run.json").read_text())["lm"] == {"model": "openai/tiny"}
    assert len(records(tmp_path / "run/outputs.jsonl")) == 1
    tokenizer = chat_models.save(chat_models.llama_3, tmp_path / "m")
    template = ["--tokenizer", tokenizer, "--template-options", '{"date_string": "1 May 2026"}']
    assert "--template-options: tiny reports no token" in refused(*options, *template, cwd=tmp_path)
