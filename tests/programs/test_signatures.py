"""Judges of any fields: a question, a context, a reference and an answer, named by the user or in a signature."""

import json
import subprocess
import sys
from functools import partial
from typing import Literal

import dspy
import numpy as np
import pytest
from commands import evalbias as evalbias_command
from fakes import Comparer, FormulaLM
from refusals import refusals

import evalbias
from evalbias import data
from evalbias.evaluation import judge_examples
from evalbias.lm.types import ChoiceLogprobs, Likelihood, LogLikelihood
from evalbias.optimizers import Align
from evalbias.optimizers.likelihood import with_demos
from evalbias.options import Items
from evalbias.programs import PRESETS, Criterion, PairwiseJudge, PairwiseRanker, PointwiseJudge, Rubric, judge_metric
from evalbias.programs.items import labeled_as_in_dspy, preference_label
from evalbias.programs.judges import as_judged, read_for
from evalbias.programs.metrics import agreement_feedback, labeled
from evalbias.programs.prompts import likelihood_messages

PAIR = {"source": "Where is it?", "candidates": ["Over there.", "Go away."]}
ITEM = {"source": "Where is it?", "output": "Over there."}


def test_prompts_about_a_source_and_an_output_stay_as_they_are(snapshot):
    criteria = [
        Criterion("politeness", "is the reply polite?", output_label="Reply"),
        Criterion("reading_ease", "how easy is it?", (1, 3), levels=("hard", "fair", "easy")),
        *(PRESETS[name][0] for name in ("webnlg2020", "summeval", "tmu-gfm")),
    ]
    prompts = []
    for criterion in criteria:
        for language in ("en", "ja"):
            scores = PointwiseJudge(criterion, language=language)
            scores.predict.demos = [dspy.Example(**ITEM, score=3.0)]
            compares = partial(PairwiseJudge, criterion, language=language)
            first, last = compares(instruction_place="first"), compares(instruction_place="last", ties=True)
            first.predict.demos = [dspy.Example(**PAIR, preference="B")]
            prompts += [scores.messages(ITEM), first.messages(PAIR), last.messages(PAIR)]
            prompts.append(likelihood_messages(scores.criterion, "Where is it?"))
    assert prompts == snapshot


INPUTS = {"question": "Question", "context": "Context", "reference": "Reference answer", "answer": "Answer"}
RIGHT = Criterion("correctness", "is the answer right, by its context?")
ASKED = {"question": "When?", "context": "It opens at noon.", "reference": "At noon.", "answer": "q=4 z=-1"}
OTHERS = {name: text for name, text in ASKED.items() if name != "answer"}


class Graded(dspy.Signature):
    """Grade the answer. Be strict."""

    question: str = dspy.InputField(desc="what the user asked")
    answer: str = dspy.InputField()
    grade: int = dspy.OutputField(ge=1, le=3, desc="how right is it?")


def of(kind, **output):
    fields = {name: (str, dspy.InputField()) for name in ("question", "answer")}
    return dspy.Signature({**fields, "grade": (kind, dspy.OutputField(**output))}, "Grade the answer.")


def test_a_judge_of_four_fields_shows_them_under_their_labels_in_order():
    judge = PointwiseJudge(RIGHT, inputs=INPUTS, judged="answer")
    system, asked = judge.messages(ASKED)
    assert system["content"].startswith("Judge the answer on correctness: is the answer right, by its context?\nAnswer")
    shown = "Question: When?\nContext: It opens at noon.\nReference answer: At noon.\nAnswer: q=4 z=-1\nCorrectness:"
    assert asked["content"] == shown
    assert PointwiseJudge(RIGHT, inputs=INPUTS).judged == "answer"  # the last one
    compares = PairwiseJudge(RIGHT, inputs=INPUTS, judged="answer")
    (asked,) = compares.messages({**OTHERS, "candidates": ["one", "two"]})
    assert asked["content"] == (
        "Question: When?\nContext: It opens at noon.\nReference answer: At noon.\nAnswer A: one\nAnswer B: two\n\n"
        "Question: Which answer is better on correctness: is the answer right, by its context?\nAnswer with A or B.\n"
        "Better correctness:"
    )


