"""Wordings of comparisons, and documents of the synthetic world."""

import math

import pytest

from evalbias.data import by_input, world
from evalbias.data import world as wordings
from evalbias.programs import SYNTHETIC
from evalbias.programs.prompts import comparison_instructions


def test_every_wording_keeps_the_name_and_has_its_bias():
    biases = wordings.wordings(source="data", output="text", name="quality", definition="is it so?")
    assert len(biases) == math.prod(len(part) for part in wordings.PARTS) == 216
    assert all("quality" in text and "{" not in text for text in biases)
    assert biases["Which text is better on quality: is it so?"] == 0.8 + 0.6 + 0.3 + 0.4
    assert min(abs(bias) for bias in biases.values()) < 0.05  # a search has a nearly fair wording to find
    assert max(biases.values()) > wordings.GAIN > -min(biases.values()) / 1.5


def test_the_first_instruction_is_one_of_them():
    source, output = SYNTHETIC.source_label.lower(), SYNTHETIC.output_label.lower()
    known = wordings.wordings(source=source, output=output, name=SYNTHETIC.title, definition=SYNTHETIC.definition)
    assert known[comparison_instructions(SYNTHETIC)] == max(known.values())


def test_documents_hold_several_outputs_of_one_source():
    items = world.documents(5, 3, seed=4)
    groups = by_input(items)
    assert [len(group) for group in groups.values()] == [3] * 5
    assert all(len({e.source for e in group}) == 1 for group in groups.values())
    assert len({e.id for e in items}) == 15
    assert [e.output for e in items] == [e.output for e in world.documents(5, 3, seed=4)]
    many = world.documents(world.SOURCES, 2, seed=1)
    assert len({e.source for e in many}) == world.SOURCES == 216
    with pytest.raises(ValueError, match="the world has 216 sources"):
        world.documents(217, 2, seed=1)
    assert all(1 <= e.scores[world.NAME] <= 5 and 1 <= e.quality <= 5 for e in items)
