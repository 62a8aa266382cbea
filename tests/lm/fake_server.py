"""A loopback server over a ``LocalLM``'s model that imitates kinds of servers, with faults on request."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from functools import partial

import torch
from fake_decisions import ENDPOINTS
from loopback import Handler, listening

from evalbias import ServerLM

KEY = "a-key"
TOKENIZED = ("vllm", "sglang", "llama.cpp")
"""Kinds of servers whose prompts are tokenized by the client."""
OWNERS = {"llama.cpp": "llamacpp", "chat": "system"}
"""Kind of server -> how it names itself in its listing, if otherwise."""


def opened(addresses, local, kind="vllm", **options):
    """Return the client of servers, with the model's tokenizer where it needs one."""
    if kind in TOKENIZED:
        options.setdefault("tokenizer", local.engine.loaded.source.model)
    return ServerLM("tiny", base_url=addresses, **{"timeout": 60.0, "patience": 60.0, **options})


class FakeServer:
    """A server's answers.

    Args:
        lm: Model that answers.
        kind: vllm, sglang, llama.cpp, chat, or one of ``fake_decisions.ENDPOINTS``.
        faults: (number of the request, path, body) -> the fault: a status, alone or with the answer, "close", "cut",
            bytes that are sent as they are, "drop" (the answer lacks the requested values), seconds to wait, or a
            function that changes the answer; None for no fault.
    """

    def __init__(self, lm, kind, faults=lambda *_: None):
        self.loaded, self.kind, self.faults = lm.engine.loaded, kind, faults
        self.requests, self.lock, self.in_flight, self.most_in_flight = [], threading.Lock(), 0, 0
        self.model, self.context, self.shift, self.processed = "tiny", 256, 0, 1.0
        self.unknown = {"max_completion_tokens"}  # settings that the chat refuses, as older servers do
        self.most_top = 20  # how many top_logprobs the chat returns

    def together(self, count):
        """Return a fault that holds requests back until so many were in flight at once, and a moment longer."""

        def hold(answer):
            limit = time.monotonic() + 30
            while self.most_in_flight < count and time.monotonic() < limit:
                time.sleep(0.001)
            time.sleep(0.02)  # in which one too many would be seen
            return answer

        return hold

    # the model's answers

    def logprobs(self, ids):
        with torch.inference_mode():
            logits = self.loaded.model(torch.tensor([ids])).logits[0].float()
        return (logits / self.processed).log_softmax(-1)

    def text(self, ids):
        return self.loaded.tokenizer.decode(ids)

    def written(self, ids):
        return self.loaded.tokenizer.decode(ids, skip_special_tokens=True)

    def ids(self, prompt):
        return prompt if isinstance(prompt, list) else self.loaded.tokenizer(prompt)["input_ids"]

    def continued(self, ids, count):
        """Return tokens with the most probable ones after them, so many, and the log-probabilities of all."""
        ids = list(ids)
        for _ in range(count):
            ids.append(int(self.logprobs(ids)[-1].argmax()))
        return ids, self.logprobs(ids)

    # the servers' paths

    def answer(self, path, body):
        routes = {"/v1/models": self.models, "/version": lambda _: {"version": "9.9"} if self.kind == "vllm" else None}
        routes |= {"/tokenize": self.tokenize, "/generate": self.generate if self.kind == "sglang" else None}
        routes |= {"/completion": self.completion if self.kind == "llama.cpp" else None}
        routes |= {"/v1/completions": self.completions if self.kind != "chat" else None}
        routes |= {"/v1/chat/completions": self.chat}
        if self.kind in ENDPOINTS:
            decided, decide = ENDPOINTS[self.kind]
            routes = {"/v1/models": self.models, decided: partial(decide, self)}
        route = routes.get(path)
        return route and route(body)

    def models(self, _):
        details = {"root": self.loaded.source.model, "max_model_len": self.context} if self.kind == "vllm" else {}
        return {"data": [{"id": self.model, "owned_by": OWNERS.get(self.kind, self.kind), **details}]}

    def tokenize(self, body):
        if self.kind == "chat":
            return None
        if "messages" in body:  # DSPy's own engine
            how = {"tokenize": False, "continue_final_message": body["continue_final_message"]}
            text = self.loaded.tokenizer.apply_chat_template(body["messages"], **how)
        else:
            text = body["content" if self.kind == "llama.cpp" else "prompt"]
        return {"tokens": self.loaded.tokenizer(text, add_special_tokens=False)["input_ids"]}

    def generate(self, body):
        ids, start = body["input_ids"], body.get("logprob_start_len")
        values, meta = self.logprobs(ids), {"prompt_tokens": len(ids), "completion_tokens": 1}
        if start is not None:
            logprobs = [None] + [float(values[p - 1, ids[p]]) for p in range(start + 1, len(ids))]
            meta["input_token_logprobs"] = [[v, t, None] for v, t in zip(logprobs, ids[start:], strict=True)]
        if "token_ids_logprob" in body:
            meta["output_token_ids_logprobs"] = [[[float(values[-1, t]), t, None] for t in body["token_ids_logprob"]]]
        return {"text": "", "meta_info": meta}

    def completion(self, body):
        values = self.logprobs(body["prompt"])[-1]
        top = values.topk(min(body["n_probs"], len(values)))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        probabilities = [{"top_logprobs": [{"id": i, "logprob": v} for i, v in pairs]}]
        counts = {"tokens_evaluated": len(body["prompt"]), "tokens_predicted": 1}
        return {"completion_probabilities": probabilities, **counts}

    def completions(self, body):
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        if prompts and isinstance(prompts[0], int):
            prompts = [prompts]
        if self.kind == "vllm" and any(len(self.ids(p)) + body["max_tokens"] > self.context for p in prompts):
            return 400
        choices = [{"index": i, **self.completed(self.ids(p), body)} for i, p in enumerate(prompts)]
        prompt_tokens = sum(len(self.ids(p)) for p in prompts)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": body["max_tokens"], "total_tokens": 0}
        return {"model": body["model"], "choices": choices, "usage": usage}

    def completed(self, ids, body):
        start, choice, logprobs = len(ids), {"finish_reason": "length"}, None
        ids, values = self.continued(ids, body["max_tokens"])
        if self.kind == "vllm" and "prompt_logprobs" in body:
            scores = [float(values[p - 1 + self.shift, ids[p]]) for p in range(1, start)]
            entries = [{str(i): {"logprob": v, "rank": 1}} for i, v in zip(ids[1:start], scores, strict=True)]
            choice["prompt_logprobs"] = [None, *entries]
        if self.kind == "vllm" and "logprob_token_ids" in body:
            tops = {f"token_id:{t}": float(values[start - 1, t]) for t in body["logprob_token_ids"]}
            logprobs = {"top_logprobs": [tops]}
        elif body.get("logprobs") is not None:
            places = range(start, len(ids))
            tops = [values[p - 1].topk(min(body["logprobs"], values.shape[1])) for p in places]
            logprobs = {
                "tokens": [self.text([ids[p]]) for p in places],
                "token_logprobs": [float(values[p - 1, ids[p]]) for p in places],
                "top_logprobs": [{self.text([i]): float(v) for v, i in zip(*top, strict=True)} for top in tops],
            }
        return {**choice, "text": self.written(ids[start:]), "logprobs": logprobs}

    def chat(self, body):
        if self.unknown & body.keys() or body.get("top_logprobs", 0) > self.most_top:
            return 400
        text = self.loaded.tokenizer.apply_chat_template(body["messages"], tokenize=False, add_generation_prompt=True)
        prompt = self.loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
        start, content = len(prompt), []
        ids, values = self.continued(prompt, body.get("max_completion_tokens", body.get("max_tokens")))
        for p in range(start, len(ids)):
            top = values[p - 1].topk(body.get("top_logprobs", 0))
            alternatives = [{"token": self.text([i]), "logprob": float(v)} for v, i in zip(*top, strict=True)]
            token = {"token": self.text([ids[p]]), "logprob": float(values[p - 1, ids[p]])}
            content.append({**token, "top_logprobs": alternatives})
        choice = {"message": {"content": self.written(ids[start:])}, "finish_reason": "length"}
        usage = {"prompt_tokens": start, "completion_tokens": len(ids) - start, "total_tokens": len(ids)}
        choice["logprobs"] = {"content": content} if body.get("logprobs") else None
        return {"model": self.model, "choices": [choice], "usage": usage}

    def one_token_texts(self, messages, most=20):
        """Return those of the most probable first tokens that are one token as a text too."""
        answer = self.chat({"messages": messages, "max_tokens": 1, "top_logprobs": most, "logprobs": True})
        tops = [entry["token"] for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]]
        return [token for token in tops if self.loaded.tokenizer.tokenize(token) == [token]]


