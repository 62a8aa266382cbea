import asyncio
import math

import dspy
import numpy as np
import pytest
from dspy import lm15
from fakes import FormulaLM, items

from evalbias.evaluation import compare, judge_examples, measure, total
from evalbias.evaluation.biases import LikelihoodBias
from evalbias.lm.dspy_seam import chat_request
from evalbias.lm.types import PromptTooLong
from evalbias.measures import likelihood_bias
from evalbias.optimizers import BiasedDemos
from evalbias.optimizers.demonstrations import DemosDoNotFitError, check_demos_fit, with_demos
from evalbias.programs import Criterion, PointwiseJudge, labeled, load_judge, score_closeness
from evalbias.programs.judges import written_score
from evalbias.report.tables import words_note
from evalbias.values import to_json

C = Criterion("quality", "is it good?")


def likelihood_bias_of(judge, examples, **options):
    judged = judge_examples(judge, examples, likelihood_lm="own", **options)
    return measure(LikelihoodBias(), judged, seed=0)


def compile_judge(lm=None, **options):
    settings = {"k": 8, "n_resamples": 500, "seed": 0, "select": False, **options}
    trainset, valset = items(120, 1), items(90, 2)
    return BiasedDemos(**settings).compile(PointwiseJudge(C), trainset=trainset, valset=valset, lm=lm or FormulaLM())


def test_the_bias_is_compiled_away():
    report = compile_judge().report
    bias, performance = (report.comparison["likelihood"][name] for name in ("bias_score", "performance"))
    assert bias.before.value > 0.5
    assert bias.before.low > 0
    assert abs(bias.after.value) < bias.before.value / 2
    assert bias.p_value < 0.05
    assert bias.difference.high < 0
    assert performance.after.value >= performance.before.value
    assert (report.seed, report.settings["k"], report.chosen) == (
        0,
        8,
        "the 8 demonstrations of highest RS among 112 items",
    )
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
    assert compile_judge(order="descending").report.demonstrations == report.demonstrations[::-1]


@pytest.mark.slow
def test_rs_takes_the_unfairness_of_the_papers_equation_unless_its_codes_is_named():
    reports = {name: compile_judge(normalization=name).report for name in ("mean-range", "center-max")}
    for name, report in reports.items():
        model, human = (np.asarray(x) for x in (report.train.answers, report.train.covariates["human_scores"]))
        scale = np.ptp if name == "mean-range" else lambda x: np.abs(x - x.mean()).max()
        us = (model - model.mean()) / scale(model) - (human - human.mean()) / scale(human)
        assert report.unfairness == pytest.approx(us, abs=1e-9)
        ls = report.train.covariates["likelihoods"]
        stars = [(x - x.mean()) / np.abs(x - x.mean()).max() for x in (ls, us)]
        assert report.rs == pytest.approx(np.abs(stars[0] + stars[1]), abs=1e-9)
    assert not np.allclose(reports["mean-range"].rs, reports["center-max"].rs, atol=0.01)
    assert compile_judge().report.rs == pytest.approx(reports["mean-range"].rs)
    with pytest.raises(ValueError, match="normalization='min-max' is unknown"):
        BiasedDemos(normalization="min-max", select=False)


def test_the_report_tells_the_lengths_of_the_demonstrations():
    trainset = items(60, 1)
    for number, example in enumerate(trainset):
        example.output = f"{'word ' * number}{example.output}"  # number + 2 words
    report = (
        BiasedDemos(4, n_resamples=9, select=False).compile(PointwiseJudge(C), trainset=trainset, lm=FormulaLM()).report
    )
    words = {str(e.id): number + 2 for number, e in enumerate(trainset)}
    assert report.demonstration_words == tuple(words[name] for name in report.demonstrations)
    assert report.mean_words == pytest.approx(np.mean([words[name] for name in report.train.ids]))
    note = words_note({"quality": report})
    low, high = min(report.demonstration_words), max(report.demonstration_words)
    assert note == (
        f"mean words of the demonstrations: quality {np.mean(report.demonstration_words):.0f} "
        f"({low} to {high}; all items {report.mean_words:.0f})"
    )


