"""What a command tells on stderr: progress, the plan of a long run, and how to go on; and the names of models."""

import errno
import os
import subprocess
import sys
import types
from contextlib import nullcontext
from dataclasses import replace

import pytest
from commands import as_jsonl, evalbias, records, refused
from fakes import FormulaLM
from refusals import refusals

import evalbias as package
from evalbias.cli import terminal
from evalbias.cli.app import COLLECTED
from evalbias.cli.models import open_lm
from evalbias.cli.run import Run
from evalbias.cli.terminal import LeavableStream, Progress
from evalbias.data import world
from evalbias.lm.types import Choices, Decision, Likelihood, NoProbabilities, Text
from evalbias.options import MeasuringModels, Out
from evalbias.program_options import ComparingAim, JudgeOptions
from evalbias.programs import SYNTHETIC, PairwiseJudge, PointwiseJudge

URL = "http://h/v1"


def test_a_line_of_progress_every_thirty_seconds():
    said, clock = [], [0.0]
    lines = Progress("judging", 1000, say=said.append, now=lambda: clock[0])
    for now in (5, 29, 30, 31, 59, 60, 90):
        clock[0] = now
        lines.advance(100)
    assert said == [
        "judging: 100 of 1,000, 20/s, about 45 s left",  # 900 / 20, after the first chunk
        "judging: 500 of 1,000, 8.47/s, about 59 s left",  # 500 / 59 a second; 500 / 8.47
        "judging: 700 of 1,000, 7.78/s, about 39 s left",  # 700 / 90; 300 / 7.78
    ]
    short = Progress("judging", 1000, say=said.append, now=lambda: clock[0])
    clock[0] += 5
    short.advance(900)
    assert len(said) == 3  # the rest takes less than a second
    clock[0] += 30
    short.advance(101)
    assert said[3:] == ["judging: 1,001 so far, 28.6/s"]  # more than foreseen
    again = Progress("judging", 1000, say=said.append, now=lambda: clock[0])
    again.advance(500, known=500)
    clock[0] += 10
    again.advance(50, known=500)
    assert said[4:] == ["judging: 550 of 1,000 (500 known already), 5/s, about 2 min left"]  # 50 / 10; 450 / 5


def test_the_plan_of_a_long_run(monkeypatch, capsys):
    def told(prompts, count=20_000, hosted=None, **longer):
        terminal.tell_plan(prompts, count, "m", hosted=hosted, yes=False, **longer)
        return capsys.readouterr().err

    messages = [{"role": "user", "content": "x" * 400}, {"role": "assistant", "content": "y" * 80}]
    prompts = [Choices(messages, ("1", "2"))] * 10
    assert told(prompts, 999) == ""  # not a long run
    # 480 / 4 tokens each
    assert told(prompts) == "plan: about 20,000 prompts to m, 2,400,000 tokens (estimated from 10 prompts).\n"
    assert "9,600,000 tokens" in told(prompts, longer=4)
    asked = told([Decision({"Output": "x" * 388}, ("1", "2"))])  # 402 / 4 tokens as JSON
    assert asked == "plan: about 20,000 prompts to m, 2,010,000 tokens (estimated from 1 prompt).\n"
    listed = types.SimpleNamespace(model_cost={"gpt-4o-mini": {"input_cost_per_token": 1.5e-7}})
    monkeypatch.setitem(sys.modules, "litellm", listed)
    assert "about $0.36 for the prompts" in told(prompts, hosted="openai/gpt-4o-mini")  # 2.4e6 * 1.5e-7
    assert "$" not in told(prompts, hosted="openai/unheard-of")
    monkeypatch.setitem(sys.modules, "litellm", None)
    scored = told([Likelihood("x" * 400, "y" * 80)], 1000, "openai/gpt-4o-mini")  # LS: context, continuation
    assert scored == "plan: about 1,000 prompts to m, 120,000 tokens (estimated from 1 prompt).\n"


def test_an_unknown_width_is_that_of_any_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "0")
    terminal.PlainConsole().print("No bias was found.")
    assert capsys.readouterr().out == "No bias was found.\n"


@pytest.mark.parametrize(("answer", "yes", "goes_on"), [("n", False, False), ("y", False, True), ("n", True, True)])
def test_a_user_at_a_terminal_is_asked(monkeypatch, answer, yes, goes_on):
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr(terminal.typer, "confirm", lambda text, **_: asked.append(text) or answer == "y")
    with nullcontext() if goes_on else pytest.raises(terminal.typer.Exit):
        terminal.tell_plan([Text("prompt")], 5000, "m", hosted=None, yes=yes)
    assert asked == ([] if yes else ["Go on?"])


