"""The command line, in this process or in one of its own; and a table as it is printed."""

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
from unittest import mock

import typer.main
from rich.console import Console

COMMAND = [sys.executable, "-m", "evalbias"]


@contextlib.contextmanager
def changed_directory(path):
    before = os.getcwd()
    os.chdir(path)  # contextlib.chdir came with Python 3.11
    try:
        yield
    finally:
        os.chdir(before)


parsed = functools.cache(typer.main.get_command)


def evalbias(*arguments, cwd, check=True):
    """Run a command in this process, as ``evalbias`` on the command line does; packages are imported once for all."""
    from evalbias.cli.app import main
    from evalbias.cli.terminal import set_verbosity

    argv, code = ["evalbias", *map(str, arguments)], 0
    out, err = io.StringIO(), io.StringIO()
    with (
        changed_directory(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"}),
        mock.patch.object(typer.main, "get_command", parsed),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            set_verbosity(quiet=False, verbose=False)  # of this process, in which other tests read the log
    done = subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())
    if check:
        assert code == 0, done.stderr
    return done


def answered(*arguments, cwd):
    """Return what a command prints with --json."""
    return json.loads(evalbias(*arguments, "--json", cwd=cwd).stdout)


def refused(*arguments, cwd):
    """Return what a command says that ends with an error of its user, in one line."""
    done = evalbias(*arguments, cwd=cwd, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.replace("│", " ").split())


def rows_of(examples, *fields):
    return [{name: e[name] for name in ("source", "output", *fields)} for e in examples]


def as_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def records(path):
    """Return the rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


KILLING = """
import os, signal, sys
from pathlib import Path
from evalbias.cli.app import main
from evalbias.runs import Journal

log, lines, append = Path(sys.argv[1]).resolve(), int(sys.argv[2]), Journal._write

def appending(self, written, *, flush=True):
    append(self, written, flush=flush)
    if self.path.resolve() == log and log.read_bytes().count(b"\\n") >= lines:
        os.kill(os.getpid(), signal.SIGKILL)

Journal._write = appending
sys.argv[1:] = sys.argv[3:]
main()
"""


def kill_once(log, *arguments, cwd, lines=1):
    """Run a command that is killed as soon as its log holds so many lines; returns what the log held then."""
    command = [sys.executable, "-c", KILLING, str(log), str(lines), *map(str, arguments)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return log.read_text()


def printed(table, width=200):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
