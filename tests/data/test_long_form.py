"""Rows that repeat a text with another rater, judge or criterion: one row a text, and judges are never pooled."""

import random
import shlex

import numpy as np
import pytest
from commands import as_jsonl, evalbias

import evalbias as package
from evalbias.data import DataError, read
from evalbias.data.columns import recognised_columns
from evalbias.data.reading import table_of

TEXTS, RATERS, NAN = 60, 7, np.nan
OURS = ("source", "output")
MAPPING = {"source": "question", "output": "answer"}


def said(seed=0):
    """Return ratings (texts, raters), each text rated by 3 raters, and scores of 2 judges."""
    rng = random.Random(seed)
    ratings = np.full((TEXTS, RATERS), NAN)
    scores = np.zeros((TEXTS, 2), dtype=int)
    for k in range(TEXTS):
        quality = rng.randrange(5)
        for who in rng.sample(range(RATERS), 3):
            ratings[k, who] = min(max(1 + quality + rng.choice((-1, 0, 1)), 1), 5)
        scores[k] = [min(max(1 + quality + rng.choice((-1, 0, 0, 1)), 1), 5) for _ in range(2)]
    return ratings, scores


def text(k, source="question", output="answer"):
    return {source: f"What is thing {k}?", output: f"It is {'very ' * (k % 7)}thing {k}."}


def raters(name, code="p{}"):
    """Make a row for each rating, those of a text in a random order of the raters."""
    ratings, scores = said()
    rated = np.argwhere(~np.isnan(ratings)).tolist()
    given = [{"score": int(ratings[k, who]), "judge": int(scores[k, 0])} for k, who in rated]
    rows = [text(k) | {name: code.format(who)} | row for (k, who), row in zip(rated, given, strict=True)]
    random.Random(1).shuffle(rows)
    for row in rows[::2]:  # as a tool that trims texts would not leave them
        row["answer"] = row["answer"].replace(" ", "  ") + "\r\n"
    return rows


@pytest.mark.parametrize(
    ("name", "code"), [("worker_id", "{}"), ("WorkerId", "A{}"), ("reviewer", "p{}"), ("col7", "x{}"), ("x", "{}")]
)
def test_rows_of_raters_become_one_with_a_column_each(name, code):
    ratings, scores = said()
    rows = raters(name, code)
    items = read(rows, mapping=MAPPING, numbers=["judge"])
    order = [*dict.fromkeys(row[name] for row in rows)]
    places = {code.format(who): who for who in range(RATERS)}
    assert len(items) == TEXTS
    for item in items:  # a rater is the same column in all texts
        k = int(item.source.split()[-1].strip("?"))
        np.testing.assert_array_equal(item.ratings, [ratings[k, places[who]] for who in order])
        assert item.judge == scores[k, 0]
    assert items.notes == (f"180 rows: 60 texts, 3 raters each (of 7), by '{name}'.",)
    assert items.summary().startswith(items.notes[0])


def test_an_audit_of_rows_of_raters_is_that_of_the_wide_table(caplog):
    ratings, scores = said()
    wide = [
        text(k, *OURS)
        | {"judge": int(scores[k, 0])}
        | {f"rating_{who + 1}": None if np.isnan(one) else one for who, one in enumerate(ratings[k])}
        for k in range(TEXTS)
    ]
    a, b = (package.audit(rows, scores_field="judge", **more) for rows, more in (
        (raters("worker"), {"mapping": MAPPING}), (wide, {})))  # fmt: skip
    assert "180 rows: 60 texts, 3 raters each (of 7), by 'worker'." in caplog.text
    assert a["agreement"]["spearman"].value == pytest.approx(b["agreement"]["spearman"].value)
    assert a["agreement"]["spearman"].n == b["agreement"]["spearman"].n == TEXTS


def judges():
    ratings, scores = said()
    return [
        text(k, *OURS)
        | {"model": name, "judge_score": int(scores[k, j]), "reason": f"{name} {k}"}
        | {"rating_1": int(np.nanmax(ratings[k])), "rating_2": int(np.nanmin(ratings[k]))}
        for k in range(TEXTS)
        for j, name in enumerate(("gpt-4", "claude"))
    ]


