"""Judges on decision models: the same question, and the same numbers, through every road."""

import asyncio
import json

import dspy
import numpy as np
import pytest
from commands import as_jsonl, evalbias
from decision_models import COHERENCE, ITEMS, LEVELS, TEXTS, Client, Native, sparrow, sparrow_server
from dspy.experimental import Choice, Noul
from refusals import refusals

from evalbias import Criterion, PairwiseJudge, PointwiseJudge, ServerLM
from evalbias.evaluation.answers import function_scores
from evalbias.lm.cache import CachedLM
from evalbias.lm.contract import AnyLM
from evalbias.lm.types import Decision, ModelChanged, Unanswered
from evalbias.programs.judges import asked_together

ITEM = dspy.Example(source="The council met on Monday to talk of the bridge.", output="The council met.")


@pytest.fixture(scope="module")
def served():
    with sparrow_server() as (address, requests):
        yield ServerLM("sparrow", base_url=address, dialect="systemone", patience=5.0), requests


def test_a_judge_sends_its_texts_by_name_and_its_criterion_as_the_question(served):
    lm, requests = served
    judge = PointwiseJudge(COHERENCE)
    judge.predict.demos = [dspy.Example(source="a", output="b", score=3.0)]
    prediction = judge.batch([ITEM], lm=lm)[0]
    question = {"type": "score", "instructions": "Judge the output on coherence: is the summary coherent?"}
    question["criteria"] = list(LEVELS)
    state = {"Source": ITEM.source, "Output": ITEM.output, "demos": [{"Source": "a", "Output": "b", "coherence": 2}]}
    assert requests[-1] == {"model": "sparrow", "state": state, "questions": {"coherence": question}}
    shares = sparrow().ask(state, {"q": question})["q"]["probabilities"]
    shares = {level: p / sum(shares.values()) for level, p in shares.items()}  # the server rounds to four digits
    assert prediction.distribution == pytest.approx(dict(zip("123", shares.values(), strict=True)), abs=1e-6)
    assert prediction.score == pytest.approx(sum((1 + i) * p for i, p in enumerate(shares.values())), abs=1e-6)


def test_the_criteria_of_an_item_are_asked_in_one_request(served):
    lm, requests = served
    judges = [PointwiseJudge(COHERENCE), PointwiseJudge(Criterion("fluency", "is it fluent?", (1, 5)))]
    expected = [[p.score for p in judge.batch(ITEMS, lm=lm)] for judge in judges]
    before = len(requests)
    asked = asked_together(judges, ITEMS, lm)
    assert [[p.score for p in judge.batch(ITEMS, lm=asked)] for judge in judges] == expected
    assert [[*one["questions"]] for one in requests[before:]] == [["coherence", "fluency"]] * len(ITEMS)


def test_every_road_to_a_model_gives_the_same_numbers(served):
    lm, _ = served
    judge, client = PointwiseJudge(COHERENCE), Client()
    expected = [p.score for p in judge.batch(ITEMS, lm=lm)]
    assert len(set(expected)) > 5
    for model in (lm, client):
        judge.predict.lm = model
        called = [judge(source=e.source, output=e.output).score for e in ITEMS]
        np.testing.assert_allclose(called, expected, atol=1e-6)
        np.testing.assert_allclose([p.score for p in judge.batch(ITEMS)], expected, atol=1e-6)
        awaited = asyncio.run(judge.acall(source=ITEMS[0].source, output=ITEMS[0].output))
        assert awaited.score == pytest.approx(expected[0], abs=1e-6)
    assert {type(lm) for lm in (judge.predict.lm,)} == {Client}


First = Choice[("A", "the first"), ("B", "the second"), ("Tie", None)]
Rated = Choice[("1", "poor"), ("5", "good")]