@contextmanager
def serving(lm, kind="vllm", faults=lambda *_: None, key=None):
    """Serve a model on a free port, and yield the address and the ``FakeServer``."""
    fake = FakeServer(lm, kind, faults)

    class Serving(Handler):
        def reply(self, body):
            with fake.lock:
                fake.requests.append((self.path, body))
                fault = fake.faults(len(fake.requests), self.path, body)
                fake.in_flight += 1
                fake.most_in_flight = max(fake.in_flight, fake.most_in_flight)
            try:
                self.answered(body, fault)
            finally:
                with fake.lock:
                    fake.in_flight -= 1

        def answered(self, body, fault):
            if fault == "close":
                self.hang_up()
                return
            if isinstance(fault, float):
                time.sleep(fault)
            if key is not None and self.headers.get("Authorization") != f"Bearer {key}":
                fault = 401
            if isinstance(fault, int | bytes):
                answer = fault
            else:
                with fake.lock:  # a model answers one at a time
                    answer = fake.answer(self.path, body)
            if callable(fault):
                answer = fault(answer)
            status = 200
            if isinstance(fault, tuple):
                status, answer = fault
            elif answer is None or isinstance(answer, int):
                status = answer or 404
                unknown = "".join(f", {name} is unknown" for name in sorted(fake.unknown & body.keys()))
                answer = {"error": {"message": f"made to fail with {status}{unknown}"}}
            sent = fault if isinstance(fault, bytes) else json.dumps({} if fault == "drop" else answer).encode()
            headers = {"Content-Type": "application/json", **({"Retry-After": "0"} if status == 429 else {})}
            if fault == "cut":
                headers["Content-Length"] = str(len(sent))
                self.send(status, sent[: len(sent) // 2], **headers)
                self.hang_up()
                return
            self.send(status, sent, **headers)

    with listening(Serving) as address:
        yield address, fake


@contextmanager
def served(lm, kind="vllm", **options):
    """Serve a model, and yield its ``ServerLM`` and the ``FakeServer``."""
    with serving(lm, kind) as (address, fake):
        yield opened(address, lm, kind, **options), fake