def test_the_version_and_that_garbage_is_collected_rarely(tmp_path, monkeypatch):
    set_to = []
    monkeypatch.setattr("gc.set_threshold", lambda *thresholds: set_to.append(thresholds))
    assert evalbias("--version", cwd=tmp_path).stdout == f"evalbias {package.__version__}\n"
    assert package.__version__[0].isdigit()
    assert set_to == [COLLECTED]


test_options_that_a_model_cannot_use_are_refused = refusals(
    lambda name, options: open_lm(name, MeasuringModels(**options)),
    ("gpt2", {"dialect": "chat"}, "--dialect chat: gpt2 is no server's model; give an address"),
    ("dspy:openai/gpt-4o", {"dialect": "chat", "api_base": URL}, "--dialect chat: .* is no server's model"),
    ("dspy:openai/gpt-4o", {"api_base": f"{URL},{URL}"}, "--api-base: dspy:openai/gpt-4o is asked at one address"),
    ("embedded", {"dtype": "bfloat16"}, "--dtype bfloat16: embedded runs in float32"),
    ("embedded", {"api_base": URL}, "--api-base: embedded is the model that ships with evalbias"),
    ("openai/gpt-4o", {"api_key_env": "MINE"}, "--api-key-env: dspy:openai/gpt-4o has no address"),
    ("served", {"api_key_env": "NONE", "api_base": URL}, "--api-key-env: the variable is not set: give the name"),
)


def test_which_model_is_opened_is_said_where_a_folder_is_named_embedded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "embedded").mkdir()
    assert open_lm("embedded").model.startswith("local/embedded@")
    told = "embedded is the judge that comes with evalbias; for the model in the folder, give ./embedded.\n"
    assert capsys.readouterr().err == told


def test_hosted_models_are_named_as_users_type_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_lm("openai/gpt-4o-mini").model == "openai/gpt-4o-mini"
    (tmp_path / "mistral/mine").mkdir(parents=True)
    with pytest.raises((ValueError, OSError), match="mistral/mine"):  # a folder, not the provider's model
        open_lm("mistral/mine")
    opened = []
    monkeypatch.setattr("evalbias.lm.server.ServerLM.__init__", lambda self, model, **k: opened.append((model, k)))
    monkeypatch.setattr("evalbias.lm.server.ServerLM.capabilities", "chat", raising=False)
    open_lm("openai/gpt-4o-mini", MeasuringModels(dialect="chat"))
    open_lm("org/model", MeasuringModels(dialect="vllm", api_base="http://h/v1, http://i/v1"))
    first, second = ([model, k["base_url"], k["dialect"]] for model, k in opened)
    assert first == ["gpt-4o-mini", ["https://api.openai.com/v1"], "chat"]
    assert second == ["org/model", ["http://h/v1", "http://i/v1"], "vllm"]


def test_a_key_is_named_for_the_address_that_takes_it(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "EVALBIAS_API_KEY", "MINE"):
        monkeypatch.setenv(name, f"the key in {name}".replace(" ", "-"))
    here = MeasuringModels(api_base="https://h/v1")
    named = replace(here, api_key_env="MINE")
    assert "api_key" not in open_lm("openai/gpt-4o").kwargs  # DSPy reads the provider's own
    assert open_lm("dspy:anthropic/x", here).kwargs["api_key"] == "the-key-in-EVALBIAS_API_KEY"
    assert open_lm("dspy:anthropic/x", named).kwargs["api_key"] == "the-key-in-MINE"
    opened = []

    def opening(self, model, **arguments):
        opened.append(arguments["api_key"])
        raise NoProbabilities(model, "it was asked")

    monkeypatch.setattr("evalbias.lm.server.ServerLM.__init__", opening)
    assert open_lm("served", named, writes=True).kwargs["api_key"] == "the-key-in-MINE"
    assert open_lm("served", here, writes=True).kwargs["api_key"] == "the-key-in-EVALBIAS_API_KEY"
    assert opened == ["the-key-in-MINE", None]
    assert named.of_another("https://i/v1").api_key_env is None
    assert named.of_another("https://h/v1").api_key_env == "MINE"
    monkeypatch.delenv("EVALBIAS_API_KEY")
    for model in ("dspy:openai/x", "dspy:anthropic/x"):  # DSPy may not take the provider's
        assert open_lm(model, here).kwargs["api_key"] == "none"
    monkeypatch.undo()
    for model in ("dspy:openai/x", "served"):
        with pytest.raises(ValueError, match="contains a user name or password") as raised:
            open_lm(model, MeasuringModels(api_base="http://u:PASSWORD@h/v1"))
        assert "PASSWORD" not in str(raised.value)


