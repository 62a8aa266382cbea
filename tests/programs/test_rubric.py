"""A rubric: several criteria of an item, their weighted mean, and weights learned on people's scores."""

import asyncio
import json

import dspy
import numpy as np
import pytest
from commands import evalbias as evalbias_command
from decision_models import ITEMS, sparrow_server
from fakes import Fake
from refusals import refusals

import evalbias
from evalbias import Criterion, PointwiseJudge, ServerLM
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood
from evalbias.measures.juries import label_weights
from evalbias.programs import Rubric, judge_metric

POLITE, SHORT, KIND = (Criterion(name, f"how {name} is it?", (1, 3)) for name in ("polite", "short", "kind"))


class Reads(Fake):
    """Scores an output such as "polite=3 short=1" by the number that it holds for the criterion."""

    model = "fake/reads"

    def choice_logprobs(self, prompts, choices):
        rows = []
        for prompt in prompts:
            name = prompt[-1]["content"].splitlines()[-1].rstrip(":").lower()
            value = float(prompt[-1]["content"].split(f"{name}=")[1].split()[0])
            # linear between the labels beside the value, so that the expected score is the value
            rows.append([0.8 * max(0.0, 1 - abs(value - float(label))) for label in choices])
        with np.errstate(divide="ignore"):
            return ChoiceLogprobs(tuple(choices), np.log(rows))

    def loglikelihood(self, pairs):
        return [LogLikelihood(np.array([-float(len(text))])) for _, text in pairs]


def item(polite, short, **more):
    return dspy.Example(source="s", output=f"polite={polite:.3f} short={short:.3f} end", **more)


def test_the_score_is_the_weighted_mean_of_the_criteria():
    rubric = Rubric([POLITE, SHORT], weights=[3, 1])
    assert rubric.weights == (0.75, 0.25)
    (found,) = rubric.batch([item(3, 1)], lm=Reads())
    assert found.score == pytest.approx(0.75 * 3 + 0.25 * 1)
    assert found.scores == pytest.approx({"polite": 3, "short": 1})
    assert found.coverage == pytest.approx(0.8)
    assert found.parts["polite"].distribution == pytest.approx({"1": 0, "2": 0, "3": 1})
    assert Rubric([POLITE, SHORT]).batch([item(3, 1)], lm=Reads())[0].score == pytest.approx(2)
    assert Rubric([POLITE, SHORT], weights=[1, 0]).batch([item(3, 1)], lm=Reads())[0].score == pytest.approx(3)


def test_a_refused_part_leaves_the_score_undefined_with_the_reason():
    lm = Reads(refuses=lambda question: "short" in question.prompt[0]["content"])
    for criteria in ([POLITE, SHORT], [SHORT, POLITE]):
        (found,) = Rubric(criteria).batch([item(3, 1, id="x")], lm=lm)
        assert np.isnan([found.score, found.coverage]).all()
        assert found.undefined.startswith("The prompt of the item 'x' has 99 tokens")
    (found,) = Rubric([POLITE, SHORT], weights=[1, 0]).batch([item(3, 1)], lm=lm)  # nothing of it is undefined
    assert (found.score, found.coverage, found.get("undefined")) == (pytest.approx(3), pytest.approx(0.8), None)


def test_a_model_of_closed_questions_gets_one_request_an_item():
    with sparrow_server() as (address, requests):
        lm = ServerLM("sparrow", base_url=address, dialect="systemone", patience=5.0)
        before = len(requests)
        found = Rubric([POLITE, SHORT, KIND]).batch(ITEMS, lm=lm)
        asked = [[*one["questions"]] for one in requests[before:]]
    assert asked == [["polite", "short", "kind"]] * len(ITEMS)
    assert all(1 <= one.score <= 3 for one in found)


def test_calls_take_the_judges_fields_and_any_dspy_model(lms):
    rubric = Rubric([POLITE, SHORT], inputs={"question": "Question", "answer": "Answer"})
    rubric.set_lm(lms["qwen2-chat"])
    given = {"question": "Where?", "answer": "There."}
    called = rubric(**given)
    (batched,) = rubric.batch([dspy.Example(**given)])
    for one in (called, asyncio.run(rubric.acall(**given))):
        assert one.score == pytest.approx(batched.score, abs=1e-5)
    with pytest.raises(TypeError, match="takes the fields 'question', 'answer', not 'output'"):
        rubric(question="Where?", output="There.")


def test_weights_learned_on_labels_are_the_planted_ones_not_negative_and_equal_where_nothing_tells():
    rng = np.random.default_rng(0)
    x = rng.normal(3, 1, (400, 3))
    planted = label_weights(x, x @ [0.7, 0.3, 0.0] + rng.normal(0, 0.3, 400))
    np.testing.assert_allclose(planted, [0.7, 0.3, 0.0], atol=0.05)
    negative = label_weights(x, x @ [0.5, 0.5, -0.5] + rng.normal(0, 0.3, 400))
    assert negative[2] == 0
    assert negative.sum() == pytest.approx(1)
    # of equal worth: few labels do not tell the criteria apart, and the weights stay near equal
    gaps = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.normal(3, 1, (30, 3))
        gaps.append(np.abs(label_weights(x, x.mean(axis=1) + rng.normal(0, 1, 30)) - 1 / 3).max())
    assert np.median(gaps) < 0.1
    np.testing.assert_allclose(label_weights(x, rng.normal(size=30)).sum(), 1)


