"""The world in which a bias of length is planted beside noisy raters, and how flags are counted."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.audit import length, peers
from benchmarks.audit.length import CORRELATIONS, WORLDS, cell, draw
from benchmarks.audit.ours import findings
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.judged import LENGTHS, RATINGS

ROOT = Path(peers.__file__).parents[2]
PAGES = ("README.md", "benchmarks/results/audit.md")
SCORES, PAIRS, VERDICTS = (WORLDS[f"{kind}, two raters"] for kind in ("scores", "pairs", "pass or fail"))


def drawn(world, judge="unbiased", correlation=0.5, seed=1):
    return draw(world, judge, correlation, np.random.default_rng(seed))


@pytest.mark.slow
@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_the_biased_judge_alone_owes_scores_to_length_at_equal_quality(correlation, monkeypatch):
    monkeypatch.setattr(length, "ITEMS", 100_000)
    rounding = np.sqrt(0.461 / 0.5)  # what rounding leaves of a correlation with an exact number
    for judge, bias in (("unbiased", 0), ("biased", 0.2)):
        judged, _ = drawn(SCORES, judge, correlation)
        log_length = np.log(judged.covariates[LENGTHS])
        first, second = judged.covariates[RATINGS].T
        score, rating = (np.corrcoef(one, log_length)[0, 1] for one in (judged.answers, first))
        assert np.corrcoef(first, second)[0, 1] == pytest.approx(0.461, abs=0.01)
        assert rating == pytest.approx(rounding * np.sqrt(0.5) * correlation, abs=0.01)
        assert score - rating == pytest.approx(rounding * bias, abs=0.01)  # a rating owes to length its quality alone
        assert np.corrcoef(judged.answers, first)[0, 1] == pytest.approx(0.461 + 0.65 * bias * correlation, abs=0.01)
        assert judged.answers.std() == pytest.approx(first.std(), abs=0.01)


def test_a_lenient_judge_gives_more_and_passes_more():
    for world, more in ((SCORES, 1.27), (VERDICTS, 0.31)):  # less than 1.5 points, for the scale ends
        one, other = (drawn(world, judge)[0].answers for judge in ("unbiased", "unbiased and lenient"))
        assert (other - one).mean() == pytest.approx(more, abs=0.1)
        assert set(np.unique(one)) == ({0, 1} if world is VERDICTS else {1, 2, 3, 4, 5})


def test_pairs_are_compared_in_both_orders_and_peers_see_the_same_answers():
    judged, numbers = drawn(PAIRS)
    assert judged.answers[:, :, 0].tolist() == [[float(one > 0) for one in orders] for orders in numbers["odds"]]
    assert judged.answers[:, :, 0].mean() == pytest.approx(0.5, abs=0.05)
    better = np.sign(np.array(numbers["people"]) @ [1, -1])
    assert (np.sign(judged.covariates[RATINGS].mean(axis=1)) == better).all()
    assert np.mean((judged.answers[:, 0, 0] > 0.5) == (better > 0)) > 0.6


@pytest.mark.parametrize(
    "world", [SCORES, *(pytest.param(world, marks=pytest.mark.slow) for world in (PAIRS, VERDICTS))]
)
def test_the_test_of_length_alone_is_that_of_the_command(world):
    judged, _ = drawn(world, "biased")
    (ours,) = findings(judged, seed=3, only="verbosity")
    (whole,) = audit_answers(judged, only="verbosity", seed=3).findings
    assert (ours.status, ours.estimate, ours.p_adjusted) == (whole.status, whole.estimate, whole.p_adjusted)


def test_flags_are_counted_by_correlation():
    flags = [[frozenset({"verbosity", "position"}), frozenset({"scale_use"})], [frozenset(), frozenset({"verbosity"})]]
    assert cell("ours", flags) == "50 / 50 (other: 100 / 0)"
    assert cell("ours", flags[1:] * 2) == "50 / 50"
    assert cell("judgekeeper", [[frozenset({"not_trustworthy"})]] * 2) == "- (other: 100 / 100)"
    assert cell("ours", [flags[0], []]) == "not run"


def test_what_was_asked_is_not_asked_again(tmp_path):
    asked = []

    def flags(missing):
        asked.append([*missing])
        return ({"verbosity"} if i % 2 else set() for i in missing)

    kept = [peers.kept(tmp_path / "flags.jsonl", draws, flags) for draws in (2, 5, 4)]
    assert asked == [[0, 1], [2, 3, 4]]
    assert kept[1] == kept[2] == [frozenset(), {"verbosity"}, frozenset(), {"verbosity"}, frozenset()]


def test_readme_says_how_often_other_tools_flag_unbiased_judges():
    """The largest share of draws in which a peer flags an unbiased judge that scores, with two raters."""
    readme, results = (" ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in PAGES)
    (told,) = re.findall(r"\[five other tools\]\(\S+\) flag up to (\d+) % for length", readme)
    table = results.partition("### Scores, two raters")[2].partition("###")[0]
    rows = [row for row in re.findall(r"\| ([\w-]+ [\d.]+) \| (\d+) / (\d+)", table) if "evalbias" not in row[0]]
    assert len({tool for tool, *_ in rows}) == 5
    assert max(int(share) for _, *shares in rows for share in shares) == int(told)
