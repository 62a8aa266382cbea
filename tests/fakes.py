"""A language model whose probabilities are a formula, for the tests of everything above the lm layer."""

from __future__ import annotations

import json
import math
import random
import re
import zlib
from dataclasses import replace

import dspy
import numpy as np

import evalbias
from evalbias.lm.types import (
    ChoiceLogprobs,
    Choices,
    Likelihood,
    LogLikelihood,
    MeasuringLM,
    Refused,
    Text,
    Written,
    by_kind,
)


def outcome(lm, questions):
    """Ask a model; returns place -> answer, place -> reason of a refusal, and the error that ended the call or None."""
    answers, ended = {}, None
    try:
        lm.answer(questions, answers)
    except (ConnectionError, KeyboardInterrupt) as error:
        ended = error
    refused = {place: answer.reason for place, answer in sorted(answers.items()) if isinstance(answer, Refused)}
    return {place: a for place, a in sorted(answers.items()) if place not in refused}, refused, ended


def messages_of(question):
    return question.context if isinstance(question, Likelihood) else question.prompt


class Fake(MeasuringLM):
    """A model that answers by a formula.

    Args:
        refuses: Function from a question to whether its prompt is too long; None takes every one.
        likelihoods: Whether it measures likelihoods.

    Attributes:
        questions: Questions that were put to it.
        batches: Number of questions in each call.
    """

    def __init__(self, *, refuses=None, likelihoods=True):
        self.refuses, self.likelihoods = refuses or (lambda _: False), likelihoods
        self.questions, self.batches = [], []

    def answer(self, questions, answers):
        if not self.likelihoods and any(isinstance(q, Likelihood) for q in questions):
            raise NotImplementedError("This server returns no likelihoods: name another model.")
        self.batches.append(len(questions))
        self.questions += questions
        refused = {i for i, question in enumerate(questions) if self.refuses(question)}
        taken = [i for i in range(len(questions)) if i not in refused]
        for kind, places in by_kind([questions[i] for i in taken]).items():
            some = [questions[taken[place]] for place in places]
            if kind is Likelihood:
                found = self.loglikelihood([(q.context, q.continuation) for q in some])
            elif kind is Text:
                found = [Written(self.write(q)) for q in some]
            else:
                whole = self.choice_logprobs([q.prompt for q in some], kind)
                found = [replace(whole, logprobs=row[None]) for row in whole.logprobs]
            answers.update(zip((taken[place] for place in places), found, strict=True))
        for i in refused:
            answers[i] = Refused("has 99 tokens, but the model's context is 64.", too_long=True)

    def write(self, question):
        raise NotImplementedError("a formula writes no texts")


class Hashing(Fake):
    """A model that draws each answer at random, by the text of its question."""

    model = "hashing"

    def __init__(self):
        super().__init__()
        self.last_lines = set()  # of the questions for a label

    def answer(self, questions, answers):
        for place, question in enumerate(questions):
            messages = messages_of(question)
            rng = np.random.default_rng(zlib.crc32(repr(messages).encode()))
            if isinstance(question, Choices):
                self.last_lines.add(messages[-1]["content"].splitlines()[-1])
                logits = rng.normal(size=len(question.choices))
                answers[place] = ChoiceLogprobs(question.choices, (logits - np.logaddexp.reduce(logits))[None])
            else:
                answers[place] = LogLikelihood(-rng.exponential(size=5))


class FormulaLM(Fake):
    """Judges by the numbers in a text: "q=3 z=-1.5" is of quality 3 and rarity -1.5.

    Its expected score follows quality plus ``bias`` times z; the log-likelihood of a text is its z. A demonstration
    whose label is far below quality + z shows that rarity must not count: ``bias`` falls by a share for each.
    """

    model = "fake/formula"

    def __init__(self, bias: float = 1.0, coverage: float = 0.5, **options) -> None:
        super().__init__(**options)
        self.bias = bias
        self.mass = coverage
        self.judged: list[str] = []
        self.calls = 0

    def choice_logprobs(self, prompts, choices):
        self.calls += 1
        return ChoiceLogprobs(tuple(choices), np.array([self._row(p, choices) for p in prompts]))

    def loglikelihood(self, pairs):
        self.calls += 1
        return [LogLikelihood(np.array([numbers(text)[1] - 20.0, -1.0])) for _, text in pairs]

    def _row(self, prompt, choices):
        assert not isinstance(prompt, str)
        self.judged.append(prompt[-1]["content"])
        quality, rarity = numbers(prompt[-1]["content"])
        clashes = 0
        for asked, answer in zip(prompt[1:-1:2], prompt[2:-1:2], strict=True):
            q, z = numbers(asked["content"])
            clashes += abs(float(answer["content"]) - (q + self.bias * z)) > 1.5
        slope = self.bias * max(0.0, 1.0 - clashes / 6)
        distance = np.array([(float(c) - quality - slope * rarity) ** 2 for c in choices])
        weights = np.exp(-distance)
        return list(np.log(self.mass * weights / weights.sum()))


