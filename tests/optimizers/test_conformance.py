"""What every optimizer does alike: seeds, students, programs around them, callbacks, splits, costs and refusals."""

import dataclasses
import json
from functools import partial

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from fakes import PARTS, Comparer, FormulaLM, Wording, of_sources, rated
from models_of_text import Letters, Scripted, refine_loop

from evalbias import ZEPO, BiasedDemos, ExternalFeedbackRefine, LikelihoodMitigation, data
from evalbias.lm.types import Choices
from evalbias.optimizers import objectives
from evalbias.optimizers.base import hold_back
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.values import to_json

C = Criterion("quality", "is it good?")
RATED = rated(documents=24, outputs=4)
LABELED = [e.copy(id=f"pair {i}") for i, e in enumerate(data.pairs(RATED, limit=120, criterion=C.name, seed=0))]
TRAIN = [e for e in LABELED if int(e.source[1:]) < 18]
VAL = [e for e in LABELED if int(e.source[1:]) >= 18]
SOURCES = [dspy.Example(id=f"i{k}", source=f"s{k}").with_inputs("source") for k in range(24)]


@dataclasses.dataclass(frozen=True)
class Case:  # an optimizer with what it compiles: makers of itself, the student and its model, and examples
    make: object
    student: object
    lm: object
    train: list
    val: list

    def compiled(self, student=None, *, valset=True, lm=None, part=None, **options):
        optimizer = self.make(**{"seed": 0, **options})
        student = self.student() if student is None else student
        sets = {"trainset": self.train, "valset": self.val if valset else None}
        return optimizer.compile(student, **sets, lm=lm or self.lm(), part=part)

    def usual(self):
        """Return the student as the optimizer compiles it with seed 0, made once: to be read and not changed."""
        return USUAL[id(self)] if id(self) in USUAL else USUAL.setdefault(id(self), self.compiled())


USUAL = {}

FEW = {"n_resamples": 99}
DEMOS, MITIGATION = partial(BiasedDemos, 4, **FEW), partial(LikelihoodMitigation, (2,), **FEW)
SEARCH = partial(ZEPO, GrammarParaphraser(PARTS), population=3, epochs=2, **FEW)
REFINE = partial(ExternalFeedbackRefine, Letters(), k=1, **FEW)
SCORES, COMPARES, LOOP = partial(PointwiseJudge, C), partial(PairwiseJudge, C), partial(refine_loop, iterations=2)
WRITER, HELD_OUT = partial(Scripted, "ab", "aabb", "aabbb"), of_sources(16, 2)
CASES = {
    "BiasedDemos": Case(DEMOS, SCORES, FormulaLM, of_sources(60, 1), HELD_OUT),
    "LikelihoodMitigation": Case(MITIGATION, SCORES, FormulaLM, of_sources(40, 1), HELD_OUT),
    "ZEPO": Case(SEARCH, COMPARES, partial(Wording, 6.5), TRAIN, VAL),
    "ExternalFeedbackRefine": Case(REFINE, LOOP, WRITER, SOURCES[:18], SOURCES[18:]),
}
MARKS = {name: [pytest.mark.slow] * (name != "ZEPO") for name in CASES}
PARAMS = {name: pytest.param(case, id=name, marks=MARKS[name]) for name, case in CASES.items()}
every = pytest.mark.parametrize("case", PARAMS.values())
judges_only = pytest.mark.parametrize("case", [p for name, p in PARAMS.items() if name != "ExternalFeedbackRefine"])


@pytest.fixture(autouse=True)
def few_swaps(monkeypatch):
    monkeypatch.setattr(objectives, "SWAPS", 200)


def state_of(program):
    bare = program.deepcopy()
    bare.set_lm(None)
    return bare.dump_state()


@pytest.mark.slow
@every
def test_the_same_seed_gives_the_same_program_and_report_and_leaves_the_student_as_it_is(case):
    student = case.student()
    before = student.dump_state()
    first, again = case.usual(), case.compiled(student)
    assert to_json(first.report) == to_json(again.report)
    assert state_of(first) == state_of(again)
    assert (first.report.seed, case.compiled(student, seed=3).report.seed) == (0, 3)
    assert again is not student
    assert student.dump_state() == before
    assert not hasattr(student, "report")


@pytest.mark.slow
@judges_only
def test_another_seed_keeps_other_inputs_back(case):
    first, other = (case.compiled(seed=seed, valset=False).report.candidates[0].estimates for seed in (0, 1))
    assert [(e.value, e.low) for e in first.values()] != [(e.value, e.low) for e in other.values()]


