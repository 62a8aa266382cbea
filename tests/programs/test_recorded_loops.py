"""Recorded loops go through the real programs, replayed by ``RecordedLM``."""

import itertools

import dspy
import pytest
from models_of_text import Engine

from evalbias.data.loops import recorded_loop
from evalbias.evaluation.loops import run_loops
from evalbias.lm.saved import RecordedLM, record
from evalbias.programs.feedback import ExactConcepts
from evalbias.programs.loops import EMPTY, Improvement
from evalbias.programs.tasks import constrained_generation, translation
from evalbias.programs.writing import module_inputs


def write_recording(loop, items, path):
    """Write the prompts that a loop would send for recorded outputs, with the recorded texts as answers.

    ``items`` are the inputs of each item and its (output, feedback text) pairs, from the first output on. A recording
    repeats an output that was not improved: the loop's refiner then writes the same text again.
    """
    answers, program = [], loop.deepcopy()
    engine = Engine(lambda _: answers[-1] or " ")
    program.set_lm(record(dspy.LM("recorded/texts", engine=engine, cache=False), path))
    for inputs, steps in items:
        shown = {name: value for name, value in inputs.items() if name in module_inputs(program.generate)}
        draft, module = {}, program.generate
        for output, feedback in steps:
            answers.append(output)
            written = str(module(**shown, **draft)[program.field])
            answers.append(feedback)
            comment = program.feedback(inputs, written).text if written.strip() else EMPTY
            draft, module = {"draft": written, "feedback": comment}, program.refine


def translation_loop(iterations):
    loop = translation(max_iterations=iterations).loop
    loop.perfect = None  # the recorded loops went on
    loop.feedback.find.predict.config["temperature"] = 1.0  # and drew the feedback: the same text got several scores
    return loop


def texts_of(row):
    return row["output"], row["feedback_text"]


@pytest.mark.parametrize(
    ("file", "unreadable"), [("gpt-3.5-turbo__yor-en.jsonl", 2), ("deepseek_moe__yor-en.jsonl.gz", 2)]
)
@pytest.mark.slow
def test_the_recorded_translations_go_through_the_real_program(data_dir, tmp_path, file, unreadable):
    """The recording answers the program's own prompts and no others: what it accepts is what was recorded."""
    refinements = recorded_loop(data_dir / "self_bias_recorded/mt" / file)
    rows = {item: [refinements.records[k][item] for k in refinements.numbers] for item in refinements.ids}
    inputs = {item: {"source": rows[item][0]["source"], "target_language": "English"} for item in refinements.ids}
    loop = translation_loop(max(refinements.numbers))
    write_recording(
        loop, [(inputs[i], list(map(texts_of, rows[i]))) for i in refinements.ids], tmp_path / "texts.jsonl"
    )
    run = run_loops(
        loop, [dspy.Example(id=i, **inputs[i]) for i in refinements.ids], lm=RecordedLM(tmp_path / "texts.jsonl")
    )
    differ = 0
    for one in run.loops:
        recorded = [texts_of(after) != texts_of(before) for before, after in itertools.pairwise(rows[one.id])]
        same = not one.error and [step.accepted for step in one.steps[1:]] == recorded
        differ += not same
        if same:
            # wherever a step is accepted, what was written is the recording's text
            kept = [one.at(k).output for k in range(len(rows[one.id]))]
            assert kept == [row["output"].strip() for row in rows[one.id]]
    # feedback that names no severity, breaks off in its first quotation, or quotes words with an opening mark of
    # their own: counting substrings called the first two perfect
    assert differ == unreadable


class Always(Improvement):
    def __call__(self, before, after):
        return True


def test_the_recorded_concepts_go_through_the_real_program(data_dir, tmp_path):
    refinements = recorded_loop(data_dir / "self_bias_recorded/commongen/gpt-3.5-turbo.jsonl.gz")
    last = 2
    loop = constrained_generation(max_iterations=last).loop
    loop.perfect, loop.accept = None, Always()
    rows = {item: [refinements.records[k][item] for k in range(last + 1)] for item in refinements.ids[:20]}
    items = [dspy.Example(id=i, concepts=rows[i][0]["concepts"]) for i in rows]
    steps = [({"concepts": rows[i][0]["concepts"]}, list(map(texts_of, rows[i]))) for i in rows]
    write_recording(loop, steps, tmp_path / "texts.jsonl")
    run = run_loops(loop, items, lm=RecordedLM(tmp_path / "texts.jsonl"))
    assert run.failed == {}
    written = [[step.output for step in one.steps] for one in run.loops]
    assert written == [[row["output"].strip() for row in rows[i]] for i in rows]
    exact = run.quality(items, ExactConcepts())
    covered = [[all(c.lower() in row["output"].lower() for c in row["concepts"]) for row in rows[i]] for i in rows]
    assert exact.T.tolist() == covered
    assert 0 < exact.mean() < 1


def test_a_loop_that_leaves_the_recording_fails_with_a_reason(tmp_path):
    loop = translation_loop(1)
    inputs = {"source": "un chien", "target_language": "English"}
    write_recording(
        loop, [(inputs, [("a cat", "'cat' is a major accuracy error"), ("a dog", "no-error")])], tmp_path / "r"
    )
    lm = RecordedLM(tmp_path / "r")
    run = run_loops(loop, [dspy.Example(id="a", **inputs)], lm=lm)
    assert [(s.output, s.score) for s in run.loops[0].steps] == [("a cat", -5), ("a dog", 0)]
    loop.max_iterations = 2
    run = run_loops(loop, [dspy.Example(id="a", **inputs)], lm=lm)
    assert "has no answer to the prompt" in run.failed["a"]
