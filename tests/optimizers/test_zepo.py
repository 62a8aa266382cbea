"""The fairness search on a judge whose position preference follows from the wording."""

import dataclasses
import itertools
import json
import math
import re
from functools import partial

import dspy
import numpy as np
import pytest
from dspy.utils import DummyLM
from fakes import LEANS, PARTS, Wording, pair, rated
from models_of_text import Seeded
from refusals import refusals

from evalbias import data
from evalbias.evaluation.judged import Judged
from evalbias.lm.types import ChoiceLogprobs
from evalbias.measures import decision_rates
from evalbias.optimizers import ZEPO, objectives
from evalbias.optimizers.objectives import ProbeObjective
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser, Proposal, fault
from evalbias.optimizers.zepo import UNSURE
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.values import to_json

C = Criterion("quality", "is it good?")
FOUR = [tuple(f"{place}{option}" for option in range(6)) for place in "abc"] + [("quality.",)]
ALIKE = [("on", "on the"), ("whole", "the whole"), ("{name}",)]
MORE = "Which has more quality?"


def all_pairs(n=8):
    normal = np.random.default_rng(0).normal
    return [
        pair(a, b, source=str(d)) for d in range(n) for a in normal(size=3).round(3) for b in normal(size=2).round(3)
    ]


def search(lm=None, *, judge=None, pairs=None, valset=None, proposer=None, **options):
    """Search without racing and without a choice, unless the options say otherwise."""
    settings = {"population": 4, "epochs": 4, "racing": False, "select": False, **options}
    zepo = ZEPO(proposer or GrammarParaphraser(PARTS), **settings)
    return zepo.compile(judge or PairwiseJudge(C), trainset=pairs or all_pairs(), valset=valset, lm=lm or Wording())


def test_pairs_that_answer_to_nothing_are_searched_too(tmp_path):
    judge = PairwiseJudge(C, inputs={"answer": "Output"})
    pairs = [pair(a, a + 1).without("source").copy(id=str(a)) for a in range(24)]
    found = search(judge=judge, pairs=pairs, epochs=1, log_dir=tmp_path)
    assert len(found.report.tried) == 5


def test_a_grammar_changes_some_phrases_of_the_incumbent_and_keeps_the_others():
    incumbent = "a0 b1 c2 quality."
    changed = []
    for seed in range(60):
        proposal = GrammarParaphraser(FOUR)(C, incumbent, 5, known={incumbent}, seed=seed)
        assert len(proposal.instructions) == 5
        pairs = [zip(text.split(), incumbent.split(), strict=True) for text in proposal.instructions]
        changed += [sum(new != old for new, old in one) for one in pairs]
    assert set(changed) == {1, 2, 3}
    assert changed.count(1) == pytest.approx(len(changed) / 2, rel=0.2)


def test_without_a_proposer_a_grammar_for_any_criterion_rewords():
    optimizer = ZEPO(population=3, epochs=1, select=False)
    found = optimizer.compile(PairwiseJudge(C), trainset=all_pairs(2), lm=Wording())
    wordings = [one.instruction for one in found.report.tried]
    assert len(wordings) == 4
    assert all("quality" in one and "is it good?" in one for one in wordings)
    assert wordings[1:] == [*optimizer.proposer(C, wordings[0], 3, known={wordings[0]}, seed=1).instructions]
    assert optimizer.proposer.makes(C, wordings[0])


@pytest.mark.parametrize(("proposer", "match"), [
    (DummyLM([]), r"The model 'dummy' is no proposer: give LMParaphraser\(lm\)"),
    ("grammar", "proposer='grammar' is none: give GrammarParaphraser"),
    (LMParaphraser, "is none: give GrammarParaphraser"),
])  # fmt: skip
def test_what_cannot_reword_is_refused_at_once(proposer, match):
    with pytest.raises(TypeError, match=match):
        ZEPO(proposer)
    with pytest.raises(TypeError, match="objective='fairness'"):
        ZEPO(objective="fairness")


