"""Judges as metrics of DSPy's evaluation and of GEPA, and metrics that compare a judge with people."""

import asyncio
import json
import math
import warnings

import dspy
import pytest
from models_of_text import Scripted, Seeded, refusing
from refusals import refusals
from texts import writer

from evalbias import PairwiseJudge, PointwiseJudge, agreement_feedback, data, judge_metric, preference_accuracy
from evalbias.lm.types import PromptRefused
from evalbias.programs import Criterion, JudgeFeedback, Jury, SelfRefine, labeled, preference_metric, score_closeness
from evalbias.programs.items import preference_label
from evalbias.programs.judges import OwnTexts
from evalbias.programs.writing import PlainPredict

C = Criterion("quality", "is it good?")
ITEM = dspy.Example(id="7", source="s", reference="gold").with_inputs("source")
PAIR = dspy.Example(id="7", source="s", candidates=["a", "b"], preference="B").with_inputs("source", "candidates")
RATED = dspy.Example(id="7", source="s", output="x", score=4).with_inputs("source", "output")
REASONED = RATED.copy(reason="It says all the data.\n")
UNDEFINED = dspy.Prediction(score=math.nan, preference=None, gap=math.nan)
CLOSE = {3.4: False, 3.5: 0.875, 4.4: 0.9, math.nan: False}  # of 4, on a scale from 1 to 5


class Told(PointwiseJudge):  # gives the score that its output names
    def forward(self, source, output):
        score = math.nan if output == "?" else float(output)
        shares = {label: float(label == "4") for label in C.labels}
        return dspy.Prediction(score=score, mode=score if score != score else 4.0, distribution=shares)


class Compared(PairwiseJudge):
    def forward(self, source, candidates):
        return dspy.Prediction(win_share=float(candidates[0]), consistent=False)


def test_one_undefined_judgment_is_counted_and_does_not_make_an_evaluation_undefined(caplog):
    outputs = iter(["5", "?", "3"])
    metric = judge_metric(Told(C))
    evaluate = dspy.Evaluate(devset=[ITEM] * 3, metric=metric, num_threads=1)
    assert evaluate(lambda source: dspy.Prediction(output=next(outputs))).score == 50  # (1 + 0 + .5) / 3
    assert metric.undefined_items == ["7"]
    assert "item '7' is undefined and counts as 0 (1 so far)" in caplog.text
    closeness = score_closeness(C)
    assert [closeness(RATED, UNDEFINED) for _ in range(2)] == [0, 0]
    assert closeness.undefined_items == ["7", "7"]
    assert preference_metric(Compared(C), undefined=0.25)(ITEM, dspy.Prediction(output="nan")) == 0.25
    assert math.isnan(judge_metric(Told(C), undefined=math.nan)(ITEM, dspy.Prediction(output="?")))
    assert math.isnan(score_closeness(C, undefined=math.nan)(RATED, UNDEFINED))
    assert math.isnan(preference_accuracy(PAIR, UNDEFINED, undefined=math.nan))


FEEDBACK = {
    "judged": (judge_metric(Told(C)), ITEM, {"output": "3.5"}, 0.625),
    "compared": (preference_metric(Compared(C)), ITEM, {"output": ".25"}, 0.25),
    "not judged": (judge_metric(Told(C)), ITEM, {"output": "?"}, 0),
    "not compared": (preference_metric(Compared(C)), ITEM, {"output": "nan"}, 0),
    "right": (preference_accuracy, PAIR, {"preference": 1, "gap": 2.0}, 1),
    "wrong": (preference_accuracy, PAIR, {"preference": "A", "gap": 2.0}, 0),
    "a tie": (preference_accuracy, PAIR, {"preference": None, "gap": 0.0}, 0.5),
    "no preference": (preference_accuracy, PAIR, {"preference": None, "gap": math.nan}, 0),
    "too low": (score_closeness(C), RATED, {"score": 2.5}, 0.625),
    "too high": (score_closeness(C), RATED, {"score": 5.0}, 0.75),
    "as people": (score_closeness(C), RATED, {"score": 4.0}, 1),
    "no score": (score_closeness(C), RATED, {"score": math.nan}, 0),
    "too low, and why": (agreement_feedback(PointwiseJudge(C)), REASONED, {"score": 1.0}, 0.25),
    "wrong, and why": (agreement_feedback(PairwiseJudge(C)), PAIR.copy(reason="It is true."), {"preference": 0}, 0),
}


