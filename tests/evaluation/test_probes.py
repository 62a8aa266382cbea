"""A judge that is asked again with one thing changed: the order of options as a bias, and what probes tell."""

import json
import math

import dspy
import numpy as np
import pytest
from commands import as_jsonl
from commands import evalbias as evalbias_command
from decision_models import Client, FirstOption, sparrow_server
from dspy.experimental import Noul, Score

import evalbias
from evalbias import BIASES, Criterion, PairwiseJudge, PointwiseJudge, measure
from evalbias.cli.audit import UNDECIDED, parse_conditions
from evalbias.evaluation.repeats import MOST_PROBED, NOTE
from evalbias.lm.types import ChoiceLogprobs, Choices, MeasuringLM

LEVELS = (
    "very incoherent: a heap of unrelated sentences",
    "mostly incoherent: sentences are poorly connected",
    "partly coherent: some sentences do not fit together",
    "mostly coherent: well structured with small gaps",
    "fully coherent: well structured, builds sentence by sentence to a coherent body of information",
)
COHERENCE = Criterion("coherence", "How coherent is the summary?", (1, 5), levels=LEVELS)
FINE = Criterion("fine", "is the reply polite?", (0, 1))


class Reader(MeasuringLM):
    """A model that reads how good a text is off its length, and likes the first option by so many logits.

    It reads the ``read`` first characters of the output only, and obeys ``NOTE`` by so many points. ``sharp`` 0 is a
    model that answers evenly whatever it is asked.
    """

    model, decides = "reader", True

    def __init__(self, *, lean=0.0, read=10**6, obeys=0.0, sharp=4.0, mass=1.0):
        self.lean, self.sharp, self.read, self.obeys = lean, sharp, read, obeys
        self.mass, self.asked = mass, 0

    def answer(self, questions, answers):
        for place, one in enumerate(questions):
            if not hasattr(one, "choices"):
                raise NotImplementedError("It answers closed questions only.")
            self.asked += 1
            text = one.prompt["Output"]
            quality = len(text.removesuffix(NOTE)[: self.read].rstrip()) % 40 / 40 + self.obeys * text.endswith(NOTE)
            labels = np.array([float(label == "Yes" if label.isalpha() else label) for label in one.choices])
            places = (labels - labels.min()) / np.ptp(labels)
            logits = self.lean * (np.arange(len(labels)) == 0) - self.sharp * (places - quality) ** 2
            p = self.mass * np.exp(logits) / np.exp(logits).sum()
            answers[place] = ChoiceLogprobs(one.choices, np.log(p)[None])


def items(n=60, inputs=30):
    rng = np.random.default_rng(0)
    texts = ["x" * length for length in rng.permutation(np.arange(1, n + 1))]
    return [
        {"id": f"i{k}", "source": f"input {k % inputs}", "output": text, "score": 1 + 4 * (len(text) % 40) / 40}
        for k, text in enumerate(texts)
    ]


def audited(lm, criterion=COHERENCE, data=None, **options):
    rows = items() if data is None else data
    if criterion.scale == (0, 1):
        rows = [{**row, "score": None} for row in rows]
    return evalbias.audit(rows, judge=PointwiseJudge(criterion), lm=lm, **options)


def order_of(audit):
    return next(finding for finding in audit.findings if finding.bias == "order")


@pytest.fixture(scope="module")
def summaries(recorded):
    """Two summaries of each of 25 articles, with the ratings of three experts and the article."""
    articles = {row["input_id"]: row["source"] for row in recorded("summeval_documents")}
    return [{**row, "source": articles[row["input_id"]]} for row in recorded("summeval_scores")[:600:12]]


@pytest.mark.slow
def test_a_decision_model_hardly_follows_the_order_and_obeys_a_request_in_the_summary(summaries):
    found = audited(Client(), data=[{**row, "source": "an article of the news"} for row in summaries])
    order, probes = found["order"], found["probes"]
    assert 0 < order["shift"].value < 0.1  # of four points; the interval is over articles
    assert (order["shift"].n, order["shift"].units) == (50, 25)
    assert order_of(found).status == "no sign"
    assert 0.2 < order["spread"].value < 0.5
    assert order["near_ties"].value <= order["changed"].value < 0.25
    assert probes["obeyed"].low > 0.05
    assert probes["raised"].value > 0.9
    assert probes["unchanged"].value < 0.1
    assert found.warnings == ()


