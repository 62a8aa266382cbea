"""Ask any ``dspy.LM`` questions, through DSPy's cache, callbacks and retries."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import dspy
import numpy as np

from evalbias.lm import decisions as closed
from evalbias.lm import dspy_seam as seam
from evalbias.lm import types
from evalbias.lm.calls import Call, driven, harmless
from evalbias.lm.fingerprint import DIGITS, SAMPLE_QUESTION, Answering, sample_of
from evalbias.lm.reading import named_choice
from evalbias.lm.types import Answers, ChoiceLogprobs, Choices, Decided, Decisions, Question, Text, Unanswered, Written
from evalbias.measures.arrays import FloatArray
from evalbias.values import digest, get_logger

IN_FLIGHT = 16  # number of simultaneous requests to a model behind DSPy's own engines
PLAIN_TOKENS = 16  # token limit of a trial answer; some models refuse lower limits
MOST_DECISIONS = 64  # closed questions about a state in a request: every endpoint takes so many


REMEDIES = {
    "billing": types.CREDIT_REMEDY,
    "rate_limit": "Go on later, or give dspy.LM more num_retries.",
    **dict.fromkeys(("transport", "timeout"), "Check that the server runs, and its address."),
}
"""Code of DSPy's error -> advice."""


def as_unanswered(lm: Any, error: Any) -> Unanswered:
    """Return DSPy's error of a request to a model as one that names the model and the remedy."""
    status, keys = getattr(error, "status", None), getattr(error, "env_keys", ())
    if keys and status is None:  # DSPy sent nothing
        needed = f"set {' or '.join(keys)} in the environment, or give api_key to dspy.LM"
        return Unanswered(f"{lm.model} was not asked, because it needs a key: {needed}.")
    denied = status in (401, 403) and lm.kwargs.get("api_base")
    remedy = types.KEY_REMEDY if denied else REMEDIES.get(getattr(error, "code", ""), "")
    return Unanswered(f"{lm.model} did not answer: {seam.message_of(error).rstrip('.')}. {remedy}".rstrip())


