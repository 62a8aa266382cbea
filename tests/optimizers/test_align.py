"""Align on a scripted judge whose errors depend on the words of its prompt."""

import json
import re
import zlib
from dataclasses import replace
from types import SimpleNamespace

import dspy
import numpy as np
import pytest
from texts import writer

import evalbias
from evalbias.evaluation.bias import Quote
from evalbias.evaluation.judged import HUMAN_SCORES, LEVEL_SHARES, LIKELIHOODS, RATINGS
from evalbias.lm.cache import CachedLM
from evalbias.lm.types import ChoiceLogprobs, Unanswered
from evalbias.optimizers import Align, align, offers, race
from evalbias.optimizers.align import ENOUGH
from evalbias.optimizers.base import rounds
from evalbias.optimizers.offers import COMBINATION, DEMOS, LIBRARY, LINE, READING, REASONING, quotes, spread, taught
from evalbias.optimizers.race import combination, reading
from evalbias.optimizers.rules import ACCURACY, KAPPA, PEARSON, agreement_of, agreement_rule, mean_error
from evalbias.programs.edits import edits, with_lines
from evalbias.programs.judges import as_judged
from tests.fakes import Fake
from tests.models_of_text import Scripted
from tests.planted import by_hand, compared, with_effect

CRITERION = evalbias.Criterion("merit", "is it any good?")
EDIT = "point by point"  # words of one edit of the library


class Prompted(Fake):
    """Scores follow the quality in the text; ``noise`` of the prompt is the error's standard deviation.

    Most of the error is the item's own, under any prompt, as it is of real judges.
    """

    model = "prompted"

    def __init__(self, noise, *, lenient=0.0, **options):
        super().__init__(likelihoods=False, **options)
        self.noise, self.lenient, self.prompts = noise, lenient, []

    def choice_logprobs(self, prompts, choices):
        rows = []
        for prompt in prompts:
            text = "\n".join(message["content"] for message in prompt)
            self.prompts.append(text)
            quality = [float(one) for one in re.findall(r"worth (-?\d+\.\d+)", text)]
            errors = [np.random.default_rng(zlib.crc32(one.encode())).normal() for one in (str(quality[-2:]), text)]
            error = self.noise(text) * np.dot([0.84, 0.55], errors)
            if choices[0] == "A":
                lead = quality[-2] - quality[-1] + error + 1.5 * self.lenient  # toward the first place
                values = np.array([lead, -lead])
            else:
                center = 3 + 0.8 * (quality[-1] + error) + self.lenient
                values = -((np.arange(1, len(choices) + 1) - center) ** 2)
            rows.append(values - np.logaddexp.reduce(values))
        return ChoiceLogprobs(tuple(choices), np.array(rows))


def labeled(n, *, seed=0, raters=1):
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    ratings = np.clip(np.round(3 + quality[:, None] + 0.5 * rng.normal(size=(n, raters))), 1, 5)
    known = [{"id": f"{i}", "source": f"s{i}", "output": f"text {i} worth {q:.4f}"} for i, q in enumerate(quality)]
    merits = ratings.mean(axis=1)
    return [dspy.Example(**one, reason="it is thin", scores={"merit": merits[i]}) for i, one in enumerate(known)]


def couples(n, *, seed=0):
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(n, 2))
    texts = [[f"one worth {a:.4f}", f"other worth {b:.4f}"] for a, b in quality]
    better = ["A" if a + 0.3 * rng.normal() > b else "B" for a, b in quality]
    return [dspy.Example(id=f"{i}", source=f"s{i}", candidates=texts[i], preference=better[i]) for i in range(n)]


def aligned(lm, items, judge=None, part=None, **options):
    settings, judge = {"k": (2, 4), "learning_curve": False, **options}, judge or evalbias.PointwiseJudge(CRITERION)
    return Align(**settings).compile(judge, trainset=items, lm=lm, part=part)


def better_by_an_edit(text):
    return 0.7 if EDIT in text else 1.4


class Broken:  # a teleprompter that fails, which ends one candidate and not the search
    def compile(self, student, trainset):
        raise RuntimeError("no")


