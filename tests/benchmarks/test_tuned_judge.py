"""The tuned judge learns on the very prompts that judges ask, and never on a held-out input."""

import json
import math
import random
from pathlib import Path

import dspy
import numpy as np
import pytest
import torch

from benchmarks.embedded_judge.tokenizer import build
from benchmarks.pretrained import SMOLLM2
from benchmarks.tuned_judge import train
from benchmarks.tuned_judge.packing import answer_losses, pack
from benchmarks.tuned_judge.questions import PERMISSIVE, Rated, pairwise, pairwise_draws, pointwise, pointwise_draws
from benchmarks.tuned_judge.report import report
from evalbias import Criterion, LocalLM, PairwiseJudge, PointwiseJudge
from evalbias.lm.local import FOLDER
from evalbias.programs import PRESETS

QUALITY = Criterion("quality", "is it good?", scale=(0, 3))
ADAPTER = Path(train.__file__).parent / "adapter"


def item(number, source, output, score):
    return dspy.Example(id=str(number), source=source, output=output, scores={"quality": score})


ITEMS = [item(0, "the cat", "a cat was", 2.25), item(1, "the cat", "a cat sat", 0.0)]
ITEMS += [item(2, "the mat", "on a mat", math.nan), item(3, "the mat", "on the mat", 3.0)]


def questions():
    made = [pointwise(example, QUALITY, None) for example in ITEMS]
    return [question for question in [*made, pairwise(ITEMS[0], ITEMS[1], QUALITY)] if question]


def test_targets_are_the_labels_next_to_the_mean_rating():
    first, second, third, pair = questions()
    assert first.target == {"2": 0.75, "3": 0.25}
    assert (second.target, third.target) == ({"0": 1.0}, {"3": 1.0})
    assert pair.target == {"A": 1.0, "B": 0.0}
    close = pairwise(ITEMS[0], item(4, "the cat", "the cat is", 1.75), QUALITY)
    assert close.target == {"A": 0.75, "B": 0.25}
    assert pairwise(ITEMS[0], item(5, "the cat", "a cat was", 1.0), QUALITY) is None


@pytest.mark.parametrize("kind", ["qwen2", "qwen2-chat"])
def test_losses_of_a_pack_are_those_of_the_judges_own_answers(lms, kind):
    lm, made = lms[kind], questions()
    packed, alone = pack(lm.engine, made), [tuple(pack(lm.engine, [one]).ids.tolist()) for one in made]
    assert len(packed.ids) == len({row[:n] for row in alone for n in range(1, len(row) + 1)})  # each prefix once
    with torch.no_grad():
        losses = answer_losses(lm.engine.loaded.model, packed).tolist()
    scores = PointwiseJudge(QUALITY).batch([ITEMS[0], ITEMS[1], ITEMS[3]], lm=lm)
    logprobs = [{k: math.log(p * s.coverage) for k, p in s.distribution.items()} for s in scores]
    pair = dspy.Example(source="the cat", candidates=["a cat was", "a cat sat"])
    asked = PairwiseJudge(QUALITY, instruction_place="first")  # as in the questions
    (answer,) = asked.batch([pair], lm=lm)
    logprobs.append({k: math.log(p * answer.coverage) for k, p in zip("AB", answer.positions[0], strict=True)})
    expected = [-sum(q.target[k] * row[k] for k in q.target) for q, row in zip(made, logprobs, strict=True)]
    np.testing.assert_allclose(losses, expected, atol=1e-4)


def test_draws_are_repeated_by_their_seed_and_hold_training_inputs_only():
    shown = [item(f"{i}-{k}", f"source {i}", f"output {i} {k}", float(k)) for i in range(6) for k in range(3)]
    sets = Rated("x", (QUALITY,), shown, [item("t", "held out", "never shown", 1.0)])
    for draw in (pointwise_draws(sets, inputs=4, outputs=2), pairwise_draws(sets, inputs=4)):
        first, again, other = (draw(random.Random(seed)) for seed in (1, 1, 2))
        assert first == again != other
        assert len(first) == 8
        assert not any("held out" in message["content"] for q in first for message in q.messages)
    unrated = [item(f"u{i}", f"unrated {i}", "x", math.nan) for i in range(9)]
    few = pointwise_draws(Rated("x", (QUALITY,), [*unrated, shown[0]], []), inputs=1, outputs=1)
    assert [len(few(random.Random(seed))) for seed in range(5)] == [1] * 5
    both = pairwise_draws(sets, inputs=1)(random.Random(0))
    assert [q.target["A"] for q in both] == [1 - q.target["A"] for q in both[::-1]]


def evaluation(effect, agreement):
    estimates = {"performance": {"value": effect, "low": effect - 0.1, "high": effect + 0.1}}
    scores = {"n": 20, "coverage": 0.9, "estimates": estimates, "alone": {"LS": None, "length": -0.2}}
    pairs = {"n": 10, "coverage": 0.8, "first": 1.0, "agreement": agreement}
    return {"rows": [{"set": "tmu-gfm", "criterion": "fluency", "inputs": 7, "pointwise": scores, "pairwise": pairs}]}


def test_the_report_puts_published_judges_beside_ours(snapshot):
    record = {"base": "a model", "settings": {"rank": 12}, "steps": 3, "seconds": 90, "questions": {"tmu-gfm": 40}}
    assert report(record, {"prompted": evaluation(0.1, 0.5), "tuned": evaluation(0.4, 0.75)}) == snapshot


def test_the_adapter_that_ships_is_the_recorded_one():
    record = json.loads((ADAPTER.parent / "record.json").read_text())
    config = json.loads((ADAPTER / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"]) == (record["settings"]["rank"], record["base"])
    assert (ADAPTER / "adapter_model.safetensors").stat().st_size < 8e6
    assert set(record["sets"]) <= set(PERMISSIVE)


@pytest.mark.slow
def test_the_adapter_teaches_the_model_to_answer_with_labels(models_dir):
    judge = PointwiseJudge(PRESETS["tmu-gfm"][0])
    example = dspy.Example(source="He go to school .", output="He goes to school .")
    for adapter, low, high in ((None, 0.0, 0.1), (str(ADAPTER), 0.9, 1.0)):
        lm = LocalLM(str(models_dir / SMOLLM2), adapter=adapter)
        assert low < judge.batch([example], lm=lm)[0].coverage <= high


FILE = FOLDER / "tokenizer.json"


@pytest.mark.slow
def test_the_file_is_what_the_benchmark_builds():
    assert json.loads(build(1024).backend_tokenizer.to_str()) == json.loads(FILE.read_text(encoding="utf-8"))
