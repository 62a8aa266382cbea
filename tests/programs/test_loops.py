"""The refine loops: steps, draws, best of k and self-consistency."""

import contextlib
import itertools
import math
import re
import warnings
from collections import Counter

import dspy
import pytest
from models_of_text import Engine, Scripted, Seeded, drawn, refusing
from refusals import refusals

from evalbias import ExternalFeedbackRefine
from evalbias.data.loops import recorded_loop
from evalbias.evaluation import CachedScorer, run_loops
from evalbias.lm.contract import Sampling
from evalbias.lm.types import RequestRefused
from evalbias.measures import QuantileMap
from evalbias.programs import Criterion, PointwiseJudge
from evalbias.programs import feedback as parts
from evalbias.programs.feedback import Feedback, JudgeFeedback, MappedFeedback, MQMFeedback, vote
from evalbias.programs.loops import EMPTY, BestOfK, Improvement, RepeatedDrafts, SelfConsistencyRefine, SelfRefine
from evalbias.programs.tasks import TASKS, TEMPERATURE, constrained_generation, mathematics, translation
from evalbias.programs.writing import PlainPredict, module_inputs

WRITE, REWRITE = PlainPredict("source -> output"), PlainPredict("source, draft, feedback -> output")
ITEM = {"source": "un chien", "target_language": "English"}


class Score:  # the number that the output ends with; nothing else is readable
    name, low, high = "number", 0.0, 10.0

    def __init__(self):
        self.calls = []

    def __call__(self, example, output):
        self.calls.append((dict(example), output))
        try:
            return Feedback(float(output.split()[-1]), f"it is {output.split()[-1]}")
        except ValueError:
            return Feedback(math.nan, "?", status="unreadable")


class Length:
    name, low, high = "length", 0.0, 1000.0

    def __call__(self, example, output):
        return Feedback(float(len(output)), "too short")


def loop(*texts, source=None, **options):
    program = SelfRefine(WRITE.deepcopy(), source or Score(), REWRITE.deepcopy(), **options)
    lm = Scripted(*texts)
    program.set_lm(lm)
    return program, lm


def test_only_strict_improvement_is_accepted_and_every_step_is_kept():
    source = Score()
    program, lm = loop("a 3", "b 2", "c 3", "d 5", "b 2", source=source, max_iterations=4)
    result = program(source="s")
    assert (result.output, result.score, result.iterations, result.stopped) == ("d 5", 5, 4, "iterations")
    assert [output for _, output in source.calls] == ["a 3", "b 2", "c 3", "d 5"]  # each different one is judged once
    steps = [(0, "a 3", True), (1, "b 2", False), (2, "c 3", False), (3, "d 5", True), (4, "b 2", False)]
    assert [(s.iteration, s.output, s.accepted) for s in result.steps] == steps
    assert {(s.tokens, s.calls) for s in result.steps} == {(10, 1)}
    assert "Draft: a 3\nFeedback: it is 3" in lm.asked[1]
    assert "Draft: a 3" in lm.asked[3]  # what was not accepted is not refined further
    assert "Draft: d 5\nFeedback: it is 5" in lm.asked[4]


def test_undefined_feedback_is_never_accepted_but_an_undefined_first_score_is_replaced():
    program, _ = loop("a 3", "b", " ", "c 4", max_iterations=3)
    result = program(source="s")
    assert [s.accepted for s in result.steps] == [True, False, False, True]
    assert [s.status for s in result.steps] == ["", "unreadable", "empty output", ""]
    program, _ = loop("a", "b", "c 1", max_iterations=2)
    assert program(source="s").output == "c 1"
    program, _ = loop("a", "b", max_iterations=3)
    result = program(source="s")
    assert result.output == "a"
    assert math.isnan(result.score)


QUALITY, TWICE = Criterion("quality", "is it good?"), Sampling(samples=2)
ITSELF = QuantileMap.fit([-25, 0], [-25, 0], metric="chrf")

REFUSED_BY = [(lambda _: JudgeFeedback(PointwiseJudge(QUALITY, scoring="sampled", sampling=TWICE)), "3")]
REFUSED_BY += [(lambda _: MQMFeedback(), "'cat' is a minor style/awkward error")]
REFUSED_BY += [(lambda _: parts.ConceptsFeedback(), "dog")]


