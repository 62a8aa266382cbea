"""Models that measure no judgments: from the first tokens' log-probabilities, or from repeated answers."""

import asyncio
import logging
import math
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import dspy
import numpy as np
import pytest
from fake_server import serving
from models_of_text import Engine
from texts import writer

from evalbias import Sampling, ServerLM
from evalbias.lm import contract
from evalbias.lm.cache import CachedLM, measuring
from evalbias.lm.contract import IN_FLIGHT
from evalbias.lm.dspy_seam import BaseCallback
from evalbias.lm.reading import first_token_row, first_tokens, named_choice
from evalbias.lm.types import NoProbabilities, Text, Unanswered
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge

C = Criterion("quality", "is it good?", (1, 3))
CHAT = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Output: a cat.\nQuality:"}]
OTHER = [{"role": "user", "content": "the mat"}]
WAYS_OUT = r"LocalLM.*ServerLM.*logprobs.*scoring='sampled'.*--samples"
LABELS = ["1", "2", "3"]


def openai(address, **options):
    return dspy.LM("openai/tiny", api_base=address, api_key="none", cache=False, num_retries=0, **options)


@pytest.mark.parametrize("most_top", [20, 5])
def test_an_openai_model_is_measured_from_its_first_tokens(lms, caplog, most_top):
    local = lms["qwen2-chat"]
    with serving(local, "chat") as (address, fake):
        choices = fake.one_token_texts(CHAT, most_top)[:3]
        fake.unknown, fake.most_top = set(), most_top
        with caplog.at_level(logging.WARNING):
            answer = measuring(openai(address)).choice_logprobs([CHAT, CHAT], choices)
            hidden = measuring(openai(address)).choice_logprobs([CHAT, OTHER], ["1", "2", "3"])
        if most_top == 20:
            same = ServerLM("tiny", base_url=address, dialect="chat").choice_logprobs([CHAT, CHAT], choices)
            np.testing.assert_array_equal(answer.logprobs, same.logprobs)
    truth = local.choice_logprobs([CHAT], choices)
    assert truth.coverage[0] < 0.999
    np.testing.assert_allclose(answer.logprobs, np.repeat(truth.logprobs, 2, axis=0), atol=1e-4)
    np.testing.assert_allclose(answer.coverage, truth.coverage[0], rtol=1e-3)
    assert answer.samples is None
    assert np.isnan(hidden.logprobs).all()  # not among the 20: undefined, not 0
    assert "truncated" not in caplog.text
    bodies = [body for path, body in fake.requests if "max_completion_tokens" in body]
    assert {(body["max_completion_tokens"], body["temperature"]) for body in bodies} == {(1, 1.0)}


class Calls(BaseCallback):  # keeps the errors in which calls of models ended, None for answers
    def __init__(self):
        self.ended = []

    def on_lm_end(self, call_id, outputs, exception=None):
        self.ended.append(exception and type(exception).__name__)


@pytest.mark.parametrize("engine", ["auto", "lm15", pytest.param("litellm", marks=pytest.mark.slow)])
def test_no_judgment_begins_with_a_call_that_fails(lms, engine):
    with serving(lms["qwen2-chat"], "chat") as (address, fake), dspy.context(callbacks=[calls := Calls()]):
        fake.unknown = set()
        judge = pointwise(openai(address, engine=engine))
        judge(source="s", output="o")
        judge.batch([dspy.Example(source="s", output=f"o{number}") for number in range(2)])
    assert calls.ended == [None] * 3


def test_an_engine_of_a_user_is_asked_for_judgments_until_it_refuses_one():
    judge = pointwise(writer(lambda *_: {"1": 0.5, "2": 0.3, "3": 0.2}, top=3)[0])
    with dspy.context(callbacks=[calls := Calls()]):
        assert [judge(source="s", output=f"o{number}").score for number in range(3)] == pytest.approx([1.7] * 3)
    assert calls.ended == ["LMUnsupportedFeatureError", None, None, None]