def test_rows_of_several_judges_are_never_pooled():
    _, scores = said()
    with pytest.raises(DataError, match=r"'model' says who judged: judges are not pooled.*--map judged_by=model"):
        read(judges(), numbers=["judge_score"])
    items = read(judges(), mapping={"judged_by": "model"}, numbers=["gpt-4/judge_score", "claude/judge_score"])
    read_scores = [[item["gpt-4/judge_score"], item["claude/judge_score"]] for item in items]
    np.testing.assert_array_equal(read_scores, scores)
    assert items[3]["claude/reason"] == "claude 3"
    assert items.notes == ("120 rows: 60 texts, 2 judges each, by 'model'.",)


def criteria(name="aspect"):
    ratings, scores = said()
    return [
        text(k, *OURS) | {name: criterion} | {"score": 1 + int(np.nanmax(ratings[k])) - c, "judge": int(scores[k, c])}
        for k in range(TEXTS)
        for c, criterion in enumerate(("fluency", "facts"))
    ]


@pytest.mark.parametrize("name", ["aspect", "x"])
def test_rows_about_criteria_become_scores_by_criterion(name):
    ratings, scores = said()
    items = read(criteria(name), mapping={"rated_on": name}, numbers=["fluency/judge", "facts/judge"])
    for k, item in enumerate(items):
        assert item.scores == {"fluency": 1 + np.nanmax(ratings[k]), "facts": np.nanmax(ratings[k])}
        assert [item["fluency/judge"], item["facts/judge"]] == scores[k].tolist()
    apart = package.audit(criteria(name), mapping={"rated_on": name}, criterion="all", scores_field="{criterion}/judge")
    alone = package.audit([row for row in criteria(name) if row[name] == "facts"], scores_field="judge")
    assert apart["facts"]["agreement"]["spearman"].value == alone["agreement"]["spearman"].value


def test_raters_of_several_criteria_become_ratings_by_criterion():
    rows = [
        {"output": text(k)["answer"], "worker": who, "aspect": one, "score": k % 4 + 2 - (one == "tone") - (who == "a")}
        for k in range(TEXTS)
        for who in "ab"
        for one in ("tone", "facts")
    ]
    items = read(rows, mapping={"rated_by": "worker", "rated_on": "aspect"})
    assert len(items) == TEXTS
    assert items[5].ratings == {"tone": [1, 2], "facts": [2, 3]}
    of_both = zip(rows[::4] + rows[1::4], rows[2::4] + rows[3::4], strict=True)
    wide = [a | {"rating_1": a["score"], "rating_2": b["score"]} for a, b in of_both]
    wide = [{n: v for n, v in row.items() if n not in ("score", "worker")} for row in wide]
    assert [item.ratings for item in read(wide, mapping={"rated_on": "aspect"})] == [item.ratings for item in items]
    assert "by criterion: --map rated_on=aspect" in read(wide).notes[0]


