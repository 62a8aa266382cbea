"""Methods against likelihood bias: RS demonstrations, mitigations, their rules of choice, and several criteria."""

import math
import re
from dataclasses import replace
from functools import partial

import dspy
import numpy as np
import pytest
from fakes import FormulaLM, items, numbers, of_sources
from planted import likelihood_effect, with_effect
from refusals import refusals

from evalbias import BiasedDemos, LikelihoodMitigation
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS
from evalbias.lm.types import Choices
from evalbias.measures import bias_score, estimate_spearman, rs_scores, spearman, unfairness_scores
from evalbias.optimizers import likelihood, rules
from evalbias.optimizers.likelihood import UnusableDemosError, check_demos_fit, compile_each, with_demos
from evalbias.optimizers.objectives import ProbeObjective
from evalbias.optimizers.rules import BIAS_SCORE_Z, CHOICE_LEVEL, EFFECT, RISE, fair_rule, likelihood_rule
from evalbias.programs import Criterion, PointwiseJudge, labeled, score_closeness
from evalbias.programs.files import load
from evalbias.values import to_json

C = Criterion("quality", "is it good?")
NAMES = ("quality", "style")
SEARCHING = [pytest.param(one, marks=pytest.mark.slow) for one in (LikelihoodMitigation(k=(2,)), BiasedDemos(k=2))]
HALF = np.arange(100, 200)
BARE = BiasedDemos(4, n_resamples=99, select=False)


def short(demos=99):
    """Return a model that refuses messages of over 500 characters, and prompts of more demonstrations than these."""

    def refuses(question):
        lengths = [len(message["content"]) for message in question.prompt] if isinstance(question, Choices) else [0]
        return len(lengths) > 2 + 2 * demos or max(lengths) > 500

    return FormulaLM(refuses=refuses)


class Stubborn(FormulaLM):  # learns nothing from demonstrations
    def _row(self, prompt, choices):
        return super()._row([prompt[0], prompt[-1]], choices)


@pytest.fixture
def real_lm(lms):
    return lms["llama"]


def long_ones(found, *places):
    for place in places:
        found[place].output += " and so on" * 60
    return found


def compile_judge(lm=None, trainset=None, valset=None, judge=None, **options):
    settings = {"k": 8, "n_resamples": 500, "seed": 0, "select": False, **options}
    sets = {"trainset": trainset or items(120, 1), "valset": items(90, 2) if valset is None else valset}
    return BiasedDemos(**settings).compile(judge or PointwiseJudge(C), **sets, lm=lm or FormulaLM())


@pytest.mark.slow
def test_the_bias_is_compiled_away():
    report = compile_judge().report
    bias, performance = (report.comparison["likelihood"][name] for name in ("bias_score", "performance"))
    assert bias.before.value > 0.5
    assert bias.before.low > 0
    assert abs(bias.after.value) < bias.before.value / 2
    assert bias.p_value < 0.05
    assert bias.difference.high < 0
    assert performance.after.value >= performance.before.value
    assert (report.seed, report.settings["k"]) == (0, 8)
    assert report.chosen == "the 8 demonstrations of highest RS among 112 items"
    # 112 training and 90 validation items, twice; 16 of the longest prompts are tried with each set of demonstrations
    assert (report.cost.judgments, report.cost.likelihoods) == (112 + 2 * 90 + 2 * 16, 112 + 90)


def test_the_chosen_are_those_of_highest_rs_with_human_labels_ascending():
    compiled = compile_judge()
    report = compiled.report
    ids = report.train.ids
    assert len(ids) == 112
    top = np.argsort(-report.rs, kind="stable")[:8][::-1]
    assert report.demonstrations == tuple(ids[i] for i in top)
    human = dict(zip(ids, report.train.covariates["human_scores"], strict=True))
    labels = [math.floor(human[name] + 0.5) for name in report.demonstrations]
    assert [d.score for d in compiled.predict.demos] == labels
    assert not set(report.random) & set(ids)
    us = unfairness_scores(report.train.answers, report.train.covariates[HUMAN_SCORES])  # as the paper's equation
    assert report.unfairness == pytest.approx(us)
    assert report.rs == pytest.approx(rs_scores(report.train.covariates[LIKELIHOODS], us))