@pytest.mark.parametrize(("phrases", "text", "own"), [
    *((FOUR, f"a0 b1 c2 quality.{line}", True) for line in ("", "\nSay {answers}.")),
    *((FOUR, text, False) for text in ("a0 b1 quality.", "Which has more quality?", "a0 b1 c2 quality.\nSay it.")),
    *((ALIKE, f"on {whole} quality", True) for whole in ("the whole", "whole", "the the whole")),
    (ALIKE, "on quality", False),
])  # fmt: skip
def test_a_grammar_recognizes_its_own_wordings(phrases, text, own):
    assert GrammarParaphraser(phrases).makes(C, text) is own


def test_a_grammar_draws_freely_where_the_incumbent_is_not_its_own():
    proposal = GrammarParaphraser(FOUR)(C, "Which one has more quality?", 40, known=(), seed=0)
    assert {text[:2] for text in proposal.instructions} == {f"a{option}" for option in range(6)}


def test_a_grammar_does_not_wrap_japanese_in_english_but_names_a_model():
    criterion = Criterion("自然さ", "日本語として自然か？", output_label="Output")
    judge, lm = PairwiseJudge(criterion, language="ja"), Wording()
    own = judge.predict.signature.instructions
    for refused in (
        *(partial(GrammarParaphraser(), criterion, text, 1, known=(), seed=0) for text in (own, "Better on 自然さ?")),
        lambda: search(lm, judge=judge, proposer=GrammarParaphraser()),
        lambda: search(lm, judge=PairwiseJudge(criterion), proposer=GrammarParaphraser()),
    ):
        with pytest.raises(ValueError, match=r"cannot reword '.+'.*LMParaphraser"):
            refused()
    assert lm.asked == []
    english = Criterion("品質", "does the text say all of the data?")
    assert GrammarParaphraser()(english, "Which is better on 品質: say it well.", 1, known=(), seed=0).instructions
    phrases = GrammarParaphraser([["{name}が高い{output}は", "{output}の{name}が上なのは"], ["どれですか。"]])
    assert len(phrases(criterion, own, 2, known=(), seed=0).instructions) == 2


def test_a_japanese_instruction_is_reworded_by_a_model():
    criterion = Criterion("自然さ", "日本語として自然か？")
    lm = says(*map(field, ("「自然さで勝る出力はどちらですか。」", "自然さが上：A", "どちらが良いですか。")))
    found = LMParaphraser(lm)(criterion, "自然さを比べてください。", 2, known=(), seed=0)
    assert found.instructions == ("自然さで勝る出力はどちらですか。",)
    assert [why for why, _ in found.rejected][:2] == ["an answer, not a question", "without the name '自然さ'"]
    assert "日本語の別の言葉で言い換えてください" in str(lm.asked[0])


@pytest.mark.parametrize(("language", "text", "kept"), [
    ("ja", "どのテキストが自然さで優れているか、{answers}で教えてね。", True),
    ("ja", "Which 返信 is better on 自然さ? Answer {answers}.", False),
    ("ja", "自然さ on the whole: どの 返信 is better? {answers}", False),
    ("ja", "哪个回复在自然さ方面更好？请回答{answers}。", False),
    ("en", "{answers}: which 返信 is best on 自然さ?", True),
    ("en", "{answers}のうち、自然さで上回る返信を選んでください。", False),
])  # fmt: skip
def test_a_rewording_keeps_the_language_of_its_instruction(language, text, kept):
    criterion = Criterion("自然さ", "返信は日本語として自然か？", output_label="返信")
    own = PairwiseJudge(criterion, language=language).predict.signature.instructions
    assert fault(text, criterion, (), own) == (None if kept else "in other scripts than the instruction")


