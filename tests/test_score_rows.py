"""What ``evalbias judge`` says about items without a score."""

import json
import math

from evalbias.cli.judge import summary, told


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return summary(path)[0]


def row(name, score, **more):
    return {"id": name, "score": score, "coverage": math.nan, **more}


def test_items_that_the_model_did_not_answer_are_told_from_those_that_it_cannot_take(tmp_path):
    file = tmp_path / "scores.jsonl"
    rows = [row("a", 3.0), row("b", math.nan, undefined="too long"), row("c", math.nan), row("d", math.nan)]
    brief = written(file, rows)
    assert (brief["n"], brief["undefined"], brief["refused"], brief["unanswered"]) == (1, 3, ["b"], 2)
    assert "1 item scored, 3 undefined (the model cannot take item b)" in told(brief, file)
    assert "2 items have no score although the model answered" in told(brief, file)
    assert "although the model answered" not in told(written(file, rows[:2]), file)
