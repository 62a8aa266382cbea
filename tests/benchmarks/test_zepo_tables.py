"""The fairness paper's tables: every method and the costs."""

import math
from dataclasses import replace

import dspy
import numpy as np
import pytest
from fakes import FormulaLM, Wording, rated

from benchmarks import fairness_search as command
from benchmarks import racing
from benchmarks.position import recorded_pairs
from evalbias import embedded_judge_lm
from evalbias.data import pairs, world
from evalbias.lm.types import ChoiceLogprobs
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.programs import PRESETS, SYNTHETIC, Criterion, PairwiseJudge

C = Criterion("quality", "is it good?")
GRAMMAR = GrammarParaphraser(world.PARTS)


@pytest.fixture(scope="module")
def lm():
    return embedded_judge_lm(device="cpu")


@pytest.fixture(scope="module")
def result(lm):
    train, test = world.documents(8, 4, seed=11), world.documents(12, 4, seed=12)
    settings = command.Settings(GRAMMAR, 40, None, 0, "first")
    return command.run(SYNTHETIC, train, test, lm, settings)


@pytest.mark.slow
def test_every_method_has_its_row(result):
    assert isinstance(result, command.CriterionResult)
    scored = ["direct scoring", "G-Eval (expected score)", "GPTScore (LS per token)"]
    compared = ["pairwise + PairS", "pairwise + permutation", "ZEPO", "ZEPO + permutation"]
    assert list(result.outcomes) == [*scored, *compared]
    for outcome in result.outcomes.values():
        assert -1 <= outcome.spearman <= 1
        assert outcome.documents + outcome.undefined == 12
    initial, searched = result.outcomes["pairwise + PairS"], result.outcomes["ZEPO"]
    assert searched.spearman > initial.spearman
    assert abs(searched.decision_rate - 0.5) < abs(initial.decision_rate - 0.5)
    assert result.judgments["ZEPO"] == 26 * 40
    assert result.judgments["ZEPO, racing"] < 26 * 40
    assert len(result.points) == len(result.debiased) == len(result.search.tried)
    rates = [[p.decision_rate for p in curve] for curve in (result.points, result.debiased)]
    assert max(rates[1]) - min(rates[1]) < 0.5 * (max(rates[0]) - min(rates[0]))
    assert (result.pairs, result.documents) == (40, (8, 12))
    text = command.objective_table({"quality": result})
    assert f"(n = {len(result.points)})" in text
    few = replace(result, points=result.points[:7])
    assert [*command.objective_table({"quality": few}).splitlines()[2].split(" | ")[1:]] == ["too few (n = 7)", ".75 |"]
    assert result.points[0].objectives.keys() == {"fairness", "calibration", "confidence", "context-free confidence"}


@pytest.mark.slow
def test_the_report_has_the_published_figures(result):
    text = command.report("synthetic", {"quality": result}, "settings")
    assert "8 documents with 40 ordered pairs for the search, 12 others for the ranking." in text
    assert "published: Llama-3-8B" not in text
    table = command.agreement_table("newsroom", dict.fromkeys(command.SPEARMAN["newsroom"], result))
    assert ".49 -> .57" in table
    assert table.count("published") == 2


def test_direct_scoring_is_the_most_probable_label_and_gptscore_asks_for_the_aspect():
    class Scorer(FormulaLM):
        def choice_logprobs(self, prompts, choices):
            return ChoiceLogprobs(tuple(choices), np.log([[0.1, 0.1, 0.2, 0.35, 0.25]] * len(prompts)))

        def loglikelihood(self, questions):
            self.tasks = [messages[0]["content"] for messages, _ in questions]
            return super().loglikelihood(questions)

    lm, rated = Scorer(), [dspy.Example(source="s", output="q=1 z=2")]
    assert command.direct(SYNTHETIC, rated, lm).tolist() == [4.0]
    assert command.g_eval(SYNTHETIC, rated, lm).tolist() == pytest.approx([3.55])
    (other,) = (c for c in PRESETS["newsroom"] if c.name == "fluency")
    for criterion in (SYNTHETIC, other):
        assert command.gpt_score(criterion, rated, lm).tolist() == [(2 - 20 - 1) / 2]
        assert criterion.title in lm.tasks[0]
        assert criterion.definition in lm.tasks[0]
        assert lm.tasks[0].startswith(criterion.task)


@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
def test_documents_of_the_search_are_never_ranked():
    for dataset in command.CRITERIA:
        train, test = command.documents(dataset, 10, 20, longest=None, seed=0)
        assert len({e.input_id for e in train}) == 10
        assert len({e.input_id for e in test}) == 20
        assert not {e.input_id for e in train} & {e.input_id for e in test}
        for criterion in command.CRITERIA[dataset]:
            assert all(np.isfinite(e.scores[criterion.name]) for e in test)