@pytest.mark.slow
def test_seeds_and_the_student():
    first, again, other = compile_judge(), compile_judge(), compile_judge(seed=1)
    assert first.dump_state() == again.dump_state()
    assert to_json(first.report.comparison) == to_json(again.report.comparison)  # it holds NaN
    assert other.report.random != first.report.random
    student = PointwiseJudge(C)
    before = student.dump_state()
    BiasedDemos(2, n_resamples=9, select=False).compile(student, trainset=items(20, 1), lm=FormulaLM())
    assert student.dump_state() == before


def test_a_compiled_judge_saves_and_loads(tmp_path):
    compiled = compile_judge()
    compiled.save(str(tmp_path / "judge.json"))
    fresh = items(5, 9)
    loaded = load_judge(tmp_path / "judge.json").batch(fresh, lm=FormulaLM())
    assert [p.score for p in loaded] == [p.score for p in compiled.batch(fresh, lm=FormulaLM())]


def test_another_models_likelihood():
    class Upside(FormulaLM):
        def loglikelihood(self, pairs):
            return [type(found)(-found.per_token) for found in super().loglikelihood(pairs)]

    report = compile_judge(likelihood_lm=Upside()).report
    assert report.comparison["likelihood"]["bias_score"].before.value < -0.5


def test_what_is_undefined_is_left_out_and_counted():
    trainset = items(40, 1)
    trainset[3].scores["quality"] = math.nan
    compiled = BiasedDemos(4, n_resamples=9, select=False).compile(PointwiseJudge(C), trainset=trainset, lm=FormulaLM())
    assert compiled.report.left_out == 1
    assert compiled.report.comparison == {}
    assert "1-3" not in compiled.report.train.ids + compiled.report.random


def test_bad_input():
    with pytest.raises(ValueError, match="k=0"):
        BiasedDemos(0, select=False)
    with pytest.raises(ValueError, match="order='up' is unknown"):
        BiasedDemos(order="up", select=False)
    student, few = PointwiseJudge(C), items(10, 1)
    with pytest.raises(ValueError, match="need at least 18"):
        BiasedDemos(8, select=False).compile(student, trainset=few, lm=FormulaLM())
    with pytest.raises(ValueError, match=r"items are in trainset and valset, the first '1-0'"):
        BiasedDemos(2, select=False).compile(student, trainset=few, valset=few[:1], lm=FormulaLM())
    few[0].scores = {"wit": 1}
    with pytest.raises(ValueError, match="'1-0' has no score on 'quality'"):
        BiasedDemos(2, select=False).compile(student, trainset=few, lm=FormulaLM())


def test_demonstrations_that_do_not_fit_say_how_many_do():
    class Short(FormulaLM):
        def choice_logprobs(self, prompts, choices):
            if max(len(p) for p in prompts) > 2 + 2 * 3:
                raise PromptTooLong(dict.fromkeys(range(len(prompts)), "has 99 tokens, but the context is 64."))
            return super().choice_logprobs(prompts, choices)

    with pytest.raises(ValueError, match="3 of 8 demonstrations fit"):
        compile_judge(Short())


class TooShort(FormulaLM):
    """Refuses messages of over 500 characters."""

    def choice_logprobs(self, prompts, choices):
        long = [i for i, p in enumerate(prompts) if max(len(m["content"]) for m in p) > 500]
        if long:
            raise PromptTooLong(dict.fromkeys(long, "has 99 tokens, but the model's context is 64."))
        return super().choice_logprobs(prompts, choices)


def test_an_item_that_is_too_long_is_undefined_and_the_judge_is_compiled():
    trainset, valset = items(60, 1), items(20, 2)
    trainset[3].output += " and so on" * 60
    valset[7].output += " and so on" * 60
    compiled = BiasedDemos(4, n_resamples=9, select=False).compile(
        PointwiseJudge(C), trainset=trainset, valset=valset, lm=TooShort()
    )
    performance = compiled.report.comparison["likelihood"]["performance"]
    assert (performance.after.n, performance.after.undefined) == (19, 1)
    assert all("and so on" not in demo["output"] for demo in compiled.predict.demos)