@pytest.mark.parametrize(("source", "text"), REFUSED_BY)
def test_feedback_on_an_output_that_the_model_refuses_is_undefined(source, text, caplog):
    judge = refusing(Scripted(text), "poison", dspy.lm15.InvalidRequestError("flagged", status=400))
    program, _ = loop(source=source(judge), max_iterations=3, perfect=None)
    program.set_lm(judge)
    program.generate.set_lm(Scripted("a cat"))
    program.refine.set_lm(Scripted("poison", "poison", "poison 2"))
    result = program(id="i7", source="s", reference="r", concepts=["dog"])
    assert result.output == "a cat"
    assert [step.accepted for step in result.steps] == [True, False, False, False]
    assert [math.isnan(step.score) for step in result.steps] == [False, True, True, True]
    assert all("refused by fake/scripted: flagged" in step.status for step in result.steps[1:])
    assert not result.steps[0].status
    told = [record.getMessage() for record in caplog.records if "is undefined" in record.getMessage()]
    assert len(told) == 2  # one for each different output, which greedy feedback is asked about once
    assert "an output of the item 'i7' is undefined. The prompt is refused" in told[0]
    asked = ["poison" in prompt for prompt in judge.asked]
    assert sum(asked) == (4 if isinstance(program.feedback, JudgeFeedback) else 2)  # a judge draws twice here


def test_settings_that_the_model_of_the_feedback_refuses_end_the_loop():
    lm = Scripted(dspy.lm15.InvalidRequestError("no such parameter", status=400))
    source = MQMFeedback()
    source.set_lm(lm)
    with pytest.raises(RequestRefused, match=r"no such parameter\. A harmless text with the same settings"):
        source({"source": "s"}, "o")
    assert ["Answer with one digit." in prompt for prompt in lm.asked] == [False, True]


def test_a_loop_stops_at_a_perfect_score():
    program, lm = loop("a 3", "b 10", "c 1", max_iterations=9)
    result = program(source="s")
    assert (result.stopped, result.iterations, len(lm.asked)) == ("perfect", 1, 2)
    for texts, options, iterations in ((["a 10", "b 1"], {"perfect": None}, 2), (["a 3"], {}, 0)):
        program, _ = loop(*texts, max_iterations=iterations, **options)
        assert program(source="s").iterations == iterations


def test_acceptance_is_a_parameter_and_a_reference_goes_to_the_feedback_alone():
    source = Score()
    program, lm = loop("a 3", "b 4", "c 6", source=source, max_iterations=2, accept=Improvement(2))
    result = program(source="s", reference="secret")
    assert [s.accepted for s in result.steps] == [True, False, True]
    assert all(example["reference"] == "secret" for example, _ in source.calls)
    assert not any("secret" in prompt for prompt in lm.asked)
    rule = Improvement(1.0)
    assert [rule(3, 4), rule(3, 4.5), rule(3, math.nan), rule(math.nan, 0)] == [False, True, False, True]
    with pytest.raises(TypeError, match=r"accept=.*give Improvement\(MARGIN\)"):
        program.accept = lambda before, after: after > before


@pytest.mark.parametrize(("texts", "tokens"), [(["a 3", "b 4"], 20), (["a 11"], 10)])
def test_the_users_tracker_receives_the_tokens_also_of_an_item_that_fails(texts, tokens):
    program, _ = loop(*texts, max_iterations=1)
    fails = pytest.raises(ValueError, match="'number' gave 11, outside its range 0 to 10")
    with dspy.track_usage() as tracker, fails if "a 11" in texts else contextlib.nullcontext():
        program(source="s")
    assert sum(u["prompt_tokens"] + u["completion_tokens"] for u in tracker.get_total_tokens().values()) == tokens


def test_best_of_k_keeps_the_best_and_never_an_undefined_one():
    program = BestOfK(WRITE, Score(), k=4)
    program.set_lm(Scripted("a 3", "b", "c 7", "d 5"))
    result = program(source="s")
    assert (result.output, result.score, len(result.steps)) == ("c 7", 7, 4)
    assert [step.accepted for step in result.steps] == [True, False, True, False]  # the best of every smaller k


class Cached(dspy.LM):
    """Draws 1, 2, 3, ... and is cached by DSPy like any other model."""

    def __init__(self, **kwargs):
        super().__init__("fake/cached", engine=Scripted(*[f"draw {k}" for k in range(1, 10)]).engine, **kwargs)


