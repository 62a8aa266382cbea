"""Optimizers compile a judge inside a larger program, and work as steps of DSPy's BetterTogether."""

import dspy
import pytest
from fakes import PARTS, FormulaLM, Wording, items, rated
from models_of_text import Scripted

from evalbias import ZEPO, BiasedDemos, ExternalFeedbackRefine, GrammarParaphraser, JudgeStudy, data
from evalbias.lm.dspy_seam import question_of, response_of
from evalbias.optimizers.likelihood import compile_each
from evalbias.optimizers.zepo import Epochs
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge, preference_accuracy
from evalbias.programs.feedback import Feedback
from evalbias.programs.loops import SelfRefine
from evalbias.programs.writing import PlainPredict
from evalbias.values import to_json

C = Criterion("quality", "is it good?")


class Pipeline(dspy.Module):
    """Asks the first of its judges."""

    def __init__(self, *judges):
        super().__init__()
        self.write = dspy.Predict("source -> output")
        self.judges = list(judges)

    def forward(self, **inputs):
        return self.judges[0](**inputs)


def compiled_by(student, **options):
    optimizer = BiasedDemos(k=4, n_resamples=100, seed=0, select=False)
    return optimizer.compile(student, trainset=items(40, 1), valset=items(20, 2), lm=FormulaLM(), **options)


def test_the_judge_inside_a_program_is_compiled_like_the_judge_alone(caplog):
    alone, student = compiled_by(PointwiseJudge(C)), Pipeline(PointwiseJudge(C), PairwiseJudge(C))
    before = student.dump_state()
    compiled = compiled_by(student, num_threads=2)
    assert compiled.judges[0].predict.demos == alone.predict.demos
    assert compiled.report.demonstrations == alone.report.demonstrations
    assert student.dump_state() == before
    assert "BiasedDemos.compile has no use for num_threads" in caplog.text


def test_of_several_judges_one_is_named():
    student = Pipeline(PointwiseJudge(C), PointwiseJudge(C))
    with pytest.raises(ValueError, match=r"name one with compile\(..., part=NAME\), one of .*'judges\[0\]'"):
        compiled_by(student)
    with pytest.raises(ValueError, match="part='x' is none of the programs"):
        compiled_by(student, part="x")
    compiled = compiled_by(student, part="judges[1]")
    assert [len(judge.predict.demos) for judge in compiled.judges] == [0, 4]
    neither = "BiasedDemos compiles a PointwiseJudge, or a program that contains one; "
    with pytest.raises(TypeError, match=f"{neither}this Pipeline is neither"):
        compiled_by(Pipeline())
    with pytest.raises(TypeError, match=rf"{neither}the class PointwiseJudge \(pass an instance\) is neither"):
        compiled_by(PointwiseJudge)


def test_a_step_of_better_together(lms):
    student = Pipeline(PointwiseJudge(C))
    student.set_lm(lms["llama"])
    words = [e.copy(source="the cat", output=f"cat {k}") for k, e in enumerate(items(16, 1))]
    together = dspy.BetterTogether(
        metric=lambda e, p, trace=None: 0.5, d=BiasedDemos(k=2, n_resamples=100, seed=0, select=False)
    )
    compiled = together.compile(student, trainset=words[:12], valset=words[12:], strategy="d", num_threads=1)
    assert not compiled.flag_compilation_error_occurred
    assert [c["strategy"] for c in compiled.candidate_programs] == ["", "d"]
    assert len(compiled.candidate_programs[1]["program"].judges[0].predict.demos) == 2


def by_score(examples):
    """Return the examples with DSPy's one label instead of scores by criterion."""
    return [e.copy(score=e.scores["quality"]).without("scores") for e in examples]


def test_the_label_score_is_read_like_scores():
    train, val = items(16, 1), items(8, 2)
    optimizer = BiasedDemos(k=3, n_resamples=100, seed=0, select=False)
    named, plain = (
        optimizer.compile(PointwiseJudge(C), trainset=change(train), valset=change(val), lm=FormulaLM())
        for change in (list, by_score)
    )
    assert plain.predict.demos == named.predict.demos
    assert to_json(plain.report.comparison) == to_json(named.report.comparison)
    train = by_score(train)
    train[3] = train[3].copy(scores={"wit": 2})
    with pytest.raises(ValueError, match=r"'1-3' has no score on 'quality', only on \['wit'\]; its 'score'"):
        optimizer.compile(PointwiseJudge(C), trainset=train, lm=FormulaLM())


def test_one_score_is_not_taken_for_several_criteria():
    judges = [PointwiseJudge(C), PointwiseJudge(Criterion("wit", "is it funny?"))]
    with pytest.raises(ValueError, match="'1-0' has one score for 2 criteria"):
        compile_each(
            BiasedDemos(2, select=False), judges, trainset=by_score(items(10, 1)), valset=items(4, 2), lm=FormulaLM()
        )