@pytest.mark.parametrize("case", FEEDBACK)
def test_a_metric_tells_gepa_its_value_and_why(case, snapshot):
    metric, example, answer, value = FEEDBACK[case]
    told = metric(example, dspy.Prediction(answer), [], "predict", [])
    assert told.score == metric(example, dspy.Prediction(answer)) == value
    assert told.feedback == snapshot


def writes(*outputs):
    """Return a program that writes prepared outputs in turn."""
    program = PlainPredict("source -> output")
    program.set_lm(Scripted(*outputs))
    return program


@pytest.mark.parametrize(("metric", "options", "outputs", "taken"), [
    (judge_metric(Told(C)), {}, ["1", "1.08", "2.9", "?"], []),
    (judge_metric(Told(C)), {}, ["1.08", "3", "5", "?"], ["3", "5"]),
    (judge_metric(Told(C)), {"metric_threshold": 0.7}, ["3", "3.8", "5"], ["3.8", "5"]),
    (judge_metric(Told(C), threshold=0.8), {}, ["4.1", "4.2"], ["4.2"]),
    (judge_metric(Told(C), threshold=0.01, undefined=math.nan), {}, ["?", "1", "1.1"], ["1.1"]),
    (preference_metric(Compared(C)), {}, [".49", "nan", ".5", ".7"], [".5", ".7"]),
    (preference_metric(Compared(C), threshold=0.7), {}, [".69", ".7"], [".7"]),
])  # fmt: skip
def test_only_what_the_judge_lets_pass_becomes_a_demonstration(metric, options, outputs, taken):
    boot = dspy.BootstrapFewShot(metric, max_bootstrapped_demos=4, max_labeled_demos=0, **options)
    items = [ITEM.copy(source=f"s{number}") for number in range(len(outputs))]
    assert [demo.output for demo in boot.compile(writes(*outputs), trainset=items).predict.demos] == taken


@pytest.mark.parametrize("metric", [score_closeness(C), agreement_feedback(PointwiseJudge(C))])
def test_a_judge_is_shown_what_it_answered_as_people_did(metric):
    assert [metric(RATED, dspy.Prediction(score=score), []) for score in CLOSE] == pytest.approx([*CLOSE.values()])
    for chosen in (preference_accuracy, agreement_feedback(PairwiseJudge(C))):
        assert [chosen(PAIR, dspy.Prediction(preference=one, gap=0.0), []) for one in ("A", "B", None)] == [0, 1, 0]


@pytest.mark.parametrize("threshold", [0, -1, 3, math.nan])
def test_a_threshold_is_on_the_scale_of_the_value(threshold):
    with pytest.raises(ValueError, match=r"threshold=.*: give a number above 0 and at most 1"):
        judge_metric(Told(C), threshold=threshold)


def test_best_of_n_takes_an_output_that_the_judge_can_score():
    reward = judge_metric(Told(C))
    assert [reward({"source": "s"}, dspy.Prediction(output=text)) for text in ("?", "3", "?")] == [0, 0.5, 0]
    assert reward.undefined_items == ["0", "1"]  # inputs have no id
    best = dspy.BestOfN(module=writes("?", "2", "4", "?"), N=4, reward_fn=reward, threshold=1.0)
    assert best(source="s").output == "4"
    silent = dspy.BestOfN(module=writes("?"), N=2, reward_fn=judge_metric(Told(C)), threshold=1.0)
    assert silent(source="s").output == "?"


LONG = "word " * 2000  # the tiny models' context is 256 tokens
BAD = {
    **dict.fromkeys(("", " \n"), "The output cannot be judged: it is empty."),
    None: "The output cannot be judged: it is None.",
    "a\ud800": "The output cannot be judged: it holds",
    ("a", "b"): "The output cannot be judged: it is a tuple, not a text",
    LONG: "tokens, but the model's context is 256",
}
"""Outputs that cannot be judged, and what the reason says."""


def measured(judge, lms):
    judge.predict.lm = lms["llama"]
    return judge


def measuring_metrics(lms, **options):
    compares = measured(PairwiseJudge(C, debias="permutation"), lms)
    return judge_metric(measured(PointwiseJudge(C), lms), **options), preference_metric(compares, **options)


