from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True)
def token_counts(monkeypatch):
    """Let Inspect's mock model count tokens offline: litellm, which DSPy needs, ships the file that it would fetch."""
    (folder,) = find_spec("litellm").submodule_search_locations
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", f"{folder}/litellm_core_utils/tokenizers")
