"""External feedback by COMET or BLEURT, which run in another Python environment.

Their packages exclude versions of libraries that DSPy needs.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalbias.lm.fingerprint import file_hash
from evalbias.programs.feedback import Feedback, required_field
from evalbias.values import digest

METRICS = ("comet", "bleurt")
SERVER = Path(__file__).with_name("learned_server.py")


class LearnedFeedback:
    """Score of a learned reference metric, clipped to [0, 1]; the refiner is shown the score only.

    The metric's package is installed in another environment, whose Python answers over a pipe: run
    ``python -m venv comet`` and ``comet/bin/pip install unbabel-comet`` (or install BLEURT from its repository), and
    pass ``comet/bin/python`` as ``python``. Call ``close()`` at the end, or use the object as a context manager.

    Args:
        metric: ``"comet"`` or ``"bleurt"``.
        checkpoint: Name or path of a COMET checkpoint, or folder of a BLEURT checkpoint.
        python: Interpreter of the environment with the package.

    Attributes:
        name: Name in reports, and of the metric in a ``QuantileMap``, such as ``"comet wmt22-comet-da"``; that of a
            file or folder ends with a hash of its content, ``"comet model.ckpt@1f0c9a2b"``.
        low: Worst score, 0.
        high: Best score, 1.

    Raises:
        ValueError: The metric is unknown.
        FileNotFoundError: The interpreter does not exist.
        RuntimeError: The package or the checkpoint does not load; the message quotes its last line of output.
    """

    low, high = 0.0, 1.0

    def __init__(self, metric: str, checkpoint: str, *, python: str | os.PathLike[str]) -> None:
        if metric not in METRICS:
            raise ValueError(f"metric={metric!r} is unknown: choose one of {METRICS}.")
        self.name = f"{metric} {_name(checkpoint)}"
        self._lock = threading.Lock()
        command = [os.fspath(python), str(SERVER), metric, checkpoint]
        pipe = subprocess.PIPE
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would block the process
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._stderr, encoding="utf-8")
        self._answer()  # the first line says that the process is ready

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Score an output for an example with ``source`` and ``reference``."""
        texts = {field: str(required_field(self.name, example, field)) for field in ("source", "reference")}
        with self._lock:
            answer = self._answer({**texts, "output": output})
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        score = float(answer["score"])
        if math.isnan(score):
            return Feedback(score, "no score", status="no score")
        score = min(self.high, max(self.low, score))
        return Feedback(score, f"similarity to a reference: {score:.2f} on a scale of 0 to 1")

    def close(self) -> None:
        """Stop the process of the metric."""
        self._process.communicate()
        self._stderr.close()

    def __enter__(self) -> LearnedFeedback:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _answer(self, texts: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Send the texts, if any, and read the next line of the process."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            if texts is not None:
                requests.write(json.dumps(texts) + "\n")
                requests.flush()
            answer: dict[str, Any] = json.loads(answers.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:  # the process has ended
            self._process.wait()
            self._stderr.seek(0)
            message = self._stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"{self.name} stopped: {message or 'no error message'}.") from error
        return answer


def _name(checkpoint: str) -> str:
    path = Path(checkpoint)
    if not path.exists():
        return path.name  # a checkpoint that the metric's package knows by name
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return f"{path.name}@{digest([(str(file.relative_to(path)), file_hash(file)) for file in files], 8)}"
