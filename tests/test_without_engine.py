"""Without torch and transformers, judges whose answers are recorded or hosted work; the engine says how to get it."""

import csv
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import evalbias

RECORDED = Path(evalbias.__file__).parent / "data" / "recorded_judge.jsonl"
DATA = Path(__file__).parent.parent / "docs" / "data"
BLOCKED = """
import importlib.abc, importlib.metadata, sys

version = importlib.metadata.version
importlib.metadata.version = lambda name: version("absent" if name in ("torch", "transformers") else name)

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
COMMAND = BLOCKED + "from evalbias.cli.app import main; sys.argv[0] = 'evalbias'; main()"
SCORES = ["--data", DATA / "replies.csv", "--map", "source=facts,output=reply", "--scores-field", "my_score"]
ROUND = {"source": "a", "output": "b", "self_score": 2, "human_score": 1}


def without_engine(*arguments, cwd):
    words = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [
    ["audit", *SCORES],
    ["audit", "--data", DATA / "verdicts.jsonl", "--winner-field", "winner"],
    ["correct", *SCORES],
    ["jury", "--data", DATA / "panel.csv", *SCORES[2:4], "--judges", "large,other"],
    ["drift", "--before", *SCORES[1:], "--after", SCORES[1]],
    ["compare", "--before", *SCORES[1:], "--after", SCORES[1]],
    ["probe", "read", "--data", "emitted.jsonl", "--scores-field", "mine"],
    ["refine", "measure", "--data", "loops.jsonl", "--own", "self_score", "--expected", "human_score"],
], ids=["audit", "audit pairs", "correct", "jury", "drift", "compare", "probes", "loops"])  # fmt: skip
def test_recorded_judges(arguments, tmp_path):
    rounds = [ROUND | {"id": item, "iteration": k} for item in range(5) for k in range(2)]
    (tmp_path / "loops.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rounds))
    if arguments[0] == "probe":
        emitted = without_engine("probe", "emit", *SCORES[:4], "--out", "given.jsonl", "--kind", "bold", cwd=tmp_path)
        assert emitted.returncode == 0, emitted.stderr
        rows = [json.loads(line) for line in (tmp_path / "given.jsonl").read_text().splitlines()]
        scored = "".join(json.dumps(row | {"mine": len(row["output"])}) + "\n" for row in rows)
        (tmp_path / "emitted.jsonl").write_text(scored)
    done = without_engine(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    listed = without_engine("runs", "list", "--json", cwd=tmp_path)
    assert [run["status"] for run in json.loads(listed.stdout)] == ["finished"], listed.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """One process without the engine, in which commands run and a name is asked for that needs it."""
    replies = str(DATA / "replies.csv")
    code = f"""{BLOCKED}
import contextlib, evalbias
print(evalbias.programs.SYNTHETIC.name, evalbias.data.read.__name__)  # packages are attributes
from evalbias.cli.app import main
for words in (["doctor", {replies!r}], ["demo", "--recorded"]):
    sys.argv = ["evalbias", *words]
    with contextlib.suppress(SystemExit):
        main()
evalbias.audit
evalbias.LocalLM
"""
    folder, words = tmp_path_factory.mktemp("bare"), [sys.executable, "-c", code]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
def test_the_recorded_demo_says_what_its_file_holds(bare):
    text = " ".join(bare.stdout.split())
    said = r"Spearman (\S+) .*length alone (\S+)\).* gives (\S+) more .* longer gets (\S+) more points at equal"
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    numbers = [(row["qwen2.5-coder-1.5b"], row["length"], *row["ratings"]) for row in rows]
    judge, lengths, *ratings = np.array(numbers, float).T
    people, logs = np.mean(ratings, axis=0), np.log(lengths)
    # the effect of the log length at equal quality, by normal equations in which a rating's noise never meets itself
    design = np.column_stack([np.ones(len(rows)), (logs - logs.mean()) / logs.std(), people])
    products = design.T @ design
    products[-1, -1] = np.sum([a * b for a, b in itertools.combinations(ratings, 2)]) / 6
    expected = [spearmanr(one, people).statistic for one in (judge, lengths)]
    expected += [(judge - people).mean(), np.linalg.solve(products, design.T @ judge)[1]]
    assert [float(number) for number in re.search(said, text).groups()] == pytest.approx(expected, abs=0.005)


def test_the_recorded_demo_is_of_our_own_replies():
    with (DATA / "replies.csv").open(encoding="utf-8", newline="") as file:
        replies = list(csv.DictReader(file))
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    expected = [(len(r["reply"]), [int(r[f"rating_{n}"]) for n in range(1, 5)]) for r in replies]
    assert [(row["length"], row["ratings"]) for row in rows] == expected


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["demo"], ["audit", *SCORES[:4], "--lm", "embedded", "--criterion", "q: good?"]])
def test_commands_that_need_the_engine_name_the_extra(arguments, tmp_path):
    done = without_engine(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("which takes an extra: pip install 'evalbias[local]'.")


@pytest.mark.slow
def test_names_that_need_the_engine_name_the_extra(bare):
    assert bare.stdout.startswith("quality read\n")
    assert "evalbias audit --data" in bare.stdout
    assert bare.stderr.splitlines()[-1].startswith("ImportError: LocalLM loads models or tokenizers")
