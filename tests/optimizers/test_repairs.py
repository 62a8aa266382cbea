"""Repairs: what they do to an answer, and that one is compiled only where it is shown and nothing else is lost."""

import asyncio

import dspy
import numpy as np
import pytest
from commands import evalbias
from decision_models import Client, sparrow_server
from fakes import numbers, of_sources
from scipy.special import expit

from evalbias import Criterion, ForecastRepair, OrderRepair, PointwiseJudge, load_judge
from evalbias.lm.orders import Repair, RepairedOptions, ReversedOptions
from evalbias.lm.types import ChoiceLogprobs, Decision, MeasuringLM

LEVELS = ("bad", "poor", "fair", "good", "great")
QUALITY = Criterion("quality", "is it good?", levels=LEVELS)


class Leaning(MeasuringLM):
    """A model that judges by the q of a text, and leans to the options that come first by ``lean`` nats a place.

    With ``by_place`` it means the place of an option, not the option: the better, the later.
    """

    model, decides = "leaning", True

    def __init__(self, lean=1.0, *, by_place=False):
        self.lean, self.by_place, self.asked = lean, by_place, 0

    def answer(self, questions, answers):
        self.asked += len(questions)
        for i, one in enumerate(questions):
            text = one.prompt["Output"]
            places = np.arange(len(one.choices))
            levels = places + 1 if self.by_place else np.array([float(choice) for choice in one.choices])
            fit = 0.0 if "N/A" in text else -0.5 * (levels - sum(np.array(numbers(text)) * [1, 0.3])) ** 2
            logits = fit - self.lean * places
            answers[i] = ChoiceLogprobs(one.choices, (logits - np.log(np.exp(logits).sum()))[None])


def asked(lm, text="q=4 z=0"):
    question, answers = Decision({"Output": text}, ("1", "2", "3", "4", "5"), "score", "How good?"), {}
    lm.answer([question], answers)
    return answers[0].probabilities[0]


def test_both_orders_are_averaged_and_a_prior_of_places_is_taken_out_of_each():
    lm = Leaning()
    one, other = asked(lm), asked(ReversedOptions(lm))
    np.testing.assert_allclose(asked(RepairedOptions(lm, Repair(True))), (one + other) / 2, atol=1e-12)
    lean = (0.0, -1.0, -2.0, -3.0, -4.0)
    for both in (False, True):  # a lean by place alone is gone, whatever the order
        np.testing.assert_allclose(asked(RepairedOptions(lm, Repair(both, lean))), asked(Leaning(0.0)), atol=1e-12)
    turned = ReversedOptions(RepairedOptions(lm, Repair(False, lean)))
    np.testing.assert_allclose(asked(turned), asked(Leaning(0.0)), atol=1e-12)
    with pytest.raises(ValueError, match="A repair for 2 options cannot be used for 5"):
        asked(RepairedOptions(lm, Repair(False, (0.0, 0.0))))


def compiled(lm, n=80, **options):
    judge = PointwiseJudge(QUALITY)
    return OrderRepair(n_resamples=99, **options).compile(
        judge, trainset=of_sources(n, 1), valset=of_sources(30, 2), lm=lm
    )


def test_a_leaning_judge_with_a_signal_is_repaired_and_saved(tmp_path):
    lm = Leaning()
    judge = compiled(lm)
    given, *tried = judge.report.candidates
    assert abs(given.estimates["shift"].value) > 0.5
    (chosen,) = (one for one in tried if one.chosen)
    assert abs(chosen.estimates["shift"].value) < 0.05
    assert judge.repair is not None
    assert "less bias by the order of levels" in judge.report.decision
    changes = judge.report.comparison["order"]
    assert abs(changes["shift"].after.value) < abs(changes["shift"].before.value)
    assert judge.report.cost.judgments > 0
    judge.save(tmp_path / "judge.json")
    loaded, items = load_judge(tmp_path / "judge.json"), of_sources(5, 3)
    assert loaded.repair == judge.repair
    scores = [p.score for p in loaded.batch(items, lm=lm)]
    np.testing.assert_allclose(scores, [p.score for p in judge.batch(items, lm=lm)], atol=1e-12)
    assert not np.allclose(scores, [p.score for p in PointwiseJudge(QUALITY).batch(items, lm=lm)], atol=0.1)