class AnyLM(types.MeasuringLM):
    """A ``dspy.LM`` asked through DSPy: one request per question, several in flight.

    Texts are sent unchanged. The provider applies its own template and tokenizer, so a text that spells a control token
    (``<|im_end|>``) may end its own turn, as at the chat endpoints of vLLM, SGLang and llama.cpp; ``ServerLM`` protects
    against it. ``options`` are DSPy's own options of every call: ``cache`` and ``rollout_id``.
    """

    answers_alone = True

    def __init__(self, lm: Any, **options: Any) -> None:
        self.lm, self.model, self._options = lm, str(lm.model), options
        self.answering = [Answering()]
        self._before = next(iter(reversed(getattr(lm, "history", None) or ())), None)  # earlier requests are others'
        self.decides = lm.decides if isinstance(lm, types.MeasuringLM) else closed.decides(lm)

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        """Answer questions; DSPy's errors, except ``NoProbabilities``, become connection errors that name the model."""
        try:
            self.run(questions, answers)
        except types.RequestRefused:
            raise
        except ConnectionError as error:
            raise Unanswered(str(error)) from error
        except seam.FAILED as error:
            if isinstance(cause := error.__cause__, ValueError):  # a local model's own error
                raise cause from cause.__cause__  # from ``error`` would be a circle, which ``own_refusal`` follows
            raise as_unanswered(self.lm, error) from error
        except types.ModelChanged as error:  # a connection error: the other answers of the call are kept
            raise Unanswered(f"{self.model}: {error}.") from error

    def run(self, questions: Sequence[Question], answers: Answers) -> None:
        """Ask a single question in this thread, several in others; after an error or interrupt, send no more."""
        bundled, bundled_answers = closed.by_state(questions, answers, MOST_DECISIONS)
        context = copy_context()
        pool = ThreadPoolExecutor(IN_FLIGHT + 1, thread_name_prefix="evalbias-dspy")

        async def ask(question: Question) -> Any:
            if len(bundled) == 1:
                return self._answer(question)
            return await asyncio.get_running_loop().run_in_executor(pool, context.copy().run, self._answer, question)

        call = Call(
            lambda place: ask(bundled[place]),
            bundled_answers,
            control=lambda place: ask(harmless(bundled[place])),
            refusal=seam.refusal_of,
        )
        try:
            if len(bundled) == 1:
                driven(call.run([0], at_once=1))
            else:
                pool.submit(asyncio.run, call.run(range(len(bundled)), at_once=IN_FLIGHT)).result()
        finally:
            call.over = True  # requests in flight are not waited for after an interrupt
            pool.shutdown(wait=False, cancel_futures=True)
        call.check()

    def _send(self, *request: Any, **options: Any) -> Any:
        """Send a request, with DSPy's own options unless it is a decision request; return the response."""
        response = self.lm(*request, **(options if "questions" in options else self._options | options))
        if isinstance(response, dict):  # answer to a decision request; only the history has its model
            for model in closed.answering_models(self.lm, self._before):
                self.answering[0].check("decision", model, {})
        else:
            self.answering[0].check("answer", response.model, response.provider_data or {})
        return response

    def _answer(self, question: Any) -> ChoiceLogprobs | Written | Decided:
        if isinstance(question, types.Likelihood):
            raise NotImplementedError(
                f"{self.model} returns no likelihoods of given texts: name a local model for them with `likelihood_lm`."
            )
        if closed.decides(self.lm) and not isinstance(question, Decisions):
            raise NotImplementedError(
                f"{self.model} answers closed questions and writes no texts: use scoring='expected', or another model."
            )
        method = {Choices: self._choices, Text: self._text, Decisions: self._decisions}[type(question)]
        # DSPy passes the usage on to the tracker around it. A streamed program does not stream its judge's answers.
        with (
            dspy.track_usage() as tracker,
            dspy.context(send_stream=None),
            seam.without_truncation_warning(),
            seam.keys_hidden(self.lm),
        ):
            answer: ChoiceLogprobs | Written | Decided = method(question)  # type: ignore[operator]
            return replace(answer, usage=seam.usage_in(tracker))

    def _choices(self, question: Choices) -> ChoiceLogprobs:
        messages, choices = types.as_messages(question.prompt), question.choices
        # 1. A measured judgment, which our engines and DSPy's vLLM route answer.
        request, ours = seam.judgment_request(self.model, messages, choices), isinstance(self.lm, types.MeasuringLM)
        if ours or not seam.refuses_judgments(self.lm, request):
            try:
                response = self._send(request)
                if ours or seam.measured_shares(response):
                    return seam.read_judgment(response, choices)
                seam.refuses.setdefault(self.lm, True)  # a user's engine that takes it for another request
            except seam.UNSUPPORTED:
                if ours:  # our engine's refusal is about these choices
                    raise
                seam.refuses[self.lm] = True
        lacks = seam.lacks.setdefault(self.lm, set())
        for top in (top for top in seam.TOPS if top not in lacks):  # 2. the most probable first tokens
            try:
                config = dspy.lm15.Config(max_tokens=1, temperature=1.0, top_p=1.0, logprobs=top)
                response = self._send(seam.chat_request(self.model, messages, config))
            except seam.TOO_LONG:
                raise
            except (*seam.UNSUPPORTED, *seam.INVALID) as error:
                refusal = error
            else:
                lacks.update(seam.TOPS[: seam.TOPS.index(top)])
                return seam.read_first_token(response, choices)
        try:  # 3. a model that reports no log-probabilities answers a plain request
            self._send(seam.text_request(self.model, Text(question.prompt, PLAIN_TOKENS)))
        except (*seam.UNSUPPORTED, *seam.INVALID):
            raise refusal from refusal.__cause__
        raise types.NoProbabilities(self.model, f"it refuses to report them ({refusal})") from refusal

    def _decisions(self, decisions: Decisions) -> Decided:
        """Ask a model of decision requests, such as ``dspy.TypeSafe``."""
        named = closed.named_questions(decisions.questions)
        forms = {name: closed.systemone_form(question) for name, question in named.items()}
        try:
            answers = self._send(state=decisions.questions[0].prompt, questions=forms)
        except (ImportError, TypeError, ValueError):
            raise
        except Exception as error:  # the client's own
            status = getattr(error, "status", None)
            kind = dspy.LMInvalidRequestError if status in types.STATUSES else dspy.LMError
            raise kind(message=str(error), model=self.model, status=status) from error
        return closed.read_answers(answers, named, forms, model=self.model)

    def _text(self, question: Text) -> Written:
        """Ask for a text: without a seed, but still past DSPy's cache, or a temperature of 1, if it takes none."""
        apart = {} if question.seed is None else {"rollout_id": question.seed}
        lacks, left_out = seam.lacks.setdefault(self.lm, set()), set[str]()
        spare = {"seed", *(["temperature"] if question.temperature == 1 else [])}  # a refused 0 is an error
        while True:
            sent = spare - lacks - left_out
            plain: Any = dict.fromkeys(spare - sent)
            try:
                response = self._send(seam.text_request(self.model, replace(question, **plain)), **apart)
            except (*seam.UNSUPPORTED, *seam.INVALID) as error:
                if not (refused := {name for name in sent if name in str(error).casefold()}):
                    raise
                left_out |= refused
            else:
                lacks |= left_out
                return Written(response.text or "", response.finish_reason != "length")

    def samples(self) -> list[FloatArray]:
        """Return the sample of the model's answers; empty if the model reports no probabilities."""
        answers: dict[int, Any] = {}
        try:
            self.answer([(types.Decision if self.decides else Choices)(SAMPLE_QUESTION, DIGITS)], answers)
        except (types.NoProbabilities, types.RequestRefused):
            return []
        if isinstance(answers[0], types.Refused) or np.isnan(answers[0].logprobs).any():
            return []
        return [sample_of(np.exp(answers[0].logprobs[0]))]