@pytest.mark.parametrize("scoring", ["expected", "sampled"])
def test_what_a_model_refused_once_is_not_sent_again(scoring):
    lm, engine = writer(lambda *_: {"1": 0.5, "2": 0.3, "3": 0.2}, top=3, seeds=False)
    complete, refused = engine.complete, []

    def few(request):
        try:
            if request.config.logprobs is not None and request.config.logprobs > 5:
                raise dspy.lm15.InvalidRequestError("at most 5 logprobs")
            return complete(request)
        except dspy.lm15.LM15Error as error:
            refused.append(str(error))
            raise

    engine.complete = few
    judge = pointwise(lm, scoring=scoring, **({"sampling": Sampling(samples=9)} if scoring == "sampled" else {}))
    for number in range(3):
        assert 1 <= judge(source="s", output=f"o{number}").score <= 3
    expected = ["it only writes", "at most 5 logprobs"] if scoring == "expected" else ["it takes no seed"]
    assert [*dict.fromkeys(refused)] == expected
    assert len(refused) <= (2 if scoring == "expected" else 9)  # several draws are in flight at first


def judging(kind, lm, **options):
    judge = kind(C, **options)
    judge.predict.lm = lm
    return judge


pointwise, pairwise = partial(judging, PointwiseJudge), partial(judging, PairwiseJudge)


def in_every_form(judge):
    """Return the predictions of a call, an awaited call and a batch."""
    given = {"source": "s", "output": "o"}
    (batched,) = judge.batch([dspy.Example(**given)])
    return judge(**given), asyncio.run(judge.acall(**given)), batched


def test_first_tokens_give_the_same_prediction_in_every_form_of_call():
    lm, engine = writer(lambda *_: {"1": 0.1, "2": 0.2, "3": 0.5, "x": 0.2}, top=4)
    for prediction in in_every_form(pointwise(lm)):
        assert prediction.score == pytest.approx((0.1 * 1 + 0.2 * 2 + 0.5 * 3) / 0.8)
        assert prediction.coverage == pytest.approx(0.8)
        assert prediction.samples is None
    assert {(r.config.logprobs, r.config.max_tokens) for r in engine.requests} == {(20, 1)}


def test_a_model_without_probabilities_is_refused_with_both_ways_out():
    lm, engine = writer(lambda *_: {"1": 1.0})
    judge, pairs, texts = pointwise(lm), pairwise(lm), {"source": "s", "output": "o"}
    awaited = lambda: asyncio.run(pairs.acall(source="s", candidates=["a", "b"]))  # noqa: E731
    for call in (lambda: judge(**texts), lambda: judge.batch([dspy.Example(texts)]), awaited):
        with pytest.raises(NoProbabilities, match=rf"its answers carry no log-probabilities\. Either.*{WAYS_OUT}"):
            call()
    assert engine.requests[0].config.logprobs == 20


def test_a_model_that_refuses_the_request_is_refused_with_its_reason_and_a_server_that_is_down_is_not(lms):
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown, fake.most_top = set(), 0
        with pytest.raises(NoProbabilities, match=rf"refuses to report them \(.*made to fail with 400.*{WAYS_OUT}"):
            measuring(openai(address)).choice_logprobs([CHAT], ["1", "2"])
    with pytest.raises(ConnectionError, match="openai/tiny did not answer"):
        measuring(openai("http://127.0.0.1:9/v1")).choice_logprobs([CHAT], ["1", "2"])


MIX = {"1": 0.1, "2.": 0.3, "**3**": 0.4, "I cannot say.": 0.2}
DRAWS = Sampling(samples=400, seed=3)


def test_a_model_that_only_writes_is_asked_k_times():
    lm, engine = writer(lambda *_: MIX)
    prediction = pointwise(lm, scoring="sampled", sampling=DRAWS)(source="s", output="o")
    assert {(r.config.temperature, r.config.max_tokens) for r in engine.requests} == {(1.0, 16)}
    assert len({r.config.seed for r in engine.requests}) == len(engine.requests) == prediction.samples == 400
    shares = np.array([0.1, 0.3, 0.4]) / 0.8
    readable = 400 * prediction.coverage
    assert readable == round(readable)
    assert prediction.coverage == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / 400))
    np.testing.assert_allclose(list(prediction.distribution.values()), shares, atol=4 * math.sqrt(0.25 / readable))
    mean = shares @ [1, 2, 3]
    error = math.sqrt(shares @ (np.array([1, 2, 3]) - mean) ** 2 / readable)  # as the documentation derives it
    assert prediction.score == pytest.approx(mean, abs=4 * error)


