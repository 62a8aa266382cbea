"""COMET and BLEURT as external feedback, each in a Python of its own: their packages exclude versions DSPy needs."""

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

from evalbias.programs.feedback.source import Feedback, required_field

METRICS = ("comet", "bleurt")
SERVER = Path(__file__).with_name("learned_server.py")


class LearnedFeedback:
    """A learned metric with a reference, in [0, 1]; what it gives beyond is set to the end.

    The metric's package lives in another environment, whose Python answers over a pipe: ``python -m venv comet``,
    ``comet/bin/pip install unbabel-comet`` (or BLEURT from its repository), and its ``bin/python`` is ``python`` here.

    Args:
        metric: ``"comet"`` or ``"bleurt"``.
        checkpoint: What the package loads: a name or a path for COMET, a folder for BLEURT.
        python: The interpreter that has the package.

    The refiner is told the score alone. Close it with ``close()``, or use it in a ``with``.

    Attributes:
        name: For reports.
        low: 0.
        high: 1.

    Raises:
        ValueError: An unknown metric.
        FileNotFoundError: There is no such interpreter.
        RuntimeError: The package or the checkpoint does not load; with what it said.
    """

    low, high = 0.0, 1.0

    def __init__(self, metric: str, checkpoint: str, *, python: str | os.PathLike[str]) -> None:
        if metric not in METRICS:
            raise ValueError(f"metric={metric!r} is unknown: choose one of {METRICS}.")
        self.name = f"{metric} {Path(checkpoint).name}"
        self._turn = threading.Lock()
        command = [os.fspath(python), str(SERVER), metric, checkpoint]
        pipe = subprocess.PIPE
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would stop a package that talks
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._said, encoding="utf-8")
        self._answer()  # it says that it is ready

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Feedback on an output for an example with ``source`` and ``reference``."""
        asked = {field: str(required_field(self.name, example, field)) for field in ("source", "reference")}
        with self._turn:
            told = self._answer({**asked, "output": output})
        if "error" in told:
            raise RuntimeError(f"{self.name}: {told['error']}")
        score = float(told["score"])
        if math.isnan(score):
            return Feedback(score, "no score", status="no score")
        score = min(self.high, max(self.low, score))
        return Feedback(score, f"similarity to a reference: {score:.2f} on a scale of 0 to 1")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._said.close()

    def __enter__(self) -> LearnedFeedback:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _answer(self, asked: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The next line, after a question if there is one."""
        told, answers = self._process.stdin, self._process.stdout
        assert told is not None
        assert answers is not None
        try:
            if asked is not None:
                told.write(json.dumps(asked) + "\n")
                told.flush()
            answer: dict[str, Any] = json.loads(answers.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:  # the process is gone
            self._process.wait()
            self._said.seek(0)
            said = self._said.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"{self.name} stopped: {said or 'it said nothing'}.") from error
        return answer