def test_the_search_finds_a_fairer_wording():
    lm = Wording()
    judge = search(lm)
    report = judge.report
    first, best = report.tried[0], report.tried[report.best]
    assert first.objective < -0.25
    assert best.objective > first.objective + 0.15
    assert judge.predict.signature.instructions == best.instruction
    assert abs(float(best.instruction.split("lean=")[1].split()[0])) < 1
    rows = judge.batch(all_pairs(), lm=lm)
    assert decision_rates([p.positions[0] for p in rows]) == pytest.approx(best.decision_rates)
    assert best.objective == pytest.approx(-abs(best.decision_rates[0] - 0.5))


def test_a_population_is_asked_in_one_call():
    lm = Wording()
    found = search(lm, judge=PairwiseJudge(C, instruction_place="first"), pairs=all_pairs(2), epochs=2)
    assert lm.batches == [12, 48, 48]
    assert found.report.judgments == 108
    assert found.instruction_place == "first"


def test_a_judge_that_averages_both_orders_is_searched_in_the_given_order():
    pairs = [pair(2, 1), pair(3, 1), pair(5, 4), pair(1, 3.5), pair(2, 2.5)]
    lm, judge = Wording(first=3.0), PairwiseJudge(C, debias="permutation")
    (answered,) = objectives.answers_under(judge, [judge.predict.signature.instructions], pairs, lm)
    np.testing.assert_allclose(answered.asked.coverage, lm.mass)
    called = [p.probabilities for p in PairwiseJudge(C).batch(pairs, lm=lm)]
    np.testing.assert_allclose(objectives.shares_of(answered), called)
    lm = Wording(first=3.0)
    report = search(lm, judge=judge, pairs=pairs, epochs=1).report
    assert report.tried[0].decision_rates[0] == 1  # the lean decides, and not the quality
    assert report.tried[0].objective == pytest.approx(-0.5)
    assert report.judgments == len(lm.asked) == (1 + 4) * len(pairs)


@pytest.mark.slow
def test_the_papers_ten_documents_are_searched_by_the_bare_method_which_the_refusal_names():
    documents = rated(documents=10, outputs=16)
    drawn = data.pairs(documents, seed=0)
    assert len(drawn) == 2400
    with pytest.raises(ValueError, match=r"has 10 inputs: .* select=False"):
        search(pairs=drawn, select=True)
    found = search(pairs=drawn, population=1, epochs=1).report
    assert (found.judgments, found.candidates) == (4800, ())


def test_the_incumbent_never_gets_worse_and_every_wording_has_its_descent():
    report = search().report
    assert list(report.history) == sorted(report.history)
    assert len(report.history) == 5
    assert [t.number for t in report.tried] == list(range(17))
    accepted = [t.number for t in report.tried if t.accepted]
    assert report.best == accepted[-1]
    for tried in report.tried[1:]:
        assert tried.parent in accepted
        assert report.tried[tried.parent].epoch < tried.epoch
    assert len({t.instruction for t in report.tried}) == 17
    assert report.judgments == 17 * len(all_pairs())
    assert report.stopped == "4 epochs"
    assert search(seed=1).report.tried[1:] != report.tried[1:]


def test_a_log_is_of_one_proposer_one_objective_and_one_judge(tmp_path):
    def run(parts=PARTS, **options):
        options = {"epochs": 1, "log_dir": tmp_path / "log", "racing": True, **options}
        return search(proposer=GrammarParaphraser(parts), **options)

    run()
    others = {"parts": [("On quality,", "For quality:"), LEANS], "racing": False, "seed": 5}
    others["objective"] = ProbeObjective("label")
    for options in ({name: value} for name, value in (others | {"judge": PairwiseJudge(C, ties=True)}).items()):
        with pytest.raises(ValueError, match="holds a run with other settings"):
            run(**options)


