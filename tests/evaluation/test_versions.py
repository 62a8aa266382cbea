"""Two versions of a judge on the same items, in Python and by the command."""

import json
from dataclasses import replace
from html import escape

import dspy
import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias

from evalbias import BIASES, audit, compare, compare_versions, data, measure, recorded_scores, recorded_verdicts
from evalbias.evaluation.agreement import by_item, judged_of
from evalbias.report.runs import biases_of, comparison_page, estimate_rows, run_differences, versions_of
from evalbias.runs import RunFolder, read_run
from evalbias.values import to_json

WORDS = ["council", "bridge", "river", "monday", "vote", "said", "money", "plan", "work", "mayor", "street", "house"]
ROWS = [
    {
        "id": f"{i}-{j}",
        "input_id": f"a{i}",
        "source": f"article {i}",
        "output": " ".join(WORDS[(i * k + j) % 12] for k in range(3 + j)),
        "ratings": [1 + (i + j) % 5, 1 + (i + j + i % 2) % 5],
    }
    for i in range(20)
    for j in range(3)
]
ITEMS = list(data.read(ROWS))
PEOPLE = np.array([np.mean(row["ratings"]) for row in ROWS])
RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=60)


def recorded(values, items=ITEMS, **options):
    items = [e.copy(mine=None if np.isnan(v) else float(v)) for e, v in zip(items, values, strict=True)]
    return recorded_scores(items, "mine", **options)


def test_the_shift_the_changed_decisions_and_the_undefined_are_counted():
    before = np.where(np.arange(60) % 2, 2.0, 4.0)
    after = before + np.where(np.arange(60) < 12, 1.5, -0.5)
    before[59] = np.nan
    found = compare_versions(recorded(before), recorded(after), pass_mark=3.5)
    assert found["score"].difference.value == pytest.approx((12 * 1.5 - 47 * 0.5) / 59)
    shift = found["score"].difference
    assert (shift.n, shift.undefined, shift.units) == (59, 1, 20)  # intervals are over inputs
    assert found.size == pytest.approx((12 * 1.5 + 47 * 0.5) / 59)
    assert shift.low < shift.value < shift.high
    assert found.sides == (0, 6)  # 2 + 1.5 passes, of 12 items every second; 4 - 0.5 still passes
    assert found.changed.value == pytest.approx(6 / 59)
    assert (
        found.paragraphs[0]
        == "recorded scores 'mine' answered in both: 59 items judged by both, 1 more without an answer of both."
    )
    assert found.paragraphs[2].endswith("of 59 items, 0 no longer pass and 6 now do.")
    assert "say which score passes" in compare_versions(recorded(before), recorded(after)).paragraphs[2]
    same = compare_versions(recorded(after), recorded(after))
    assert same.paragraphs[1] == "No score differs."


def test_only_a_significant_gain_in_agreement_is_called_one():
    noisy, good = recorded(NOISE), recorded(PEOPLE + NOISE / 4)
    better, worse = compare_versions(noisy, good), compare_versions(good, noisy)
    assert better["spearman"].p_value < 0.05
    assert better.paragraphs[-1].startswith("The second version agrees with people more: Spearman")
    assert worse.paragraphs[-1].startswith("The second version agrees with people less: Spearman")
    shifted = compare_versions(good, recorded(PEOPLE + NOISE / 4 + 1))
    assert shifted["score"].difference.value == pytest.approx(1.0)
    assert shifted.paragraphs[-1].startswith("Nothing shows that the second version agrees with people more or less")
    nobody = [e.without("ratings", "score") for e in ITEMS]
    assert compare_versions(noisy, recorded(PEOPLE, nobody))["spearman"].before.n == 60  # people of the other run count
    unrated = compare_versions(recorded(NOISE, nobody), recorded(PEOPLE, nobody))
    assert list(unrated) == ["score"]
    assert unrated.paragraphs[-1].startswith("Without people's view")