@pytest.mark.parametrize("kind", range(2), ids=["pointwise", "pairwise"])
@pytest.mark.parametrize("text", BAD, ids=["empty", "blank", "none", "surrogate", "tuple", "long"])
def test_an_output_that_cannot_be_judged_is_undefined_and_told_once(lms, caplog, text, kind):
    metric = measuring_metrics(lms, undefined=0.25)[kind]
    devset = [ITEM.copy(id=str(k)) for k in range(4)]
    outputs = {"0": "fine", "1": text, "2": text, "3": "fine"}

    def value(example, *given):
        return metric(example, dspy.Prediction(output=outputs[example.id]), *given)

    evaluate = dspy.Evaluate(devset=devset, metric=lambda e, p, trace=None: value(e), num_threads=2, max_errors=1)
    result = evaluate(lambda source: dspy.Prediction())
    expected = [value(devset[0]), 0.25, 0.25, value(devset[3])]
    assert [row[2] for row in result.results] == pytest.approx(expected, abs=1e-6)
    assert sorted(metric.undefined_items) == ["1", "2"]
    lines = [record.message for record in caplog.records if record.name == "evalbias.programs.metrics"]
    assert sorted(line.partition("'")[2][0] for line in lines if BAD[text] in line) == ["1", "2"]
    assert all("is undefined and counts as 0.25" in line for line in lines)
    told = value(devset[1], None, "predict", None)
    assert (told.score, BAD[text] in told.feedback) == (0.25, True)


def test_a_draw_that_cannot_be_judged_loses_to_one_that_can(lms):
    reward = measuring_metrics(lms, undefined=-1.0)[0]
    with dspy.context(lm=Scripted('{"discussion": "d", "advice": {}}'), adapter=dspy.JSONAdapter()):
        refined = dspy.Refine(module=writes("", "fine"), N=2, reward_fn=reward, threshold=2.0)(source="s")
    assert refined.output == "fine"
    assert len(reward.undefined_items) == 1


def test_each_factory_takes_its_kind_of_judge_and_a_reason_is_a_text():
    with pytest.raises(TypeError, match="PointwiseJudge, not a PairwiseJudge"):
        judge_metric(PairwiseJudge(C))
    with pytest.raises(TypeError, match="PairwiseJudge, not a PointwiseJudge"):
        preference_metric(PointwiseJudge(C))
    with pytest.raises(ValueError, match=r"'reason' of the item '7' is \['a'\]: give people's reason as a text"):
        agreement_feedback(PairwiseJudge(C))(PAIR.copy(reason=["a"]), dspy.Prediction(preference=0))
    with pytest.raises(TypeError, match="PointwiseJudge, not a Predict"):
        agreement_feedback(dspy.Predict("source -> output"))


def test_what_a_program_retrieved_is_read_from_its_prediction(lms):
    judge = PointwiseJudge(C, inputs={"question": "Question", "context": "Context", "answer": "Answer"})
    judge.predict.lm, asked = lms["llama"], dspy.Example(question="q")
    value = judge_metric(judge)(asked, dspy.Prediction(context="c", answer="a"))
    assert value == judge_metric(judge)(asked.copy(context="c"), dspy.Prediction(context="other", answer="a"))
    with pytest.raises(ValueError, match=r"no 'context' among \['question'\]: add it to the example or the prediction"):
        judge_metric(judge)(asked, dspy.Prediction(answer="a"))


OTHER = {  # what another program returns, and the error of each metric
    "text": r"There is no '\w+' in 'text': let the program return dspy.Prediction\(\w+=...\)",
    None: r"There is no '\w+' in None: let the program return dspy.Prediction\(\w+=...\)",
    dspy.Prediction(other="x"): r"There is no '\w+' among \['other'\]: ",
}


@pytest.mark.parametrize("returned", OTHER)
@pytest.mark.parametrize("metric", [judge_metric(Told(C)), score_closeness(C), agreement_feedback(PairwiseJudge(C))])
def test_what_a_program_should_return_is_said(metric, returned):
    with pytest.raises((TypeError, ValueError), match=OTHER[returned]):
        metric(PAIR.copy(source="s", score=3), returned)


MISTAKES = [
    (0, {}, {"text": "fine"}, r"There is no 'output' among \['text'\]: name the field with output="),
    (0, {"question": "s"}, {"output": "fine"}, "There is no 'source' among"),
    (0, {"source": " "}, {"output": "fine"}, "'source' of the item '7' is empty: give a text"),
    (1, {"source": "s", "reference": None}, {"output": "fine"}, "'reference' of the item '7' is None: give a text"),
    (1, {"source": "s", "reference": math.nan}, {"output": "fine"}, "'reference' of the item '7' is nan: give a text"),
]


