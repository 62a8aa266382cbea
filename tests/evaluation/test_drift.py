"""Did the judge change, or the system? From files, run folders and audits to findings, in Python and by the command."""

import json

import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused

from evalbias import BIASES, audit, drift, measure, recorded_scores
from evalbias.data import read
from evalbias.evaluation import compare_judges
from evalbias.runs import read_run

WORDS = ["council", "bridge", "river", "monday", "vote", "said", "money", "plan", "work", "mayor", "street", "house"]


def texts(n, *, quality=0.0, seed=0, name="a", raters=2):
    """Return items of n inputs with two outputs each, and their quality."""
    rng = np.random.default_rng(seed)
    q = quality + rng.normal(size=2 * n)
    lengths = rng.integers(3, 40, size=2 * n)
    outputs = [f"{name} {k} " + " ".join(WORDS[(k + j) % 12] for j in range(lengths[k])) for k in range(2 * n)]
    rows = [
        {"source": f"{name} {k // 2}", "output": output}
        | {f"rating_{r}": float(3 + q[k] + 0.5 * rng.normal()) for r in range(1, raters + 1)}
        for k, output in enumerate(outputs)
    ]
    return rows, q, np.log([len(output) for output in outputs])


def judged(rows, scores, rng, noise=0.3):
    return [row | {"judged": float(s + noise * rng.normal())} for row, s in zip(rows, scores, strict=True)]


def sides(shift=0.0, *, bend=0.0, length=0.0, gain=0.0, anchors=60, seed=0):
    """Return the rows of both periods of a judge that moves all, good or long texts, and of a better system."""
    rng = np.random.default_rng([seed, 1])
    old, new = texts(60, seed=seed, name="p"), texts(60, quality=gain, seed=seed + 100, name="q")
    rows, q, words = texts(anchors, seed=seed + 200, name="anchor")

    def later(q, words):
        return 3 + q + shift + bend * np.maximum(q, 0) + length * (words - words.mean())

    before = judged(old[0], 3 + old[1], rng) + judged(rows, 3 + q, rng)
    after = judged(rows, later(q, words), rng) + judged(new[0], later(new[1], new[2]), rng)
    return before, after


@pytest.fixture(scope="module")
def stricter():
    """A judge that takes 0.8 points for each of quality above the middle, and a system that is better by 0.5."""
    return sides(bend=-0.8, gain=0.5)


def test_the_judge_hides_what_the_system_gained(stricter, snapshot):
    found = drift(*stricter, scores_field="judged")
    assert found["drift"].value == pytest.approx(-0.32, abs=0.12)  # 0.8 times 0.4, the mean of a quality above 0
    assert found["drift"].high < 0 < found["system"].low
    assert found["change"].value == pytest.approx(found["drift"].value + found["system"].value)
    assert [*found.paragraphs] == snapshot
    assert found["drift"].n == 120
    assert found.split.mapped[-1, 0] < found.split.levels[-1] - 0.8


def test_a_new_bias_is_named_and_the_others_are_not(snapshot):
    found, same = (drift(*sides(length=x), scores_field="judged", scale=(-2, 8)) for x in (0.6, 0.0))
    assert found.comparisons["verbosity"]["length_effect"].p_value < 0.001
    assert [[*one.paragraphs] for one in (found, same)] == snapshot


def test_only_a_significant_gain_in_agreement_with_people_is_called_one(snapshot):
    rows, q, _ = texts(30)
    rng = np.random.default_rng(1)  # texts draws from seed 0
    scores = rng.normal(size=60), q + 0.1 * rng.normal(size=60), q + 1
    noisy, good, shifted = (judged(rows, some, rng, noise=0.0) for some in scores)
    found = [drift(*judges, scores_field="judged") for judges in ((noisy, good), (good, noisy), (good, shifted))]
    assert [text for one in found for text in one.paragraphs if "agrees with people" in text] == snapshot
    more, _, alike = (one.comparisons["agreement"]["spearman"].difference for one in found)
    assert more.p_value < 0.05 < 0.5 < more.value
    assert alike.value == pytest.approx(0, abs=0.05)
    nobody = [{name: value for name, value in row.items() if not name.startswith("rating")} for row in good]
    of_the_other = drift(noisy, nobody, scores_field="judged").comparisons["agreement"]  # whose ratings count
    assert of_the_other["spearman"].before.n == 60
    assert "agreement" not in drift(nobody, nobody, scores_field="judged").comparisons
    few = drift(good[:1], good[:1], scores_field="judged", margin=1)
    assert "cannot be told from these items" in few.paragraphs[-1]