@pytest.mark.slow
@every
def test_the_valset_only_reports_and_without_it_nothing_is_compared(case):
    reported, alone = case.usual().report, case.compiled(valset=False).report
    assert (reported.chosen, reported.decision) == (alone.chosen, alone.decision)
    assert [t.p_value for t in reported.candidates[1:]] == [t.p_value for t in alone.candidates[1:]]
    assert reported.comparison or reported.tested
    assert (alone.comparison, alone.before, alone.after) == ({}, None, None)


@every
def test_the_report_says_of_the_given_program_and_each_candidate_what_came_of_it(case):
    report = case.usual().report
    assert report.candidates[0].name == "given"
    assert sum(one.chosen for one in report.candidates) == 1
    assert all(one.reason and one.estimates for one in report.candidates)
    assert set(report.front) <= {one.name for one in report.candidates}
    lines = str(report).splitlines()
    assert lines[0] == report.decision
    assert report.decision in repr(report)
    assert len(lines) == 1 + len(report.candidates) + len(report.comparison) + 1
    assert json.loads(json.dumps(to_json(report)))["settings"] == to_json(report.settings)


@every
def test_the_bare_method_chooses_nothing(case):
    if case is CASES["LikelihoodMitigation"]:
        with pytest.raises(ValueError, match=r"select=False: .* always chooses"):
            case.compiled(select=False)
        return
    report = case.compiled(select=False).report
    assert (report.candidates, report.front, report.decision) == ((), (), "")
    assert report.chosen


@pytest.mark.slow
@every
def test_a_judge_or_loop_inside_a_program_is_compiled_like_alone_and_its_callbacks_are_kept(case):
    class Pipeline(dspy.Module):
        def __init__(self, *parts):
            super().__init__()
            self.write = dspy.Predict("source -> output")
            self.parts = list(parts)

    watching = BaseCallback()
    student = Pipeline(case.student(), case.student())
    before = [part.dump_state() for part in student.parts]
    student.callbacks, student.parts[1].callbacks, student.write.callbacks = [watching], [watching], [watching]
    alone = case.usual()
    compiled = case.compiled(student, part="parts[1]")
    assert to_json(compiled.report) == to_json(alone.report)
    assert [part.dump_state() for part in compiled.parts] == [before[0], alone.dump_state()]
    assert [part.dump_state() for part in student.parts] == before
    for module in (compiled, compiled.parts[1], compiled.write):
        assert module.callbacks == [watching]
    own = case.student()
    own.callbacks = [watching]
    assert case.compiled(own).callbacks == [watching]


def test_of_several_judges_one_is_named_and_a_class_is_no_student():
    case = CASES["BiasedDemos"]
    several = dspy.Module()
    several.judges = [PointwiseJudge(C), PointwiseJudge(C)]
    for options, match in (({}, r"part=NAME\), one of .*'judges\[0\]'"), ({"part": "x"}, "part='x'")):
        with pytest.raises(ValueError, match=match):
            case.compiled(several, **options)
    for student, match in ((dspy.Module(), "this Module"), (PointwiseJudge, "class PointwiseJudge"), (C, "Criterion")):
        with pytest.raises(TypeError, match=f"PointwiseJudge, .*{match} .*is neither"):
            case.compiled(student)


def test_a_loop_whose_generator_was_compiled_by_dspy_is_returned_with_its_demonstrations():
    student = dspy.Module()
    student.loop = refine_loop(iterations=2)
    student.loop.generate._compiled = True
    texts = ("ab", "aabb", "aabbcc", "ab", "aab", "aaab")  # own, then external feedback: quality 1, 2, 3
    optimizer = ExternalFeedbackRefine(Letters(), k=1, n_resamples=50, select=False)
    compiled = optimizer.compile(student, trainset=SOURCES[:2], lm=Scripted(*texts[:3] * 2, *texts[3:] * 2, "aaaaaa"))
    assert compiled.report.demonstrations == ("i0",)
    assert [demo.output for demo in compiled.loop.generate.predict.demos] == ["aaab"]


@every
def test_arguments_of_other_optimizers_are_logged_and_unknown_options_refused(case, caplog):
    optimizer = case.make(select=True)
    optimizer.compile(case.student(), trainset=case.train, lm=case.lm(), num_threads=2, teacher=case.student())
    assert f"{type(optimizer).__name__}.compile has no use for num_threads, teacher" in caplog.text
    with pytest.raises(TypeError, match="unexpected keyword argument 'swaps'"):
        case.make(swaps=9)


@every
def test_sets_that_are_empty_or_share_examples_and_too_few_inputs_are_refused(case):
    student, lm = case.student(), case.lm()
    inputs = list(dict.fromkeys(e.source for e in case.train))[:15]
    for sets, match in (
        ({"trainset": []}, r"rainset is empty|0 pairs with \[\]|0 of 0 training items"),
        ({"trainset": case.train, "valset": case.train[:1]}, "in trainset and valset, the first '"),
        ({"trainset": [e for e in case.train if e.source in inputs]}, "has 15 inputs: .* select=False"),
    ):
        with pytest.raises(ValueError, match=match):
            case.make().compile(student, **sets, lm=lm)