def test_a_scale_from_0_to_1_and_verdicts_pass_from_one_half_and_pairs_prefer():
    p = np.linspace(0, 1, 60)
    found = compare_versions(recorded(p, scale=(0, 1)), recorded(1 - p, scale=(0, 1)))
    assert found.sides == (30, 30)
    verdicts = compare_versions(recorded(p > 0.5), recorded(p > 0.7))
    assert verdicts.sides == (12, 0)
    assert verdicts.changed.value == 12 / 60

    def choosing(pick):
        pairs = [dspy.Example(id=f"{i}", outputs=["a", f"b {i}"], mine=pick(i), better=i % 2) for i in range(40)]
        return recorded_verdicts(pairs, "mine")

    sides = choosing(lambda i: 0), choosing(lambda i: int(i % 4 == 1))
    pairs = compare_versions(*sides)
    with pytest.raises(ValueError, match="The pass mark is 1: leave it out for a judge that compares"):
        compare_versions(*sides, pass_mark=1)
    kept = (judged_of(json.loads(json.dumps(to_json(by_item(one))))) for one in sides)
    assert compare_versions(*kept).to_dict() == pairs.to_dict()
    assert pairs.changed.value == 0.25
    assert pairs["score"].difference.value == -0.25
    assert pairs["accuracy"].difference.value == pytest.approx(0.25)  # 20 of 40 choices are people's, then 30
    assert "win share of a pair's first candidate" in pairs.paragraphs[1]


def test_items_are_the_same_by_id_input_and_texts():
    others = [e.copy(output=e.output + ".") if i < 20 else e for i, e in enumerate(ITEMS)]
    found = compare_versions(recorded(NOISE), recorded(NOISE[::-1], others[::-1]))
    assert (found["score"].after.n, found.size) == (40, 0)
    for one, told in [
        (recorded(NOISE, [e.copy(output="else") for e in ITEMS]), "no item in common"),
        (recorded(NOISE, criterion="wit"), r"differ in criterion \(quality and wit\)"),
        (recorded(np.zeros(60), scale=(0, 1)), "differ in scale"),
    ]:
        with pytest.raises(ValueError, match=told):
            compare_versions(recorded(NOISE), one)
    scored = recorded(PEOPLE, scale=(1, 5))
    for mark in (1, 6, float("nan")):
        with pytest.raises(ValueError, match="give one above 1, to 5"):
            compare_versions(scored, scored, pass_mark=mark)


def test_few_items_leave_the_differences_undefined():
    one = recorded([3.0], ITEMS[:1], scale=(1, 5))
    said = compare_versions(one, one, pass_mark=4).paragraphs
    assert said[2] == "Of 100 decisions, 0 change (95 % interval undefined): of 1 item, 0 no longer pass and 0 now do."
    assert said[3] == "Whether the second version agrees with people more or less cannot be told from these items."


def test_biases_of_two_audits_are_tested_on_the_items_of_both(tmp_path):
    longer = PEOPLE + np.array([len(row["output"]) for row in ROWS]) / 10 + NOISE / 9
    records, sides = [], []
    for name, scores, rows in (("fair", PEOPLE + NOISE / 9, ROWS), ("long", longer, ROWS[:57])):
        scored = [{**row, "ratings": row["ratings"][:1], "mine": s} for row, s in zip(rows, scores, strict=False)]
        found = audit(scored, scores_field="mine", reliability=0.8, seed=0)
        with RunFolder(tmp_path / name, {"command": "audit", "seed": 0}) as run:
            kept = {"measurements": found.measurements, "items": by_item(found.judged)}
            run.write_result({"audit": found.to_dict(), **kept})
        records.append(read_run(tmp_path / name))
        sides.append(found.judged.take(np.arange(57)))
    compared = biases_of(*records)
    bias = BIASES["verbosity"].configured(reliability=0.8)
    expected = compare(*(measure(bias, one, seed=0) for one in sides), n_resamples=10_000, seed=0)
    change = compared["verbosity"]["length_effect"]
    assert change.to_dict() == {**expected["length_effect"].to_dict(), "before": change.before, "after": change.after}
    assert change.difference.n == 57
    assert change.p_value < 0.05 < 0.3 < change.difference.value
    differing = run_differences(*records)
    assert differing.paragraphs[-1].startswith("Its biases changed: Effect of length at equal quality ")
    (rows,) = (estimate_rows(pairs) for title, pairs in differing.measured if title.startswith("Verbosity"))
    assert rows[0][3].startswith(f"{change.difference.value:+.2f} ({change.difference.low:+.2f} to ")
    assert escape(rows[0][3]) in comparison_page(differing).html().replace("\n", " ")
    same = run_differences(records[0], records[0])
    assert not [one for one in same.paragraphs if "changed" in one]
    earlier = {name: one for name, one in records[0].result["items"].items() if name not in ("texts", "writers")}
    assert "verbosity" not in biases_of(replace(records[0], result={"items": earlier}), records[1])