def test_a_repair_that_makes_all_answers_alike_is_refused_with_the_reason():
    judge = compiled(Leaning(1.0, by_place=True))
    reasons = {one.name: one.reason for one in judge.report.candidates}
    for name in ("both orders averaged", "both orders and contextual prior"):
        assert reasons[name].startswith("answers alike: the spread of its scores falls from")
    assert judge.repair is not None
    assert not judge.repair.both_orders
    shift = {one.name: one.estimates["shift"].value for one in judge.report.candidates}
    assert abs(shift["given"]) > 0.3
    assert shift["both orders averaged"] == pytest.approx(0.0, abs=1e-9)


def test_a_decision_model_that_no_order_moves_keeps_the_given_judge():
    judge = compiled(Client(), n=40)
    assert judge.repair is None
    assert judge.report.decision.startswith("The given program was kept")


def test_calls_are_repaired_as_batches_are():
    judge = PointwiseJudge(QUALITY, repair=Repair(True, (0.5, 0.0, 0.0, 0.0, 0.2)))
    judge.predict.lm = Client()
    item = dspy.Example(source="the council met", output="it met on Monday")
    (batched,) = judge.batch([item])
    called = judge(source=item.source, output=item.output)
    awaited = asyncio.run(judge.acall(source=item.source, output=item.output))
    assert called.score == pytest.approx(batched.score, abs=1e-6)
    assert awaited.score == pytest.approx(batched.score, abs=1e-6)
    judge.repair = None
    assert judge(source=item.source, output=item.output).score != pytest.approx(batched.score, abs=1e-3)


# Yes or no: the other order is the negation.

FINE, POOR = "is it good?", "is it poor?"
GOOD = Criterion("quality", FINE, (0, 1), levels=("it is poor", "it is good"))


class Affirming(MeasuringLM):
    """A model that says yes to good texts, or to poor ones where it is asked so, and anyway by ``lean`` nats.

    With ``deaf`` it hears no question: it says yes to good texts whatever it is asked.
    """

    model, decides = "affirming", True

    def __init__(self, lean=2.0, *, deaf=False):
        self.lean, self.deaf, self.sent = lean, deaf, []

    def answer(self, questions, answers):
        for i, one in enumerate(questions):
            self.sent.append(one)
            text = one.prompt["Output"]
            side = -1 if POOR in one.instructions and not self.deaf else 1
            odds = self.lean + (0.0 if "N/A" in text else side * (numbers(text)[0] - 3))
            answers[i] = ChoiceLogprobs(one.choices, np.log([[expit(-odds), expit(odds)]]))  # no, then yes


def negated(lm, n=120):
    repair = OrderRepair(n_resamples=99, negation=POOR)
    return repair.compile(PointwiseJudge(GOOD), trainset=of_sources(n, 1), valset=of_sources(30, 2), lm=lm)


def test_the_mean_over_a_negation_takes_out_what_says_yes_to_both_and_is_saved(tmp_path):
    lm = Affirming()
    judge = negated(lm)
    given, *tried = judge.report.candidates
    by_hand = lambda q, lean=2.0: (expit(q - 3 + lean) + 1 - expit(3 - q + lean)) / 2  # noqa: E731
    names = ["question and negation averaged", "contextual prior", "batch prior"]
    assert [one.name for one in tried] == [*names, "question and negation and contextual prior"]
    assert given.estimates["shift"].value < -0.5
    assert tried[0].estimates["shift"].value == pytest.approx(0.0, abs=1e-9)
    assert judge.repair.wordings == (f"Judge the output on quality: {FINE}", f"Judge the output on quality: {POOR}")
    assert "less bias by a negation" in judge.report.decision
    item = dspy.Example(source="s", output="q=4 z=0")
    mean = PointwiseJudge(GOOD, repair=Repair(True, wordings=judge.repair.wordings))
    assert mean.batch([item], lm=lm)[0].score == pytest.approx(by_hand(4))
    told = PointwiseJudge(GOOD, repair=Repair(False, (0.0, 2.0), judge.repair.wordings))
    assert told.batch([item], lm=lm)[0].score == pytest.approx(expit(4 - 3))  # the lean is one of places
    judge.save(tmp_path / "judge.json")
    loaded = load_judge(tmp_path / "judge.json")
    assert loaded.repair == judge.repair
    scores = [one.batch([item], lm=lm)[0].score for one in (loaded, judge)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-12)


