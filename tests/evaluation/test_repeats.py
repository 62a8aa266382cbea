"""An audit of a judge that scored every input several times: recorded and sampled."""

import dspy
import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused
from refusals import refusals
from texts import writer

from evalbias import Criterion, PointwiseJudge, Sampling, audit, data
from evalbias.data import DataError
from evalbias.evaluation import judge_examples
from evalbias.evaluation.judged import LEVEL_SHARES, SAMPLES, total
from evalbias.report.page import DIFFER


def items(n=100, *, noise=0.5, raters=0.5, rho=0.9, s=4, seed=0):
    """Scores of an input and ratings of one opinion each, which correlate rho."""
    rng = np.random.default_rng(seed)
    quality, other = rng.normal(size=(2, n))
    scores = 3 + (rho * quality + np.sqrt(1 - rho**2) * other)[:, None] + noise * rng.normal(size=(n, s))
    ratings = quality[:, None] + raters * rng.normal(size=(n, 2))
    return [
        {"id": f"i{k}", "output": f"reply {k}", "mine": scores[k].tolist(), "ratings": ratings[k].tolist()}
        for k in range(n)
    ]


def test_the_mean_of_the_samples_is_audited_and_equals_a_recorded_mean():
    rows = items()
    rows[3]["mine"][1:3] = [None, None]
    rows[4]["mine"] = [None] * 4
    rows[5]["mine"] = None
    rows[6]["mine"] = rows[6]["mine"][:1]
    found = audit(rows, samples_field="mine")
    means = [np.mean([s for s in row["mine"] or [] if s is not None] or [np.nan]) for row in rows]
    averaged = [{**row, "mine": None if np.isnan(m) else m} for row, m in zip(rows, means, strict=True)]
    single = audit(averaged, scores_field="mine")
    np.testing.assert_allclose(found.judged.answers, means)
    assert found["verbosity"].estimates == single["verbosity"].estimates
    assert found["agreement"].estimates == single["agreement"].estimates
    assert "repeats" not in single
    assert "Two scores" not in single.verdict
    assert found["repeats"]["test_retest"].n == 97
    assert found["repeats"]["test_retest"].undefined == 3
    assert found.to_dict()["further"]["repeats"]["flip_rate"]["value"] == 1
    assert found["agreement"]["spearman"].n == 98
    assert SAMPLES not in found["repeats"].columns  # a run's file holds no thousand numbers an item


MOSTLY = [("raters", {"raters": 1.5}), ("judge_noise", {"noise": 1.5}), ("systematic", {"rho": 0.2})]
MOSTLY += [(None, {"rho": 0.8, "noise": 0.6, "raters": 0.6})]


@pytest.mark.parametrize(("most", "settings"), MOSTLY)
def test_the_verdict_says_what_most_of_a_disagreement_is(most, settings, snapshot):
    found = audit(items(200, **settings), samples_field="mine")
    assert found.paragraphs[-1] == snapshot
    parts = {part: found["repeats"][part].value for part in ("raters", "judge_noise", "systematic")}
    assert sum(parts.values()) == pytest.approx(1)
    assert most is None or parts[most] == max(parts.values())


def test_items_to_discuss_are_named():
    rows = items(noise=0.1, raters=0.1, rho=0.99)
    rows[7]["ratings"][0] += 4
    rows[11]["mine"] = [s - 4 for s in rows[11]["mine"]]
    found = audit(rows, samples_field="mine").to_dict()["discuss"]
    assert (found["raters"][0], found["judge"][0], len(found["raters"])) == ("i7", "i11", 10)
    assert audit([{**row, "ratings": [1]} for row in rows], samples_field="mine").to_dict()["discuss"] == {}


def test_what_cannot_be_told_is_said_with_the_reason(snapshot):
    rows = items(40)
    once = audit([{**row, "mine": row["mine"][:1]} for row in rows], samples_field="mine")
    assert np.isnan(once["repeats"]["test_retest"].value)
    same = audit([{**row, "mine": [3, 3]} for row in rows], samples_field="mine")
    single = [{**row, "ratings": row["ratings"][:1]} for row in rows]
    stated = [audit(single, samples_field="mine", reliability=reliability) for reliability in (None, 0.8)]
    assert [found.paragraphs[-1] for found in (once, same, *stated)] == snapshot
    unrated = audit([{"output": row["output"], "mine": row["mine"]} for row in rows], samples_field="mine")
    assert list(unrated["repeats"]) == ["test_retest", "noise_share", "flip_rate", "noise_sd", "samples_needed"]


