"""What edits do to a judge's scores less their placebos: by hand, on planted judges, and as scores come back."""

import random
import re
from dataclasses import replace

import dspy
import numpy as np
import pytest
from refusals import refusals

import evalbias
from evalbias import data, recorded_scores, recorded_verdicts
from evalbias.data.probes import KINDS, NONSENSE, with_edits
from evalbias.evaluation.probes import estimate_probe, probe, read_probes
from evalbias.measures import estimate_share
from evalbias.measures.resample import Draws

SIGNS = {"headings": r"^## ", "list": r"^- ", "bold": r"\*\*", "emoji": "[\u2705\U0001f31f]", "label": r"GPT-4"}
SIGNS |= {"confident": r"certain|Without any doubt", "hedged": r"be wrong|am mistaken"}
SIGNS |= {"authority": r"Smith et al|experts|Reference", "bandwagon": r"readers prefer|by most people"}
SIGNS |= {"distraction": r"Penguins|train", "verbosity": r"again", "injection": r"[Vv]erdict|<\|im_end"}
SIGNS |= {"null": r"complete and correct|See above"}
"""Kind -> what a judge that is moved by it sees."""


def items(n=60, outputs=1):
    rng = random.Random(0)
    words = ["river", "stone", "market", "bridge", "house", "garden", "window", "morning", "letter", "music"]
    rows = []
    for k in range(n):
        text = " ".join(" ".join(rng.choices(words, k=6)).capitalize() + "." for _ in range(rng.randint(2, 4)))
        rows.append({"id": f"i{k}", "source": f"topic {k // outputs}", "output": text})
    return rows


def planted(kind, points, *, noise=0.5, seed=0):
    """A judge that gives every text a score with its own noise, and points for one kind of edit."""

    def judge(example):
        text = example.output
        rng = random.Random(f"{seed} {text}")
        if re.search(SIGNS["null"], text) or NONSENSE in text:
            return 5.0 if kind == "null" and NONSENSE not in text else 1.0
        moved = points if kind and re.search(SIGNS[kind], text, re.MULTILINE) else 0.0
        return float(np.clip(round(3 + rng.gauss(0, noise) + moved), 1, 5))

    return judge


def answered(rows, scores):
    """What a file with a judge's scores is read as."""
    scored = [row.copy(mine=score) for row, score in zip(rows, scores, strict=True)]
    return recorded_scores(scored, "mine", scale=(1, 5))


def test_effects_by_hand(snapshot):
    rows = with_edits([dspy.Example(one) for one in items(6)], ["label", "injection"])
    # original, label, its placebo, injection, its placebo
    table = [[3, 4, 3, 5, 3], [2, 4, 3, 5, 2], [5, 5, 5, 5, 5], [3, 3, 2, 3, 3], [4, 5, 4, 5, 5], [1, 2, 1, 1, 1]]
    found = read_probes(answered(rows, np.ravel(table)))
    label, injection = found["label"], found["injection"]
    assert (label.estimate.value, label.edit.value, label.placebo.value) == pytest.approx((5 / 6, 5 / 6, 0))
    assert (injection.estimate.value, injection.placebo.value) == pytest.approx((5 / 6, 1 / 6))
    # of five items below 5, three reach it with the injection, one with its placebo
    assert (injection.taken.value, injection.taken.n, injection.taken_by_placebo.value) == pytest.approx((0.6, 5, 0.2))
    assert label.taken is None
    assert injection.taken.high == pytest.approx(0.9473, abs=1e-4)  # Clopper and Pearson (1934): 3 of 5
    assert [*found.paragraphs] == snapshot
    assert found.margin == pytest.approx(0.2)


@pytest.mark.parametrize(("hits", "n"), [(0, 60), (3, 5), (7, 7), (12, 40)])
def test_an_exact_interval_of_a_share_holds_the_shares_that_the_binomial_does_not_exclude(hits, n):
    from scipy.stats import binom

    found = estimate_share([1.0] * hits + [0.0] * (n - hits), exact=True)
    assert found.high == 1 if hits == n else binom.cdf(hits, n, found.high) == pytest.approx(0.025)
    assert found.low == 0 if hits == 0 else binom.sf(hits - 1, n, found.low) == pytest.approx(0.025)
    if hits == 0:  # four outputs of an input count as one
        clustered = estimate_share([0.0] * n, clusters=[k // 4 for k in range(n)], exact=True)
        assert clustered.high == pytest.approx(1 - 0.025 ** (4 / n))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "null"])
