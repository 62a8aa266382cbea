"""Judges, the instruction search and rankings on a model that only writes."""

import math
import re

import dspy
import numpy as np
import pytest
from fakes import LEANS, PARTS, pair
from texts import writer

from evalbias import ZEPO, GrammarParaphraser, PairwiseRanker, Sampling
from evalbias.evaluation import judge_examples
from evalbias.lm.cache import CachedLM, measuring
from evalbias.lm.types import NoProbabilities
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge

C = Criterion("quality", "is it good?")
NATURAL, SOURCE = Criterion("自然さ", "日本語として自然か？"), "駅はどこですか。"
K = Sampling(samples=30)


def preference(text, system):
    """Prefers the higher q by its difference, and the first position by the wording's lean (1.5 without one)."""
    found = re.findall(r"q=(-?[\d.]+)", text)
    first, second = map(float, found) if found else (0.0, 0.0)  # the harmless text after a refusal
    lean = re.search(r"lean=(-?[\d.]+)", f"{text} {system}")  # the instruction stands last or first
    p = 1 / (1 + math.exp(second - first - (float(lean[1]) if lean else 1.5)))
    return {"A": 0.9 * p, "B": 0.9 * (1 - p), "Neither.": 0.1}


def quality(text, _):
    found, sharp = re.findall(r"q=(-?[\d.]+)", text), {}
    q = float(found[-1]) if found else 3.0  # the harmless text after a refusal
    for label in "12345":
        sharp[label] = math.exp(-((int(label) - q) ** 2))
    return {label: weight / sum(sharp.values()) for label, weight in sharp.items()}


def test_a_judge_that_reads_the_probabilities_of_the_levels_takes_no_counts():
    weights = ScoreCorrection({"log-probability of 5": Slope(-0.1)})
    lm, _ = writer(quality)
    judge = PointwiseJudge(C, scoring="sampled", sampling=K, correction=weights)
    with pytest.raises(ValueError, match="counted over 30 answers"):
        judge.batch([dspy.Example(source="s", output="q=3 z=0")], lm=lm)


def sampled(**options):
    return PairwiseJudge(C, scoring="sampled", sampling=K, **options)


def test_a_pairwise_judge_estimates_its_preference():
    lm, engine = writer(preference)
    judge = sampled(debias="permutation")
    judge.predict.lm = lm
    prediction = judge(source="s", candidates=["q=2 z=0", "q=1 z=0"])
    assert len(engine.requests) == 60
    assert prediction.samples == 30
    for row, swapped in zip(prediction.positions, (1, -1), strict=True):
        p = 1 / (1 + math.exp(-swapped - 1.5))
        assert row[0] == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 27))
    assert prediction.coverage == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 30))
    assert judge.batch([pair(2, 1)])[0].toDict() == prediction.toDict()
    measured, _ = writer(preference, top=3)
    assert sampled().batch([pair(2, 1)], lm=measured)[0].samples == 30  # also where it could be measured
    assert PairwiseJudge(C).batch([pair(2, 1)], lm=measured)[0].samples is None


@pytest.mark.slow
def test_the_search_finds_a_fairer_wording_on_a_model_that_only_writes():
    lm, engine = writer(preference)
    pairs = [pair(a, b, source=str(i)) for i, (a, b) in enumerate(np.random.default_rng(0).normal(size=(12, 2)))]
    zepo = ZEPO(GrammarParaphraser(PARTS), population=5, epochs=2, seed=0, select=False)
    student = PairwiseJudge(C, scoring="sampled", sampling=Sampling(samples=9))
    with pytest.raises(NoProbabilities, match="scoring='sampled'"):
        zepo.compile(PairwiseJudge(C), trainset=pairs, lm=lm)
    judge = zepo.compile(student, trainset=pairs, lm=lm)
    report = judge.report
    assert report.tried[report.best].objective > report.tried[0].objective + 0.15
    assert judge.predict.signature.instructions.splitlines()[0].split()[-1] in LEANS
    assert report.cost.calls == 9 * report.judgments
    assert report.cost.judgments == report.judgments
    spent = len(engine.requests)
    again = zepo.compile(student, trainset=pairs, lm=lm)
    assert again.report == report
    assert len(engine.requests) > spent


@pytest.mark.slow
def test_rankings_and_biases_are_measured_on_a_model_that_only_writes():
    lm, _ = writer(preference)
    ranker = PairwiseRanker(sampled(debias="permutation"))
    assert ranker.batch([pair(0, 12, 3, 9, 6)], lm=lm)[0].order == [1, 3, 4, 2, 0]
    judged = judge_examples(sampled(), [pair(0.1 * i, 0, source=str(i)) for i in range(20)], lm=lm)
    assert judged.answers[:, 0, 0].mean() > 0.7  # it leans to the first position


