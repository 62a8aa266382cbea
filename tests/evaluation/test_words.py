"""What audits say, kept in ``__snapshots__`` as is what other tests here compare; ``make words`` writes them anew."""

from dataclasses import replace

import numpy as np
import pytest
from planted import compared, entangled, having, rated_once, scored, without

from evalbias.evaluation import compare_judges, measure, summarize_loop, words
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import Estimate, Number, measured, worsened
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, RATINGS, Asking
from evalbias.evaluation.loops import conclude_quality, conclude_self, conclude_style
from evalbias.evaluation.rankings import conclude_ranking
from evalbias.measures.equal_quality import SCORE_SD
from evalbias.measures.resample import estimate_mean_coefficient

NAN = float("nan")
FORMATTED = [
    (words.signed, [0.314, -0.001, NAN], ["+0.31", "+0.00", "undefined"]),
    (words.percent, [0.666], ["67 %"]),
    (words.p_text, [0.0314, 1e-9, NAN], ["0.03140", "< 0.00001", ""]),
    (words.p_equals, [0.0314, 1e-9, NAN], ["p = 0.0314", "p < 0.0001", "p undefined"]),
    (lambda low: words.ends(low, "+0.30"), ["+0.10", "undefined"], ["+0.10 to +0.30", "undefined to +0.30"]),
    (lambda low: words.ends(low, "undefined"), ["undefined"], ["undefined"]),
    (lambda values: words.decimals(*values), [(0.21, 0.003), (0.0042, 0.0006, 0.0078)], [2, 4]),
    (lambda values: words.amount(*values), [(0.21, 0.1, 0.3), (-0.21, -0.3, -0.1)], ["0.21 more", "0.21 fewer"]),
    (lambda values: words.interval_words(*values), [(-5, -21, 10)], ["95 % interval 21.00 fewer to 10.00 more"]),
    (lambda values: words.interval_words(*values, 0), [(-0.4, -3, 0)], ["95 % interval 3 fewer to 0"]),
    (lambda values: words.interval_words(*values, 0), [(0, 0, 3), (-2, -3, 0)], ["95 % interval 0 to 3"] * 2),
    (lambda high: words.amount(NAN, 0.07, high), [0.55], ["between 0.07 and 0.55 more"]),
    (lambda low: words.amount(NAN, low, 0.5), [0.0], ["between 0.00 and 0.50 more"]),
    (words.model_title, ["local/model.gguf@e9785dfff1a0", "openai/gpt-4o-mini"], ["model.gguf", "openai/gpt-4o-mini"]),
]


@pytest.mark.parametrize(("form", "given", "shown"), FORMATTED)
def test_formats(form, given, shown):
    assert [form(one) for one in given] == shown


def with_choices(judged, *, ties=0, unlabeled=0):
    """One choice of people a pair in place of their ratings; the first are ties, the last have none."""
    better = (judged.covariates[RATINGS].mean(axis=1) <= 0).astype(float)
    better[:ties] = np.nan
    better[len(better) - unlabeled :] = np.nan
    return having(without(judged, RATINGS), **{BETTER: better})


def with_ties(judged, share=0.3):
    """The judge answers "tie" in the first pairs."""
    answers = np.concatenate([judged.answers, np.zeros((*judged.answers.shape[:2], 1))], axis=2)
    answers[: int(share * len(answers))] = [0, 0, 1]
    return replace(judged, answers=answers, ties=True)


def unrated(judged, n):
    ratings, human = (judged.covariates[name].copy() for name in (RATINGS, HUMAN_SCORES))
    ratings[:n], human[:n] = np.nan, np.nan
    return having(judged, **{RATINGS: ratings, HUMAN_SCORES: human})


def judge(draw, n, **options):
    return draw(np.random.default_rng(7), n, **options)


