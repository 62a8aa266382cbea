"""The skill for coding agents names commands, options and findings that exist, and ships with the package."""

import re
from typing import get_args

import pytest
import typer.main
from commands import evalbias

from evalbias.cli.app import app
from evalbias.evaluation.audit import Status

COMMANDS = typer.main.get_command(app).commands


@pytest.fixture(scope="module")
def skill(tmp_path_factory):
    return evalbias("--skill", cwd=tmp_path_factory.mktemp("skill")).stdout


def options_of(command):
    return {name for parameter in command.params for name in parameter.opts}


def test_begins_as_skills_do(skill):
    assert re.match(r"---\nname: evalbias\ndescription: .{50,1000}\n---\n", skill)


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


def test_findings_are_those_of_an_audit(skill):
    assert set(re.findall(r"^- \*([a-z ]+)\*:", skill, re.MULTILINE)) == set(get_args(Status))


def test_a_file_is_seen_by_the_doctor_first(skill):
    section = skill.split("## Which file\n")[1].split("\n## ")[0]
    assert section.lstrip().startswith("Run `evalbias doctor FILE` first")
    assert "doctor" in COMMANDS
