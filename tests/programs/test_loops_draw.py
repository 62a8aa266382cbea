"""Refinements are new draws, requests that would be the same are made once, and best of k has k drafts."""

import warnings

import dspy
import pytest
from models_of_text import Seeded, drawn

from evalbias.programs.feedback import Feedback
from evalbias.programs.loops import BestOfK, RepeatedDrafts, SelfRefine
from evalbias.programs.tasks import TASKS, TEMPERATURE, translation
from evalbias.programs.writing import PlainPredict

ITEM = {"source": "un chien", "target_language": "English"}


def translator(request):
    return "'dog' is a major accuracy error" if "Errors:" in request.messages[-1].text else f"dog {drawn(request)}"


class Length:
    name, low, high = "length", 0.0, 1000.0

    def __init__(self):
        self.asked = []

    def __call__(self, example, output):
        self.asked.append(output)
        return Feedback(float(len(output)), "too short")


def test_after_rejected_refinements_every_request_is_another():
    lm = Seeded(translator)
    with dspy.context(lm=lm):
        result = translation(max_iterations=10).loop(**ITEM)
    assert [step.accepted for step in result.steps] == [True] + [False] * 10
    assert len(lm.asked) == len(set(lm.asked)) == 22
    assert len({step.output for step in result.steps}) == 11


def test_draws_are_reproducible_by_seed_and_differ_between_seeds():
    outputs = []
    for seed in (0, 0, 1):
        with dspy.context(lm=Seeded(translator)):
            outputs.append([step.output for step in translation(max_iterations=3, seed=seed).loop(**ITEM).steps])
    assert outputs[0] == outputs[1]
    assert not set(outputs[0]) & set(outputs[2])


def test_every_task_writes_at_the_published_temperature():
    assert TEMPERATURE == 1.0
    for make in TASKS.values():
        writers = [p for name, p in make().loop.named_predictors() if ".find." not in name]
        assert {p.config["temperature"] for p in writers} == {1.0}


def test_a_greedy_refiner_that_is_rejected_is_not_asked_the_same_again():
    lm = Seeded(translator)
    with dspy.context(lm=lm):
        result = translation(max_iterations=10, temperature=0.0).loop(**ITEM)
    assert (result.stopped, result.iterations) == ("repeats", 1)
    assert len(lm.asked) == len(set(lm.asked)) == 3  # the refinement is the same text: its feedback is known
    assert [step.calls for step in result.steps] == [2, 1]


def test_each_different_output_is_judged_once():
    source = Length()
    texts = iter(["aa", "a", "aa", "a", "aaa"])

    class Written(dspy.Module):
        def forward(self, source):
            return dspy.Prediction(output=next(texts))

    class Rewritten(dspy.Module):
        def forward(self, source, draft, feedback):
            return dspy.Prediction(output=next(texts))

    result = SelfRefine(Written(), source, Rewritten(), max_iterations=4)(source="s")
    assert [step.score for step in result.steps] == [2, 1, 2, 1, 3]
    assert source.asked == ["aa", "a", "aaa"]


def test_feedback_that_draws_is_drawn_anew_for_the_same_output():
    lm = Seeded(lambda request: "dog" if "Output:" in request.messages[-1].text else "'dog' is a major style error")
    task = translation(max_iterations=3)
    task.loop.feedback.find.predict.config["temperature"] = 1.0
    with dspy.context(lm=lm):
        task.loop(**ITEM)
    assert len(set(lm.asked)) == len(lm.asked) == 8


def test_the_paths_of_an_accepted_or_refused_solution_are_its_own():
    lm = Seeded(lambda request: rf"\boxed{{{drawn(request)}}}")  # no two paths agree, so that no solution is accepted
    with dspy.context(lm=lm):
        TASKS["mathematics-refiner"](max_iterations=2, paths=3).loop(source="2 + 2")
    assert len(set(lm.asked)) == len(lm.asked) == 12


def test_best_of_k_draws_k_different_drafts():
    lm, generate = Seeded(), PlainPredict("source -> output", temperature=1.0)
    with dspy.context(lm=lm), warnings.catch_warnings():
        warnings.simplefilter("error")
        result = BestOfK(generate, Length(), k=8)(source="s", reference="not shown")
        other = BestOfK(generate, Length(), k=8, seed=1)(source="s")
    assert result.distinct == len({step.output for step in result.steps}) == 8
    assert len(set(lm.asked)) == len(lm.asked) == 16
    assert "not shown" not in repr(lm.asked)
    assert not {s.output for s in result.steps} & {s.output for s in other.steps}


def test_best_of_k_tells_once_of_drafts_that_are_the_same():
    lm = Seeded(lambda request: "one" if drawn(request) % 2 else "two")
    program = BestOfK(PlainPredict("source -> output", temperature=1.0), Length(), k=8)
    with dspy.context(lm=lm), pytest.warns(RepeatedDrafts, match="Only 2 of the 8 drafts") as told:
        predictions = [program(source=f"s{n}") for n in range(5)]
    assert len(told) == 1
    assert [p.distinct for p in predictions] == [2] * 5
    greedy = Seeded()
    with dspy.context(lm=greedy), pytest.warns(RepeatedDrafts, match="Only 1 of the 4 drafts"):
        result = BestOfK(PlainPredict("source -> output", temperature=0.0), Length(), k=4)(source="s")
    assert (len(greedy.asked), len(result.steps), result.distinct) == (1, 1, 1)


def test_a_run_of_best_of_k_holds_the_results_of_every_smaller_k():
    scores = {"a": 3.0, "b": float("nan"), "c": 7.0, "d": 5.0}

    class Score(Length):
        def __call__(self, example, output):
            return Feedback(scores[output], "", status="" if scores[output] == scores[output] else "unreadable")

    texts = iter("abcd")

    class Written(dspy.Module):
        def forward(self, source):
            return dspy.Prediction(output=next(texts))

    result = BestOfK(Written(), Score(), k=4)(source="s")
    assert [step.accepted for step in result.steps] == [True, False, True, False]
    assert (result.output, result.score) == ("c", 7)


def test_a_local_model_without_a_temperature_decodes_greedily(lms):
    program = BestOfK(PlainPredict("source -> output", max_tokens=4), Length(), k=3)
    with dspy.context(lm=lms["llama"].copy(cache=False)), pytest.warns(RepeatedDrafts, match="Only 1 of the 3"):
        assert len(program(source="the cat").steps) == 1