def test_a_predictor_with_decisions_is_asked_the_same_on_a_server_as_on_dspys_own_client(served):
    lm, requests = served
    predict, client = dspy.Predict(Native), Client()
    ours, theirs = (predict(summary="The cat sat on the mat.", lm=one) for one in (lm, client))
    ((state, questions),) = client.requests
    assert requests[-1] == {"model": "sparrow", "state": state, "questions": questions}
    assert ours.ok.probability == pytest.approx(theirs.ok.probability, abs=1e-6)
    for name in ("coherent", "kind"):
        given, total = getattr(theirs, name).probabilities, sum(getattr(theirs, name).probabilities.values())
        shares = {option: p / total for option, p in given.items()}  # the server rounds to four digits
        assert getattr(ours, name).probabilities == pytest.approx(shares, abs=1e-6)
        assert getattr(ours, name).value == pytest.approx(getattr(theirs, name).value)


def test_all_criteria_of_an_item_go_in_one_request(served):
    lm, requests = served
    state, before = {"Output": "a cat"}, len(requests)
    asked = [Decision(state, ("no", "yes"), "noul", f"Is it {word}?", (), "q") for word in ("good", "short", "new")]
    other = Decision({"Output": "a mat"}, ("A", "B"), "choice", "Which?", ("first", None))
    answers: dict = {}
    lm.answer([asked[0], other, *asked[1:]], answers)
    sent = sorted((list(one["questions"]) for one in requests[before:]), key=len)
    assert sent == [["answer"], ["q", "q_2", "q_3"]]
    for place, one in zip((0, 2, 3), asked, strict=True):
        expected = sparrow().ask(state, {"q": {"type": "noul", "instructions": one.instructions}})["q"]["noul"]
        assert answers[place].probabilities[0, 1] == pytest.approx(expected, abs=1e-6)
    assert [answers[place].usage and answers[place].usage.prompt for place in range(4)] == [7, 7, None, None]


def test_a_comparison_is_a_choice_between_named_texts(served):
    lm, requests = served
    judge = PairwiseJudge(COHERENCE, debias="permutation", ties=True)
    judge.predict.lm = Client()
    pair = dspy.Example(source="a", candidates=["the council met", "a cat"])
    called, batched = judge(source="a", candidates=pair.candidates), judge.batch([pair], lm=lm)[0]
    assert called.probability == pytest.approx(batched.probability, abs=1e-6)
    states = [one["state"] for one in requests[-2:]]
    assert sorted(states, key=str)[0] == {"Source": "a", "Output A": "a cat", "Output B": "the council met"}
    (question,) = requests[-1]["questions"].values()
    assert (question["type"], list(question["criteria"])) == ("choice", ["A", "B", "Tie"])


@pytest.mark.parametrize(("scale", "kind"), [((0, 1), "noul"), ((1, 10), "score"), ((0, 10), "choice")])
def test_the_scale_decides_the_kind_of_question(served, scale, kind):
    lm, requests = served
    prediction = PointwiseJudge(Criterion("worth", "is it worth it?", scale)).batch([ITEM], lm=lm)[0]
    (question,) = requests[-1]["questions"].values()
    assert question["type"] == kind
    assert ("Answer with a whole number" in question["instructions"]) == (kind != "noul")
    assert scale[0] <= prediction.score <= scale[1]
    assert len(prediction.distribution) == scale[1] - scale[0] + 1


def test_what_the_endpoint_cannot_take_is_said_before_it_is_asked(served):
    lm, requests = served
    before = len(requests)
    with pytest.raises(ValueError, match=r"'worth' has 301 options, and sparrow takes at most 255"):
        PointwiseJudge(Criterion("worth", "is it worth it?", (0, 300))).batch([ITEM], lm=lm)
    with pytest.raises(NotImplementedError, match="writes no texts"):
        PointwiseJudge(COHERENCE, scoring="sampled").batch([ITEM], lm=lm)
    assert len(requests) == before


def test_a_list_of_models_in_the_form_of_decision_models_is_read():
    with sparrow_server(listing={"models": [{"name": "sparrow", "release_date": "2026-10-01"}]}) as (address, _):
        assert ServerLM("sparrow", base_url=address, dialect="systemone", patience=2.0).decides
        assert ServerLM("sparrow-1.1", base_url=address, dialect="systemone", patience=2.0).decides  # a pinned release


def named(*names):
    names = list(names)

    def answer(body):
        name = names.pop(0) if len(names) > 1 else names[0]
        return 200, {"model": name, "answers": sparrow().ask(body["state"], body["questions"])}

    return answer


