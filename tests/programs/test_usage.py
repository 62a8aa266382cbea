"""Tokens of measured judgments, as DSPy reports those of any program: ``get_lm_usage`` and ``dspy.track_usage``."""

import asyncio

import dspy
import pytest
from dspy.utils.usage_tracker import UsageTracker
from fake_server import served
from fakes import Pipeline
from models_of_text import Scripted
from texts import writer

from evalbias import Criterion, Sampling
from evalbias.lm.cache import CachedLM
from evalbias.lm.contract import AnyLM
from evalbias.lm.dspy_seam import usage_in
from evalbias.lm.types import Usage, total_usage
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.programs import PairwiseJudge, PairwiseRanker, PointwiseJudge
from evalbias.programs.feedback import JudgeFeedback
from evalbias.programs.loops import SelfRefine
from evalbias.programs.prompts import likelihood_messages
from evalbias.programs.writing import PlainPredict

QUALITY = Criterion("quality", "is it good?")
ITEMS = [dspy.Example(source="the cat", output="the cat " + "sat " * n).with_inputs("source", "output") for n in (1, 9)]
PAIRS = [dspy.Example(source="the cat", candidates=["the mat " * n, "a cat"]) for n in (1, 9)]
PAIRS = [pair.with_inputs("source", "candidates") for pair in PAIRS]


@pytest.fixture(params=["local", "server"])
def model(request, lms):
    """Return a model, a function from messages to the number of their tokens, and the tokens it writes for a label."""
    local = lms["qwen2-chat"].copy(cache=False)
    engine = local.engine

    def length(messages, text=""):
        rendered = engine.render(messages)
        return len(engine.tokenizer.encode(rendered.before(text) if text else rendered.alone()).ids)

    if request.param == "local":
        yield local, length, 0
    else:
        with served(local) as (lm, _):
            yield lm, length, 1


def orders(judge, pair):
    return [judge.messages(pair), judge.messages(pair.copy(candidates=pair.candidates[::-1]))]


async def gathered(judge, items):
    return await asyncio.gather(*(judge.acall(**item.inputs()) for item in items))