class Distracted(Wording):  # which hardly answers with a label where its instruction is fair
    def choice_logprobs(self, prompts, choices):
        rows = []
        for prompt in prompts:
            lean = float(re.search(r"lean=(-?[\d.]+)|$", prompt[-1]["content"]).group(1) or self.first)
            self.mass = 0.05 if abs(lean) < 1.5 else 0.8
            rows.append(super().choice_logprobs([prompt], choices).logprobs[0])
        return ChoiceLogprobs(tuple(choices), np.array(rows))


@pytest.mark.parametrize("racing", [False, True])
def test_a_wording_after_which_the_model_hardly_answers_with_a_label_is_turned_down(racing):
    options = {"pairs": all_pairs(30), "population": 8, "epochs": 3, "racing": racing}
    published, found = (search(Distracted(6.0), select=select, **options) for select in (False, True))

    def lean(text):
        return abs(float(re.search(r"lean=(-?[\d.]+)", text).group(1)))

    leans = [lean(judge.predict.signature.instructions) for judge in (published, found)]
    assert leans[0] < 1.5 <= leans[1] < 2.5
    turned_down = [text for reason, text in found.report.rejected if reason == UNSURE]
    assert turned_down
    assert all(lean(text) < 1.5 for text in turned_down)


def test_a_wording_that_silences_the_judge_is_kept_as_json():
    class Silent(Wording):
        def choice_logprobs(self, prompts, choices):
            self.mass = 0.8 if "lean" not in prompts[0][-1]["content"] else 1e-9
            return super().choice_logprobs(prompts, choices)

    report = search(Silent(), epochs=1).report
    assert report.best == 0
    for record in to_json(report.tried[1:]):
        assert (record["objective"], record["decision_rates"]) == (None, [None, None])
        assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_a_judge_that_may_tie_is_fair_if_its_positions_are():
    fair = search(Wording(tie=-1.0), judge=PairwiseJudge(C, ties=True), population=5, epochs=2, racing=True)
    assert fair.report.history[-1] > -0.1
    rates = fair.report.tried[fair.report.best].decision_rates
    assert abs(rates[0] - rates[1]) < 0.2


@pytest.mark.slow
def test_a_killed_search_goes_on_without_asking_the_proposer_again(tmp_path):
    calls = []

    class Counting(GrammarParaphraser):
        def __call__(self, *arguments, **options):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return super().__call__(*arguments, **options)

    def run(folder):
        return search(proposer=Counting(PARTS), log_dir=folder, racing=True).report

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "log")
    with (tmp_path / "log/proposals.jsonl").open("a") as file:
        file.write('{"key": "torn')
    resumed, calls[:] = run(tmp_path / "log"), []
    assert dataclasses.replace(resumed, settings={}) == dataclasses.replace(search(racing=True).report, settings={})
    assert len((tmp_path / "log/proposals.jsonl").read_text().splitlines()) == 4


def says(*answers):
    """Return a language model that gives these answers in turn, again and again."""
    texts = itertools.cycle(answers)
    return Seeded(lambda request: next(texts))


@pytest.mark.parametrize(("name", "kept", "lost"), [
    ("丁寧さ", "この返答の丁寧さを比べてください。", "どちらの返答が丁寧ですか。"),
    ("丁寧さ", "丁寧さでは、どちらが上ですか。", "どちらがよいですか。"),
    ("礼貌", "请比较两个回复的礼貌程度。", "哪个回复更好"),
    ("ความสุภาพ", "ข้อความใดมีความสุภาพมากกว่า", "ข้อความใดดีกว่า"),
    ("공손함", "어느 답변의 공손함이 더 나은가?", "어느 답변이 더 나은가?"),
    ("liaison", "Juge la liaison.", "Juge les liaisons."),  # words with spaces between are whole words still
    ("été", "L'été compte.", "Il a répété."),
])  # fmt: skip
def test_a_wording_holds_the_name_in_every_script(name, kept, lost):
    criterion = Criterion(name, "?")
    assert fault(kept, criterion, ()) is None
    assert fault(lost, criterion, ()) == f"without the name {name!r}"


