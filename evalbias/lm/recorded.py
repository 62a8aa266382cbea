"""Recording of a language model's answers, and replay without the model."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15

from evalbias.lm.dspy_compat import request_to_dict, response_from_dict, response_to_dict
from evalbias.lm.engine_base import Engine
from evalbias.lm.saved import SavedLM
from evalbias.runs.values import json_object


class UnseenPrompt(LookupError):  # noqa: N818 - named for the problem
    """A recording has no answer to a prompt."""


class RecordedEngine(Engine):
    """The engine of ``RecordedLM``: answers from a JSONL file of requests and responses."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist: make a recording with evalbias.lm.recorded.record(lm, path)."
            )
        self._answers: dict[str, list[lm15.Response]] = {}
        self._calls: Counter[str] = Counter()  # number of calls per request
        self._turn = threading.Lock()
        for number, line in enumerate(self._path.read_bytes().splitlines(), start=1):
            answer = json_object(line, f"{path}:{number}", "record it again")
            try:
                response = replace(response_from_dict(answer["response"]), provider_data=answer["provider_data"])
                self._answers.setdefault(_key(answer["request"]), []).append(response)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
                raise ValueError(
                    f"{path}:{number} is not a recorded answer ({error!r:.80}): record it again."
                ) from error

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the recorded answer; different answers to the same request are replayed in their order.

        Raises:
            UnseenPrompt: The recording has no answer, or fewer different answers than there were calls.
        """
        key = _key(request_to_dict(request))
        with self._turn:
            number, self._calls[key] = self._calls[key], self._calls[key] + 1
        answer = _nth(self._answers.get(key, []), number)
        if answer is None:
            ending = str(request.messages[-1].text)[-80:]
            call = f"call {number + 1} of " if key in self._answers else ""
            raise UnseenPrompt(
                f"{self._path} has no answer to {call}the prompt that ends with {ending!r}: record it first."
            )
        return answer


class RecordedLM(SavedLM):
    """A recording as a ``dspy.LM``; requests must equal the recorded ones in everything but the model's name.

    Args:
        path: JSONL file written by ``record``.
        **kwargs: Options of ``dspy.LM``.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: A line is not a recorded answer.
    """

    shared_when_loaded = False  # a recording is replayed from its beginning

    def __init__(self, path: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__(f"recorded/{Path(path).name}", engine=RecordedEngine(path), **{"cache": False, **kwargs})
        self._path = str(path)

    def saved_arguments(self) -> dict[str, Any]:
        """Return the path; see ``SavedLM``."""
        return {"path": self._path}


class RecordingEngine(Engine):
    """An engine that passes requests to a model and appends every answer to a file."""

    def __init__(self, lm: Any, path: str | os.PathLike[str]) -> None:
        self._lm = lm
        self._path = Path(path)
        self._turn = threading.Lock()

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the model's answer and record it."""
        response: lm15.Response = self._lm(request)
        record = {"request": request_to_dict(request), "response": response_to_dict(response)}
        line = json.dumps({**record, "provider_data": response.provider_data})  # response_to_dict leaves it out
        with self._turn, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        return response


def record(lm: Any, path: str | os.PathLike[str]) -> dspy.LM:
    """Return the same model with every answer appended to a JSONL file, which ``RecordedLM`` replays."""
    return dspy.LM(lm.model, engine=RecordingEngine(lm, path), cache=False)


def _nth(answers: list[lm15.Response], number: int) -> lm15.Response | None:
    """Return the answer to call ``number``, from 0; beyond the last one only if all answers are equal."""
    if number < len(answers):
        return answers[number]
    same = bool(answers) and all(_content(answer) == _content(answers[0]) for answer in answers)
    return answers[0] if same else None


def _content(answer: lm15.Response) -> tuple[Any, Any]:
    return answer.message, answer.provider_data


def _key(request: dict[str, Any]) -> str:
    question = {name: value for name, value in request.items() if name != "model"}
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
