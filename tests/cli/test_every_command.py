"""Every command: its help, its exit code after an error, a defect or a signal, and that it asks no network in vain."""

import errno
import io
import math
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import typer
import typer.main
from commands import as_jsonl, evalbias

from evalbias import __main__
from evalbias.cli import app as cli
from evalbias.cli.app import SIGNALS, app, stopped_by_signals
from evalbias.cli.terminal import STOPPED
from evalbias.data import world
from evalbias.evaluation.words import Status
from evalbias.programs import SYNTHETIC, PointwiseJudge

CRITERION = f"{world.NAME}: {world.DEFINITION}"
COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("command", ["", "audit", "judge", "align", "optimize", "refine", "refine measure"])
def test_help_cuts_nothing_off_in_a_terminal_of_80_columns(monkeypatch, tmp_path, command):
    monkeypatch.setenv("COLUMNS", "80")
    text = evalbias(*command.split(), "--help", cwd=tmp_path).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert [line for line in text.splitlines() if line.startswith(" ") and line.endswith("...")] == []


def test_help_lists_the_commands_by_what_they_are_for(tmp_path):
    _, *parts = re.split(r"^\w+ a judge:\n", evalbias("--help", cwd=tmp_path).stdout, flags=re.MULTILINE)
    *parts, last = [line for part in parts for line in part.split("\n\n") if line.strip()]
    listed = [re.findall(r"^  (\w+)", part, re.MULTILINE) for part in parts]
    assert listed == [*cli.GROUPED.values()]
    assert sorted(name for names in listed for name in names) == sorted(typer.main.get_command(cli.app).commands)
    assert last.split()[:2] == ["evalbias", "--skill"]


def test_help_lists_the_options_of_a_command_by_section(tmp_path):
    text = evalbias("audit", "--help", cwd=tmp_path).stdout
    assert "source=question,output=answer,score=rating" in text
    codes = "0 done; 1 a condition of --fail-on or --certify fails; 2 an error that you can correct"
    said = f"Exit codes: {codes} (the message says how); 3 such a condition is undecided; 70 a defect"
    assert said in " ".join(text.split())
    _, *parts = re.split(r"^(\S.*):\n", text, flags=re.MULTILINE)
    options = (set(re.findall(r"^ +.*?(--[a-z-]+)", lines, re.MULTILINE)) for lines in parts[1::2])
    sections = dict(zip(parts[::2], options, strict=True))
    assert [*sections] == ["Data", "Model and judge", "Measurement", "Running models", "Run"]
    measurement = "only probe feature task likelihood-lm own-system own-family length reliability outcome pass"
    assert sections["Measurement"] == {f"--{name}" for name in measurement.split()}
    assert {"--data", "--map"} <= sections["Data"]
    assert {"--lm", "--scores-field", "--winner-field"} <= sections["Model and judge"]
    assert {"--api-base", "--device"} <= sections["Running models"]
    assert {"--fail-on", "--yes", "--help"} <= sections["Run"]
    for command in ("refine run", "refine style"):  # whose loops judge nothing
        listed = evalbias(*command.split(), "--help", cwd=tmp_path).stdout
        assert "--api-base" in listed
        for option in ("--samples", "--sample-temperature", "--sample-tokens", "--yes"):
            assert option not in listed


DATA = ["--data", "items.jsonl"]
EMBEDDED = [*DATA, "--lm", "embedded", "--criterion", CRITERION]
LOOP = [*DATA, "--lm", "embedded", "--task", "constrained-generation"]
TWO = ["--before", "items.jsonl", "--after", "items.jsonl", "--scores-field", "mine"]
OPENED, READ = "runs.RunFolder.__init__", "runs.read_run"
LEAVES = {"audit": ([*DATA, "--scores-field", "mine"], OPENED), "correct": ([*DATA, "--scores-field", "mine"], OPENED)}
LEAVES |= {"drift": (TWO, OPENED), "compare": (TWO, OPENED), "jury": ([*DATA, "--judges", "mine,theirs"], OPENED)}
LEAVES |= {"probe emit": ([*DATA, "--out", "emitted.jsonl"], "cli.probe.with_edits"), "probe run": (EMBEDDED, OPENED)}
LEAVES |= {"probe read": ([*DATA, "--scores-field", "mine"], OPENED)}
LEAVES |= {"judge": (EMBEDDED, OPENED), "refine run": (LOOP, OPENED)}
LEAVES |= {"refine measure": ([*DATA, "--own", "mine", "--expected", "theirs"], OPENED), "refine style": (LOOP, OPENED)}
LEAVES |= {"align": (EMBEDDED, OPENED), "optimize": ([*EMBEDDED, "--aim", "likelihood", "--bare", "-k", 1], OPENED)}
LEAVES |= {"demo": ([], OPENED), "doctor": (["items.jsonl"], "cli.doctor.recognised_columns")}
LEAVES |= {"--skill": ([], "cli.app.resources.files"), "runs list": (["--root", "."], "runs.list_runs")}
LEAVES |= {"runs show": (["."], READ), "runs delete": (["."], READ)}
"""Command -> arguments with which it gets as far as a function, and the function."""


