"""Tests of data and models outside the repository are skipped where these are missing, and fail in CI."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def outside(request, monkeypatch):
    """The function of conftest; environment variables that it sets are put back."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop("EVALBIAS_REQUIRE_DATA", None)
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    return conftest.outside


def test_a_missing_folder_skips_with_the_remedy(outside, tmp_path):
    os.environ["EVALBIAS_X"] = str(tmp_path / "x")
    with pytest.raises(pytest.skip.Exception, match=r"x does not exist. Run make x, or set EVALBIAS_X."):
        outside("EVALBIAS_X", tmp_path, "Run make x")
    os.environ["EVALBIAS_REQUIRE_DATA"] = "1"
    with pytest.raises(pytest.fail.Exception, match=r"x does not exist. Run make x, or set EVALBIAS_X."):
        outside("EVALBIAS_X", tmp_path, "Run make x")


def test_a_folder_is_the_same_from_every_directory(outside, tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    assert outside("EVALBIAS_X", "x", "") == tmp_path / "x"
    assert os.environ["EVALBIAS_X"] == str(tmp_path / "x")
