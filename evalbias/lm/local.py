"""``LocalLM``: a transformers model on this machine as a ``dspy.LM`` with token probabilities, and how it writes."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import dspy
import numpy as np
import torch
from dspy import lm15

from evalbias.lm import types
from evalbias.lm.decisions import DecidingLM
from evalbias.lm.dspy_seam import AsyncEngine, Engine, question_of, response_of, usage_reported
from evalbias.lm.fingerprint import keep_passed
from evalbias.lm.load import Loaded, ModelSource, load_model
from evalbias.lm.render import Prepared, Tokenizing
from evalbias.lm.saved import SavedLM
from evalbias.lm.score import Head, Scorer, cache_argument, decoder
from evalbias.lm.tokens import Scored
from evalbias.lm.types import CHUNK, MAX_TOKENS, Answers, Choices, Likelihood, Question, Refused, Text, Usage, Written
from evalbias.values import ANSWER_SETTINGS

# Most tokens in a forward pass, halved if memory does not suffice; and bytes of the prefix cache between calls.
MEMORY = {"cpu": (16_384, 1 << 29), "cuda": (131_072, 1 << 32)}
FOLDER = Path(__file__).parent.parent / "embedded"  # the judge that ships with the package
WORK, FEWEST = 2e9, 16  # questions per call times parameters on a CPU; fewest questions, which share prefixes
MOST_DRAWN = 1 << 16  # prompts whose draws without a seed are numbered; older prompts start again


class LocalLM(DecidingLM, SavedLM, types.MeasuringLM):
    """A causal transformers model on GPU or CPU; for a multimodal model, its text part.

    Logits are those of the model's own code; the output layer is computed in float32. Prompts of chat models go through
    the chat template, those of base models through ``evalbias.lm.render``. DSPy's decision outputs are answered with
    measured probabilities; see ``DecidingLM``.

    Args:
        model: Folder, GGUF file or Hugging Face name. A GGUF file takes the extra ``gguf`` and is dequantized.
        device: ``"auto"`` takes a GPU if there is one.
        dtype: Data type of the weights; ``"auto"`` keeps their own. In ``"float32"`` an answer does not depend on the
            batch, up to 1e-5 nats.
        revision: Revision of a Hugging Face model.
        trust_remote_code: Whether the model may run its own code.
        template_options: Values of the chat template's variables, such as ``{"enable_thinking": True}``; this variable
            is otherwise False if the template has it.
        adapter: Folder of a LoRA adapter in peft's format, merged into the weights; takes the extra ``peft``.
        device_map: Spreads a model over several GPUs, in place of ``device``: ``"auto"``, or module -> device as in
            transformers; takes the extra ``gpu``.
        quantization: Settings with which transformers quantizes the weights as it loads them, such as
            ``{"quant_method": "bitsandbytes", "load_in_8bit": True}`` or ``{"quant_method": "fp8"}``; takes the extra
            ``gpu`` and the method's own package. Probabilities change with the weights, and so does the fingerprint.
        **kwargs: Options of ``dspy.LM``: ``temperature``, ``max_tokens``, ``cache`` and others.

    Raises:
        FileNotFoundError: A folder or file does not exist, or contains no model or no adapter.
        ImportError: An extra is not installed, or the package of a quantization method.
        ValueError: Options are unknown or exclude each other, a file is damaged or lacks weights, or the model is not a
            causal language model, or of a kind that cannot be measured.
    """

    engine: LocalEngine
    is_local = True
    draws_by_seed = True  # a request with a seed gets the same text in any process
    default_temperature = 0.0  # of a request that sets no temperature

    def __init__(
        self,
        model: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        revision: str | None = None,
        trust_remote_code: bool = False,
        template_options: Mapping[str, Any] | None = None,
        adapter: str | None = None,
        device_map: str | Mapping[str, Any] | None = None,
        quantization: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if unknown := sorted(kwargs.keys() - ANSWER_SETTINGS - inspect.signature(dspy.LM.__init__).parameters.keys()):
            raise TypeError(f"LocalLM has no option {unknown[0]!r}, and neither has dspy.LM: leave it out.")
        source = ModelSource(
            model, device, dtype, revision, trust_remote_code, template_options, adapter, device_map, quantization
        )
        loaded = load_model(source)
        batch, prefixes = MEMORY["cuda" if loaded.model.device.type == "cuda" else "cpu"]
        sizes = {"context": loaded.context_length, "batch_tokens": batch, "prefix_bytes": prefixes}
        scorer = Scorer(loaded.model, share=loaded.passed or None, **sizes)
        if scorer.fastest and not loaded.passed:
            keep_passed(loaded.facts)
        engine = LocalEngine(loaded, scorer)
        # Decided by the model, not by a clock: a chunk's numbers depend on its questions.
        parameters = sum(weights.numel() for weights in loaded.model.parameters())
        self.chunk = CHUNK if loaded.model.device.type == "cuda" else min(CHUNK, max(FEWEST, round(WORK / parameters)))
        # DSPy's cache identifies a model by this name alone, so the name includes the fingerprint.
        name = f"local/{Path(model).resolve().name if Path(model).exists() else model}@{loaded.fingerprint}"
        super().__init__(name, engine=engine, async_engine=AsyncEngine(engine), **kwargs)

    @usage_reported
    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        """Answer questions, in batches; see ``MeasuringLM``."""
        self.engine.answer(questions, answers)

    def provenance(self) -> dict[str, str]:
        """Return the settings that decide the numbers: model, fingerprint, dtype, device and versions."""
        loaded = self.engine.loaded
        adapter = loaded.source.adapter
        return {
            "model": self.model,
            **({} if adapter is None else {"adapter": Path(adapter).resolve().name}),
            "revision": str(loaded.source.revision),
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "device": str(loaded.model.device),
            "torch": version("torch"),
            "transformers": version("transformers"),
        }

    def saved_arguments(self) -> dict[str, Any]:
        return dict(vars(self.engine.loaded.source))


def embedded_judge_lm(*, device: str = "auto") -> LocalLM:
    """Load the embedded model in float32; it was trained on the synthetic world and cannot judge real texts."""
    return LocalLM(str(FOLDER), device=device, dtype="float32")


class LocalEngine(Tokenizing, Engine):
    """Engine of ``LocalLM``, shared by its copies."""

    whose = "model"
    free: ClassVar[Mapping[type, int]] = {Choices: 0, Likelihood: 0, Text: 1}

    def __init__(self, loaded: Loaded, scorer: Scorer) -> None:
        super().__init__(loaded.tokenizer, loaded.source.template_options, loaded.context_length)
        self.loaded, self.scorer = loaded, scorer
        self.busy = threading.RLock()  # the model runs one batch at a time
        self._batch = Batcher(self._answers)
        self._draws: dict[bytes, int] = {}  # prompt and settings -> number of draws so far, the latest last
        self._drawing = threading.Lock()  # not ``busy``: requests queue while the model runs

    def complete(self, request: lm15.Request) -> lm15.Response:
        return response_of(request, self._batch(question_of(request, "LocalLM")))

    def _answers(self, questions: Sequence[Question]) -> list[Any]:
        answers: dict[int, Any] = {}
        self.answer(questions, answers)
        return [answers[place] for place in range(len(questions))]

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        """Answer questions: all probabilities in a single batch, then the texts."""
        rows: dict[int, list[Scored]] = {}  # place -> the sequences that are scored
        texts: dict[int, Prepared] = {}
        for place, prepared in enumerate(self._prepared(questions)):
            if isinstance(prepared, Refused):
                answers[place] = prepared
            elif isinstance(prepared.question, Text):
                texts[place] = prepared
            else:
                rows[place] = [prepared.content] if isinstance(prepared.content, Scored) else prepared.content
        sequences, places = [s for row in rows.values() for s in row], [p for p, row in rows.items() for _ in row]
        with self.busy:
            values = iter(self.scorer(sequences, places))
        for place, row in rows.items():
            question, logprobs = questions[place], list(itertools.islice(values, len(row)))
            if isinstance(question, Choices):
                totals = np.array([[own.sum() for own in logprobs]])  # (1, c)
                read = min(sequence.start for sequence in row)  # tokens before the choices; no token is generated
                answers[place] = types.ChoiceLogprobs(question.choices, totals, usage=Usage(read, 0))
            else:
                answers[place] = types.LogLikelihood(logprobs[0], Usage(len(row[0].ids), 0))
        if texts:
            self._write(texts, answers)

    def _write(self, texts: Mapping[int, Prepared], answers: Answers) -> None:
        """Generate texts, as many at once as ``batch_tokens`` allows."""
        prompts = {place: list(prepared.content[1]) for place, prepared in texts.items()}
        seeded = {place: self._seeded(prompts[place], prepared.question) for place, prepared in texts.items()}
        size = max(len(ids) + (seeded[p].max_tokens or MAX_TOKENS) for p, ids in prompts.items())
        most, loaded, places = max(1, self.scorer.batch_tokens // size), self.loaded, list(texts)
        for start in range(0, len(places), most):
            part = places[start : start + most]
            batch = [prompts[p] for p in part], [seeded[p] for p in part]
            with self.busy:
                written = generate(loaded.model, loaded.tokenizer, *batch, context=loaded.context_length)
            for place, result in zip(part, written, strict=True):
                rendered, _ = texts[place].content
                answers[place] = replace(result, text=result.text.removeprefix(rendered.lead))

    def _seeded(self, prompt: list[int], question: Any) -> Text:
        """Derive a seed from prompt and settings, so prompts share no random numbers; if unset, also by draw."""
        names = ("max_tokens", "temperature", "top_p", "top_k", "stop", "seed")
        defaults = (MAX_TOKENS, 0.0, 1.0, None, (), None)
        values = [getattr(question, name) for name in names]
        chosen = [default if value is None else value for value, default in zip(values, defaults, strict=True)]
        # The seed of every sampled text is a hash of this text, so its form must not change.
        settings = ", ".join(f"{name}={value!r}" for name, value in zip(names, chosen, strict=True))
        key, number = hashlib.sha256(f"({prompt!r}, Settings({settings}, top=None))".encode()).digest(), 0
        if question.seed is None and question.temperature:
            with self._drawing:
                number = self._draws[key] = self._draws.pop(key, 0) + 1
                if len(self._draws) > MOST_DRAWN:
                    del self._draws[next(iter(self._draws))]
        seed = int.from_bytes(hashlib.sha256(key + number.to_bytes(8, "big")).digest()[:8], "big") >> 1
        seeded: Text = replace(question, seed=seed)
        return seeded


# Batching of calls from many threads.
#
# A caller queues its item. If no batch runs, it answers everything queued by then; else it waits for the batch to end.
# Threads that just got an answer come back one after another: the next batch waits for them, a lone thread never waits.


# Longest pause between two arrivals that a batch waits for, as a share of the time that the last batch took, and at
# least in seconds: what a thread spends in DSPy between two calls, with others busy too.
PATIENCE, LEAST_PATIENCE = 0.1, 0.01


class Batcher:
    """Answers items in batches; if ``answer`` raises, item by item, so that each caller gets only its own error."""

    def __init__(self, answer: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[Any, Future[Any]]] = []
        lock = threading.Lock()
        self._arrived, self._ended = threading.Condition(lock), threading.Condition(lock)
        self._running = False
        self._busy = 1  # threads to wait for: the most that were answered or waiting, minus 1 per round
        self._pause = LEAST_PATIENCE

    def __call__(self, item: Any) -> Any:
        """Return the item's answer, or raise what ``answer`` raises for it."""
        mine: Future[Any] = Future()
        with self._ended:
            self._waiting.append((item, mine))
            self._arrived.notify()
            while self._running and not mine.done():
                self._ended.wait()
            if mine.done():
                return mine.result()
            self._running = True
        batch: list[tuple[Any, Future[Any]]] = []
        try:
            batch = self._gathered()
            start = time.monotonic()
            self._run(batch)
            self._pause = max(LEAST_PATIENCE, PATIENCE * (time.monotonic() - start))
        finally:
            with self._ended:
                self._running = False
                self._busy = max(self._busy - 1, len(batch) + len(self._waiting))
                self._ended.notify_all()
        return mine.result()

    def _gathered(self) -> list[tuple[Any, Future[Any]]]:
        """Wait until every busy thread has queued its item, or no item came for a while; then take the queue."""
        with self._arrived:
            arrived = 0
            while arrived < len(self._waiting) < self._busy:
                arrived = len(self._waiting)
                self._arrived.wait(self._pause)
            batch, self._waiting = self._waiting, []
            return batch

    def _run(self, batch: list[tuple[Any, Future[Any]]]) -> None:
        try:
            answers = self._answer([item for item, _ in batch])
        except BaseException as error:
            if len(batch) == 1 or not isinstance(error, Exception):
                for _, future in batch:
                    future.set_exception(error)
                return
            for entry in batch:
                self._run([entry])
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)