def test_a_judge_that_is_moved_by_one_kind_is_flagged_for_it_and_no_other(kind):
    found = probe(planted(kind, 1.0, noise=0.3), items(120), scale=(1, 5), seed=1)
    assert [name for name, one in found.effects.items() if one.status == "biased"] == [kind]
    effect = found[kind].estimate
    assert effect.low < 1 < effect.high + 0.1
    assert {one.status for name, one in found.effects.items() if name not in (kind, "null")} == {"no sign"}
    assert f"{KINDS[kind].adds} brings" in found.paragraphs[0]


def test_a_non_answer_is_told_as_the_share_of_items_whose_output_it_beats(snapshot):
    reports = [probe(planted(kind, 1.0), items(60), kinds=["null"], scale=(1, 5)) for kind in ("null", None)]
    fooled, sound = (report["null"] for report in reports)
    assert (fooled.status, fooled.taken.value, fooled.taken_by_placebo.value) == ("not tested", 1, 0)
    assert sound.taken.value == 0
    assert sound.taken.high == pytest.approx(1 - 0.025 ** (1 / 60))
    # of one item nothing can be told, and a share has no bound
    reports += [probe(planted(None, 1.0), items(1), kinds=[kind], scale=(1, 5)) for kind in ("label", "null")]
    assert [[*report.paragraphs] for report in reports] == snapshot


def test_a_judge_of_noise_is_not_flagged_and_the_placebo_shows_what_any_change_does():
    found = probe(planted(None, 0.0, noise=2.0), items(60), kinds=["style"], scale=(1, 5))
    assert {one.status for one in found.effects.values()} <= {"too few items", "no sign"}

    def strict(example):  # takes a point off for anything that is added
        return 3 - (not example.output.endswith("."))

    label = probe(strict, items(60), kinds=["label"], scale=(1, 5))["label"]
    assert (label.edit.value, label.placebo.value, label.estimate.value) == (-1, -1, 0)
    assert label.status == "no sign"  # all differ by 0, and up to 5 % of others may not


def test_scores_come_back_in_any_order_and_what_is_missing_is_named_and_left_out(snapshot):
    rows = with_edits([dspy.Example(one) for one in items(40)], ["label", "bold"])
    judge = planted("label", 1.0)
    scores = [judge(row) for row in rows]
    whole = read_probes(answered(rows, scores))
    shuffled = np.random.default_rng(0).permutation(len(rows))
    again = read_probes(answered([rows[k] for k in shuffled], [scores[k] for k in shuffled]))
    assert all(again[kind].estimate.value == one.estimate.value for kind, one in whole.effects.items())
    assert [*again] == ["bold", "label"]
    # one edit has no score, one placebo no row, and one original neither
    scores[1] = None
    kept = [k for k in range(len(rows)) if k not in (7, 10)]
    part = read_probes(answered([rows[k] for k in kept], [scores[k] for k in kept]))
    assert sorted(part.missing) == ["i0|label|edit", "i1|label|placebo", "i2|original|1"]
    assert part.left_out == 1 + 1 + 4
    assert (part["label"].estimate.n, part["bold"].estimate.n) == (37, 39)
    assert part.paragraphs[-1] == snapshot


ROWS = with_edits([dspy.Example(row) for row in items(5)], ["label"])
BARE = [dspy.Example(id=row.id, output=row.output, mine=3) for row in ROWS]
NOTHING = answered(ROWS, [None] * len(ROWS))


test_what_is_no_file_of_probe_emit_is_refused = refusals(
    lambda judged: read_probes(judged),
    (answered([dspy.Example(row) for row in items(5)], [1, 2, 3, 4, 5]), "id 'i0'"),
    (answered(ROWS[1:3], [1, 2]), "No row is an original"),
    (recorded_scores(BARE, "mine"), "has no input_id"),
    (NOTHING, "answered no row"),
    (replace(NOTHING, asked=replace(NOTHING.asked, coverage=np.zeros(1))), "hardly ever answers with a label"),
    (recorded_scores([row.copy(mine=3) for row in ROWS], "mine"), "All scores are the same"),
)