class Impressed(FormulaLM):
    """Gives a text with a label a point more, the less the more demonstrations show one with what it is worth."""

    def _row(self, prompt, choices):
        labelled = ["GPT-4" in one["content"] for one in prompt[1:-1:2]]
        gain = 1.2 * ("GPT-4" in prompt[-1]["content"]) * max(0.0, 1 - sum(labelled) / 4)
        quality = numbers(prompt[-1]["content"])[0] + gain
        weights = np.exp([-((float(c) - quality) ** 2) for c in choices])
        return list(np.log(self.mass * weights / weights.sum()))


@pytest.mark.slow
def test_demonstrations_are_searched_against_a_probe_and_kept_only_if_they_are_better():
    train, probe = of_sources(60, 3), ProbeObjective("label")
    search = BiasedDemos(4, objective=probe, n_resamples=99)
    found = search.compile(PointwiseJudge(C), trainset=train, lm=Impressed())
    report = found.report
    assert all("GPT-4" in demo.output for demo in found.predict.demos)
    assert report.chosen.startswith("the 4 demonstrations of the ")
    before, after, at_random = (one.estimates["probe"].value for one in report.candidates)
    assert max(before, at_random) < -0.5 < -0.05 < after
    scores = dict(zip(report.train.ids, report.rs, strict=True))
    assert report.rs == pytest.approx(np.abs(report.unfairness))
    assert min(scores[name] for name in report.demonstrations) >= np.sort(report.rs)[-4]

    class Unmoved(Impressed):  # demonstrations change nothing: the given judge is kept
        def _row(self, prompt, choices):
            return super()._row([prompt[0], prompt[-1]], choices)

    class Overawed(Impressed):  # any demonstrations but labelled ones help
        def _row(self, prompt, choices):
            demos = [{"content": f"{one['content']} GPT-4"} for one in prompt[1:-1]]
            return super()._row([prompt[0], *([] if "GPT-4" in str(prompt[1:-1]) else demos), prompt[-1]], choices)

    plain = search.compile(PointwiseJudge(C), trainset=train, lm=Overawed()).report
    assert (plain.chosen, plain.demonstrations) == ("4 random demonstrations", plain.random)

    kept = search.compile(PointwiseJudge(C), trainset=train, lm=Unmoved())
    assert kept.predict.demos == []
    assert kept.report.decision.startswith("Kept your judge. Best of 2 candidates")

    class Dulled(Impressed):  # no label moves it any more, but it no longer tells good from bad
        def _row(self, prompt, choices):
            even = [math.log(self.mass / len(choices))] * len(choices)
            return even if len(prompt) > 2 else super()._row(prompt, choices)

    dull = search.compile(PointwiseJudge(C), trainset=train, lm=Dulled())
    assert dull.predict.demos == []
    ordered = BiasedDemos(2, objective=ProbeObjective("injection"), select=False)
    shown = ordered.compile(PointwiseJudge(C), trainset=train, lm=Impressed()).predict.demos
    assert [demo.output.rstrip(".")[-1] for demo in shown] == ["5", "5"]  # the highest score of this scale
    bare = BiasedDemos(4, objective=probe, select=False).compile(PointwiseJudge(C), trainset=train, lm=Dulled())
    assert len(bare.predict.demos) == 4


def test_the_report_tells_the_lengths_of_the_demonstrations_and_counts_what_is_undefined():
    trainset = items(60, 1)
    trainset[3].scores["quality"] = math.nan
    for number, example in enumerate(trainset):
        example.output = f"{'word ' * number}{example.output}"  # number + 2 words
    report = compile_judge(k=4, n_resamples=9, trainset=trainset, valset=[]).report
    words = {str(e.id): number + 2 for number, e in enumerate(trainset)}
    assert report.demonstration_words == tuple(words[name] for name in report.demonstrations)
    assert report.mean_words == pytest.approx(np.mean([words[name] for name in report.train.ids]))
    assert report.unrated == 1
    assert "1-3" not in report.train.ids + report.random


