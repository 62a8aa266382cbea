"""What did an optimizer gain? From two versions' outputs to findings, in Python and by the command."""

import re
from functools import partial

import dspy
import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused
from fakes import numbers
from models_of_text import Seeded, drawn

from evalbias import Criterion, PointwiseJudge, Sampling, audit, gain, judge_metric, score_closeness
from evalbias.runs import read_run


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


OPTIONS = {"scores_field": "judged"}


def without(rows, name):
    return [{key: value for key, value in row.items() if key != name} for row in rows]


BEFORE, LONGER = outputs(), outputs(seed=3, longer=2, name="w")
UNRATED = outputs(rated=False), outputs(seed=1, longer=2, quality=0.4, rated=False, name="w")
MIXED = [row | {"system": "own" if k % 2 else "other"} for k, row in enumerate(BEFORE)]
MIXED = [row | {"judged": row["judged"] + 0.5 * (row["system"] == "own")} for row in MIXED]
OWN = [row | {"system": "own", "judged": row["judged"] + 0.5} for row in outputs(seed=1, name="w")]
FEW, FEW_LATER = outputs(60), outputs(60, seed=3, name="w")
KNOWN = {  # what is planted -> the versions, the options, and each part's value with how far it may err
    "length": ((BEFORE, LONGER), {}, {"length": (0.35, 0.05), "rest": (0, 0.12)}),  # log(2) times .5
    "quality": ((BEFORE, outputs(seed=1, quality=0.5, name="w")), {}, {"length": (0, 0.06), "quality": (0.4, 0.1)}),
    "the version": (
        (BEFORE, outputs(seed=1, longer=2, lean=0.6, name="w")),
        {},
        {"rest": (0.6, 0.12), "length": (0.35, 0.07)},
    ),
    "own writing": ((MIXED, OWN), {"own_system": "own"}, {"own_system": (0.25, 0.08)}),  # from half to all outputs
    "nobody rated": (UNRATED, {}, {"length": (np.nan, 0)}),
    "others rated": (
        UNRATED,
        {"rated": outputs(seed=5, name="r"), "features": ["lists"]},
        {"length": (0.35, 0.06), "rest": (0.32, 0.15), "lists": (0, 0.02)},
    ),
    "shorter ones rated": (UNRATED, {"rated": outputs(seed=5, longer=0.3, name="r")}, {}),
    "a count": (UNRATED, {"rated": outputs(seed=5, name="r"), "features": ["digits"]}, {"length": (0.35, 0.08)}),
    # where one version counts its place is no covariate
    "one rating before": (
        (without(outputs(100), "rating_2"), outputs(100, seed=3, longer=2, name="w")),
        {},
        {"length": (0.35, 0.15)},
    ),
    "a constant": ((FEW, FEW_LATER), {"features": ["hedges"]}, {}),
    "texts of one alone": ((without(outputs(40), "output"), outputs(40, seed=1, name="w")), {}, {}),
}


@pytest.mark.parametrize(("versions", "options", "parts"), KNOWN.values(), ids=KNOWN)
def test_the_parts_of_a_gain(versions, options, parts, snapshot):
    found = gain(*versions, **options, **OPTIONS)
    for name, (value, error) in parts.items():
        assert found[name].value == pytest.approx(value, abs=error, nan_ok=True), name
    assert [*found.paragraphs] == snapshot


ONES_OWN = [[row | {"system": "x"} for row in outputs(20)]] * 2
OTHERS = [row | {"input_id": "x" + row["input_id"]} for row in outputs(20)]


@pytest.mark.parametrize(
    ("versions", "options", "match"),
    [
        ((FEW, FEW_LATER), {"features": ["words"]}, "'words'"),
        ((FEW, OTHERS), {}, "no input in common"),
        ((FEW, FEW_LATER), {"own_system": "ours"}, "`own_system` 'ours': a file does not name"),
        (ONES_OWN, {"own_system": "ours"}, "No output is by `own_system` 'ours'"),
    ],
)
def test_what_cannot_be_compared_is_refused(versions, options, match):
    with pytest.raises(ValueError, match=match):
        gain(*versions, **options, **OPTIONS)