def test_biases_are_compared_by_the_paired_test_of_their_measurements():
    versions, options = sides(length=0.6), {"scores_field": "judged", "scale": (-2, 8)}
    found = drift(*versions, **options)
    anchors = [[row for row in rows if row["source"].startswith("anchor")] for rows in versions]
    judged_twice = [audit(rows, only="verbosity", **options).judged for rows in anchors]
    measured = [measure(BIASES["verbosity"], one, seed=0) for one in judged_twice]
    difference = found.comparisons["verbosity"]["length_effect"].difference
    assert difference == compare_judges(*measured, n_resamples=10_000, seed=0)["length_effect"].difference
    assert difference.n == 120


def test_few_anchors_leave_it_open_and_say_how_many_would_be_enough(snapshot):
    found, few = (drift(*sides(anchors=n), scores_field="judged", margin=0.1) for n in (10, 2))
    half = (found["drift"].high - found["drift"].low) / 2
    assert found.enough == pytest.approx(20 * (half / 2.26 * 2.8 / 0.1) ** 2, rel=0.1)
    assert [found.paragraphs[2], few.paragraphs[2]] == snapshot


def test_the_same_judge_at_temperature_0_did_not_change(snapshot):
    before, after = sides()
    kept = {row["output"]: row["judged"] for row in before}
    after = [row | {"judged": kept.get(row["output"], row["judged"])} for row in after]
    found = drift(before, after, scores_field="judged")
    assert (found["drift"].value, found["drift"].low, found["drift"].high) == (0, 0, 0)
    again = drift(before, before, scores_field="judged")
    assert [found.paragraphs[2], again.paragraphs[0]] == snapshot


@pytest.mark.slow
def test_anchors_are_the_same_texts_whatever_their_rows_and_repeats_count_as_often_as_both_have_them():
    before, after = sides()
    found = drift(before, after[::-1], scores_field="judged")
    assert found["drift"].n == 120
    assert found["drift"].value == pytest.approx(drift(before, after, scores_field="judged")["drift"].value)
    twice = [row | {"id": f"{k}"} for k, row in enumerate([*before, before[-1]])]
    assert drift(twice, after, scores_field="judged")["drift"].n == 120
    named = [[{"id": row["output"], "judged": row["judged"]} for row in side] for side in (before, after)]
    assert drift(*named, scores_field="judged")["drift"].n == 120  # without texts, by id
    with pytest.raises(ValueError, match="no text in common"):
        drift(before[:120], after[120:], scores_field="judged")


def test_anchors_of_another_level_are_told_and_repeated_scores_need_no_caution(snapshot):
    before, after = sides()
    worse = [row for row in before if not row["source"].startswith("anchor") or row["judged"] < 3]
    found = drift(worse, after, scores_field="judged")
    assert found.split.apart == pytest.approx(1, abs=0.1)
    assert all(f"{value:.2f}" in found.paragraphs[-2] for value in (found.split.apart, found.split.unsure))
    assert [*found.paragraphs[-2:]] == snapshot
    for row in (*worse, *after):
        row["drawn"] = [row["judged"] - 0.1, row["judged"] + 0.1]
    found = drift(worse, after, samples_field="drawn")
    assert found.split.unsure == 0
    assert not any(text.startswith("The old outputs had") for text in found.paragraphs)


def test_anchors_that_were_chosen_by_their_old_scores_are_told():
    """The best and the worst 20 of 120: their new scores go to the middle, as those of all chosen by a noisy score."""
    before, after = sides()
    by_score = sorted((row for row in before if row["source"].startswith("anchor")), key=lambda row: row["judged"])
    others = [row for row in before if not row["source"].startswith("anchor")]
    for anchors, told in ((by_score[:20] + by_score[-20:], 1), (by_score[::3], 0)):
        found = drift([*others, *anchors], after, scores_field="judged")
        assert found["drift"].n == 40
        assert sum("scores of the anchors lie farther from their middle" in text for text in found.paragraphs) == told