def by_score(examples):
    """Return the examples with DSPy's one label instead of scores by criterion."""
    return [e.copy(score=e.scores["quality"]).without("scores") for e in examples]


def test_one_score_is_of_one_criterion():
    assert len(compile_judge(k=3, trainset=by_score(items(16, 1)), valset=by_score(items(8, 2))).predict.demos) == 3


test_what_cannot_be_compiled_is_refused = refusals(
    lambda call: call(),
    (lambda: BiasedDemos(0), "k=0"),
    (lambda: LikelihoodMitigation((1, 4)), r"k=\(1, 4\)"),
    (lambda: LikelihoodMitigation(4), "k=4"),
    (lambda: compile_judge(trainset=items(10, 1)), "at least 18"),
    (lambda: compile_judge(trainset=of_sources(30, 1), select=True), "at least 18.*select=False"),
    (lambda: compile_judge(k=2, trainset=[items(1, 1)[0].copy(scores={"wit": 1})]), "'1-0' .*'quality'"),
    (lambda: compile_all(by_score(items(10, 1)), items(4, 2), BiasedDemos(2)), "'1-0' has one score"),
    (lambda: compile_all(rated(60, 1), [], BARE, several()[:1]), "0 validation items"),
    (lambda: compile_judge(short(demos=3)), "3 of 8 demonstrations"),
    (lambda: mitigated(of_sources(60, 1), short(demos=4), k=(4, 8)), "4 of 8 demonstrations"),
    (lambda: LikelihoodMitigation(max_loss=1.5), "max_loss=1.5"),
)


def test_an_item_that_is_too_long_is_undefined_and_the_judge_is_compiled():
    sets = {"trainset": long_ones(items(60, 1), 3), "valset": long_ones(items(20, 2), 7)}
    compiled = compile_judge(short(), k=4, n_resamples=9, **sets)
    performance = compiled.report.comparison["likelihood"]["performance"]
    assert (performance.after.n, performance.after.undefined) == (19, 1)
    assert all("and so on" not in demo["output"] for demo in compiled.predict.demos)


def test_items_that_are_all_too_long_are_refused_before_anything_is_judged_and_demonstrations_stay():
    lm = short()
    with pytest.raises(UnusableDemosError, match="Not even"):
        compile_judge(lm, k=4, trainset=long_ones(items(60, 1), *range(60)), valset=[])
    assert not lm.judged
    judge = with_demos(PointwiseJudge(C), items(3, 1))
    with pytest.raises(UnusableDemosError, match="Not even"):
        check_demos_fit(judge, long_ones(items(2, 2), 0, 1), lm)
    assert len(judge.predict.demos) == 3


@pytest.mark.parametrize("optimizer", [*SEARCHING, BiasedDemos(k=2, select=False)])
def test_a_model_without_likelihoods_is_refused_before_it_judges(optimizer):
    lm, train, other = FormulaLM(likelihoods=False), of_sources(80, 1), FormulaLM()
    with pytest.raises(NotImplementedError, match="no likelihoods"):
        optimizer.compile(PointwiseJudge(C), trainset=train, lm=lm)
    assert lm.judged == []
    optimizer.likelihood_lm = other
    optimizer.compile(PointwiseJudge(C), trainset=train, lm=lm)
    assert lm.judged
    assert other.judged == []


def test_a_step_of_better_together(real_lm):
    student = dspy.Module()
    student.judge = PointwiseJudge(C)
    student.forward = student.judge
    student.judge.set_lm(real_lm)
    words = [e.copy(source="the cat", output=f"cat {k}") for k, e in enumerate(items(16, 1))]
    demos = BiasedDemos(k=2, n_resamples=100, seed=0, select=False)
    together = dspy.BetterTogether(metric=lambda e, p, trace=None: 0.5, d=demos)
    compiled = together.compile(student, trainset=words[:12], valset=words[12:], strategy="d", num_threads=1)
    assert not compiled.flag_compilation_error_occurred
    assert [c["strategy"] for c in compiled.candidate_programs] == ["", "d"]
    assert len(compiled.candidate_programs[1]["program"].judge.predict.demos) == 2


