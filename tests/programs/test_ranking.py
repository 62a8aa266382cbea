import asyncio
import itertools
import logging
import math
import random

import dspy
import numpy as np
import pytest
from fakes import Comparer, pair
from hypothesis import given
from hypothesis import strategies as st

from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker
from evalbias.programs.ranking import Answer, Compared, merge, rank, together

C = Criterion("quality", "is it good?")


def ranked(*documents, lm=None, judge=None, **options):
    """Rank the candidates of documents, each a list of texts or an example."""
    examples = [one if isinstance(one, dspy.Example) else dspy.Example(source="s", candidates=one) for one in documents]
    return PairwiseRanker(judge or PairwiseJudge(C), **options).batch(examples, lm=lm or Comparer())


@pytest.mark.parametrize("n", [2, 3, 7, 16, 26])
def test_a_consistent_judge_is_followed(n):
    qualities = random.Random(n).sample(range(100), n)
    (ranking,) = ranked(pair(*qualities))
    assert [qualities[i] for i in ranking.order] == sorted(qualities, reverse=True)
    assert ranking.scores == [float(sum(q > other for other in qualities)) for q in qualities]
    assert (ranking.ties, ranking.undefined, ranking.contradictions) == (0, 0, 0)
    assert ranking.comparisons <= n * math.ceil(math.log2(n))


def test_rankings_are_awaited_side_by_side_and_not_called_directly(caplog):
    ranker, given = PairwiseRanker(PairwiseJudge(C)), pair(4, 1, 3)

    async def both():
        return await asyncio.gather(*(ranker.acall(source=given.source, candidates=given.candidates) for _ in range(2)))

    logging.getLogger("dspy").addHandler(caplog.handler)
    with dspy.context(lm=Comparer()):
        assert [ranking.order for ranking in asyncio.run(both())] == [[0, 2, 1]] * 2
    logging.getLogger("dspy").removeHandler(caplog.handler)
    assert "is discouraged" not in caplog.text


def test_comparisons_of_a_level_are_asked_together_undecided_ones_are_ties_and_equal_texts_share_a_score():
    lm, documents = Comparer(), [pair(*random.Random(d).sample(range(99), 8), source=str(d)) for d in range(20)]
    rankings = ranked(*documents, lm=lm)
    assert sum(lm.batches) == sum(f.comparisons for f in rankings) == sum(f.judgments for f in rankings)
    assert len(lm.batches) <= 1 + 3 + 7  # the longest merge of each level
    assert rankings[0].scores == ranked(documents[0])[0].scores
    (ranking,) = ranked(["q=1 z=0", "q=1 z=1", "q=5 z=0", "q=5 z=0"])
    assert ranking.ties == 1
    assert ranking.scores == [0.5, 0.5, 2.5, 2.5]
    assert sorted(ranking.order[:2]) == [2, 3]


@pytest.mark.parametrize("n", [3, 7])
def test_candidates_that_the_judge_does_not_distinguish_have_equal_scores(n):
    blind = [f"q=1 z={k}" for k in range(n)]
    same, better = ranked(blind, [*blind, "q=3 z=0"])
    assert same.ties == same.comparisons
    assert same.scores == [0.5 * (n - 1)] * n
    assert better.scores == [0.5 * (n - 1)] * n + [n]


def test_batch_calibration_is_one_for_the_whole_ranking():
    documents = [pair(*range(5), source=str(k)) for k in range(4)]
    judge = PairwiseJudge(C, calibration="batch")
    together = ranked(*documents, judge=judge, lm=Comparer(lean=3.0))
    (alone,) = ranked(documents[0], judge=judge, lm=Comparer(lean=3.0))
    assert [f.scores for f in together] == [alone.scores] * 4 == [[0, 1, 2, 3, 4]] * 4
    assert alone.ties == 0
    assert judge.corrections == {}


class Circle(Comparer):  # prefers rock-paper-scissors: 0 beats 1 beats 2 beats 0, barely
    def choice_logprobs(self, prompts, choices):
        answers = super().choice_logprobs(prompts, choices)
        for row, prompt in zip(answers.logprobs, prompts, strict=True):
            a, b = (int(line.split("q=")[1].split()[0]) for line in prompt[-1]["content"].splitlines()[1:3])
            wins = (a - b) % 3 == 2
            row[:] = [math.log(0.55), math.log(0.45)] if wins else [math.log(0.45), math.log(0.55)]
        return answers