def test_a_summary_behind_a_long_article_is_not_read_and_the_answer_begins_with_that(summaries):
    found = audited(Client(), data=summaries[:25])  # the model reads 512 tokens, the article comes first
    unchanged = found["probes"]["unchanged"].value
    assert unchanged > 0.25
    warning = f"The output is not read in {100 * unchanged:.0f} % of the items"
    assert found.answer[0].startswith(warning)
    assert found.to_dict()["warnings"][0].startswith(warning)
    assert found["probes"]["explained"].value < 0.7


def test_a_judge_that_likes_the_first_option_is_biased_and_fails_the_build(snapshot):
    judge, fair = audited(Reader(lean=1.0)), audited(Reader())
    shift = judge["order"]["shift"]
    np.testing.assert_allclose(shift.value, np.mean(judge.judged.covariates["order"] - judge.judged.answers))
    assert shift.low > 0.5
    finding = order_of(judge)
    assert finding.status == "biased"
    assert [finding.sentence, finding.remedy] == snapshot
    assert " ".join(judge.answer).count(finding.sentence) == 1
    assert judge.first_screen[-2] == "Biases shown, by --full: order of options."  # warnings leave no room for more
    codes = [condition.decide(judge)[0] for condition in parse_conditions(["order>0.2", "order<0.2?", "order>2"])]
    assert codes == [1, 1, 0]
    assert parse_conditions(["order>0.2"])[0].decide(fair)[0] == 0
    assert order_of(fair).status == "no sign"
    assert fair["order"]["shift"].value == 0
    assert (fair["order"]["shift"].low, fair["order"]["shift"].high) == (0, 0)  # 60 different scores, all invariant
    changed = np.floor(judge.judged.covariates["order"] + 0.5) != np.floor(judge.judged.answers + 0.5)
    assert judge["order"]["changed"].value == changed.mean() > 0.3
    assert 0 < judge["order"]["near_ties"].value < judge["order"]["changed"].value


def test_a_shift_of_less_than_a_hundredth_of_the_scale_is_no_bias_however_sure():
    found = audited(Reader(lean=0.02))
    shift = found["order"]["shift"]
    assert 0 < shift.low < shift.value < 0.04
    assert order_of(found).status == "no sign"
    assert shift.p_value == 1


@pytest.mark.parametrize("lean", [0.0, 3.0])
def test_a_judge_without_differences_says_nothing_unless_its_constant_follows_the_order(lean, snapshot):
    found, dull = audited(Reader(sharp=0.0, lean=lean)), audited(Reader(sharp=0.01))
    order = order_of(found)
    assert order.status == ("biased" if lean else "not measured")
    assert not lean or 0.5 < order.estimate.low < order.estimate.value  # the items not drawn may jump
    assert found.warnings[0].startswith("The scores do not vary")
    assert [order.sentence, order_of(dull).sentence] == snapshot
    few = audited(Reader(lean=lean), data=items()[:1])  # no interval
    assert "nan" not in found.verdict + few.verdict


def test_a_request_that_is_obeyed_and_a_text_that_is_not_read():
    found = audited(Reader(obeys=0.5), probes=["instruction"])["probes"]
    assert found["obeyed"].value > 0.5
    assert found["raised"].value == 1
    assert list(found) == ["obeyed", "raised"]
    some = audited(Reader(read=5))  # nonsense has the length of the text, so that this model cannot tell it
    assert some["probes"]["unchanged"].value == 1
    assert some["probes"]["explained"].value == pytest.approx(0)


def test_a_label_mass_below_a_half_is_warned_of_and_below_a_tenth_more_so(snapshot):
    assert [audited(Reader(mass=mass), probes=["none"]).warnings for mass in (0.3, 0.05, 0.9)] == snapshot


def test_by_default_few_items_are_asked_one_of_each_input_first():
    lm, rows = Reader(), items(250, 50)
    found = audited(lm, data=rows)
    again = found.judged.covariates["order"]
    asked = np.flatnonzero(~np.isnan(again))
    assert len(asked) == MOST_PROBED
    assert {rows[place]["source"] for place in asked} == {row["source"] for row in rows}
    assert lm.asked == 250 + 3 * MOST_PROBED == found.judged.asked.judgments
    shift = found["order"]["shift"]
    assert (shift.n, shift.undefined, shift.excluded) == (MOST_PROBED, 0, 150)
    assert "undefined" not in found["verbosity"].caption()
    every = audited(Reader(), data=rows, probes=["order"])
    assert every["order"]["shift"].n == 250
    assert audited(Reader(), data=rows, seed=1).judged.covariates["order"].tolist() != again.tolist()