def test_pairs_count_wins_of_the_edited_candidate_in_both_orders(snapshot):
    pairs = [dspy.Example(id=f"p{k}", source=f"s{k}", outputs=[f"Yes {k}.", f"No {k}."]) for k in range(60)]
    rows = with_edits(pairs, ["label"], seed=2)

    def choice(row, first, second):  # the labelled text, else the one that is shown first
        labelled = ["GPT-4" in row.candidates[place] for place in (first, second)]
        return (first, second)[labelled.index(True)] if any(labelled) else first

    given = [row.copy(winner=choice(row, 0, 1), swapped=choice(row, 1, 0)) for row in rows]
    found = read_probes(recorded_verdicts(given, "winner", swapped="swapped"))["label"]
    assert (found.estimate.value, found.edit.value, found.placebo.value) == (0.5, 0.5, 0)
    assert found.sentence == snapshot
    asked = probe(lambda e: choice(e.copy(candidates=e.candidates), 0, 1), pairs, kinds=["label"], seed=2)
    assert asked["label"].estimate.value == 0.5


class Grader(dspy.Module):  # a program that likes bold type
    def forward(self, source, output):
        return dspy.Prediction(score=3 + output.count("**") / 6)


@pytest.mark.slow
def test_a_dspy_module_a_judge_of_ours_and_a_file_can_be_probed(tmp_path):
    rows = items(20)
    assert probe(Grader(), rows, kinds=["bold"], scale=(1, 5))["bold"].estimate.value == pytest.approx(1)
    judge = evalbias.PointwiseJudge(evalbias.programs.SYNTHETIC)
    judge.save(tmp_path / "judge.json")
    texts, lm = [dict(one) for one in data.world.examples(12, seed=1)], evalbias.embedded_judge_lm()
    asked = [probe(one, texts, kinds=["label"], lm=lm) for one in (judge, str(tmp_path / "judge.json"))]
    assert asked[0].to_dict()["kinds"]["label"].estimate.value == asked[1]["label"].estimate.value
    assert asked[0]["label"].estimate.n == 12
    assert "label" in repr(asked[0])
    assert "What moves the judge" in asked[0]._repr_html_()


def test_the_exchange_counts_ties_in_full_and_whole_inputs():
    moved, draws = np.array([1.0] * 8 + [0.0] * 4), Draws(seed=0)
    # of 256 equally likely exchanges of the eight that differ, two are as large as the data
    assert estimate_probe(moved, unseen=4, draws=draws).p_value == pytest.approx(2 / 256, abs=0.003)
    pairs = np.arange(12) // 2
    assert estimate_probe(moved, unseen=4, draws=draws, clusters=pairs).p_value == pytest.approx(2 / 16, abs=0.01)
    assert estimate_probe(np.zeros(12), unseen=4, draws=draws).p_value == 1
    assert estimate_probe(-moved, unseen=4, draws=draws).value == pytest.approx(-2 / 3)


def test_a_kind_is_called_biased_only_where_its_interval_lies_beside_0():
    rows = with_edits([dspy.Example(one) for one in items(12)], ["label"])

    def read(differences):
        return read_probes(answered(rows, np.ravel([[3, 3 + d, 3] for d in differences])))["label"]

    few = read([2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0])  # p = 2 / 64
    assert (few.p_adjusted < 0.05, few.status) == (True, "biased")
    assert few.estimate.low > 0
    skewed = read([2, 0.1, 0.1, 0.1, 0.1, 0.1, 0, 0, 0, 0, 0, 0])  # by exchanges 2 / 64 too, though mostly of one item
    assert (skewed.p_adjusted > 0.05, skewed.status) == (True, "too few items")
    assert skewed.estimate.low < 0 < skewed.estimate.high
    # all twelve alike: up to 22 % of others may not be moved, or back, or by the whole scale
    for moved in (0.5, -0.5):
        alike, other = read([moved] * 12), 1 - 0.05 ** (1 / 12)
        ends = sorted([moved * (1 - 2 * other), moved + np.sign(moved) * 4 * other])
        assert (alike.status, [alike.estimate.low, alike.estimate.high]) == ("biased", pytest.approx(ends))
    assert read([0] * 12).status == "too few items"
    assert read([0] * 12).estimate.high == pytest.approx(4 * other)