def test_dspys_own_optimizers_run_on_the_same_judge(real_lm):
    trainset = [e.copy(source="the cat", output=e.output[:3]) for e in items(12, 5)]
    trainset = labeled([e.copy(id=str(i), output=f"cat {i}") for i, e in enumerate(trainset)], C)
    with dspy.context(lm=real_lm):
        few = dspy.LabeledFewShot(k=3).compile(PointwiseJudge(C), trainset=trainset)
        assert [type(d.score) for d in few.predict.demos] == [float] * 3
        boot = dspy.BootstrapFewShot(metric=score_closeness(C), max_bootstrapped_demos=2, max_labeled_demos=1)
        compiled = boot.compile(PointwiseJudge(C), trainset=trainset)
        assert any(d.get("augmented") for d in compiled.predict.demos)
        found = dspy.Evaluate(devset=trainset, metric=score_closeness(C), num_threads=4)(compiled)
        alone = [score_closeness(C)(e, compiled(**e.inputs())) for e in trainset]
    assert found.score == pytest.approx(100 * np.mean(alone), abs=0.01)


# The first rule of choice: less likelihood bias at no significant loss of performance.


def rule(name=EFFECT, **options):
    return likelihood_rule(name, seed=0, **options)


def agreement(**options):
    return fair_rule(EFFECT, seed=0, **options)


def p_value(one, given, name=EFFECT):
    (found,) = rule(name).p_values([one], given)
    return found


def test_the_magnitude_of_the_effect_is_tested_on_both_sides():
    biased, fair, opposite = with_effect(0.6), with_effect(0.0), with_effect(-0.6)
    assert p_value(fair, biased) < 0.001
    assert p_value(biased, fair) > 0.9
    assert p_value(opposite, biased) > 0.05  # the same magnitude: the difference alone would be significant
    assert p_value(fair, opposite) < 0.001
    assert p_value(biased, biased) == 1.0
    found = rule().estimates(biased)[EFFECT]
    expected = likelihood_effect(biased.covariates[LIKELIHOODS], biased.answers, biased.covariates[RATINGS])
    assert (found.value, found.low, found.high) == (expected.value, expected.low, expected.high)


@pytest.mark.parametrize(("chooser", "given", "better"), [
    (likelihood_rule, with_effect(0.6), with_effect(0.0)),
    (fair_rule, with_effect(0.0, noise=3.0), with_effect(0.0, noise=0.1)),
])  # fmt: skip
def test_families_of_different_items_share_the_level(chooser, given, better):
    compared = chooser(EFFECT, seed=0)
    sides = (better, given), (better.take(HALF), given.take(HALF))
    (everywhere,), (late,) = (compared.p_values([after], before) for after, before in sides)
    both = compared.p_values([better, better.take(HALF)], given)
    assert both == pytest.approx([2 * everywhere, 2 * late], abs=0.002)
    assert compared.p_values([given, given.take(HALF)], given) == [1.0, 1.0]  # and not 2


def test_the_given_judge_must_be_biased_on_all_items():
    given, fair = with_effect(0.6), with_effect(0.0)
    unclear = replace(given, answers=np.where(np.arange(200) < 100, with_effect(-0.6).answers, given.answers))
    assert rule().p_values([fair.take(HALF)], unclear)[0] > 0.05  # biased one way and the other: 0 over all