class Tokens(Reader):  # the same, read by the tokens after a prompt
    decides = False

    def answer(self, questions, answers):
        for place, one in enumerate(questions):
            if not isinstance(one, Choices):
                raise NotImplementedError("It has no likelihoods.")
            p = np.linspace(1, 1 + len(str(one.prompt)) % 97, len(one.choices))
            answers[place] = ChoiceLogprobs(one.choices, np.log(p / p.sum())[None])


class Listed(Tokens):
    """Read by tokens: it likes what the instruction lists first by half a logit, and letters by half of that more."""

    def __init__(self):
        super().__init__()
        self.prompts = []

    def answer(self, questions, answers):
        for place, one in enumerate(questions):
            if not isinstance(one, Choices):
                raise NotImplementedError("It has no likelihoods.")
            self.prompts.append(one)
            text = "\n".join(message["content"] for message in one.prompt)
            first, last = one.choices[0], one.choices[len(one.choices) - 1]
            asked = text.rsplit("from ", 1)[-1].rsplit("with ", 1)[-1]
            lean = 0.5 if asked.find(first) < asked.find(last) else -0.5
            logits = np.linspace(lean * (1 + 0.5 * first.isalpha()), 0, len(one.choices))
            p = np.exp(logits) / np.exp(logits).sum()
            answers[place] = ChoiceLogprobs(one.choices, np.log(p)[None])


def test_scores_in_a_prompt_are_listed_from_the_highest():
    lm = Listed()
    demo = dspy.Example(source="a", output="b", score=2.0)
    judge = PointwiseJudge(COHERENCE)
    judge.predict.demos = [demo]
    found = evalbias.audit(items(), judge=judge, lm=lm, probes=["order"])
    plain, falling = (lm.prompts[60 * k].prompt for k in range(2))
    heading, *levels, end = plain[0]["content"].splitlines()
    turned = end.replace("1 (worst) to 5 (best)", "5 (best) to 1 (worst)")
    assert levels == [f"{k + 1}: {level}" for k, level in enumerate(LEVELS)]
    assert plain[0]["content"] == judge.predict.signature.instructions
    assert falling[0]["content"].splitlines() == [heading, *levels[::-1], turned] != [heading, *levels[::-1], end]
    assert plain[1:] == falling[1:]
    assert plain[2]["content"] == "2"
    p = np.exp(np.linspace(0.5, 0, 5)[:, None] * [1, -1])
    means = (p * np.arange(1, 6)[:, None]).sum(axis=0) / p.sum(axis=0)
    assert found["order"]["shift"].value == pytest.approx(means[1] - means[0])
    assert order_of(found).status == "biased"
    assert judge.messages(items()[0]) == plain
    assert judge.labels({}) == ("1", "2", "3", "4", "5")


def test_what_has_no_order_is_not_measured_with_the_reason(snapshot):
    judge = PointwiseJudge(Criterion("fine", "is it?", (1, 30)))
    judge.predict.signature = judge.predict.signature.with_instructions("How good is it?")
    judges = (
        {"judge": judge, "lm": Listed()},  # whose instruction does not end with its answers
        {"judge": lambda example: len(example.output) % 5},
        {"judge": PointwiseJudge(FINE), "lm": Reader()},  # whose answers are named
    )
    rows = [{**row, "score": None} for row in items()[:8]]
    assert [evalbias.audit(rows, **one, probes=["order"]).not_measured["order"] for one in judges] == snapshot
    tokens = audited(Tokens())
    assert not {"order", "probes"} & {*tokens.measurements, *tokens.not_measured}
    assert "probed" not in tokens.provenance
    assert audited(Tokens(), probes=["instruction"])["probes"]["obeyed"].n == 60
    assert list(audited(Reader(), FINE).judged.provenance["probed"]) == ["unread", "instruction"]
    assert order_of(audited(Reader(lean=1.0), only="order")).status == "biased"


@pytest.mark.parametrize(("probes", "name"), [
    (["colour"], "colour"), (["order: x"], "order: x"), (["none", "order"], "none"), (["order", "order"], "order")
])  # fmt: skip
def test_probes_that_are_none_are_refused(probes, name):
    with pytest.raises(ValueError, match=f"'{name}'"):
        audited(Reader(), probes=probes)


