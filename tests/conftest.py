import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("evalbias", derandomize=True)  # a red run must be red again
settings.load_profile("evalbias")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def data_dir():
    path = Path(os.environ.get("EVALBIAS_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.fail(f"{path} does not exist: set EVALBIAS_DATA to the folder with the recorded data sets.")
    return path
