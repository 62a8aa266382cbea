"""The world in which a bias of length is planted beside noisy raters, and the peers' adapters, without the peers."""

import io
import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from benchmarks.audit import length, peers
from benchmarks.audit.length import CORRELATIONS, WORLDS, cell, draw
from benchmarks.audit.ours import findings
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.judged import LENGTHS, RATINGS

AUDIT, ROOT = Path(peers.__file__).parent, Path(peers.__file__).parents[2]
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


def module(name, **functions):
    made = ModuleType(name)
    vars(made).update(functions)
    return {name: made}


def significant(scores, people, lengths):
    return SimpleNamespace(significant=scores[0] > people[0] and min(lengths) > 0)


def report(given):
    assert given["scale"] == [1, 5]
    assert min(given["length"]) > 0
    return {"bias": {"verbosity": {"t_stat": -3 * (given["score"][0] > given["quality"][0])}}}


def probe(*files):
    judge, gold = ([json.loads(line) for line in Path(file).read_text().splitlines()] for file in files)
    assert [one["item_id"] for one in judge] == [one["item_id"] for one in gold]
    assert min(one["output_len"] for one in judge) > 0
    return SimpleNamespace(findings=[SimpleNamespace(severity=judge[0]["score"] > gold[0]["human_score"])])


def table(ratings, **columns):
    assert columns == {"item": "item", "rater": "rater", "score": "score", "stratum": "half"}
    return ratings


def functioning(ratings, *, focal, reference, conditioner):
    counted = ratings["half"].value_counts()
    assert counted[focal] == pytest.approx(counted[reference], abs=12)  # a few have the median
    first = ratings.iloc[0]
    return SimpleNamespace(dif_class="B" if first["score"] > conditioner[first["item"]] else "A")


def choices(judge, comparisons):
    assert len(comparisons) == 600
    assert len(judge["preferences"]) == len(judge["lengths"]) == len(judge["human_preferences"]) < 300  # no ties
    warned = judge["preferences"][0] > judge["human_preferences"][0]  # B and A
    found = {"length": "warning" if warned else "info", "position": "info", "scores": "info"}
    return SimpleNamespace(findings=[SimpleNamespace(check=name, severity=how) for name, how in found.items()])


def checked(rows):
    first = rows[0]["verdict"], rows[0]["label"]
    return {"verdict": {"level": "not_trustworthy" if first == ("pass", "fail") else "usable"}}


MODELS = module("judge_audit_mcp.models", SEV_CLEAN=False)
PROBES = module("judge_audit_mcp.probes", PROBES={"length_confound": probe})
STUBS = {
    "truescore": (SCORES, module("truescore") | module("truescore.bias", length_bias=significant)),
    "judge_audit": (SCORES, module("judge_audit", audit=report)),
    "judge_audit_mcp": (SCORES, module("judge_audit_mcp") | MODELS | PROBES),
    "metajudge": (SCORES, module("metajudge", Ratings=SimpleNamespace(from_long=table), logistic_dif=functioning)),
    "evalaudit": (PAIRS, module("evalaudit", audit=choices)),
    "judgekeeper": (VERDICTS, module("judgekeeper", check_table=checked)),
}
"""Adapter -> its world, and modules in the peer's place that flag a judge which favors the first item."""


def favors_first(world, numbers):
    """Return whether the judge gives the first item more than people do, or the first pair to the other output."""
    if world is VERDICTS:
        return numbers["scores"][0] > numbers["ratings"][0][0]
    if world is SCORES:
        return numbers["scores"][0] > numbers["people"][0]
    return next(odds[0] < 0 < a - b for odds, (a, b) in zip(numbers["odds"], numbers["people"], strict=True) if a != b)


@pytest.mark.parametrize("peer", STUBS)
def test_a_peer_is_given_scores_people_and_lengths_and_its_flag_is_read(peer, monkeypatch, capsys):
    world, modules = STUBS[peer]
    draws = [drawn(world, seed=seed)[1] for seed in range(24)]
    for name, stub in modules.items():
        monkeypatch.setitem(sys.modules, name, stub)
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(one) + "\n" for one in draws)))
    runpy.run_path(str(AUDIT / f"peer_{peer}.py"))
    flag = ["not_trustworthy" if world is VERDICTS else "verbosity"]
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [flag if favors_first(world, one) else [] for one in draws]
    assert flag in printed
    assert [] in printed


def test_readme_says_how_often_other_tools_flag_unbiased_judges():
    """The largest share of draws in which a peer flags an unbiased judge that scores, with two raters."""
    readme, results = (" ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in PAGES)
    (told,) = re.findall(r"\[five other tools\]\(\S+\) flag up to (\d+) % for length", readme)
    table = results.partition("### Scores, two raters")[2].partition("###")[0]
    rows = [row for row in re.findall(r"\| ([\w-]+ [\d.]+) \| (\d+) / (\d+)", table) if "evalbias" not in row[0]]
    assert len({tool for tool, *_ in rows}) == 5
    assert max(int(share) for _, *shares in rows for share in shares) == int(told)
