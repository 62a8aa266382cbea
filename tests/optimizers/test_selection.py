"""Choosing between candidates and the given program on held-back items."""

import dspy
import numpy as np
import pytest
from fakes import PARTS, FormulaLM, Wording, items, pair, rated
from models_of_text import Scripted

from evalbias import data
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import Judged
from evalbias.optimizers import ZEPO, BiasedDemos, GrammarParaphraser
from evalbias.optimizers.base import hold_back
from evalbias.optimizers.refine import ExternalFeedbackRefine, QualityRule
from evalbias.optimizers.selection import FLATTERED, Candidate, Cost, Rule, choose, count_unanswered
from evalbias.optimizers.study import JudgeStudy
from evalbias.optimizers.zepo import ContextFreeConfidence, Epochs
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.programs.feedback import Feedback
from evalbias.programs.loops import SelfRefine
from evalbias.programs.writing import PlainPredict

C = Criterion("quality", "is it good?")


class Table(Rule):
    """A rule whose numbers are given: program -> (bias, performance, p, loss, undefined)."""

    aim, level = "less bias", 0.05

    def __init__(self, rows, error):
        self.rows = rows
        self.standard_error = error

    def error(self, answers):
        return self.standard_error

    def row(self, judged):
        return self.rows[judged.criterion]

    def estimates(self, judged):
        return {"bias": Estimate("bias", "bias", self.row(judged)[0], 0.0, 1.0, 9, 0, null=0.0)}

    def p_values(self, judged, given):
        return [self.row(one)[2] for one in judged]

    def loss(self, judged, given):
        return self.row(judged)[3]

    def costs(self, judged):
        return self.row(judged)[0], -self.row(judged)[1]


def chosen(rows, error=0.0, **more):
    names = list(rows)
    given, *others = (Candidate(name, name) for name in names)

    def test(name):
        answers = np.where(np.arange(9) < rows[name][4], np.nan, 1.0)
        return Judged(tuple("abcdefghi"), name, answers)

    return choose(given, others, [Table(rows, error), *more.values()], test=test, spent=Cost, inputs=9)


GIVEN = (0.5, 0.4, float("nan"), "", 0)


def test_the_smallest_of_the_significant_ones_without_loss_is_chosen():
    rows = {
        "given": GIVEN,
        "small, insignificant": (0.0, 0.4, 0.06, "", 0),
        "small, costly": (0.1, 0.1, 0.001, "loses performance", 0),
        "smallest that holds": (0.2, 0.4, 0.001, "", 0),
        "holds": (0.3, 0.5, 0.001, "", 0),
    }
    found = chosen(rows)
    assert found.chosen.name == "smallest that holds"
    reasons = {t.name: t.reason for t in found.fields["candidates"]}
    assert reasons["small, insignificant"] == "is not significantly better (adjusted p = 0.0600, level 0.05)"
    assert reasons["small, costly"] == "loses performance"
    assert reasons["holds"] == "is better, but not the best"
    assert [t.chosen for t in found.fields["candidates"]] == [False, False, False, True, False]
    # (bias, performance): (.1, .1) and (.2, .4) lie behind (.0, .4); (.3, .5) has the highest performance
    assert found.fields["front"] == ("small, insignificant", "holds")
    assert '"smallest that holds" was chosen out of 4 candidates on 9 held-back inputs' in found.fields["decision"]
    assert found.fields["decision"].endswith(FLATTERED)
    assert "bias +0.50 -> +0.20" in found.fields["decision"]


@pytest.mark.parametrize(
    ("error", "name"), [(0.0, "smallest"), (0.04, "smallest"), (0.06, "near"), (0.2, "far"), (float("nan"), "smallest")]
)
def test_within_a_standard_error_of_the_smallest_bias_the_performance_decides(error, name):
    rows = {
        "given": GIVEN,
        "smallest": (0.10, 0.30, 0.001, "", 0),
        "near": (0.15, 0.40, 0.001, "", 0),
        "far": (0.28, 0.50, 0.001, "", 0),
        "far, no better": (0.29, 0.45, 0.001, "", 0),
    }
    assert chosen(rows, error).chosen.name == name