def test_items_that_are_all_too_long_are_refused_before_anything_is_judged():
    lm, trainset = TooShort(), items(60, 1)
    for item in trainset:
        item.output += " and so on" * 60
    with pytest.raises(ValueError, match="Not even a prompt without demonstrations fits"):
        BiasedDemos(4, n_resamples=9, select=False).compile(PointwiseJudge(C), trainset=trainset, lm=lm)
    assert not lm.judged


def test_a_judge_whose_demonstrations_are_checked_keeps_them():
    judge = with_demos(PointwiseJudge(C), items(3, 1))
    for item in (long := items(2, 2)):
        item.output += " and so on" * 60
    with pytest.raises(DemosDoNotFitError, match="Not even a prompt without demonstrations fits"):
        check_demos_fit(judge, long, TooShort())
    assert len(judge.predict.demos) == 3


def test_what_is_undefined_on_one_side_is_compared_on_neither():
    class Mute(FormulaLM):
        def _row(self, prompt, choices):
            mute = len(prompt) > 2 and prompt[-1]["content"].startswith(self.unheard)
            return [-math.inf] * len(choices) if mute else super()._row(prompt, choices)

    examples, lm = items(60, 3), Mute()
    lm.unheard = f"Source: s\nOutput: {examples[5].output}\n"
    judge = PointwiseJudge(C)
    shown = with_demos(judge, items(2, 9))
    first, second = (likelihood_bias_of(one, examples, lm=lm) for one in (judge, shown))
    assert [m["bias_score"].undefined for m in (first, second)] == [0, 1]
    assert [m.undefined for m in (first, second)] == [{}, {"scores": 1}]
    found = compare(first, second, n_resamples=99, seed=0)
    for name in ("bias_score", "performance"):
        change = found[name]
        assert change.before.undefined == change.after.undefined == change.difference.undefined == 1
        assert change.difference.value == pytest.approx(change.after.value - change.before.value)
    assert found["bias_score"].before.value != first["bias_score"].value
    other = likelihood_bias_of(judge, examples, lm=lm, reduction="mean")
    with pytest.raises(ValueError, match="different reductions"):
        compare(first, other, seed=0)


def test_every_judge_keeps_its_own_model():
    judge, other = PointwiseJudge(C), PointwiseJudge(C)
    judge.predict.lm, other.predict.lm = FormulaLM(bias=0.0), FormulaLM(bias=2.0)
    examples = items(20, 3)
    own = judge_examples(judge, examples).answers
    assert own == pytest.approx([p.score for p in judge.batch(examples)])
    assert own != pytest.approx(judge_examples(other, examples).answers)


def test_total_over_criteria():
    examples = items(60, 3)
    for e in examples:
        e.scores["wit"] = (6 - e.scores["quality"]) ** 2 / 5
    judges = [PointwiseJudge(C), PointwiseJudge(Criterion("wit", "is it funny?"))]
    parts = [judge_examples(j, examples, lm=FormulaLM(), likelihood_lm="own") for j in judges]
    whole = total(parts)
    assert whole.criterion == "total"
    assert whole.answers == pytest.approx((parts[0].answers + parts[1].answers) / 2)
    human = whole.covariates["human_scores"]
    assert human == pytest.approx([(e.scores["quality"] + e.scores["wit"]) / 2 for e in examples])
    expected = likelihood_bias(whole.covariates["likelihoods"], whole.answers, human)
    measured = measure(LikelihoodBias(), whole, seed=0)
    assert measured["bias_score"].value == pytest.approx(expected.bias_score)
    assert measured["performance"].value == pytest.approx(expected.performance)
    shorter = judge_examples(judges[1], examples[1:], lm=FormulaLM(), likelihood_lm="own")
    with pytest.raises(ValueError, match="different items"):
        total([parts[0], shorter])
    sides = [measure(LikelihoodBias(), one, seed=0) for one in (parts[0], shorter)]
    with pytest.raises(ValueError, match="different items, criteria or biases"):
        compare(*sides, seed=0)


def test_a_covariate_that_was_not_measured_is_named():
    judged = judge_examples(PointwiseJudge(C), items(9, 1), lm=FormulaLM())
    with pytest.raises(ValueError, match=r"lack the covariate 'likelihoods', .* name the model whose likelihood"):
        measure(LikelihoodBias(), judged, seed=0)


