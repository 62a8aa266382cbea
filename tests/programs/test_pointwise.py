import json
import math

import dspy
import numpy as np
import pytest
from fakes import FormulaLM
from texts import writer

from evalbias.evaluation.judged import judge_examples
from evalbias.lm.types import ChoiceLogprobs, PromptTooLong
from evalbias.programs import Criterion, PointwiseJudge, judge_metric, label_of, labeled, load_judge
from evalbias.programs.judges import UnlabeledDemos, written_score

C = Criterion("quality", "is it good?")


def item(quality, rarity, **more):
    return dspy.Example(source="s", output=f"q={quality} z={rarity}", **more).with_inputs("source", "output")


def test_the_expected_score_is_equation_7_worked_by_hand():
    shares = np.array([[0.1, 0.0, 0.2, 0.0, 0.1]])
    with np.errstate(divide="ignore"):
        row = PointwiseJudge(C)._row(ChoiceLogprobs(C.labels, np.log(shares)))
    # (1 * .1 + 3 * .2 + 5 * .1) / .4 = 1.2 / .4
    assert row["score"] == pytest.approx(3.0)
    assert row["coverage"] == pytest.approx(0.4)
    assert row["distribution"] == pytest.approx({"1": 0.25, "2": 0, "3": 0.5, "4": 0, "5": 0.25})
    assert row["mode"] == 3


def test_labels_without_probability_are_undefined():
    row = PointwiseJudge(C)._row(ChoiceLogprobs(C.labels, np.full((1, 5), -np.inf)))
    assert math.isnan(row["score"])
    assert math.isnan(row["mode"])
    assert row["coverage"] == 0


def test_renormalized_answers_have_no_coverage():
    row = PointwiseJudge(C)._row(ChoiceLogprobs(C.labels, np.log(np.full((1, 5), 0.2)), renormalized=True))
    assert row["score"] == pytest.approx(3.0)
    assert math.isnan(row["coverage"])


@pytest.mark.parametrize(
    ("text", "score"),
    [
        *(("4", 4), (" 5.\n", 5), ("none", None), ("9", None), ("", None), ("4.5", None), ("-4", None)),
        *(("I say 3 of 5", 3), ("4/5", 4), ("4 out of 5", 4), ("On a scale of 1 to 5: 4", 4), ("1-5: 2", 2)),
        *(("I would not give it 5. Score: 2", None), ("4 or 5", None), ("4 out of 10", None), ("Yes, 4. So: 4", 4)),
    ],
)
def test_direct_scoring_reads_the_one_score_that_is_named(text, score):
    parsed = written_score(C, text)
    assert math.isnan(parsed) if score is None else parsed == score


def test_batch_keeps_the_order_and_reports_progress():
    seen = []
    judge = PointwiseJudge(C)
    predictions = judge.batch([item(q, 0) for q in (5, 1, 3)], lm=FormulaLM(), progress=seen.append, chunk=2)
    assert [p.mode for p in predictions] == [5, 1, 3]
    assert [p.coverage for p in predictions] == pytest.approx([0.5] * 3)
    assert seen == [2, 1]
    assert judge.batch([], lm=FormulaLM()) == []


def test_batch_accepts_the_options_of_dspys_batch():
    given = [item(1, 0)]
    (prediction,) = PointwiseJudge(C).batch(given, lm=FormulaLM(), num_threads=4, disable_progress_bar=True)
    assert prediction.mode == 1
    with pytest.raises(TypeError, match="'threads'"):
        PointwiseJudge(C).batch(given, lm=FormulaLM(), threads=4)
    with pytest.raises(TypeError, match="return_failed_examples is not needed"):
        PointwiseJudge(C).batch(given, lm=FormulaLM(), return_failed_examples=True)
    with pytest.raises(ValueError, match="'output' of the item 'seven' is empty: give a text"):
        PointwiseJudge(C).batch([dspy.Example(id="seven", source="s", output="")], lm=FormulaLM())