@pytest.fixture
def few(tmp_path):
    """Items for every command, in the folder in which it runs."""
    rows = [
        {"id": f"{k}", "input_id": f"{k // 2}", "source": f"s{k // 2}", "output": e.output, "concepts": ["a", "b"]}
        | {"mine": k % 3 + 0.5, "theirs": k % 4 + 0.5, "score": k % 5 + 1, "iteration": 0}
        for k, e in enumerate(world.examples(32, seed=1))
    ]
    as_jsonl(tmp_path / "items.jsonl", rows)
    PointwiseJudge(SYNTHETIC).save(tmp_path / "judge.json")


class Panic(BaseException):
    """What a fault in a library written in Rust raises."""


def leaves(group, *names):
    for name, command in group.commands.items():
        yield from leaves(command, *names, name) if hasattr(command, "commands") else [" ".join((*names, name))]


def test_every_command_is_tried_with_defects():
    assert sorted([*leaves(typer.main.get_command(cli.app)), "--skill"]) == sorted(LEAVES)
    assert len(cli.app.registered_commands) + len(cli.app.registered_groups) <= 13


@pytest.fixture
def failing(few, tmp_path, monkeypatch):
    """Run a command in which a function raises an error."""

    def run(command, error):
        def fail(*_, **__):
            raise error

        arguments, function = LEAVES[command]
        monkeypatch.setattr(f"evalbias.{function}", fail)
        return evalbias(*command.split(), *arguments, cwd=tmp_path, check=False)

    return run


@pytest.mark.parametrize("command", LEAVES)
def test_a_defect_exits_with_70(failing, command):
    told = failing(command, TypeError("of\n::error::type"))
    assert told.returncode == 70, told.stderr
    report = "This is a defect of evalbias: please report it, with the traceback that -v prints."
    assert told.stderr.splitlines()[-2:] == ["evalbias: TypeError: of", f"  \ufffd:error::type. {report}"]
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(("code", "errors"), [
    (70, [MemoryError(), RecursionError("deep"), KeyError("k"), EOFError(), RuntimeError(), Panic("in Rust")]),
    (2, [BrokenPipeError(errno.EPIPE, "Broken pipe"), OSError("o"), ValueError("v"), typer.BadParameter("b")]),
    (130, [KeyboardInterrupt()]),
    (143, [SystemExit(143)]),
])  # fmt: skip
def test_no_error_exits_with_1(failing, code, errors):
    for error in errors:
        assert failing("runs show", error).returncode == code, error


def test_the_traceback_of_a_defect_is_told_on_request(tmp_path):
    script = """
import sys
from evalbias import runs
from evalbias.cli import app

def read_run(path):
    key = "sk-" + "secret"
    raise TypeError("wrong")

runs.read_run = read_run
app.main()
"""
    command = [sys.executable, "-c", script, "runs", "show", ".", "-v"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 70
    assert "Traceback" in done.stderr
    assert "in read_run" in done.stderr
    assert "sk-secret" not in done.stderr  # variables, of which keys are some
    assert done.stderr.splitlines()[-1].startswith("evalbias: TypeError: wrong. This is a defect of evalbias")


@pytest.mark.slow
def test_an_error_that_cannot_be_printed_does_not_exit_with_1(few, tmp_path):
    command = [sys.executable, "-m", "evalbias", "runs", "show", "."]
    for unbuffered in ("", "1"):
        with open("/dev/full", "w") as full:
            environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            assert subprocess.run(command, cwd=tmp_path, stderr=full, env=environment).returncode == 2


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), (None, 2), (KeyboardInterrupt(), 130)])
def test_only_a_no_exits_with_1(tmp_path, monkeypatch, answer, code):
    (tmp_path / "run.json").write_text("{}")

    class Answers(io.StringIO):
        def readline(self, *_):
            if isinstance(answer, BaseException):
                raise answer
            return "" if answer is None else f"{answer}\n"

    monkeypatch.setattr(sys, "stdin", Answers())
    assert evalbias("runs", "delete", ".", cwd=tmp_path, check=False).returncode == code
    assert (tmp_path / "run.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["audit", "judge", pytest.param("demo", marks=pytest.mark.slow)])
def test_what_needs_no_network_asks_for_none(few, tmp_path, monkeypatch, command):
    asked = []
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, lambda *given: asked.append(given))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **_: asked.append(given))
    evalbias(command, *LEAVES[command][0], cwd=tmp_path)
    assert asked == []