def test_of_equal_performances_the_smaller_bias_is_chosen():
    rows = {"given": GIVEN, "larger": (0.15, 0.4, 0.001, "", 0), "smaller": (0.1, 0.4, 0.001, "", 0)}
    assert chosen(rows, error=0.1).chosen.name == "smaller"


class ByPerformance(Table):
    """A second rule, whose p is that of the first less .04 and whose first cost is the performance."""

    aim, level = "agreement", 0.05

    def p_values(self, judged, given):
        return [self.row(one)[2] - 0.04 for one in judged]

    def costs(self, judged):
        return super().costs(judged)[::-1]


def test_the_next_rule_is_asked_only_where_the_one_before_finds_nothing():
    rows = {"given": GIVEN, "first": (0.4, 0.5, 0.06, "", 0), "second": (0.6, 0.7, 0.08, "", 0)}
    found = chosen(rows, second=ByPerformance(rows, 0.0))
    assert found.chosen.name == "second"  # both pass the second rule, with p of .02 and .04
    assert '"second" was chosen out of 2 candidates on 9 held-back inputs, for agreement: ' in found.fields["decision"]
    rows["first"] = (0.4, 0.5, 0.049, "", 0)
    assert chosen(rows, second=ByPerformance(rows, 0.0)).chosen.name == "first"
    rows |= {"first": (0.4, 0.5, 0.091, "", 0), "second": (0.6, 0.7, 0.092, "", 0)}
    found = chosen(rows, second=ByPerformance(rows, 0.0))
    assert found.chosen.name == "given"
    assert "none of 2 candidates showed less bias, or agreement on 9 held-back inputs" in found.fields["decision"]
    assert [one.p_value for one in found.fields["candidates"]][1:] == [0.091, 0.092]  # of the first rule


def refined(quality, calls):
    answers = np.array(quality, dtype=float)
    return Judged(tuple(map(str, range(len(answers)))), "quality", answers, judgments=calls)


def test_a_loop_of_fewer_requests_may_lose_the_tolerance():
    def rule(tolerance):
        return QualityRule(tolerance=tolerance, n_resamples=4_000, seed=0)

    given = refined([3.0] * 4, 24)
    higher, lower, cheaper = refined([4.0] * 4, 24), refined([2.0] * 4, 24), refined([2.0] * 4, 8)
    one_of_all = 1 / 2**4  # swaps of 4 equal differences
    assert rule(0.0).p_values([higher], given) == pytest.approx([one_of_all], abs=0.008)
    assert rule(0.0).p_values([lower], given) == pytest.approx([1 - one_of_all], abs=0.008)
    assert rule(0.0).p_values([given], given) == [0.5]
    assert rule(1.5).p_values([lower], given) == pytest.approx([1 - one_of_all], abs=0.008)  # as many requests
    assert rule(1.5).p_values([cheaper], given) == pytest.approx([one_of_all], abs=0.008)
    assert rule(0.5).p_values([cheaper], given) == pytest.approx([1 - one_of_all], abs=0.008)
    assert rule(1.5).p_values([cheaper, higher], given) == pytest.approx([2 * one_of_all] * 2, abs=0.016)  # Holm
    assert np.isnan(rule(0.0).p_values([refined([np.nan] * 4, 24)], given)).all()
    assert rule(0.0).aim == "a higher quality"
    assert rule(0.5).aim == "a higher quality, or fewer requests for at most 0.5 points"
    half = refined([np.nan, 2.0, 5.0], 7)
    assert rule(0.0).costs(half) == (-3.5, 7.0)
    assert [count_unanswered(one) for one in (half, refined([1.0] * 3, 9))] == [1, 0]
    assert rule(0.0).estimates(half)["quality"].value == 3.5


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((0.1, 0.4, 0.001, "", 2), "leaves 2 more undefined"),
        ((float("nan"), 0.4, 1.0, "", 0), "is not significantly better (adjusted p = 1.0000"),
    ],
)
def test_the_given_program_is_kept_with_the_reason(row, reason):
    third = (0.6, 0.4, float("nan"), "", 0)
    found = chosen({"given": GIVEN, "other": row, "third": third})
    assert found.chosen.name == "given"
    assert found.fields["candidates"][2].reason.startswith("cannot be compared: what it should improve is undefined")
    kept = "The given program was kept: none of 2 candidates showed less bias on 9 held-back inputs."
    assert found.fields["decision"].startswith(f'{kept} The nearest, "other", {reason}')
    assert found.fields["candidates"][0].reason == "is kept: nothing is better"


