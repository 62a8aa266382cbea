"""Edits that leave the quality of a text as it is, their placebos of the same size, and counts of style."""

import dspy
import numpy as np
import pytest

from evalbias.data.probes import GROUPS, KINDS, STYLE, edited, named_kinds, style_count, with_edits

TEXT = "It rains in Lima. The mine is closed, and people stay at home. Nobody knows why."
ONE = {"id": "a", "source": "what?", "output": TEXT, "score": 4, "mine": 3, "reference": "Rain."}


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_is_a_function_of_text_and_seed_and_its_placebo_is_as_long(kind):
    pairs = [edited(TEXT, kind, seed=seed) for seed in range(20)]
    assert pairs == [edited(TEXT, kind, seed=seed) for seed in range(20)]
    for edit, placebo in pairs:
        assert edit != placebo
        assert len({TEXT, edit, placebo}) == 3
        assert abs(len(edit) - len(placebo)) <= max(3, 0.1 * abs(len(edit) - len(TEXT)))
        if kind != "null":
            words = TEXT.replace(",", "").replace(".", "").split()
            assert all(word in edit and word in placebo for word in words)
    if kind not in ("headings", "list", "bold", "label", "verbosity"):
        assert len(set(pairs)) > 1  # one of several wordings is drawn


def test_what_edits_write():
    assert edited(TEXT, "headings")[0] == f"## Answer\n\n{TEXT}"
    assert edited(TEXT, "list")[0].splitlines()[1] == "- The mine is closed, and people stay at home."
    assert edited("It rains.", "bold") == ("**It** **rains**.", "  It     rains  .")
    assert edited(TEXT, "label", word="a student")[0].endswith(" (written by a student)")
    again = "why. To say it again: It rains in Lima. The mine is closed, and people stay at home."
    assert edited(TEXT, "verbosity")[0].endswith(again)
    assert edited(TEXT, "null")[1].startswith("banana banana ")
    assert {edited(TEXT, "injection", seed=s, word="5")[0].rstrip(".")[-1] for s in range(9)} == {"5"}


def test_kinds_are_named_by_group_and_with_a_word():
    assert [*named_kinds(["style", "label", "label: a student"])] == [*GROUPS["style"], "label", "label: a student"]
    assert [*named_kinds(["all"])] == [*KINDS]
    for wrong in (["fame"], ["emoji: x"], ["label: a|b"], ["order"]):
        with pytest.raises(ValueError, match=r"The kind '.*' is unknown"):
            named_kinds(wrong)
    with pytest.raises(ValueError, match="The kind 'bold' is named twice"):
        named_kinds(["style", "bold"])


def test_an_item_is_emitted_as_it_is_and_twice_for_each_kind():
    rows = with_edits([dspy.Example(ONE)], ["label", "injection"], scale=(1, 7))
    edits = [f"a|{kind}|{part}" for kind in ("label", "injection") for part in ("edit", "placebo")]
    assert [row.id for row in rows] == ["a|original|1", *edits]
    assert [row.output for row in rows[:3]] == [TEXT, *edited(TEXT, "label")]
    assert rows[3].output == edited(TEXT, "injection", word="7")[0]
    # nobody's score of the original is taken for one of the edited text
    assert {*rows[1].keys()} == {"id", "input_id", "source", "reference", "output", "score", "text_digest"}
    assert [row.score for row in rows] == [4, None, None, None, None]
    assert {row.input_id for row in rows} == {"what?"}


def test_one_candidate_of_a_pair_is_edited_each_as_often():
    pairs = [dspy.Example(id=f"p{k}", source="s", outputs=[f"First {k}.", f"Second {k}."]) for k in range(200)]
    rows = with_edits(pairs, ["emoji"], seed=3)
    places = [int(row.id[-1]) - 1 for row in rows[::3]]
    assert 80 < sum(places) < 120
    for k, place in enumerate(places):
        original, edit, placebo = (row.candidates for row in rows[3 * k : 3 * k + 3])
        assert edit[1 - place] == placebo[1 - place] == original[1 - place]
        assert (edit[place], placebo[place]) == edited(original[place], "emoji", seed=3)


def test_what_people_say_stands_with_the_original_alone():
    rated = {**ONE, "scores": {"wit": 4}, "ratings": {"wit": [4, 5]}}
    original, edit, placebo = with_edits([dspy.Example(rated)], ["label"])
    assert (original.scores, original.ratings, original.score) == ({"wit": 4}, {"wit": [4, 5]}, 4)
    for row in (edit, placebo):
        assert (row.scores, row.get("ratings"), row.score) == ({"wit": None}, None, None)


def test_items_that_cannot_be_edited_are_named():
    with pytest.raises(ValueError, match="The item 'b' has no output to edit: add its text"):
        with_edits([dspy.Example(ONE), dspy.Example(id="b", source="s", output=" ")])
    with pytest.raises(ValueError, match="There are no items to edit: give one or more"):
        with_edits([])
    with pytest.raises(ValueError, match="Two items have the id 'a': give each item its own"):
        with_edits([dspy.Example(ONE)] * 2)


STYLES = [("headings", "# One\ntext # no\n### Two\n#no", 2), ("bullets", "- a\n* b\n1. c\n2) d\ntext - no\n-no", 4)]
STYLES += [("bold", "**one** and __two__, 2 ** 3", 2), ("digits", "In 2021, 7 of 10.", 7)]
STYLES += [("emoji", "\u2705 Done \U0001f31f\U0001f31f -> (c)", 3)]
STYLES += [("citations", "[3] Smith et al. said (Smith, 2021) and (2019), see https://x.org (not this)", 5)]
STYLES += [("hedges", "It may rain. Perhaps it seems so; maybe not. I think so.", 4)]
STYLES += [("sentences", "One. Two! Three?! Version 2.0 is four.", 4)]


@pytest.mark.parametrize(("name", "text", "count"), STYLES)
def test_counts_of_style(name, text, count):
    assert style_count(text, name) == count
    assert style_count("", name) == 0


def test_every_count_is_tested():
    assert len(STYLE) == 8


ADDS = {"headings": "headings", "list": "bullets", "bold": "bold", "emoji": "emoji", "hedged": "hedges"}
ADDS |= {"authority": "citations"}


@pytest.mark.parametrize(("kind", "counted"), ADDS.items())
def test_what_an_edit_adds_is_counted_in_its_texts_and_not_in_its_placebos(kind, counted):
    counts = np.array([[style_count(one, counted) for one in edited(TEXT, kind, seed=s)] for s in range(20)])
    assert counts[:, 0].mean() > 0.5
    assert counts[:, 1].max() == 0