AVERAGED = {"by_construction": {"position": "both orders are averaged"}}
CASES = {
    "scores: unbiased": (lambda: judge(scored, 200), {"own_system": "mine"}),
    "scores: unbiased, few": (lambda: judge(scored, 24), {"own_system": "mine"}),
    "scores: likely text": (lambda: judge(scored, 200, likelihood=0.4), {"own_system": "mine", "askable": True}),
    "scores: long text": (lambda: judge(scored, 200, length=0.5), {}),
    "scores: short text": (lambda: replace(judge(scored, 300, length=-0.5), scale=None), {}),
    "scores: own system": (lambda: judge(scored, 200, own=0.9, raters=4), {"own_system": "mine", "askable": True}),
    "scores: crowded": (lambda: judge(scored, 200, squeeze=0.4), {"askable": True}),
    "scores: crowded, recorded": (lambda: judge(scored, 200, squeeze=0.4), {}),
    "scores: reversed": (lambda: judge(scored, 200, squeeze=-1.0), {}),
    "scores: one rating": (lambda: judge(scored, 200, raters=1, length=0.4), {}),
    "scores: one rating, shown": (lambda: judge(scored, 300, raters=1, length=1.2, noise=0.4), {}),
    "scores: one of two": (lambda: entangled(np.random.default_rng(0), scored, likelihood=0.12, length=0.12), {}),
    "scores: one of two, told": (lambda: entangled(np.random.default_rng(3), scored, likelihood=0.12, length=0.12), {}),
    "scores: one rating, stated": (lambda: judge(scored, 200, raters=1, length=0.4), {"reliability": 0.7}),
    "scores: some rated once": (lambda: rated_once(judge(scored, 60), 18), {}),
    "scores: some unrated": (lambda: unrated(judge(scored, 80), 30), {}),
    "scores: nobody rated": (lambda: replace(without(judge(scored, 50), RATINGS, HUMAN_SCORES), writers=()), {}),
    "scores: all the same": (lambda: replace(judge(scored, 50), answers=np.full(50, 3.0)), {}),
    "scores: low coverage": (lambda: replace(judge(scored, 100, length=0.5), asked=Asking(np.full(100, 0.03))), {}),
    "pairs: unbiased": (lambda: judge(compared, 400), {"own_system": "mine"}),
    "pairs: the first": (lambda: judge(compared, 200, first=0.6), {"askable": True}),
    "pairs: the second": (lambda: with_ties(judge(compared, 200, first=-0.6, verdicts=True)), {}),
    "pairs: long text": (lambda: judge(compared, 200, length=0.4), {"askable": True}),
    "pairs: long text, verdicts": (lambda: judge(compared, 200, length=0.4, verdicts=True), {}),
    "pairs: likely text": (lambda: judge(compared, 200, likelihood=0.5), {}),
    "pairs: own system": (lambda: judge(compared, 200, own=1.0, verdicts=True), {"own_system": "mine"}),
    "pairs: one order": (lambda: judge(compared, 150, first=0.4, orders=1), {"own_system": "mine"}),
    "pairs: one order, choices": (lambda: with_choices(judge(compared, 200, first=0.9, orders=1)), {}),
    "pairs: one system first": (
        lambda: replace(judge(compared, 100, orders=1), writers=[("mine", "other")] * 100),
        {"own_system": "mine"},
    ),
    "pairs: a little": (lambda: judge(compared, 900, first=0.045), {}),
    "pairs: choices": (lambda: with_choices(judge(compared, 200, length=0.4), ties=20), {}),
    "pairs: choices, stated": (lambda: with_choices(judge(compared, 200, length=0.4), ties=20), {"reliability": 0.8}),
    "pairs: choices, exact": (lambda: with_choices(judge(compared, 200, length=0.4)), {"reliability": 1.0}),
    "pairs: few": (lambda: judge(compared, 12), {}),
    "pairs: by construction": (lambda: replace(judge(compared, 60), provenance=AVERAGED), {}),
}

SHOWN = ["scores: likely text", "scores: own system", "scores: one rating", "scores: some unrated"]
SHOWN += ["pairs: the second", "pairs: long text, verdicts", "pairs: one order, choices"]
"""Cases whose plots and numbers are kept too, and not only what follows from them."""


