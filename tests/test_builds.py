"""In a build: the action's steps, what an audit leaves for the build to show, and the assertion of a test."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import evalbias, refused

from evalbias.report.builds import MARK
from evalbias.testing import assert_unbiased

ROOT = Path(__file__).parent.parent
STEPS = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
REPLIES = f"--data '{ROOT}/docs/data/replies.csv' --map source=facts,output=reply --scores-field my_score --scale 1-5"
CONDITIONS = {"passed": "verbosity>0.2", "failed": "verbosity>-1", "undecided": "scale_use>0.1"}

HOSTILE = ("evalbias", "pip", "typer", "shlex", "sitecustomize", "zipfile_zstd")  # modules of a checkout
BACKEND = """
import zipfile

def build_wheel(folder, settings=None, metadata=None):
    about = {"METADATA": "Metadata-Version: 2.1\\nName: mine\\nVersion: 9\\nProvides-Extra: local\\n", "RECORD": ""}
    about["WHEEL"] = "Wheel-Version: 1.0\\nGenerator: mine\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    with zipfile.ZipFile(f"{folder}/mine-9-py3-none-any.whl", "w") as wheel:
        for name, text in about.items():
            wheel.writestr(f"mine-9.dist-info/{name}", text)
    return "mine-9-py3-none-any.whl"