def test_a_smaller_bias_must_not_cost_agreement(snapshot):
    given, found = with_effect(0.6), rule()
    few = with_effect(0.6, n=24), with_effect(0.0, n=24, noise=1.0)
    # a large loss, none, and none that is significant: but so few items cannot rule one out
    losses = [found.loss(after, given) for after in (with_effect(0.0, noise=4.0), with_effect(0.0))]
    assert [*losses, found.loss(few[1], few[0])] == snapshot
    assert rule().loss(replace(few[0], answers=2 * few[0].answers), few[0]) == ""  # the same ranking
    effect = found.estimates(given)[EFFECT]
    assert found.error(given) == pytest.approx((effect.high - effect.low) / (2 * 1.959964), rel=1e-6)
    bias, agreement = found.costs(given)
    assert bias == pytest.approx(abs(effect.value))
    assert agreement == -found.estimates(given)["pearson"].value < -0.5


def test_breaking_the_ties_of_coarse_scores_is_no_loss():
    rng = np.random.default_rng(7)
    given = with_effect(0.5, n=600)
    coarse = replace(given, answers=np.where(given.covariates[HUMAN_SCORES] > -0.8, 5.0, 3.0))
    broken = replace(coarse, answers=coarse.answers - 0.001 * rng.normal(size=600))  # moves nothing but ties
    human = coarse.covariates[HUMAN_SCORES]
    ranks = estimate_spearman(broken.answers, human, before=coarse.answers)
    assert ranks.value < -0.1
    assert ranks.p_value < 0.001
    assert rule().loss(broken, coarse) == ""
    noisy = replace(coarse, answers=coarse.answers + 2 * rng.normal(size=600))
    assert rule().loss(noisy, coarse).startswith("loses agreement (0.")


def test_pairs_in_the_wrong_order_are_a_loss_that_a_correlation_may_hide():
    human, rng = np.repeat([0.0, 1.0, 30.0], 60), np.random.default_rng(1)
    loose = replace(with_effect(0.0, n=180), answers=human + rng.normal(size=180) * np.repeat([0.1, 0.1, 4.0], 60))
    loose.covariates[HUMAN_SCORES] = human
    turned = replace(loose, answers=np.repeat([1.0, 0.0, 30.0], 60) + rng.normal(size=180) / 10)
    assert rule().costs(turned)[1] < rule().costs(loose)[1]  # the correlation rises
    assert re.match(r"orders fewer pairs as people do \(-\d+\.\d of 100, p = 0\.\d+\)", rule().loss(turned, loose))


@pytest.mark.slow
def test_the_worth_of_the_likelihood_itself_stands_beside_the_choice(snapshot):
    given = with_effect(0.6)
    unlike = replace(given, covariates={**given.covariates, LIKELIHOODS: np.random.default_rng(3).normal(size=200)})
    assert [rules.proxy_worth(one, LIKELIHOODS, "likelihood") for one in (given, unlike)] == snapshot
    report = compile_judge(k=4, trainset=of_sources(60, 1), select=True, n_resamples=99).report
    assert "likelihood alone" in report.decision


def test_a_loss_that_is_allowed_is_ruled_out_by_the_items_to_be_larger():
    given = with_effect(0.5, noise=0.3, n=600)
    noisy = replace(given, answers=given.answers + 0.05 * np.sign(-given.covariates[HUMAN_SCORES]))
    lost = re.match(
        r"loses agreement \((0\.\d+) -> (0\.\d+), p < 0\.0001, at worst -0\.\d\d; max_loss=(0\.\d+), --max-loss \3, ",
        rule().loss(noisy, given),
    )
    assert lost[1] != lost[2]  # two digits would not tell them apart
    assert rule(max_loss=float(lost[3])).loss(noisy, given) == ""
    assert rule(max_loss=float(lost[3]) - 0.01).loss(noisy, given) != ""
    assert rule(max_loss=0.1).loss(noisy, given) == ""
    much = replace(given, answers=np.random.default_rng(9).normal(size=600))
    assert rule(max_loss=0.1).loss(much, given).startswith("may lose more than 0.1 of agreement (0.")
    assert rule(max_loss=0.1).aim == "less likelihood bias at a loss of agreement of at most 0.1"


