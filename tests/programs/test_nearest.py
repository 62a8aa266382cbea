"""Demonstrations that are chosen for each item: those most like it."""

from collections import Counter

import dspy
import numpy as np
import pytest
from fakes import FormulaLM

import evalbias
from evalbias import Criterion, PointwiseJudge
from evalbias.measures.corrections import ScoreCorrection
from evalbias.programs.pointwise import Likeness

TEXTS = ("the red fox", "a red house", "blue sky")
DEMOS = [dspy.Example(source=f"about {text}", output=f"q={k} z=0", score=k) for k, text in enumerate(TEXTS, start=1)]


def test_likeness_is_bm25_of_trigrams():
    def grams(text):
        return Counter(f" {text} "[i : i + 3] for i in range(len(text)))

    counts, mean = [grams(text) for text in TEXTS], np.mean([len(text) for text in TEXTS])

    def by_hand(query, text):
        total = 0.0
        for gram in grams(query):
            held, often = sum(gram in counter for counter in counts), grams(text)[gram]
            rarity = np.log(1 + (3 - held + 0.5) / (held + 0.5))
            total += rarity * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(text) / mean))
        return total

    for query in ("red fox", "a  Blue sky", "nothing zzz"):
        expected = [by_hand(" ".join(query.casefold().split()), text) for text in TEXTS]
        assert Likeness(TEXTS)(query) == pytest.approx(expected)
    assert np.argmax(Likeness(["赤い狐だ", "青い空だ"])("今日は青い空")) == 1


def test_an_item_is_shown_the_nearest_ones_for_other_inputs_the_nearest_last():
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    judge.predict.demos, judge.nearest = DEMOS, 2
    item = dspy.Example(source="about the red fox cub", output="q=2 z=0")
    assert sources(judge, item) == ["about a red house", "about the red fox", item.source]
    own = item.copy(source="about the red fox")
    assert sources(judge, own) == ["about blue sky", "about a red house", own.source]
    alone = PointwiseJudge(judge.criterion, inputs={"output": "Text"})  # which is given nothing else
    alone.predict.demos, alone.nearest = DEMOS, 3
    assert len(alone.messages(dspy.Example(output="q=1 z=0"))) == 1 + 2 * 2 + 1


def sources(judge, item):
    return [m["content"].splitlines()[0].removeprefix("Source: ") for m in judge.messages(item) if m["role"] == "user"]


def test_every_way_of_asking_shows_the_same_and_a_saved_judge_goes_on(lms, tmp_path):
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    judge.predict.demos, judge.nearest = DEMOS, 1
    items, lm = [dspy.Example(source=f"about {text}s", output="q=4 z=1") for text in TEXTS], FormulaLM()
    judge.batch(items, lm=lm)
    assert [question.prompt for question in lm.questions] == [judge.messages(item) for item in items]
    judge.predict.lm = lms["qwen2-chat"]
    judge.save(tmp_path / "judge.json")
    loaded = evalbias.load(tmp_path / "judge.json")
    loaded.predict.lm = judge.predict.lm
    called = [loaded(source=item.source, output=item.output).score for item in items]
    assert called == pytest.approx([answer.score for answer in judge.batch(items)], abs=1e-5)
    assert len(set(called)) == 3
    with pytest.raises(ValueError, match="nearest"):
        judge.nearest = -1


def test_without_its_cue_a_prompt_ends_with_the_texts(tmp_path):
    judge = PointwiseJudge(
        Criterion("quality", "is it good?"), correction=ScoreCorrection({}, reading=((1, 1), (5, 4)))
    )
    judge.predict.demos, item = DEMOS[:1], dspy.Example(source="about a fox\n", output="q=2 z=0\n")
    with_cue = [message["content"] for message in judge.messages(item)]
    judge.cue = False
    without = [message["content"] for message in judge.messages(item)]
    assert with_cue == [without[0], f"{without[1]}\nQuality:", without[2], f"{without[3]}\nQuality:"]
    assert without[3] == "Source: about a fox\n\nOutput: q=2 z=0\n"
    assert judge.correction is None  # it was learned under the other prompt
    judge.save(tmp_path / "judge.json")
    assert not evalbias.load(tmp_path / "judge.json").cue
    judge.reasoning = True
    question = judge.question(item)
    assert question.prompt[-1]["content"].startswith(f"{without[3]}\n")
    judge.cue = True
    assert judge.question(item).prompt[-1] == question.prompt[-1]  # the cue moves behind the reasons
    assert judge.question(item).conclusion == f"{question.conclusion}\nQuality:"
    with pytest.raises(TypeError, match="cue"):
        judge.cue = "no"