def test_draws_are_the_same_for_a_seed_in_every_form_of_call():
    lm, _ = writer(lambda *_: MIX)
    values = []
    for seed in (3, 4):
        judge = pointwise(lm, scoring="sampled", sampling=Sampling(samples=40, seed=seed))
        (cached,) = judge.batch([dspy.Example(source="s", output="o")], lm=CachedLM(lm))
        one, *others = in_every_form(judge)
        assert all(other.toDict() == one.toDict() for other in (*others, cached))
        values.append(one.distribution)
    assert values[0] != values[1]


@pytest.mark.parametrize("seeds", [True, False])
def test_dspys_cache_never_stands_in_for_a_draw(seeds):
    lm, engine = writer(lambda *_: MIX, cache=True, seeds=seeds)
    judge = pointwise(lm, scoring="sampled", sampling=Sampling(samples=50))
    first = judge(source="s", output="o")
    assert len(engine.requests) == 50
    assert len([p for p in first.distribution.values() if p > 0]) == 3
    assert {r.config.seed is None for r in engine.requests} == {not seeds}
    assert judge(source="s", output="o").toDict() == first.toDict()  # the cache keeps every draw
    assert len(engine.requests) == 50
    judge.predict.config = {"rollout_id": 7}
    other = judge(source="s", output="o")
    assert len(engine.requests) == 100
    assert other.distribution != first.distribution


def test_answers_that_cannot_be_read_make_the_judgment_undefined():
    lm, _ = writer(lambda *_: {"Both are fine.": 1.0})
    (p,) = pointwise(lm, scoring="sampled").batch([dspy.Example(source="s", output="o")])
    assert math.isnan(p.score)
    assert math.isnan(p.mode)
    assert (p.coverage, p.samples) == (0.0, 20)
    p = pairwise(lm, scoring="sampled", debias="permutation")(source="s", candidates=["a", "b"])
    assert p.preference is None
    assert math.isnan(p.win_share)


def test_answers_that_are_cut_off_are_told_of_also_where_they_are_kept(tmp_path, caplog):
    contract._tell_cut_off.cache_clear()
    lm, engine = writer(lambda *_: {"Accuracy: 1. It is": 1.0})
    complete = engine.complete
    engine.complete = lambda request: replace(complete(request), finish_reason="length")
    answers = [CachedLM(lm, tmp_path / "j", sampling=Sampling(4)).choice_logprobs([CHAT], ["1", "2"]) for _ in range(2)]
    assert [answer.coverage[0] for answer in answers] == [0, 0]
    assert len(engine.requests) == 4
    (record,) = [record for record in caplog.records if "cut off" in record.message]  # once
    assert "(Sampling(max_tokens=...), --sample-tokens)" in record.message


@pytest.mark.parametrize("refused", [("seed",), ("temperature",), ("temperature", "seed")])
def test_a_model_that_answers_a_seed_or_any_temperature_with_an_error_is_asked_without(lms, refused):
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = {*refused}
        lm = openai(address)
        judging(PointwiseJudge, lm, scoring="sampled", sampling=Sampling(samples=2))(source="s", output="o")
        before = len(fake.requests)
        judging(PointwiseJudge, lm, scoring="sampled", sampling=Sampling(samples=2))(source="s", output="p")
        bodies = [body for _, body, *_ in fake.requests[before:]]
    assert len(bodies) == 2  # what was refused once is not sent again
    assert {name for body in bodies for name in ("seed", "temperature") if name in body} == {
        "seed",
        "temperature",
    } - {*refused}


