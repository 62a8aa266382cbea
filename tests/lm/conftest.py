import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """kind -> folder of a tiny model."""
    from models import KINDS, save

    return {kind: save(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.fixture(scope="session")
def lms(folders):
    from evalbias import LocalLM

    return {kind: LocalLM(folder, device="cpu", dtype="float32") for kind, folder in folders.items()}
