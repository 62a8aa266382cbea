"""Identity of a model: the hash of its files; behind a server, its answers and the name in them.

A server may give any name to any weights, so its model is identified by its probabilities of a fixed text, the
*sample*. Models that differ by no more than 16-bit rounding, or prefer the same answers, count as the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.lm.types import SAME_MODEL, ModelChanged
from evalbias.measures.arrays import FloatArray
from evalbias.values import digest, get_logger, read_json

# Files that decide what a model answers: configuration, weights, templates, tokenizer and code.
SUFFIXES = (".json", ".safetensors", ".bin", ".jinja", ".model", ".txt", ".py")
LARGE = 1 << 24  # smallest size in bytes of a file whose hash is cached, 16 MiB: others take a few milliseconds
SETTLED = 2.0  # seconds after a change before a hash is cached: a file may change twice within a tick
BUFFER = 1 << 22
# Fixed question to models that report the probabilities of answers only; models prefer different numbers.
SAMPLE_QUESTION = "Answer with a random whole number from 1 to 9."
DIGITS = tuple("123456789")  # answers to ``SAMPLE_QUESTION``
FLOOR = 0.05  # added to a sample's probabilities, so that rare answers, whose logarithms vary most, hardly count
FINGERPRINT = "system_fingerprint"  # OpenAI's name of the configuration that answered; several may answer in turn


def model_fingerprint(model: str, details: Iterable[object]) -> str:
    """Return 12 hexadecimal digits of a folder's files, a GGUF file or a Hugging Face name, and of details (dtype)."""
    folder, hashed = Path(model), hashlib.blake2b(repr([str(detail) for detail in details]).encode())
    if not folder.is_dir():
        hashed.update((file_hash(folder) if folder.is_file() else model).encode())
        return hashed.hexdigest()[:12]
    files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES and file.is_file())
    with ThreadPoolExecutor(4) as pool:  # hashing releases the interpreter lock
        for file, content in zip(files, pool.map(file_hash, files), strict=True):
            hashed.update(f"{file.name} {content}\n".encode())
    return hashed.hexdigest()[:12]


def file_hash(file: Path) -> str:
    """Return the BLAKE2b hash of a file's whole content, from the cache if the file has not changed since."""
    status = file.stat()
    if status.st_size < LARGE:
        return _hash(file)
    identity = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]
    entry = _entry("hashes", os.fsencode(file.resolve()))
    kept = _kept(entry)
    if kept.get("file") == identity and "hash" in kept:
        return str(kept["hash"])
    content = _hash(file)
    if time.time() - max(status.st_mtime, status.st_ctime) > SETTLED:
        _keep(entry, {"file": identity, "hash": content})
    return content


def passed(facts: Sequence[str]) -> bool:
    """Return whether a model passed its trials before under the same facts, which include its fingerprint."""
    return keeps() and _kept(_entry("passed", "\n".join(facts).encode())) == {"passed": [*facts]}


def keep_passed(facts: Sequence[str]) -> None:
    """Record that a model passed its trials, unless ``EVALBIAS_KEEP=0``; the file holds only the facts."""
    if keeps():
        _keep(_entry("passed", "\n".join(facts).encode()), {"passed": [*facts]})


def keeps() -> bool:
    """Return whether likelihoods and passed trials are kept for later runs."""
    return os.environ.get("EVALBIAS_KEEP") != "0"


def _entry(kind: str, key: bytes) -> Path:
    return cache_folder() / kind / f"{hashlib.blake2b(key, digest_size=16).hexdigest()}.json"


def _kept(entry: Path) -> dict[str, Any]:
    """Return the content of a cache entry; empty if it is missing or damaged."""
    with suppress(OSError, ValueError):
        return read_json(entry)
    return {}


def _keep(entry: Path, record: Mapping[str, Any]) -> None:
    draft = entry.with_name(f"{entry.name}.{os.getpid()}")
    with suppress(OSError):  # the folder cannot be written: the next start does the work again
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(record))
        draft.replace(entry)


@cache
def code_hash(folder: Path) -> str:
    """Return the hash of a folder's code, read once per process."""
    return digest([file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.py"))])


def _hash(file: Path) -> str:
    hashed, buffer = hashlib.blake2b(), memoryview(bytearray(BUFFER))
    with file.open("rb", buffering=0) as content:
        while n := content.readinto(buffer):
            hashed.update(buffer[:n])
    return hashed.hexdigest()


def cache_folder() -> Path:
    """Return the folder of evalbias's caches: ``EVALBIAS_CACHE``, else a folder in the user's cache."""
    if own := os.environ.get("EVALBIAS_CACHE"):
        return Path(own)
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home) / "evalbias"
    try:
        return Path.home() / ".cache" / "evalbias"
    except RuntimeError as error:
        raise ValueError(f"{error} Set EVALBIAS_CACHE to the folder that keeps what is made once for speed.") from error


def sample_of(probabilities: FloatArray) -> FloatArray:
    """Return the probabilities of answers to ``SAMPLE_QUESTION`` as a sample, which ``same_sample`` compares."""
    return np.asarray(np.log(probabilities + FLOOR), dtype=np.float64)


def same_sample(first: FloatArray, second: FloatArray) -> bool:
    """Return whether two samples may come from the same model: no value differs by more than ``SAME_MODEL`` nats."""
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=0, atol=SAME_MODEL))


class Answering:
    """Names in a model's answers, which may differ from the requested name."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # kind of answer -> its model, and FINGERPRINT -> its configuration
        self._warned = False

    @property
    def models(self) -> set[str]:
        """Models that answered, by their own names."""
        return {name for kind, name in self.names.items() if kind != FINGERPRINT}

    def expect(self, names: Mapping[str, list[str]]) -> None:
        """Expect the names in an earlier run's answers, where each of several servers may have its own."""
        for kind, recorded in names.items():
            if (name := self.names.setdefault(kind, recorded[0])) not in recorded and kind != FINGERPRINT:
                raise _changed(name, recorded[0])

    def check(self, kind: str, model: Any, details: Mapping[str, Any]) -> None:
        """Compare an answer's names with those of the first answer of its kind, such as the path of the request.

        Another configuration of the same model (``FINGERPRINT`` of ``details``) is logged once, because some services
        change between several. A model that is no text has no name.
        """
        if isinstance(model, str) and (first := self.names.setdefault(kind, model)) != model:
            raise _changed(model, first)
        backend = details.get(FINGERPRINT)
        if not isinstance(backend, str) or self.names.setdefault(FINGERPRINT, backend) == backend or self._warned:
            return
        self._warned = True
        get_logger(__name__).warning(
            "The service's configuration differs between answers (%s %.80r, first %.80r): probabilities may shift.",
            FINGERPRINT,
            backend,
            self.names[FINGERPRINT],
        )


def _changed(name: str, first: str) -> ModelChanged:
    return ModelChanged(
        f"an answer is by the model {name!r:.80}, but earlier ones are by {first!r:.80}: is there another model under "
        "the same name? Serve the first one again, or start over"
    )
