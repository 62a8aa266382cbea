"""The programs of the README run as they stand; only what names a user's own model or file is put in place."""

import re
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from evalbias.data import world
from evalbias.lm.embedded import FOLDER

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_readmes_programs_run_one_after_the_other(tmp_path):
    programs = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(programs) >= 3
    items = world.examples(150, seed=9)
    rows = [{"question": e.source, "answer": e.output, "rating": e.scores["quality"]} for e in items]
    pandas.DataFrame(rows).to_csv(tmp_path / "items.csv", index=False)
    for program in programs:
        text = program.replace("path/or/hugging-face-name", str(FOLDER))
        told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
    assert (tmp_path / "judge.json").exists()


def test_every_command_of_the_readme_has_its_options():
    lines = re.findall(r"^evalbias .*$", README, flags=re.MULTILINE)
    assert lines
    for line in lines:
        words = line.split()
        command = [w for w in words[1:3] if not w.startswith("-")]
        told = subprocess.run(
            [sys.executable, "-m", "evalbias.cli", *command, "--help"], capture_output=True, text=True
        )
        assert told.returncode == 0, line
        for option in re.findall(r"--[a-z-]+", line):
            assert option in told.stdout, line
