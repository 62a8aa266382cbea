"""The command line, as a user runs it: in a process of its own; and a table as it is printed."""

import os
import signal
import subprocess
import sys
import time

from rich.console import Console

COMMAND = [sys.executable, "-m", "evalbias.cli"]


def evalbias(*arguments, cwd, check=True):
    command = [*COMMAND, *map(str, arguments)]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    told = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=offline)
    if check:
        assert told.returncode == 0, told.stderr
    return told


def kill_once(log, *arguments, cwd):
    """Run a command and kill it as soon as its log is there; gives what the log held then."""
    nothing = subprocess.DEVNULL
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], cwd=cwd, stdout=nothing, stderr=nothing)
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