def test_weights_do_not_depend_on_the_order_of_the_rows():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, inputs = rng.integers(1, 6, (60, 3)).astype(float), rng.integers(0, 25, 60)
        y = np.round(x @ [0.5, 0.3, 0.2] + rng.normal(0, 1, 60))
        order = rng.permutation(60)
        weights, again = (label_weights(x[i], y[i], clusters=inputs[i]) for i in (np.arange(60), order))
        np.testing.assert_array_equal(again, weights)


@pytest.mark.parametrize(
    ("rows", "match"), [(9, "9 inputs have a score on every criterion and a label: weights"), (0, "0 inputs have")]
)
def test_too_few_labels_teach_no_weights(rows, match):
    x = np.random.default_rng(0).normal(size=(rows, 2))
    with pytest.raises(ValueError, match=match):
        label_weights(x, x.sum(axis=1))
    with pytest.raises(ValueError, match="a label, all equal: weights are learned from 10 or more"):
        label_weights(np.ones((20, 2)), np.ones(20))


def rated(n=60, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(1, 3, (n, 2))
    people = rows @ [0.8, 0.2] + rng.normal(0, 0.1, n)
    return [
        item(*row, id=str(k), input_id=str(k), scores={"quality": float(score)})
        for k, (row, score) in enumerate(zip(rows, people, strict=True))
    ]


def test_a_rubric_learns_its_weights_from_peoples_scores_and_is_audited():
    rubric, rows = Rubric([POLITE, SHORT]), rated()
    assert rubric.learn_weights(rows, lm=Reads()) == rubric.weights == pytest.approx((0.8, 0.2), abs=0.05)
    found = evalbias.audit(rows, judge=rubric, lm=Reads())
    assert found.judged.scale == (1, 3)
    assert found.judged.criterion == "quality"
    assert np.corrcoef(found.judged.answers, found.judged.covariates["human_scores"])[0, 1] > 0.97
    assert "likelihoods" in found.judged.covariates


def test_a_saved_rubric_is_loaded_also_by_the_command_line(tmp_path):
    inputs, file = {"question": "Question", "answer": "Answer"}, tmp_path / "rubric.json"
    rubric = Rubric([POLITE, PointwiseJudge(SHORT, inputs=inputs)], weights=[3, 1], name="worth", inputs=inputs)
    rubric.save(str(file))
    loaded = evalbias.load(file)
    assert loaded.dump_state() == rubric.dump_state()
    assert (loaded.weights, loaded.name, [*loaded.inputs]) == ((0.75, 0.25), "worth", ["question", "answer"])
    rows = [{"question": f"When {k}?", "answer": f"Reply {k}.", "scores": {"worth": 1 + k % 3}} for k in range(12)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = ["--judge", file, "--lm", "embedded", "--data", "rows.jsonl"]
    evalbias_command("judge", *asked, "--out", "run", cwd=tmp_path)
    scored = [json.loads(line) for line in (tmp_path / "run" / "scores.jsonl").read_text().splitlines()]
    polite, short = (scored[0]["scores"][name] for name in ("polite", "short"))
    assert scored[0]["score"] == pytest.approx(0.75 * polite + 0.25 * short)
    evalbias_command("audit", *asked, "--out", "audited", cwd=tmp_path)


def test_a_metric_of_a_rubric_says_what_each_criterion_got():
    rubric = Rubric([POLITE, SHORT])
    judged = dspy.Prediction(score=2.0, scores={"polite": 3.0, "short": 1.0}, coverage=1.0)
    rubric.batch = lambda examples, **options: [judged]
    told = judge_metric(rubric)(dspy.Example(source="s"), dspy.Prediction(output="o"), pred_name="write")
    assert told.score == 0.5
    said = "The output got 2.00 on quality, from 1 (worst) to 3 (best): 3.00 on polite (weight 0.5"
    assert told.feedback.startswith(said)


test_what_makes_no_rubric_is_refused = refusals(
    lambda make: make(),
    (lambda: Rubric([POLITE]), "two or more criteria of different names"),
    (lambda: Rubric([POLITE, POLITE]), "two or more criteria of different names"),
    (lambda: Rubric([POLITE, Criterion("short", "is it?")]), "one scale"),
    (lambda: Rubric([POLITE, SHORT], weights=[1]), "with 1 weights"),
    (lambda: Rubric([POLITE, SHORT], weights=[1, -1]), "a weight of at least 0"),
    (lambda: Rubric([POLITE, SHORT], weights=[0, 0]), "one of them more"),
)
