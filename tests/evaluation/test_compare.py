"""Is one system better than another? From outputs to findings, in Python and by the command."""

import re

import dspy
import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused
from fakes import numbers
from models_of_text import Seeded, drawn
from refusals import refusals

from evalbias import Criterion, PointwiseJudge, Sampling, audit, compare, judge_metric, score_closeness
from evalbias.runs import read_run

OPTIONS = {"scores_field": "judged"}


def outputs(n=300, *, seed=0, quality=0.0, longer=1.0, lean=0.0, rated=True, name="v"):
    """Return rows of a judge that gives .5 points for one unit of log length."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        q = quality + rng.normal()
        words = max(2, int(longer * np.exp(3 + 0.5 * rng.normal() + 0.1 * q)))
        text = f"{name} {k}" + " word" * words
        row = {"id": f"{name}{k}", "input_id": f"i{k}", "output": text, "lists": int(rng.integers(0, 4))}
        row["judged"] = 3 + 0.8 * q + 0.5 * np.log(len(text)) + lean + 0.3 * rng.normal()
        rows.append(row | ({f"rating_{r}": 3 + q + 0.5 * rng.normal() for r in (1, 2)} if rated else {}))
    return rows


def without(rows, name):
    return [{key: value for key, value in row.items() if key != name} for row in rows]


BEFORE, LONGER = outputs(), outputs(seed=3, longer=2, name="w")
UNRATED = outputs(rated=False), outputs(seed=1, longer=2, quality=0.4, rated=False, name="w")
MIXED = [row | {"system": "own" if k % 2 else "other"} for k, row in enumerate(BEFORE)]
MIXED = [row | {"judged": row["judged"] + 0.5 * (row["system"] == "own")} for row in MIXED]
OWN = [row | {"system": "own", "judged": row["judged"] + 0.5} for row in outputs(seed=1, name="w")]
FEW, FEW_LATER = outputs(60), outputs(60, seed=3, name="w")
LEANING, RATED_ONCE = outputs(seed=1, longer=2, lean=0.6, name="w"), without(outputs(100), "rating_2")
OTHERS = {"rated": outputs(seed=5, name="r")}
KNOWN = {  # what is planted -> the versions, the options, and each part's value with how far it may err
    "length": ((BEFORE, LONGER), {}, {"length": (0.35, 0.05), "favor": (0.35, 0.15), "people": (0, 0.2)}),  # log(2) / 2
    "quality": ((BEFORE, outputs(seed=1, quality=0.5, name="w")), {}, {"length": (0, 0.06), "people": (0.5, 0.2)}),
    "the version": ((BEFORE, LEANING), {}, {"favor": (0.95, 0.12), "length": (0.35, 0.07)}),
    "own writing": ((MIXED, OWN), {"own_system": "own"}, {"own_system": (0.25, 0.08)}),  # from half to all outputs
    "nobody rated": (UNRATED, {}, {"length": (np.nan, 0), "people": (np.nan, 0)}),
    "others rated": (UNRATED, OTHERS | {"features": ["lists"]}, {"length": (0.35, 0.06), "lists": (0, 0.02)}),
    "shorter ones rated": (UNRATED, {"rated": outputs(seed=5, longer=0.3, name="r")}, {}),
    # where one version counts its place is no covariate
    "one rating before": ((RATED_ONCE, outputs(100, seed=3, longer=2, name="w")), {}, {"length": (0.35, 0.15)}),
    "a constant": ((FEW, FEW_LATER), {"features": ["hedges"]}, {}),
    "texts of one alone": ((without(outputs(40), "output"), outputs(40, seed=1, name="w")), {}, {}),
}


@pytest.mark.parametrize(("versions", "options", "parts"), KNOWN.values(), ids=KNOWN)
def test_the_difference_of_two_versions_and_its_parts(versions, options, parts, snapshot):
    found = compare(before=versions[0], after=versions[1], **options, **OPTIONS)
    for name, (value, error) in parts.items():
        assert found[name].value == pytest.approx(value, abs=error, nan_ok=True), name
    assert [*found.paragraphs] == snapshot


def labeled(system, share, **planted):
    """Return rows of a system of which people rated a random part."""
    rng, rows = np.random.default_rng(0), outputs(400, **planted)
    return [row if rng.random() < share else unrated(row) for row in [row | {"system": system} for row in rows]]


def unrated(row):
    return {name: value for name, value in row.items() if not name.startswith("rating")}


A, LIKED = labeled("A", 0.15), labeled("B", 0.15, seed=1, lean=0.5, name="w")
BETTER = labeled("C", 0.15, seed=2, quality=0.7, name="x")
CHOSEN = [row if row["judged"] > 5 else unrated(row) for row in labeled("A", 1)]
SYSTEMS = {
    "one that the judge favors": (A + LIKED, ["B", "A"]),
    "a better one": (A + BETTER, ()),
    "other inputs": (A + [row | {"input_id": "x" + row["input_id"]} for row in BETTER], ()),
    "three": (A + LIKED + BETTER, ()),
    "one of three is not rated": (A + LIKED + labeled("D", 0, seed=9, name="y"), ()),
    "some rows have no system": ([row | {"system": ""} if k < 9 else row for k, row in enumerate(A)] + BETTER, ()),
    "identical": (A + [row | {"system": "E", "id": f"E{k}"} for k, row in enumerate(A)], ()),
    "few ratings": (labeled("A", 0.02) + labeled("B", 0.02, seed=1, quality=0.1, name="w"), ()),
    "the best by the judge were rated": (CHOSEN + LIKED, ()),
}


@pytest.mark.parametrize(("rows", "systems"), SYSTEMS.values(), ids=SYSTEMS)
def test_systems_of_one_file(rows, systems, snapshot):
    found = compare(rows, systems=systems, **OPTIONS)
    assert [*found.paragraphs] == snapshot
    if len(found.split.systems) == 2 and "favor" in found:
        assert found["favor"].value == pytest.approx(found["gain"].value - found["people"].value)


test_what_cannot_be_compared_is_refused = refusals(
    lambda given: compare(**given, **OPTIONS),
    ({"before": FEW, "after": FEW_LATER, "features": ["words"]}, "'words'"),
    ({"before": FEW, "after": FEW_LATER, "own_system": "ours"}, "`own_system` 'ours': a file does not name"),
    ({"before": MIXED, "after": OWN, "own_system": "ours"}, "No output is by `own_system` 'ours'"),
    ({"data": FEW}, "The data have none: name the column system"),
    ({"data": MIXED, "systems": ["own", "theirs"]}, "`systems` 'own' and 'theirs': .* have 'other' and 'own'"),
    ({"data": MIXED, "before": FEW}, "Give `data` of all systems, or two files"),
    ({"before": FEW, "after": [row | {"judged": 20 * row["judged"]} for row in FEW_LATER]}, "different scales"),
)


@pytest.mark.slow
def test_the_command_its_run_and_its_conditions(tmp_path):
    versions = outputs(120), outputs(120, seed=1, longer=2, name="w")
    before, after = (as_jsonl(tmp_path / f"{name}.jsonl", rows) for name, rows in zip("ab", versions, strict=True))
    call = ("compare", "--before", before, "--after", after, "--scores-field", "judged")
    found = answered(*call, "--out", "run", cwd=tmp_path)
    expected = compare(before=versions[0], after=versions[1], **OPTIONS)
    assert found["schema"] == "evalbias.compare/1"
    assert found["paragraphs"] == list(expected.paragraphs)
    assert read_run(tmp_path / "run").result["estimates"]["length"]["value"] == expected["length"].value
    assert "What differs between the systems" in (tmp_path / "run/report.html").read_text()
    assert "Length" in evalbias(*call, cwd=tmp_path).stdout
    done = evalbias(*call, "--fail-on", "length>0.1", "--fail-on", "likelihood>0.1", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "failed: length>0.1: length is 0.3" in done.stderr
    assert "failed: likelihood>0.1: likelihood was not measured" in done.stderr
    assert evalbias(*call, "--fail-on", "people>2", cwd=tmp_path).returncode == 0
    same = [row | {"system": name} for name in ("a, b", "c", "d") for row in without(versions[0], "id")]
    three = "compare", "--data", as_jsonl(tmp_path / "three.jsonl", same), "--scores-field", "judged"
    assert "of a, b, c and d: name two, --systems" in refused(*three, "--fail-on", "people>0", cwd=tmp_path)
    two = evalbias(*three, "--systems", "a, b", "--systems", "c", cwd=tmp_path).stdout
    assert two.startswith("C cannot be compared with a, b: their outputs are identical.")
    assert "'tone' is unknown" in refused(*call, "--fail-on", "tone>1", cwd=tmp_path)
    evalbias("audit", "--data", before, "--scores-field", "judged", "--out", "first", cwd=tmp_path)
    of_folders = compare(before=str(tmp_path / "first"), after=audit(versions[1], **OPTIONS))
    assert of_folders.paragraphs == expected.paragraphs
    with pytest.raises(ValueError, match="which a run folder lacks: give the data"):
        compare(before=str(tmp_path / "first"), after=versions[1], features=["digits"], **OPTIONS)


def test_a_version_without_scores_has_no_gain_and_a_page_that_says_so(tmp_path):
    as_jsonl(tmp_path / "before.jsonl", outputs(20))
    as_jsonl(tmp_path / "after.jsonl", [row | {"judged": None} for row in outputs(20, seed=1)])
    call = ("compare", "--before", "before.jsonl", "--after", "after.jsonl", "--scores-field", "judged", "--out", "run")
    done = evalbias(*call, cwd=tmp_path)
    assert done.stdout.startswith("The second version cannot be compared with the first version: fewer than 4")
    assert "mean by the judge" in (tmp_path / "run/report.html").read_text()


def likes_length(request):
    """Score "q=3 z=0 ..." by its quality, and half a point more for each unit of log length, rounded at random."""
    text = request.messages[-1].text
    score = numbers(text)[0] + 0.5 * np.log(len(text) / 150)
    return str(int(np.clip(np.floor(score + drawn(request) % 997 / 997), 1, 5)))


def quality_and_words(name):
    rng = np.random.default_rng(int(re.findall(r"item (\d+)", name)[-1]))
    return round(3 + 0.6 * rng.normal(), 2), np.exp(3 + 0.3 * rng.normal())


def writer(request):
    """Write three times as much where the instructions say so."""
    asked = repr(request)
    quality, words = quality_and_words(asked)
    times = 3 if "Write at length" in asked else 1
    return f"[[ ## output ## ]]\nq={quality} z=0" + " word" * int(times * words)


def ratings_of(k):
    name, rng = f"item {k}", np.random.default_rng([k, 1])
    quality, words = quality_and_words(name)
    row = {"source": name, "output": f"q={quality} z=0" + " word" * int(words * rng.choice([1, 3]))}
    return row | {f"rating_{r}": float(quality + 0.4 * rng.normal()) for r in (1, 2)}


@pytest.fixture
def evaluate():
    judge = PointwiseJudge(Criterion("quality", "is it good?"), scoring="sampled", sampling=Sampling(samples=5))
    judge.predict.lm = Seeded(likes_length, temperature=1.0)
    devset = [dspy.Example(source=f"item {k}", rating_1=9.0).with_inputs("source") for k in range(60)]
    return dspy.Evaluate(devset=devset, metric=judge_metric(judge), num_threads=1)


@pytest.mark.slow
def test_what_a_program_gains_by_writing_more_is_length(evaluate):
    program = dspy.Predict("source -> output")
    longer = dspy.Predict(program.signature.with_instructions("Write at length."))
    with dspy.context(lm=Seeded(writer, temperature=1.0)):
        before, after = (evaluate(module).score / 100 for module in (program, longer))
        rated = [ratings_of(k) for k in range(200, 400)]
        found = compare(before=program, after=longer, evaluate=evaluate, rated=rated)
    assert found["gain"].value == pytest.approx(4 * (after - before), abs=0.1)  # in points of 1 to 5, not from 0 to 1
    assert found["gain"].value > 0.3
    assert found["length"].value == pytest.approx(found["gain"].value, abs=0.15)
    assert found.paragraphs[1].startswith(f"Of the judge's {found['gain'].text()} points ")
    assert (found["gain"].n, found["gain"].units) == (120, 60)
    assert np.isnan(found["people"].value)  # what the examples are rated is not said of the outputs


def test_runs_of_a_program_that_fail_do_not_count_and_a_judge_s_metric_is_needed(evaluate, caplog):
    class Writer(dspy.Module):
        def forward(self, source):
            k = int(source.removeprefix("item "))
            if k in (3, 4):
                raise ValueError("too hard")
            return dspy.Prediction(output="" if k == 5 else ratings_of(k)["output"])

    found = compare(before=Writer(), after=Writer(), evaluate=evaluate)
    assert (found["gain"].n, found["gain"].value) == (114, 0)
    assert "3 of 60 runs failed or left no text" in caplog.text
    evaluate.metric.output = "answer"
    with pytest.raises(ValueError, match=r"no text in .answer."):
        compare(before=Writer(), after=Writer(), evaluate=evaluate)
    with pytest.raises(ValueError, match="A program takes `evaluate`"):
        compare(before=Writer(), after=Writer())
    evaluate.metric = score_closeness(evaluate.metric.judge.criterion)
    with pytest.raises(ValueError, match="metric of `evaluate`"):
        compare(before=Writer(), after=Writer(), evaluate=evaluate)
    other = audit(outputs(20), scores_field="judged", scale=(0, 9))
    with pytest.raises(ValueError, match="on different scales"):
        compare(before=audit(outputs(20), scores_field="judged", scale=(-9, 9)), after=other)