test_odd_samples_are_refused_by_item_and_remedy = refusals(
    lambda row, options: audit([{"output": "a", **row}], samples_field="mine", **options),
    ({"mine": 3}, {}, "row 1: 'mine' is 3"),
    ({"mine": "good"}, {}, "'mine' is 'good'"),
    ({"mine": [4, "x"]}, {}, "'mine' is 'x'"),
    ({"mine": [4, 9]}, {"scale": (1, 5)}, "is 9, outside the scale from 1 to 5"),
    ({"yours": [4, 9]}, {}, "'mine'"),
    ({"mine": [4], "scores": {"a": 1}}, {"scores_field": "mine"}, "Name one judge"),
)


def test_samples_are_read_from_columns_and_from_json_in_a_cell(tmp_path):
    (tmp_path / "a.csv").write_text("output,mine_1,mine_10,mine_2\nx,1,2.5,3\ny,,4,\n")
    (tmp_path / "b.csv").write_text('output,mine\nx,"[1, 3, 2.5]"\ny,"[null, null, 4]"\nz,\n')
    columns, cells = (data.read(tmp_path / name, samples="mine") for name in ("a.csv", "b.csv"))
    assert [row.mine for row in columns] == [[1, 3, 2.5], [None, None, 4]]
    assert [row.mine for row in cells] == [[1, 3, 2.5], [None, None, 4], []]
    with pytest.raises(DataError, match=r"b\.csv:2: 'output' is 'x'"):
        data.read(tmp_path / "b.csv", samples="output")


@pytest.mark.slow
def test_the_command_audits_samples_and_a_condition_names_their_numbers(tmp_path):
    options = ["audit", "--data", as_jsonl(tmp_path / "items.jsonl", items(60)), "--samples-field", "mine"]
    found = answered(*options, cwd=tmp_path)
    assert found["further"]["repeats"]["test_retest"]["value"] > 0.6
    shown = " ".join(evalbias(*options, "--full", "--out", "run", cwd=tmp_path).stdout.split())
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    for whose, words in DIFFER.items():
        assert all(f"Items to discuss: {words}" in text for text in (page, shown))
        assert ", ".join(found["discuss"][whose][:5]) in shown
        assert ", ".join(found["discuss"][whose]) in page
    assert "The same input twice" in shown
    assert "--labels" in refused(*options, "--labels", "1,2", cwd=tmp_path)
    assert "'reliability'" in refused(*options, "--fail-on", "repeats.reliability<0.5", cwd=tmp_path)


def test_a_sampled_judge_is_measured_by_the_answers_that_it_drew():
    judge = PointwiseJudge(Criterion("quality", "is it good?"), scoring="sampled", sampling=Sampling(samples=6))
    lm, _ = writer(lambda text, _: {"1": 0.1, "3": 0.4, "4": 0.3, "no answer": 0.2})
    examples = [dspy.Example(source=str(k), output=f"reply {k}", score=k % 5) for k in range(30)]
    judged = judge_examples(judge, examples, lm=lm)
    samples, readable = judged.covariate(SAMPLES), 6 * judged.asked.coverage
    np.testing.assert_allclose((~np.isnan(samples)).sum(axis=1), readable)
    np.testing.assert_allclose(np.nanmean(samples, axis=1), judged.answers)
    assert np.isin(samples[~np.isnan(samples)], [1, 3, 4]).all()
    assert SAMPLES not in total([judged, judged]).covariates
    assert judged.take(np.array([2, 0])).covariates[SAMPLES].shape == (2, samples.shape[1])
    judge.sampling = Sampling(samples=1)  # which tells neither noise nor shares
    assert not {SAMPLES, LEVEL_SHARES} & judge_examples(judge, examples, lm=lm).covariates.keys()