@pytest.mark.slow
def test_without_several_ratings_the_standardized_bias_score_decides_and_says_why():
    single = with_effect(0.6, ratings=1)
    assert rules.bias_number(single.covariates.get(RATINGS)) == rules.bias_number(np.ones((3, 1))) == BIAS_SCORE_Z
    assert rules.bias_number(np.array([[1.0, np.nan], [2.0, 3.0]])) == EFFECT
    assert "one rating each" in rules.REASONS[BIAS_SCORE_Z]
    assert p_value(with_effect(0.0, ratings=1), single, BIAS_SCORE_Z) < 0.05
    assert p_value(single, single, BIAS_SCORE_Z) == 1.0
    scores = single.answers, single.covariates[HUMAN_SCORES]
    correlations = [np.corrcoef(single.covariates[LIKELIHOODS], x)[0, 1] for x in scores]
    assert likelihood.slope(BIAS_SCORE_Z, single) == pytest.approx(correlations[0] - correlations[1])
    assert list(rule(BIAS_SCORE_Z).estimates(single)) == ["bias_score_z", "bias_score", "pearson", "performance"]


def test_ratings_that_do_not_agree_are_the_reason_why_an_effect_is_not_compared():
    given = with_effect(0.5, n=40)
    given.covariates[RATINGS] = np.random.default_rng(5).normal(size=(40, 2))
    assert "ratings" in rule().estimates(given)[EFFECT].reason
    assert math.isnan(p_value(with_effect(0.0, n=40), given))
    assert rule().estimates(with_effect(0.5))[EFFECT].reason == ""