def test_calls_batches_and_items_whose_judged_text_is_their_output_are_scored_alike():
    judge, lm = PointwiseJudge(RIGHT, inputs=INPUTS), FormulaLM(bias=0.0)
    judge.predict.demos = [dspy.Example(**{**ASKED, "answer": "q=2 z=0"}, score=2)]
    judge.predict.lm = lm
    # p of label c is exp(-(c - 4)^2): (3 e^-1 + 4 + 5 e^-1 + 2 e^-4 + 1 e^-9) / (2 e^-1 + 1 + e^-4 + e^-9)
    (by_name,) = judge.batch([dspy.Example(**ASKED)])
    assert by_name.score == pytest.approx(3.978, abs=1e-3)
    for given in (dspy.Example(**OTHERS, output=ASKED["answer"]), judge.read(dspy.Example(**ASKED))):
        assert judge.batch([given])[0].toDict() == by_name.toDict()
    assert len({*map(str, lm.judged)}) == 1


def test_the_likelihood_of_the_judged_text_is_after_all_other_inputs():
    judge, lm = PointwiseJudge(RIGHT, inputs=INPUTS), FormulaLM()
    found = judge_examples(judge, [dspy.Example(**ASKED, id="a")], lm=lm, likelihood_lm="own")
    (asked,) = [one for one in lm.questions if isinstance(one, Likelihood)]
    context = "Question: When?\nContext: It opens at noon.\nReference answer: At noon.\nAnswer:"
    assert asked.context[-1]["content"] == context
    assert asked.continuation == ASKED["answer"]
    assert found.covariates["lengths"].tolist() == [8.0]
    assert found.inputs == ("When? Context: It opens at noon. Reference answer: At noon.",)
    names = {"source": "Article", "hint": "Hint", "output": "Summary"}
    own = PointwiseJudge(RIGHT, inputs=names).read(dspy.Example(source="a", hint="b", output="c"))
    assert (own.source, own.all_inputs, own.output) == ("a", "a\nHint: b", "c")
    assert PointwiseJudge(RIGHT, inputs=names).read(own).toDict() == own.toDict()
    text = PointwiseJudge(RIGHT, inputs={"answer": "Answer"})
    judge_examples(text, [dspy.Example(answer="q=4 z=0", id="a")], lm=lm, likelihood_lm="own")
    assert lm.questions[-2].context[-1]["content"] == "Answer:"


def test_a_missing_field_names_the_field_the_item_and_the_fields_that_are_there():
    judge = PointwiseJudge(RIGHT, inputs=INPUTS)
    given = dspy.Example(id="x", question="When?", answer="q=4 z=-1")
    with pytest.raises(ValueError, match="'context' of the item 'x' is missing; it has 'id', 'question', 'answer'"):
        judge.batch([given], lm=FormulaLM())
    with pytest.raises(ValueError, match=r"'answer' of .* is missing; it has 'question', 'context', 'reference'"):
        judge(**OTHERS)
    with pytest.raises(TypeError, match=r"takes the fields 'question', 'context', 'reference', 'answer', not 'source'"):
        judge(source="When?", output="q=4 z=0")
    with pytest.raises(ValueError, match="'source' of the item '0' is missing; it has 'question', 'answer'"):
        PointwiseJudge(RIGHT).batch([dspy.Example(question="When?", answer="q=4 z=-1")], lm=FormulaLM())
    with pytest.raises(ValueError, match="'context' of the item 'x' is missing; it has"):
        PairwiseJudge(RIGHT, inputs=INPUTS).batch([dspy.Example(id="x", question="?", candidates=["a", "b"])], lm="x")


def test_a_signature_keeps_its_instructions_inputs_and_descriptions():
    judge = PointwiseJudge(Graded)
    assert (judge.inputs, judge.judged) == ({"question": "Question", "answer": "Answer"}, "answer")
    assert judge.criterion.labels == ("1", "2", "3")
    assert judge.predict.signature.instructions == (
        "Grade the answer. Be strict.\nQuestion: what the user asked\n"
        "Answer with a whole number from 1 (worst) to 3 (best)."
    )
    assert judge.predict.signature.input_fields["question"].json_schema_extra["desc"] == "what the user asked"
    assert judge.text({"question": "When?", "answer": "Now."}) == "Question: When?\nAnswer: Now.\nGrade:"
    asked = "Grade the answer. Be strict.\nQuestion: what the user asked\nAnswer with {answers}."
    assert PairwiseJudge(Graded).predict.signature.instructions == asked


