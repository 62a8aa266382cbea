"""A model behind a server as a DSPy engine: measured judgments, generation, and token probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dspy import lm15

from evalbias.lm.dspy_compat import validate_request
from evalbias.lm.engine_base import Engine
from evalbias.lm.refusals import HARMLESS, each, harmless
from evalbias.lm.requests import judgments, measured, messages_of, refusals_for_dspy, refuse
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.servers.call import Job
from evalbias.lm.servers.dialects.base import Dialect
from evalbias.lm.servers.fleet import Fleet
from evalbias.lm.servers.heap import HEAP
from evalbias.lm.text import check_pairs, check_prompts
from evalbias.lm.types import ARRIVED, ChoiceLogprobs, LogLikelihood, Prompt, stacked

Item = TypeVar("Item")
Answer = TypeVar("Answer")

NAME = "ServerLM"


class ServerEngine(Engine):
    """The engine of ``ServerLM``.

    Args:
        fleet: Servers of the model, at least one; all speak the same dialect.
        model: Name under which the servers serve the model.
    """

    def __init__(self, fleet: Fleet, model: str) -> None:
        self.fleet = fleet
        self._model = model

    @property
    def dialect(self) -> Dialect:
        """Dialect that makes the jobs: the first server's. Any of the servers can run them."""
        return self.fleet.replicas[0].dialect

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt; see ``MeasuringLM``."""
        check_prompts(prompts)
        choices = tuple(choices)

        def jobs(prompts: Sequence[Prompt]) -> list[Job[ChoiceLogprobs]]:
            return self.dialect.choice_jobs(prompts, choices)

        rows = self._all(jobs, prompts, harmless)
        return stacked(rows, choices)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context; see ``MeasuringLM``."""
        check_pairs(pairs)
        return self._all(self.dialect.likelihood_jobs, pairs, lambda pair: (harmless(pair[0]), HARMLESS))

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Generate a text after every prompt, decoded greedily."""
        return self._texts(prompts, [lm15.Config(temperature=0.0, max_tokens=max_tokens)] * len(prompts))

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt, each with its own seed."""
        config = lm15.Config(temperature=sampling.temperature, max_tokens=sampling.max_tokens)
        return self._texts(prompts, [replace(config, seed=seed) for seed in seeds])

    def _texts(self, prompts: Sequence[Prompt], configs: Sequence[lm15.Config]) -> list[str]:
        def job(question: tuple[Prompt, lm15.Config]) -> Job[str]:
            whole = self.dialect.generation_job(*question)
            return Job(partial(_text, whole), whole.key)

        questions = list(zip(prompts, configs, strict=True))
        return self._all(partial(each, job), questions, lambda question: (harmless(question[0]), question[1]))

    def _all(
        self,
        jobs: Callable[[Sequence[Item]], list[Job[Answer]]],
        items: Sequence[Item],
        control: Callable[[Item], Item],
    ) -> list[Answer]:
        """Run the jobs of all items.

        Args:
            jobs: Function from items to one job each.
            items: Items of the call.
            control: Function from an item to the same one about a harmless text.
        """
        with HEAP.frozen():  # while prompts are tokenized
            return self.fleet.all(
                jobs(items), lambda i: jobs([control(items[i])])[0], name=self._model, arrived=ARRIVED.get()
            )

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request; see ``dspy.clients.engines.Engine``."""
        job, messages = self._job(request)
        with refusals_for_dspy():
            (answer,) = self.fleet.all([job(messages)], lambda _: job(harmless(messages)), name=self._model)
        return _response(request, answer)

    async def complete_async(self, request: lm15.Request) -> lm15.Response:
        """Answer one request without a thread of its own; see ``AsyncEngine``."""
        job, messages = self._job(request)
        with refusals_for_dspy():
            answer = await self.fleet.one(job(messages), lambda _: job(harmless(messages)), name=self._model)
        return _response(request, answer)

    def _job(self, request: lm15.Request) -> tuple[Callable[[Prompt], Job[Any]], Prompt]:
        """Return what answers a request: a function that makes the job for a prompt, and the request's prompt.

        The job returns a judgment's log-probabilities or a generated text.
        """
        validate_request(request)
        refuse(request, NAME)
        messages, asked = messages_of(request, NAME), judgments(request)
        if not asked:
            return lambda prompt: self.dialect.generation_job(prompt, request.config), messages
        (judgment,) = asked.values()  # ``refuse`` lets one through
        return lambda prompt: self.dialect.choice_jobs([prompt], tuple(judgment.keys))[0], messages


def _response(request: lm15.Request, answer: Any) -> lm15.Response:
    if isinstance(answer, lm15.Response):
        return answer
    return measured(request, messages_of(request, NAME), lambda *_: answer)


async def _text(job: Job[lm15.Response], dialect: Dialect) -> str:
    return (await job.run(dialect)).text or ""
