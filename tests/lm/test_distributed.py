"""A model of which several workers hold copies gives the answers of one copy, and keeps those that it has."""

import re

import numpy as np
import pytest
from fakes import FormulaLM, outcome

from evalbias.lm import workers as distributed
from evalbias.lm.cache import CachedLM
from evalbias.lm.types import Choices, MeasuringLM, PromptRefused, Text, Unanswered, chunk_of
from evalbias.lm.workers import Outcome, Worker, WorkersLM

CHOICES = ("1", "2", "3", "4", "5")


class Model(FormulaLM):
    """A model that writes, refuses prompts that say "too long", and counts how often it forgets."""

    forgot = 0

    def write(self, question):
        return f"{question.prompt[-1]['content']} {question.seed} {question.temperature} {question.max_tokens}"

    def provenance(self):
        return {"model": self.model, "weights": "formula"}

    def forget(self):
        Model.forgot += 1

    def choice_logprobs(self, prompts, choices):
        if bad := [i for i, prompt in enumerate(prompts) if "too long" in prompt[-1]["content"]]:
            raise PromptRefused(dict.fromkeys(bad, "is too long."))
        return super().choice_logprobs(prompts, choices)


class Pool:
    """Workers in this process, the last part first; ``fault`` may replace the outcome of a part, or raise."""

    size = 3

    def __init__(self, model=Model, fault=lambda number, outcome: outcome):
        self.workers = [Worker(model, lambda lm: lm.provenance()) for _ in range(self.size)]
        self.fault = fault

    def about(self):
        return self.workers[0].about()

    def answers(self, parts, afresh):
        self.parts = parts
        for number, start in reversed(list(enumerate(parts))):
            outcome = self.workers[number % self.size].answer(parts[start], afresh)
            yield start, self.fault(number, outcome)


def prompts(n, said=""):
    return [[{"role": "user", "content": f"q={1 + i % 5} z={i / 7:.3f} {said}"}] for i in range(n)]


def failing(error, at=0):
    """A fault: the part of this number raises an error, after all later parts were answered."""

    def fault(number, outcome):
        if number == at:
            raise error
        return outcome

    return fault


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(distributed, "PART", 4)


def test_workers_give_the_answers_of_one_model():
    one, pool = Model(), Pool()
    lm = WorkersLM(pool)
    assert isinstance(lm, MeasuringLM)
    assert (lm.model, lm.provenance(), lm.in_flight) == (one.model, one.provenance(), 12)
    assert chunk_of(lm) == 256  # eight parts for each worker would be 96
    asked = prompts(10)
    answer = lm.choice_logprobs(asked, CHOICES)
    assert [len(part) for part in pool.parts.values()] == [4, 4, 2]
    np.testing.assert_array_equal(answer.logprobs, one.choice_logprobs(asked, CHOICES).logprobs)
    assert lm.choice_logprobs([], CHOICES).logprobs.shape == (0, 5)
    pairs = [(prompt, prompt[0]["content"]) for prompt in asked]
    assert [a.total for a in lm.loglikelihood(pairs)] == [a.total for a in one.loglikelihood(pairs)]
    texts = [Text(prompt, 8, 0.5, seed=seed) for seed, prompt in enumerate(asked)]
    answers = outcome(lm, texts)[0]
    assert [answers[n].text for n in range(10)] == [f"{p[0]['content']} {n} 0.5 8" for n, p in enumerate(asked)]


@pytest.mark.parametrize(("exact", "times"), [(True, 3), (False, 0)])
def test_workers_forget_before_each_part_of_a_run_that_is_to_be_repeated_exactly(tmp_path, exact, times):
    before = Model.forgot
    journaled = CachedLM(WorkersLM(Pool()), tmp_path / "answers.jsonl", exact=exact)
    assert len(journaled.choice_logprobs(prompts(10), CHOICES).logprobs) == 10
    assert Model.forgot - before == times


def test_refused_items_do_not_cost_the_others():
    asked = prompts(10)
    asked[1:2], asked[9:] = prompts(1, "too long"), prompts(1, "too long")
    answers, refused, _ = outcome(WorkersLM(Pool()), [Choices(prompt, CHOICES) for prompt in asked])
    assert refused == {1: "is too long.", 9: "is too long."}
    assert sorted(answers) == [0, 2, 3, 4, 5, 6, 7, 8]
    row = Model().choice_logprobs(asked[7:8], CHOICES).logprobs
    np.testing.assert_array_equal(answers[7].logprobs, row)


def test_parts_without_answers_do_not_cost_the_others():
    pool = Pool(fault=lambda number, outcome: Outcome(error="3 workers died") if number else outcome)
    message = r"fake/formula: items 4 to 7 of a call: 3 workers died \(1 more parts of the call failed.\)"
    answers, _, ended = outcome(WorkersLM(pool), [Choices(prompt, CHOICES) for prompt in prompts(10)])
    assert isinstance(ended, Unanswered)
    assert re.fullmatch(message, str(ended))
    assert sorted(answers) == [0, 1, 2, 3]


def test_an_error_of_the_model_names_the_items():
    class Broken(Model):
        def loglikelihood(self, pairs):
            raise FloatingPointError("the logits of text 0 are NaN")

    with pytest.raises(Unanswered, match="items 0 to 2 of a call: the logits of text 0 are NaN"):
        WorkersLM(Pool(Broken)).loglikelihood([(prompt, "x") for prompt in prompts(3)])


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt(), KeyboardInterrupt), (ValueError("different models"), Unanswered)]
)
def test_a_call_that_ends_early_keeps_its_answers_in_the_journal(tmp_path, error, raised):
    pool, asked = Pool(fault=failing(error)), prompts(10)
    journaled = CachedLM(WorkersLM(pool), tmp_path / "answers.jsonl")
    with pytest.raises(raised):
        journaled.choice_logprobs(asked, CHOICES)
    pool.fault = lambda number, outcome: outcome
    again = CachedLM(WorkersLM(pool), tmp_path / "answers.jsonl")
    answer = again.choice_logprobs(asked, CHOICES)
    assert (again.replayed, again.asked.total()) == (6, 4)
    np.testing.assert_array_equal(answer.logprobs, Model().choice_logprobs(asked, CHOICES).logprobs)


def test_a_worker_returns_the_error_with_which_it_opened_the_model():
    def opening():
        raise ValueError("./none does not exist")

    assert Worker(opening, lambda lm: lm.provenance()).about().error == "./none does not exist"
