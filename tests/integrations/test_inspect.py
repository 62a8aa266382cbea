"""A compiled judge as a scorer of Inspect, in real evaluations of a mock model."""

import math
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import dspy
import pytest
from fake_server import KEY, serving

inspect_ai = pytest.importorskip("inspect_ai", reason="Inspect has an environment of its own: make test-integrations")

from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.log import list_eval_logs, read_eval_log  # noqa: E402
from inspect_ai.model import GenerateConfig, ModelOutput, get_model  # noqa: E402

from evalbias.data import world  # noqa: E402
from evalbias.integrations.inspect_ai import judge_scorer  # noqa: E402

TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from evalbias.integrations.inspect_ai import judge_scorer

@task
def said():
    return Task(dataset=[Sample(input="born in rome"), Sample(input="born in oslo")], scorer=judge_scorer("judge.json"))
"""


def evaluated(scorer, items, tmp_path, status="success", model=None, **sample):
    outputs = [ModelOutput.from_content("mockllm", item.output) for item in items]
    samples = [Sample(input=item.source, **{name: make(item) for name, make in sample.items()}) for item in items]
    (log,) = inspect_ai.eval(
        inspect_ai.Task(dataset=samples, scorer=scorer),
        model=model or get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path / "logs"),
        display="none",
        max_connections=1,
        max_samples=1,  # the mock's answers come in the order of the samples
    )
    assert log.status == status, log.error
    return log


def test_an_evaluation_has_the_judges_scores(judge, tmp_path):
    items = world.examples(4, seed=1)
    log = evaluated(judge_scorer(judge), items, tmp_path)
    truth = [prediction.score for prediction in judge.batch(items)]
    scores = [sample.scores["judge_scorer"] for sample in log.samples]
    assert [score.value for score in scores] == pytest.approx(truth, abs=1e-4)
    assert log.results.scores[0].metrics["mean"].value == pytest.approx(sum(truth) / 4, abs=1e-4)
    for score, prediction in zip(scores, judge.batch(items), strict=True):
        assert score.metadata["distribution"] == pytest.approx(prediction.distribution, abs=1e-4)
        assert score.metadata["coverage"] == pytest.approx(prediction.coverage, abs=1e-4)
        assert score.explanation.startswith("The judge scored the output")


def test_what_an_openai_compatible_server_writes_is_judged(judge, lms, tmp_path, monkeypatch):
    items = world.examples(3, seed=1)
    with serving(lms["llama-chat"], "chat", key=KEY) as (address, fake):
        monkeypatch.setenv("LOOPBACK_BASE_URL", address)
        monkeypatch.setenv("LOOPBACK_API_KEY", KEY)
        model = get_model("openai-api/loopback/tiny", config=GenerateConfig(max_tokens=8, max_retries=0))
        log = evaluated(judge_scorer(judge), items, tmp_path, model=model)
    assert [path for path, _ in fake.requests] == ["/v1/chat/completions"] * 3
    written = [dspy.Example(source=sample.input, output=sample.output.completion) for sample in log.samples]
    assert all(one.output for one in written)
    truth = [prediction.score for prediction in judge.batch(written)]
    assert [sample.scores["judge_scorer"].value for sample in log.samples] == pytest.approx(truth, abs=1e-4)


def test_an_output_that_cannot_be_judged_is_unscored(judge, tmp_path):
    (item,) = world.examples(1, seed=2)
    items = [item, dspy.Example(item, output=" "), dspy.Example(item, output="word " * 3000)]
    log = evaluated(judge_scorer(judge), items, tmp_path)
    scored, empty, long = (sample.scores["judge_scorer"] for sample in log.samples)
    assert math.isnan(empty.value)
    assert empty.reason == "no_response"
    assert math.isnan(long.value)
    assert long.reason == "grader_failed"
    assert "the model's context is" in long.explanation
    assert log.results.scores[0].metrics["mean"].value == pytest.approx(scored.value, abs=1e-4)


def test_the_source_can_be_in_the_samples_metadata(judge, tmp_path):
    items, scorer = world.examples(2, seed=3), judge_scorer(judge, source="facts")
    log = evaluated(scorer, items, tmp_path, metadata=lambda item: {"facts": item.source})
    truth = [prediction.score for prediction in judge.batch(items)]
    assert [sample.scores["judge_scorer"].value for sample in log.samples] == pytest.approx(truth, abs=1e-4)
    log = evaluated(scorer, items[:1], tmp_path, "error", id=lambda _: "s7", metadata=lambda _: {"text": "y"})
    assert "The sample 's7' has no 'facts' in its metadata, only ['text']" in log.error.message


def test_inspect_finds_the_scorer_by_its_name():
    (entry,) = (one for one in entry_points(group="inspect_ai") if one.name == "evalbias")
    assert entry.load().judge_scorer is judge_scorer


def test_a_saved_judge_scores_in_the_command(judge, tmp_path):
    judge.save(tmp_path / "judge.json")
    (tmp_path / "task.py").write_text(TASK)
    command = [str(Path(sys.executable).with_name("inspect")), "eval", "task.py", "--model", "mockllm/model"]
    command += ["--log-dir", "logs", "--display", "none"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    (info,) = list_eval_logs(str(tmp_path / "logs"))
    log = read_eval_log(info.name)
    texts = [dspy.Example(source=s.input, output=s.output.completion) for s in log.samples]
    truth = [prediction.score for prediction in judge.batch(texts)]
    assert [sample.scores["judge_scorer"].value for sample in log.samples] == pytest.approx(truth, abs=1e-4)
    assert log.eval.scorers[0].name.endswith("judge_scorer")