@pytest.mark.slow
def test_an_edit_that_helps_is_found_on_ninety_labels_and_a_judge_without_a_better_one_is_kept():
    judge = evalbias.PointwiseJudge(CRITERION)
    found = aligned(Prompted(better_by_an_edit), labeled(90), judge)
    report = found.report
    assert report.kind == LIBRARY
    assert EDIT in found.predict.signature.instructions.casefold()
    assert EDIT not in judge.predict.signature.instructions  # the student is left as it is
    before, after = report.agreement["before"], report.agreement["after"]
    assert after.value > before.value + 0.08
    assert before.low < before.value < before.high
    assert (report.measure, before.n) == ("pearson", 90)
    assert report.prompt_difference.startswith("+Compare the output with the source")
    (choice,) = report.sections()  # of the page
    assert Quote(report.prompt_difference) in choice.blocks
    assert "cross-fitted" in report.tested_on
    assert {"agreement", "verbosity"} <= report.biases.keys()
    kept = aligned(Prompted(lambda text: 1.0), labeled(90, seed=4), judge, optimizers=[Broken()])
    assert (kept.report.chosen, kept.report.left_out["Broken"]) == ("the given judge", "RuntimeError: no")
    assert kept.predict.signature.instructions == judge.predict.signature.instructions
    assert kept.report.agreement["before"] == kept.report.agreement["after"]


@pytest.mark.slow
def test_a_judge_that_all_labels_make_worse_than_the_halves_made_it_is_not_chosen(monkeypatch):
    remade = align.remade

    def spoiled(*search):
        offer = remade(*search)
        return (
            offer if offer.kind in (READING, LINE) else replace(offer, program=with_lines(offer.program, ["Spoiled."]))
        )

    monkeypatch.setattr(align, "remade", spoiled)
    report = aligned(Prompted(lambda text: 3.0 if "Spoiled" in text else better_by_an_edit(text)), labeled(90)).report
    assert report.chosen == "the given judge"
    assert "is worse than the given judge (Pearson" in report.decision


@pytest.mark.slow
def test_the_numbers_of_few_labels_are_of_judges_that_did_not_see_the_item():
    lm = Prompted(lambda text: 1.0)
    shown = Align(k=(4,), budget=None, learning_curve=False)
    found = shown.compile(evalbias.PointwiseJudge(CRITERION), trainset=labeled(60), lm=lm)
    texts = [p.rpartition("worth")[0].rpartition("text ")[2].strip() for p in lm.prompts]
    for prompt, item in zip(lm.prompts, texts, strict=True):
        assert prompt.count(f"text {item} ") == 1  # no demonstration is the item that is judged
    assert found.report.cost.judgments == len(set(lm.prompts))