@pytest.mark.slow
def test_audits_of_several_criteria_are_tested_for_each(tmp_path):
    rng, records = np.random.default_rng(5), {}
    lengths = np.array([len(row["output"]) for row in ROWS])
    rated = {"wit": PEOPLE, "tact": 6 - PEOPLE}
    rows = [
        {**{name: row[name] for name in ("id", "input_id", "source", "output")}}
        | {
            "ratings": {
                name: [human[k] + rng.normal() / 3, human[k] + rng.normal() / 3] for name, human in rated.items()
            }
        }
        for k, row in enumerate(ROWS)
    ]
    scores = {"old": dict(rated), "new": {"wit": PEOPLE + lengths / 10, "tact": rated["tact"]}}
    for run, by_name in scores.items():
        for name, values in by_name.items():
            for row, value in zip(rows, values + rng.normal(size=60) / 9, strict=True):
                row[f"{run}_{name}"] = float(value)
    as_jsonl(tmp_path / "items.jsonl", rows)
    for run in scores:
        asked = ("--data", "items.jsonl", "--scores-field", f"{run}_{{criterion}}", "--criterion", "all")
        evalbias("audit", *asked, "--out", run, cwd=tmp_path)
        records[run] = read_run(tmp_path / run)
    differing = run_differences(records["old"], records["new"])
    assert [*differing.tests] == ["wit", "tact"]
    moved = differing.tests["wit"]["versions"]["score"].difference.value
    assert moved == pytest.approx(np.mean([row["new_wit"] - row["old_wit"] for row in rows]))
    assert "wit: The score moves by " in " ".join(differing.paragraphs)
    assert any(one.startswith("tact: ") and " agrees with people " in one for one in differing.paragraphs)
    assert differing.paragraphs[-1].startswith("Its biases changed: ")
    assert "Effect of length at equal quality on wit " in differing.paragraphs[-1]
    assert "tact" not in differing.paragraphs[-1]
    (paired,) = (pairs for title, pairs in differing.measured if title == "Verbosity: wit")
    assert estimate_rows(paired)[0][3].startswith(
        f"{differing.tests['wit']['biases']['verbosity']['length_effect'].difference.value:+.2f}"
    )
    told = answered("runs", "compare", "old", "new", cwd=tmp_path)["criteria"]
    assert told["wit"]["versions"]["changes"]["score"]["difference"]["estimate"] == moved
    assert told["tact"]["biases"].keys() == differing.tests["tact"]["biases"].keys()
    assert "Two judges on the same items" in comparison_page(differing).html()
    alone = ("--data", "items.jsonl", "--scores-field", "new_wit", "--criterion", "wit")
    evalbias("audit", *alone, "--out", "alone", cwd=tmp_path)
    assert "no criterion in common" in run_differences(records["old"], read_run(tmp_path / "alone")).paragraphs[0]


def test_what_two_judges_give_different_own_systems_is_not_one_number(tmp_path):
    rows = [{**row, "system": "abc"[i % 3], "mine": i % 5 + 1, "yours": i % 4 + 1} for i, row in enumerate(ROWS)]
    records = {}
    for judge, own in (("mine", "a"), ("yours", "a"), ("yours", "b")):
        found = audit(rows, scores_field=judge, own_system=own, only="self_preference", seed=0)
        with RunFolder(tmp_path / f"{judge}-{own}", {"command": "audit", "own": own, "judge": judge}) as run:
            run.write_result({"audit": found.to_dict(), "items": by_item(found.judged)})
        records[judge, own] = read_run(tmp_path / f"{judge}-{own}")
    assert "self_preference" in biases_of(records["mine", "a"], records["yours", "a"])
    assert "self_preference" not in biases_of(records["mine", "a"], records["yours", "b"])