def test_a_judge_that_goes_in_circles_is_reported():
    (once,), (often,) = (ranked(pair(0, 1, 2), orders=orders, lm=Circle()) for orders in (1, 20))
    assert (once.comparisons, once.contradictions) == (2, 0)
    assert often.comparisons > 2
    assert often.contradictions > 0


def test_sorts_from_several_orders_are_averaged_and_ask_no_prompt_twice():
    n, shares = 6, np.random.default_rng(3)
    table = {f"q={a} z=0 q={b} z=0": shares.random() for a, b in itertools.permutations(range(n), 2)}

    class Whim(Comparer):  # compares as the table says, in circles and with a preference for position
        def choice_logprobs(self, prompts, choices):
            answers = super().choice_logprobs(prompts, choices)
            for row, prompt in zip(answers.logprobs, prompts, strict=True):
                texts = [line.partition(": ")[2] for line in prompt[-1]["content"].splitlines() if ": q=" in line]
                row[:] = np.log([table[" ".join(texts)], 1 - table[" ".join(texts)]])
            return answers

    lm, document = Whim(), pair(*range(n))
    (ranking,) = ranked(document, lm=lm, orders=4, seed=5)
    rng, alone = np.random.default_rng(5), []
    for _ in range(4):
        source = Compared({"source": "s"}, document.candidates)
        for needed in rank(source, rng.permutation(n).tolist()):
            for one, (a, b) in needed:
                one.answers[a, b] = Answer(table[f"{one.candidates[a]} {one.candidates[b]}"], 1.0, 1)
        alone.append([float(n - 1 - source.order.index(k)) for k in range(n)])
    assert len({tuple(scores) for scores in alone}) > 1
    assert ranking.scores_by_order == alone
    assert ranking.scores == pytest.approx(np.mean(alone, axis=0))
    assert ranking.order == sorted(range(n), key=lambda k: -ranking.scores[k])
    assert len({str(prompt) for prompt in lm.prompts}) == len(lm.prompts) == ranking.judgments == ranking.comparisons
    (first,) = ranked(document, lm=Whim(), seed=5)
    assert first.scores == alone[0]


def test_a_candidate_that_no_order_can_rank_is_unranked_in_all():
    lm = Comparer(refuses=lambda question: "q=9 " in question.prompt[-1]["content"])
    (ranking,) = ranked(pair(1, 9, 3, 2), lm=lm, orders=3)
    assert (ranking.order, list(ranking.unranked)) == ([2, 3, 0], [1])
    assert ranking.scores == pytest.approx([0, math.nan, 2, 1], nan_ok=True)


@pytest.mark.parametrize(("probabilities", "order"), [
    # 0 > 1 and 2 > 3 are sorted; the judge narrowly prefers 2 to 0, and 1 to 2
    ([[0.48, 0.6], [0.99, 0.6]], [2, 0, 1, 3]),
    ([[0.52, 0.55], [0.45, 0.45]], [0, 2, 3, 1]),
    ([[0.5, 1.0], [0.5, 1.0]], [0, 1, 2, 3]),  # of equal ones, the left one comes first
    (np.full((2, 2), math.nan), [0, 1, 2, 3]),
])  # fmt: skip
def test_a_merge_takes_the_better_head(probabilities, order):
    source = Compared({"source": "s"}, [str(k) for k in range(4)])

    def run():
        source.order = yield from merge(source, [0, 1], [2, 3])

    for needed in run():
        source.shares.update({(a, b): probabilities[a][b - 2] for a, b in needed})
    assert source.order == order


def sort(shares, start):
    """Sort candidates by an (n, n) matrix of win shares; return the order, the unranked and the pairs asked."""
    source, asked = Compared({"source": "s"}, [str(k) for k in range(len(shares))]), []
    for needed in together([rank(source, start)]):
        asked += [pair for _, pair in needed]
        source.answers.update({(a, b): Answer(shares[a, b], 1.0, 1) for _, (a, b) in needed})
    return source.order, [c for c in start if c not in source.order], asked


def win_shares(n, draw):
    shares = np.full((n, n), math.nan)
    for a, b in itertools.combinations(range(n), 2):
        shares[a, b] = draw(a, b)
        shares[b, a] = 1 - shares[a, b]
    return shares