@pytest.mark.slow
def test_many_labels_hold_half_of_the_inputs_back():
    report = aligned(Prompted(better_by_an_edit), labeled(ENOUGH), learning_curve=True).report
    assert report.tested_on == "held-back items"
    assert report.agreement["after"].n == ENOUGH // 2
    assert [labels for labels, _ in report.learning_curve] == [ENOUGH // 8, ENOUGH // 4, ENOUGH // 2]
    assert report.learning_curve[-1][1] == report.agreement["after"]
    assert report.sections()[0].blocks[-1] == report.by_labels  # of the page
    assert f"{ENOUGH // 8}: " in report.by_labels


@pytest.mark.slow
def test_scores_that_are_all_too_high_are_read_along_a_line():
    lm = Prompted(lambda text: 0.4, lenient=1.2)
    found = aligned(lm, labeled(100, seed=3))
    low, high = found.correction.reading
    assert (low[0], high[0]) == (1.0, 5.0)
    assert found.report.kind == LINE
    assert sum(one.name.startswith("the given judge, with") for one in found.report.candidates) == 1
    assert "scores nearer to people's" in found.report.decision
    assert found.report.candidates[0].estimates["error"].value > 0.8
    chosen = next(one for one in found.report.candidates if one.chosen)
    assert chosen.estimates["error"].value < 0.6
    (plain,) = found.batch(labeled(1, seed=9), lm=lm)
    assert plain.score == pytest.approx(np.interp(plain.raw_score, *np.transpose(found.correction.reading)))


@pytest.mark.slow
def test_a_model_that_holds_a_level_likely_for_no_reason_is_read_by_weights_of_the_levels():
    class Holding(Prompted):
        def choice_logprobs(self, prompts, choices):
            rows = 0.3 * super().choice_logprobs(prompts, choices).logprobs
            texts = ["\n".join(message["content"] for message in prompt).encode() for prompt in prompts]
            rows[:, 1] += [5 * np.random.default_rng(zlib.crc32(text)).normal() for text in texts]
            return ChoiceLogprobs(tuple(choices), rows - np.logaddexp.reduce(rows, axis=1, keepdims=True))

    found = aligned(Holding(lambda text: 0.4), labeled(120), k=())
    assert found.report.chosen == "the given judge, with weights of the levels"
    assert len(found.correction.slopes) == 5
    assert found.report.agreement["after"].value > found.report.agreement["before"].value + 0.2  # .41 -> .70
    lenient = aligned(Holding(lambda text: 0.4, lenient=1.2), labeled(120), k=()).report
    assert "the given judge, with a line through the scores" in [one.name for one in lenient.candidates]


@pytest.mark.slow
@pytest.mark.parametrize(("judge", "make"), [(evalbias.PointwiseJudge, labeled), (evalbias.PairwiseJudge, couples)])
def test_a_judge_that_agrees_better_without_the_cue_loses_it_alone_and_in_combinations(judge, make):
    items, given = make(100), judge(CRITERION)
    better_without_a_cue = Prompted(lambda text: 1.4 if text.rstrip().casefold().endswith("merit:") else 0.7)
    found = aligned(better_without_a_cue, items, given, k=(2,))
    assert found.report.kind in (LIBRARY, COMBINATION)
    assert (given.cue, found.cue) == (True, False)
    assert re.search(r"^-.*[Mm]erit:$", found.report.prompt_difference, re.MULTILINE)
    cueless = offers.worded(given)[-1]
    demonstrating = offers.Offer(DEMOS, "two", with_lines(given, ["Seen."]))
    for used in ([cueless, demonstrating], [demonstrating, cueless]):
        assert not combination(given, used).program.cue
    assert combination(given, [demonstrating]).program.cue
    assert "no cue" not in [offer.name for offer in offers.worded(found)]


@pytest.mark.slow
def test_reasons_before_the_answer_are_tried_on_request_and_counted_as_texts():
    class Thinking(Prompted):
        def write(self, question):
            return "Let me see."

    lm = Thinking(lambda text: 0.5 if "Let me see." in text else 1.4)
    assert aligned(lm, labeled(60), k=()).reasoning is None
    found = aligned(lm, labeled(60), k=(), reasoning=True)
    assert found.reasoning is not None
    assert (found.report.kind, found.report.cost.calls) == (REASONING, 60 * found.reasoning.samples)


@pytest.mark.slow
def test_a_criterion_of_a_rubric_is_aligned_by_its_own_ratings():
    rubric = evalbias.Rubric([CRITERION, evalbias.Criterion("charm", "is it charming?")])
    found = aligned(Prompted(better_by_an_edit), labeled(60), rubric, part="judges[0]")
    assert EDIT in found.judges[0].predict.signature.instructions.casefold()
    assert found.judges[1].dump_state() == rubric.judges[1].dump_state()


@pytest.mark.slow
def test_pairs_are_judged_in_both_orders_where_the_first_place_wins_too_often():
    judge, lm = evalbias.PairwiseJudge(CRITERION), Prompted(lambda text: 0.3, lenient=1.0)
    items = [e.copy(preference="tie") if i % 9 == 0 else e for i, e in enumerate(couples(120))]  # which it cannot say
    report = aligned(lm, items, judge, optimizers=[dspy.LabeledFewShot(k=60)]).report
    assert report.measure == "accuracy"
    assert not report.left_out
    assert report.agreement["after"].value > report.agreement["before"].value + 0.05
    assert 0.5 < report.agreement["before"].value < report.agreement["after"].value <= 1


@pytest.mark.slow
def test_a_stopped_search_asks_nothing_twice_and_reports_the_cost_of_the_whole_search(tmp_path):
    class Stopping(Prompted):
        left = 800

        def choice_logprobs(self, prompts, choices):
            self.left -= len(prompts)
            if self.left < 0:
                raise KeyboardInterrupt
            return super().choice_logprobs(prompts, choices)

    items, asked = labeled(60), list[str]()
    whole = Prompted(better_by_an_edit)
    expected = aligned(whole, items, log_dir=tmp_path / "whole")
    for _ in range(50):
        lm = Stopping(better_by_an_edit)
        try:
            found = aligned(lm, items, log_dir=tmp_path / "stopped")
            break
        except KeyboardInterrupt:
            asked += lm.prompts
    asked += lm.prompts
    assert len(asked) == len(set(asked)) == len(set(whole.prompts))
    assert found.report.agreement == expected.report.agreement
    assert found.dump_state() == expected.dump_state()
    assert found.report.cost == expected.report.cost
    assert [tried.cost for tried in found.report.candidates] == [tried.cost for tried in expected.report.candidates]


class Reflecting(Scripted):
    """Writes the same guidelines, of which the first quotes an item, or the same instruction for GEPA."""

    def __init__(self):
        super().__init__()
        self.engine.write, self.model = self.written, "reflecting"

    @property
    def asked(self):
        return [str(request) for request in self.engine.asked]

    def written(self, request):
        if "new_instruction" in str(request):
            own = evalbias.PointwiseJudge(CRITERION).predict.signature.instructions
            return json.dumps({"new_instruction": own.replace("Judge", f"{EDIT.capitalize()}, judge")})
        lines = ["It says `text 3 worth` twice.", "Give much for depth."]
        return f"[[ ## guidelines ## ]]\n{json.dumps(lines)}\n[[ ## completed ## ]]"


@pytest.mark.slow
def test_guidelines_and_instructions_come_from_peoples_reasons_and_quote_no_item():
    reflecting = Reflecting()
    helped = Prompted(lambda text: 0.5 if f"{EDIT.capitalize()}, judge" in text else 1.4)
    found = aligned(helped, labeled(90), reflection_lm=reflecting, budget=400)
    asked = next(one for one in reflecting.asked if "guidelines" in one)
    assert "They say: it is thin" in asked
    assert "where people scored" in asked
    assert any("too high. They say: it is thin" in one for one in reflecting.asked if "new_instruction" in one)
    assert any("guidelines" in one.name for one in found.report.candidates)
    assert found.report.kind == "instruction by GEPA"
    assert found.predict.signature.instructions.startswith(f"{EDIT.capitalize()}, judge")
    assert all("text 3 worth" not in prompt.splitlines() for prompt in helped.prompts)
    assert found.report.cost.calls == len(reflecting.asked)
    assert found.report.cost.tokens == 10 * len(reflecting.asked)  # the judge reports none
    assert found.report.settings["reflection_lm"]["model"] == "reflecting"


@pytest.mark.slow
def test_a_model_that_cannot_reflect_costs_no_other_offer_and_optimizers_of_one_class_are_all_tried():
    def too_long(request):
        raise dspy.lm15.ContextLengthError("8,000 tokens at most")

    reflecting = Reflecting()
    reflecting.engine.write = too_long
    few = [dspy.LabeledFewShot(k=k) for k in (2, 3)]
    found = aligned(Prompted(better_by_an_edit), labeled(32), reflection_lm=reflecting, budget=20, optimizers=few)
    assert found.report.left_out["guidelines"] == "8,000 tokens at most"
    assert "Not tried: guidelines (8,000 tokens at most)." in found.report.remarks
    names = " ".join(candidate.name for candidate in found.report.candidates)
    assert all(f"what LabeledFewShot{number} compiled" in names for number in ("", " 2"))


def test_items_without_an_answer_take_no_part_and_are_counted():
    lm = Prompted(better_by_an_edit, refuses=lambda question: question.prompt[-1]["content"].count("text 3") > 0)
    report = aligned(lm, labeled(32), learning_curve=False).report
    assert report.unanswered == 3  # 3, 30 and 31
    assert "3 items took no part: the judge gave no answer that can be read." in report.remarks


def test_requests_whose_answers_cannot_be_read_are_counted_and_told_of():
    reflecting = Reflecting()
    reflecting.engine.write = lambda _: "I would rather not."
    found = aligned(Prompted(better_by_an_edit), labeled(32), reflection_lm=reflecting, budget=20)
    assert "Not tried: guidelines (the model that reflects answered in another form)." in found.report.remarks
    assert found.report.cost.calls == len(reflecting.asked)


def test_a_reflection_model_that_cannot_be_asked_ends_the_search():
    def denied(_):
        raise dspy.lm15.AuthError("wrong key", status=401)

    reflecting = Reflecting()
    reflecting.engine.write = denied
    with pytest.raises(Unanswered, match=r"reflecting did not answer: wrong key\."):
        aligned(Prompted(better_by_an_edit), labeled(32), reflection_lm=reflecting, budget=20)
    assert len(reflecting.asked) == 1


@pytest.mark.parametrize("sampling", ["judge", pytest.param("model", marks=pytest.mark.slow)])
def test_judgments_by_samples_are_counted_as_judgments_and_their_samples_as_calls(sampling):
    lm, engine = writer(lambda text, _: {f"{3 + round(float(re.findall('worth (.*)', text)[-1]) / 2)}": 1.0})
    judge, k = evalbias.PointwiseJudge(CRITERION), evalbias.Sampling(samples=3)
    if sampling == "judge":
        judge.scoring, judge.sampling = "sampled", k
    else:
        lm = CachedLM(lm, sampling=k)  # as the commands ask
    cost = aligned(lm, labeled(32), judge, k=(2,), budget=20).report.cost
    assert cost.calls == 3 * cost.judgments == len(engine.requests)


class Constant(Prompted):
    """Gives every item a 4, but with an edit in its prompt scores by the quality, or by chance."""

    def __init__(self, useful, **options):
        super().__init__(lambda text: 0.5, **options)
        self.useful = useful

    def choice_logprobs(self, prompts, choices):
        scored, fours = super().choice_logprobs(prompts, choices).logprobs, [-np.inf, -np.inf, -np.inf, 0.0, -np.inf]
        if not self.useful:
            scored = np.random.default_rng(zlib.crc32(self.prompts[-1].encode())).permutation(scored)
        edited = [EDIT in text for text in self.prompts[-len(prompts) :]]
        return ChoiceLogprobs(tuple(choices), np.where(np.array(edited)[:, None], scored, fours))


@pytest.mark.slow
def test_a_judge_whose_answers_never_differ_is_replaced_by_one_that_is_shown_to_agree_better_than_chance():
    for items in (90, ENOUGH):  # cross-fitted, and half held back
        report = aligned(Constant(True), labeled(items), learning_curve=True).report
        assert report.kind in (LIBRARY, COMBINATION)
        assert "for agreement with people above chance (your judge answers all items alike" in report.decision
        assert "Pearson undefined -> +0." in report.decision
        assert np.isnan(report.agreement["before"].value)  # undefined, not 0
        assert report.agreement["after"].low > 0
    kept = aligned(Constant(False), labeled(90)).report
    assert kept.chosen == "the given judge"
    assert re.search("is not significantly better|is not shown to agree", kept.decision)


def test_a_judge_without_answers_is_refused_before_anything_is_tried():
    lm = Prompted(better_by_an_edit)
    lm.choice_logprobs = lambda prompts, choices: ChoiceLogprobs(tuple(choices), np.full((len(prompts), 5), np.nan))
    with pytest.raises(ValueError, match=r"on 16 items is undefined: it left 16 without an answer, .* `sample_tokens`"):
        aligned(lm, labeled(32))
    assert len(lm.questions) == 32


@pytest.mark.slow
def test_a_model_that_reflects_on_itself_is_warned_of_and_sees_the_judges_own_labels(caplog):
    reflecting = Reflecting()
    reflecting.model = Prompted.model
    judge = evalbias.PointwiseJudge(CRITERION, inputs={"source": "Task", "output": "Code"})
    aligned(Prompted(better_by_an_edit), labeled(16), judge, reflection_lm=reflecting, budget=20)
    assert "The reflection model is the judge's own, prompted" in caplog.text
    asked = next(one for one in reflecting.asked if "guidelines" in one)
    assert "Task: s" in asked
    assert "Code: text" in asked


def test_what_cannot_be_aligned_is_refused_before_anything_is_asked():
    lm, judge = Prompted(lambda text: 1.0), evalbias.PointwiseJudge(CRITERION)
    unlabeled, alike = zip(*[(e.without("scores"), e.copy(scores={"merit": 3})) for e in labeled(40)], strict=True)
    for items, words in ((unlabeled, "'merit'"), (labeled(10), "10 inputs"), (alike, "the same of all items")):
        with pytest.raises(ValueError, match=words):
            Align().compile(judge, trainset=items, lm=lm)
    with pytest.raises(ValueError, match=r"`reason` 'why': no item has this field\. They have 'id', 'output'"):
        aligned(lm, labeled(40), reason="why")
    for wrong in ({"k": (0,)}, {"budget": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Align(**wrong)
    assert not lm.prompts


def test_agreement_is_measured_as_the_answers_are():
    rng = np.random.default_rng(0)
    pairs = compared(rng, 60)
    assert agreement_of(pairs) is ACCURACY
    same = np.mean([(pairs.first_wins[:, 0] > 0.5) == (pairs.preferred == 1)])
    assert 0.5 < ACCURACY.value(pairs) <= 1
    assert abs(ACCURACY.value(pairs) - same) < 0.2  # over both orders
    verdicts = by_hand([0.9, 0.4, 0.8, 0.1], scale=(0, 1), **{HUMAN_SCORES: [1, 0, 0, 0]})
    assert agreement_of(verdicts) is KAPPA
    assert KAPPA.value(verdicts) == pytest.approx(0.5)  # p_o = .75, p_e = .5
    scores = with_effect(0.0)
    assert agreement_of(scores) is PEARSON
    assert PEARSON.value(scores) == pytest.approx(np.corrcoef(scores.answers, scores.covariate(HUMAN_SCORES))[0, 1])


def test_a_bias_that_grows_is_refused_and_one_that_is_undefined_is_not():
    dull, sharp, biased = with_effect(0.0, noise=3.0), with_effect(0.0, noise=0.1), with_effect(0.8, noise=0.1)
    rule = agreement_rule(PEARSON, biases=("likelihood",))
    assert rule.loss(sharp, dull) == ""
    assert rule.loss(biased, dull).startswith("is more biased")
    once = [with_effect(x, noise=n, ratings=1) for x, n in ((0.0, 3.0), (0.8, 0.1), (0.0, 0.1))]
    assert rule.loss(once[2], once[0]) == ""
    with pytest.raises(ValueError, match="'length' is not compared: choose position, likelihood, verbosity"):
        agreement_rule(PEARSON, biases=("length",)).loss(biased, dull)


def test_a_judge_with_less_noise_and_the_same_bias_is_not_called_more_biased():
    rule, seen = agreement_rule(PEARSON, biases=("likelihood",)), []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        quality, other, own = rng.normal(size=(3, 120))
        likelihoods, ratings = 0.4 * quality + other, quality[:, None] + 0.7 * rng.normal(size=(120, 3))
        known = {LIKELIHOODS: likelihoods, RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}
        planted = ((0.3, 1.5), (0.3, 0.9), (0.7, 0.9))  # effect and noise
        noisy, steady, worse = (by_hand(quality + b * likelihoods + n * own, **known) for b, n in planted)
        seen.append([bool(rule.loss(judged, noisy)) for judged in (steady, worse)])
    same, larger = np.mean(seen, axis=0)
    assert same <= 0.1  # .43 in standard deviations of the score alone
    assert larger > 0.7


def test_a_race_begins_with_few_items_if_the_budget_is_small_and_demonstrations_are_spread_over_the_scores():
    assert rounds(200, race.FEWEST, 20, budget=600) == [25, 50, 100, 200]
    assert rounds(200, race.FEWEST, 2, budget=600) == rounds(200, race.FEWEST, 50, budget=np.inf) == [200]
    human = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], 10)
    picked = spread(human, np.random.default_rng(0).permutation(50), 5)
    assert sorted(human[picked]) == [1, 2, 3, 4, 5]


def test_edits_are_of_the_judges_language_and_come_before_the_answers():
    for language, ending in (("en", "(best)."), ("ja", "整数で答えてください。")):
        judge = evalbias.PointwiseJudge(CRITERION, language=language)
        lines = edits(judge)
        assert len(lines) == 9
        assert [f"{score}: " in lines["levels"] for score in range(7)] == [False, *[True] * 5, False]
        edited = with_lines(judge, [lines["ends"]])
        assert edited.predict.signature.instructions.endswith(ending)
        assert lines["ends"] in edited.predict.signature.instructions.splitlines()
        rubric = evalbias.PointwiseJudge(replace(CRITERION, definition="Rate {it}.\n- 5: good"), language=language)
        assert CRITERION.definition in lines["checklist"]
        assert "5: good" not in "\n".join(edits(rubric).values())  # whose prompt says it already
    assert all("{" not in line for line in edits(evalbias.PairwiseJudge(CRITERION)).values())
    for own in (replace(CRITERION, levels=("bad", "poor", "fair", "good", "best")), replace(CRITERION, scale=(0, 10))):
        assert "levels" not in edits(evalbias.PointwiseJudge(own))


@pytest.mark.parametrize("names", [("source", "output"), ("task", "code")])
def test_words_of_an_item_are_a_quotation_and_items_that_are_shown_are_known(names):
    judge = evalbias.PointwiseJudge(CRITERION, inputs=dict(zip(names, ("Task", "Code"), strict=True)), judged=names[1])
    texts = [("call it", "my_list.insert(12, 'item') puts it at the right place"), ("add", "1 + 1"), ("divide", "1/2")]
    items = [dspy.Example(scores={"merit": 3}, **dict(zip(names, pair, strict=True))) for pair in texts]
    items = as_judged(judge, items)
    assert quotes("Is `my_list.insert` right?", items, judge)
    assert quotes("Does it puts it at the right place?", items, judge)
    assert not quotes("Does it put things where they belong?", items, judge)
    problem = SimpleNamespace(student=judge, fit=items, lm=Prompted(lambda text: 1.0), left_out={})
    (offer,) = taught(problem, {"LabeledFewShot": dspy.LabeledFewShot(k=2)})
    assert len(offer.shows) == 2


def test_a_line_is_fitted_only_where_it_brings_scores_nearer():
    rng = np.random.default_rng(0)
    people = np.clip(rng.normal(3, 1, size=120), 1, 5)
    lenient = by_hand(np.clip(people + 1 + 0.3 * rng.normal(size=120), 1, 5), scale=(1, 5), **{HUMAN_SCORES: people})
    (low, a), (high, b) = reading(lenient, seed=0).reading
    slope, intercept = np.polyfit(lenient.answers, people, 1)
    assert (low, high) == (1.0, 5.0)
    assert (a, b) == pytest.approx((intercept + slope, intercept + 5 * slope))
    fair = by_hand(people + 0.3 * rng.normal(size=120), scale=(-9, 15), **{HUMAN_SCORES: people})
    assert reading(fair, seed=0) is None
    passed = (people > 3.6).astype(float)
    forecast = by_hand(1 / (1 + np.exp(-2 * (people - 2.5))), scale=(0, 1), **{HUMAN_SCORES: passed})
    (_, (cut, middle), _) = reading(forecast, seed=0).reading
    assert middle == 0.5
    assert 0.8 < cut < 0.95  # .9 is the forecast at 3.6


def test_levels_of_a_judge_that_follows_people_get_no_weights():
    weighted = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        people = np.clip(rng.normal(3, 1, size=120), 1, 5)
        logits = -((np.arange(1, 6) - people[:, None] - 0.6 * rng.normal(size=(120, 1))) ** 2) / 2
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        known = {HUMAN_SCORES: people, LEVEL_SHARES: shares}
        found = reading(by_hand(shares @ np.arange(1, 6), scale=(1, 5), **known), seed=seed)
        weighted += bool(found and found.slopes)
    assert weighted <= 2  # 1 to 2 % of 200


@pytest.mark.slow
def test_a_prompt_under_which_the_model_hardly_answers_is_no_candidate():
    class Unsure(Prompted):
        def choice_logprobs(self, prompts, choices):
            answered = super().choice_logprobs(prompts, choices)
            mass = [0.05 if better_by_an_edit(p) < 1 else 0.9 for p in self.prompts[-len(prompts) :]]
            return ChoiceLogprobs(answered.choices, answered.logprobs + np.log(mass)[:, None])

    found = aligned(Unsure(better_by_an_edit), labeled(90))
    assert EDIT not in found.predict.signature.instructions.casefold()
    assert not any(EDIT in one.name for one in found.report.candidates)


def test_the_mean_error_is_in_points_and_told_of_the_valset():
    people = np.linspace(0, 100, 60)
    far = by_hand(people + np.where(np.arange(60) % 2, 15.0, -25.0), scale=(0, 100), **{HUMAN_SCORES: people})
    error = mean_error(far).estimate(seed=0)
    assert error.value == pytest.approx(20)
    assert 18 < error.low < error.value < error.high < 22  # standard error 5 / sqrt(60)