@pytest.mark.parametrize(("kind", "example", "answer", "message"), MISTAKES)
def test_mistakes_in_the_settings_are_errors(lms, kind, example, answer, message):
    with pytest.raises(ValueError, match=message):
        measuring_metrics(lms)[kind](dspy.Example(id="7", **example), dspy.Prediction(answer))


def test_errors_of_the_model_are_errors_of_the_metric():
    broken = PointwiseJudge(C)
    with pytest.raises(ValueError, match="No LM is loaded"):
        judge_metric(broken)(ITEM, dspy.Prediction(output="fine"))
    broken.predict.lm = Scripted(dspy.lm15.AuthError("no key"))
    with pytest.raises(Exception, match="no key"):
        judge_metric(broken)(ITEM, dspy.Prediction(output="fine"))


@pytest.mark.parametrize("scoring", ["expected", "sampled"])
def test_a_single_judgment_refuses_a_long_prompt_as_a_batch_does(lms, scoring):
    judge, item = PointwiseJudge(C, scoring=scoring), dspy.Example(source="s", output=LONG)
    judge.predict.lm = lms["llama"]
    awaited, batched = lambda: asyncio.run(judge.acall(**item)), lambda: judge.batch([item], refused="raise")
    for call in (lambda: judge(**item), awaited, batched):
        with pytest.raises(PromptRefused, match="tokens, but the model's context is 256"):
            call()


def test_a_provider_that_refuses_a_long_prompt_leaves_the_judgment_undefined():
    judge, lm = PointwiseJudge(C), writer(lambda *_: {"2": 0.5, "3": 0.5}, top=2)[0]
    judge.predict.lm = refusing(lm, "fine", dspy.lm15.ContextLengthError("at most 8192 tokens"))
    metric = judge_metric(judge)
    assert metric(ITEM, dspy.Prediction(output="fine"), None, "predict", None).score == 0
    assert metric.undefined_items == ["7"]
    (batched,) = judge.batch([dspy.Example(id="7", source="s", output="fine")])
    assert math.isnan(batched.score)
    assert "at most 8192 tokens" in batched.undefined


GEPA = {
    "a score": (lambda lms: (writes("0.5"), judge_metric(Told(C)), ITEM), "The question was: is it good?"),
    "a comparison": (lambda lms: (writes("0.5"), preference_metric(Compared(C)), ITEM), "The question was: is it go"),
    "no judgment": (lambda lms: (writes(LONG), measuring_metrics(lms)[0], ITEM), "but the model's context is 256"),
    "labels": (lambda lms: (measured(PointwiseJudge(C), lms), score_closeness(C), RATED), "people scored 4"),
    "preferences": (lambda lms: (measured(PairwiseJudge(C), lms), preference_accuracy, PAIR), "people prefer B"),
}


@pytest.mark.parametrize("case", GEPA)
def test_gepa_reflects_on_the_feedback(lms, case):
    make, told = GEPA[case]
    program, metric, example = make(lms)
    reflection = Scripted('{"new_instruction": "Write better."}')
    optimizer = dspy.GEPA(metric=metric, max_metric_calls=8, reflection_lm=reflection, num_threads=1)
    optimizer.compile(program, trainset=[example] * 3, valset=[example] * 2)
    assert told in reflection.asked[0]


@pytest.mark.parametrize("inside", [False, True], ids=["a judge", "a program of a judge alone"])
def test_gepa_rewrites_the_question_that_a_judge_asks(inside):
    judge = PointwiseJudge(C)
    metric = agreement_feedback(judge)
    reflection = Scripted(json.dumps({"new_instruction": f"Be strict.\n{judge.answer_format}"}))
    optimizer = dspy.GEPA(metric=metric, max_metric_calls=12, reflection_lm=reflection, num_threads=1)
    program = judge
    if inside:
        program = dspy.Module()
        program.judge, program.forward = judge, judge.forward
        with pytest.raises(ValueError, match="seed_candidate must contain at least one component text"):
            optimizer.compile(program, trainset=[REASONED] * 3)  # a judge is closed to optimizers of others
        judge.tunable = True
    lm, engine = writer(lambda _, system: {"4" if "Be strict" in system else "5": 0.9, "1": 0.1}, top=2)
    judge.set_lm(lm)
    better = optimizer.compile(program, trainset=[REASONED] * 3)
    better = better.judge if inside else better
    assert "They say: It says all the data." in reflection.asked[0]
    assert f"End the instruction with these words: {judge.answer_format}" in reflection.asked[0]
    assert better(source="s", output="x").mode == 4
    assert engine.requests[-1].system == f"Be strict.\n{judge.answer_format}"


