"""Decision endpoints over a ``LocalLM``'s model, in the forms of vLLM 0.32, OpenAI (2026-10) and SGLang 0.5.21.

Each endpoint takes exactly the fields of the real one, words the question as vLLM and SGLang do, and returns every
field that the real one returns.
"""

from __future__ import annotations

import string

REFUSED = "a refused text"
"""Text that OpenAI's endpoint declines to answer about."""


def asked(text, question, names):
    """Return the user's message in vLLM's and SGLang's wording, and the options' letters."""
    letters = string.ascii_uppercase[: len(names)]
    lines = [f"Question: {question}", *(f"{letter}: {name}" for letter, name in zip(letters, names, strict=True))]
    return "\n".join([text, "", *lines, "Answer with the letter of one option only."]), letters


def read(fake, text, question, names):
    """Return the probabilities of the options among themselves, and their total."""
    message, letters = asked(text, question, names)
    chat = [{"role": "user", "content": message}]
    tokenizer = fake.loaded.tokenizer
    rendered = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    label_ids = [tokenizer(rendered + letter, add_special_tokens=False)["input_ids"][-1] for letter in letters]
    values = [float(value) for value in fake.logprobs(ids)[-1].double().exp()[label_ids]]
    return [value / sum(values) for value in values], sum(values), len(ids)


def fields(body, required, optional=()):
    return set(required) <= body.keys() <= {*required, *optional}


def systemone(fake, body):
    """``vllm.entrypoints.generate.structured_decisions.protocol``."""
    if not fields(body, ("state", "questions"), ("model", "instructions")):
        return 400
    ((name, question),) = body["questions"].items()
    if question["type"] != "choice" or not fields(question, ("type", "instructions", "criteria")):
        return 400
    names = list(question["criteria"])
    shares, mass, length = read(fake, body["state"], question["instructions"], names)
    best = max(range(len(names)), key=shares.__getitem__)
    answer = {
        "type": "choice",
        "choice": names[best],
        "probabilities": dict(zip(names, shares, strict=True)),
        "confidence": shares[best] * mass,
    }
    return {
        "id": "decision-1",
        "object": "structured_decision",
        "created": 1,
        "model": body["model"],
        "answers": {name: answer},
        "usage": {"input_tokens": length, "output_tokens": 1},
        "diagnostics": {name: {"label_mass": mass, "argmax_is_label": mass > 0.5}},
    }


def openai(fake, body):
    """``openai.types.decision`` of openai-python 3.54."""
    if not fields(body, ("input", "model", "questions"), ("safety_identifier",)):
        return 400
    (question,) = body["questions"]
    if not fields(question, ("type", "instructions", "choices"), ("name",)) or question["type"] != "choice":
        return 400
    if not all(fields(choice, ("value",), ("description",)) for choice in question["choices"]):
        return 400
    names = [choice["value"] for choice in question["choices"]]
    shares, _, length = read(fake, body["input"], question["instructions"], names)
    best = max(range(len(names)), key=shares.__getitem__)
    answer = {
        "type": "choice",
        "name": question.get("name"),
        "choice": names[best],
        "confidence": shares[best],
        "probabilities": [{"value": n, "probability": p} for n, p in zip(names, shares, strict=True)],
    }
    if REFUSED in body["input"]:
        answer = {"type": "refusal", "name": question.get("name")}
    usage = {
        "input_tokens": length,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": length,
    }
    return {"answers": [answer], "model": body["model"], "usage": usage}


def sglang(fake, body):
    """``sglang.srt.entrypoints.openai.serving_decisions``, which refuses unknown fields."""
    optional = ("temperature", "chat_template_kwargs", "prompt_format_version", "return_prompt_token_ids", "model")
    if not fields(body, ("input", "questions"), optional):
        return 400
    (question,) = body["questions"]
    if not fields(question, ("id", "type", "question", "options")) or question["type"] != "choice":
        return 400
    names = [option["name"] for option in question["options"]]
    if len({name.strip().casefold() for name in names}) < len(names):
        return 400
    shares, mass, length = read(fake, body["input"], question["question"], names)
    answer = {
        "type": "choice",
        "choice": names[max(range(len(names)), key=shares.__getitem__)],
        "probabilities": dict(zip(names, shares, strict=True)),
        "label_mass": mass,
    }
    return {
        "model": body["model"],
        "prompt_format_version": 1,
        "answers": {question["id"]: answer},
        "usage": {"prompt_tokens": length, "total_tokens": length, "completion_tokens": 0},
    }


ENDPOINTS = {
    "systemone": ("/v1/systemone", systemone),
    "decisions": ("/v1/decisions", openai),
    "sglang-decisions": ("/v1/decisions", sglang),
}
"""Kind of server -> its only endpoint."""