@pytest.mark.parametrize(("error", "remedy"), [
    (dspy.LMRateLimitError("Too many requests\n\nTo fix:\n  - Wait", status=429), "requests. Go on later, or give"),
    (dspy.LMBillingError("No credit.", status=429), r"No credit\. Add credit to the account"),
    (dspy.LMTransportError("refused"), r"refused\. Check that the server runs, and its address\.$"),
    (dspy.LMServerError("overloaded", status=503), r"did not answer: overloaded\.$"),
])  # fmt: skip
def test_a_failed_request_names_the_remedy_of_its_own_error(error, remedy):
    lm, engine = writer(lambda *_: {"1": 1.0})
    engine.complete = lambda _: (_ for _ in ()).throw(error)
    with pytest.raises(Unanswered, match=remedy):
        measuring(lm, Sampling(samples=1)).choice_logprobs([CHAT], ["1", "2"])


def test_a_run_that_stopped_draws_nothing_again(tmp_path):
    lm, engine = writer(lambda *_: MIX)
    judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=5))
    examples = [dspy.Example(source="s", output=str(i)) for i in range(3)]
    first = judge.batch(examples[:2], lm=CachedLM(lm, tmp_path / "j"))
    assert len(engine.requests) == 10
    journal = CachedLM(lm, tmp_path / "j")
    assert [p.toDict() for p in judge.batch(examples, lm=journal)[:2]] == [p.toDict() for p in first]
    assert (journal.asked.total(), journal.replayed, len(engine.requests)) == (5, 10, 15)


def test_answers_under_other_settings_of_a_model_are_not_taken_for_its_own(tmp_path):
    lm, engine = writer(lambda *_: {"1": 0.5, "2": 0.5}, top=2)
    asked = []
    others = {"frequency_penalty": 1.5}, {"enable_thinking": False}
    for settings in ({}, {}, {"temperature": 0.3, "max_tokens": 9}, *others, *others):
        CachedLM(lm.copy(**settings), tmp_path / "j").choice_logprobs([CHAT], ["1", "2"])
        asked.append(len(engine.requests))
    assert asked == [1, 1, 1, 2, 3, 3, 3]


def test_a_server_and_a_local_model_can_be_sampled_too(lms):
    local = lms["qwen2-chat"]
    choices = ["1", "2"]
    sampled = measuring(local, Sampling(samples=6, max_tokens=4)).choice_logprobs([CHAT, OTHER], choices)
    assert sampled.samples == 6
    assert set(np.exp(sampled.logprobs).round(6).ravel()) <= {round(i / 6, 6) for i in range(7)}
    with serving(local, "vllm") as (address, fake):
        lm = ServerLM("tiny", base_url=address, tokenizer=local.engine.loaded.source.model)
        before = len(fake.requests)
        measuring(lm, Sampling(samples=6, max_tokens=4, temperature=0.7)).choice_logprobs([CHAT], choices)
        bodies = [body for _, body in fake.requests[before:]]
    assert len({body["seed"] for body in bodies}) == 6
    assert {(body["temperature"], body["max_tokens"]) for body in bodies} == {(0.7, 4)}