class Short(FormulaLM):
    """Refuses a call with a prompt of over 500 characters, as models do: before it answers any."""

    def choice_logprobs(self, prompts, choices):
        long = [i for i, p in enumerate(prompts) if len(p[-1]["content"]) > 500]
        if long:
            raise PromptTooLong(dict.fromkeys(long, "has 99 tokens, but the model's context is 64."))
        return super().choice_logprobs(prompts, choices)


def test_an_item_that_is_too_long_is_undefined_named_and_costs_no_other(caplog):
    examples = [item(1 + k % 5, 0, id=f"i{k}") for k in range(9)]
    expected = PointwiseJudge(C).batch(examples, lm=FormulaLM())
    for k in (3, 6):
        examples[k].source = "s" * 600
    predictions = PointwiseJudge(C).batch(examples, lm=Short())
    for k, (prediction, other) in enumerate(zip(predictions, expected, strict=True)):
        if k in (3, 6):
            assert np.isnan([prediction.score, prediction.mode, prediction.coverage]).all()
            assert set(prediction.distribution) == set(other.distribution)
            assert prediction.undefined.startswith(f"The prompt of the item 'i{k}' has 99 tokens, but")
        else:
            assert prediction.toDict() == other.toDict()
    (record,) = caplog.records
    assert "'i3'" in record.message
    assert "The same holds for 1 more." in record.message


def test_an_item_that_is_too_long_can_be_an_error():
    examples = [item(2, 0, id=f"i{k}") for k in range(9)]
    examples[6].source = "s" * 600
    with pytest.raises(PromptTooLong, match=r"^The prompt of the item 'i6' has 99 tokens"):
        PointwiseJudge(C).batch(examples, lm=Short(), refused="raise")
    with pytest.raises(ValueError, match="refused='drop' is unknown: choose 'undefined' or 'raise'"):
        PointwiseJudge(C).batch(examples, lm=Short(), refused="drop")


def test_a_measurement_leaves_an_item_out_that_is_too_long():
    examples = [item(1 + k % 5, 0, id=f"i{k}", scores={C.name: 1.0 + k % 5}) for k in range(9)]
    examples[6].source = "s" * 600
    judged = judge_examples(PointwiseJudge(C), examples, lm=Short())
    assert np.flatnonzero(np.isnan(judged.answers)).tolist() == [6]


@pytest.mark.parametrize("field", ["source", "output"])
def test_a_lone_surrogate_is_refused_by_name(field):
    bad = item(1, 0, id="i7").copy(**{field: "caf\ud83d"})
    with pytest.raises(ValueError, match=rf"'{field}' of the item 'i7' holds the lone surrogate U\+D83D at"):
        PointwiseJudge(C).batch([item(1, 0), bad], lm=FormulaLM())


def test_a_metric_says_which_field_is_missing():
    metric = judge_metric(PointwiseJudge(C), output="answer")
    with pytest.raises(ValueError, match=r"no 'answer' among \['output'\]: name the field with output="):
        metric(dspy.Example(source="s"), dspy.Prediction(output="x"))


def test_batch_without_a_model_says_what_to_do():
    with pytest.raises(TypeError, match=r"dspy\.configure"):
        PointwiseJudge(C).batch([item(1, 0)])


@pytest.mark.parametrize("given", [[("a", "b")], [{"source": "a", "output": "b"}], ["a"]])
def test_what_is_no_example_is_refused(given):
    judge = PointwiseJudge(C)
    for judged in (judge.batch, lambda items, lm: judge_examples(judge, items, lm=lm)):
        with pytest.raises(ValueError, match=r"The example 0 is a \w+: give dspy\.Example"):
            judged(given, lm=FormulaLM())