PRICES = """
import os, sys
if len(sys.argv) > 1:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = sys.argv[1]
from evalbias.cli.app import COLLECTED
from evalbias.cli.models import open_lm
from dspy.clients import model_metadata
import urllib.request
asked = []
urllib.request.urlopen = lambda request, **_: asked.append(request.full_url) or 1 / 0
open_lm("openai/gpt-4o")
model_metadata.source_info()
print(len(asked))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "asked"), [([], "0"), (["False"], "1")])
def test_the_price_list_is_fetched_on_demand_only(setting, asked, monkeypatch):
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    command = [sys.executable, "-c", PRICES, *setting]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [asked]


def test_a_proposer_of_the_judges_name_is_the_same_model(tmp_path, monkeypatch):
    opened = []

    def opening(name, options, *, writes=False):
        opened.append((name, options))
        return FormulaLM()

    monkeypatch.setattr("evalbias.cli.run.open_lm", opening)
    asked = ComparingAim("items", lm="judge", criterion="quality", proposer_lm="judge")
    given = MeasuringModels(dtype="float32", adapter="lora")
    with Run("optimize", asked, given, Out(out=tmp_path / "run")) as run:
        assert opened == [("judge", given)]
        assert run.options.proposer_lm is not run.options.lm  # the judge's answers are journaled
    elsewhere = replace(asked, reflection_api_base=URL)  # as of a model that reflects
    with Run("optimize", elsewhere, given, Out(out=tmp_path / "other")):
        assert opened[1:] == [("judge", given), ("judge", given.of_another(URL))]


def test_a_folder_that_is_taken_is_told_before_a_model_is_opened(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("evalbias.cli.run.open_lm", lambda *_, **__: opened.append(1) or FormulaLM())
    asked = JudgeOptions("items", lm="judge", criterion="quality")
    with Run("judge", asked, None, Out(out=tmp_path / "run")):
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.tex").write_text("mine")
    for options, folder, error in (
        (replace(asked, seed=1), "run", "seed: 0 there, 1 now"),
        (replace(asked, criterion="wit"), "run", "criterion: 'quality' there, 'wit' now"),
        (asked, "other", "holds files of no run"),
    ):
        with pytest.raises(ValueError, match=error):
            Run("judge", options, None, Out(out=tmp_path / folder))
    assert opened == [1]
    with Run("judge", asked, None, Out(out=tmp_path / "run")):
        assert len(opened) == 2


@pytest.fixture
def outputs(tmp_path):
    """A folder with judges and items, one of which is empty."""
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    PairwiseJudge(SYNTHETIC, instruction_place="first").save(str(tmp_path / "pairwise.json"))
    drawn = [(f"{d}-{k}", e) for d in range(2) for k, e in enumerate(world.documents(1, 3, seed=d))]
    rows = [{"id": name, "source": e.source, "output": e.output} for name, e in drawn]
    as_jsonl(tmp_path / "items.jsonl", [*rows, {"id": "none", "source": "s", "output": ""}])
    return tmp_path


def test_the_beginnings_of_texts_make_outputs_readable(outputs, monkeypatch):
    monkeypatch.setattr(terminal, "LONG", 6)
    options = ["--data", "items.jsonl", "--lm", "embedded", "--out"]
    assert evalbias("judge", "-q", "--judge", "judge.json", *options, "quiet", cwd=outputs).stderr == ""
    told = evalbias("judge", "--judge", "judge.json", *options, "j", cwd=outputs)
    assert "1 left out (empty output" in told.stderr
    assert "plan: about 6 prompts to embedded, " in told.stderr
    items = {row["id"]: row for row in records(outputs / "items.jsonl")}
    for row in records(outputs / "j/scores.jsonl"):
        assert row["source_begins"] == items[row["id"]]["source"]  # short texts are whole
        assert items[row["id"]]["output"].startswith(row["output_begins"].removesuffix("..."))
    told = evalbias("-q", "judge", "--rank", "--judge", "pairwise.json", *options, "r", cwd=outputs)
    assert told.stderr == ""
    ranking, _ = records(outputs / "r/rankings.jsonl")
    best = ranking["order"][0]
    assert items[best]["output"].startswith(ranking["begins"][best].removesuffix("..."))
    assert f"1. {best}: {ranking['begins'][best]}" in told.stdout


def test_on_a_full_disk_a_run_says_what_is_kept_and_how_it_goes_on(outputs, monkeypatch):
    def full(journal, lines, flush):
        raise OSError(errno.ENOSPC, "No space left on device", str(journal.path))

    monkeypatch.setattr("evalbias.runs.Journal._write", full)
    options = ["--judge", "judge.json", "--data", "items.jsonl", "--lm", "embedded", "--out", "run"]
    assert refused("judge", *options, cwd=outputs).endswith(
        "evalbias: No space left on device: run/judgments.jsonl. Answers that could be written are kept in run: "
        "free some space, and the same command goes on from here."
    )


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="has no such terminals")
def test_a_terminal_that_is_gone_is_no_error():
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        os.close(ours)
        stream = LeavableStream(terminal)
        assert stream.write("Stopped.") == 8
        stream.write("More.")