class Answering:
    """Measures DSPy's requests by a formula; DSPy cannot save it."""

    def __init__(self, formula):
        self.formula = formula

    def complete(self, request):
        question = question_of(request, "a formula")
        return response_of(request, self.formula.choice_logprobs([question.prompt], question.choices))

    def __deepcopy__(self, memo):
        return self


class Attached(Wording, dspy.LM):
    """A model that always prefers the first position, and that DSPy attaches to programs."""

    def __init__(self):
        dspy.LM.__init__(self, "fake/attached", engine=Answering(Wording(first=100.0)), cache=False)
        Wording.__init__(self, first=100.0)


def labeled_pairs():
    train, test = data.split(rated(documents=8, outputs=4), seed=0, by="input", test_fraction=0.5)
    return [data.pairs(side, criterion=C.name, seed=0) for side in (train, test)]


COMPARING = {
    "ZEPO": ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(2), select=False),
    "JudgeStudy": JudgeStudy(GrammarParaphraser(PARTS), trials=6, instructions=4, demo_sets=1, k=2, select=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARING)
def test_a_judge_that_compares_is_compiled_inside_a_program(name):
    (train, val), lm = labeled_pairs(), Attached()
    alone = COMPARING[name].compile(PairwiseJudge(C), trainset=train, valset=val, lm=lm)
    student = Pipeline(PairwiseJudge(C), PairwiseJudge(C))
    student.set_lm(lm)
    compiled = COMPARING[name].compile(student, trainset=train, valset=val, part="judges[1]")
    assert compiled.report.chosen == alone.report.chosen
    assert "lean=" in compiled.judges[1].predict.signature.instructions
    states = [PairwiseJudge(C).dump_state(), alone.dump_state()]
    for judge in compiled.judges:
        assert judge.predict.lm is not None
    compiled.set_lm(None)
    assert [judge.dump_state() for judge in compiled.judges] == states


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARING)
def test_an_optimizer_of_comparisons_is_a_step_of_better_together(name, caplog):
    train, val = labeled_pairs()
    student, teacher = Pipeline(PairwiseJudge(C)), Pipeline(PairwiseJudge(C))
    for program in (student, teacher):
        program.set_lm(Attached())
    together = dspy.BetterTogether(metric=preference_accuracy, step=COMPARING[name])
    compiled = together.compile(student, trainset=train, valset=val, teacher=teacher, strategy="step", num_threads=1)
    assert not compiled.flag_compilation_error_occurred
    scores = {c["strategy"]: c["score"] for c in compiled.candidate_programs}
    assert scores["step"] > scores[""] == 50
    assert f"{name}.compile has no use for teacher" in caplog.text


class Length:
    """Thinks that what is longer is better."""

    name, low, high = "length", 0.0, 20.0

    def __call__(self, example, output):
        return Feedback(float(min(20, len(output))), "make it longer")


class Letters(Length):
    """Counts the letter a."""

    name = "letters"

    def __call__(self, example, output):
        return Feedback(float(output.count("a")), f"{output.count('a')} of them")


class Writing(dspy.Module):
    """Refines a text and signs it."""

    def __init__(self):
        super().__init__()
        modules = PlainPredict("source -> output"), PlainPredict("source, draft, feedback -> output")
        self.loop = SelfRefine(modules[0], Length(), modules[1], max_iterations=3)
        self.sign = PlainPredict("text -> output")

    def forward(self, source):
        return self.loop(source=source)


TEXTS = ("ab", "aabb", "aabbcc", "aabbccdd")
"""A draft and its refinements: longer and longer, but no better after the first."""


def refining():
    return ExternalFeedbackRefine(Letters(), k=0, margins=(0.0,), n_resamples=50, select=False)


def sources(*numbers):
    return [dspy.Example(id=f"i{k}", source=f"s{k}").with_inputs("source") for k in numbers]


def test_a_loop_is_compiled_inside_a_program():
    student = Writing()
    student.set_lm(Scripted(*TEXTS))
    compiled = refining().compile(student, trainset=sources(0, 1), valset=sources(2))
    assert (compiled.loop.max_iterations, student.loop.max_iterations) == (1, 3)
    assert compiled.report.own[0].quality == (1, 2, 2, 2)
    compiled.set_lm(Scripted(*TEXTS))
    assert compiled(source="s").output == "aabb"


def test_an_optimizer_of_loops_is_a_step_of_better_together():
    student = Writing()
    student.set_lm(Scripted(*TEXTS))
    together = dspy.BetterTogether(metric=lambda e, p, trace=None: p.output.count("a") / 4, step=refining())
    compiled = together.compile(student, trainset=sources(0, 1), valset=sources(2), strategy="step", num_threads=1)
    assert not compiled.flag_compilation_error_occurred
    assert {c["strategy"]: c["program"].loop.max_iterations for c in compiled.candidate_programs} == {"": 3, "step": 1}
