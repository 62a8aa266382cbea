"""Choosing between candidates and the given program on held-back items."""

import math

import numpy as np
import pytest
from fakes import PARTS, FormulaLM, Wording, items, numbers, of_sources, pair

from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import Judged
from evalbias.optimizers import ZEPO, BiasedDemos, LikelihoodMitigation
from evalbias.optimizers.base import hold_back
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.optimizers.rules import Rule
from evalbias.optimizers.selection import Candidate, Cost, choose
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge

C = Criterion("quality", "is it good?")
MITIGATION = LikelihoodMitigation((2,), likelihood_lm=FormulaLM())
GIVEN = (0.5, 0.4, float("nan"), "", 0)


class Table(Rule):  # a rule whose numbers are given: program -> (bias, performance, p, loss, undefined)
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


def test_costs_are_compared_on_the_last_items_that_all_answered(monkeypatch):
    seen = []
    monkeypatch.setattr(Table, "costs", lambda self, judged: seen.append(judged.ids) or (0.2, 0.4))
    rows = dict.fromkeys(("given", "all", "last"), (0.2, 0.4, 0.001, "", 0))
    known = [Judged(tuple("abcdefghi"), name, np.ones(9)) for name in rows]
    given, *others = (Candidate("c", "c", answers=one) for one in (*known[:2], known[2].take(np.arange(5, 9))))
    choose(given, others, [Table(rows, 0.0)], test=None, spent=Cost, inputs=9)
    assert seen == [tuple("fghi")] * 3


def test_the_smallest_of_the_significant_ones_without_loss_is_chosen(snapshot):
    rows = {"given": GIVEN, "small, insignificant": (0.0, 0.4, 0.06, "", 0)}
    rows |= {"small, costly": (0.1, 0.1, 0.001, "loses performance", 0)}
    rows |= {"smallest that holds": (0.2, 0.4, 0.001, "", 0), "holds": (0.3, 0.5, 0.001, "", 0)}
    found = chosen(rows)
    assert found.chosen.name == "smallest that holds"
    assert [t.chosen for t in found.candidates] == [False, False, False, True, False]
    # (bias, performance): (.1, .1) and (.2, .4) lie behind (.0, .4); (.3, .5) has the highest performance
    assert found.front == ("small, insignificant", "holds")
    assert [found.decision, *(t.reason for t in found.candidates)] == snapshot


@pytest.mark.parametrize(
    ("error", "name"), [(0.0, "smallest"), (0.04, "smallest"), (0.06, "near"), (0.2, "far"), (float("nan"), "smallest")]
)
def test_within_a_standard_error_of_the_smallest_bias_the_performance_decides(error, name):
    rows = {"given": GIVEN, "smallest": (0.10, 0.30, 0.001, "", 0), "near": (0.15, 0.40, 0.001, "", 0)}
    rows |= {"far": (0.28, 0.50, 0.001, "", 0), "far, no better": (0.29, 0.50, 0.001, "", 0)}
    assert chosen(rows, error).chosen.name == name


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
    assert "for agreement: " in found.decision
    rows["first"] = (0.4, 0.5, 0.049, "", 0)
    assert chosen(rows, second=ByPerformance(rows, 0.0)).chosen.name == "first"
    rows |= {"first": (0.4, 0.5, 0.091, "", 0), "second": (0.6, 0.7, 0.092, "", 0)}
    found = chosen(rows, second=ByPerformance(rows, 0.0))
    assert found.chosen.name == "given"
    assert 'Best of 2 candidates for less bias, or agreement: "first".' in found.decision
    assert [one.p_value for one in found.candidates][1:] == [0.091, 0.092]  # of the first rule
    rows |= {"first": (0.4, math.nan, math.nan, "", 0), "second": (math.nan, 0.7, math.nan, "", 0)}
    by_agreement = ByPerformance({**rows, "first": (0.4, 0.5, 0.12, "", 0), "second": (0.6, 0.7, 0.08, "", 0)}, 0.0)
    assert chosen(rows, second=by_agreement).chosen.name == "second"  # an undefined bias has no veto
    by_agreement.rows["second"] = (0.6, 0.7, 0.11, "", 0)
    assert "(adjusted p = 0.0700" in chosen(rows, second=by_agreement).decision  # and not "cannot be tested"


@pytest.mark.parametrize(("row", "reason", "enough"), [
    ((0.1, 0.4, 0.001, "", 2), "leaves 2 more undefined", ""),
    ((float("nan"), 0.4, 1.0, "", 0), "is not significantly better (adjusted p = 1.0000, level 0.05)", ""),
    # 18 inputs, half of them held back: z is 1.2816 now, and 1.6449 + .8416 are wanted
    ((0.1, 0.4, 0.1, "", 0), "is not significantly better (adjusted p = 0.1000, level 0.05)", "68 inputs"),
    ((0.1, 0.4, 0.4999, "", 0), "is not significantly better (adjusted p = 0.4999, level 0.05)", ""),
    ((0.1, 0.4, 0.001, "loses performance", 0), "loses performance", ""),
])  # fmt: skip
@pytest.mark.parametrize("alone", [False, True])
def test_the_given_program_is_kept_with_the_reason_and_what_would_decide(row, reason, enough, alone):
    third = {} if alone else {"third": (0.6, 0.4, float("nan"), "", 0)}
    found = chosen({"given": GIVEN, "other": row, **third})
    assert found.chosen.name == "given"
    best = "Best candidate" if alone else "Best of 2 candidates"
    kept = f'Kept your program. {best} for less bias: "other". Not chosen because it {reason}, on 9 held-back inputs.'
    assert found.decision == kept + (f" About {enough} would decide." if enough else "")
    assert found.candidates[0].reason == "is kept: nothing is better"
    if not alone:
        assert found.candidates[2].reason.startswith("cannot be compared: what it should improve is undef")


