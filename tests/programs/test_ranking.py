import math
import random

import dspy
import pytest
from fakes import Comparer, pair

from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker, load_judge, load_ranker
from evalbias.programs.ranking import _Merge, _Source

C = Criterion("quality", "is it good?")


class Counting(Comparer):
    def __init__(self, **options):
        super().__init__(**options)
        self.batches = []

    def choice_logprobs(self, prompts, choices):
        self.batches.append(len(prompts))
        return super().choice_logprobs(prompts, choices)


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("n", [2, 3, 7, 16, 26])
def test_a_consistent_judge_is_followed(search, n):
    qualities = random.Random(n).sample(range(100), n)
    ranker = PairwiseRanker(PairwiseJudge(C), search=search)
    (ranking,) = ranker.batch([pair(*qualities)], lm=Comparer())
    assert [qualities[i] for i in ranking.order] == sorted(qualities, reverse=True)
    assert ranking.scores == [float(sum(q > other for other in qualities)) for q in qualities]
    assert (ranking.ties, ranking.undefined, ranking.contradictions) == (0, 0, 0)
    if search == "greedy":
        assert ranking.comparisons <= n * math.ceil(math.log2(n))


def test_comparisons_of_a_level_are_asked_together():
    lm, documents = Counting(), [pair(*random.Random(d).sample(range(99), 8), source=str(d)) for d in range(20)]
    rankings = PairwiseRanker(PairwiseJudge(C)).batch(documents, lm=lm)
    assert sum(lm.batches) == sum(f.comparisons for f in rankings) == sum(f.judgments for f in rankings)
    assert len(lm.batches) <= 1 + 3 + 7  # the longest merge of each level
    alone = PairwiseRanker(PairwiseJudge(C)).batch(documents[:1], lm=Comparer())[0]
    assert rankings[0].scores == alone.scores


def test_the_callers_order_does_not_decide():
    (a,) = PairwiseRanker(PairwiseJudge(C)).batch([pair(4, 1, 3, 2)], lm=Comparer(lean=1.2))
    (b,) = PairwiseRanker(PairwiseJudge(C), seed=1).batch([pair(4, 1, 3, 2)], lm=Comparer(lean=1.2))
    (again,) = PairwiseRanker(PairwiseJudge(C)).batch([pair(4, 1, 3, 2)], lm=Comparer(lean=1.2))
    assert a.order == again.order
    assert a.comparisons <= 8
    assert b.judgments <= 8


def test_undecided_pairs_are_ties_and_equal_texts_share_a_score():
    (ranking,) = PairwiseRanker(PairwiseJudge(C)).batch(
        [dspy.Example(source="s", candidates=["q=1 z=0", "q=1 z=1", "q=5 z=0", "q=5 z=0"])], lm=Comparer()
    )
    assert ranking.ties == 1
    assert ranking.scores == [0.5, 0.5, 2.5, 2.5]
    assert sorted(ranking.order[:2]) == [2, 3]


def test_an_undefined_comparison_is_counted():
    (ranking,) = PairwiseRanker(PairwiseJudge(C, min_coverage=0.9)).batch([pair(1, 2)], lm=Comparer(mass=0.5))
    assert ranking.undefined == 1
    assert all(math.isnan(score) for score in ranking.scores)


@pytest.mark.parametrize("n", [3, 4, 7])
def test_candidates_that_the_judge_does_not_distinguish_have_equal_scores(n):
    documents = [pair(*range(n), source=str(k)) for k in range(5)]
    for mute in PairwiseRanker(PairwiseJudge(C, min_coverage=2.0)).batch(documents, lm=Comparer()):
        assert mute.undefined == mute.comparisons > 0
        assert all(math.isnan(score) for score in mute.scores)
    blind = [dspy.Example(source="s", candidates=[f"q=1 z={k}" for k in range(n)])]
    for ranking in PairwiseRanker(PairwiseJudge(C)).batch(blind, lm=Comparer()):
        assert ranking.ties == ranking.comparisons
        assert ranking.scores == [0.5 * (n - 1)] * n
    two = [dspy.Example(source="s", candidates=[*(f"q=1 z={k}" for k in range(n)), "q=3 z=0"])]
    for ranking in PairwiseRanker(PairwiseJudge(C)).batch(two, lm=Comparer()):
        assert ranking.scores == [0.5 * (n - 1)] * n + [n]