@pytest.mark.slow
def test_the_command_its_run_and_its_conditions(tmp_path):
    versions = outputs(120), outputs(120, seed=1, longer=2, name="w")
    before, after = (as_jsonl(tmp_path / f"{name}.jsonl", rows) for name, rows in zip("ab", versions, strict=True))
    call = ("gain", "--before", before, "--after", after, "--scores-field", "judged")
    found = answered(*call, "--out", "run", cwd=tmp_path)
    expected = gain(*versions, **OPTIONS)
    assert found["schema"] == "evalbias.gain/1"
    assert found["paragraphs"] == list(expected.paragraphs)
    assert read_run(tmp_path / "run").result["estimates"]["length"]["value"] == expected["length"].value
    assert "The gain and its parts" in (tmp_path / "run/report.html").read_text()
    assert "Length" in evalbias(*call, cwd=tmp_path).stdout
    done = evalbias(*call, "--fail-on", "length>0.1", "--fail-on", "likelihood>0.1", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "failed: length>0.1: length is 0.3" in done.stderr
    assert "failed: likelihood>0.1: likelihood was not measured" in done.stderr
    assert evalbias(*call, "--fail-on", "quality>2", cwd=tmp_path).returncode == 0
    assert "'tone' is unknown" in refused(*call, "--fail-on", "tone>1", cwd=tmp_path)
    evalbias("audit", "--data", before, "--scores-field", "judged", "--out", "first", cwd=tmp_path)
    of_folders = gain(str(tmp_path / "first"), audit(versions[1], **OPTIONS))
    assert of_folders.paragraphs == expected.paragraphs
    with pytest.raises(ValueError, match="which a run folder lacks: give the data"):
        gain(str(tmp_path / "first"), versions[1], features=["digits"], **OPTIONS)


def test_a_version_without_scores_has_no_gain_and_a_page_that_says_so(tmp_path):
    as_jsonl(tmp_path / "before.jsonl", outputs(20))
    as_jsonl(tmp_path / "after.jsonl", [row | {"judged": None} for row in outputs(20, seed=1)])
    call = ("gain", "--before", "before.jsonl", "--after", "after.jsonl", "--scores-field", "judged", "--out", "run")
    done = evalbias(*call, cwd=tmp_path)
    assert done.stdout.startswith("The mean score changes by undefined points")
    assert "cannot be said" in (tmp_path / "run/report.html").read_text()


# Two programs, before and after an optimizer of DSPy.


def likes_length(request):
    """Score "q=3 z=0 ..." by its quality, and half a point more for each unit of log length, rounded at random."""
    text = request.messages[-1].text
    score = numbers(text)[0] + 0.5 * np.log(len(text) / 150)
    return str(int(np.clip(np.floor(score + drawn(request) % 997 / 997), 1, 5)))


def quality_and_words(name):
    rng = np.random.default_rng(int(re.findall(r"item (\d+)", name)[-1]))
    return round(3 + 0.6 * rng.normal(), 2), np.exp(3 + 0.3 * rng.normal())


def writer(request):
    """Write three times as much where the instructions say so, as every proposer of instructions does."""
    asked = repr(request)
    if "new_instruction" in asked:  # GEPA's
        return '{"new_instruction": "Write at length."}'
    wanted = [name for name in re.findall(r"\[\[ ## (\w+) ## ]]", asked) if name != "completed"]
    if wanted[-1] != "output":  # of COPRO, MIPROv2 or SIMBA
        texts = {"module_advice": '{"self": "Write at length."}'}
        return "\n".join(f"[[ ## {name} ## ]]\n{texts.get(name, 'Write at length.')}" for name in dict.fromkeys(wanted))
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


ONE = {"num_threads": 1}
NO_DEMOS, WHOLE = {"max_bootstrapped_demos": 0, "max_labeled_demos": 0}, {"minibatch": False}
OPTIMIZERS = {  # with the options of ``compile``
    "COPRO": (partial(dspy.COPRO, breadth=2, depth=1), {"eval_kwargs": ONE}),
    "GEPA": (partial(dspy.GEPA, max_metric_calls=40, reflection_lm=Seeded(writer, temperature=1.0), **ONE), {}),
    "MIPROv2": (partial(dspy.MIPROv2, auto=None, num_candidates=2, **NO_DEMOS, **ONE), {"num_trials": 3, **WHOLE}),
    "SIMBA": (partial(dspy.SIMBA, bsize=4, num_candidates=3, max_steps=2, max_demos=0, **ONE), {}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "COPRO")) for name in OPTIMIZERS]
)
def test_what_an_optimizer_of_dspy_gained_is_length(name, evaluate):
    program, (optimizer, options) = dspy.Predict("source -> output"), OPTIMIZERS[name]
    with dspy.context(lm=Seeded(writer, temperature=1.0)):
        train = [dspy.Example(source=f"item {k}").with_inputs("source") for k in range(100, 108)]
        optimized = optimizer(metric=evaluate.metric).compile(program, trainset=train, **options)
        assert "Write at length." in optimized.signature.instructions
        before, after = (evaluate(one).score / 100 for one in (program, optimized))
        found = gain(program, optimized, evaluate=evaluate, rated=[ratings_of(k) for k in range(200, 400)])
    assert found["gain"].value == pytest.approx(4 * (after - before), abs=0.1)  # in points of 1 to 5, not from 0 to 1
    assert found["gain"].value > 0.3
    assert found["length"].value == pytest.approx(found["gain"].value, abs=0.15)
    assert found["rest"].low < 0 < found["rest"].high
    assert found.paragraphs[0].startswith(f"Of {found['gain'].text()} points ")
    assert (found["gain"].n, found["gain"].units) == (120, 60)
    assert "people" not in found  # what the examples are rated is not said of the outputs


def test_runs_of_a_program_that_fail_do_not_count_and_a_judge_s_metric_is_needed(evaluate, caplog):
    class Writer(dspy.Module):
        def forward(self, source):
            k = int(source.removeprefix("item "))
            if k in (3, 4):
                raise ValueError("too hard")
            return dspy.Prediction(output="" if k == 5 else ratings_of(k)["output"])

    found = gain(Writer(), Writer(), evaluate=evaluate)
    assert (found["gain"].n, found["gain"].value) == (114, 0)
    assert "3 of 60 runs failed or left no text" in caplog.text
    evaluate.metric.output = "answer"
    with pytest.raises(ValueError, match=r"no text in .answer."):
        gain(Writer(), Writer(), evaluate=evaluate)
    with pytest.raises(ValueError, match="A program takes `evaluate`"):
        gain(Writer(), Writer())
    evaluate.metric = score_closeness(evaluate.metric.judge.criterion)
    with pytest.raises(ValueError, match="metric of `evaluate`"):
        gain(Writer(), Writer(), evaluate=evaluate)
    other = audit(outputs(20), scores_field="judged", scale=(0, 9))
    with pytest.raises(ValueError, match="on different scales"):
        gain(audit(outputs(20), scores_field="judged", scale=(-9, 9)), other)