def test_where_nothing_can_be_tested_the_decision_says_why():
    undefined = (0.1, 0.4, float("nan"), "", 0)
    found = chosen({"given": GIVEN, "other": undefined, "third": undefined})
    kept = "Kept your program: less bias cannot be tested on 9 held-back inputs: it is undefined."
    assert found.decision == kept


def sourced(n, seed):
    """Items of different sources."""
    return [e.copy(source=e.id) for e in items(n, seed)]


@pytest.mark.slow
def test_demonstrations_are_compiled_where_they_help_and_not_where_there_is_no_bias():
    for bias, helps in ((1.0, True), (0.0, False)):
        student, lm = PointwiseJudge(C), FormulaLM(bias=bias)
        sets = {"trainset": sourced(120, 1), "valset": sourced(60, 2)}
        compiled = BiasedDemos(8, n_resamples=500).compile(student, **sets, lm=lm)
        report = compiled.report
        assert len(compiled.predict.demos) == (8 if helps else 0)
        assert compiled is not student
        assert not hasattr(student, "report")
        assert [t.chosen for t in report.candidates] == [not helps, helps]
        assert report.chosen == ("the 8 demonstrations of highest RS among 52 items" if helps else "the given judge")
        given, other = report.candidates
        assert given.estimates["performance"].n == 60  # held back
        assert not set(report.train.ids) & {e.id for e in hold_back(sourced(120, 1), seed=0)[1]}
        change = report.comparison["likelihood"]["bias_score"]
        assert (change.before.value == change.after.value) is not helps
        assert (other.p_value < 0.05) is helps


@pytest.mark.parametrize("optimizer", [BiasedDemos(2), pytest.param(MITIGATION, marks=pytest.mark.slow)])
def test_few_inputs_choose_all_of_them(optimizer):
    report = optimizer.compile(PointwiseJudge(C), trainset=of_sources(40, 1), lm=FormulaLM()).report
    assert "all 40 training inputs (cross-fitted)" in report.decision
    assert {one.estimates["performance"].n for one in report.candidates} == {40}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "is worse than the given judge (likelihood effect", "loses agreement ("])
def test_demonstrations_of_all_inputs_are_not_taken_if_they_make_the_judge_worse_than_those_of_each_half(fault):
    train = of_sources(60, 1)
    later = {e.output for e in hold_back(train, seed=0)[1]}

    class Divided(FormulaLM):  # demonstrations from both halves of the inputs spoil the judge
        def _row(self, prompt, choices):
            halves = {any(text in one["content"] for text in later) for one in prompt[1:-1:2]}
            self.bias = 1.0
            if fault and len(halves) > 1:
                prompt, self.bias = [prompt[0], prompt[-1]], 3.0
                if fault.startswith("loses"):
                    prompt[-1] = {"content": f"q={6 - numbers(prompt[-1]['content'])[0]} z=0"}
            return super()._row(prompt, choices)

    found = BiasedDemos(4).compile(PointwiseJudge(C), trainset=train, lm=Divided())
    assert len(found.predict.demos) == (0 if fault else 4)
    assert ("when made from all inputs" in found.report.decision) is bool(fault)
    assert fault in found.report.decision
    # What the halves made and the given judge answer 60 items each, and the one made from all the 56 that it does not
    # show. Random demonstrations judge 26, 26 and 56; 16 of the longest prompts are tried with six sets of them.
    assert found.report.cost.judgments == 60 + 60 + 56 + 26 + 26 + 56 + 6 * 16


def documents(n):
    rng = np.random.default_rng(0)
    return [pair(*rng.normal(size=2).round(3), source=str(d)) for d in range(n) for _ in range(4)]


@pytest.mark.parametrize("lean", [2.0, pytest.param(0.0, marks=pytest.mark.slow)])
def test_an_instruction_is_taken_only_if_it_is_fairer_on_other_pairs(lean):
    student = PairwiseJudge(C)
    zepo = ZEPO(GrammarParaphraser(PARTS), epochs=2)
    compiled = zepo.compile(student, trainset=documents(24), lm=Wording(first=lean))
    report = compiled.report
    given, found = report.candidates
    assert found.chosen is (lean > 0)
    first = student.predict.signature.instructions
    assert (compiled.predict.signature.instructions == first) is not found.chosen
    assert report.chosen == " ".join(compiled.predict.signature.instructions.split())
    assert (report.best == 0) is not found.chosen
    assert given.estimates["fairness"].n == 96  # cross-fitted
    if found.chosen:
        assert found.estimates["fairness"].value > given.estimates["fairness"].value + 0.15
        assert found.p_value < 0.05


@pytest.mark.parametrize("mass", [0.015, 0.1])
def test_a_report_says_first_that_the_answers_are_hardly_labels(mass):
    optimizer, lm = BiasedDemos(k=2, seed=0), FormulaLM(coverage=mass)
    compiled = optimizer.compile(PointwiseJudge(C), trainset=of_sources(40, 1), lm=lm)
    said = "Do not rely on this judge: its model hardly ever answers with a label (median probability 1.5 %)"
    assert compiled.report.decision.startswith(said) == (mass < 0.1)
