"""The commands on any of DSPy's models."""

import json

import chat_models
import pytest
from commands import as_jsonl, evalbias
from fake_server import serving

from evalbias import PointwiseJudge
from evalbias.data import world
from evalbias.programs.criterion import SYNTHETIC


@pytest.fixture
def file(tmp_path):
    fields = ("id", "input_id", "source", "output")
    return as_jsonl(tmp_path / "outputs.jsonl", [{k: e[k] for k in fields} for e in world.documents(2, 2, seed=1)])


def test_a_model_without_probabilities_is_sampled_on_request(lms, file, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top, fake.context = set(), 0, 2048
        options = ["--data", file, "--lm", "dspy:openai/tiny", "--api-base", address, "--out", "run"]
        options += ["--criterion", "quality: does the text say the data?"]
        refused = evalbias("rank", *options, cwd=tmp_path, check=False)
        assert refused.returncode == 2
        assert "reports no token probabilities" in refused.stderr
        assert "--samples" in refused.stderr
        options[options.index("run")] = "sampled"
        shown = evalbias("rank", *options, "--samples", 3, cwd=tmp_path)
        assert "probabilities are estimates from 3 answers to each prompt" in " ".join(shown.stdout.split())
        settings = json.loads((tmp_path / "sampled/run.json").read_text())
        assert settings["sampling"] == {"samples": 3, "temperature": 1.0, "max_tokens": 16, "seed": 0}
        asked = len(fake.requests)
        again = evalbias("rank", *options, "--samples", 3, cwd=tmp_path)
        assert "answers asked 0, replayed 6" in again.stdout
        assert len(fake.requests) == asked


def test_a_server_without_probabilities_is_sampled_under_its_plain_name(lms, file, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    PointwiseJudge(SYNTHETIC).save(tmp_path / "judge.json")
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top, fake.context = set(), 0, 2048
        options = ["--judge", "judge.json", "--data", file, "--lm", "tiny", "--api-base", address, "--out", "run"]
        refused = evalbias("judge", *options, cwd=tmp_path, check=False)
        assert refused.returncode == 2
        assert "tiny at http://127.0.0.1" in refused.stderr
        assert "reports no token probabilities: tried as chat: status 400" in refused.stderr
        assert "--samples" in refused.stderr
        evalbias("judge", *options, "--samples", 2, cwd=tmp_path)
        told = evalbias(
            "judge", *options, "--samples", 2, "--api-base", f"{address},{address}/", cwd=tmp_path, check=False
        )
        assert "reports no token probabilities" in told.stderr
    rows = [json.loads(line) for line in (tmp_path / "run/scores.jsonl").read_text().splitlines()]
    assert [row["samples"] for row in rows] == [2] * 4


def test_the_token_limit_of_the_answers_is_sent_recorded_and_part_of_the_key(lms, file, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top, fake.context = set(), 0, 2048
        options = ["--data", file, "--lm", "dspy:openai/tiny", "--api-base", address, "--samples", 2]
        options += ["--criterion", "quality: does the text say the data?", "--sample-temperature", 0.5]
        evalbias("rank", *options, cwd=tmp_path)
        asked = len(fake.requests)
        evalbias("rank", *options, "--sample-tokens", 5, cwd=tmp_path)
        assert limits(fake.requests[:asked]) == {16}
        assert limits(fake.requests[asked:]) == {5}
    recorded = [json.loads(path.read_text())["sampling"] for path in tmp_path.glob("runs/*/run.json")]
    expected = [{"samples": 2, "temperature": 0.5, "max_tokens": limit, "seed": 0} for limit in (5, 16)]
    assert sorted(recorded, key=lambda one: one["max_tokens"]) == expected


def test_a_judges_answers_are_drawn_with_the_seed_of_the_command(lms, file, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    PointwiseJudge(SYNTHETIC).save(tmp_path / "judge.json")
    drawn = []
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top, fake.context = set(), 0, 2048
        options = ["--judge", "judge.json", "--data", file, "--lm", "dspy:openai/tiny", "--api-base", address]
        for seed in (0, 7):
            before = len(fake.requests)
            evalbias("judge", *options, "--samples", 2, "--seed", seed, "--out", f"run{seed}", cwd=tmp_path)
            drawn.append({body["seed"] for _, body, *_ in fake.requests[before:] if body.get("seed") is not None})
            assert json.loads((tmp_path / f"run{seed}/run.json").read_text())["sampling"]["seed"] == seed
    assert [len(seeds) for seeds in drawn] == [8, 8]
    assert not drawn[0] & drawn[1]


def test_an_audit_of_a_closed_model_measures_all_but_likelihood(lms, file, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    PointwiseJudge(SYNTHETIC).save(tmp_path / "judge.json")
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top, fake.context = set(), 0, 2048
        options = ["--judge", "judge.json", "--data", file, "--lm", "dspy:openai/tiny", "--api-base", address]
        found = json.loads(evalbias("audit", *options, "--samples", 2, "--json", cwd=tmp_path).stdout)
    assert found["n"] == 4
    assert found["not_measured"]["likelihood"].count("--likelihood-lm") == 1


def limits(requests):
    """Token limits of the requests for an answer; probes of the server's abilities have none."""
    bodies = [request[1] for request in requests]
    return {
        body.get("max_completion_tokens", body.get("max_tokens")) for body in bodies if body.get("seed") is not None
    }


def test_a_model_that_writes_needs_no_probabilities(lms, tmp_path):
    item = {"source": "Hallo", "reference": "Hello", "source_language": "German", "target_language": "English"}
    (tmp_path / "texts.jsonl").write_text(json.dumps(item))
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top, fake.context = set(), 0, 4096
        options = ["refine", "--task", "translation", "--data", "texts.jsonl", "--lm", "tiny", "--api-base", address]
        evalbias(*options, "--max-iterations", 0, "--max-tokens", 4, "--out", "run", cwd=tmp_path)
        tokenizer = chat_models.save(chat_models.llama_3, tmp_path / "m")
        template = ["--tokenizer", tokenizer, "--template-options", '{"date_string": "1 May 2026"}']
        refused = evalbias(*options, *template, cwd=tmp_path, check=False)
    assert json.loads((tmp_path / "run/run.json").read_text())["lm"] == {"model": "openai/tiny"}
    assert len((tmp_path / "run/outputs.jsonl").read_text().splitlines()) == 1
    assert "--template-options: tiny reports no token probabilities" in refused.stderr
