"""The command line, in this process or in one of its own; and a table as it is printed."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from unittest import mock

from rich.console import Console

COMMAND = [sys.executable, "-m", "evalbias.cli"]


@contextlib.contextmanager
def changed_directory(path):
    before = os.getcwd()
    os.chdir(path)  # contextlib.chdir came with Python 3.11
    try:
        yield
    finally:
        os.chdir(before)


def evalbias(*arguments, cwd, check=True):
    """Run a command in this process, as ``evalbias`` on the command line does; packages are imported once for all."""
    from evalbias.cli import main

    argv, code = ["evalbias", *map(str, arguments)], 0
    out, err = io.StringIO(), io.StringIO()
    with (
        changed_directory(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"}),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    done = subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())
    if check:
        assert code == 0, done.stderr
    return done


def evalbias_process(*arguments, cwd, check=True):
    """Run a command in a process of its own."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def kill_once(log, *arguments, cwd):
    """Run a command and kill it as soon as its log exists; returns what the log held then."""
    silent = subprocess.DEVNULL
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], cwd=cwd, stdout=silent, stderr=silent)
    while process.poll() is None and not log.exists():
        time.sleep(0.01)
    assert process.poll() is None, "the command ended before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return log.read_text()


def printed(table, width=200):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