@pytest.mark.parametrize(("kind", "bounds", "labels", "line"), [
    (int, {"ge": 0, "le": 2}, ("0", "1", "2"), "Answer with a whole number from 0 (worst) to 2 (best)."),
    (float, {"ge": 1, "le": 3}, ("1", "2", "3"), "Answer with a whole number from 1 (worst) to 3 (best)."),
    (bool, {}, ("No", "Yes"), "Answer with Yes or No."),
    (Literal["bad", "fair", "good"], {}, ("bad", "fair", "good"), "Answer with bad, fair or good."),
    (Literal["fail", "pass"], {}, ("fail", "pass"), "Answer with fail or pass."),
    (Literal[1, 2, 3], {}, ("1", "2", "3"), "Answer with a whole number from 1 (worst) to 3 (best)."),
])  # fmt: skip
def test_the_type_of_the_scored_output_is_the_scale(kind, bounds, labels, line):
    judge = PointwiseJudge(of(kind, **bounds))
    assert judge.criterion.labels == labels
    assert judge.answer_format == line
    shares = np.arange(1, len(labels) + 1) / 10
    row = judge._row(ChoiceLogprobs(labels, np.log([shares])))
    values = judge.criterion.values
    assert row["score"] == pytest.approx(sum(v * p for v, p in zip(values, shares, strict=True)) / shares.sum())
    assert row["distribution"] == pytest.approx(dict(zip(labels, shares / shares.sum(), strict=True)))
    assert row["mode"] == values[-1]
    judge.predict.demos = [dspy.Example(question="a", answer="b", score=one) for one in (labels[0], values[-1])]
    shown = judge.messages({"question": "a", "answer": "b"})[2::2]
    assert [message["content"] for message in shown] == [labels[0], labels[-1]]


def test_labels_in_the_output_field_of_a_signature_are_read_as_in_dspy():
    judge = PointwiseJudge(Graded)
    rows = [dspy.Example(question=f"{i}?", answer=f"q={1 + i % 3} z={i % 7}").with_inputs(*INPUTS) for i in range(36)]
    gold = [e.copy(grade=[1, 2, "3"][i % 3]) for i, e in enumerate(rows)]
    metric = agreement_feedback(judge)
    assert [metric(e, dspy.Prediction(score=1.0)) for e in gold[:3]] == [1, 0.5, 0]
    _, _, fit, _, _ = Align(select=False).divide(judge, gold, None)
    assert [e.score for e in fit] == [1 + i % 3 for i in range(36)]
    words = PointwiseJudge(of(Literal["bad", "fair", "good"])).criterion
    told = [rows[0].copy(grade=word) for word in ("bad", "Good ", "great")]
    assert [e.score for e in labeled(told[:2], words)] == [1, 3]
    with pytest.raises(ValueError, match=r"'grade' of the item .* 'great'"):
        labeled(told, words)
    fields = {name: (str, dspy.InputField()) for name in ("source", "output")}
    own = PointwiseJudge(dspy.Signature({**fields, "score": (bool, dspy.OutputField())}, "Is it right?"))
    told = [dspy.Example(source=str(i), output=f"q={i % 2} z=0", score=bool(i % 2)) for i in range(20)]
    _, _, fit, _, _ = Align(select=False).divide(own, told, None)
    assert [e.score for e in fit[:4]] == [0, 1, 0, 1]
    with pytest.raises(ValueError, match=r"'grade' of the item .* True"):
        labeled([rows[0].copy(grade=True)], judge.criterion)  # of 1 to 3
    compares, pair = PairwiseJudge(of(str)).criterion, dspy.Example(candidates=["x", "y"], grade="B")
    assert preference_label(labeled_as_in_dspy(pair, compares)) == "B"
    assert preference_label(labeled_as_in_dspy(pair.copy(better="A"), compares)) == "A"  # what people say counts