# Estimates of probabilities from repeated answers, for models that report no probabilities.

MOST_SAMPLES, MOST_TOKENS = 10_000, 1_000_000  # limits of what a file of settings can make a judge ask for


@dataclass(frozen=True)
class Sampling:
    """Settings for asking a model the same question repeatedly, to estimate the probabilities of its answers.

    Args:
        samples: Number k of answers. A share p of them has the standard error ``sqrt(p (1 - p) / k)``. A single one is
            the judgment itself, which costs a k-th and is coarser.
        temperature: 1 estimates the model's own probabilities; 0, of a single answer, takes the likeliest. Other
            sampling settings, such as ``top_p``, are the model's defaults.
        max_tokens: Token limit of each answer; models that reason before they answer need a high limit.
        seed: Seed for drawing the answers: models that take a seed repeat them.

    Raises:
        ValueError: A value is outside its range.
    """

    samples: int = 20
    temperature: float = 1.0
    max_tokens: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        varied = self.temperature > 0 or (self.temperature == 0 and self.samples == 1)
        if not (varied and 1 <= self.samples <= MOST_SAMPLES and 1 <= self.max_tokens <= MOST_TOKENS):
            raise ValueError(
                f"{self} cannot be drawn: give 1 to {MOST_SAMPLES} samples, a temperature above 0 (or 0 for a single "
                f"sample), and a limit of 1 to {MOST_TOKENS} tokens."
            )

    def draws(self, prompt: types.Prompt, rollout_id: int | None = None) -> list[Text]:
        """Return the k questions whose answers estimate a judgment; every prompt and rollout has its own seeds."""
        if self.temperature == 0:
            return [Text(prompt, self.max_tokens, 0.0)]
        key = digest([prompt, self.seed, rollout_id], 16)
        seeds = np.random.default_rng(int(key, 16)).integers(2**31, size=self.samples)
        return [Text(prompt, self.max_tokens, self.temperature, seed=int(seed)) for seed in seeds]


def estimated_choices(texts: Sequence[Written], choices: Sequence[str]) -> ChoiceLogprobs:
    """Estimate the probabilities of c choices by their shares of k answers to a prompt, read by ``named_choice``.

    The logarithms of shape (1, c) are -inf where no answer names the choice. Answers that name no choice count in k, so
    that the coverage is the share of readable answers.
    """
    named = [named_choice(written.text, choices, finished=written.finished) for written in texts]
    if any(name is None and not written.finished for name, written in zip(named, texts, strict=True)):
        _tell_cut_off()
    count = Counter(named)
    shares = np.array([[count[choice] / len(texts) for choice in choices]])  # (1, c)
    with np.errstate(divide="ignore"):  # a choice that was never drawn
        return ChoiceLogprobs(tuple(choices), np.log(shares), samples=len(texts))


@cache
def _tell_cut_off() -> None:
    """Log once that there are answers whose conclusion is missing."""
    get_logger(__name__).warning(
        "Answers are cut off before they clearly name a label, and do not count: give them more tokens "
        "(Sampling(max_tokens=...), --sample-tokens)."
    )


def answer_sampled(
    answer: Callable[[Sequence[Question], Answers], None],
    sampling: Sampling,
    questions: Sequence[Question],
    answers: Answers,
    *,
    rollout_id: int | None = None,
) -> None:
    """Answer questions by ``answer``, choices by k draws each; if any draw is refused, the prompt is refused."""
    draws = [sampling.draws(q.prompt, rollout_id) if isinstance(q, Choices) else [q] for q in questions]
    ends = np.cumsum([0, *map(len, draws)])
    drawn: dict[int, Any] = {}
    try:
        answer([draw for some in draws for draw in some], drawn)
    finally:
        for place, question in enumerate(questions):
            some = [drawn[number] for number in range(ends[place], ends[place + 1]) if number in drawn]
            refusal = next((result for result in some if isinstance(result, types.Refused)), None)
            if refusal is not None:
                answers[place] = refusal
            elif len(some) == len(draws[place]):
                answers[place] = some[0]
                if isinstance(question, Choices):
                    estimate = estimated_choices(some, question.choices)
                    answers[place] = replace(estimate, usage=_paid(some))