def test_samples_do_not_repeat_a_cached_answer(tmp_path):
    lm = Cached(temperature=1.0)
    program = BestOfK(WRITE, Score(), k=3)
    program.set_lm(lm)
    with dspy.context(cache=True):
        for _ in range(2):
            result = program(source=f"never asked before: {tmp_path}")
            assert [s.output for s in result.steps] == ["draw 1", "draw 2", "draw 3"]
    assert len(lm.engine.asked) == 3


def test_a_plain_predictor_and_a_loop_of_another_shape_are_not_loaded(tmp_path):
    program, _ = loop("a 3")
    program.set_lm(None)
    program.save(str(tmp_path / "program.json"))
    dspy.Predict("source -> output").save(str(tmp_path / "plain.json"))
    other = SelfRefine(PlainPredict("concepts -> output"), Score(), PlainPredict("concepts, draft, feedback -> output"))
    for file, match in (
        ("program", "The state is another predictor's: its fields are .*'source'"),
        ("plain", "The state is not of a refine loop like this one: it has no 'settings'"),
    ):
        with pytest.raises(ValueError, match=match):
            other.load(str(tmp_path / f"{file}.json"))
    assert other.perfect == "best"
    state = program.dump_state()
    state["settings"]["accept"] = None
    with pytest.raises(ValueError, match=r"its accept is None \(margin=None: give a number of at least 0\.\)"):
        program.load_state(state)


class Named(dspy.Module):
    def forward(self, question, hint):
        return dspy.Prediction(output=f"{question} {hint} 3")


def test_the_generators_own_parameters_are_its_inputs_and_the_trace_names_the_program_and_not_its_copies():
    program = SelfRefine(Named(), Score(), PlainPredict("question, draft, feedback -> output"), max_iterations=0)
    assert program(question="q", hint="h", reference="r").output == "q h 3"
    program, _ = loop("a 3", "b 5", "c 7", max_iterations=2)
    program.set_lm(Cached(temperature=1.0, cache=False))
    with dspy.context(trace=[]):
        program(source="s")
        named = {id(p) for p in program.predictors()}
        assert {id(predictor) for predictor, *_ in dspy.settings.trace} <= named
        assert len(dspy.settings.trace) == 3


# Refinements are new draws, requests that would be the same are made once, and best of k has k drafts.


def translator(request):
    return "'dog' is a major accuracy error" if "Errors:" in request.messages[-1].text else f"dog {drawn(request)}"


def test_refinements_are_other_draws_reproducible_by_seed_and_others_under_another():
    outputs = []
    for seed in (0, 0, 1):
        with dspy.context(lm=Seeded(translator)):
            result = translation(max_iterations=10, seed=seed).loop(**ITEM)
        assert [step.accepted for step in result.steps] == [True] + [False] * 10
        outputs.append([step.output for step in result.steps])
    assert outputs[0] == outputs[1]
    assert len({*outputs[0], *outputs[2]}) == 22


def test_every_task_writes_at_the_published_temperature():
    assert TEMPERATURE == 1.0
    for make in TASKS.values():
        writers = [p for name, p in make().loop.named_predictors() if ".find." not in name]
        assert {p.config["temperature"] for p in writers} == {1.0}


def test_a_greedy_refiner_that_is_rejected_is_not_asked_the_same_again():
    lm = Seeded(translator)
    with dspy.context(lm=lm):
        result = translation(max_iterations=10, temperature=0.0, feedback_temperature=0.0).loop(**ITEM)
    assert (result.stopped, result.iterations) == ("repeats", 1)
    assert len(lm.asked) == len(set(lm.asked)) == 3  # the refinement is the same text: its feedback is known
    assert [step.calls for step in result.steps] == [2, 1]


@pytest.mark.parametrize(("make", "answer", "requests"), [
    (
        lambda: translation(max_iterations=3),  # feedback on the same output is drawn anew
        lambda request: "dog" if "Output:" in request.messages[-1].text else "'dog' is a major style error",
        8,
    ),
    # no two paths agree, so that no solution is accepted
    (lambda: mathematics(max_iterations=3, paths=4), lambda r: rf"\boxed{{{drawn(r)}}}", 1 + 4 * 4),
], ids=["feedback", "paths of a vote"])  # fmt: skip
def test_whatever_is_drawn_is_drawn_anew(make, answer, requests):
    with dspy.context(lm=(lm := Seeded(answer))):
        make().loop(**ITEM, answer="4")
    assert len(set(lm.asked)) == len(lm.asked) == requests
    assert {request.config.temperature for request in lm.asked} == {1.0}