@pytest.mark.parametrize("field", ["source", "output"])
def test_an_empty_text_is_refused(field):
    bad = dspy.Example(**{"source": "s", "output": "q=1 z=0", field: " "})
    with pytest.raises(ValueError, match=f"'{field}' of the item '0' is empty"):
        PointwiseJudge(C).batch([bad], lm=FormulaLM())


def test_an_unknown_scoring_is_refused():
    with pytest.raises(ValueError, match="scoring='mean' is unknown"):
        PointwiseJudge(C, scoring="mean")


def test_demonstrations_show_the_nearest_label():
    judge = PointwiseJudge(C)
    judge.predict.demos = [item(2, 0, score=3.75, extra="kept out of the prompt")]
    roles = [(m["role"], m["content"]) for m in judge.messages(item(1, 0))[1:]]
    assert roles[:2] == [("user", "Source: s\nOutput: q=2 z=0\nQuality:"), ("assistant", "4")]


def test_a_demonstration_without_a_score_is_refused():
    judge = PointwiseJudge(C)
    judge.predict.demos = [item(2, 0, scores={"quality": 3.2})]
    with pytest.raises(ValueError, match="has no score: label the training set"):
        judge.messages(item(1, 0))


def test_a_pipelines_examples_are_no_demonstrations_of_the_judge_in_it():
    class Pipeline(dspy.Module):
        def __init__(self):
            super().__init__()
            self.write, self.judge = dspy.Predict("question -> answer"), PointwiseJudge(C)

        def forward(self, question):
            return self.judge(source=question, output="q=4 z=0")

    examples = [dspy.Example(question="2 + 2?", answer="4").with_inputs("question")] * 2
    compiled = dspy.LabeledFewShot(k=2).compile(Pipeline(), trainset=examples)
    assert len(compiled.judge.predict.demos) == 2
    with pytest.warns(UnlabeledDemos, match="2 of 2 demonstrations are not shown to the judge of quality"):
        (batched,) = compiled.judge.batch([item(4, 0)], lm=FormulaLM())
    assert batched.score == PointwiseJudge(C).batch([item(4, 0)], lm=FormulaLM())[0].score
    compiled.set_lm(writer(lambda *_: {"4": 0.999, "a": 0.001}, top=2)[0])
    with pytest.warns(UnlabeledDemos):
        assert compiled(question="2 + 2?").score == pytest.approx(4, abs=0.01)


def test_a_saved_judge_keeps_its_criterion_and_holds_no_model(tmp_path):
    judge = PointwiseJudge(Criterion("wit", "is it funny?", (0, 3), task="Tell a joke."), scoring="direct")
    judge.predict.demos = [dspy.Example(source="s", output="o", score=2.0)]
    judge.predict.signature = judge.predict.signature.with_instructions("Be strict.")
    judge.save(str(tmp_path / "judge.json"))
    loaded = load_judge(tmp_path / "judge.json")
    assert loaded.criterion == judge.criterion
    assert loaded.scoring == "direct"
    assert loaded.messages(item(1, 0)) == judge.messages(item(1, 0))
    assert json.loads((tmp_path / "judge.json").read_text())["predict"]["lm"] is None


def test_loading_something_else(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(ValueError, match=r"a\.json is not a saved pointwise judge"):
        load_judge(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"b\.json is not a saved pointwise judge: it is not JSON"):
        load_judge(tmp_path / "b.json")
    with pytest.raises(FileNotFoundError):
        load_judge(tmp_path / "c.json")


def test_labeled_makes_a_training_set_for_any_dspy_optimizer():
    (example,) = labeled([item(1, 0, scores={"quality": 70.0})], C, bins=(15, 40, 65, 90))
    assert example.score == 4.0
    assert label_of(example.score, C) == "4"
    assert set(example.inputs().keys()) == {"source", "output"}
    with pytest.raises(ValueError, match=r"has no score on 'quality', only on \['wit'\]"):
        labeled([item(1, 0, scores={"wit": 1})], C)