def _paid(answers: Sequence[Any]) -> types.Usage | None:
    """Return what several answers took together; None where no model reports it."""
    paid = [answer.usage for answer in answers if answer.usage is not None]
    return types.total_usage(paid) if paid else None


# Reasons first: the model writes them, and the probabilities of its answer are measured after that text.


@dataclass(frozen=True)
class Reasoning(Sampling):
    """Settings for reasons that a model writes before it answers, in addition to those of ``Sampling``.

    Args:
        samples: Number of reasons, over whose answers the probabilities are averaged; at least 1. Of a judge that
            samples, a single answer follows each.
        temperature: Greater than 0, so that several reasons differ; or 0 for a single one.
        max_tokens: Token limit of each reason; a longer text is cut off, and the answer follows it.
        seed: Seed for drawing the reasons: models that take a seed repeat them.
    """

    samples: int = 4
    max_tokens: int = 256


@dataclass(frozen=True)
class Reasoned:
    """Which of the choices follows after the model's reasons? ``prompt`` asks for the reasons."""

    prompt: types.Prompt
    choices: tuple[str, ...]
    conclusion: str  # message that asks for the answer after them
    reasoning: Reasoning

    def after(self, reasons: str) -> Choices:
        turns = [{"role": "assistant", "content": reasons}, {"role": "user", "content": self.conclusion}]
        return Choices([*types.as_messages(self.prompt), *turns], self.choices)


def answer_reasoned(
    answer: Callable[[Sequence[Question], Answers], None],
    questions: Sequence[Any],
    answers: Answers,
    *,
    rollout_id: int | None = None,
) -> None:
    """Answer questions by ``answer``; ``Reasoned`` questions by the mean of the answers after each reason."""
    reasoned = {place: question for place, question in enumerate(questions) if isinstance(question, Reasoned)}
    if not reasoned:
        answer(questions, answers)
        return
    # 1. All reasons, and the other questions.
    draws = [q.reasoning.draws(q.prompt, rollout_id) if isinstance(q, Reasoned) else [q] for q in questions]
    written = _answered(answer, draws)
    # 2. The answer after each reason; an empty reason becomes an ellipsis, which every template takes.
    after = {
        place: [question.after(text.text.strip() or "...") for text in written[place]]
        for place, question in reasoned.items()
        if not any(isinstance(text, types.Refused) for text in written[place])
    }
    measured = dict(zip(after, _answered(answer, list(after.values())), strict=True))
    # 3. p(label) = mean over the reasons of p(label | reasons)
    for place, some in enumerate(written):
        rows = measured.get(place, some)
        refused = next((row for row in rows if isinstance(row, types.Refused)), None)
        if refused is not None or place not in reasoned:
            answers[place] = refused or rows[0]
            continue
        with np.errstate(divide="ignore"):
            mean = np.log(np.mean([np.exp(row.logprobs) for row in rows], axis=0))
        reasons, samples = tuple(text.text for text in some), sum(row.samples or 0 for row in rows) or None
        usage = _paid([*some, *rows])
        answers[place] = replace(rows[0], logprobs=mean, usage=usage, reasons=reasons, samples=samples)


def _answered(
    answer: Callable[[Sequence[Question], Answers], None], groups: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    """Ask groups of questions in a single call; return the answers by group."""
    answers = dict[int, Any]()
    answer([question for group in groups for question in group], answers)
    each = iter(answers[place] for place in range(sum(map(len, groups))))
    return [[next(each) for _ in group] for group in groups]


# A single question to any ``dspy.LM``, as an adapter asks it.


def ask(lm: Any, question: Any, sampling: Sampling | None = None, **options: Any) -> Any:
    """Return any ``dspy.LM``'s answer to a question, with probabilities measured or, with ``sampling``, estimated.

    ``options`` are those of ``AnyLM``. Raises ``NoProbabilities``, ``PromptRefused`` or ``RequestRefused``.
    """
    answers, rollout_id = dict[int, Any](), options.get("rollout_id")
    run = AnyLM(lm, **options).run if callable(lm) else lm.answer  # a cached model is not a dspy.LM
    if sampling is not None:
        run = partial(answer_sampled, run, sampling, rollout_id=rollout_id)
    answer_reasoned(run, [question], answers, rollout_id=rollout_id)
    types.raise_refused(answers, dict.fromkeys(answers, "The prompt"))
    return answers[0]
