import gc
import gzip
import json
import os
import signal
import sys
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from matplotlib.figure import Figure

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything imports huggingface_hub: tests need no hub
CACHE = tempfile.TemporaryDirectory(prefix="evalbias-dspy-")
os.environ["DSPY_CACHEDIR"] = CACHE.name  # before anything imports dspy: no answers of an earlier run
os.environ["EVALBIAS_KEEP"] = "0"  # nor likelihoods of one

# Derandomized, so that failures repeat; no deadline, because CI machines are shared.
STEADY = {"derandomize": True, "deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=15, **STEADY)
settings.register_profile("all", **STEADY)
# Examples also hold constants of the modules that happen to be imported already, which depend on the tests run before.
providers._get_local_constants = lambda: providers._local_constants


def is_quick(config):
    return "not slow" in config.getoption("markexpr")


def pytest_configure(config):
    """Try more examples where slow tests run too."""
    settings.load_profile("quick" if is_quick(config) else "all")


def pytest_collection():
    """Do not collect garbage while the packages are imported, nor look at what they hold again for every test."""
    gc.disable()


def pytest_collection_finish():
    gc.enable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # as in commands


def pytest_unconfigure():
    CACHE.cleanup()


ROOT = Path(__file__).parent.parent
PUBLISHED = "Put the published data sets there (CONTRIBUTING.md, Recorded data, lists them)"
sys.path.insert(0, str(Path(__file__).parent / "lm"))  # models.py and fake_server.py are shared


def outside(variable, default, remedy):
    """Return a folder that is not part of the repository; skip without it, or fail where CI demands it."""
    path = Path(os.environ.get(variable, default)).resolve()
    if path.is_dir():
        os.environ[variable] = str(path)  # benchmarks under test read the same folder, from any directory
        return path
    reason = f"{path} does not exist. {remedy}, or set {variable}."
    if os.environ.get("EVALBIAS_REQUIRE_DATA") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def _plots(request, monkeypatch):
    """Draw plots as SVG only where they are looked at: drawing takes longer than all else that most audits do.

    With slow tests, all plots are made, and those of one test in eight are drawn. Their names choose these, so that
    what fails in a whole run fails alone, too.
    """
    owner, name, is_chosen = Figure, "savefig", zlib.crc32(request.node.nodeid.encode()) % 8 == 0
    if is_quick(request.config):
        owner, name, is_chosen = sys.modules.get("evalbias.report.plots"), "_save", False
    looked_at = request.path.parent.name == "report" or request.node.get_closest_marker("drawn")
    if owner is None or looked_at or is_chosen:
        return
    save = getattr(owner, name)

    def undrawn(drawing, file, *colors, format, **options):
        if format == "svg":
            file.write("<svg></svg>")
        else:
            save(drawing, file, *colors, format=format, **options)

    monkeypatch.setattr(owner, name, undrawn)


TRIED: dict[tuple, object] = {}
"""Kernel, data type and device -> how the embedded model runs packs, which takes most of the time of opening it."""


@pytest.fixture(autouse=True)
def _one_trial(monkeypatch):
    """Try the packs of the embedded model once in a process; torch is not imported for tests that need none."""
    if (local := sys.modules.get("evalbias.lm.local")) is None:
        return
    scorer_type = sys.modules["evalbias.lm.score"].Scorer
    tried = scorer_type._tried

    def once(scorer):
        if scorer.model.config._name_or_path != str(local.FOLDER):
            return tried(scorer)
        key = scorer._kernel, scorer.model.dtype, scorer.model.device
        return TRIED[key] if key in TRIED else TRIED.setdefault(key, tried(scorer))

    monkeypatch.setattr(scorer_type, "_tried", once)


@pytest.fixture(scope="session")
def data_dir():
    """The folder of recorded data; benchmarks that a test calls read it too."""
    return outside("EVALBIAS_DATA", ROOT.parent / "shared" / "data", PUBLISHED)


@pytest.fixture(scope="session")
def recorded(data_dir):
    """Name of a file of recorded judgments -> its rows; a session reads SummEval's once, with LS under SmolLM2."""

    @lru_cache(maxsize=1)
    def summaries():
        lines = (data_dir / "judges/summeval_likelihoods.jsonl").read_text(encoding="utf-8").splitlines()
        likelihoods = {row["id"]: row["smollm2-135m-instruct"] for row in map(json.loads, lines)}
        return [{**row, "likelihood": likelihoods[row["id"]]} for row in rows("summeval_scores")]

    def rows(name):
        with gzip.open(data_dir / f"judges/{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    return lambda name: summaries() if name == "summeval_scores" else rows(name)


@pytest.fixture(scope="session")
def models_dir():
    """The folder of the small pretrained models."""
    return outside("EVALBIAS_MODELS", ROOT / ".models", "Run make models")


@pytest.fixture(scope="session")
def folders(tmp_path_factory, worker_id):
    """kind -> folder of a tiny model; built once for all processes of a run."""
    from models import KINDS, save

    base = tmp_path_factory.getbasetemp()
    root = (base if worker_id == "master" else base.parent) / "models"
    with FileLock(f"{root}.lock"):
        missing = [kind for kind in KINDS if not (root / kind / "tokenizer_config.json").exists()]
        return {kind: save(kind, root / kind) if kind in missing else str(root / kind) for kind in KINDS}


@pytest.fixture(scope="session")
def lms(folders):
    """kind -> the tiny model, loaded."""
    from evalbias import LocalLM

    return {kind: LocalLM(folder, device="cpu", dtype="float32") for kind, folder in folders.items()}


@pytest.fixture
def interruptible():
    """Let SIGINT interrupt, although a process that a shell started in the background ignores it.

    Garbage is not collected meanwhile: an interrupt that arrives in a callback of the collector is lost, because Python
    drops the exceptions of such callbacks.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGINT, before)