@given(data=st.data())
def test_candidates_without_any_defined_comparison_do_not_change_the_order_of_the_others(data):
    n = data.draw(st.integers(2, 9))
    share = st.sampled_from([math.nan, 0.0, 0.1, 0.4, 0.45, 0.5, 0.55, 0.7, 1.0])  # any, not only consistent ones
    mute = data.draw(st.sets(st.integers(0, n - 1)))
    shares = win_shares(n, lambda a, b: math.nan if {a, b} & mute else data.draw(share))
    start = data.draw(st.permutations(range(n)))
    isolated = {k for k in range(n) if np.isnan(shares[k]).all()}
    assert mute <= isolated
    order, unranked, asked = sort(shares, start)
    assert isolated <= set(unranked)
    assert np.isnan(shares[np.ix_(unranked, order)]).all()
    assert sorted([*order, *unranked]) == list(range(n))
    assert len({frozenset(pair) for pair in asked}) == len(asked)
    removals = [set(unranked)]
    if isolated == set(unranked):
        removals.append(data.draw(st.sets(st.sampled_from(sorted(isolated)))) if isolated else set())
    for removed in removals:
        assert sort(shares, [k for k in start if k not in removed])[0] == order


@given(data=st.data())
def test_a_candidate_with_one_defined_comparison_is_ranked_by_it(data):
    n = data.draw(st.integers(3, 8))
    other, wins = data.draw(st.integers(1, n - 1)), data.draw(st.booleans())
    shares = win_shares(n, lambda a, b: 0.9 if a else 0.9 if wins and b == other else 0.1 if b == other else math.nan)
    order, unranked, _ = sort(shares, data.draw(st.permutations(range(n))))
    assert unranked == []
    assert [k for k in order if k] == list(range(1, n))
    assert (order.index(0) < order.index(other)) == wins


def endless(question):
    return "endless" in question.prompt[-1]["content"]


@pytest.mark.parametrize("seed", range(4))
def test_a_candidate_that_the_model_cannot_take_is_unranked_with_the_reason(seed):
    options = {"judge": PairwiseJudge(C, debias="permutation"), "lm": Comparer(refuses=endless), "seed": seed}
    texts = ["q=3 z=0", "q=9 z=0 endless", "q=5 z=0", "q=1 z=0", "q=9 z=0 endless", "q=4 z=0", "q=3 z=0"]
    ranking, alone = ranked(texts, pair(3, 5), **options)
    assert ranking.order in ([2, 5, 0, 6, 3], [2, 5, 6, 0, 3])
    np.testing.assert_array_equal(ranking.scores, [1.5, math.nan, 4, 0, math.nan, 3, 1.5])
    reason = "the model cannot take the prompts (the log says why)"
    reason = f"None of its comparisons with a ranked candidate is defined: {reason}."
    assert ranking.unranked == {1: reason, 4: reason}
    assert (ranking.undefined, ranking.contradictions) == (4, 0)
    assert alone.unranked == {}


def test_a_ranking_without_any_defined_comparison_ranks_nothing():
    (mute,) = ranked(pair(1, 2, 3), judge=PairwiseJudge(C, min_coverage=0.9), lm=Comparer(mass=0.5))
    assert (mute.order, mute.comparisons, mute.undefined) == ([], 3, 3)
    np.testing.assert_array_equal(mute.scores, [math.nan] * 3)
    assert set(mute.unranked) == {0, 1, 2}
    assert mute.unranked[0] == (
        "None of its comparisons with a ranked candidate is defined: the answers' probabilities sum to at most 0.5 "
        "(min_coverage=0.9)."
    )


def test_more_candidates_than_letters_are_ranked_and_equal_ones_share_a_place():
    qualities = random.Random(0).sample(range(100), 60)
    many, named = ranked(pair(*qualities), dspy.Example(source="s", outputs=pair(4, 1, 3).candidates))
    assert [qualities[i] for i in many.order] == sorted(qualities, reverse=True)
    assert named.order == [0, 2, 1]
    lm = Comparer()
    (same,) = ranked(pair(2, 2), lm=lm)
    assert (same.order, same.scores, same.unranked, same.comparisons) == ([0, 1], [0.5, 0.5], {}, 0)
    assert lm.prompts == []


@pytest.mark.parametrize(("documents", "options", "message"), [
    ([], {"orders": 0}, "orders=0: give a whole number from 1 to 10000"),
    ([pair(1, 2), pair(1)], {}, "The item '1' has the candidates .*: give a list of 2 or more texts"),
    ([dspy.Example(source="s")], {}, "The item '0' does not have two candidates: give pairs"),
])  # fmt: skip
def test_bad_input(documents, options, message):
    with pytest.raises(ValueError, match=message):
        ranked(*documents, **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'limit'"):
        PairwiseRanker(PairwiseJudge(C)).batch([], limit=2)