@pytest.mark.parametrize(("reason", "told"), [(None, ""), (math.nan, ""), (" ", ""), (" so\n", " They say: so")])
def test_an_example_may_have_no_reason(reason, told):
    judge = PointwiseJudge(C)
    judge.predict.signature = judge.predict.signature.with_instructions("Is it good, from 1 to 5?")
    metric = agreement_feedback(judge, reason="why")
    found = metric(RATED.copy(why=reason, reason="no"), dspy.Prediction(score=4.0), None, "predict")
    assert found.feedback == f"The judge scored 4 on quality where people scored 4: as people did.{told}"


def judged_twice(kind, judge, program):
    """Have two outputs of the program judged."""
    if kind == "a loop":
        return SelfRefine(program, JudgeFeedback(judge), program, max_iterations=1)(source="s")
    items = [ITEM.copy(source=f"s{number}") for number in range(2)]
    metric = preference_metric(judge) if kind == "a comparison" else judge_metric(judge)
    if kind == "a reward":
        return dspy.BestOfN(module=program, N=2, reward_fn=metric, threshold=2.0)(source="s")
    if kind == "demonstrations":
        return dspy.BootstrapFewShot(metric, max_labeled_demos=0).compile(program, trainset=items)
    return dspy.Evaluate(devset=items, metric=metric, num_threads=2)(program)


@pytest.mark.parametrize("own", [True, False], ids=["its model", "another model"])
@pytest.mark.parametrize("kind", ["a score", "a comparison", "a jury", "a reward", "demonstrations", "a loop"])
def test_a_judge_of_its_own_texts_is_warned_of_once(kind, own):
    lm, _ = writer(lambda *_: {"4": 0.5, "B": 0.3, "A": 0.2}, top=3)
    program, judge = PlainPredict("source -> output"), (PairwiseJudge if kind == "a comparison" else PointwiseJudge)(C)
    program.set_lm(lm if own else Seeded())
    judge.set_lm(lm)
    judge = Jury([judge, judge]) if kind == "a jury" else judge
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        judged_twice(kind, judge, program)
    said = [str(one.message).partition(":")[0] for one in caught if one.category is OwnTexts]
    assert said == [f"{lm.model} judges what it wrote itself, and models tend to prefer their own texts"] * own


# A pairwise judge where DSPy wants a metric.


def test_the_probability_of_beating_the_reference(lms):
    program = measured(PairwiseJudge(C, debias="permutation"), lms)
    metric = preference_metric(program, output="answer", reference="gold")
    example = dspy.Example(source="a source", gold="one text").with_inputs("source")
    won = metric(example, dspy.Prediction(answer="another text"))
    lost = metric(dspy.Example(source="a source", gold="another text"), dspy.Prediction(answer="one text"))
    assert won + lost == pytest.approx(1, abs=1e-5)
    assert metric(example, dspy.Prediction(answer="one text")) == 0.5
    assert metric(example, dspy.Prediction(answer=None)) == 0


def test_pairs_are_labeled_by_people_unless_they_rate_both_alike_and_a_tie_is_one_in_both_orders():
    rated = enumerate([1, 2, 2, math.nan])
    items = [dspy.Example(id=str(k), source="s", output=f"o{k}", scores={"quality": q}) for k, q in rated]
    labels = {(*p.ids, p.preference) for p in data.pairs(items, criterion="quality", seed=0)}
    assert labels == {("0", "1", "B"), ("1", "0", "A"), ("0", "2", "B"), ("2", "0", "A")}
    tied = labeled_pair(preference="tie", better=-1)
    assert [(p.preference, p.better) for p in data.pairs([tied], ordered=True, seed=0)] == [("tie", -1)] * 2


def closeness(fields):
    return score_closeness(C)(dspy.Example(id="7", **fields), dspy.Prediction(score=3.0))


test_a_score_that_people_did_not_give_is_an_error = refusals(
    closeness,
    *(({"score": score}, "'7' .*is undefined: leave") for score in (math.nan, None)),
    ({"scores": {"quality": None}}, "'7' .*is undefined: leave"),
    *((one, "'7' .*is 80, outside the scale from 1 to 5") for one in ({"score": 80}, {"scores": {"quality": 80}})),
    *((fields, "'7' .*has no score on") for fields in ({}, {"scores": {"wit": 3}})),
    ({"score": "good"}, "'7' .*is 'good': give a number"),
)


