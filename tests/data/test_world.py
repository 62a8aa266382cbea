"""The synthetic world: its items never change, and what its judges are told is independent of what is true."""

import math
import random
import re

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.embedded_judge.ideal import label_probabilities
from benchmarks.self_bias import true_commonness
from evalbias.data import by_input, world
from evalbias.programs import SYNTHETIC, PairwiseJudge
from evalbias.programs.criterion import SYNTHETIC_JA


def test_quality_commonness_and_length_are_independent():
    rng = random.Random(0)
    drawn = [world.item(rng) for _ in range(6000)]
    quality, common = [d.quality for d in drawn], [d.commonness for d in drawn]
    lengths = [len(d.output) for d in drawn]
    for one, other in ((quality, common), (quality, lengths), (common, lengths)):
        assert abs(spearmanr(one, other).statistic) < 0.05
    assert np.mean(common) == pytest.approx(0, abs=0.05)
    assert np.std(common) == pytest.approx(1, abs=0.05)
    errors = [e for d in drawn for e in d.errors]
    assert {*errors} == {"", "omission", "wrong object", "disfluency"}
    for kind in ("omission", "disfluency"):
        assert errors.count(kind) / len(errors) == pytest.approx(1 / 3, abs=0.01)
    assert {d.quality for d in drawn} == {1 + 4 * half / 6 for half in range(7)}


def test_items_are_fixed_by_the_seed():
    first = world.examples(1, seed=0)[0]
    assert first.source == "Place of birth: Lima; job: actor; favorite food: rice"
    assert first.output == "She was in born Lima. Her work is secret. She really likes eating rice."
    assert first.quality == 3.0
    assert first.scores["quality"] == pytest.approx(2.74974901)
    assert first.commonness == pytest.approx(1.38551887)
    assert first.inputs().toDict() == {"source": first.source, "output": first.output}
    assert world.examples(1, seed=1)[0].source != first.source


def test_the_same_seed_draws_the_same_items_in_japanese():
    for draw in (
        lambda **said: world.examples(60, seed=4, **said),
        lambda **said: world.documents(20, 3, seed=4, **said),
    ):
        for one, other in zip(draw(), draw(language="ja"), strict=True):
            assert re.search("[a-z]", other.source + other.output) is None
            assert (one.id, one.quality, one.commonness) == (other.id, other.quality, other.commonness)
            assert (*one.scores.values(),) == (*other.scores.values(),) == (other.scores[SYNTHETIC_JA.name],)
            assert (*one.ratings.values(),) == (*other.ratings.values(),)
    first = world.examples(1, seed=0, language="ja")[0]
    for relation, four in world.JAPANESE.stated.items():  # the same characters in another order
        assert [*map(sorted, four)] == [*map(sorted, world.JAPANESE.broken[relation])]
    assert first.source == "出生地：リマ、職業：俳優、好物：ご飯"
    assert first.output == "彼女は生まれましたリマで。彼女の仕事は内緒です。彼女はご飯が大好きです。"


@pytest.mark.parametrize("edition", world.EDITIONS.values(), ids=world.EDITIONS)
def test_every_class_has_its_own_phrasings(edition):
    classes = (edition.stated, edition.unknown, edition.broken)
    forms = [form for forms in classes for four in forms.values() for form in four]
    assert len(forms) == len(set(forms)) == 36
    assert {len(values) for values in edition.values.values()} == {len(edition.blanks)}


def test_a_broken_sentence_has_the_words_of_the_stated_one():
    for relation, four in world.STATED.items():
        for stated, broken in zip(four, world.BROKEN[relation], strict=True):
            assert sorted(re.findall(r"[\w{}]+", stated)) == sorted(re.findall(r"[\w{}]+", broken)), stated


def test_label_probabilities_are_those_of_a_rounded_rating():
    rng = random.Random(2)
    drawn = next(one for one in (world.item(rng) for _ in range(99)) if one.commonness < -1)  # taste moves its rating
    probabilities = label_probabilities(drawn, taste=1.0)
    assert sum(probabilities) == pytest.approx(1)
    labels = [math.floor(world.rating(rng, drawn, taste=1.0) + 0.5) for _ in range(20000)]
    assert [labels.count(v) / 20000 for v in range(1, 6)] == pytest.approx(probabilities, abs=0.015)


def test_any_text_is_scored_like_the_items():
    for example in world.examples(300, seed=4):
        assert world.true_quality(example.source, example.output) == pytest.approx(example.quality)
        assert true_commonness(example.output) == pytest.approx(example.commonness)
    source = "Place of birth: Paris; job: actor; favorite food: rice"
    assert math.isnan(true_commonness("She was born in Paris."))
    for output, points in {
        "": 0,
        "She was born in Paris. What? She was born in Oslo. An actor she as works.": 4 / 3,
        "She was in born Paris. She as works a pilot.": 2 / 3,
        "She an is actor.": 2 / 3,
    }.items():
        assert world.true_quality(source, output) == pytest.approx(1 + points)
    assert world.facts(source) == {"born": "Paris", "job": "actor", "food": "rice"}
    with pytest.raises(ValueError, match="'born Lima'"):
        world.facts("born Lima")


def test_people_are_fair_raters_with_noise():
    items = world.examples(3000, seed=5)
    ratings = np.array([e.ratings["quality"] for e in items])  # (3000, 4)
    quality, human = np.array([e.quality for e in items]), np.array([e.scores["quality"] for e in items])
    assert np.clip(ratings.mean(axis=1), 1, 5) == pytest.approx(human)
    assert (human.min(), human.max()) == (1, 5)
    noise = ratings - quality[:, None]
    assert noise.mean(axis=0) == pytest.approx(np.zeros(4), abs=0.12)
    assert noise.std(axis=0) == pytest.approx(np.full(4, world.RATER_NOISE), rel=0.05)
    assert np.abs(np.corrcoef(noise.T)[np.triu_indices(4, 1)]).max() < 0.08
    assert abs(spearmanr(human - quality, [e.commonness for e in items]).statistic) < 0.05


def test_every_wording_keeps_the_name_and_has_its_bias_and_the_first_instruction_has_most():
    biases = world.wordings(source="data", output="text", name="quality", definition="is it so?")
    assert len(biases) == math.prod(len(part) for part in world.PARTS) == 216
    assert all("quality" in text and "{" not in text for text in biases)
    assert biases["Which text is better on quality: is it so?"] == 0.8 + 0.6 + 0.3 + 0.4
    assert min(abs(bias) for bias in biases.values()) < 0.05  # a search has a nearly fair wording to find
    assert max(biases.values()) > world.GAIN > -min(biases.values()) / 1.5
    source, output = SYNTHETIC.source_label.lower(), SYNTHETIC.output_label.lower()
    known = world.wordings(source=source, output=output, name=SYNTHETIC.title, definition=SYNTHETIC.definition)
    assert known[PairwiseJudge(SYNTHETIC).predict.signature.instructions.partition("\n")[0]] == max(known.values())


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
