"""In-context examples: the built-in ones are read as they claim, stand in the prompts, and can be replaced."""

import json

import dspy
import pytest
from models_of_text import Scripted

from evalbias.programs.feedback import read_feedback, read_missing
from evalbias.programs.tasks import (
    CONCEPTS,
    NO_EXAMPLES,
    TASKS,
    TRANSLATION,
    constrained_generation,
    mathematics,
    mathematics_refiner,
    read_examples,
    translation,
)

ITEM = {"source": "un chien", "target_language": "English"}


def asked(task, *texts, **item):
    lm = Scripted(*texts)
    with dspy.context(lm=lm):
        task.loop(**item)
    return lm.asked


def test_every_prompt_of_a_translation_shows_its_examples():
    task = translation(max_iterations=1)
    write, feedback, rewrite, _ = asked(task, "a cat", "'cat' is a major accuracy error", "a dog", "no-error", **ITEM)
    for prompt, examples in zip((write, feedback, rewrite), TRANSLATION.values(), strict=True):
        for example in examples:
            assert all(str(text) in prompt for text in example.values())
        assert prompt.index(examples[-1]["source"]) < prompt.index("un chien")
    bare = asked(translation(max_iterations=0, examples=NO_EXAMPLES), "a dog", "no-error", **ITEM)
    assert bare[0] == "Source: un chien\nTarget language: English\nOutput:"


def test_the_feedback_of_the_examples_is_read_as_it_is_meant():
    scores = [read_feedback(example.errors).score for example in TRANSLATION["feedback"]]
    assert scores == [-10, -6, 0]  # critical and major; major and minor; nothing
    for example in TRANSLATION["feedback"]:
        for error in read_feedback(example.errors).errors:
            assert error.span in example.translation
    assert [read_missing(e.missing, e.concepts) for e in CONCEPTS["feedback"]] == [[], ["dig"]]
    for example in CONCEPTS["feedback"]:
        absent = [concept for concept in example.concepts if concept not in example.text.lower()]
        assert absent == read_missing(example.missing, example.concepts)


def test_concepts_show_two_examples_of_feedback_alone():
    write, feedback = asked(constrained_generation(max_iterations=0), "A dog.", "none", concepts=["dog"])
    assert write == "Concepts: dog\nOutput:"
    assert [feedback.count(label) for label in ("Concepts:", "Missing:")] == [3, 3]
    assert "Two friends laughed" in feedback


def test_a_file_of_examples(tmp_path):
    file = tmp_path / "examples.json"
    solved = {"source": "1 + 1", "output": r"\boxed{2}"}
    file.write_text(json.dumps({"generate": [solved]}))
    examples = read_examples(file)
    assert examples == {"generate": [dspy.Example(solved)]}
    file.write_text('{"generate": [{"base": "x", "self": "y"}]}')
    assert read_examples(file)["generate"][0].toDict() == {"base": "x", "self": "y"}
    task = mathematics(max_iterations=0, paths=2, examples=examples)
    assert all(r"\boxed{2}" in prompt for prompt in asked(task, r"\boxed{4}", source="2 + 2"))
    task = mathematics_refiner(max_iterations=0, paths=2, examples=examples)
    first, *paths = asked(task, r"\boxed{4}", source="2 + 2")
    assert "1 + 1" in first
    assert not any("1 + 1" in path for path in paths)


WRONG = {
    "[1]": r"holds \[1\] in place of a JSON object: write a JSON object with lists of examples",
    '{"write": []}': "names 'write': write a JSON object with lists of examples for some of generate, feedback, refine",
    '{"refine": {}}': "'refine' is not a list",
    '{"refine": [{}, 3]}': "example 2 for 'refine' is 3",
    "{": "is not valid JSON",
}


@pytest.mark.parametrize("content", WRONG)
def test_a_file_that_holds_no_examples_is_refused(content, tmp_path):
    (tmp_path / "examples.json").write_text(content)
    with pytest.raises(ValueError, match=WRONG[content]):
        read_examples(tmp_path / "examples.json")


@pytest.mark.parametrize(
    ("make", "role", "fields", "message"),
    [
        (translation, "feedback", ("source", "translation", "errors"), "Example 1 for 'feedback' has"),
        (translation, "generate", ("text",), r"has the fields \['text'\]: give \['source', 'target_language', 'o"),
        (mathematics, "feedback", ("source", "output"), "no prompt of its own for 'feedback'"),
    ],
)
def test_examples_that_do_not_fit_a_prompt_are_refused(make, role, fields, message):
    with pytest.raises(ValueError, match=message):
        make(examples={role: [dspy.Example(dict.fromkeys(fields, ""))]})


def test_tasks_do_not_share_their_examples():
    for make in TASKS.values():
        loop = make().loop
        loop.generate.predict.demos.append("changed")
        assert make().loop.generate.predict.demos == loop.generate.predict.demos[:-1]