def test_a_negation_is_asked_with_its_levels_and_demonstrations_turned():
    judge = PointwiseJudge(GOOD, repair=Repair(True, wordings=(f"Judge the output on quality: {FINE}", "Is it poor?")))
    judge.predict.demos = [dspy.Example(source="a", output="b", score=1.0)]
    lm = Affirming()
    judge.batch(of_sources(1, 1), lm=lm)
    asked, turned = lm.sent
    assert (asked.meanings, turned.meanings) == (GOOD.levels, GOOD.levels[::-1])
    assert (turned.instructions, turned.choices) == ("Is it poor?", asked.choices[::-1])
    shown = [one.prompt["demos"][0]["quality"] for one in (asked, turned)]
    assert shown == [True, False]
    assert isinstance(shown[1], bool)
    judge.predict.signature = judge.predict.signature.with_instructions("Is this a good one?")
    judge.repair = Repair(True, wordings=(f"Judge the output on quality: {FINE}", "Is it poor?"))
    with pytest.raises(ValueError, match="a negation is known of 'Judge the output on quality"):
        judge.batch(of_sources(1, 1), lm=lm)


def test_the_mean_over_a_negation_of_a_judge_that_hears_no_question_answers_alike():
    judge = negated(Affirming(0.5, deaf=True))
    reasons = {one.name: one.reason for one in judge.report.candidates}
    assert reasons["question and negation averaged"].startswith("answers alike: the spread of its scores falls from")
    assert judge.repair is None or not judge.repair.both_orders


# Recalibration.


class Forecaster(MeasuringLM):
    """A model that says yes, or one of the two highest levels, with ``curve`` of the log-odds in a text."""

    model, decides = "forecaster", True

    def __init__(self, curve):
        self.curve = curve

    def answer(self, questions, answers):
        for i, one in enumerate(questions):
            p = float(expit(self.curve(float(one.prompt["Output"]))))
            shares = np.array([1 - p, p]) if len(one.choices) == 2 else np.array([0.6, 0.3, 0.1, 0.8, 0.2])
            if len(one.choices) == 5:
                shares[:3] *= 1 - p
                shares[3:] *= p
            answers[i] = ChoiceLogprobs(one.choices, np.log(np.maximum(shares, 1e-300))[None])