def test_best_of_k_draws_k_different_drafts():
    lm, generate = Seeded(), PlainPredict("source -> output", temperature=1.0)
    with dspy.context(lm=lm), warnings.catch_warnings():
        warnings.simplefilter("error")
        result = BestOfK(generate, Length(), k=8)(source="s", reference="not shown")
        other = BestOfK(generate, Length(), k=8, seed=1)(source="s")
    assert result.distinct == len({step.output for step in result.steps}) == 8
    assert len(set(lm.asked)) == len(lm.asked) == 16
    assert "not shown" not in repr(lm.asked)
    assert not {s.output for s in result.steps} & {s.output for s in other.steps}


def test_best_of_k_tells_once_of_drafts_that_are_the_same():
    lm = Seeded(lambda request: "one" if drawn(request) % 2 else "two")
    program = BestOfK(PlainPredict("source -> output", temperature=1.0), Length(), k=8)
    with dspy.context(lm=lm), pytest.warns(RepeatedDrafts, match="Only 2 of the 8 drafts") as told:
        predictions = [program(source=f"s{n}") for n in range(5)]
    assert len(told) == 1
    assert [p.distinct for p in predictions] == [2] * 5
    greedy = Seeded()
    with dspy.context(lm=greedy), pytest.warns(RepeatedDrafts, match="Only 1 of the 4 drafts"):
        result = BestOfK(PlainPredict("source -> output", temperature=0.0), Length(), k=4)(source="s")
    assert (len(greedy.asked), len(result.steps), result.distinct) == (1, 1, 1)


def test_a_local_model_without_a_temperature_decodes_greedily(lms):
    program = BestOfK(PlainPredict("source -> output", max_tokens=4), Length(), k=3)
    with dspy.context(lm=lms["llama"].copy(cache=False)), pytest.warns(RepeatedDrafts, match="Only 1 of the 3"):
        assert len(program(source="the cat").steps) == 1


# Mathematics as in the paper: in every iteration a vote of new paths scores the answer, and replaces it.


def boxed(*answers):
    return [rf"path {n}: \boxed{{{answer}}}" for n, answer in enumerate(answers)]


def voting(*texts, **options):
    program = SelfConsistencyRefine(PlainPredict("source -> output"), **options)
    program.set_lm(Scripted(*texts))
    return program


def test_the_vote_replaces_the_answer_in_every_iteration():
    votes = [*boxed(4, 4, 5), *boxed(6, 5, 6), *boxed(5, 6.0, 6), *boxed(7, 7, 6)]  # the majorities are 4, 6, 6 and 7
    result = voting(*boxed(5), *votes, paths=3, max_iterations=3)(source="2 + 2", answer="4")
    assert [step.score for step in result.steps] == [0, 0, 1, 0]
    assert all(step.accepted for step in result.steps)
    assert [step.output[-2] for step in result.steps] == ["5", "4", "6", "6"]
    assert result.steps[1].output == r"path 0: \boxed{4}"  # the first path of the majority, a whole solution
    assert [step.calls for step in result.steps] == [4, 3, 3, 3]
    assert (result.iterations, result.stopped, result.score) == (3, "iterations", 0)
    stopped = voting(*boxed(5), *votes, paths=3, max_iterations=3, stop=True)(source="2 + 2", answer="4")
    assert [step.score for step in stopped.steps] == [0, 0, 1]
    assert (stopped.iterations, stopped.stopped, stopped.score) == (2, "perfect", 1)


def test_a_vote_without_answers_is_undefined_and_the_next_one_is_new():
    result = voting(*boxed(4), "no idea", "none", *boxed(4, 4), paths=2, max_iterations=1)(source="2 + 2")
    assert math.isnan(result.steps[0].score)
    assert result.steps[0].status == "unreadable"
    assert result.steps[1].score == 1
    assert [step.output for step in result.steps] == boxed(4) * 2