# Generation of texts in a batch. A text depends on its own prompt, settings and seed, not on the batch: prompts are
# padded on the left, and every row samples with its own generator. From the model folder's generation settings, only
# the end tokens apply.


@dataclass
class _Row:
    """A text while it is being generated."""

    prompt: Sequence[int]
    question: Text
    room: int  # largest number of new tokens
    generator: torch.Generator
    ids: list[int] = field(default_factory=list)  # new tokens so far
    cut: int | None = None  # length of the text before a stop string
    finished: bool = False  # True if the text ended by itself or at a stop string


def generate(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], questions: Sequence[Text], *, context: int
) -> list[Written]:
    """Continue prompts of token ids, shorter than the context, in one batch.

    Without a temperature, decoding is greedy; the default seed is 0. NaN or infinite logits raise
    FloatingPointError.
    """
    rows = [
        _Row(
            prompt,
            question,
            min(MAX_TOKENS if question.max_tokens is None else question.max_tokens, context - len(prompt)),
            torch.Generator().manual_seed(question.seed or 0),
        )
        for prompt, question in zip(prompts, questions, strict=True)
    ]
    width = max(len(row.prompt) for row in rows)
    ids = torch.tensor([[0] * (width - len(r.prompt)) + [*r.prompt] for r in rows], device=model.device)  # (b, T)
    mask = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in rows], device=model.device)
    running, cache, end = rows, None, model.generation_config.eos_token_id
    ends = {end} if isinstance(end, int) else set(end or ())
    body, head = decoder(model), Head(model, float32=False)
    cache_name = cache_argument(body)
    with torch.inference_mode():
        while running:
            # 1. A forward pass: at first over the prompts, then over one token per running row.
            positions = (mask.cumsum(dim=1) - 1).clamp_min(0)[:, -ids.shape[1] :]
            out = body(
                input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **{cache_name: cache}
            )
            cache = getattr(out, cache_name)
            logits = head(out.last_hidden_state[:, -1]).cpu()  # (b, V)
            if not bool(torch.isfinite(logits.sum(dim=1)).all()):  # a sum is not finite where a term is not
                raise FloatingPointError("The model returned NaN or infinite logits: try dtype='float32'.")
            # 2. The next token of every row.
            for row, row_logits in zip(running, logits, strict=True):
                _extend(row, row_logits, ends, tokenizer)
            # 3. Complete rows leave the batch and the KV cache.
            indices = [i for i, row in enumerate(running) if not row.finished and len(row.ids) < row.room]
            if indices and len(indices) < len(running):
                kept = torch.tensor(indices)  # on the CPU: layers of a model on several devices index it
                cache.batch_select_indices(kept)
                mask = mask[kept]
            running = [running[i] for i in indices]
            if running:
                mask = torch.cat([mask, mask.new_ones(len(running), 1)], dim=1)
                ids = torch.tensor([[row.ids[-1]] for row in running], device=model.device)  # (b, 1)
    return [Written(_text(row, tokenizer), row.finished, Usage(len(row.prompt), len(row.ids))) for row in rows]


