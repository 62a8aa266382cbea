"""Optimizers compile a judge inside a larger program, and work as steps of DSPy's BetterTogether."""

import dspy
import pytest
from fakes import FormulaLM, items

from evalbias import BiasedDemos
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge

C = Criterion("quality", "is it good?")


class Pipeline(dspy.Module):
    def __init__(self, *judges):
        super().__init__()
        self.write = dspy.Predict("source -> output")
        self.judges = list(judges)

    def forward(self, source, output):
        return self.judges[0](source=source, output=output)


def compiled_by(student, **options):
    optimizer = BiasedDemos(k=4, n_resamples=100, seed=0)
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
    with pytest.raises(TypeError, match="Pipeline is no judge or loop that BiasedDemos compiles, and holds none"):
        compiled_by(Pipeline())


def test_a_step_of_better_together(lms):
    student = Pipeline(PointwiseJudge(C))
    student.set_lm(lms["llama"])
    words = [e.copy(source="the cat", output=f"cat {k}") for k, e in enumerate(items(16, 1))]
    together = dspy.BetterTogether(metric=lambda e, p, trace=None: 0.5, d=BiasedDemos(k=2, n_resamples=100, seed=0))
    compiled = together.compile(student, trainset=words[:12], valset=words[12:], strategy="d", num_threads=1)
    assert not compiled.flag_compilation_error_occurred
    assert [c["strategy"] for c in compiled.candidate_programs] == ["", "d"]
    assert len(compiled.candidate_programs[1]["program"].judges[0].predict.demos) == 2
