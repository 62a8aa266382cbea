"""Fingerprint of a model: a hash of all its files, so that any edit makes another model of it.

Hashing gigabytes takes seconds, so the hash of a large file is kept in the user's cache directory and reused while
the file's path, size, times and inode stay the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SUFFIXES = (".json", ".safetensors", ".bin", ".jinja", ".model", ".txt", ".py")
"""Files that decide what a model answers: configuration, weights, templates, tokenizer and code."""

LARGE = 1 << 24
"""Size in bytes from which a file's hash is cached, 16 MiB: smaller files are hashed in a few milliseconds."""

SETTLED = 2.0
"""Seconds since the last change after which a hash is cached; a file may change again within a tick of its clock."""

BUFFER = 1 << 22


def model_fingerprint(model: str, details: Iterable[object]) -> str:
    """Return 12 hexadecimal digits that identify a model.

    Args:
        model: Folder, all of whose files are hashed, a GGUF file, or a Hugging Face name.
        details: What else identifies the model, such as its dtype and the commit of a Hugging Face name.
    """
    folder, digest = Path(model), hashlib.blake2b(repr([str(detail) for detail in details]).encode())
    if not folder.is_dir():
        digest.update((file_hash(folder) if folder.is_file() else model).encode())
        return digest.hexdigest()[:12]
    files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    with ThreadPoolExecutor(4) as pool:  # hashing releases the interpreter lock
        for file, content in zip(files, pool.map(file_hash, files), strict=True):
            digest.update(f"{file.name} {content}\n".encode())
    return digest.hexdigest()[:12]


def file_hash(file: Path) -> str:
    """Return the BLAKE2b hash of a file's whole content, from the cache if the file has not changed since."""
    status = file.stat()
    if status.st_size < LARGE:
        return _hash(file)
    known = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]
    name = hashlib.blake2b(os.fsencode(file.resolve()), digest_size=16).hexdigest()
    entry = cache_folder() / "hashes" / f"{name}.json"
    try:
        cached = json.loads(entry.read_text())
        if cached["file"] == known:
            return str(cached["hash"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not cached yet, or not by this version: the hash is computed
    content = _hash(file)
    if time.time() - max(status.st_mtime, status.st_ctime) > SETTLED:
        store(entry, {"file": known, "hash": content})
    return content


def _hash(file: Path) -> str:
    digest, buffer = hashlib.blake2b(), memoryview(bytearray(BUFFER))
    with file.open("rb", buffering=0) as content:
        while n := content.readinto(buffer):
            digest.update(buffer[:n])
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder of everything that evalbias keeps for speed: ``EVALBIAS_CACHE``, else in the user's cache."""
    if own := os.environ.get("EVALBIAS_CACHE"):
        return Path(own)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "evalbias"


def store(entry: Path, content: object) -> None:
    """Write JSON content to a file of the cache, whole or not at all."""
    draft = entry.with_name(f"{entry.name}.{os.getpid()}")
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(content))
        draft.replace(entry)
    except OSError:
        pass  # a home that cannot be written to: the next start computes the content again