def field(text):
    """Return a wording as DSPy's adapter asks for it."""
    return f"[[ ## wording ## ]]\n{text}\n\n[[ ## completed ## ]]"


def reworded(lm, given="On quality, choose.", n=1, *, known=(), seed=0, **options):
    return LMParaphraser(lm, **options)(C, given, n, known=known, seed=seed)


def test_a_paraphraser_turns_broken_wordings_down_and_tells_them():
    answers = ("Which has quality?", "", "Pick the better.", "Which has quality?", '"On QUALITY, choose."')
    lm = says(*map(field, answers))
    found = reworded(lm, "Which is better on quality?", 2, known={"x"})
    assert found.instructions == ("Which has quality?", "On QUALITY, choose.")
    assert [why for why, _ in found.rejected] == ["empty", "without the name 'quality'", "known already"]
    assert found.calls == 5
    assert lm.asked[0].config.temperature == 0.9
    assert len({request.config.seed for request in lm.asked}) == 5
    assert "Which is better on quality?" in lm.asked[0].messages[0].text


REPLIES = {  # the whole wording of a chat model is taken, and what is no wording becomes no instruction
    "lines": field("On quality,\nwhich is better?\n\nThink of everything."),
    "thought before": f"<think>Short: quality?</think>\nOf course!\n\n{field(MORE)}",
    "thought within": field(f"<think>Hm.\n\nquality?</think>\n{MORE}"),
    "fence": field(f"```text\n{MORE}\n```"),
    "quotes": field(f"“{MORE}”"),
    "quotes within": field('"A" or "B" on "quality"'),
    "JSON": f'{{"wording": "{MORE}"}}',
    "no field": "Sure! Here is a paraphrase of the quality instruction:\n\nWhich is better?",
    "a heading": "Of course. Quality instruction, reworded:",
    "nothing": "",
    "an answer": field("Better quality: A"),
    "a verdict": field("The text of higher quality is B."),
    "a copy": field("  on Quality,  choose."),
}


@pytest.mark.parametrize("reply", REPLIES)
def test_what_a_chat_model_replies_is_a_wording_or_none(reply, snapshot):
    found = reworded(says(REPLIES[reply]))
    assert (found.instructions, [why for why, _ in found.rejected]) == snapshot


@pytest.mark.parametrize("answer", [field("Which is better on quality?"), "Well, the quality"])
def test_an_unfinished_reply_becomes_no_instruction(answer):
    lm = says(answer)
    complete = lm.engine.complete
    lm.engine.complete = lambda request: dataclasses.replace(complete(request), finish_reason="length")
    with dspy.context(disable_history=True, max_history_size=0):
        found = reworded(lm, max_tokens=9)
    assert (found.instructions, found.calls) == ((), len(lm.asked))
    assert {why for why, _ in found.rejected} == {"longer than max_tokens=9"}


def test_every_server_takes_a_paraphrasers_seeds_and_one_that_has_nothing_ends_the_search():
    lm = says(field("Which has quality?"))
    for seed in (0, 5, 1_000_003 * 7, 2**40):  # those of a search are large from its second seed on
        reworded(lm, n=2, seed=seed)
    seeds = [request.config.seed for request in lm.asked]
    assert len(set(seeds)) == len(seeds) == 4 * 8
    assert max(seeds) < 2**31
    report = search(proposer=LMParaphraser(says("")), population=2).report
    assert report.stopped == "the proposer has nothing new (8 wordings turned down, most of them empty)"
    assert len(report.rejected) == 8
    assert len(report.tried) == 1


def test_a_model_that_takes_no_seed_rewords_without_one():
    lm = says(field("Which has quality?"), field("On quality, which?"))
    complete = lm.engine.complete

    def without_seed(request):
        if request.config.seed is not None:
            raise dspy.lm15.UnsupportedFeatureError("it takes no seed")
        return complete(request)

    lm.engine.complete = without_seed
    assert reworded(lm, n=2).instructions == ("Which has quality?", "On quality, which?")