test_greedy_paths_and_bad_numbers_are_refused = refusals(
    lambda make: make(),
    (lambda: vote(PlainPredict("source -> output", temperature=0.0), "2 + 2", paths=3), "The 3 paths would all be"),
    (lambda: voting("x", max_iterations=-1), "max_iterations=-1"),
    (lambda: voting("x", paths=0), "paths=0"),
    (lambda: voting("x")(question="2 + 2"), "has no 'source'"),
    (lambda: loop("a", max_iterations=-1), "max_iterations=-1"),
    (lambda: loop("a", perfect="anything"), "perfect='anything': give 'best', a number or None"),
    (lambda: BestOfK(WRITE, Score(), k=0), "k=0"),
    (lambda: Improvement(-1), "margin=-1"),
)


def shorter(example, output):
    return -len(output)


TAKE_A_SOURCE = [lambda source: SelfRefine(WRITE, source, REWRITE), lambda source: BestOfK(WRITE, source)]
TAKE_A_SOURCE += [lambda source: ExternalFeedbackRefine(source)]
TAKE_A_SOURCE += [lambda source: ExternalFeedbackRefine(Score(), quality=source)]
TAKE_A_SOURCE += [lambda source: MappedFeedback(source, ITSELF), lambda source: CachedScorer(source)]


@pytest.mark.parametrize("make", TAKE_A_SOURCE)
def test_a_plain_function_is_no_feedback_source_and_the_remedy_is_named(make):
    with pytest.raises(TypeError, match=r"shorter at .* has no name, low, high\. .* ScorerFeedback\(NAME, FUNCTION"):
        make(shorter)


def test_a_feedback_source_returns_no_bare_number():
    class Brevity:
        name, low, high, __call__ = "brevity", -100, 0, staticmethod(shorter)

    program, _ = loop("a long text", source=Brevity())
    with pytest.raises(TypeError, match=r"'brevity' returned -11: return Feedback\(score, text\)"):
        program(source="s")


def recording(loop, items):
    """Return a model with the recorded texts as answers to the prompts that a loop sends for recorded outputs.

    ``items`` are the inputs of each item and its (output, feedback text) pairs, from the first output on. A recording
    repeats an output that was not improved: the loop's refiner then writes the same text again. Different answers to
    one request come in their order, equal ones any number of times.
    """
    texts, answers, asked, program = [], {}, Counter(), loop.deepcopy()

    def write(request):
        answers.setdefault(repr((request.messages, request.config)), []).append(texts[-1] or " ")
        return texts[-1] or " "

    def replay(request):
        own = answers.get(key := repr((request.messages, request.config)), [])
        asked[key] += len({*own}) > 1
        number = max(0, asked[key] - 1)
        return own[number] if number < len(own) else LookupError("the recording has no answer to the prompt")

    program.set_lm(dspy.LM("recorded/texts", engine=Engine(write), cache=False))
    for inputs, steps in items:
        shown = {name: value for name, value in inputs.items() if name in module_inputs(program.generate)}
        draft, module = {}, program.generate
        for output, feedback in steps:
            texts.append(output)
            written = str(module(**shown, **draft)[program.field])
            texts.append(feedback)
            comment = program.feedback(inputs, written).text if written.strip() else EMPTY
            draft, module = {"draft": written, "feedback": comment}, program.refine
    return dspy.LM("recorded/texts", engine=Engine(replay), cache=False)


def translation_loop(iterations):
    loop = translation(max_iterations=iterations).loop
    loop.perfect = None  # the recorded loops went on
    loop.feedback.find.predict.config["temperature"] = 1.0  # and drew the feedback: the same text got several scores
    return loop


def texts_of(row):
    return row["output"], row["feedback_text"]