def test_half_of_the_inputs_are_held_back_whole():
    examples = [dspy.Example(source=f"s{i % 20}", output=str(i)) for i in range(100)]
    fit, held = hold_back(examples, seed=0)
    assert {e.source for e in fit}.isdisjoint(e.source for e in held)
    assert (len(fit), len(held)) == (50, 50)
    assert hold_back(examples, seed=0)[1] == held
    assert hold_back(examples, seed=1)[1] != held


@judges_only
def test_the_model_is_asked_nothing_twice_and_the_cost_counts_what_it_was_asked(case):
    lm = case.lm()
    cost = case.compiled(lm=lm).report.cost
    asked = [json.dumps([one.prompt, one.choices]) for one in lm.questions if isinstance(one, Choices)]
    assert len(asked) == len(set(asked))
    assert cost.judgments >= len(asked)
    if case is CASES["LikelihoodMitigation"]:
        assert cost.judgments == len(asked)


# Training examples that a judge cannot read are named before any prompt is asked.

ITEMS = rated(documents=12)
PAIRS = data.pairs(ITEMS, limit=60, seed=0)
BAD_PAIRS = {
    "does not have two candidates": ITEMS[3],
    "The example 3 is a dict": {"source": "s", "candidates": ["a", "b"]},
    "Candidate 2 of the item 'x' is None": dspy.Example(id="x", source="s", candidates=["a", None]),
    "'source' of the item '3' is missing": dspy.Example(candidates=["a", "b"]),
    "The item '3' has the candidates 'ab'": dspy.Example(source="s", candidates="ab"),
}
MORE = pytest.param("LikelihoodMitigation", marks=pytest.mark.slow)
scoring = pytest.mark.parametrize("name", ["BiasedDemos", MORE])


@pytest.mark.parametrize("message", BAD_PAIRS)
def test_what_cannot_be_compared_is_named(message):
    trainset, lm = [*PAIRS[:3], BAD_PAIRS[message], *PAIRS[3:]], Comparer()
    with pytest.raises(ValueError, match=message):
        CASES["ZEPO"].make().compile(PairwiseJudge(C), trainset=trainset, lm=lm)
    with pytest.raises(ValueError, match=message):
        PairwiseJudge(C).batch(trainset, lm=lm)
    assert not lm.prompts


BAD_ITEMS = {
    "'output' of the item 'x' is None": ITEMS[3].copy(id="x", output=None),
    "'output' of the item 'x' is empty": ITEMS[3].copy(id="x", output=" "),
    "'source' of the item 'x' is None": ITEMS[3].copy(id="x", source=None),
    "'source' of the item 'x' is a list": ITEMS[3].copy(id="x", source=["s"]),
    "'output' of the item '3' is missing": dspy.Example(source="s", score=3),
    "The example 3 is a dict": {"source": "s", "output": "o", "score": 3},
}


@pytest.mark.parametrize("message", BAD_ITEMS)
@scoring
def test_what_cannot_be_scored_is_named(name, message):
    trainset, lm = [*ITEMS[:3], BAD_ITEMS[message], *ITEMS[4:]], FormulaLM()
    with pytest.raises(ValueError, match=message):
        CASES[name].make().compile(PointwiseJudge(C), trainset=trainset, lm=lm)
    assert not lm.judged


@scoring
def test_an_item_that_nobody_rated_is_not_read(name):
    train, lm, unread = of_sources(60, seed=1), FormulaLM(), [{"output": " "}, {"output": None}, {"source": None}]
    bare = [e.copy(id=f"{e.id} unrated", scores={C.name: None}).without("ratings") for e in train[::4]]
    unrated = [e.copy(**unread[k % 3]) for k, e in enumerate(bare)]
    optimizer = CASES[name].make()
    assert optimizer.compile(PointwiseJudge(C), trainset=[*train, *unrated], lm=lm).report.decision
    for one in unrated[:3]:
        with pytest.raises(ValueError, match=r"of the item '.* unrated' .*: give a text"):
            optimizer.compile(PointwiseJudge(C), trainset=train, valset=[one], lm=lm)


@scoring
def test_equal_ratings_are_said_to_be_equal(name):
    equal = [dspy.Example(id=e.id, source=e.source, output=e.output, score=3) for e in ITEMS]
    with pytest.raises(ValueError, match=f"All {len(equal)} rated training items have the score 3 on quality"):
        CASES[name].make().compile(PointwiseJudge(C), trainset=equal, lm=FormulaLM())