# Signals: Ctrl-C, SIGTERM of schedulers, SIGHUP of a lost connection.


USUAL = {number: signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL for number in SIGNALS}


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGHUP")
def test_ctrl_c_and_the_signals_of_schedulers_and_lost_connections_are_handled():
    assert SIGNALS == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def send(number):
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def _usual():
    before = {number: signal.signal(number, handler) for number, handler in USUAL.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers():
    return {number: signal.getsignal(number) for number in SIGNALS}


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("told", [True, False])
def test_a_signal_interrupts_once_and_decides_the_exit_code(monkeypatch, number, told):
    monkeypatch.setattr("evalbias.cli.app.REPEATED", math.inf)

    def interrupted():
        with stopped_by_signals():
            try:
                send(number)
            except KeyboardInterrupt:
                send(number)  # timeout(1) sends a second one, which must not cut short what is kept and said
                if told:
                    raise SystemExit(STOPPED) from None
                raise

    with pytest.raises(SystemExit) as stop:
        interrupted()
    assert stop.value.code == 128 + number
    ended = []
    monkeypatch.setattr(cli.os, "_exit", ended.append)
    send(number)  # while the process ends: without a traceback
    assert ended == [128 + number]


def test_a_signal_during_the_import_leaves_no_traceback(monkeypatch):
    class Interrupting:
        def find_spec(self, name, *_):
            if name == "evalbias.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "evalbias.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as stop:
        __main__.start()
    assert stop.value.code == STOPPED
    assert 'evalbias = "evalbias.__main__:start"\n' in (Path(__file__).parents[2] / "pyproject.toml").read_text()


@pytest.mark.parametrize("code", [0, 1, 2, STOPPED])
def test_a_command_that_ends_by_itself_keeps_its_exit_code(code):
    with pytest.raises(SystemExit) as stop, stopped_by_signals():
        raise SystemExit(code)
    assert stop.value.code == code
    assert handlers() == USUAL


@pytest.mark.parametrize("number", SIGNALS)
def test_a_later_signal_interrupts_again_and_an_ignored_one_stays_so(monkeypatch, number):
    monkeypatch.setattr("evalbias.cli.app.REPEATED", -1.0)
    with stopped_by_signals():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                send(number)
    assert handlers() == USUAL
    signal.signal(number, signal.SIG_IGN)  # as SIGHUP under nohup
    with stopped_by_signals():
        send(number)
    assert signal.getsignal(number) == signal.SIG_IGN


@pytest.fixture(scope="module")
def skill(tmp_path_factory):
    return evalbias("--skill", cwd=tmp_path_factory.mktemp("skill")).stdout


def options_of(command):
    return {name for parameter in command.params for name in parameter.opts}


def test_a_skill_begins_as_others_do_names_the_findings_of_an_audit_and_sees_a_file_by_the_doctor_first(skill):
    assert re.match(r"---\nname: evalbias\ndescription: .{50,1000}\n---\n", skill)
    assert set(re.findall(r"^- \*([a-z ]+)\*:", skill, re.MULTILINE)) == set(get_args(Status))
    section = skill.split("## Which file\n")[1].split("\n## ")[0]
    assert section.lstrip().startswith("Run `evalbias doctor FILE` first")
    assert "doctor" in COMMANDS


def test_commands_and_options_exist(skill):
    lines = re.findall(r"`evalbias ([a-z][^`\[]*)`", skill)
    assert len(lines) >= 5
    for line in lines:
        words = line.split()
        command = COMMANDS[words[0]]
        command = getattr(command, "commands", {}).get(words[1], command) if len(words) > 1 else command
        assert {word for word in words if word.startswith("--")} <= options_of(command), line
    alone = set(re.findall(r"`(--[a-z-]+)", skill))
    assert alone <= options_of(COMMANDS["audit"])