@pytest.mark.slow
def test_racing_is_measured_on_answers_that_are_asked_once(monkeypatch, capsys):
    asked, formula = [], racing.formula

    def counted(pool):
        ask = formula(pool)
        return lambda text: (asked.append(text), ask(text))[1]

    monkeypatch.setattr(racing, "formula", counted)
    racing.main(["--searches", "2", "--pairs", "80"])
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].strip("| ").split("|")]
    assert cells[:2] == ["80", "20, 40, 80"]
    assert int(cells[5]) < int(cells[4]) == 26 * 80
    assert len(asked) == len({*asked}) > 26


def test_the_formula_leans_as_its_wordings_say():
    pool = pairs(world.documents(10, 4, seed=32), seed=0)
    labels = SYNTHETIC.source_label.lower(), SYNTHETIC.output_label.lower()
    fields = {"source": labels[0], "output": labels[1], "name": SYNTHETIC.title, "definition": SYNTHETIC.definition}
    leanings = world.wordings(**fields)
    most, least = max(leanings, key=leanings.get), min(leanings, key=leanings.get)
    first, last = map(racing.formula(pool), [most, least])
    assert first[:, 0].mean() > 0.7
    assert last[:, 0].mean() < 0.3
    assert first.sum(axis=1) == pytest.approx(np.ones(len(pool)))


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("name", ["llmbar", pytest.param("pandalm", marks=pytest.mark.slow)])
def test_recorded_pairs_for_the_test_have_other_sources_and_a_better_output(name):
    fit, test = recorded_pairs(name, 30, 50, seed=1)
    assert (len(fit), len(test)) == (30, 50)
    assert not {e.source for e in fit} & {e.source for e in test}
    assert all(e.preference == "AB"[e.better] and all(text.strip() for text in e.candidates) for e in [*fit, *test])
    assert recorded_pairs(name, 30, 50, seed=1)[1][0].id == test[0].id != recorded_pairs(name, 30, 50, seed=2)[1][0].id


def test_what_fairness_is_compared_with_by_hand():
    shares, even = np.array([[0.9, 0.1], [0.5, 0.5]]), np.array([[0.5, 0.5]])
    entropy = 0.9 * math.log(0.9) + 0.1 * math.log(0.1)
    expected = {"fairness": -0.25, "calibration": -math.log(9) / 2, "confidence": (entropy - math.log(2)) / 2}
    assert command.objectives(shares, even) == pytest.approx(expected | {"context-free confidence": math.log(2)})
    certain = np.array([[1.0, 0.0], [0.8, 0.2], [np.nan, np.nan]])
    assert command.objectives(certain, even)["calibration"] == pytest.approx(-math.log(4))
    assert math.isnan(command.objectives(certain[:1], even)["calibration"])


def test_the_parabola_by_hand():
    # orthogonal polynomials (-3, -1, 1, 3) and (1, -1, -1, 1): coefficients 4/20 and -2/4 explain .8 + 1 of 2
    for more in ([], [math.nan]):
        assert command.parabola([0, 1, 2, 3, *more], [0, 1, 2, 1, *more]) == pytest.approx((0.9, 1.9))
    for x, y in (([0, 1, 2], [0, 1, 0]), ([0, 0, 1, 1], [0, 1, 2, 1]), ([0, 1, 2, 3], [5, 5, 5, 5]), ([], [])):
        assert np.isnan(command.parabola(x, y)).all()
    assert math.isnan(command.parabola([0, 1, 2, 3], [0, 0.5, 2, 4.5])[1])  # x^2 / 2 has no highest point


@pytest.mark.slow
def test_the_curve_after_debiasing_is_of_averaged_probabilities():
    texts = [f"On quality, lean={lean}" for lean in (-19, 0, 19)]
    judge = PairwiseJudge(C, debias="permutation")
    points = command.sensitivity_curve(judge, texts, rated(), lm=Wording())
    # a lean of 19 nats decides nearly every comparison before debiasing, and none after it
    assert len({p.decision_rate for p in points}) == 1
    assert 0.4 < points[0].decision_rate < 0.6
    assert [p.agreement for p in points] == pytest.approx([1, 1, 1])
    biased = command.sensitivity_curve(PairwiseJudge(C), texts, rated(), lm=Wording())
    assert [p.decision_rate < 0.1 for p in biased] == [True, False, False]
    assert biased[2].decision_rate > 0.9
