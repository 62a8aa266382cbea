"""The command line, as a user runs it: in a process of its own; and a table as it is printed."""

import os
import subprocess
import sys

from rich.console import Console

COMMAND = [sys.executable, "-m", "evalbias.cli"]


def evalbias(*arguments, cwd, check=True):
    command = [*COMMAND, *map(str, arguments)]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    told = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=offline)
    if check:
        assert told.returncode == 0, told.stderr
    return told


def printed(table, width=200):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
