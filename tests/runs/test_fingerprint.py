"""Fingerprints differ where answers may differ, and are the same in another process."""

import os
import subprocess
import sys

import dspy

from evalbias.evaluation.external_scores import CachedScorer
from evalbias.programs.feedback import ScorerFeedback
from evalbias.runs.fingerprint import describe, digest


def source(score):
    return ScorerFeedback("length", score, low=0, high=100)


def scaled(factor):
    return lambda source, output, reference: factor * len(output)


def test_scores_of_another_function_are_not_taken_for_its_own(tmp_path):
    item = dspy.Example(id="a", source="chien", reference="dog")
    log = tmp_path / "scores.jsonl"
    assert CachedScorer(source(scaled(1)), log)(item, "dog") == 3
    assert CachedScorer(source(scaled(2)), log)(item, "dog") == 6
    assert CachedScorer(source(lambda source, output, reference: 7.0), log)(item, "dog") == 7
    assert digest(describe(source(scaled(1)))) == digest(describe(source(scaled(1))))


def judged(desc="the score", **options):
    class Rate(dspy.Signature):
        text: str = dspy.InputField()
        score: float = dspy.OutputField(desc=desc)

    predict = dspy.Predict(Rate)
    predict.lm = dspy.LM("openai/x", **options)
    return digest(describe(predict))


def test_a_predictor_counts_with_its_fields_and_its_models_settings_but_without_keys_and_addresses():
    plain = judged(temperature=0.0, max_tokens=50)
    assert plain == judged(temperature=0.0, max_tokens=50, api_key="sk-1", api_base="http://localhost:1")
    assert plain != judged(temperature=0.0, max_tokens=60)
    assert plain != judged(temperature=1.0, max_tokens=50)
    assert plain != judged("how good it is", temperature=0.0, max_tokens=50)


def test_a_function_has_one_fingerprint_in_every_process():
    code = (
        "from evalbias.runs.fingerprint import describe, digest\n"
        "class Rule:\n"
        "    def __init__(self): self.rule = lambda word: word in {'a', 'b', 'c', 'd'}\n"
        "print(digest(describe(Rule())))"
    )
    digests = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        digests.add(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True).stdout)
    assert len(digests) == 1
    assert len(next(iter(digests)).strip()) == 16