def numbers(text: str) -> tuple[float, float]:
    found = re.findall(r"q=(-?[\d.]+) z=(-?[\d.]+)", text)
    quality, rarity = found[-1]
    return float(quality), float(rarity)


def items(n: int, seed: int, noise: float = 0.4) -> list[dspy.Example]:
    """Texts for the formula, with human scores near their quality."""
    rng = random.Random(seed)
    done = []
    for k in range(n):
        quality, rarity = rng.choice([2, 3, 4]), rng.gauss(0, 1)
        human = min(5.0, max(1.0, quality + rng.gauss(0, noise)))
        text = f"q={quality} z={rarity:.4f}"
        done.append(dspy.Example(id=f"{seed}-{k}", source="s", output=text, scores={"quality": human}))
    return [e.with_inputs("source", "output") for e in done]


def of_sources(n, seed):
    """Items for the formula, each of a source of its own, with two ratings."""
    found = []
    for number, e in enumerate(items(n, seed)):
        noise = np.random.default_rng([seed, number]).normal(0, 0.5, 2)
        score = e.scores["quality"]
        found.append(e.copy(source=e.id, ratings={"quality": [score + noise[0], score + noise[1]]}))
    return found


class Comparer(Fake):
    """Prefers the higher q by its difference, and the first position by ``lean`` nats; ``mass`` is the coverage."""

    model = "fake/comparer"

    def __init__(self, lean=0.0, mass=0.8, tie=-math.inf, **options):
        super().__init__(**options)
        self.lean, self.mass, self.tie = lean, mass, tie
        self.prompts = []

    def loglikelihood(self, pairs):
        return [LogLikelihood(np.array([numbers(text)[1]])) for _, text in pairs]

    def choice_logprobs(self, prompts, choices):
        rows = []
        for prompt in prompts:
            self.prompts.append(prompt)
            lines = [line for line in prompt[-1]["content"].splitlines() if line.startswith("Output ")]
            q = [0.0 if "N/A" in line else numbers(line)[0] for line in lines]
            row = np.array(q + [self.tie] * (len(choices) - len(q)))
            row[0] += self.lean
            rows.append(row - np.log(np.exp(row).sum()) + math.log(self.mass))
        return ChoiceLogprobs(tuple(choices), np.array(rows))


def pair(*qualities, source="s"):
    return dspy.Example(source=source, candidates=[f"q={q} z=0" for q in qualities]).with_inputs("source", "candidates")


LEANS = [f"lean={x / 4}" for x in range(-12, 13)]
PARTS = [("On quality,", "By quality,", "For quality:"), LEANS]


class Wording(Comparer):
    """Leans to the first position as far as its instruction says; each prompt is counted."""

    def __init__(self, first=2.0, **options):
        super().__init__(**options)
        self.first = first
        self.asked = []

    def choice_logprobs(self, prompts, choices):
        self.asked += [json.dumps(p) for p in prompts]
        rows = []
        for prompt in prompts:
            found = re.search(r"lean=(-?[\d.]+)", prompt[0]["content"] + prompt[-1]["content"])  # first or last
            self.lean = float(found.group(1)) if found else self.first
            rows.append(super().choice_logprobs([prompt], choices).logprobs[0])
        return type(super().choice_logprobs(prompts[:1], choices))(tuple(choices), np.array(rows))


def rated(documents=12, outputs=6):
    rng = random.Random(0)
    found = []
    for d in range(documents):
        for i, q in enumerate(rng.sample(range(20), outputs)):
            fields = {"id": f"{d}-{i}", "input_id": str(d), "source": f"s{d}", "scores": {"quality": q}}
            found.append(dspy.Example(**fields, output=f"q={q} z={rng.gauss(0, 1):.3f}"))
    return found


def searched_judge(judge, **options):
    """A judge, the same with a wording searched on half of the documents, and the outputs of the others."""
    train, test = evalbias.data.split(rated(documents=24), seed=0, by="input", test_fraction=0.5)
    zepo = evalbias.ZEPO(evalbias.GrammarParaphraser(PARTS), select=False, **options)
    drawn = evalbias.data.pairs(train, limit=100, seed=0)
    return judge, zepo.compile(judge, trainset=drawn, lm=Wording(first=6.5)), test


class Pipeline(dspy.Module):
    """Answers a question, and scores the answer by a judge."""

    def __init__(self, judge):
        super().__init__()
        self.rewrite, self.judge = dspy.Predict("question -> answer"), judge

    def forward(self, question):
        answer = self.rewrite(question=question).answer
        return dspy.Prediction(answer=answer, score=self.judge(source=question, output=answer).score)

    async def aforward(self, question):
        answer = (await self.rewrite.acall(question=question)).answer
        return dspy.Prediction(answer=answer, score=(await self.judge.acall(source=question, output=answer)).score)