def test_the_answering_model_is_kept_and_a_release_in_between_is_an_error(tmp_path):
    with sparrow_server(named("jev-1", "jev-1", "jev-2")) as (address, _):
        lm = ServerLM("sparrow", base_url=address, dialect="systemone", patience=2.0)
        assert lm.provenance()["answered_by"] == "jev-1"
        asked = CachedLM(lm, tmp_path / "answers.jsonl")
        PointwiseJudge(COHERENCE).batch(ITEMS[:1], lm=asked)
        with pytest.raises((ModelChanged, Unanswered), match=r"by the model 'jev-2', but earlier ones are by 'jev-1'"):
            PointwiseJudge(COHERENCE).batch(ITEMS[:2], lm=asked)
    client = AnyLM(Client(models=("jev-1", "jev-2")))
    with pytest.raises(Unanswered, match="by the model 'jev-2'"):
        client.answer([Decision(text, ("1", "2")) for text in TEXTS[:3]], {})


class StatusError(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def test_an_item_that_is_refused_costs_its_own_answers_alone():
    detail = {"detail": [{"loc": ["body", "state"], "msg": "too long", "type": "value_error"}]}
    refuse = lambda body: (422, detail) if "poison" in str(body["state"]) else None  # noqa: E731
    fail = lambda state: StatusError(422, "too long") if "poison" in str(state) else None  # noqa: E731

    with sparrow_server(refuse) as (address, _):
        lm = ServerLM("sparrow", base_url=address, dialect="systemone", patience=2.0)
        poison = dspy.Example(id="p", source="a", output="poison")
        for model in (lm, Client(fail=fail)):
            fine, refused, also = PointwiseJudge(COHERENCE).batch([ITEMS[0], poison, ITEMS[1]], lm=model)
            assert "too long" in refused.undefined
            assert not np.isnan([fine.score, also.score]).any()
            assert np.isnan(refused.score)


def test_a_client_that_fails_is_named_with_its_words():
    model = AnyLM(Client(fail=lambda _: StatusError(500, "the service is down")))
    with pytest.raises(Unanswered, match=r"sparrow did not answer: .*the service is down"):
        model.answer([Decision("a", ("1", "2"))], {})
    missing = AnyLM(Client(fail=lambda _: ImportError("Install TypeSafe support")))
    with pytest.raises(ImportError, match="Install TypeSafe"):
        missing.answer([Decision("a", ("1", "2"))], {})


def test_texts_of_one_name_are_shown_to_models_of_tokens_and_refused_for_decisions():
    judge = PointwiseJudge(Criterion("style", "is it good?", source_label="Text", output_label="Text"))
    message = judge.messages({"source": "THE SOURCE", "output": "THE OUTPUT"})[-1]
    assert "Text: THE SOURCE\nText: THE OUTPUT" in message["content"]
    with pytest.raises(ValueError, match="these are Text, Text: give the criterion other labels"):
        judge.batch(ITEMS[:1], lm=Client())


def test_a_client_that_can_only_decide_says_so(served):
    with pytest.raises(NotImplementedError, match="writes no texts"):
        PointwiseJudge(COHERENCE, scoring="sampled").batch(ITEMS[:1], lm=Client())
    assert AnyLM(Client()).samples()
    pair = dspy.Example(source="a", candidates=["a cat", "a mat"])
    assert np.isnan(PairwiseJudge(COHERENCE).batch([pair], lm=served[0])[0].coverage)
    new = Client(models=("jev-1", "jev-2"))
    PointwiseJudge(COHERENCE).batch(ITEMS[:1], lm=new)
    PointwiseJudge(COHERENCE).batch(ITEMS[1:2], lm=new)  # another run, after a release: no model is mixed with another


def test_levels_are_described_to_models_that_are_read_by_tokens_and_nothing_else_changes(lms):
    judge, bare = PointwiseJudge(COHERENCE), PointwiseJudge(Criterion("coherence", "is the summary coherent?", (1, 3)))
    first, *levels, last = judge.predict.signature.instructions.split("\n")
    assert levels == [f"{1 + i}: {said}" for i, said in enumerate(LEVELS)]
    assert f"{first}\n{last}" == bare.predict.signature.instructions
    judge.predict.lm = lms["qwen2-chat"]
    texts = {"source": "the cat", "output": "a mat"}
    assert judge(**texts).score == pytest.approx(judge.batch([dspy.Example(texts)])[0].score, abs=1e-6)


test_levels_that_do_not_fit_the_scale_are_refused = refusals(
    lambda levels: Criterion("coherence", "is it?", (1, 3), levels=levels),
    ("abc", "give a list of texts"),
    (("a", ""), "give a list of texts"),
    (("a", "b"), "2 descriptions for the 3 scores"),
)


class Good(dspy.Signature):
    """Judge."""

    source: str = dspy.InputField()
    output: str = dspy.InputField()
    good: Noul = dspy.OutputField(desc="Is it good?")


class Better(dspy.Signature):
    """Compare."""

    source: str = dspy.InputField()
    candidates: list[str] = dspy.InputField()
    better: First = dspy.OutputField(desc="Which is better?")


class Stars(Good):
    """Judge."""

    good: Rated = dspy.OutputField(desc="How many stars?")


def test_an_audit_reads_what_a_predictor_decides():
    client = Client()
    on = lambda signature: (predict := dspy.Predict(signature), setattr(predict, "lm", client))[0]  # noqa: E731
    scores = function_scores(ITEMS[:3], on(Good), criterion="good", scale=(0, 1)).answers
    state, questions = client.requests[-1]
    assert scores[2] == sparrow().ask(state, questions)["good"]["noul"]
    stars = function_scores(ITEMS[:1], on(Stars), criterion="good").answers
    shares = sparrow().ask(*client.requests[-1])["good"]["probabilities"]
    assert stars[0] == pytest.approx(shares["1"] + 5 * shares["5"])
    pairs = [dspy.Example(source="a", candidates=["a cat", "no"], outputs=["a cat", "no"])]
    judged = function_scores(pairs, on(Better), criterion="better")
    for state, questions in client.requests[-2:]:
        order = int(state["inputs"]["candidates"][0] == "no")
        shares = sparrow().ask(state, questions)["better"]["probabilities"]
        np.testing.assert_allclose(judged.answers[0, order], list(shares.values()))
    assert judged.ties


@pytest.mark.slow
def test_an_audit_asks_all_criteria_of_an_item_in_one_request_and_none_again(tmp_path):
    texts = [f"{one} {number}" for one in TEXTS for number in range(10)]  # more than are asked at a time
    ratings = [{"coherence": [1 + i % 3] * 2, "wit": [1 + i % 5] * 2, "tone": [1 + i % 4] * 2} for i in range(150)]
    rows = [{"id": f"{i}", "source": "A.", "output": texts[i], "ratings": one} for i, one in enumerate(ratings)]
    as_jsonl(tmp_path / "items.jsonl", rows)
    criteria = [word for name in ratings[0] for word in ("--criterion", f"{name}: is it good in {name}?")]
    models = ["--lm", "sparrow", "--dialect", "systemone", "--probe", "unread", "--data", "items.jsonl"]
    with sparrow_server() as (address, requests):
        run = ["audit", *criteria, *models, "--api-base", address, "--out", "run", "--json"]
        found = json.loads(evalbias(*run, cwd=tmp_path).stdout)
        asked = [[*one["questions"]] for one in requests if "Source" in one["state"]]
        assert asked == [["coherence", "wit", "tone"]] * (150 + len({*map(len, texts)}))  # and nonsense of each length
        journal = tmp_path / "run/judgments.jsonl"
        journal.write_bytes(journal.read_bytes()[:-200])  # as after a kill
        again = len(requests)
        assert json.loads(evalbias(*run, cwd=tmp_path).stdout) == found
        assert 1 <= sum("Source" in one["state"] for one in requests[again:]) <= 2
        before = len(requests)
        judged = json.loads(evalbias("judge", *criteria, *models[:4], *run[-7:-3], "--json", cwd=tmp_path).stdout)
        several = [one for one in requests[before:] if len(one["questions"]) == 3]
        assert len(several) == sum("Source" in one["state"] for one in requests[before:]) == 150
    assert [*found["criteria"]] == [*judged["criteria"]] == [*ratings[0]]