class Ranked(objectives.Objective):
    """Gives the wordings these objectives in the order in which they are tried."""

    name = "ranked"

    def __init__(self, *values):
        self.values = list(values)

    def __call__(self, judged):
        return self.values.pop(0)


def test_only_a_larger_objective_is_accepted():
    report = search(objective=Ranked(-0.2, -0.2, math.nan, -0.3, -0.1, -0.1, -0.3), population=3, epochs=2).report
    assert report.history == (-0.2, -0.2, -0.1)
    assert [one.number for one in report.tried if one.accepted] == [0, 4]


test_bad_input = refusals(
    lambda call: call(),
    (lambda: ZEPO(population=0), "population=0"),
    (lambda: ZEPO(epochs=0), "epochs=0"),
    (lambda: search(pairs=[pair(1, 2), pair(1, 2, 3)]), r"2 pairs with \[2, 3\] candidates"),
    (lambda: search(Wording(mass=1e-9)), "none of the 48 examples"),
    (lambda: search(judge=PairwiseJudge(C, instruction="Which?")), r"'Which\?'.*'quality'"),
    (lambda: ProbeObjective("label")(Judged(("0",), "quality", np.full((1, 1, 2), 0.5))), "item '0' has no edit"),
    (lambda: ProbeObjective("fame"), "kind 'fame'"),
)


def test_a_grammar_without_the_name_of_the_criterion_proposes_nothing():
    hidden = GrammarParaphraser([("the one with the best",)])(Criterion("wit", "funny?"), "", 1, known=(), seed=0)
    assert hidden == Proposal((), (("without the name 'wit'", "the one with the best"),) * 4)


def test_the_whole_instruction_is_reworded_its_answer_format_included():
    given = PairwiseJudge(C).predict.signature.instructions
    assert given == "Which output is better on quality: is it good?\nAnswer with {answers}."
    whole = "Weigh the quality: lean=0.5\nReply {answers}.\nNothing else."
    lm = says(field("Weigh the quality: say A or B."), field(whole))
    compiled = search(proposer=LMParaphraser(lm), population=1, epochs=1)
    ((why, rejected),) = compiled.report.rejected
    assert ("{answers}" in why, rejected) == (True, "Weigh the quality: say A or B.")
    assert compiled.predict.signature.instructions == compiled.report.tried[1].instruction == whole
    assert compiled.report.chosen == " ".join(whole.split())
    asked = lm.asked[0].messages[0].text
    assert given in asked
    assert '["quality", "{answers}"]' in asked  # what the writer must keep
    (message,) = compiled.messages(pair(1, 2, 3))
    assert "\n\nQuestion: Weigh the quality: lean=0.5\nReply A, B or C.\nNothing else.\nBetter" in message["content"]
    short = says(field("Weigh the quality."), field("Which output is better on quality: is it good?"))
    proposal = LMParaphraser(short)(C, given, 2, known=(), seed=0)
    assert proposal.instructions == ("Weigh the quality.\nAnswer with {answers}.",)  # the line follows as it was
    assert {why for why, _ in proposal.rejected} == {"a copy of the original", "known already"}
    more = says(field("A text of quality?"), field("The quality is 4."), field("Of quality, say A or B."))
    proposal = LMParaphraser(more)(C, given, 2, known=(), seed=0)
    assert proposal.instructions == ("A text of quality?\nAnswer with {answers}.",)
    assert {"an answer, not a question", "without {answers}, the place of the answers"} <= {*dict(proposal.rejected)}
    assert fault("On quality, {answers}?", C, (), given) is None
    assert fault("On quality, choose.", C, (), "Mind the quality.") is None  # a line that names the answers follows