test_what_makes_no_judge_is_refused = refusals(
    lambda make: make(),
    (lambda: PointwiseJudge(of(int)), r"\.grade is int with the bounds none, which says no scale: give int or flo"),
    (lambda: PointwiseJudge(of(int, ge=1)), r"is int with the bounds {'ge': 1}"),
    (lambda: PointwiseJudge(of(float, ge=0.5, le=1)), "which says no scale"),
    (lambda: PointwiseJudge(of(str)), "is str with the bounds none"),
    (lambda: PointwiseJudge(of(Literal[1, 3])), r"Literal\[1, 3\] .* without gaps"),
    (lambda: PointwiseJudge(dspy.Signature("a -> b: bool, c: str")), r"has the outputs \['b', 'c'\]: a judge"),
    (lambda: PointwiseJudge(Graded, inputs=INPUTS), "Graded has input fields of its own"),
    (lambda: PointwiseJudge(Graded, judged="grade"), r"judged='grade' is none of the inputs \['question'"),
    (lambda: PointwiseJudge(RIGHT, judged="answer"), "name the judge's input fields too"),
    (lambda: PointwiseJudge(RIGHT, inputs={"a b": "A"}), "give FIELD -> label in the prompt"),
    (lambda: PointwiseJudge(RIGHT, inputs={"score": "Score"}), "'score' is a field of people's answers"),
    (lambda: PointwiseJudge(RIGHT, inputs={"a": "Text", "b": "Text"}), "a label of its own"),
    (lambda: Criterion("a", "b?", (1, 3), answers=("x", "y")), "has 2 words for the 3 scores from 1 to 3"),
    (lambda: Criterion("a", "b?", (1, 2), answers=("x", "X")), "give each score a word of its own"),
)