@pytest.mark.slow
@pytest.mark.parametrize("taste", [0.0, 0.6])
def test_anchors_of_another_length_are_told_where_the_new_judge_sees_length(taste):
    before, after = sides(length=taste, anchors=120)
    short = [[r for r in rows if "anchor" not in r["source"] or len(r["output"]) < 130] for rows in (before, after)]
    said = [" ".join(drift(*rows, scores_field="judged").paragraphs) for rows in (short, (before, after))]
    assert ["shorter than the old outputs" in one for one in said] == [taste > 0, False]


@pytest.fixture
def files(stricter, tmp_path):
    """The rows of both periods as files."""
    return [as_jsonl(tmp_path / f"{name}.jsonl", rows) for name, rows in zip(("old", "new"), stricter, strict=True)]


@pytest.mark.slow
def test_an_audit_or_its_run_folder_is_a_baseline(files, tmp_path):
    before, after = files
    columns = ("--scores-field", "judged", "--scale=-2-8")
    evalbias("audit", "--data", before, *columns, "--out", "baseline", cwd=tmp_path)
    options = {"scores_field": "judged", "scale": (-2, 8)}
    expected = drift(str(before), str(after), **options)
    of_folder = drift(str(tmp_path / "baseline"), str(after), **options)
    assert of_folder.to_dict() == expected.to_dict()
    audits = [audit(str(file), **options) for file in (before, after)]
    assert drift(*audits).paragraphs == expected.paragraphs
    scores = [recorded_scores(read(str(file), numbers=["judged"]), "judged", scale=(-2, 8)) for file in (before, after)]
    assert drift(*scores).paragraphs == expected.paragraphs
    kept = tmp_path / "baseline" / "result.json"
    whole = json.loads(kept.read_text())
    items, n = whole["items"], len(whole["items"]["ids"])
    damages = (
        *({"answers": [0.5]}, {"answers": 5}, {"answers": [10**400] * n}, {"ids": 5}, {"ids": [[1]] * n}),
        *({"people": {"human_scores": [1]}}, {"people": {"human_scores": [1e31] * n}}),
        *({"inputs": items["inputs"][1:]}, {"outputs": [None] * n}, {"scale": [5, 1]}),
    )
    damaged = [{"schema": "evalbias.audit/1", "audit": {}}, whole | {"criteria": 5}]
    damaged += [whole | {"items": items | damage} for damage in damages]
    for content, match in [
        *((json.dumps(result), "baseline holds no audit") for result in damaged),
        ('{"schema": ', r"result\.json is not valid JSON"),
        (None, "baseline .* not finished"),
    ]:
        kept.write_text(content) if content else kept.unlink()
        with pytest.raises(ValueError, match=match):
            drift(str(tmp_path / "baseline"), str(after), **options)


def test_outputs_without_a_score_or_a_text_are_counted(stricter, tmp_path, caplog):
    before, after = ([*map(dict, rows)] for rows in stricter)
    before[0]["judged"] = before[150]["judged"] = after[0]["judged"] = None  # an own output, two anchors
    before[1]["output"] = ""
    as_jsonl(tmp_path / "old.jsonl", before)
    found = drift(str(tmp_path / "old.jsonl"), after, scores_field="judged")
    assert found.paragraphs[-1] == "Without a score, and left out: 2 anchors and 1 other output."
    assert "jsonl: 239 items; 1 left out (empty output:" in caplog.text
    plain = [{"source": row["source"], "output": row["output"], "judge_score": row["judged"]} for row in stricter[0]]
    drift(plain, plain)
    assert "Columns: 'judge_score' as the judge (evalbias doctor says why)." in caplog.text


def test_a_judge_that_compares_and_odd_margins_are_refused(stricter):
    pairs = [{"id": f"{k}", "outputs": ["a", "b"], "winner": k % 2} for k in range(9)]
    with pytest.raises(ValueError, match="judge that compares"):
        drift(audit(pairs, winner_field="winner"), stricter[1], scores_field="judged")
    with pytest.raises(ValueError, match="`margin` is 0"):
        drift(*stricter, scores_field="judged", margin=0)
    with pytest.raises(ValueError, match="differ in scale"):
        drift(audit(stricter[0], scores_field="judged", scale=(-2, 8)), stricter[1], scores_field="judged")


