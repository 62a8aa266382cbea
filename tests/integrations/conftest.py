from importlib.util import find_spec

import pytest

import evalbias
from evalbias.programs import SYNTHETIC


@pytest.fixture(autouse=True)
def token_counts(monkeypatch):
    """Let Inspect's mock model count tokens offline: litellm, which DSPy needs, ships the file that it would fetch."""
    (folder,) = find_spec("litellm").submodule_search_locations
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", f"{folder}/litellm_core_utils/tokenizers")


@pytest.fixture(scope="session")
def lm():
    return evalbias.embedded_judge_lm()


@pytest.fixture
def judge(lm):
    judge = evalbias.PointwiseJudge(SYNTHETIC)
    judge.predict.lm = lm
    return judge
