"""A study over instruction, demonstrations, debiasing and calibration."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from fakes import PARTS, Comparer, Wording, rated

from evalbias import data
from evalbias.optimizers.objectives import ContextFreeConfidence
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.optimizers.study import JudgeStudy
from evalbias.programs import Criterion, PairwiseJudge

C = Criterion("quality", "is it good?")


def sides(labels=True):
    train, test = data.split(rated(documents=12), seed=0, by="input", test_fraction=0.5)
    name = C.name if labels else None
    return data.pairs(train, limit=60, criterion=name, seed=0), data.pairs(test, limit=60, criterion=name, seed=0)


def study(**options):
    return JudgeStudy(GrammarParaphraser(PARTS), trials=12, instructions=5, select=False, **options)


def test_without_labels_the_fairest_is_taken():
    train, _ = sides(labels=False)
    student, lm = PairwiseJudge(C), Wording(first=6.5)
    compiled = study().compile(student, trainset=train, lm=lm)
    report = compiled.report
    assert len(report.trials) == 12
    assert report.best.objective == max(t.objective for t in report.trials) > -0.1
    assert {t.choice.debias for t in report.trials} == {None}
    assert {t.choice.demonstrations for t in report.trials} == {0}
    assert len({t.choice.calibration for t in report.trials}) > 1
    assert compiled.predict.signature.instructions == report.best.choice.instruction
    assert compiled.calibration == report.best.choice.calibration
    assert student.calibration is None


@pytest.mark.slow
def test_with_labels_accuracy_bias_and_prompts_are_weighed():
    train, test = sides()
    compiled = study(k=3, demo_sets=2).compile(PairwiseJudge(C), trainset=train, valset=test, lm=Wording(first=6.5))
    report = compiled.report
    assert report.comparison["position"]["fairness"].after.n == len(test)  # the valset only reports
    assert report.best.accuracy == max(t.accuracy for t in report.trials)
    assert {t.choice.debias for t in report.trials} == {None, "permutation"}
    assert {t.prompts for t in report.trials} == {1, 2}
    assert {t.choice.demonstrations for t in report.trials} > {0}
    shown = compiled.predict.demos
    assert len(shown) == (3 if report.best.choice.demonstrations else 0)


@pytest.mark.slow
@pytest.mark.parametrize("batches", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_a_study_that_was_stopped_in_a_trial_goes_on_as_if_it_had_not_been(batches, tmp_path):
    train, storage = sides(labels=False)[0], f"sqlite:///{tmp_path}/study.db"
    whole = study().compile(PairwiseJudge(C), trainset=train, lm=Wording(first=6.5)).report
    with pytest.raises(KeyboardInterrupt):
        study(storage=storage).compile(PairwiseJudge(C), trainset=train, lm=Wording(dies_after=batches, first=6.5))
    resumed = study(storage=storage).compile(PairwiseJudge(C), trainset=train, lm=Wording(first=6.5)).report
    assert [t.choice for t in resumed.trials] == [t.choice for t in whole.trials]
    assert [t.objective for t in resumed.trials] == [t.objective for t in whole.trials]


@pytest.mark.slow
def test_processes_share_a_study(tmp_path):
    storage, train = f"sqlite:///{tmp_path}/study.db", sides(labels=False)[0]
    code = (
        "import importlib.util, sys; sys.path.insert(0, sys.argv[2])\n"
        "spec = importlib.util.spec_from_file_location('study_test', sys.argv[3])\n"
        "m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)\n"
        "judge, pairs = m.PairwiseJudge(m.C), m.sides(False)[0]\n"
        "r = m.study(storage=sys.argv[1]).compile(judge, trainset=pairs, lm=m.Wording(6.5))\n"
        "print(len(r.report.trials), r.report.study_name)"
    )
    command = [sys.executable, "-c", code, storage, str(Path(__file__).parent.parent), __file__]
    others = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [p.communicate()[0].split() for p in others]
    assert all(int(count) >= 12 for count, _ in told)
    lm = Wording(6.5)
    mine = study(storage=storage).compile(PairwiseJudge(C), trainset=train, lm=lm).report
    assert 12 <= len(mine.trials) <= 13  # two that ran at the same time may both have begun the last
    assert {name for _, name in told} == {mine.study_name}
    calibrated = len(train) if mine.best.choice.calibration == "batch" else 0
    assert len(lm.asked) == calibrated  # no trial was left to do; the compiled judge's calibration is fixed anew


@pytest.mark.slow
def test_a_process_that_is_paused_while_it_writes_is_waited_for(tmp_path):
    storage, train = f"sqlite:///{tmp_path}/study.db", sides(labels=False)[0]
    study(storage=storage).compile(PairwiseJudge(C), trainset=train, lm=Wording(6.5))
    with closing(sqlite3.connect(tmp_path / "study.db", check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        paused = threading.Timer(6, other.rollback)  # SQLite itself gives up after 5 seconds
        paused.start()
        try:
            report = study(storage=storage).compile(PairwiseJudge(C), trainset=train, lm=Wording(6.5)).report
        finally:
            paused.join()
    assert len(report.trials) == 12


def test_bad_input():
    train, _ = sides()
    with pytest.raises(ValueError, match="trials=0"):
        JudgeStudy(GrammarParaphraser(PARTS), trials=0, select=False)
    with pytest.raises(ValueError, match="the judge answers nothing"):
        study().compile(PairwiseJudge(C), trainset=train, lm=Comparer(mass=1e-9))


def test_an_objective_that_needs_a_content_free_answer():
    report = (
        study(objective=ContextFreeConfidence())
        .compile(PairwiseJudge(C), trainset=sides(labels=False)[0], lm=Wording(first=6.5))
        .report
    )
    assert report.best.objective == max(t.objective for t in report.trials) > 0


def test_a_failed_fit_is_a_failed_trial():
    train = sides(labels=False)[0]
    report = study(seed=3).compile(PairwiseJudge(C), trainset=train, lm=Wording(first=6.5)).report
    assert "pride" in {t.choice.calibration for t in report.trials}
    tieless = study().compile(PairwiseJudge(C, ties=True), trainset=train, lm=Wording(first=6.5)).report
    assert {t.choice.calibration for t in tieless.trials} <= {None, "pride"}
    assert tieless.failed > 0  # the other two divide by the probability of "Tie", which the model gives to no pair


@pytest.mark.slow
def test_a_study_is_of_one_model_and_one_student(tmp_path):
    storage, train = f"sqlite:///{tmp_path}/study.db", sides(labels=False)[0]
    students = [PairwiseJudge(C), PairwiseJudge(C, ties=True), PairwiseJudge(C, min_coverage=0.5)]
    names = [
        study(storage=storage).compile(s, trainset=train, lm=Wording(6.5, tie=-2.0)).report.study_name for s in students
    ]
    other = Wording(6.5)
    other.model = "fake/other"
    names.append(study(storage=storage).compile(students[0], trainset=train, lm=other).report.study_name)
    assert len(set(names)) == 4
    assert other.asked


def test_a_judge_with_batch_calibration_can_be_called_at_once():
    train, test = sides()
    for seed in range(12):
        found = JudgeStudy(GrammarParaphraser(PARTS), trials=6, instructions=2, seed=seed, select=False).compile(
            PairwiseJudge(C), trainset=train + test, lm=Wording(6.5)
        )
        if found.calibration == "batch":
            assert found.corrections.keys() == {2}
            found.batch(test[:1], lm=Wording(6.5))  # a single comparison has no batch of its own
            return
    pytest.fail("no study chose batch calibration")


def everything():
    return data.pairs(rated(documents=20), limit=100, criterion=C.name, seed=0)


CODES = {"A": (0, "a", "A"), "B": (1, "b", "B")}


@pytest.mark.parametrize("select", [True, False])
def test_labels_mean_the_same_in_every_code(select):
    def report(code):
        pairs = [e.copy(preference=CODES[e.preference][code]) for e in everything()]
        optimizer = JudgeStudy(GrammarParaphraser(PARTS), trials=3, instructions=2, select=select)
        return optimizer.compile(PairwiseJudge(C), trainset=pairs, lm=Wording(first=6.5)).report

    letters = report(2)
    assert letters.best.accuracy > 0.5
    for other in (report(0), report(1)):
        assert (other.trials, other.chosen, other.study_name) == (letters.trials, letters.chosen, letters.study_name)


def test_ties_and_pairs_without_a_label_are_left_out_of_the_accuracy(caplog):
    pairs = everything()
    some = [e.copy(preference=None if i == 0 else "tie") if i < 20 else e for i, e in enumerate(pairs)]
    optimizer = JudgeStudy(GrammarParaphraser(PARTS), trials=3, instructions=2)
    report = optimizer.compile(PairwiseJudge(C), trainset=some, lm=Wording(first=6.5)).report
    assert 0 <= report.best.accuracy <= 1
    left_out = [int(r.message.split()[0]) for r in caplog.records if "have no label or are ties" in r.message]
    assert len(left_out) == 2  # of the pairs that trials are measured on, and of those kept back
    assert 0 < sum(left_out) < 20  # others are among those that demonstrations come from


def test_labels_that_a_part_of_the_pairs_lacks_are_refused():
    pairs = everything()
    one = [e.copy(preference="A" if i == 0 else None) for i, e in enumerate(pairs)]
    with pytest.raises(ValueError, match=r"None of the \d+ pairs .* says which candidate people prefer"):
        study().compile(PairwiseJudge(C), trainset=one, lm=Wording(first=6.5))