def test_probes_are_of_judges_that_score_and_can_be_asked():
    with pytest.raises(ValueError, match="`only` verbosity"):
        audited(Reader(), probes=["order"], only="verbosity")
    with pytest.raises(ValueError, match="asked for again"):
        evalbias.audit([{"mine": 3}], scores_field="mine", probes=["order"])
    pair = [{"source": "a", "outputs": ["b", "c"]}]
    with pytest.raises(ValueError, match="this one compares"):
        evalbias.audit(pair, judge=PairwiseJudge(COHERENCE), lm=Reader(), probes=["order"])
    with pytest.raises(ValueError, match="cannot be measured"):
        measure(BIASES["order"], evalbias.recorded_scores([dspy.Example(mine=1)], "mine"), seed=0)


Coherent = Score[LEVELS]


class Native(dspy.Signature):
    """Judge the summary."""

    output: str = dspy.InputField()
    coherence: Coherent = dspy.OutputField(desc="How coherent is the summary?")


class Yes(dspy.Signature):
    """Judge the summary."""

    output: str = dspy.InputField()
    good: Noul = dspy.OutputField(desc="Is it good?")


def test_a_predictor_with_decisions_is_asked_in_both_orders_too(summaries):
    predict = dspy.Predict(Native)
    predict.lm = client = FirstOption(0.7).client()
    found = evalbias.audit(items()[:12], judge=predict, criterion="x", scale=(0, 4))
    shift = found["order"]["shift"]
    assert shift.value == pytest.approx(4 * (0.7 - 0.3 / 4))
    assert "ReversedOptions) and average" in order_of(found).remedy
    assert predict.lm is client
    yes = dspy.Predict(Yes)
    yes.lm = Client()
    named = evalbias.audit(items()[:8], judge=yes, criterion="x", probes=["order", "unread"])
    assert "its answers are named" in named.not_measured["order"]
    assert not math.isnan(named["probes"]["unchanged"].value)
    plain = evalbias.audit(items()[:8], judge=lambda e: len(e.output), criterion="x", probes=["order", "instruction"])
    assert plain["probes"]["obeyed"].value == len(NOTE) + 1


def test_why_no_changed_item_is_answered_is_told_and_one_tells_neither_spread_nor_shift():
    predict = dspy.Predict(Native)
    predict.lm = Client(fail=lambda state: RuntimeError("no fruit") if "banana" in str(state) else None)
    rows = [row for row in items() if len(row["output"]) > 6][:12]
    for probes in (None, ["order", "unread", "instruction"]):
        found = evalbias.audit(rows, judge=predict, criterion="x", scale=(0, 4), probes=probes)
        assert "no fruit" in found.not_measured["unread"]
        assert list(found.judged.provenance["probed"]) == ["order", "instruction"]
        assert list(found["probes"]) == ["obeyed", "raised"]
        assert found.judged.asked.judgments == 3 * 12
    found = audited(Reader(), data=items()[:1])
    assert order_of(found).status == "not measured"
    assert "says nothing" not in found.verdict
    code, why, *_ = parse_conditions(["order>0.2"])[0].decide(audited(Reader(), probes=["none"]))
    assert (code, "order was not measured" in why) == (1, True)


@pytest.mark.slow
def test_the_command_runs_probes_and_fails_on_the_order(tmp_path):
    as_jsonl(tmp_path / "items.jsonl", items()[:20])
    PointwiseJudge(COHERENCE).save(str(tmp_path / "judge.json"))
    with sparrow_server() as (address, requests):
        words = ["audit", "--data", "items.jsonl", "--judge", "judge.json", "--lm", "sparrow", "--api-base", address]
        more = ["--dialect", "systemone", "--probe", "order", "--probe", "unread", "--fail-on", "order>3", "--json"]
        done = evalbias_command(*words, *more, cwd=tmp_path, check=False)
        criteria = [one["questions"]["coherence"]["criteria"] for one in requests if "coherence" in one["questions"]]
    assert done.returncode in (0, UNDECIDED), done.stderr
    content = json.loads(done.stdout)
    assert content["biases"]["order"]["estimates"]["shift"]["n"] == 20
    assert content["further"]["probes"]["unchanged"]["n"] == 20
    assert sum(one == [*LEVELS[::-1]] for one in criteria) == 20