@pytest.mark.slow
def test_saved_judges_keep_their_fields_in_a_fresh_process(tmp_path):
    judges = [PointwiseJudge(RIGHT, inputs=INPUTS), PointwiseJudge(Graded)]
    judges += [PointwiseJudge(of(Literal["bad", "fair", "good"])), PairwiseJudge(RIGHT, inputs=INPUTS, judged="answer")]
    judges += [PairwiseRanker(PairwiseJudge(RIGHT, inputs=INPUTS))]
    programs = {tmp_path / f"{k}.json": judge for k, judge in enumerate(judges)}
    saved = programs | {tmp_path / "rubric.json": Rubric([RIGHT, PRESETS["summeval"][0]], weights=[3, 1])}
    for file, program in saved.items():
        program.save(str(file))
    again = "import json, sys, evalbias; print(json.dumps([evalbias.load(f).dump_state() for f in sys.argv[1:]]))"
    done = subprocess.run([sys.executable, "-c", again, *saved], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(json.dumps([one.dump_state() for one in saved.values()]))
    item = {**ASKED, "candidates": ["q=1 z=0", "q=2 z=0"]}
    for file, program in programs.items():
        judge, before = (getattr(one, "judge", one) for one in (evalbias.load(file), program))
        assert judge.messages(item) == before.messages(item)


def test_pairs_rankings_and_demonstrations_show_all_fields():
    rows = [dspy.Example(**OTHERS, answer=f"q={q} z=0", id=str(q), scores={"correctness": q}) for q in (3, 1, 2)]
    inputs, lm = {**INPUTS, "answer": "Output"}, Comparer()
    judge = PairwiseJudge(RIGHT, inputs=inputs, judged="answer")
    items = as_judged(judge, rows)
    (first, *_) = data.pairs(items, seed=0, criterion="correctness")
    assert {name: first[name] for name in OTHERS} == OTHERS
    judge.predict.demos = [first]
    document = dspy.Example(**OTHERS, candidates=[e.output for e in items])
    text = "Question: When?\nContext: It opens at noon.\nReference answer: At noon.\nOutput A: q="
    assert PairwiseRanker(judge).batch([document], lm=lm)[0].order == [0, 2, 1]
    assert all(message["content"].startswith(text) for q in lm.questions for message in q.prompt[::2])
    scores = with_demos(PointwiseJudge(RIGHT, inputs=INPUTS), items)
    assert dict(scores.predict.demos[0]) == {**OTHERS, "answer": "q=3 z=0", "score": 3.0}


def test_a_metric_reads_the_other_inputs_from_the_example():
    class Counting(PointwiseJudge):
        def forward(self, **texts):
            assert {**texts, "answer": ""} == {**OTHERS, "answer": ""}
            return dspy.Prediction(score=float(texts["answer"]), mode=1.0, distribution={"1": 1.0})

    metric = judge_metric(Counting(RIGHT, inputs=INPUTS))
    assert metric(dspy.Example(**OTHERS), dspy.Prediction(answer="4")) == 0.75
    with pytest.raises(ValueError, match="There is no 'context' among"):
        metric(dspy.Example(question="When?"), dspy.Prediction(answer="4"))


def test_files_map_columns_to_the_fields_of_a_saved_judge(tmp_path):
    file = tmp_path / "judge.json"
    PointwiseJudge(RIGHT, inputs=INPUTS).save(str(file))
    texts = {"context": "c", "gold": "r"}
    rows = [{"q": f"When {k}?", **texts, "answer": f"Reply {k}.", "score": 1 + k % 5} for k in range(9)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    mapping = {"question": "q", "reference": "gold"}
    judge = evalbias.load(file)
    items = read_for(judge, Items(tmp_path / "rows.jsonl", mapping=mapping))
    assert (items[0].output, items[0].source) == ("Reply 0.", "When 0?\nContext: c\nReference answer: r")
    found = evalbias.audit(tmp_path / "rows.jsonl", judge=str(file), mapping=mapping, lm=Fixed())
    assert len(set(found.judged.inputs)) == 9
    without = {name: text for name, text in rows[0].items() if name != "context"}
    with pytest.raises(ValueError, match=r"'context' of the item .* is missing; it has .*'question'"):
        read_for(judge, Items([without], mapping=mapping))
    asked = ["--lm", "embedded", "--data", "rows.jsonl", "--map", "question=q,reference=gold,answer=answer"]
    evalbias_command("judge", "--judge", file, *asked, "--out", "run", cwd=tmp_path)
    scored = [json.loads(line) for line in (tmp_path / "run" / "scores.jsonl").read_text().splitlines()]
    assert scored[3]["output_begins"] == "Reply 3."
    assert scored[3]["source_begins"] == "When 3? Context: c Reference answer: r"


class Fixed(FormulaLM):  # scores a text by its length
    def _row(self, prompt, choices):
        return list(np.log(np.full(len(choices), 0.5 / len(choices))) - 0.01 * len(prompt[-1]["content"]))

    def loglikelihood(self, pairs):
        return [LogLikelihood(np.array([-float(len(text))])) for _, text in pairs]


def test_the_name_of_a_model_is_taken_where_a_model_is(monkeypatch):
    made = []
    monkeypatch.setattr(dspy, "LM", lambda name: made.append(name) or FormulaLM(bias=0.0))
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    items = [dspy.Example(source="s", output=f"q={q} z=0", id=str(q)) for q in (1, 5)]
    expected = [one.score for one in judge.batch(items, lm=FormulaLM(bias=0.0))]
    assert [one.score for one in judge.batch(items, lm="openai/gpt-4o-mini")] == expected
    assert judge_examples(judge, items, lm="anthropic/some").answers.tolist() == expected
    judge.set_lm("openai/other")
    assert isinstance(judge.predict.lm, FormulaLM)
    assert made == ["openai/gpt-4o-mini", "anthropic/some", "openai/other"]


@pytest.mark.parametrize(("name", "remedy"), [
    ("embedded", r"give evalbias\.embedded_judge_lm\(\), evalbias"),
    ("Qwen/Qwen3-4B", r"give evalbias\.LocalLM\('Qwen/Qwen3-4B'\) for a folder or a Hugging Face name, "),
    ("gpt-4o", r"or dspy\.LM\('gpt-4o', \.\.\.\) for one that DSPy reaches otherwise"),
])  # fmt: skip
def test_the_name_of_a_model_that_dspy_does_not_know_is_refused_with_what_to_write(name, remedy):
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    for ask in (lambda: judge.batch([dspy.Example(**ITEM)], lm=name), lambda: judge.set_lm(name)):
        with pytest.raises(TypeError, match=remedy):
            ask()