def test_scores_by_criterion_count_and_a_label_comes_before_them():
    assert closeness({"score": 4}) == closeness({"scores": {"quality": 4, "wit": 1}}) == 0.75
    rated = dspy.Example(id="7", source="s", output="o", scores={"quality": 80})
    (example,) = labeled([rated], C, bins=[20, 40, 60, 90])
    assert score_closeness(C)(example, dspy.Prediction(score=3.0)) == 0.75  # the label is 4


# Labels of pairs mean the same in every code, for metrics, demonstrations and data.


CODES = {"A": ("A", "a", 0, "0", 0.0, " a "), "B": ("B", "b", 1, "1", 1.0), "Tie": ("Tie", "tie", "TIE", -1, "-1")}
CODES |= {None: (None, "", float("nan"))}


def labeled_pair(**label):
    return dspy.Example(id="7", source="s", candidates=["x", "y"], **label).with_inputs("source", "candidates")


@pytest.mark.parametrize(("answer", "code"), [(answer, code) for answer, codes in CODES.items() for code in codes])
def test_every_code_is_read(answer, code):
    assert preference_label(labeled_pair(preference=code)) == answer
    assert preference_label(labeled_pair(better=code)) == answer
    assert preference_label(labeled_pair(preference=None, better=code)) == answer
    assert preference_label(dspy.Example(id="7", outputs=["x", "y", "z"], preference="c")) == "C"


@pytest.mark.parametrize("code", ["first", 2, "C", True, ["A"]])
def test_a_label_that_is_no_choice_is_an_error(code):
    message = "'preference' of the item '7' is "
    with pytest.raises(ValueError, match=message):
        preference_label(labeled_pair(preference=code))
    with pytest.raises(ValueError, match=message):
        preference_accuracy(labeled_pair(preference=code), dspy.Prediction(preference=0, gap=0.3))
    judge = PairwiseJudge(C)
    judge.predict.demos = [labeled_pair(preference=code)]
    with pytest.raises(ValueError, match=message):
        judge.messages(labeled_pair())


@pytest.mark.parametrize(
    ("label", "values"), [("A", [1, 1, 0, 0, 0.5, 0.5]), (" a ", [1, 1, 0, 0, 0.5, 0.5]), ("tie", [0, 0, 0, 0, 1, 1])]
)
def test_a_judge_that_agrees_is_right_and_only_one_without_a_preference_agrees_with_a_tie(label, values):
    answers = [dspy.Prediction(preference=one, gap=0.3) for one in (0, "A", 1, "B", None, "Tie")]
    for example in (labeled_pair(preference=label), dspy.Example(preference=label)):
        assert [preference_accuracy(example, answer) for answer in answers] == values


def test_the_accuracy_needs_a_label_and_a_demonstration_one_that_the_judge_answers():
    with pytest.raises(ValueError, match=r"The item .\{'id': None\}. has no label"):
        preference_accuracy(dspy.Example(id=None), dspy.Prediction(preference=0, gap=0.3))
    with pytest.raises(ValueError, match="The item '7' has no label: give preference='A' or 0 for the first candidate"):
        preference_accuracy(labeled_pair(), dspy.Prediction(preference=0, gap=0.3))
    judge = PairwiseJudge(C)
    for label, fault in ((-1, "is labeled 'Tie'"), (None, "has no label")):
        judge.predict.demos = [labeled_pair(preference=label)]
        with pytest.raises(ValueError, match=f"The demonstration '7' {fault}, but the judge answers A, B"):
            judge.messages(labeled_pair())


def test_the_texts_of_a_demonstration_may_be_named_outputs():
    judges = [PairwiseJudge(C), PairwiseJudge(C)]
    judges[0].predict.demos = [labeled_pair(preference=1)]
    judges[1].predict.demos = [dspy.Example(source="s", outputs=["x", "y"], better=1)]
    assert judges[0].messages(labeled_pair()) == judges[1].messages(labeled_pair())
    assert judges[0].messages(labeled_pair())[1] == {"role": "assistant", "content": "B"}
    judges[1].predict.demos = [dspy.Example(source="s", output="x", preference="A")]
    with pytest.raises(ValueError, match="The demonstration 's' has no candidates: give pairs"):
        judges[1].messages(labeled_pair())
