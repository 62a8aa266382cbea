import numpy as np
import pytest

from benchmarks.audit import live
from benchmarks.audit.__main__ import cell
from benchmarks.audit.judges import JUDGES, OWN, Defects, draw
from benchmarks.audit.ours import findings
from evalbias.evaluation.audit import audit_answers


def drawn(judge, n=120, seed=1):
    return draw(JUDGES[judge], n, np.random.default_rng(seed))


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["scores: all of these", "pairs: all of these", "pairs: none, with probabilities"])
def test_what_is_not_computed_would_change_no_finding_of_the_audit(judge):
    judged = drawn(judge).judged
    audited = audit_answers(judged, own_system=OWN, seed=3).findings
    whole = {f.bias: (f.status, f.estimate, f.p_adjusted) for f in audited}
    ours = {f.bias: (f.status, f.estimate, f.p_adjusted) for f in findings(judged, seed=3)}
    assert len(ours) == 4
    assert ours == {bias: whole[bias] for bias in ours}
    assert {status for bias, (status, *_) in whole.items() if bias not in ours} <= {"not measured"}


def test_the_live_judge_gives_the_drawn_scores_and_makes_the_drawn_comparisons():
    numbers = drawn("scores: all of these").numbers
    texts = [live.text(numbers, item) for item in range(120)]
    assert [len(one) for one in texts] == numbers["lengths"]
    assert [live.score(numbers, one) for one in texts] == numbers["scores"]
    numbers = drawn("pairs: all of these").numbers
    for item, (odds, swapped) in enumerate(numbers["odds"]):
        first, second = (live.text(numbers, item, side) for side in (0, 1))
        assert live.first_wins(numbers, first, second, 0) == (odds > 0)
        assert live.first_wins(numbers, second, first, 1) == (swapped > 0)


def test_padding_moves_only_a_judge_that_likes_length_and_flags_are_counted_by_draw():
    for judge, moves in (("scores: none", False), ("scores: verbosity", True)):
        numbers = drawn(judge).numbers
        texts = [live.text(numbers, item) for item in range(120)]
        assert any(live.score(numbers, one + " word" * 200) != live.score(numbers, one) for one in texts) == moves
    defects = Defects(length=0.4, unscored=frozenset({"scale_use"}))
    flags = [{"verbosity"}, {"verbosity", "position", "likelihood"}, set(), {"scale_use"}]
    assert cell(defects, [frozenset(one) for one in flags]) == "verbosity 50; false 25 (of 4)"