def test_batch_calibration_is_one_for_the_whole_ranking():
    documents = [pair(*range(5), source=str(k)) for k in range(4)]
    judge = PairwiseJudge(C, calibration="batch")
    together = PairwiseRanker(judge).batch(documents, lm=Comparer(lean=3.0))
    (alone,) = PairwiseRanker(judge).batch(documents[:1], lm=Comparer(lean=3.0))
    assert [f.scores for f in together] == [alone.scores] * 4 == [[0, 1, 2, 3, 4]] * 4
    assert alone.ties == 0
    assert judge.offsets == {}


class Circle(Comparer):
    """Prefers rock-paper-scissors: 0 beats 1 beats 2 beats 0, barely."""

    def choice_logprobs(self, prompts, choices):
        answers = super().choice_logprobs(prompts, choices)
        for row, prompt in zip(answers.logprobs, prompts, strict=True):
            a, b = (int(line.split("q=")[1].split()[0]) for line in prompt[-1]["content"].splitlines()[1:3])
            wins = (a - b) % 3 == 2
            row[:] = [math.log(0.55), math.log(0.45)] if wins else [math.log(0.45), math.log(0.55)]
        return answers


def test_a_judge_that_goes_in_circles_is_reported_by_beam():
    documents = [pair(0, 1, 2)]
    (beam,) = PairwiseRanker(PairwiseJudge(C), search="beam", gap=0.5).batch(documents, lm=Circle())
    assert beam.comparisons == 3
    assert beam.contradictions == 1
    (greedy,) = PairwiseRanker(PairwiseJudge(C)).batch(documents, lm=Circle())
    assert greedy.comparisons <= 3


def test_beam_finds_the_likeliest_order_where_greedy_does_not():
    # a > b and c > d are sorted; the judge narrowly prefers c to a, but knows that b is better than c
    known = {(0, 2): 0.48, (0, 3): 0.6, (1, 2): 0.99, (1, 3): 0.6}
    merged = {}
    for search, beam in (("greedy", 1), ("beam", 10)):
        merge = _Merge(_Source("s", list("abcd"), dict(known)), [0, 1], [2, 3], beam, 0.2)
        assert merge.advance() == []
        merged[search] = merge.merged
    assert merged["greedy"] == [2, 0, 1, 3]  # .52 * .6 * .6
    assert merged["beam"] == [0, 1, 2, 3]  # .48 * .99


def test_bad_input():
    with pytest.raises(ValueError, match="search='bubble' is unknown"):
        PairwiseRanker(PairwiseJudge(C), search="bubble")
    with pytest.raises(ValueError, match="give a beam_size of at least 1"):
        PairwiseRanker(PairwiseJudge(C), beam_size=0)
    with pytest.raises(ValueError, match="give a list of 2"):
        PairwiseRanker(PairwiseJudge(C)).batch([pair(1)], lm=Comparer())


def test_a_ranker_is_saved_with_its_judge(tmp_path):
    judge = PairwiseJudge(C, ties=True, debias="permutation")
    judge.predict.signature = judge.predict.signature.with_instructions("On quality, which one?")
    PairwiseRanker(judge, search="beam", beam_size=3, gap=0.4, seed=7).save(str(tmp_path / "ranker.json"))
    again = load_ranker(tmp_path / "ranker.json")
    assert (again.search, again.beam_size, again.gap, again.seed) == ("beam", 3, 0.4, 7)
    assert again.judge.dump_state() == judge.dump_state()
    documents = [pair(3, 1, 2)]
    first = PairwiseRanker(judge, search="beam", beam_size=3, gap=0.4, seed=7).batch(documents, lm=Comparer())
    assert again.batch(documents, lm=Comparer())[0].toDict() == first[0].toDict()
    judge.save(str(tmp_path / "judge.json"))
    with pytest.raises(ValueError, match="is not a saved ranker but a pairwise judge"):
        load_ranker(tmp_path / "judge.json")
    with pytest.raises(ValueError, match="is not a saved judge but a pairwise judge"):
        load_judge(tmp_path / "judge.json")