def test_where_nothing_can_be_tested_the_decision_says_why():
    undefined = (0.1, 0.4, float("nan"), "", 0)
    found = chosen({"given": GIVEN, "other": undefined, "third": undefined})
    kept = "The given program was kept: less bias cannot be tested on 9 held-back inputs: it is undefined."
    assert found.fields["decision"] == kept


def test_half_of_the_inputs_are_held_back_whole():
    examples = [dspy.Example(source=f"s{i % 20}", output=str(i)) for i in range(100)]
    fit, held = hold_back(examples, lambda e: e.source, seed=0)
    assert {e.source for e in fit}.isdisjoint(e.source for e in held)
    assert (len(fit), len(held)) == (50, 50)
    assert hold_back(examples, lambda e: e.source, seed=0)[1] == held
    assert hold_back(examples, lambda e: e.source, seed=1)[1] != held
    with pytest.raises(ValueError, match=r"has 15 inputs: .* needs 16 or more. Give more, or select=False"):
        hold_back(examples[:15], lambda e: e.source, seed=0)


def sourced(n, seed):
    """Items of different sources."""
    return [e.copy(source=e.id) for e in items(n, seed)]


def test_demonstrations_are_compiled_where_they_help_and_not_where_there_is_no_bias():
    for bias, helps in ((1.0, True), (0.0, False)):
        student, lm = PointwiseJudge(C), FormulaLM(bias=bias)
        compiled = BiasedDemos(8, n_resamples=500).compile(
            student, trainset=sourced(120, 1), valset=sourced(60, 2), lm=lm
        )
        report = compiled.report
        assert len(compiled.predict.demos) == (8 if helps else 0)
        assert compiled is not student
        assert not hasattr(student, "report")
        assert [t.chosen for t in report.candidates] == [not helps, helps]
        assert report.chosen == ("the 8 demonstrations of highest RS among 52 items" if helps else "the given judge")
        given, other = report.candidates
        assert given.estimates["performance"].n == 60  # held back
        assert not set(report.train.ids) & {e.id for e in hold_back(sourced(120, 1), lambda e: e.source, seed=0)[1]}
        change = report.comparison["likelihood"]["bias_score"]
        assert (change.before.value == change.after.value) is not helps
        assert (other.p_value < 0.05) is helps


def test_a_printed_report_is_for_a_reader():
    judge = PointwiseJudge(C)
    compiled = BiasedDemos(2, seed=0, n_resamples=200).compile(
        judge, trainset=sourced(120, 1), valset=sourced(40, 2), lm=FormulaLM()
    )
    report = compiled.report
    first, *others = str(report).splitlines()
    assert first == report.decision
    assert len(others) == len(report.candidates) + len(report.comparison) + 1
    given = report.candidates[0]
    assert others[0].startswith(f"- given {given.reason} (BiasScore (z) {given.estimates['bias_score_z'].text()}, ")
    assert f"performance {report.comparison['likelihood']['performance'].text()}" in others[-2]
    assert others[-1] == f"Cost: {report.cost.judgments} judgments, {report.cost.likelihoods} likelihoods."
    assert repr(report.before) == "Judged('quality', n=40, undefined=0)"
    assert repr(report.before.take([])) == "Judged('quality', n=0, undefined=0)"