def said(judged, *, every, askable=False, **settings):
    """What an audit of a judge says."""
    found = audit_answers(replace(judged, asked=replace(judged.asked, compilable=askable)), **settings)
    told = {"verdict": list(found.paragraphs)}
    told |= {"findings": {f.bias: [f.status, f.sentence, f.margin_in_words, f.remedy] for f in found.findings}}
    told |= {"not measured": dict(found.not_measured)}
    return {**told, "shown": shown_of(found)} if every else told


def shown_of(found):
    """Questions, plots and numbers of an audit in words."""
    shown = {}
    for name, measurement in found.measurements.items():
        drawing = measurement.bias.plot(measurement)
        shown[name] = {
            "question": measurement.bias.question,
            "estimates": [f"{e.words} | {e.sentence()}" for e in measurement.estimates.values()],
            "plot": [] if drawing is None else [drawing.title, drawing.caption],
            "caption": measurement.caption(),
        }
    return shown


def rounds(shift, n=40):
    """Own and expected scores of a loop with three rounds."""
    rng = np.random.default_rng(3)
    expected = rng.normal(3, 1, (3, n))
    return expected + np.array(shift)[:, None] + rng.normal(0, 0.4, (3, n)), expected


def ranking(values):
    number = Number("spearman", "Spearman", np.array(values), estimate_mean_coefficient)
    ids = tuple(map(str, range(len(values))))
    return measured([number], seed=0, bias=BIASES["agreement"], criterion="wit", ids=ids, columns={})


def conclusions():
    """The last sentences of the commands on rankings, loops and compiled judges."""
    told = {"ranking: unrated": conclude_ranking(None, 3)}
    high = np.linspace(0.2, 0.9, 9)
    for name, values in {"agrees": high, "contradicts": -high, "open": high - 0.55, "undefined": [np.nan] * 3}.items():
        told[f"ranking: {name}"] = conclude_ranking(ranking(values), len(values))
    shifts = {"over": (0.1, 0.3, 0.8), "under": (0, -0.4, -0.8), "none": (0, 0, 0), "nan": (np.nan,) * 3}
    for name, shift in shifts.items():
        own, expected = rounds(shift)
        summary = summarize_loop(name, own, expected, n_resamples=500, seed=0)
        told[f"loop: {name}"] = conclude_self(summary, rounds="iteration")
        told[f"style: {name}"] = conclude_style(summary.change)
        told[f"quality: {name}"] = conclude_quality(own - expected[0], "BLEU", seed=0)
    shown, passed = replace(judge(scored, 9), scale=(1, 5)), {HUMAN_SCORES: np.array([0.0, 1.0] * 4 + [1.0])}
    intervals = {"more": (0.42, 0.24, 0.6), "fewer": (-0.42, -0.6, -0.24), "open": (0.1, -0.1, 0.3)}
    intervals |= {"small": (0.004, -0.002, 0.009), "bounds": (np.nan, 0.1, 0.9), "bounds around 0": (np.nan, -0.2, 0.3)}
    for name, interval in intervals.items():
        effect = Estimate("likelihood_effect", "effect of likelihood", *interval, 9, 0, unit=SCORE_SD, points=0.5)
        told[f"effect: {name}"] = BIASES["likelihood"].sentence(effect, shown)
        if name == "bounds":
            of_choices = having(without(shown, RATINGS), **passed)
            told["effect: bounds of pass and fail"] = BIASES["likelihood"].sentence(effect, of_choices)
    unbiased, biased = (measure(BIASES["verbosity"], judge(scored, 150, length=x), seed=0) for x in (0.0, 0.6))
    told["worsened"] = worsened({"verbosity": compare_judges(unbiased, biased, n_resamples=999, seed=0)})
    told["coverage"] = words.coverage_warning({"wit": [0.03, 0.02], "style": [0.0001]})
    told["coverage of one"] = words.coverage_warning({"wit": [0.03, 0.02, np.nan], "style": [0.9]})
    return told


@pytest.mark.parametrize("name", [*CASES, "conclusions"])
def test_words(name, snapshot):
    draw, settings = CASES.get(name, (None, {}))
    assert (said(draw(), every=name in SHOWN, **settings) if draw else conclusions()) == snapshot