@pytest.fixture
def real_lm(lms):
    return lms["llama"]


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


def test_a_judge_is_a_metric_and_a_reward(real_lm):
    from evalbias import judge_metric, judge_reward

    judge = PointwiseJudge(C)
    judge.predict.lm = real_lm
    outputs = iter(["a cat", "the mat on the mat", "sat"])

    class Says(dspy.Module):
        def __init__(self):
            super().__init__()
            self.predict = dspy.Predict("source -> output")  # BestOfN asks a program for its model

        def forward(self, source):
            return dspy.Prediction(output=next(outputs))

    metric, reward = judge_metric(judge), judge_reward(judge)
    item = dspy.Example(source="the cat", output="sat").with_inputs("source")
    value = metric(item, dspy.Prediction(output="a cat"))
    assert value == pytest.approx((judge(source="the cat", output="a cat").score - 1) / 4)
    assert metric(item, dspy.Prediction(output="a cat"), trace=[]) == value
    assert judge_metric(judge, threshold=0.0)(item, dspy.Prediction(output="a cat"), trace=[]) is True
    with dspy.context(lm=real_lm):
        best = dspy.BestOfN(module=Says(), N=3, reward_fn=reward, threshold=2.0)(source="the cat")
    scores = {o: judge(source="the cat", output=o).score for o in ["a cat", "the mat on the mat", "sat"]}
    assert best.output == max(scores, key=scores.get)


def test_refine_takes_the_judges_reward(real_lm):
    from evalbias import judge_reward

    judge = PointwiseJudge(C)
    judge.predict.lm = real_lm
    outputs = ["a cat", "the mat on the mat", "sat"]
    scores = {o: judge(source="the cat", output=o).score for o in outputs}
    best, given = max(scores, key=scores.get), []

    class Says(dspy.Module):
        def __init__(self):
            super().__init__()
            self.predict = dspy.Predict("source -> output")

        def forward(self, source):
            given.append(sorted(outputs, key=scores.get)[len(given)])
            return dspy.Prediction(output=given[-1])

    threshold = (scores[best] - 1) / 4
    with dspy.context(lm=real_lm):
        refine = dspy.Refine(module=Says(), N=3, reward_fn=judge_reward(judge), threshold=threshold, fail_count=3)
        assert refine(source="the cat").output == best


def test_direct_scoring_on_a_real_model(real_lm):
    judge = PointwiseJudge(C, scoring="direct")
    given = [dspy.Example(source="the cat", output=o).with_inputs("source", "output") for o in ("a cat", "sat 3")]
    found = judge.batch(given, lm=real_lm)
    for example, prediction in zip(given, found, strict=True):
        config = lm15.Config(temperature=0.0, max_tokens=8)
        text = real_lm(chat_request(real_lm.model, judge.messages(example), config)).text
        assert written_score(C, text) == pytest.approx(prediction.score, nan_ok=True)
        assert prediction.distribution is None


def test_demonstrations_for_a_judge_that_writes_its_score():
    class Writer(FormulaLM):
        def write(self, question):
            return f"Score: {1 + self.choice_logprobs([question.prompt], '12345').logprobs[0].argmax()}"

    student = PointwiseJudge(C, scoring="direct")
    compiled = BiasedDemos(8, n_resamples=500, select=False).compile(
        student, trainset=items(120, 1), valset=items(90, 2), lm=Writer()
    )
    change = compiled.report.comparison["likelihood"]["bias_score"]
    assert change.before.value > 0.5
    assert abs(change.after.value) < change.before.value / 2
    cost = compiled.report.cost
    assert (cost.calls, cost.judgments) == (
        112 + 2 * 90,
        2 * 16,
    )  # scores are written; the fit is tried by one


def test_a_judge_can_be_awaited(real_lm):
    judge = PointwiseJudge(C)
    judge.predict.lm = real_lm
    found = asyncio.run(judge.acall(source="the cat", output="a cat"))
    assert found.score == pytest.approx(judge(source="the cat", output="a cat").score)