@pytest.mark.parametrize("kind", [PointwiseJudge, PairwiseJudge])
def test_how_a_judge_asks_may_change_after_construction(kind, tmp_path):
    item = dspy.Example(source="s", output="q=2 z=0", candidates=["q=2 z=0", "q=1 z=0"])
    judge = kind(C)
    with pytest.raises(ValueError, match="scoring='expected' does not sample: leave sampling out, or give"):
        judge.sampling = K
    assert (judge.scoring, judge.sampling) == ("expected", None)
    judge.scoring = "sampled"
    assert judge.sampling == Sampling()
    lm, _ = writer(quality if kind is PointwiseJudge else preference)
    assert judge.batch([item], lm=lm)[0].samples == 20
    judge.sampling = K
    assert judge.batch([item], lm=lm)[0].samples == 30
    with pytest.raises(TypeError, match=r"sampling=7: give evalbias\.Sampling"):
        judge.sampling = 7
    judge.save(str(tmp_path / "judge.json"))
    judge.scoring = "expected"
    assert judge.sampling is None
    with pytest.raises(NoProbabilities):
        judge.batch([item], lm=lm)
    loaded = kind(C, scoring="sampled", sampling=Sampling(samples=2))
    loaded.load_state(judge.dump_state())
    assert (loaded.scoring, loaded.sampling) == ("expected", None)
    loaded.load(str(tmp_path / "judge.json"))
    assert (loaded.scoring, loaded.sampling) == ("sampled", K)


@pytest.mark.parametrize(("temperature", "seeded"), [(0.0, False), (1.0, True)])
def test_a_single_answer_is_the_judgment(temperature, seeded):
    lm, engine = writer(lambda text, system: {"Hm.": 1.0} if "q=9" in text else quality(text, system))
    judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=1, temperature=temperature))
    items = [dspy.Example(source="s", output=f"q={q} z=0") for q in (1, 4, 9)]
    *answered, unread = judge.batch(items, lm=lm)
    assert [(type(p.score), p.distribution[str(int(p.score))], p.coverage) for p in answered] == [(float, 1.0, 1.0)] * 2
    assert temperature or [p.score for p in answered] == [1.0, 4.0]
    assert math.isnan(unread.score)
    assert unread.coverage == 0
    asked = [request.config for request in engine.requests]
    assert [(c.temperature, c.seed is not None) for c in asked] == [(temperature, seeded)] * 3
    lm, engine = writer(preference)
    compares = PairwiseJudge(C, scoring="sampled", sampling=judge.sampling, debias="permutation")
    (prediction,) = compares.batch([pair(9, 1)], lm=lm)
    assert (prediction.preference, prediction.consistent, len(engine.requests)) == (0, True, 2)


@pytest.mark.parametrize("calibration", ["pride", "batch"])
def test_estimates_are_not_calibrated(calibration):
    lm, engine = writer(preference)
    pairs, sampling = [pair(a + 1, 0, source=str(a)) for a in range(12)], Sampling(samples=4)
    judge = PairwiseJudge(C, scoring="sampled", sampling=sampling, calibration=calibration)
    judge.predict.lm = lm
    for ask in (
        lambda: judge.batch(pairs),
        lambda: judge.calibrate(pairs),
        lambda: judge(source="s", candidates=pairs[0].candidates),
        lambda: PairwiseJudge(C, calibration=calibration).batch(pairs, lm=measuring(lm, sampling)),
    ):
        with pytest.raises(ValueError, match=rf"calibration='{calibration}' needs measured probabilities"):
            ask()
    assert engine.requests == []


def test_settings_of_the_command_hold_for_a_judge_that_samples_itself():
    lm, engine = writer(preference)
    judge = PairwiseJudge(C, scoring="sampled", sampling=Sampling(samples=7))
    for model in (asked := measuring(lm, Sampling(samples=3)), CachedLM(asked), CachedLM(lm, sampling=Sampling(2))):
        engine.requests.clear()
        (prediction,) = judge.batch([pair(1, 2)], lm=model)
        assert prediction.samples == model.sampling.samples
        assert len(engine.requests) == {asked: 3}.get(model, 0 if model.sampling.samples == 3 else 2)


def test_a_model_that_only_writes_is_read_in_japanese():
    said = {"答えはＢです。": 0.5, "Bの方が自然です。": 0.3, "どちらとも言えない。": 0.2}
    lm, _ = writer(lambda text, system: said)
    judge = PairwiseJudge(NATURAL, language="ja", scoring="sampled", sampling=Sampling(samples=400))
    prediction = judge.batch([dspy.Example(source=SOURCE, candidates=["右です。", "知らん。"])], lm=lm)[0]
    assert prediction.preference == 1
    assert prediction.coverage == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 400))
    scored, _ = writer(lambda text, system: {"4点です。": 1.0})
    judge = PointwiseJudge(NATURAL, language="ja", scoring="sampled")
    assert judge.batch([dspy.Example(source=SOURCE, output="右です。")], lm=scored)[0].score == 4
