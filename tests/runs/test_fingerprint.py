"""Fingerprints differ where answers may differ, and are the same in another process."""

import copy
import io
import json
import logging
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import dspy
import hostile
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evalbias.cli.terminal import LeavableStream
from evalbias.evaluation.loops import CachedScorer
from evalbias.programs.feedback import ScorerFeedback
from evalbias.values import describe, digest, get_logger, message, visible


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


def tuned(source, output, reference, alpha=0.0):
    return alpha * len(output)


class Scorer:
    def __init__(self, alpha, **others):
        self.alpha = alpha
        self.model = "a name, and no language model"
        vars(self).update(others)

    def score(self, source, output, reference):
        return self.alpha

    __call__ = score


class Slotted:
    __slots__ = ("alpha",)

    def __init__(self, alpha):
        self.alpha = alpha


HOLDERS = [lambda alpha: partial(tuned, alpha=alpha), lambda alpha: Scorer(alpha).score, Scorer, Slotted]
HOLDERS += [lambda alpha: Scorer(0, inside=[Slotted(alpha)]), lambda alpha: lambda *texts: Scorer(alpha).score(*texts)]
HOLDERS += [lambda alpha: Scorer(0, names={str(alpha)}), lambda alpha: partial(tuned, [Scorer(alpha)])]


@pytest.mark.parametrize("made", HOLDERS)
def test_whatever_holds_another_number_has_another_fingerprint(made):
    first, again, other = (digest(describe(source(made(alpha)))) for alpha in (0.1, 0.1, 0.9))
    assert first == again != other


def test_arrays_and_torch_modules_count_by_their_numbers():
    rows = np.arange(200.0)
    changed = rows.copy()
    changed[150] = -1
    assert digest(describe(source(Scorer(rows)))) == digest(describe(source(Scorer(rows.copy()))))
    assert digest(describe(source(Scorer(rows)))) != digest(describe(source(Scorer(changed))))
    assert digest(describe(source(Scorer(rows)))) != digest(describe(source(Scorer(rows.reshape(2, 100)))))
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Dropout(0.1))).to(torch.bfloat16)
    layer.register_buffer("shift", torch.zeros(3), persistent=False)
    text = json.dumps(describe(source(Scorer(layer))))
    assert text.count('"shape": [10, 10]') == 1  # a weight is read once, however deep it is
    first, again = digest(describe(source(Scorer(layer)))), digest(describe(source(Scorer(copy.deepcopy(layer)))))
    assert first == again
    with torch.no_grad():
        for change in (layer[0][0].weight, layer.shift):
            change[2] += 1
            again, first = digest(describe(source(Scorer(layer)))), again
            assert first != again
    layer[0][1].p = 0.2
    assert digest(describe(source(Scorer(layer)))) != again


def test_an_object_that_holds_itself_is_described_and_one_that_holds_nothing_is_refused():
    scorer = Scorer(1)
    scorer.own, scorer._lock = scorer, threading.Lock()
    assert describe(source(scorer))["score"]["own"] == {"again": "Scorer"}
    with pytest.raises(ValueError, match="cannot be told from another lock, so answers to it cannot be kept"):
        describe(source(Scorer(1, lock=threading.Lock())))
    with pytest.raises(ValueError, match="cannot be told from another object"):
        describe(source(object()))


SECRETS = (
    *("api_key", "aws_secret_access_key", "aws_session_token", "aws_access_key_id", "azure_ad_token"),
    *("vertex_credentials", "hf_token", "token", "password", "client_secret", "watsonx_apikey", "organization"),
)


def hidden(mark):
    """Settings with a secret in every place where clients take one."""
    named = {name: f"{mark}-{name}" for name in SECRETS} | {"extra_headers": {"Authorization": mark}}
    named |= {"headers": {"x": mark}, "extra_body": {"api_key": mark, "top_k": 5}, "extra_query": {"key": mark}}
    return named | {"api_base": f"http://user:{mark}@localhost/v1", "metadata": {"user": mark}}


def test_no_secret_is_described_and_a_setting_that_is_not_known_still_counts():
    predict = dspy.Predict("text -> score", **hidden("canary"))
    predict.lm = dspy.LM("openai/x", **hidden("canary"))
    for part in (predict, source(Scorer(1, client=Scorer(2, **hidden("canary")), headers={"x": "canary"}))):
        text = json.dumps(describe(part))
        if part is predict:
            assert "canary" not in text
            assert text.count('"top_k": 5') == 2
        assert "canary" not in text.replace("canary-organization", "").replace('{"user": "canary"}', "")
    assert judged(temperature=0.0, custom=1) != judged(temperature=0.0, custom=2)
    assert judged(temperature=0.0, hf_token="a") == judged(temperature=0.0, hf_token="b")


def test_a_function_has_one_fingerprint_in_every_process():
    code = (
        "from evalbias.values import describe, digest\n"
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


def test_commands_to_a_terminal_become_visible_and_a_message_has_one_beginning():
    assert visible("a\tb\nc\x00\x1b\x85é\ud83d") == "a\tb\nc\ufffd\ufffd\ufffdé\ufffd"
    assert visible("\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\U000e0000\U000e007f\ufffe") == "\ufffd" * 12
    whole = "שלום عليكم می‌خواهم 👩‍👧 naïve 中文 :: ##"  # with joiners, which shape letters
    assert visible(whole) == whole
    assert message("The answer is\nevalbias: fine") == "The answer is\n  evalbias: fine"
    assert message("::error::a\n \u00a0::b::c") == "\ufffd:error::a\n   \u00a0\ufffd:b::c"  # GitHub trims lines
    assert message("x ##[error]##vso[a]###[b] std::vector") == "x #\ufffd[error]#\ufffdvso[a]##\ufffd[b] std::vector"


@given(hostile.TEXTS)
def test_no_text_is_a_command(text):
    hostile.check_printed(message(text))
    assert hostile.obeyed(visible(text)) == []


@given(st.lists(hostile.TEXTS))
def test_nothing_that_is_written_is_a_command(texts):
    file = io.StringIO()
    stream = LeavableStream(file)
    for text in texts:
        assert stream.write(text) == len(text)
    hostile.check_printed(file.getvalue())


def test_a_line_that_has_begun_keeps_its_colons():
    file = io.StringIO()
    stream = LeavableStream(file)
    for text in ("std", "::", "vector\n", " ", "::", "error::\n"):
        stream.write(text)
    assert file.getvalue() == "std::vector\n \ufffd:error::\n"


def test_what_is_logged_is_a_message_whatever_the_handler(caplog):
    file = io.StringIO()
    handler, logger = logging.StreamHandler(file), get_logger("evalbias.programs.any")
    logger.addHandler(handler)
    logger.warning("status %d, %s", 400, hostile.WORST)
    logger.removeHandler(handler)
    logging.getLogger("another.evalbias").warning("%s", "\x1b[2J")
    hostile.check_printed(file.getvalue())
    ours, others = (record.getMessage() for record in caplog.records)
    hostile.check_printed(ours)
    assert ours.startswith("status 400, ::error::a\n  ")
    assert others == "\x1b[2J"  # not ours to change


def test_every_logger_of_ours_is_one_of_those():
    root = Path(__file__).parents[2]
    files = [file for top in ("evalbias", "programs", "optimizers") for file in (root / top).rglob("*.py")]
    makers = {file.name for file in files if "getLogger(__name__)" in file.read_text(encoding="utf-8")}
    assert files
    assert makers == set()
