"""A local transformers model as a DSPy engine: measured judgments, generation, and token probabilities."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dspy import lm15

from evalbias.lm.batcher import Batcher
from evalbias.lm.chat import Renderer
from evalbias.lm.control_tokens import PromptTokenizer
from evalbias.lm.dspy_compat import validate_request
from evalbias.lm.engine_base import Engine
from evalbias.lm.generation import Generated, Settings, generate
from evalbias.lm.loading import Loaded
from evalbias.lm.requests import judgments, measured, messages_of, refusals_for_dspy, refuse
from evalbias.lm.scorer import Scorer
from evalbias.lm.text import check_pairs, check_prompts
from evalbias.lm.tokens import check_known, check_lengths, choice_sequences, joint
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, Message, Prompt

NAME = "LocalLM"

Start = tuple[list[int], Settings]
Question = tuple[Sequence[Message], tuple[str, ...]]


class LocalEngine(Engine):
    """The engine of ``LocalLM``.

    Args:
        loaded: Model and tokenizer.
        batch_tokens: Largest number of tokens in one forward pass.
        share_prefixes: Whether to compute shared prefixes once.
        prefix_bytes: Memory in bytes for keys and values that are kept between calls.
    """

    def __init__(self, loaded: Loaded, *, batch_tokens: int, share_prefixes: bool, prefix_bytes: int) -> None:
        self.loaded = loaded
        self._options = {
            "batch_tokens": batch_tokens,
            "share_prefixes": share_prefixes,
            "prefix_bytes": prefix_bytes,
        }
        self.tokenizer = PromptTokenizer(loaded.tokenizer)
        self.render = Renderer(self.tokenizer, loaded.arguments["template_options"])
        context = loaded.context_length
        self.scorer = Scorer(
            loaded.model,
            context=context,
            batch_tokens=batch_tokens,
            share=share_prefixes,
            prefix_bytes=prefix_bytes,
            passed=loaded.passed.under(self._options),
        )
        self._busy = threading.RLock()  # the model runs one batch at a time
        self._judge: Batcher[Question, ChoiceLogprobs] = Batcher(self._judgments)
        self._write: Batcher[Start, Generated] = Batcher(self._generations)
        self._draws: Counter[bytes] = Counter()
        self._drawing = threading.Lock()  # not _busy: requests queue while the model runs

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context; see ``MeasuringLM``."""
        check_pairs(pairs)
        sequences = joint(self.tokenizer, [(self.render(p), continuation) for p, continuation in pairs])
        check_known(self.tokenizer, sequences)
        with self._busy:
            return [LogLikelihood(values) for values in self.scorer(sequences)]

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt; see ``MeasuringLM``."""
        check_prompts(prompts)
        rows = choice_sequences(self.tokenizer, [self.render(p) for p in prompts], choices)
        longest = [max(row, key=lambda scored: len(scored.ids)) for row in rows]
        check_lengths(longest, self.loaded.context_length, whose="model")  # by prompt: the scorer counts sequences
        with self._busy:
            values = self.scorer([sequence for row in rows for sequence in row])
        totals = np.array([v.sum() for v in values]).reshape(len(prompts), len(choices))  # (n, c)
        return ChoiceLogprobs(tuple(choices), totals)

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request; see ``dspy.clients.engines.Engine``."""
        validate_request(request)
        refuse(request, NAME)
        messages = messages_of(request, NAME)
        with refusals_for_dspy():
            if judgments(request):
                return measured(request, messages, lambda prompt, choices: self._judge((prompt, choices)))
            rendered = self.render(messages)
            prompt = list(self.tokenizer.encode(rendered.alone()).ids)
            generated = self._write((prompt, self._seeded(prompt, _settings(request))))
            return _response(request, generated, len(prompt), rendered.lead)

    def forget(self) -> None:
        """Clear the prefix cache."""
        with self._busy:
            self.scorer.prefixes.clear()

    def dump_state(self) -> dict[str, Any]:
        """Return the arguments of ``LocalLM`` for the same model, without weights or keys."""
        return {**self.loaded.arguments, **self._options}

    def _seeded(self, prompt: list[int], settings: Settings) -> Settings:
        """Return settings with a seed that depends on the prompt, so that prompts do not share random numbers.

        A repeated request with a seed samples the same text again; one without a seed samples another text.
        """
        key, number = hashlib.sha256(repr((prompt, settings)).encode()).digest(), 0
        if settings.seed is None:
            with self._drawing:
                self._draws[key] += 1
                number = self._draws[key]
        seed = int.from_bytes(hashlib.sha256(key + number.to_bytes(8, "big")).digest()[:8], "big") >> 1
        return replace(settings, seed=seed)

    def _generations(self, starts: Sequence[Start]) -> list[Generated]:
        """Generate the texts of one batch of requests, as many at once as ``batch_tokens`` allows."""
        size = max(len(prompt) + settings.max_tokens for prompt, settings in starts)
        rows, done = max(1, self.scorer.batch_tokens // size), []
        loaded = self.loaded
        with self._busy:
            for index in range(0, len(starts), rows):
                prompts, settings = zip(*starts[index : index + rows], strict=True)
                done += generate(loaded.model, loaded.tokenizer, prompts, settings, context=loaded.context_length)
        return done

    def _judgments(self, questions: Sequence[Question]) -> list[ChoiceLogprobs]:
        """Answer one batch of judgments, those with the same choices in one call."""
        done: dict[int, ChoiceLogprobs] = {}
        for choices in dict.fromkeys(choices for _, choices in questions):
            indices = [i for i, (_, c) in enumerate(questions) if c == choices]
            logprobs = self.choice_logprobs([questions[i][0] for i in indices], choices).logprobs  # (n, c)
            for row, index in enumerate(indices):
                done[index] = ChoiceLogprobs(choices, logprobs[row : row + 1])
        return [done[i] for i in range(len(questions))]


def _settings(request: lm15.Request) -> Settings:
    values = {
        name: getattr(request.config, name)
        for name in ("max_tokens", "temperature", "top_p", "top_k", "seed")
        if getattr(request.config, name) is not None
    }
    return Settings(**values, stop=tuple(request.config.stop), top=request.config.logprobs)


def _response(request: lm15.Request, generated: Generated, prompt_tokens: int, lead: str) -> lm15.Response:
    logprobs = None
    if request.config.logprobs is not None:
        logprobs = tuple(
            lm15.TokenLogprob(
                token=token.text,
                logprob=token.logprob,
                token_id=token.id,
                top=tuple(lm15.TopLogprob(token=text, logprob=value, token_id=i) for i, text, value in token.top),
            )
            for token in generated.tokens
        )
    return lm15.Response(
        id=None,
        model=request.model,
        message=lm15.Message.assistant(generated.text.removeprefix(lead)),
        finish_reason="stop" if generated.finished else "length",
        usage=lm15.Usage(input_tokens=prompt_tokens, output_tokens=generated.length, total_tokens=None),
        logprobs=logprobs,
    )