def test_cross_fitted_scores_are_corrected_by_other_inputs_alone(monkeypatch):
    one = replace(with_effect(0.6, n=60), inputs=[str(i // 3) for i in range(60)], scale=(-9.0, 9.0))
    options = {"scale": (-9.0, 9.0), "seed": 0}
    known, fit = {"likelihood": one.covariates[LIKELIHOODS]}, partial(likelihood.fitted, name=EFFECT, reduction="sum")
    slopes, measured = [], likelihood.slope

    def watched(name, part):
        slopes.append(part.inputs)
        return measured(name, part)

    monkeypatch.setattr(likelihood, "slope", watched)
    _, half, _, full = likelihood.cross_fitted(one, known, fit, **options)
    assert len(slopes) == 10
    assert all(len(inputs) == 54 and len(set(inputs)) == 18 for inputs in slopes)
    taken = one.answers - full.answers
    assert half.answers == pytest.approx(one.answers - taken / 2)
    left_out = [i for i in range(60) if one.inputs[i] not in slopes[0]]
    others = [i for i in range(60) if i not in left_out]
    alone = fit(one.take(np.array(others)))[-1]
    likelihoods = one.covariates[LIKELIHOODS] - one.covariates[LIKELIHOODS][others].mean()
    assert taken[left_out] == pytest.approx(alone.slopes["likelihood"].slope * likelihoods[left_out])
    monkeypatch.setattr(likelihood, "slope", lambda name, part: math.nan)
    assert all(np.isnan(undefined.answers).all() for undefined in likelihood.cross_fitted(one, known, fit, **options))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BiasedDemos, LikelihoodMitigation])
def test_the_number_of_the_bias_is_decided_once_on_all_rated_items(kind):
    train = of_sources(60, 1)
    k = 4 if kind is BiasedDemos else (4,)
    few = [train[0], *(e.copy(ratings={"quality": e.ratings["quality"][:1]}) for e in train[1:])]
    for seed in range(4):  # whichever items are kept back
        report = kind(k, n_resamples=99, seed=seed).compile(PointwiseJudge(C), trainset=few, lm=FormulaLM()).report
        assert {next(iter(one.estimates)) for one in report.candidates} == {EFFECT}
        assert getattr(report, "objective", "likelihood effect").startswith("likelihood effect")


# The second rule: better agreement with people at no larger bias.


def test_the_two_rules_share_the_level_and_only_a_higher_agreement_passes():
    assert rule().level + agreement().level == pytest.approx(CHOICE_LEVEL)
    dull, sharp = with_effect(0.0, noise=3.0), with_effect(0.0, noise=0.1)
    assert agreement().p_values([sharp], dull)[0] < 0.001
    assert agreement().p_values([dull], sharp)[0] > 0.99
    assert agreement().p_values([dull], dull) == [1.0]
    undefined = replace(sharp, answers=np.full(200, np.nan))
    assert math.isnan(agreement().p_values([undefined], dull)[0])


def test_a_bias_that_is_defined_may_not_be_larger_and_the_items_must_rule_out_that_it_is(snapshot):
    dull, sharp = with_effect(0.0, noise=3.0), with_effect(0.0, noise=0.1)
    few = with_effect(0.1, noise=3.0, n=20, seed=5), with_effect(0.0, noise=0.3, n=20, seed=5)
    disagreeing = {**dull.covariates, RATINGS: np.random.default_rng(5).normal(size=(200, 2))}
    losses = [agreement().loss(after, dull) for after in (sharp, *(with_effect(x, noise=0.1) for x in (0.8, -0.8)))]
    unlike = [replace(one, covariates=disagreeing) for one in (sharp, dull)]
    losses += [agreement().loss(*sides) for sides in (few, unlike)]
    assert losses == snapshot
    assert float(losses[3].rpartition(" ")[2].strip("+)")) > RISE


def test_a_judge_that_disagrees_a_little_less_does_not_agree(snapshot):
    given = with_effect(0.0, noise=3.0)
    human = given.covariate(RATINGS).mean(axis=1)
    random = np.random.default_rng(0).normal(size=200)
    random -= np.polyval(np.polyfit(human, random, 1), human)  # uncorrelated
    useless, less = replace(given, answers=random), replace(given, answers=random + 0.02 * human)
    assert agreement().p_values([less], useless)[0] < 0.025
    assert agreement().loss(less, useless) == snapshot


def test_the_agreement_comes_first_and_its_standard_error_decides_what_is_equal():
    sharp = with_effect(0.3, noise=0.1)
    minus_agreement, bias = agreement().costs(sharp)
    assert (bias, -minus_agreement) == tuple(abs(x) for x in likelihood_rule(EFFECT, seed=0).costs(sharp))
    found = agreement().estimates(sharp)["pearson"]
    assert agreement().error(sharp) == pytest.approx((found.high - found.low) / (2 * 1.959964), rel=1e-6)


class Confused(FormulaLM):
    """Has no taste for the likely, and hardly reads the texts unless demonstrations show it how."""

    def _row(self, prompt, choices):
        quality, rarity = numbers(prompt[-1]["content"])
        shown = quality if len(prompt) > 2 else 3 + 2 * math.sin(1e4 * rarity)
        weights = np.exp(-np.array([(float(c) - shown) ** 2 for c in choices]))
        return list(np.log(self.mass * weights / weights.sum()))


def mitigated(trainset, lm, valset=None, **options):
    optimizer = LikelihoodMitigation(**{"k": (4,), "n_resamples": 300, **options})
    return optimizer.compile(PointwiseJudge(C), trainset=trainset, valset=valset, lm=lm)


@pytest.mark.slow
def test_demonstrations_that_make_a_useless_judge_agree_are_compiled_though_it_has_no_bias_to_lessen():
    compiled = mitigated(of_sources(100, 1), Confused(), of_sources(60, 2), n_resamples=2_000)
    report = compiled.report
    assert len(compiled.predict.demos) == 4
    assert "for better agreement with people at no larger likelihood bias: " in report.decision
    change = report.comparison["likelihood"]["performance"]
    assert change.after.value - change.before.value > 0.5


def test_a_judge_that_is_no_better_than_the_likelihood_is_told_so(snapshot):
    weak, strong, fitted = with_effect(0.6, noise=3.0), with_effect(0.0, noise=0.1), with_effect(0.0, seed=50)
    for judged in (weak, strong, fitted):
        judged.covariates["lengths"] = np.arange(200.0)
    found = [likelihood.against_baselines(one, fitted.covariates, n_resamples=500, seed=0) for one in (weak, strong)]
    assert list(found[0]["baselines"]) == ["likelihood alone", "length alone"]
    assert found[0]["baselines"]["likelihood alone"].value > 0.2
    assert [beside["against_baselines"] for beside in found] == snapshot


@pytest.mark.slow
def test_the_family_takes_what_helps_and_its_calibration_works_where_it_is_used(tmp_path):
    lm = Stubborn()
    compiled = mitigated(of_sources(100, 1), lm, of_sources(60, 2))
    report = compiled.report
    assert report.objective == "likelihood effect, because the items have several ratings"
    assert "likelihood calibration of strength" in report.chosen
    assert report.decision.startswith(f'"{report.chosen}" was chosen out of 11 candidates on all 100 training inputs')
    given, best = report.candidates[0], next(t for t in report.candidates if t.chosen)
    effects = [abs(t.estimates["likelihood_effect"].value) for t in (given, best)]
    assert effects[1] < effects[0] / 4
    assert best.name in report.front
    assert best.cost.judgments == 0  # the raw scores were known
    compiled.save(str(tmp_path / "judge.json"))
    fresh = of_sources(5, 9)
    loaded = load(tmp_path / "judge.json").batch(fresh, lm=lm)
    assert [p.score for p in loaded] == [p.score for p in compiled.batch(fresh, lm=lm)]
    assert all(p.score != p.raw_score for p in loaded)
    assert report.paper.ids == report.after.ids == tuple(e.id for e in of_sources(60, 2))
    texts = {e.output for e in (*of_sources(100, 1), *of_sources(60, 2))}
    assert report.cost.likelihoods == len(texts)  # each once, for all candidates and both reductions


@pytest.mark.slow
def test_a_judge_without_bias_is_returned_as_it_was_given():
    compiled = mitigated(of_sources(100, 1), FormulaLM(bias=0.0))
    assert compiled.dump_state() == PointwiseJudge(C).dump_state()
    assert compiled.report.decision.startswith("Kept your judge. Best of 11 candidates for less likelihood bias")
    assert (compiled.report.chosen, compiled.report.paper) == ("the given judge", None)


@pytest.mark.slow
def test_another_models_likelihood_allows_no_calibration_and_long_demonstrations_are_left_out():
    report = mitigated(of_sources(60, 1), short(demos=4), likelihood_lm=FormulaLM()).report
    assert report.left_out == {"likelihood calibration": "LS is another model's, which the judge does not ask"}


def rated(n, seed):
    found = items(n, seed)
    for e in found:
        e.scores["style"] = 1 + e.scores["quality"] / 2 + len(e.output) % 3
    return found


def several():
    return [PointwiseJudge(Criterion(name, "is it good?")) for name in NAMES]


def compile_all(trainset, valset, optimizer=BARE, judges=None, lm=None):
    return compile_each(optimizer, judges or several(), trainset=trainset, valset=valset, lm=lm or FormulaLM())


@pytest.mark.slow
def test_every_criterion_and_the_total():
    found = compile_all(rated(60, 1), rated(50, 2))
    assert list(found.comparisons) == [*NAMES, "total"]
    assert BARE.likelihood_lm is None  # as before
    for side in ("before", "after"):
        judged = getattr(found, side)
        model = np.mean([judged[name].answers for name in NAMES], axis=0)
        human = np.mean([judged[name].covariates["human_scores"] for name in NAMES], axis=0)
        bias = bias_score(judged["quality"].covariates["likelihoods"], unfairness_scores(model, human))
        for name, expected in {"bias_score": bias, "performance": spearman(model, human).value}.items():
            assert getattr(found.comparisons["total"][name], side).value == pytest.approx(expected)
    alone = BARE.compile(several()[1], trainset=rated(60, 1), valset=rated(50, 2), lm=FormulaLM())
    assert found.judges["style"].dump_state() == alone.dump_state()
    assert to_json(found.comparisons["style"]) == to_json(alone.report.comparison["likelihood"])  # it holds NaN


def test_one_criterion_has_no_total():
    assert list(compile_all(rated(60, 1), rated(20, 2), judges=several()[:1]).comparisons) == ["quality"]