FORMS = {
    "calls": lambda judge, items: [judge(**item.inputs()) for item in items],
    "asynchronous calls": lambda judge, items: asyncio.run(gathered(judge, items)),
    "a batch": lambda judge, items: judge.batch(items),
    "threads": lambda judge, items: dspy.Module.batch(judge, items, num_threads=2, disable_progress_bar=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["scores", "scores and likelihoods", "comparisons", "samples"])
def test_every_form_of_a_judgment_reports_the_tokens_of_its_prompts(form, kind, model):
    lm, length, written = model
    if kind == "comparisons":
        judge, items = PairwiseJudge(QUALITY, debias="permutation"), PAIRS
        expected = [(sum(map(length, orders(judge, pair))), 2 * written) for pair in items]
    elif kind == "samples":
        sampling = Sampling(samples=3, max_tokens=2)
        judge, items = PointwiseJudge(QUALITY, scoring="sampled", sampling=sampling), ITEMS
        expected = [(3 * length(judge.messages(item)), None) for item in items]
    else:
        judge, items = PointwiseJudge(QUALITY), ITEMS
        expected = [(length(judge.messages(item)), written) for item in items]
        if kind == "scores and likelihoods":
            judge.correction = ScoreCorrection({"likelihood": Slope(-0.1, -20.0)})
            texts = [length(likelihood_messages(QUALITY, item.source), item.output) for item in items]
            expected = [(prompt + text, 2 * written) for (prompt, _), text in zip(expected, texts, strict=True)]
    judge.set_lm(lm)
    with dspy.context(track_usage=True):
        usages = [prediction.get_lm_usage() for prediction in FORMS[form](judge, items)]
    assert [list(usage) for usage in usages] == [[lm.model]] * 2
    counts = [(one["prompt_tokens"], one["completion_tokens"]) for (one,) in (usage.values() for usage in usages)]
    assert [one["total_tokens"] for (one,) in (usage.values() for usage in usages)] == [sum(one) for one in counts]
    for (prompt, completion), (own, drawn) in zip(counts, expected, strict=True):
        assert prompt == own
        assert completion == drawn if drawn is not None else 3 <= completion <= 6
    if form != "threads":  # to which DSPy gives a copy of the tracker each
        with dspy.track_usage() as tracker:
            FORMS[form](judge, items)
        assert tracker.get_total_tokens()[lm.model]["prompt_tokens"] == sum(own for own, _ in counts)


@pytest.mark.parametrize("batched", [True, False])
def test_a_ranking_reports_the_tokens_of_all_its_comparisons(batched, model):
    lm, length, written = model
    ranker = PairwiseRanker(PairwiseJudge(QUALITY, debias="permutation"))
    ranker.set_lm(lm)
    items = [dspy.Example(source="the cat", candidates=texts) for texts in (["the mat", "a cat"], ["cat", "a mat sat"])]
    with dspy.context(track_usage=True):
        rankings = ranker.batch(items) if batched else [ranker(**item) for item in items]
    for item, ranking in zip(items, rankings, strict=True):
        usage = ranking.get_lm_usage()[lm.model]
        assert usage["prompt_tokens"] == sum(map(length, orders(ranker.judge, item)))
        assert usage["completion_tokens"] == 2 * written


def test_a_loop_and_a_pipeline_report_their_judges_beside_the_other_models(model):
    lm, length, written = model
    judge = PointwiseJudge(QUALITY)
    judge.set_lm(lm)
    writer = Scripted("the cat", "the mat", "a cat")
    write, rewrite = PlainPredict("source -> output"), PlainPredict("source, draft, feedback -> output")
    loop = SelfRefine(write, JudgeFeedback(judge), rewrite, max_iterations=2)

    class Pipeline(dspy.Module):
        def __init__(self):
            super().__init__()
            self.loop, self.judge = loop, judge

        def forward(self, source):
            self.judge.batch(ITEMS)
            return dspy.Prediction(output=self.loop(source=source).output)

    drafts = [dspy.Example(source="s", output=output) for output in ("the cat", "the mat", "a cat")]
    with dspy.context(lm=writer, track_usage=True):
        alone = loop(source="s").get_lm_usage()
        together = Pipeline()(source="s").get_lm_usage()
    own = sum(length(judge.messages(item)) for item in drafts)
    assert (alone[lm.model]["prompt_tokens"], alone[lm.model]["completion_tokens"]) == (own, 3 * written)
    assert alone[writer.model]["prompt_tokens"] == 21
    own += sum(length(judge.messages(item)) for item in ITEMS)
    assert (together[lm.model]["prompt_tokens"], together[lm.model]["completion_tokens"]) == (own, 5 * written)
    assert together[writer.model]["prompt_tokens"] == 21


def test_an_answer_that_was_known_costs_no_tokens(lms):
    judge, lm = PointwiseJudge(QUALITY), lms["qwen2"].copy(cache=True)
    known, judge.predict.lm = CachedLM(lm), lm
    with dspy.context(track_usage=True):
        twice = [found.get_lm_usage() for found in judge.batch([ITEMS[0]] * 2, lm=known)]
        again, *_ = (found.get_lm_usage() for found in judge.batch(ITEMS, lm=known))
        called = [judge(**ITEMS[1].inputs()).get_lm_usage() for _ in range(2)]
        ordinary = [found.get_lm_usage() for found in judge.batch([ITEMS[1]], lm=AnyLM(lm))]
    assert [bool(usage) for usage in twice] == [True, False]
    assert [bool(usage) for usage in called] == [True, False]
    assert (again, ordinary) == ({}, [{}])


def test_tokens_that_a_server_does_not_report_are_unknown_and_not_0(lms):
    judge = PairwiseJudge(QUALITY, debias="permutation")
    with served(lms["qwen2"]) as (lm, fake), dspy.context(track_usage=True):
        fake.faults = lambda *_: lambda answer: {**answer, "usage": {"prompt_tokens": 7}}
        (prompts,) = judge.batch(PAIRS[:1], lm=lm)
        fake.faults = lambda *_: lambda answer: {**answer, "usage": None}
        (nothing,) = judge.batch(PAIRS[1:], lm=lm)
    assert prompts.get_lm_usage() == {lm.model: {"prompt_tokens": 14}}
    assert nothing.get_lm_usage() == {}
    assert total_usage([Usage(1, 2), Usage(3, None)]) == Usage(4, None)


@pytest.mark.parametrize("count", ["7", -1, True, 2.5, float("nan"), None])
def test_what_is_no_count_makes_the_total_of_an_ordinary_model_unknown(count):
    tracker = UsageTracker()
    assert usage_in(tracker) is None
    tracker.add_usage("m", {"prompt_tokens": 3, "completion_tokens": 1})
    tracker.add_usage("m", {"prompt_tokens": count, "completion_tokens": 2})
    assert usage_in(tracker) == Usage(None, 3)


def test_the_tokens_of_an_interrupted_batch_are_reported(lms):
    def close(n, *_):
        return 400 if n > first + 1 else None

    with served(lms["qwen2"], in_flight=1) as (lm, fake), dspy.track_usage() as tracker:
        first = len(fake.requests)
        fake.faults = close
        with pytest.raises(ConnectionError):
            PointwiseJudge(QUALITY).batch(ITEMS, lm=lm)
    assert len(tracker.usage_data[lm.model]) == 1


def test_nothing_is_counted_where_dspy_does_not_track(lms):
    for found in PointwiseJudge(QUALITY).batch(ITEMS, lm=lms["qwen2"]):
        assert found.get_lm_usage() is None


# Streaming: a program's own writer streams, the judge inside it answers.


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_streamed_program_yields_the_writers_words_and_then_the_judges_score(asynchronous, lms):
    text = "  the cat\nsat on the mat"
    judge, lm = PointwiseJudge(QUALITY), lms["qwen2"].copy(cache=False)
    judge.set_lm(lm)
    writing, _ = writer(lambda *_: {f"[[ ## answer ## ]]\n{text}\n\n[[ ## completed ## ]]": 1.0})
    listener = dspy.streaming.StreamListener(signature_field_name="answer")
    program = dspy.streamify(Pipeline(judge), stream_listeners=[listener], is_async_program=asynchronous)

    async def streamed():
        with dspy.context(lm=writing):
            return [part async for part in program(question="the cat")]

    *pieces, found = asyncio.run(streamed())
    assert len(pieces) >= 6
    assert "".join(piece.chunk for piece in pieces).strip() == found.answer == text.strip()
    assert found.score == judge(source="the cat", output=text.strip()).score