READ = [
    ("AB", "A", ["A", "(A)", "Output A", "A\n\nBecause output B says less.", "A is better.", "A, not the other"]),
    ("AB", "B", [" **B**.", "Answer: B", "A better text is B", "B wins", "B. The other one is worse."]),
    ("AB", None, ["B is better than A", "A better text would be", "B better", "A/B", "Both A and B", "A over B", ""]),
    ("AB", None, ["I like BB", "A is worse.", "Not A", "A is not better", "Option B is not as good as the other."]),
    ("AB", None, ["I can't say A", "Neither A", "A and B are equal", "Both B and A were fluent."]),
    ("AB", "B", ["<think>A? No, not A.</think>\n\nB", "it may be A, or not</think>**B**"]),
    ("AB", None, ["<think>It could be A", "<think>It is A</think>"]),
    (("A", "B", "Tie"), "Tie", ["tie", "It is a TIE."]),
    ("12345", "4", ["4", "Quality: 4", "4/5", "4 out of 5", "Rating (1-5): 4", "4 of 5"]),
    ("12345", "3", ["**Score: 3** (fluent)", "3 because it is fluent"]),
    ("12345", "4", ["It states 3 facts.\n\nScore: 4", "Not bad, 2 of 5 facts.\n**Final score: 4/5**"]),
    ("12345", "4", ["Fine.\nI give it a 4.", "4\n\nIt states 3 facts", "It has 1 error, and 3 facts.\n4"]),
    ("12345", None, ["It states 3 facts.", "It has 2 errors.\nIt is", "It gets a 3.\nOr a 4.", "Score: 3\nScore: 4"]),
    ("12345", "4", ['{"reason": "It states 3 facts.", "score": 4}', '```json\n{"score": "4"}\n```']),
    ("12345", "4", ['So:\n{"score": 4.0}']),
    ("12345", None, ['{"score": 4, "confidence": 5}', '{"score": 7}', '{"facts": 3']),
    (("A", "B", "Tie"), "Tie", ['{"winner": "tie"}']),
    ("AB", "B", ["Output A says more.\nA is fluent, too.\nAnswer: B"]),
    ("12345", None, ["4.5", "-1", "between 3 and 4", "on a scale from 1 to 5, 4", "7", "4-5", "1-5: good", "Not 5"]),
    ("12345", None, ["Definitely not a 5", "2 points below the maximum"]),
    ("12345", "4", ["4 / 5", "**Score:** 4 out of 5"]),
    ("12345", None, ["4/10", "4 out of 10", "Rating: 4 / 10", "4 points of ten", "3 of the facts", "4%", "A / B: 4/6"]),
    (("1", "4", "10"), None, ["4/5", "4 out of 5"]),
    (("1", "4", "10"), "4", ["4/10", "4 **/ 10**", "4 out of 10"]),
    ("AB", None, ["A / B"]),
    (("1", "10"), "10", ["10"]),
    ("AB", "A", ["Ａ", "A。", "「A」", "答えはAです。", "出力Aの方が自然です。", "A。悪くない。"]),
    ("AB", None, ["Aではない", "Aの方が劣る", "AとBは同じです", "Bより低い", "分からない"]),
    (("A", "B", "引き分け"), "引き分け", ["引き分け", "引き分けです。"]),
    (("はい\uff01", "いいえ\uff01"), "はい\uff01", ["はい\uff01", "はい!", "答えは「はい\uff01」です。"]),
    ("12345", "4", ["4点", "４点です。", "スコアは4です", "5点満点中4点", "5段階評価で4", "1〜5：4"]),
    ("12345", None, ["4.5点", "4ではない", "3から4", "3〜4"]),
]
"""Choices, the one that is read or None, and texts."""


@pytest.mark.parametrize(("choices", "choice", "text"), [(*row[:2], text) for row in READ for text in row[2]])
def test_an_answer_is_read_only_if_it_is_clear(choices, choice, text):
    assert named_choice(text, list(choices)) == choice


@pytest.mark.parametrize(
    ("choice", "text"),
    [("4", text) for text in ("4", "4\n\nIt states 3", "**4**\nThe", "4. It says", "4/5 - it", '{"score": 4}\nIt')]
    + [
        (None, text)
        for text in ("Accuracy: 4. It states", "Accuracy: 4\nFluency:", "I rate it 4, but", '{"score": 4, "')
    ],
)
def test_an_answer_that_is_cut_off_counts_only_where_it_begins_with_the_choice(choice, text):
    assert named_choice(text, list("12345"), finished=False) == choice


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="scoring='often' is unknown"):
        PairwiseJudge(C, scoring="often")
    for options in ({"samples": 0}, {"temperature": 0.0}, {"samples": 1, "temperature": -1.0}, {"max_tokens": 0}):
        with pytest.raises(ValueError, match="cannot be drawn"):
            Sampling(**options)


# The most probable first tokens of an answer, as servers report them.


def test_first_tokens_that_are_written_alike_are_added_and_sum_to_one_at_most():
    reported = [("3", 0.5), ("3", 0.25), ("2", 0.125), ("2", 0.0)]  # as with the mark of a word's beginning
    top = first_tokens((text, math.log(p) if p else -9999.0) for text, p in reported)
    assert first_token_row(top, ["2", "3"]) == pytest.approx([math.log(0.125), math.log(0.75)])
    rounded = first_tokens([("1", -0.001), ("2", -6.0)])
    assert max(rounded.values()) <= 0.0
    with pytest.raises(ValueError, match=r"the probabilities of the first token sum to 1\.98"):
        first_tokens([("1", -0.01), ("2", -0.01)])


