"""Mathematics as in the paper: a vote of new paths in every iteration, which replaces the answer until both agree."""

import math

import dspy
import pytest
from models_of_text import Scripted, Seeded, drawn

from evalbias.evaluation import run_loops
from evalbias.measures import distance_skewness, self_bias
from evalbias.programs.feedback import ExactAnswer, vote
from evalbias.programs.loops import SelfConsistencyRefine
from evalbias.programs.tasks import mathematics
from evalbias.programs.writing import PlainPredict


def boxed(*answers):
    return [rf"path {n}: \boxed{{{answer}}}" for n, answer in enumerate(answers)]


def loop(*texts, **options):
    program = SelfConsistencyRefine(PlainPredict("source -> output"), **options)
    program.set_lm(Scripted(*texts))
    return program


def test_the_vote_replaces_the_answer_unconditionally_until_it_agrees():
    votes = [*boxed(4, 4, 5), *boxed(6, 5, 6), *boxed(5, 6.0, 6)]  # the majorities are 4, 6 and 6
    program = loop(*boxed(5), *votes, paths=3)
    result = program(source="2 + 2", answer="4")
    assert [step.score for step in result.steps] == [0, 0, 1]
    assert all(step.accepted for step in result.steps)
    assert [step.output[-2] for step in result.steps] == ["5", "4", "6"]
    assert result.steps[1].output == r"path 0: \boxed{4}"  # the first path of the majority, a whole solution
    assert [step.calls for step in result.steps] == [4, 3, 3]
    assert (result.iterations, result.stopped, result.score) == (2, "perfect", 1)


def test_bias_of_a_loop_that_leaves_the_right_answer():
    program = loop(*boxed(4), *boxed(5, 5), *boxed(5, 5), paths=2)
    run = run_loops(program, [dspy.Example(id="a", source="2 + 2", answer="4")])
    own, quality = run.own(), run.quality([{"id": "a", "answer": "4"}], ExactAnswer())
    assert own.tolist() == [[0], [1]]  # it first doubts the right answer, then believes the wrong one
    assert quality.tolist() == [[1], [0]]
    assert [self_bias(o, q) for o, q in zip(own, quality, strict=True)] == [-1, 1]
    assert distance_skewness(own[1] - quality[1]) == 1


def test_a_vote_without_answers_is_undefined_and_the_next_one_is_new():
    program = loop(*boxed(4), "no idea", "none", *boxed(4, 4), paths=2)
    result = program(source="2 + 2")
    assert math.isnan(result.steps[0].score)
    assert result.steps[0].status == "unreadable"
    assert [step.output for step in result.steps] == boxed(4) * 2
    assert result.stopped == "perfect"


def test_an_answer_that_is_never_agreed_on_ends_with_the_iterations():
    program = loop(*boxed(1), *boxed(2), *boxed(3), *boxed(4), paths=1, max_iterations=2)
    result = program(source="?")
    assert ([step.output[-2] for step in result.steps], result.stopped) == (["1", "2", "3"], "iterations")


def test_a_solution_without_an_answer_is_replaced():
    result = loop("I give up", *boxed(4, 4), *boxed(4, 4), paths=2)(source="2 + 2")
    assert [step.score for step in result.steps] == [0, 1]


def test_every_vote_has_paths_of_its_own():
    lm = Seeded(lambda request: rf"\boxed{{{drawn(request)}}}")  # all paths differ, so that nothing is agreed on
    task = mathematics(max_iterations=3, paths=4)
    with dspy.context(lm=lm):
        result = task.loop(source="2 + 2", answer="4")
    assert result.iterations == 3
    assert len(set(lm.asked)) == len(lm.asked) == 1 + 4 * 4
    assert {request.config.temperature for request in lm.asked} == {1.0}


def test_greedy_paths_and_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="The 3 paths would all be the same: draw them at a temperature above 0"):
        vote(PlainPredict("source -> output", temperature=0.0), "2 + 2", paths=3)
    with pytest.raises(ValueError, match="max_iterations=-1"):
        loop("x", max_iterations=-1)
    with pytest.raises(ValueError, match="paths=0"):
        loop("x", paths=0)
    with pytest.raises(ValueError, match="has no 'source'"):
        loop("x")(question="2 + 2")