ALWAYS = [  # ratings that always differ between the two rows of a text
    text(k) | {"col": col, "human": 1 + (k + j) % 5, "judge": 1 + (k + j * (k % 2)) % 4}
    for k in range(40)
    for j, col in enumerate("ab")
]
READ = {  # rows -> what is certain of them, and what is asked for
    "raters": (raters("worker_id"), {"rated_by": "worker_id", "score": "score", "scores_field": "judge"}, {}),
    "raters, and names that tell nobody": (
        [{**{n: v for n, v in row.items() if n != "judge"}, "grade": row["judge"]} for row in raters("worker")],
        {"rated_by": "worker", "score": "score", "scores_field": "grade"}, {}),
    "judges": (
        judges(), {"rating_1": "rating_1", "rating_2": "rating_2", "scores_field": "judge_score"},
        {"model": [{"judged_by": "model", "judge": name} for name in ("gpt-4", "claude")]}),
    "criteria": (
        criteria(), {"score": "score", "scores_field": "judge"},
        {"aspect": [{"rated_on": "aspect", "criterion": "all"}, {}]}),
    "a name that says nothing": (
        ALWAYS, {"score": "human", "scores_field": "judge"}, {"col": [{"rated_on": "col", "criterion": "all"}, {}]}),
    "raters or criteria": (
        [{n: v for n, v in row.items() if n != "judge"} for row in ALWAYS], {"score": "human"},
        {"col": [{"rated_by": "col"}, {"rated_on": "col", "criterion": "all"}]}),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_doctor_takes_the_one_reading_of_such_rows_and_asks_where_there_are_two(name, tmp_path):
    rows, certain, asked = READ[name]
    found = recognised_columns(table_of(as_jsonl(tmp_path / "t.jsonl", rows)))
    assert {field: column for field, column in found.fields.items() if field not in OURS} == certain
    assert {one.about: [*map(dict, one.answers)] for one in found.questions} == asked
    said = evalbias("doctor", "t.jsonl", cwd=tmp_path).stdout
    commands = [shlex.split(line)[1:] for line in said.splitlines() if line.startswith("  evalbias")]
    assert len(commands) == max([1, *map(len, asked.values())]) + ("judges" in name)
    for command in commands if "MODEL" not in said else ():
        evalbias(*command, "--json", cwd=tmp_path)


def test_choices_between_two_outputs_keep_their_raters():
    rows = [
        {"output_1": f"a {k}", "output_2": f"bb {k}", "annotator": who, "better": "AB"[(k + j) % 2], "judge": "A"}
        for k in range(TEXTS)
        for j, who in enumerate(("anna", "ben", "carl"))
    ]
    items = read(rows, choices={"judge": ()})
    assert [item.ratings for item in items[:2]] == [[1, -1, 1], [-1, 1, -1]]
    assert [item.better for item in items[:2]] == [0, 1]


def test_raters_and_criteria_that_fit_alike_are_asked_for():
    rows = [{"output": text(k // 2)["answer"], "col": "ab"[k % 2], "score": (k // 2 + k % 2) % 5} for k in range(40)]
    with pytest.raises(DataError, match=r"'col'.*--map rated_by=col or --map rated_on=col"):
        read(rows)
    assert read(rows, mapping={"rated_by": "col"})[3].ratings == [3, 4]
    assert read(rows, mapping={"rated_on": "col"})[3].scores == {"a": 3, "b": 4}


@pytest.mark.parametrize(
    ("change", "match"), [({"worker": None}, "'rated_by' is empty"), ({"worker": "p0"}, "a second row of 'p0'")]
)
def test_rows_that_do_not_tell_their_rater_are_refused(change, match):
    rows = [{"output": text(k // 2)["answer"], "worker": f"p{k % 2}", "score": k % 5} for k in range(40)]
    rows[7] |= change
    with pytest.raises(DataError, match=rf"row 8: .*{match}" if "second" in match else match):
        read(rows, mapping={"rated_by": "worker"})


@pytest.mark.parametrize(
    "rows",
    [
        # equal answers of several systems are outputs of their own
        [{"source": f"q {k}", "output": "Yes." if k % 5 == 0 else f"{s} {k}", "system": s, "score": (k + len(s)) % 5}
         for k in range(30) for s in ("alpha", "be")],
        # nothing but the row differs
        [{"source": "q", "output": f"a {k // 2}", "score": 3} for k in range(40)],
    ],
)  # fmt: skip
def test_rows_that_are_items_of_their_own_stay(rows):
    assert len(read(rows)) == len(rows)
    assert read(rows).notes == ()


def test_commands_say_which_rows_became_one(tmp_path):
    as_jsonl(tmp_path / "t.jsonl", raters("worker_id"))
    options = ["--data", "t.jsonl", "--map", "source=question,output=answer", "--scores-field", "judge"]
    done = evalbias("audit", *options, "--out", "run", cwd=tmp_path)
    assert "180 rows: 60 texts, 3 raters each (of 7), by 'worker_id'." in " ".join(done.stderr.split())