def test_too_few_items_for_the_search_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"at least 18. Half of the inputs are kept back to choose on: .*select=F"):
        BiasedDemos(8).compile(PointwiseJudge(C), trainset=sourced(30, 1), lm=FormulaLM())


def documents(n):
    rng = np.random.default_rng(0)
    return [pair(*rng.normal(size=2).round(3), source=str(d)) for d in range(n) for _ in range(4)]


@pytest.mark.parametrize("lean", [2.0, 0.0])
def test_an_instruction_is_taken_only_if_it_is_fairer_on_other_pairs(lean):
    student = PairwiseJudge(C)
    zepo = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(2))
    compiled = zepo.compile(student, trainset=documents(24), lm=Wording(first=lean))
    report = compiled.report
    given, found = report.candidates
    assert found.chosen is (lean > 0)
    first = student.predict.signature.instructions
    assert (compiled.predict.signature.instructions == first) is not found.chosen
    assert report.chosen == compiled.predict.signature.instructions
    assert (report.best == 0) is not found.chosen
    assert given.estimates["fairness"].n == 48
    if found.chosen:
        assert found.estimates["fairness"].value > given.estimates["fairness"].value + 0.3
        assert found.p_value < 0.05


def test_an_objective_that_held_back_pairs_do_not_change_is_refused():
    zepo = ZEPO(GrammarParaphraser(PARTS), objective=ContextFreeConfidence())
    with pytest.raises(ValueError, match=r"asks a content-free input, .* give select=False"):
        zepo.compile(PairwiseJudge(C), trainset=documents(20), lm=Wording())


def test_a_study_keeps_the_given_judge_unless_its_accuracy_rises_on_held_back_pairs():
    labeled = data.pairs(rated(documents=40, outputs=3), limit=160, criterion=C.name, seed=0)
    study = JudgeStudy(GrammarParaphraser(PARTS), trials=8, instructions=4, demo_sets=1, k=2)
    for lean, better in ((50.0, True), (0.0, False)):
        report = study.compile(PairwiseJudge(C), trainset=labeled, lm=Wording(first=lean)).report
        given, found = report.candidates
        assert found.chosen is better
        assert list(given.estimates) == ["accuracy"]
        assert (given.estimates["accuracy"].value < 0.6) is better


class Letters:
    """Counts the letter a."""

    name, low, high = "letters", 0.0, 20.0

    def __call__(self, example, output):
        return Feedback(float(output.count("a")), "more")


class Length(Letters):
    """Thinks that what is longer is better."""

    name = "length"

    def __call__(self, example, output):
        return Feedback(float(min(20, len(output))), "make it longer")


def loop(*texts):
    program = SelfRefine(
        PlainPredict("source -> output"), Length(), PlainPredict("source, draft, feedback -> output"), max_iterations=1
    )
    program.set_lm(Scripted(*texts))
    return program


@pytest.mark.parametrize(("refined", "better"), [("bbbbbb", True), ("aaaabb", False)])
def test_a_loop_is_taken_only_if_its_quality_is_better_on_other_items(refined, better):
    n = 16
    examples = [dspy.Example(id=f"i{k}", source=f"s{k}") for k in range(n)]
    own = ("aa", refined) * (n // 2)  # the refinement is longer, and worse in one case
    external = ("aa", "aaa") * (n // 2)
    held = ("aa", refined) * (n // 2), (("aa",) if better else ("aa", refined)) * (n // 2)
    student = loop(*own, *external, *held[0], *held[1])
    optimizer = ExternalFeedbackRefine(Letters(), k=0, margins=(0.0,), n_resamples=500)
    compiled = optimizer.compile(student, trainset=examples)
    report = compiled.report
    assert [t.chosen for t in report.candidates] == [not better, better]
    assert compiled.max_iterations == report.iterations == (0 if better else 1)
    assert report.candidates[0].cost.calls == 16
    # p of 8 equal differences: 2 of 2^8 swaps are as extreme, one-sided 1 of 256
    expected = 1 / 256 if better else 0.5
    assert report.candidates[1].p_value == pytest.approx(expected, abs=0.005)
