"""The benchmark of Align: what is planted is there, sides share no input, and others' optimizers are measured alike."""

import argparse

import pytest
from fakes import Hashing

import evalbias
from benchmarks import align
from evalbias.data.items import input_key
from evalbias.measures import pearson
from evalbias.programs.edits import edits, with_lines


@pytest.mark.slow
def test_the_edit_raises_the_correlation_by_what_is_said_and_the_labels_are_of_the_quality():
    lm, judge = align.World(align.WORLDS["one edit helps"]), evalbias.PointwiseJudge(align.CRITERION)
    items = align.worded(2_000, 10_000)
    (line,) = [line for line in edits(judge).values() if align.EDIT in line]
    gains = [align.pearson(edited, items, lm) for edited in (judge, with_lines(judge, [line]))]
    assert gains[1] - gains[0] == pytest.approx(0.11, abs=0.01)
    same = [align.pearson(judge, items, align.World(noise)) for noise in align.WORLDS.values()]
    assert same[0] == pytest.approx(same[1], abs=0.005)


@pytest.mark.parametrize("name", [*align.SETS])
def test_two_sides_of_a_set_share_no_input_and_hold_peoples_means(data_dir, name):
    train, test = align.rated_outputs(name, 0, 12, 9)
    assert [len({input_key(item) for item in side}) for side in (train, test)] == [12, 9]
    assert not {input_key(item) for item in train} & {input_key(item) for item in test}
    for item in train:
        (ratings,), (score,) = item.ratings.values(), item.scores.values()
        assert score == pytest.approx(sum(ratings) / len(ratings))


@pytest.mark.slow
def test_what_another_optimizer_compiles_is_measured_on_other_outputs(data_dir, tmp_path, monkeypatch):
    writers = []

    def compiled(name, judge, train, lm, writer, args):
        writers.append(writer)
        return with_lines(judge, [f"{name} wrote this."])

    monkeypatch.setattr(align, "bare", compiled)
    args = argparse.Namespace(set="CoNaLa", seed=0, train=6, test=20, bare=["GEPA"], lm="coder.gguf", out=tmp_path)
    lm = Hashing()
    lm.history = []
    for args.api_base in (None, "http://127.0.0.1:1/v1"):
        _, text, section = align.others(args, lm)
    judge, (_, test) = evalbias.PointwiseJudge(align.CODE), align.rated_outputs("CoNaLa", 0, 6, 20)
    people = [item.scores["correctness"] for item in test]
    answers = [[p.score for p in j.batch(test, lm=lm)] for j in (judge, with_lines(judge, ["GEPA wrote this."]))]
    headings, _, row = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|"))
    expected = " -> ".join(f"{pearson(scores, people).value:+.2f}" for scores in answers)
    assert row[headings.index("Pearson")].rstrip("*†") == expected
    assert (section, row[0], row[-2]) == ("bare, seed 0", "GEPA", "0")
    assert (writers[0], writers[1].model, writers[1].kwargs["api_base"]) == (lm, "openai/coder", args.api_base)
