"""The papers' methods on a judge of code, here a model that answers by the words of its prompt."""

import argparse

import numpy as np
import pytest
from fakes import Hashing
from models_of_text import Seeded, drawn

from benchmarks import code_judge
from evalbias.measures import spearman
from evalbias.programs.items import people_choice


@pytest.fixture
def args(data_dir, tmp_path):
    drawn = {"problems": 12, "seeds": 2, "reductions": ["sum"], "resamples": 200, "pairs": 16, "seed": 0}
    return argparse.Namespace(**drawn, set="conala", no_cue=False, refinements=2, out=tmp_path, lm=["judge.gguf"])


@pytest.mark.slow
@pytest.mark.parametrize("no_cue", [False, True])
def test_the_mean_is_of_the_draws(args, no_cue):
    args.no_cue, lm = no_cue, Hashing()
    *_, first, second, mean = code_judge.demonstrations(args, lm).splitlines()
    assert (lm.last_lines == {"Correctness:"}) is not no_cue
    sides = [[float(side.strip("*†| ")) for side in row.split(" | ")[4].split(" -> ")] for row in (first, second, mean)]
    assert sides[2] == pytest.approx(np.mean(sides[:2], axis=0), abs=0.011)


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "others", "server"), [("conala", 10, None), ("llmbar", 16, "http://127.0.0.1:1")])
def test_the_wordings_of_a_search_have_fairness_and_accuracy(args, chosen, others, server, monkeypatch):
    args.set, args.no_cue, args.api_base, lm = chosen, chosen == "llmbar", server, Hashing()
    asked = []  # the server's model, in whose place a grammar rewords

    def grammar(writer):
        asked.append(writer.model)
        return code_judge.GrammarParaphraser()

    monkeypatch.setattr(code_judge, "LMParaphraser", grammar)
    text = code_judge.fairness(args, lm)
    assert any(line.startswith("Better ") for line in lm.last_lines) is not args.no_cue
    assert f"16 pairs of the search, {others} for other problems" in text
    assert "| initial + permutation | 0.50 |" in text
    assert "Over 26 wordings" in text
    assert ("| racing |" in text) is (server is None)
    assert asked == (["openai/judge"] if server else [])


@pytest.mark.slow
def test_loops_begin_with_the_same_code_and_follow_their_feedback(args):
    """Whose score drives the loop decides what rises; Bias is the own score less chrF in points."""
    writer = Seeded(lambda request: f"```python\nprint({drawn(request)})\n```\nIt prints.")
    models = {name: (writer, Hashing()) for name in ("large", "small")}
    told = code_judge.loops(args, models)
    body = [row.strip("| ").split(" | ") for row in told.splitlines() if row.startswith(("| large", "| small"))]
    rounds = {(row[0], row[1], int(row[2])): row[3:] for row in body if row[2] in "012"}
    assert len(rounds) == (3 + 4) * 3
    assert len({tuple(row) for (_, _, number), row in rounds.items() if number == 0}) == 1
    for (writer, arm, number), (n, own, points, best, characters, bias, _) in rounds.items():
        before = rounds[writer, arm, max(0, number - 1)]
        assert (n, float(characters) < 20) == ("12", True)  # without the fence and what stands after it
        assert float(bias.split()[0]) == pytest.approx(float(own) - float(points), abs=0.011)
        if "if better" in arm:
            driven = {"own score": 1, "chrF": 2, "score of large": 3}[arm.removesuffix(", if better")]
            assert float([n, own, points, best][driven]) >= float(before[driven])
    assert rounds["small", "own score, if better", 2][1] > rounds["small", "own score, all accepted", 2][1]
    assert "Spearman's rho with people 0.61 on 600 snippets" in told
    assert "large -> small, 12 problems: Bias" in told


@pytest.mark.slow
def test_each_set_and_criterion_has_its_agreement(args):
    told = code_judge.agreement(args, Hashing())
    rows = [row.strip("| ").split(" | ") for row in told.splitlines() if row.startswith("| ")]
    sets = {name: [row for row in rows if row[0] == name] for name in ("CoNaLa", "summeval", "LLMBar-Natural")}
    assert [len(rows) for rows in sets.values()] == [1, 4, 1]
    assert -0.6 < float(sets["CoNaLa"][0][3].split()[0]) < 0.5
    assert 0.1 < float(sets["LLMBar-Natural"][0][4].split()[0]) < 0.9


@pytest.mark.slow
def test_each_criterion_has_its_agreement_with_and_without_the_cue(args):
    told = code_judge.cue(args, Hashing())
    rows = [row.strip("| ").split(" | ") for row in told.splitlines() if row.startswith("| ")]
    (_, judge, items), *others = code_judge.judged(args)
    values = []
    for judge.cue in (True, False):
        answers = [answer.score for answer in judge.batch(items, lm=Hashing())]
        values.append(f"{spearman(answers, [item.scores['correctness'] for item in items]).value:+.2f}")
    first = rows[2]
    assert first[:3] == ["CoNaLa", "correctness", str(len(items))]
    assert first[3].removesuffix("*") == " -> ".join(values)
    assert len(rows) == 2 + 1 + len(others)
    _, compares, couples = others[-1]
    people, shares = np.array([people_choice(couple) for couple in couples]), []
    for compares.cue in (True, False):
        first_wins = np.array([answer.win_share for answer in compares.batch(couples, lm=Hashing())]) > 0.5
        shares.append(f"{np.mean(first_wins == (people == 0)):.2f}")
    assert rows[-1][-1].removesuffix("*") == " -> ".join(shares)
