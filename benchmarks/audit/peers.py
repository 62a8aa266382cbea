"""The peers, each in an environment of its own that is made on first use; they read draws and print what they flag."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".servers" / "peers"
VERSIONS = {
    "judgekit": "0.2.1",
    "judgecal": "0.1.0",
    "juryrig": "0.3.1",
    "truescore": "0.7.4",
    "evalaudit": "0.6.0",
    "judge-audit": "0.1.0",
    "judge-audit-mcp": "0.1.1",
    "metajudge": "0.3.0",
    "judgekeeper": "0.1.3",
}
"""Peer -> version."""
Flags = Sequence[frozenset[str]]
"""Biases that were flagged, draw by draw."""
ONLY = {"judgecal": "pairs"}
"""Peer -> the only kind of judge that it audits."""


def applies(peer: str, *, pairwise: bool) -> bool:
    """Return whether a peer audits judges of this kind."""
    return ONLY.get(peer, "") in ("", "pairs" if pairwise else "scores")


def kept(file: Path, draws: int, flags: Callable[[range], Iterable[Set[str]]]) -> Flags:
    """Return the flags of ``draws`` draws; what the file holds is not asked again, and what is asked is added to it."""
    done = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    missing = range(len(done), draws)
    with file.open("a", encoding="utf-8") as opened:
        for found in flags(missing) if missing else ():
            done.append(json.dumps(sorted(found)))
            opened.write(done[-1] + "\n")
            opened.flush()
    return [frozenset(json.loads(line)) for line in done]


def ask(peer: str, draws: Iterable[dict[str, Any]]) -> Iterator[set[str]]:
    """Yield the biases that a peer flags, draw by draw.

    Raises:
        RuntimeError: The peer failed; the end of its message is given.
    """
    command = [_python(peer), HERE / f"peer_{peer.replace('-', '_')}.py"]
    with TemporaryFile("w+", encoding="utf-8") as numbers_file, TemporaryFile("w+", encoding="utf-8") as errors:
        numbers_file.writelines(json.dumps(numbers) + "\n" for numbers in draws)
        numbers_file.seek(0)
        with subprocess.Popen(command, stdin=numbers_file, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield set(json.loads(line))
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{peer} {VERSIONS[peer]} failed: {errors.read()[-2000:]}")


def _python(peer: str) -> Path:
    folder = PEERS / f"{peer}-{VERSIONS[peer]}"
    python, ready = folder / "bin" / "python", folder / ".installed"
    if not ready.exists():
        print(f"installing {peer} {VERSIONS[peer]} into {os.path.relpath(folder)}", file=sys.stderr)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"{peer}=={VERSIONS[peer]}"], check=True)
        ready.touch()
    return python