def test_judges_in_one_order_and_in_both_are_no_versions_and_an_outcome_is_no_people(tmp_path):
    rows = [{"outputs": [f"a {i}", f"bb {i}"], "sold": "AB"[i % 2], "one": "AB"[i % 3 == 0]} for i in range(40)]
    rows, records = [{**row, "two": row["one"]} for row in rows], []
    for name, more in (("one", {}), ("both", {"swapped_field": "two"}), ("again", {})):
        found = audit(rows, winner_field="one", outcome="sold", seed=0, **more)
        with RunFolder(tmp_path / name, {"command": "audit", "outcome": "sold"}) as run:
            kept = {"measurements": found.measurements, "items": by_item(found.judged)}
            run.write_result({"audit": found.to_dict(), **kept})
        records.append(read_run(tmp_path / name))
    differing = run_differences(*records[:2])
    assert "The two differ in both orders (False and True)" in differing.paragraphs[0]
    assert "on the same items" not in comparison_page(differing).html()
    same = run_differences(records[0], records[2])
    assert "on the same items" in comparison_page(same).html()
    assert "agrees with the outcome more or less" in " ".join(same.paragraphs)
    assert "Agreement with the outcome: quality" in [title for title, _ in same.measured]


@pytest.mark.slow
def test_a_pass_mark_of_ratings_and_a_damaged_result_decide_nothing(tmp_path):
    rows = [{**row, "mine": i % 7 / 10, "new": i % 7 / 10 + 0.2} for i, row in enumerate(ROWS)]
    as_jsonl(tmp_path / "items.jsonl", rows)
    for field in ("mine", "new"):
        scored = ("--data", "items.jsonl", "--scores-field", field, "--scale", "0.0-1.0", "--pass", "4")
        evalbias("audit", *scored, "--out", field, cwd=tmp_path)
    before, after = (read_run(tmp_path / field) for field in ("mine", "new"))
    crossing = sum(i % 7 in (3, 4) for i in range(60))
    assert versions_of(before, after).sides == (0, crossing)  # from a half on, and not from the rating 4 on
    assert "give one above 0, to 1" in versions_of(before, after, 4)
    items = after.result["items"]
    for damaged in ({"answers": [0.5]}, {"people": {"human_scores": [1]}}, {"ids": 5}, {"answers": 5}):
        other = replace(after, result={"items": {**items, **damaged}})
        assert versions_of(before, other).startswith("They are not compared as versions of one judge.")
    assert versions_of(before, replace(after, result={})) == ""
    assert "is for two audits" in versions_of(before, replace(after, result={}), 0.5)


@pytest.mark.slow
def test_two_releases_of_a_decision_model_are_named_and_compared_by_the_command(tmp_path):
    from decision_models import sparrow_server
    from sparrow_decider import Decider

    as_jsonl(tmp_path / "items.jsonl", ROWS)
    asked = ["--lm", "sparrow", "--dialect", "systemone", "--criterion", "good: is it good?", "--data", "items.jsonl"]
    models = {"general": Decider.load(), "robot": Decider.load("nano-robot")}
    for run, model in models.items():

        def answer(body, model=model):
            return 200, {"model": model.name, "answers": model.ask(body["state"], body["questions"])}

        with sparrow_server(answer) as (address, _):
            evalbias("audit", *asked, "--api-base", address, "--out", run, cwd=tmp_path)
    shown = evalbias("runs", "compare", "general", "robot", "--pass", "3", "--html", "page.html", cwd=tmp_path).stdout
    assert shown.startswith(
        f"{models['general'].name} before, {models['robot'].name} after: 60 items judged by both.\n"
    )
    versions = answered("runs", "compare", "general", "robot", "--pass", "3", cwd=tmp_path)["versions"]

    def expected(model):
        question = {"type": "score", "criteria": [*"12345"]}
        question["instructions"] = (
            "Judge the output on good: is it good?\nAnswer with a whole number from 1 (worst) to 5 (best)."
        )
        answers = (model.ask({"Source": e.source, "Output": e.output}, {"q": question})["q"] for e in ITEMS)
        return np.array([1 + np.average(range(5), weights=[*a["probabilities"].values()]) for a in answers])

    before, after = map(expected, models.values())
    assert versions["changes"]["score"]["difference"]["estimate"] == pytest.approx((after - before).mean(), abs=1e-6)
    assert versions["sides"] == [((before >= 3) > (after >= 3)).sum(), ((before >= 3) < (after >= 3)).sum()]
    assert "Two judges on the same items" in (tmp_path / "page.html").read_text()
    assert answered("runs", "compare", "general", "general", cwd=tmp_path)["versions"]["size"] == 0