@pytest.mark.parametrize(
    ("file", "unreadable"), [("gpt-3.5-turbo__yor-en.jsonl", 2), ("deepseek_moe__yor-en.jsonl.gz", 2)]
)
@pytest.mark.slow
def test_the_recorded_translations_go_through_the_real_program(data_dir, file, unreadable):
    """The recording answers the program's own prompts and no others: what it accepts is what was recorded."""
    refinements = recorded_loop(data_dir / "self_bias_recorded/mt" / file)
    rows = {item: [refinements.records[k][item] for k in refinements.numbers] for item in refinements.ids}
    inputs = {item: {"source": rows[item][0]["source"], "target_language": "English"} for item in refinements.ids}
    loop = translation_loop(max(refinements.numbers))
    lm = recording(loop, [(inputs[i], list(map(texts_of, rows[i]))) for i in refinements.ids])
    run = run_loops(loop, [dspy.Example(id=i, **inputs[i]) for i in refinements.ids], lm=lm)
    differ = 0
    for one in run.loops:
        recorded = [texts_of(after) != texts_of(before) for before, after in itertools.pairwise(rows[one.id])]
        same = not one.error and [step.accepted for step in one.steps[1:]] == recorded
        differ += not same
        if same:
            # wherever a step is accepted, what was written is the recording's text
            kept = [one.at(k).output for k in range(len(rows[one.id]))]
            assert kept == [row["output"].strip() for row in rows[one.id]]
    # feedback that names no severity, breaks off in its first quotation, or quotes words with an opening mark of
    # their own: counting substrings called the first two perfect
    assert differ == unreadable


class Always(Improvement):
    def __call__(self, before, after):
        return True


def test_the_recorded_concepts_go_through_the_real_program(data_dir):
    refinements = recorded_loop(data_dir / "self_bias_recorded/commongen/gpt-3.5-turbo.jsonl.gz")
    last = 2
    loop = constrained_generation(max_iterations=last).loop
    loop.perfect, loop.accept = None, Always()
    rows = {item: [refinements.records[k][item] for k in range(last + 1)] for item in refinements.ids[:20]}
    items = [dspy.Example(id=i, concepts=rows[i][0]["concepts"]) for i in rows]
    steps = [({"concepts": rows[i][0]["concepts"]}, list(map(texts_of, rows[i]))) for i in rows]
    run = run_loops(loop, items, lm=recording(loop, steps))
    assert run.failed == {}
    written = [[step.output for step in one.steps] for one in run.loops]
    assert written == [[row["output"].strip() for row in rows[i]] for i in rows]
    exact = run.quality(items, parts.ExactConcepts())
    covered = [[all(c.lower() in row["output"].lower() for c in row["concepts"]) for row in rows[i]] for i in rows]
    assert exact.T.tolist() == covered
    assert 0 < exact.mean() < 1


class CoveredShare(parts.ExactConcepts):
    def __call__(self, example, output):
        covered = [concept in output for concept in example["concepts"]]
        return Feedback(sum(covered) / len(covered), super().__call__(example, output).text)


def content_writer(request):
    """Cover one concept more of those that the feedback misses, and believe that nothing is missing."""
    last = request.messages[-1].text
    if last.endswith("Missing:"):
        return "none"
    draft, missing = re.search(r"Draft: (.*)", last), re.search(r"Feedback: missing: (\w+)", last)
    return f"{draft[1]} {missing[1]}" if missing else "cat"


@pytest.mark.parametrize(("believed", "covered"), [(True, [1 / 4]), (False, [1 / 4, 2 / 4, 3 / 4])])
def test_a_writer_that_believes_itself_gains_by_the_true_list_of_missing_concepts_alone(believed, covered):
    loop = constrained_generation(max_iterations=2).loop
    loop.set_lm(Seeded(content_writer))
    if not believed:
        loop.feedback = CoveredShare()
    concepts = ["cat", "dog", "snow", "wall"]
    (one,) = run_loops(loop, [dspy.Example(id="a", concepts=concepts)], num_threads=1).loops
    share = CoveredShare()
    assert [share({"concepts": concepts}, step.output).score for step in one.steps] == covered
    assert [step.score for step in one.steps] == ([1] if believed else covered)  # who believes all covered stops


def test_a_loop_that_leaves_the_recording_fails_with_a_reason():
    loop = translation_loop(1)
    inputs = {"source": "un chien", "target_language": "English"}
    lm = recording(loop, [(inputs, [("a cat", "'cat' is a major accuracy error"), ("a dog", "no-error")])])
    run = run_loops(loop, [dspy.Example(id="a", **inputs)], lm=lm)
    assert [(s.output, s.score) for s in run.loops[0].steps] == [("a cat", -5), ("a dog", 0)]
    loop.max_iterations = 2
    run = run_loops(loop, [dspy.Example(id="a", **inputs)], lm=lm)
    assert "has no answer to the prompt" in run.failed["a"]