def test_a_grammar_leaves_the_line_of_the_answers_as_it_is():
    grammar, line = GrammarParaphraser(FOUR), "\nSay {answers}."
    plain = grammar(C, "a0 b1 c2 quality.", 9, known=(), seed=3).instructions
    ended = grammar(C, "a0 b1 c2 quality." + line, 9, known=(), seed=3).instructions
    assert ended == tuple(text + line for text in plain)
    inside = grammar(C, "Of quality, {answers}?", 9, known=(), seed=3)  # the judge's own line follows the phrases
    assert (len(inside.instructions), inside.rejected) == (9, ())


def test_a_hand_written_instruction_begins_the_search_and_is_reworded():
    lm = says(field("Say it better on quality: lean=0.5"))
    judge = PairwiseJudge(C, instruction="Mind the quality: lean=-2")
    compiled = search(judge=judge, proposer=LMParaphraser(lm), population=1, epochs=2)
    assert compiled.report.tried[0].instruction == "Mind the quality: lean=-2"
    assert compiled.report.chosen == "Say it better on quality: lean=0.5"
    rewordings_of = [request.messages[0].text.split("## ]]\n")[1].split("\n")[0] for request in lm.asked]
    assert rewordings_of == ["Mind the quality: lean=-2"] + ["Say it better on quality: lean=0.5"] * 4


@pytest.mark.slow
def test_a_valset_reports_and_takes_no_part_in_the_search():
    lm = Wording()
    held_out = all_pairs(20)[60:]
    judge, alone = search(lm, valset=held_out, epochs=2), search(epochs=2)
    assert judge.report.tried == alone.report.tried
    assert set(judge.report.comparison) == {"position", "verbosity"}
    fair = judge.report.comparison["position"]["fairness"]
    assert fair.after.value > fair.before.value
    assert fair.p_value < 0.05
    assert judge.report.cost.judgments == judge.report.judgments + 4 * len(held_out) == len(lm.asked)


def test_a_pair_that_is_too_long_is_left_out_of_the_search():
    pairs = all_pairs(4)
    expected = search(pairs=pairs, epochs=2)
    short = Wording(refuses=lambda q: len(q.prompt[-1]["content"]) > 500)
    found = search(short, pairs=[*pairs, pair(0, 1, source="s" * 600)], epochs=2)
    assert found.predict.signature.instructions == expected.predict.signature.instructions
    assert found.report.history == expected.report.history


class First(objectives.Objective):
    """Mean probability of the first position; keeps which inputs it was computed from."""

    name = "first"

    def __init__(self):
        self.inputs = []

    def __call__(self, judged):
        self.inputs.append(sorted(judged.inputs))
        return float(judged.answers[:, 0, 0].mean())


def first_rule(firsts, inputs):
    """A rule on held-back pairs, and the judge that gives these probabilities to the first position."""
    answers = np.stack([firsts, 1 - np.array(firsts)], axis=1)[:, None]
    judged = Judged(tuple(map(str, range(len(inputs)))), "quality", answers, inputs=inputs)
    rule = objectives.objective_rule(first := First(), seed=0)
    rule.objective = first
    return rule, judged


def test_the_interval_of_an_objective_draws_as_many_inputs_as_there_are():
    # of 6 inputs, 1 has a 1: the mean of 6 draws is X / 6, X binomial with P(X <= 2) = .938 and P(X <= 3) = .991
    rule, judged = first_rule([1.0, 0.0, 0.0, 0.0, 0.0, 0.0], list("abcdef"))
    found = rule.estimates(judged)["first"]
    assert (found.value, found.low, found.high, found.n) == (pytest.approx(1 / 6), 0.0, pytest.approx(0.5), 6)
    assert {len(inputs) for inputs in rule.objective.inputs} == {6}
    rule, judged = first_rule([1.0, 0.0] * 6, list("aabbccddeeff"))
    rule.estimates(judged)
    drawn = [(inputs.count(one), len(inputs)) for inputs in map("".join, rule.objective.inputs) for one in "abcdef"]
    assert {count % 2 for count, _ in drawn} == {0}  # whole inputs
    assert {size for _, size in drawn} == {12}
    few, judged = first_rule([1.0, 0.0], list("ab"))
    assert np.isnan(few.estimates(judged)["first"].low)  # two inputs do not tell how much others differ