@pytest.mark.parametrize(("top", "choices", "row"), [
    ({"2": 0.9, "x": 0.0999, "y": 1e-5}, ["2", "3"], [0.9, 0.0]),
    ({"2": 0.9, "x": 0.05, "y": 0.04}, ["2", "3"], None),
    ({"1": 0.9, "2": 0.1}, ["1", "2", "10"], None),  # "10" may begin with "1"
    ({"1": 0.9, "2": 0.05, "10": 0.05}, ["1", "2", "10"], [0.9, 0.05, 0.05]),
    ({"x": 0.9, "y": 1e-9}, ["1", "2", "10"], None),  # no choice is reported
])  # fmt: skip
def test_unreported_choices_count_as_zero_only_if_negligible(top, choices, row):
    found = np.exp(first_token_row({token: math.log(p) for token, p in top.items()}, choices))
    np.testing.assert_allclose(found, [math.nan] * len(choices) if row is None else row)


# A model behind a server, as DSPy's own engine reaches it.


def hosted(address):
    return dspy.LM("hosted_vllm/tiny", api_base=address, engine="lm15", cache=False)


def ask(text):
    return [{"role": "system", "content": "Judge."}, {"role": "user", "content": text}]


def test_a_servers_judgments_are_measured_with_their_coverage(lms):
    local = lms["qwen2-chat"]
    with serving(local) as (address, fake):
        server = measuring(hosted(address))
        answer = server.choice_logprobs([ask("a cat"), ask("the mat")], LABELS)
    assert [path for path, _ in fake.requests].count("/v1/completions") == 2
    tokenizer, rows = local.engine.loaded.tokenizer, []
    closing = tokenizer.decode(tokenizer("[end]", add_special_tokens=False)["input_ids"][:1])
    for text in ("a cat", "the mat"):
        prompts = [body["messages"] for path, body in fake.requests if path == "/tokenize"]
        prompts = [messages for messages in prompts if messages[1]["content"] == text]
        opened = min(prompts, key=lambda messages: len(messages[-1]["content"]))  # the assistant's turn is still empty
        rows.append([x.total for x in local.loglikelihood([(opened, f" {c}{closing}") for c in LABELS])])
    np.testing.assert_allclose(answer.logprobs, rows, atol=1e-4)
    assert not answer.renormalized
    assert answer.coverage == pytest.approx(np.exp(rows).sum(axis=1), rel=1e-3)


def interrupt_once(condition):
    """Interrupt this thread as a user does, once something holds."""

    def wait():
        while not condition():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_cancels_queued_requests_and_keeps_the_answers(tmp_path):
    file, answers, released = tmp_path / "j", {}, threading.Event()
    prompts = [ask(f"cat {n}") for n in range(256)]

    def write(request):
        """Write "fine" at once for the first prompts, and for the others once they are ``released``."""
        if int(request.messages[-1].text.split()[-1]) >= 20:
            released.wait()
        return "fine"

    lm = dspy.LM("test/hanging", engine=Engine(write), cache=False)
    try:
        interrupt_once(lambda: len(answers) == 20)
        with pytest.raises(KeyboardInterrupt):
            measuring(lm).answer([Text(prompt, 4, temperature=0.0) for prompt in prompts], answers)
        assert sorted(answers) == list(range(20))  # no other was waited for
        assert {answer.text for answer in answers.values()} == {"fine"}
        cached = CachedLM(lm, file, chunk=256)
        interrupt_once(lambda: file.exists() and file.read_bytes().count(b"\n") == 20)  # as they came
        with pytest.raises(KeyboardInterrupt):
            cached.texts(prompts, max_tokens=4)
    finally:
        released.set()
    assert len(lm.engine.asked) <= 2 * (20 + IN_FLIGHT)
    resumed = CachedLM(lm, file)
    resumed.texts(prompts[:20], max_tokens=4)
    assert (resumed.asked.total(), resumed.replayed) == (0, 20)
