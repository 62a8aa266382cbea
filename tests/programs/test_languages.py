"""Judges in Japanese: how their answers are read, and what a language changes; the wording is kept in a snapshot."""

import math

import dspy
import numpy as np
import pytest
from fakes import Fake
from texts import writer

from evalbias import Sampling
from evalbias.lm.types import ChoiceLogprobs
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.programs.prompts import LANGUAGES, in_language

C = Criterion("自然さ", "日本語として自然か？")
SOURCE = "駅はどこですか。"


class Undecided(Fake):
    """Answers most often with the last choice."""

    def choice_logprobs(self, prompts, choices):
        return ChoiceLogprobs(tuple(choices), np.log([[0.2] * (len(choices) - 1) + [0.5]] * len(prompts)))


@pytest.mark.parametrize(("language", "tie"), [("en", "Tie"), ("ja", "引き分け")])
def test_a_tie_is_the_same_answer_in_every_language(language, tie):
    """What a trace holds is read as data, whatever the judge's language."""
    judge, lm = PairwiseJudge(C, language=language, ties=True), Undecided()
    item = dspy.Example(source="s", candidates=["x", "y"])
    (row,) = judge._ask([(item, item)], lm)
    assert (row["preference"], lm.questions[0].choices) == ("Tie", ("A", "B", tie))
    judge.predict.demos = [item.copy(preference=row["preference"])]
    assert judge.messages(item)[1]["content"] == tie


def test_a_language_that_is_not_there_is_refused_with_those_that_are():
    for kind in (PointwiseJudge, PairwiseJudge):
        for language in ("tlh", None, ["ja"]):
            with pytest.raises(ValueError, match=r"is unknown: choose one of \('en', 'ja'\), or add"):
                kind(C, language=language)


def test_a_model_that_only_writes_is_read_in_japanese():
    said = {"答えはＢです。": 0.5, "Bの方が自然です。": 0.3, "どちらとも言えない。": 0.2}
    lm, _ = writer(lambda text, system: said)
    judge = PairwiseJudge(C, language="ja", scoring="sampled", sampling=Sampling(samples=400))
    prediction = judge.batch([dspy.Example(source=SOURCE, candidates=["右です。", "知らん。"])], lm=lm)[0]
    assert prediction.preference == 1
    assert prediction.coverage == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 400))
    scored, _ = writer(lambda text, system: {"4点です。": 1.0})
    judge = PointwiseJudge(C, language="ja", scoring="sampled")
    assert judge.batch([dspy.Example(source=SOURCE, output="右です。")], lm=scored)[0].score == 4


def test_the_words_of_english_are_those_of_a_criterion_without_its_own():
    criterion = Criterion("politeness", "is the reply polite?")
    assert in_language(criterion, "en") == criterion
    assert in_language(in_language(criterion, "en"), "ja").task == LANGUAGES["ja"].task
