"""A jury as a program, a metric and a file: who is asked, and how scores become one."""

import json
import math

import dspy
import numpy as np
import pytest
from fakes import Comparer, FormulaLM, pair

from evalbias import audit, judge_metric
from evalbias.measures.juries import JuryRule
from evalbias.programs import Criterion, Jury, PairwiseJudge, PointwiseJudge
from evalbias.programs.files import load, save

C = Criterion("quality", "is it good?")
ITEMS = [dspy.Example(source="s", output=f"q={q} z={z}") for q, z in ((3, 0), (3, 1), (2, -1), (4, 0.2))]


def jury(*biases, **options):
    judges = [PointwiseJudge(C) for _ in biases]
    for judge, bias in zip(judges, biases, strict=True):
        judge.set_lm(FormulaLM(bias))
    return Jury(judges, **options)


def test_the_plain_jury_is_the_mean_of_its_judges():
    made = jury(-1, 0, 1)
    alone = [[one.score for one in judge.batch(ITEMS)] for judge in made.judges]
    found = made.batch(ITEMS)
    assert [one.score for one in found] == pytest.approx(np.mean(alone, axis=0))
    assert [*found[1].scores.values()] == pytest.approx([row[1] for row in alone])
    assert made(source="s", output=ITEMS[1].output).score == found[1].score
    assert {one.asked for one in found} == {3}


def test_the_others_are_asked_only_where_the_first_differ():
    weights, ones = (0.25, 0.25, 0.5), (1.0, 1.0, 1.0)
    rule = JuryRule("mean", weights, (0.0,) * 3, ones, first=(0, 1), tolerance=0.5)
    made = jury(0, 1, 0.5, rule=rule)
    found = made.batch(ITEMS)
    assert [one.asked for one in found] == [2, 3, 3, 2]
    assert made.judges[2].get_lm().judged  # was asked
    assert len(made.judges[2].get_lm().judged) == 2
    assert math.isnan(found[0].scores[2])
    assert found[0].score == pytest.approx((found[0].scores[0] + found[0].scores[1]) / 2)
    assert found[1].score == pytest.approx(np.dot(weights, [*found[1].scores.values()]))
    table = np.array([[one.score for one in judge.batch(ITEMS)] for judge in made.judges]).T
    assert rule(table) == pytest.approx([one.score for one in found])
    assert rule.cost(table, [1, 1, 10]) == 2 + 10 / 2
    made = jury(0, 1, rule=JuryRule("mean", (1.0, 0.0), (0.0, 0.0), (1.0, 1.0)))  # one has no weight
    assert [one.asked for one in made.batch(ITEMS)] == [1] * 4
    assert made.judges[1].get_lm().judged == []


def test_juries_that_compare_and_verdicts():
    made = Jury([PairwiseJudge(C, debias="permutation") for _ in range(3)])
    share = made.batch([pair(4, 1)], lm=Comparer())[0].win_share
    assert share == pytest.approx(made.judges[0].batch([pair(4, 1)], lm=Comparer())[0].win_share)
    rule = JuryRule("verdict", (0.5, 0.25, 0.25), (0.5,) * 3, (0.5,) * 3)
    assert rule([[1, 1, 0], [1, 0, 0], [0, 0, 1], [1, np.nan, 1]]) == pytest.approx([1, 0.5, 0, np.nan], nan_ok=True)


def test_a_jury_is_a_metric_and_is_audited():
    metric = judge_metric(jury(0, 1))
    told = metric(dspy.Example(source="s"), dspy.Prediction(output="q=3 z=1"), None, "predict", None)
    assert 0.5 < told.score < 0.75
    assert "The jury scored the output 3.4" in told.feedback
    assert "its judges gave 3.00, 3.9" in told.feedback
    rated = [e.copy(ratings=[3, 3 + i % 2], input_id=str(i)) for i, e in enumerate(ITEMS * 6)]
    scores = [one.score for one in jury(0, 1).batch(ITEMS)]
    assert audit(rated, judge=jury(0, 1)).judged.answers == pytest.approx(scores * 6)
    with pytest.raises(TypeError, match="preference_metric is for a PairwiseJudge"):
        judge_metric(Jury([PairwiseJudge(C)] * 2))


def test_a_jury_is_saved_with_its_judges_and_its_rule(tmp_path):
    rule = JuryRule("mean", (0.5, 0.5, 0.0), (3.0, 2.0, 4.0), (1.0, 0.5, 2.0), first=(0, 2), tolerance=0.5)
    made = Jury([PointwiseJudge(Criterion("wit", "is it witty?")), PointwiseJudge(C), PointwiseJudge(C)], rule=rule)
    made.judges[1].predict.demos = [dspy.Example(source="a", output="b", score="4")]
    made.save(str(tmp_path / "jury.json"))
    loaded = Jury([PointwiseJudge(C) for _ in range(3)])
    loaded.load(str(tmp_path / "jury.json"))
    assert loaded.rule == load(tmp_path / "jury.json").rule == rule
    assert loaded.judges[0].criterion.name == loaded.criterion.name == "wit"
    for judges in (loaded.judges, load(tmp_path / "jury.json").judges):
        assert [len(one.predict.demos) for one in judges] == [0, 1, 0]
    copied = loaded.deepcopy()
    copied.judges[1].predict.demos = []
    assert len(loaded.judges[1].predict.demos) == 1
    with pytest.raises(ValueError, match=r"holds 'judges\[2\]"):
        jury(0, 1).load(str(tmp_path / "jury.json"))
    pipeline = dspy.Module()
    pipeline.judge = loaded
    assert [name for name, _ in pipeline.named_parameters()] == ["judge.instrument"]


def test_a_rule_is_a_file(tmp_path):
    rule = JuryRule("verdict", (0.5, 0.5), (0.5, 0.5), (0.5, 0.5), offset=-0.1, first=(0, 1))
    save(rule, file := tmp_path / "jury.json")
    assert load(file) == rule
    damages = [("kind", "mode"), ("tolerance", -1), ("more", 1), ("centers", [1e300, 0.5])]
    damages += [("spreads", value) for value in ([0, 1], [1e-320, 1])]
    damages += [("weights", value) for value in ([1], 0.5, [], ["x", 1], [float("inf"), 1], [1e-320, 0], [10**400, 1])]
    damages += [("first", value) for value in ([0, 5], [0, 0], [0, 1.0], [False, True], [0])]
    damages += [("offset", value) for value in ("x", [1], None)]
    saved = json.loads(file.read_text())
    for text in (*(json.dumps({**saved, name: value}) for name, value in damages), '{"kind": "mean"}', "[]", "{"):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"jury\.json"):
            load(file)


def test_what_is_no_jury_is_refused():
    with pytest.raises(ValueError, match="two or more PointwiseJudge"):
        Jury([PointwiseJudge(C)])
    with pytest.raises(ValueError, match=r"\[PointwiseJudge, PairwiseJudge\]: give"):
        Jury([PointwiseJudge(C), PairwiseJudge(C)])
    with pytest.raises(ValueError, match=r"on the scales \[\(1, 5\), \(1, 100\)\]: give judges of one scale"):
        Jury([PointwiseJudge(C), PointwiseJudge(Criterion("quality", "is it good?", scale=(1, 100)))])
    with pytest.raises(ValueError, match="The rule is of 3 members, and the jury has 2"):
        jury(0, 1, rule=JuryRule.plain(3))
