"""Recording a language model's answers, and replaying them without it."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15

from evalbias.lm.dspy_compat import request_to_dict, response_from_dict, response_to_dict


class UnseenPrompt(LookupError):  # noqa: N818 - named for what happened
    """A recording has no answer to the prompt."""


class RecordedEngine:
    """Answers from a JSONL file of requests and responses; see ``RecordedLM``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist: make a recording with evalbias.lm.recorded.record(lm, path)."
            )
        self._answers: dict[str, list[dict[str, Any]]] = {}
        self._asked: Counter[str] = Counter()
        self._turn = threading.Lock()
        for number, line in enumerate(self._path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                found = json.loads(line)
                self._answers.setdefault(_key(found["request"]), []).append(found)
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number} is no recorded answer ({error}): record it again.") from error

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordedEngine:
        """Copies of a program share it."""
        return self

    def complete(self, request: lm15.Request) -> lm15.Response:
        """The recorded answer; what was asked again and answered differently is replayed in its order.

        Raises:
            UnseenPrompt: There is none, or it was asked more often than the recording was.
        """
        key = _key(request_to_dict(request))
        with self._turn:
            number, self._asked[key] = self._asked[key], self._asked[key] + 1
        found = _drawn(self._answers.get(key, []), number)
        if found is None:
            said = str(request.messages[-1].text)[-80:]
            times = f" asked {number + 1} times" if key in self._answers else ""
            raise UnseenPrompt(
                f"{self._path} has no answer to the prompt{times} that ends in {said!r}: record it first."
            )
        return replace(response_from_dict(found["response"]), provider_data=found["provider_data"])

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """The whole answer as one stream of events."""
        return iter(lm15.response_to_events(self.complete(request)))

    def close(self) -> None:
        """Nothing is open."""


class RecordedLM(dspy.LM):  # type: ignore[misc]
    """Replays a recording as a ``dspy.LM``; the model's name in a request does not matter, everything else does.

    Args:
        path: The JSONL file that ``record`` wrote.
        **kwargs: As ``dspy.LM``.

    Raises:
        FileNotFoundError: The file is missing.
        ValueError: A line is no recorded answer.
    """

    def __init__(self, path: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__(f"recorded/{Path(path).name}", engine=RecordedEngine(path), **{"cache": False, **kwargs})
        self._path = str(path)

    def dump_state(self) -> dict[str, Any]:
        """What ``RecordedLM(**state)`` replays the same file with, as a saved program keeps it."""
        own: dict[str, Any] = dspy.BaseLM.dump_state(self)
        del own["model"]  # it follows from the path
        return {**own, "path": self._path}


class RecordingEngine:
    """Passes requests on to a model and appends every answer to a file as it comes."""

    def __init__(self, lm: Any, path: str | os.PathLike[str]) -> None:
        self._lm = lm
        self._path = Path(path)
        self._turn = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordingEngine:
        """Copies of a program share it."""
        return self

    def complete(self, request: lm15.Request) -> lm15.Response:
        """The model's answer."""
        response: lm15.Response = self._lm(request)
        told = {"request": request_to_dict(request), "response": response_to_dict(response)}
        line = json.dumps({**told, "provider_data": response.provider_data})  # not part of a response's own form
        with self._turn, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        return response

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """The whole answer as one stream of events."""
        return iter(lm15.response_to_events(self.complete(request)))

    def close(self) -> None:
        """The file is closed after every line."""


def record(lm: Any, path: str | os.PathLike[str]) -> dspy.LM:
    """The same model, with every answer appended to a JSONL file that ``RecordedLM`` replays."""
    return dspy.LM(lm.model, engine=RecordingEngine(lm, path), cache=False)


def _drawn(answers: list[dict[str, Any]], number: int) -> dict[str, Any] | None:
    """The answer to the same request asked for the so-manyth time; where all are equal, any is."""
    if number < len(answers):
        return answers[number]
    same = bool(answers) and all(_said(answer) == _said(answers[0]) for answer in answers)
    return answers[0] if same else None


def _said(answer: dict[str, Any]) -> tuple[Any, Any]:
    return answer["response"]["message"], answer["provider_data"]


def _key(request: dict[str, Any]) -> str:
    told = {name: value for name, value in request.items() if name != "model"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