@pytest.mark.slow
def test_the_p_of_an_objective_counts_the_data_and_ties(monkeypatch):
    higher, given = ([1.0, 0.9, 0.8], [0.3, 0.2, 0.1])
    rule, candidate = first_rule(higher, list("abc"))
    _, other = first_rule(given, list("abc"))
    assert rule.p_values([candidate], other) == pytest.approx([1 / 8], abs=0.02)  # no swap, of 2^3
    assert rule.p_values([other], candidate) == [1.0]
    _, together = first_rule(higher, list("aab"))
    grouped, start = first_rule(given, list("aab"))
    assert grouped.p_values([together], start) == pytest.approx([1 / 4], abs=0.03)
    assert rule.p_values([other, other], other) == [1.0, 1.0]  # ties
    many = [f"s{k}" for k in range(60)]
    of_many, better = first_rule([0.9] * 60, many)
    start = first_rule([0.2] * 60, many)[1]
    assert of_many.p_values([better], start) == [1 / 2_001]  # no draw swaps none of 60
    assert of_many.p_values([better, better], start) == [2 / 2_001] * 2  # a choice between two is corrected for
    monkeypatch.setattr("evalbias.optimizers.objectives.SWAPS", 1)
    assert rule.p_values([other], other) == [(1 + 1) / (1 + 1)]


class Believer(Wording):  # gives an output with a reference as many nats more as its instruction says
    def choice_logprobs(self, prompts, choices):
        answers = super().choice_logprobs(prompts, choices)
        rows = answers.logprobs.copy()
        for row, prompt in zip(rows, prompts, strict=True):
            text = prompt[0]["content"] + prompt[-1]["content"]
            lines = [line for line in prompt[-1]["content"].splitlines() if line.startswith("Output ")]
            for k, line in enumerate(lines):
                row[k] += float(re.search(r"trust=([\d.]+)", text)[1]) * ("GPT-4" in line)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        return type(answers)(answers.choices, rows)


def test_a_search_finds_the_wording_that_believes_no_label():
    given = [pair(a, b, source=str(d)) for d in range(30) for a, b in [(d % 5, (d + 2) % 5)]]
    given, probe = [e.copy(id=str(k)) for k, e in enumerate(given)], ProbeObjective("label")
    assert len(probe.searched(given)) == 60
    grammar = [("On quality, trust=2.0", *(f"On quality, trust={x / 4}" for x in range(8))), ("lean=0.0",)]
    judge = PairwiseJudge(C, instruction="On quality, trust=2.0 lean=0.0")
    zepo = ZEPO(GrammarParaphraser(grammar), objective=probe, population=5, epochs=3, seed=1)
    found = zepo.compile(judge, trainset=given, lm=Believer())
    assert "trust=0.0" in found.predict.signature.instructions
    assert found.report.objective == "probe"
    assert any(one.chosen and one.name != "given" for one in found.report.candidates)  # better on held-back inputs


def test_an_edit_whose_placebo_has_no_score_is_left_out_of_a_probe():
    ids = tuple(f"{item}|{part}" for item in "ab" for part in ("original|1", "label|edit", "label|placebo"))
    whole = Judged(ids, "quality", np.array([1.0, 2.0, 1.0, 4.0, 5.0, 4.0]))  # edits bring 1, and the deviation is 1.5
    assert ProbeObjective("label")(whole) == pytest.approx(-1 / 1.5)
    partly = Judged(ids, "quality", np.array([1.0, 2.0, 1.0, 4.0, 5.0, np.nan]))
    assert ProbeObjective("label")(partly) == pytest.approx(-1 / 1.5)