def _text(row: _Row, tokenizer: Any) -> str:
    return str(tokenizer.decode(row.ids, skip_special_tokens=True))[: row.cut]


def _extend(row: _Row, logits: torch.Tensor, ends: set[int], tokenizer: Any) -> None:
    own = row.question
    token = drawn_token(
        logits, temperature=own.temperature or 0.0, top_p=own.top_p, top_k=own.top_k, generator=row.generator
    )
    if token in ends:
        row.finished = True
        return
    row.ids.append(token)
    if own.stop:
        _stop(row, tokenizer)


def _stop(row: _Row, tokenizer: Any) -> None:
    """End a row at the first stop string in its text, and drop the tokens after the cut."""
    text = _text(row, tokenizer)
    row.cut = min((at for stop in row.question.stop if (at := text.find(stop)) >= 0), default=None)
    if row.cut is not None:
        row.finished = True
        while row.ids and len(tokenizer.decode(row.ids[:-1], skip_special_tokens=True)) >= row.cut:
            row.ids.pop()


# Sampling of a token from logits by temperature, top-k and top-p.


def drawn_token(
    logits: torch.Tensor, *, temperature: float, top_p: float | None, top_k: int | None, generator: torch.Generator
) -> int:
    """Return the most probable of (V,) finite logits at temperature 0, else a sample, drawn by a single random number.

    ``top_k`` applies before ``top_p``: the fewest most probable tokens whose total reaches ``top_p`` remain. None: all.
    """
    if temperature <= 0:
        return int(logits.argmax())
    scaled, tokens = (logits - logits.max()) / temperature, None  # finite peak at the smallest temperatures
    if top_k is not None and top_k < len(scaled):
        scaled, tokens = scaled.topk(max(1, top_k))
    shares = scaled.softmax(-1)
    if top_p is not None and top_p < 1:
        nucleus = _nucleus(shares, top_p)
        shares, tokens = shares[nucleus], nucleus if tokens is None else tokens[nucleus]
    sums = shares.double().cumsum(0)
    whole = float(sums[-1])
    point = min(float(torch.rand((), dtype=torch.float64, generator=generator)) * whole, math.nextafter(whole, 0.0))
    index = int(torch.searchsorted(sums, point, right=True))
    return index if tokens is None else int(tokens[index])


def _nucleus(shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the indices of the nucleus among (V,) probabilities: the largest, at least one, that reach ``top_p``."""
    ordered, order = shares.double().sort(descending=True, stable=True)
    return order[: max(1, int((ordered.cumsum(0) - ordered < top_p).sum()))]