@pytest.mark.slow
def test_the_command_leaves_a_run_and_fails_a_build(stricter, files, tmp_path):
    before, after = files
    call = ("drift", "--before", before, "--after", after, "--scores-field", "judged")
    found = answered(*call, "--out", "run", cwd=tmp_path)
    expected = drift(str(before), str(after), scores_field="judged")
    assert found["schema"] == "evalbias.drift/1"
    assert found["paragraphs"] == list(expected.paragraphs)
    assert found["estimates"]["drift"]["low"] == expected["drift"].low
    kept = read_run(tmp_path / "run")
    assert kept.result["comparisons"]["agreement"]["changes"]["spearman"]["difference"]["n"] == 120
    page = (tmp_path / "run/report.html").read_text()
    assert "Scores of the same rank by both judges" in page
    assert "The system improved." in page
    done = evalbias(*call, cwd=tmp_path)
    assert "the judge's part" in done.stdout
    failing = evalbias(*call, "--fail-on", "drift>0.1", "--fail-on", "system>0?", cwd=tmp_path, check=False)
    assert failing.returncode == 1
    assert failing.stderr.startswith("failed: drift>0.1: drift is 0.")
    undecided = evalbias(*call, "--fail-on", f"drift>{abs(expected['drift'].value):.3f}", cwd=tmp_path, check=False)
    assert (undecided.returncode, undecided.stderr.partition(":")[0]) == (3, "undecided")
    assert evalbias(*call, "--fail-on", "drift>2,system<0", cwd=tmp_path).returncode == 0
    assert "'verbosity' is unknown" in refused(*call, "--fail-on", "verbosity>1", cwd=tmp_path)
    as_jsonl(after, stricter[1][:-2])
    assert "sides_sha256" in refused(*call, "--out", "run", cwd=tmp_path)  # another file of the same name


def test_scores_that_changed_places_within_inputs_are_not_called_the_same():
    first = [{"input_id": f"q{k // 2}", "output": f"text {k}", "judged": 2.0 + 2 * (k % 2)} for k in range(40)]
    found = drift(first, [row | {"judged": 6 - row["judged"]} for row in first], scores_field="judged")
    assert found["drift"].low == found["drift"].high == 0
    assert not any("the same score again" in text for text in found.paragraphs)


def test_judges_that_do_not_agree_have_no_map_and_equal_scores_no_margin(snapshot):
    before, after = sides()
    against = [row | {"judged": 6 - row["judged"]} for row in after]
    found = drift(before, against, scores_field="judged")
    assert np.isnan([found["drift"].low, found["system"].low]).all()
    assert not np.isnan(found["change"].low)
    equal = [row | {"judged": 3} for row in before]
    varied = [row | {"judged": 2 + k % 3} for k, row in enumerate(after)]
    assert [found.paragraphs[2], drift(equal, varied, scores_field="judged").paragraphs[2]] == snapshot
    assert drift(equal[-1:], after, scores_field="judged").map_table().rows[0][2] == "undefined"


def test_no_number_of_anchors_is_advised_that_is_there_already():
    before, after = sides(0.05)
    e = drift(before, after, scores_field="judged")["drift"]
    found = drift(before, after, scores_field="judged", margin=0.98 * e.high)
    assert e.p_value > 0.05
    assert found.enough <= 120
    assert "would be enough" not in found.paragraphs[2]


def test_a_map_by_rank_is_told_apart_from_what_became_of_the_same_texts():
    """Both judges give 30 of 150 texts a 5, but not the same 30: rank moves a 5 by 0, and its texts lose 0.66."""
    rng, scores = np.random.default_rng(0), np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], 30)
    again = np.concatenate([np.repeat([2.0, 3.0], 15), scores[30:120] + 0.2, [5.0] * 19, [3.2] * 11])
    again[60:71] = 5.0
    rows = [{"input_id": f"q{k}", "output": f"text {k}", "judged": s} for k, s in enumerate(scores)]
    order = rng.permutation(150)
    found = drift(rows, [rows[k] | {"judged": float(again[k])} for k in order], scores_field="judged")
    last = found.map_table().rows[-1]
    assert (last[0], last[1], last[3], last[4]) == ("5", "5.00", "30", "4.34")
    (said,) = [text for text in found.paragraphs if "no shift" in text]
    assert "by rank, the judge moves" in said
    assert "a 5 by +0.00" in said
    assert "the 30 that had it have 4.34" in said