def rated(n, seed, truth=lambda x: x):
    """Return items whose text is a number, and two people who pass each with the log-odds ``truth`` of it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1.5, n).round(3)
    passes = rng.random((n, 2)) < expit([[truth(one)] * 2 for one in x])
    return [
        dspy.Example(id=f"{seed}-{k}", source=f"{seed}-{k}", output=f"{one}", ratings={"quality": said})
        for k, (one, said) in enumerate(zip(x.tolist(), passes.astype(float).tolist(), strict=True))
    ]


def recalibrated(curve, truth=lambda x: x, n=300, criterion=GOOD, **options):
    items, valset = rated(n, 1, truth), rated(100, 2, truth)
    if criterion is not GOOD:
        for e in (*items, *valset):
            e.ratings = {"quality": [2 + 2 * one for one in e.ratings["quality"]]}
    repair = ForecastRepair(n_resamples=99, **options)
    return repair.compile(PointwiseJudge(criterion), trainset=items, valset=valset, lm=Forecaster(curve))


def test_an_overconfident_judge_is_mended_by_platts_curve_and_saved(tmp_path):
    judge = recalibrated(lambda x: 3 * x + 2)
    assert judge.report.chosen == "Platt's logistic curve"
    change = judge.report.comparison["forecasts"]["brier_skill"]
    assert change.before.value < 0.1 < 0.2 < change.after.value
    items = [dspy.Example(source="s", output=f"{x}") for x in (-1.0, 0.0, 1.0)]
    lm = Forecaster(lambda x: 3 * x + 2)
    p = [one.score for one in judge.batch(items, lm=lm)]
    np.testing.assert_allclose(p, expit([-1.0, 0.0, 1.0]), atol=0.06)  # what people say
    judge.save(tmp_path / "judge.json")
    loaded = load_judge(tmp_path / "judge.json")
    assert loaded.repair == judge.repair
    assert [one.score for one in loaded.batch(items, lm=lm)] == p


@pytest.mark.slow
def test_an_isotonic_curve_mends_what_no_logistic_one_can():
    judge = recalibrated(lambda x: (1.2 * x) ** 5 + 1, n=600)
    skills = {one.name: one.estimates["brier_skill"].value for one in judge.report.candidates}
    assert judge.report.chosen == "isotonic curve"
    assert skills["given"] < 0.1 < skills["isotonic curve"]
    flawless = recalibrated(lambda x: x, n=600).report.candidates[0].estimates["brier_skill"].value
    assert skills["isotonic curve"] == pytest.approx(flawless, abs=0.03)


@pytest.mark.slow
def test_a_calibrated_judge_is_kept_and_so_is_one_that_knows_nothing():
    kept = recalibrated(lambda x: x)
    assert kept.repair is None
    assert kept.report.decision.startswith("The given program was kept")
    empty = recalibrated(lambda x: 3 * x, lambda x: -1.0)
    assert empty.repair is None
    (platt,) = (one for one in empty.report.candidates if one.name.startswith("Platt"))
    assert platt.p_value < 0.05  # its forecasts are better, and say the base rate
    assert platt.reason.startswith("is not shown to say more than the base rate (Brier skill")


def test_levels_that_pass_share_the_recalibrated_probability_as_before():
    judge = recalibrated(lambda x: 3 * x + 2, criterion=QUALITY, pass_mark=4)
    assert judge.repair.passing == ("4", "5")
    lm, item = Forecaster(lambda x: 3 * x + 2), dspy.Example(source="s", output="0.0")
    (given,), (mended,) = (one.batch([item], lm=lm) for one in (PointwiseJudge(QUALITY), judge))
    before, after = (np.array([*one.distribution.values()]) for one in (given, mended))
    np.testing.assert_allclose(after[:3] / after[:3].sum(), before[:3] / before[:3].sum())
    np.testing.assert_allclose(after[3:] / after[3:].sum(), [0.8, 0.2])
    assert before[3:].sum() == pytest.approx(expit(2))
    assert after[3:].sum() == pytest.approx(0.5, abs=0.06)


def test_a_recalibration_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="pass_mark"):
        recalibrated(lambda x: x, criterion=QUALITY)
    judge = PointwiseJudge(GOOD).with_threshold(1, 0.7)
    with pytest.raises(ValueError, match="recalibrate it first"):
        ForecastRepair().compile(judge, trainset=rated(40, 1), lm=Forecaster(lambda x: x))
    for curve, passing in [(((0.0, 1.0), (0.0, 2.0)), ("1",)), (((0.0, 1.0), (1.0, 0.0)), ("1",)), (((0.0, 1.0),), ())]:
        with pytest.raises(ValueError, match="give points that rise"):
            Repair(passing=passing, curve=curve)
    with pytest.raises(ValueError, match="cannot be used for"):
        asked(RepairedOptions(Leaning(), Repair(passing=("yes",), curve=((0.0, 0.0),))))


def test_what_has_no_order_is_refused():
    yes_or_no = PointwiseJudge(Criterion("quality", "is it good?", (0, 1)))
    with pytest.raises(ValueError, match="has no options in an order: there is nothing to repair without its negation"):
        OrderRepair().compile(yes_or_no, trainset=of_sources(40, 1), lm=Leaning())
    with pytest.raises(ValueError, match="A negation is asked of a question of yes or no"):
        OrderRepair(negation=POOR).compile(PointwiseJudge(QUALITY), trainset=of_sources(40, 1), lm=Leaning())
    curved = PointwiseJudge(QUALITY, repair=Repair(passing=("5",), curve=((0.0, 1.0), (1.0, 2.0))))
    with pytest.raises(ValueError, match=r"is recalibrated .* repair the order of the judge without it"):
        OrderRepair().compile(curved, trainset=of_sources(40, 1), lm=Leaning())
    with pytest.raises(TypeError, match="repair=1: give a Repair"):
        PointwiseJudge(QUALITY, repair=1)


@pytest.mark.slow
def test_commands_keep_a_decision_model_without_skill_and_say_why(tmp_path):
    PointwiseJudge(GOOD).save(tmp_path / "judge.json")
    rows = [f"{e.id},{e.id},{e.output},{4 + i % 2},{3 + i % 2}" for i, e in enumerate(of_sources(80, 4))]
    (tmp_path / "rated.csv").write_text("\n".join(["id,source,output,rating_1,rating_2", *rows]))
    with sparrow_server() as (address, _):
        asked = ["--judge", "judge.json", "--lm", "sparrow", "--dialect", "systemone", "--api-base", address]
        for command, more in {"order": ["--negation", POOR], "forecasts": ["--pass", 5]}.items():
            said = evalbias("compile", command, *asked, *more, "--data", "rated.csv", cwd=tmp_path).stdout
            assert "The given program was kept: none of" in said
            assert "No judge was written, because nothing was better than the given one" in said
