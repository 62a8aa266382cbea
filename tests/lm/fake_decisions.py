"""Decision endpoints over a ``LocalLM``'s model, in the forms of vLLM 0.32, OpenAI (2026-10) and SGLang 0.5.21.

Each takes exactly the fields of the real one, words the question as vLLM and SGLang do, and returns its fields.
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
    probabilities = dict(zip(names, shares, strict=True))
    best = max(probabilities, key=probabilities.get)
    answer = {"type": "choice", "choice": best, "probabilities": probabilities, "confidence": max(shares) * mass}
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
    probabilities = [{"value": n, "probability": p} for n, p in zip(names, shares, strict=True)]
    best = max(probabilities, key=lambda entry: entry["probability"])["value"]
    answer = {"type": "choice", "name": question.get("name"), "choice": best, "confidence": max(shares)}
    answer["probabilities"] = probabilities
    if REFUSED in body["input"]:
        answer = {"type": "refusal", "name": question.get("name")}
    return {"answers": [answer], "model": body["model"], "usage": {"input_tokens": length, "total_tokens": length}}


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
    probabilities = dict(zip(names, shares, strict=True))
    best = max(probabilities, key=probabilities.get)
    answer = {"type": "choice", "choice": best, "probabilities": probabilities, "label_mass": mass}
    usage = {"prompt_tokens": length, "total_tokens": length, "completion_tokens": 0}
    return {"model": body["model"], "prompt_format_version": 1, "answers": {question["id"]: answer}, "usage": usage}


ENDPOINTS = {
    "systemone": ("/v1/systemone", systemone),
    "decisions": ("/v1/decisions", openai),
    "sglang-decisions": ("/v1/decisions", sglang),
}
"""Kind of server -> its only endpoint."""