"""


def run_step(number, folder, **env):
    """Run a step of the action as a runner does, in a checkout that puts itself on the path and leaves marks."""
    for name in HOSTILE:
        (folder / f"{name}.py").write_text(f"import os; open(os.path.dirname(__file__) + '/taken-{name}', 'w')")
    (folder / "matplotlibrc").write_text("text.usetex: True")
    step, script = STEPS[number], folder / "_temp" / "script"
    script.parent.mkdir()
    script.write_text(step["run"])
    shell = {"bash": "bash --noprofile --norc -eo pipefail {0}"}.get(step["shell"], step["shell"])
    env |= {name: value for name, value in step["env"].items() if "${{" not in value}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(folder), **env}
    words = [script if word == "{0}" else word for word in shell.split()]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert sorted(folder.glob("taken-*")) == []
    return done


@pytest.mark.slow
def test_the_action_installs_itself_with_extras(tmp_path):
    package = tmp_path / "a folder"
    package.mkdir()
    (package / "backend.py").write_text(BACKEND)
    settings = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (package / "pyproject.toml").write_text(settings)
    pip = {"PIP_TARGET": str(tmp_path / "installed"), "PIP_NO_INDEX": "1", "PIP_CACHE_DIR": str(tmp_path / "cache")}
    done = run_step(0, tmp_path, PACKAGE=f"{package}[local]", **pip)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "installed/mine-9.dist-info").is_dir()
    assert STEPS[0]["env"]["PACKAGE"] == "${{ github.action_path }}${{ inputs.extras }}"


@pytest.mark.parametrize(("words", "undecided", "code"), [
    ("--data 'a.csv", "pass", 2),  # a quote that is not closed
    pytest.param("passed", "fail", 0, marks=pytest.mark.slow),
    pytest.param("failed", "pass", 1, marks=pytest.mark.slow),
    pytest.param("undecided", "fail", 3, marks=pytest.mark.slow),
    pytest.param("undecided", "pass", 0, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_action_audits(words, undecided, code, tmp_path):
    outcome, summary = (words, tmp_path / "summary.md") if words in CONDITIONS else ("", tmp_path / "none")
    if outcome:
        words = f'{REPLIES} --fail-on "{CONDITIONS[outcome]}"'
    inputs = {"COMMAND": "audit", "ARGUMENTS": words, "UNDECIDED": undecided}
    done = run_step(1, tmp_path, **inputs, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == code, done.stderr
    assert f"| {outcome} |" in summary.read_text() if outcome else "arguments" in done.stderr


@pytest.mark.slow
def test_the_action_and_the_commands_tell_a_build_of_drift_and_compare(tmp_path):
    rng = np.random.default_rng(0)
    texts = [{"source": f"s{k}", "output": f"o{k}", "mine": float(k % 5 + 1)} for k in range(60)]
    new = [row | {"mine": row["mine"] - 1 + 0.2 * rng.normal()} for row in texts]
    for name, rows in ("old", texts), ("new", new):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sides = "--before old.jsonl --after new.jsonl --scores-field mine"
    words, summary = f"{sides} --fail-on drift>0.5,system>0.5", tmp_path / "s.md"
    done = run_step(1, tmp_path, COMMAND="drift", ARGUMENTS=words, UNDECIDED="fail", GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 1, done.stderr
    title, decided, change, *_ = summary.read_text().removeprefix(MARK).split("\n\n")
    assert title == "## Did the system improve, or did the judge change?"
    assert [line.split(" | ")[1] for line in decided.splitlines()[2:]] == ["failed", "passed"]
    assert change.startswith("The mean score changes by -")
    evalbias("compare", *sides.split(), "--fail-on", "gain>0", "--summary", "g.md", cwd=tmp_path, check=False)
    assert (tmp_path / "g.md").read_text().startswith(f"{MARK}## Which system is better?\n\n| condition |")


def test_an_audit_leaves_a_summary(tmp_path):
    words = ["audit", "--data", ROOT / "docs/data/replies.csv", "--map", "source=facts,output=reply"]
    words += ["--scores-field", "my_score", "--scale", "1-5", "--fail-on", ",".join(CONDITIONS.values())]
    done = evalbias(*words, "--summary", "s.md", cwd=tmp_path, check=False)
    assert done.returncode == 1
    lines = (tmp_path / "s.md").read_text().removeprefix(MARK).splitlines()
    assert [line.split(" | ")[1] for line in lines[4:7]] == ["passed", "failed", "undecided"]
    (scale_use,) = [line for line in lines if line.startswith("| scale use")]
    assert scale_use == "| scale use | too few items | -0.17 | -0.33 to +0.00 | 400 |"


def test_a_summary_of_several_criteria_begins_with_their_verdict_in_a_new_folder(tmp_path):
    table = "source,output,scores.wit,scores.tone,wit,tone\n"
    table += "".join(f"s{n},{'word ' * (n % 9 + 1)},{n % 5},{n % 4},{n % 3},{n % 4}\n" for n in range(60))
    (tmp_path / "t.csv").write_text(table)
    words = ["--data", "t.csv", "--scores-field", "{criterion}", "--criterion", "all", "--summary", "new/s.md"]
    evalbias("audit", *words, cwd=tmp_path)
    first, verdict, heading, *_ = (tmp_path / "new/s.md").read_text().removeprefix(MARK).split("\n\n")
    assert (first, heading) == ("## Audit of an LLM judge", "### wit")
    said = "A bias is shown under a condition on wit (verbosity). Biases are known between bounds, which second ratings"
    assert verdict.startswith(f"{said} narrow, on tone. Findings are adjusted for all 2")


def test_no_text_of_the_data_marks_up_the_summary(tmp_path):
    name = "![x](http://example.org/a) <b>|`"
    table = "source,output,rating_1,rating_2," + name + "\n"
    table += "".join(f"s{n},{'word ' * (n % 9 + 1)},{n % 5},{(n + 1) % 5},{n % 4}\n" for n in range(60))
    (tmp_path / "t.csv").write_text(table)
    evalbias("audit", "--data", "t.csv", "--scores-field", name, "--summary", "s.md", cwd=tmp_path)
    written = (tmp_path / "s.md").read_text()
    assert "<b>" not in written
    assert "![" not in written


REPLACED = [("", 0, "OURS"), ("ours", 0, "OURS"), ("of the job: mine\n", 0, "of the job: mine\nOURS")]
REPLACED += [("mine\n", 2, "mine\n"), ("ours and mine\n", 2, "ours and mine\n")]
REPLACED += [("link", 2, "mine\n"), ("dangling", 2, None)]  # to a file, which a checkout may hold


@pytest.mark.parametrize(("before", "code", "after"), REPLACED)
def test_a_summary_replaces_nothing_but_another_one(before, code, after, tmp_path, monkeypatch):
    rows = [{"source": f"s{n}", "output": "o" * (n + 1), "mine": n % 3} for n in range(12)]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    words = ["audit", "--data", "t.json", "--scores-field", "mine", "--out", "run", "--summary"]
    evalbias(*words, "new.md", cwd=tmp_path)
    ours, file, target = (tmp_path / "new.md").read_text(), tmp_path / "s.md", tmp_path / "target"
    if before in ("link", "dangling"):
        file.symlink_to(target)
        file = target
    if before != "dangling":
        file.write_text("mine\n" if before == "link" else before.replace("ours", ours))
    if "of the job" in before:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    done = evalbias(*words, "s.md", cwd=tmp_path, check=False)
    assert (done.returncode, "s.md" in done.stderr) == (code, code == 2)
    expected = after and after.replace("OURS", ours).replace("ours", ours)
    assert (file.read_text() if file.exists() else None) == expected


def test_a_malformed_condition_names_the_option(tmp_path):
    words = ["audit", "--data", ROOT / "docs/data/replies.csv", "--fail-on", "verbosity"]
    assert refused(*words, cwd=tmp_path).startswith("evalbias: --fail-on 'verbosity' is no condition")


def rated(n, lean):
    """Items of ``n`` inputs, and a judge that leans to long outputs by ``lean`` sd."""
    rng = np.random.default_rng(0)
    quality, length, errors = rng.normal(size=n), rng.normal(size=n), rng.normal(size=(3, n))
    outputs = ["w" * round(40 * np.exp(0.5 * z)) for z in length]
    scores = quality + lean * length + 0.5 * errors[0]
    people = (quality + 0.5 * errors[1:]).T
    ratings = people.tolist()
    return [{"source": f"s{k}", "output": outputs[k], "ratings": ratings[k], "mine": scores[k]} for k in range(n)]


def test_an_assertion_holds_fails_or_is_undecided():
    assert assert_unbiased("mine", rated(400, 0.0), "verbosity<0.3").having("biased") == []
    with pytest.raises(AssertionError, match=r"^verbosity<0\.3\?: verbosity is .*\n.*Biased, verbosity: "):
        assert_unbiased("mine", rated(400, 1.0), "verbosity<0.3")
    few = rated(40, 0.2)
    with pytest.raises(AssertionError, match=r"^undecided: verbosity<0\.2\?"):
        assert_unbiased("mine", few, "verbosity<0.2")
    with pytest.warns(UserWarning, match="undecided: verbosity"):
        assert_unbiased("mine", few, "verbosity<0.2", allow_undecided=True)


@pytest.mark.slow
def test_pytest_offers_the_assertion_as_a_fixture_and_points_to_the_test(tmp_path):
    (tmp_path / "items.json").write_text(json.dumps(rated(400, 1.0)))
    test = 'def test_mine(assert_unbiased):\n    assert_unbiased("mine", "items.json", "verbosity<0.3")\n'
    (tmp_path / "test_mine.py").write_text(test)
    entry = re.search(r'entry-points.pytest11\][^\n]*\nevalbias = "([\w.]+)"', (ROOT / "pyproject.toml").read_text())
    words = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", entry[1]]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "\ntest_mine.py:2: AssertionError\n" in done.stdout
    assert "Biased, verbosity" in done.stdout


def test_pytest_starts_without_the_audit():
    code = "import sys, evalbias.testing; sys.exit(len({'evalbias.evaluation.audit', 'numpy'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], timeout=100).returncode == 0


def test_an_assertion_asks_a_function_and_needs_conditions():
    items = rated(400, 1.0)
    scores = {item["output"] + item["source"]: item["mine"] for item in items}
    with pytest.raises(AssertionError, match="Biased, "):
        assert_unbiased(lambda e: scores[e.output + e.source], items, "agreement.spearman>0.1", "verbosity<0.3")
    with pytest.raises(ValueError, match="Give what must be shown"):
        assert_unbiased("mine", rated(20, 0.0))


def test_an_assertion_of_several_criteria_names_the_one_that_fails():
    items = [
        {**item, "fair": fair["mine"], "ratings": dict.fromkeys(("mine", "fair"), item["ratings"])}
        for item, fair in zip(rated(400, 1.0), rated(400, 0.0), strict=True)
    ]
    with pytest.raises(AssertionError, match=r"^mine: verbosity<0\.3\?.*\nThe judge is biased on mine"):
        assert_unbiased("{criterion}", items, "verbosity<0.3", criterion=["mine", "fair"])
    assert list(assert_unbiased("{criterion}", items, "agreement.spearman>0.3", criterion="all")) == ["mine", "fair"]
