"""Decision endpoints over a ``LocalLM``'s model, in the forms of vLLM 0.32, OpenAI (2026-10) and SGLang 0.5.21.

Each takes exactly the fields of the real one, words a question as vLLM and SGLang do, and returns its fields.
"""

from __future__ import annotations

import json
import string
from functools import partial

REFUSED = "a refused text"
"""Text that OpenAI's endpoint declines to answer about."""


def asked(text, question, names, meanings=()):
    """Return the user's message in vLLM's and SGLang's wording, and the options' letters."""
    letters = string.ascii_uppercase[: len(names)]
    meanings = meanings or [None] * len(names)
    said = [name if one is None else f"{name}: {one}" for name, one in zip(names, meanings, strict=True)]
    lines = [f"Question: {question}", *(f"{letter}: {name}" for letter, name in zip(letters, said, strict=True))]
    state = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return "\n".join([state, "", *lines, "Answer with the letter of one option only."]), letters


def read(fake, text, question, names, meanings=()):
    """Return the probabilities of the options among themselves, and their total."""
    message, letters = asked(text, question, names, meanings)
    chat = [{"role": "user", "content": message}]
    tokenizer = fake.loaded.tokenizer
    rendered = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    label_ids = [tokenizer(rendered + letter, add_special_tokens=False)["input_ids"][-1] for letter in letters]
    values = [float(value) for value in fake.logprobs(ids)[-1].double().exp()[label_ids]]
    return [value / sum(values) for value in values], sum(values), len(ids)


def fields(body, required, optional=()):
    return set(required) <= body.keys() <= {*required, *optional}


class InvalidError(Exception):
    """The server answers 400."""


def valid(condition):
    if not condition:
        raise InvalidError


def systemone_options(question):
    """Return the options of a question and their descriptions, as ``/v1/systemone`` takes them."""
    kind, criteria = question["type"], question.get("criteria")
    valid(fields(question, ("type", "instructions"), ("criteria",)) and kind in ("noul", "choice", "score"))
    if kind == "noul":
        valid(criteria is None or criteria.keys() <= {"true", "false"})
        return ["true", "false"], [(criteria or {}).get(name) for name in ("true", "false")]
    if kind == "choice":
        valid(isinstance(criteria, dict) and 1 <= len(criteria) <= 26)
        return list(criteria), list(criteria.values())
    valid(isinstance(criteria, list) and 1 <= len(criteria) <= 10 and None not in criteria)
    return [str(level) for level in range(len(criteria))], criteria


def systemone(fake, body, *, mass_in="diagnostics"):
    """``vllm.entrypoints.generate.structured_decisions.protocol``; ``sglang.srt.entrypoints.systemone`` has the mass of
    labels in each answer.
    """
    valid(fields(body, ("state", "questions"), ("model", "instructions")) and 1 <= len(body["questions"]) <= 64)
    answers, masses, length = {}, {}, 0
    for name, question in body["questions"].items():
        names, meanings = systemone_options(question)
        shares, masses[name], used = read(fake, body["state"], question["instructions"], names, meanings)
        length += used
        probabilities, kind = dict(zip(names, shares, strict=True)), question["type"]
        best = max(probabilities, key=probabilities.get)
        answer = {"probabilities": probabilities, "confidence": max(shares) * masses[name]}
        if kind == "noul":
            answer = {"noul": shares[0]}
        elif kind == "score":
            answer |= {"score": sum(level * p for level, p in enumerate(shares)), "legend": question["criteria"]}
        else:
            answer["choice"] = best
        answers[name] = {"type": kind, **answer} | ({"x_label_mass": masses[name]} if mass_in == "answers" else {})
    done = {"model": body["model"], "answers": answers, "usage": {"input_tokens": length, "output_tokens": 1}}
    if mass_in == "diagnostics":
        done["diagnostics"] = {name: {"label_mass": p, "argmax_is_label": p > 0.5} for name, p in masses.items()}
    return done


def openai(fake, body):
    """``openai.types.decision`` of openai-python 3.54."""
    valid(fields(body, ("input", "model", "questions"), ("safety_identifier",)) and isinstance(body["input"], str))
    answers, length = [], 0
    for question in body["questions"]:
        kind = question["type"]
        own = {"predicate": (), "choice": ("choices",), "score": ("levels",)}[kind]
        valid(fields(question, ("type", "instructions", *own), ("name",)))
        key, options = ("value", question["choices"]) if kind == "choice" else ("label", question.get("levels", ()))
        valid(all(fields(one, (key,), ("description",)) for one in options))
        names = [one[key] for one in options] or ["true", "false"]
        meanings = [one.get("description") for one in options] or [None, None]
        shares, _, used = read(fake, body["input"], question["instructions"], names, meanings)
        length += used
        entries = [{"value": n, "probability": p} for n, p in zip(names, shares, strict=True)]
        if kind == "score":
            entries = [{**entry, "label": entry["value"], "value": i} for i, entry in enumerate(entries)]
        answer = {"type": kind, "name": question.get("name"), "confidence": max(shares), "probabilities": entries}
        if kind == "predicate":
            answer = {"type": kind, "name": question.get("name"), "probability": shares[0]}
        if REFUSED in body["input"]:
            answer = {"type": "refusal", "name": question.get("name")}
        answers.append(answer)
    return {"answers": answers, "model": body["model"], "usage": {"input_tokens": length, "total_tokens": length}}


def answering(form):
    def answer(fake, body):
        try:
            return form(fake, body)
        except (InvalidError, KeyError):
            return 400

    return answer


ENDPOINTS = {"systemone": ("/v1/systemone", answering(systemone))}
ENDPOINTS |= {"sglang-systemone": ("/v1/systemone", answering(partial(systemone, mass_in="answers")))}
ENDPOINTS |= {"decisions": ("/v1/decisions", answering(openai))}
"""Kind of server -> its only endpoint."""
