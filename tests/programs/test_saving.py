"""Every program survives every way of saving it, alone and inside another program, with and without its model."""

import contextlib
import copy
import functools
import json
import math
import subprocess
import sys
from pathlib import Path

import cloudpickle
import dspy
import numpy as np
import pytest
from fake_server import KEY, serving
from fakes import Comparer, FormulaLM, items, pair
from hypothesis import given
from hypothesis import strategies as st
from models_of_text import Scripted, Seeded

from evalbias import BiasedDemos, ServerLM, drift
from evalbias.evaluation.loops import Paraphrase
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.measures.juries import JuryRule
from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker, PointwiseJudge
from evalbias.programs import criterion as criteria
from evalbias.programs.feedback import ConsistencyFeedback, FindErrors, FindMissing, JudgeFeedback, MQMFeedback
from evalbias.programs.files import load, save
from evalbias.programs.loops import BestOfK, Improvement, SelfConsistencyRefine, SelfRefine
from evalbias.programs.prompts import likelihood_messages
from evalbias.programs.tasks import CONCEPTS, TASKS, TRANSLATION
from evalbias.programs.writing import PlainPredict

QUALITY = Criterion("quality", "is it good?")
WIT = Criterion("wit", "is it funny?", (1, 10), task="Tell a joke.", output_label="Joke")


def instructed(program, words):
    program.predict.signature = program.predict.signature.with_instructions(words)
    return program


def pointwise():
    judge = instructed(PointwiseJudge(WIT, scoring="sampled", language="ja"), "Be strict.")
    judge.predict.demos = [dspy.Example(source="s", output="o", score=9.0)]
    return judge


def pairwise():
    settings = {"debias": "permutation", "calibration": "batch", "min_coverage": 0.01, "instruction_place": "first"}
    judge = PairwiseJudge(WIT, ties=True, language="ja", **settings)
    judge.calibrate([pair(1, 2), pair(2, 1)], lm=Comparer(lean=1.0, tie=-1.0))
    judge.predict.demos = [dspy.Example(source="s", candidates=["a", "b"], preference="A")]
    return instructed(judge, "Which one would you keep?")


def loop(judge, **options):
    write, rewrite = PlainPredict("data -> text"), PlainPredict("data, draft, feedback -> text")
    return SelfRefine(write, JudgeFeedback(judge), rewrite, **{"field": "text", **options})


def taught(program, **example):
    program.generate.predict.demos = [dspy.Example(example or {"data": "d", "text": "t"})]
    return program


def translation(feedback, **options):
    refine = PlainPredict("source, draft, feedback -> output")
    return taught(SelfRefine(PlainPredict("source -> output"), feedback, refine, **options), source="1 + 1", output="2")


solve = functools.partial(PlainPredict, "source -> output")
PROGRAMS = {
    "pointwise": (pointwise, lambda: PointwiseJudge(QUALITY)),
    "sampled": (lambda: PointwiseJudge(WIT, scoring="sampled"), lambda: PointwiseJudge(QUALITY)),
    "calibrated": (
        lambda: PointwiseJudge(WIT, correction=ScoreCorrection({"likelihood": Slope(0.05, -30.0)}, reduction="mean")),
        lambda: PointwiseJudge(QUALITY),
    ),
    "pairwise": (pairwise, lambda: PairwiseJudge(QUALITY)),
    "ranker": (lambda: PairwiseRanker(pairwise(), seed=7, orders=2), lambda: PairwiseRanker(PairwiseJudge(QUALITY))),
    "loop": (
        lambda: taught(loop(pointwise(), max_iterations=2, accept=Improvement(0.5), perfect=None, seed=5)),
        lambda: loop(PointwiseJudge(QUALITY), field="other"),
    ),
    "best of k": (
        lambda: taught(BestOfK(PlainPredict("data -> text"), JudgeFeedback(pointwise()), k=3, seed=5, field="text")),
        lambda: BestOfK(PlainPredict("data -> text"), JudgeFeedback(PointwiseJudge(QUALITY))),
    ),
    "self-consistency": (
        lambda: taught(SelfConsistencyRefine(solve(), paths=3, max_iterations=2, seed=5), source="1"),
        lambda: SelfConsistencyRefine(solve()),
    ),
    "MQM": (lambda: translation(MQMFeedback(critical=-10.0), max_iterations=1), lambda: translation(MQMFeedback())),
    "consistency": (
        lambda: translation(ConsistencyFeedback(solve(), paths=2, seed=5), max_iterations=1),
        lambda: translation(ConsistencyFeedback(solve())),
    ),
}
"""Program with nothing left at its default, and a program of the same shape with everything at its default."""

SLOPES = {"likelihood": Slope(0.05, -30.0, (-90.0, -4.0)), "length": Slope(0.5, 2.5)}
UNITS = {"reduction": "mean", "length": "graphemes"}
CORRECTION = ScoreCorrection(SLOPES, shift=0.25, criterion="wit", likelihood_lm="some/model", **UNITS)
RULE = {"offset": 0.125, "first": (0, 2), "tolerance": 0.5}
JURY = JuryRule("verdict", (0.5, 0.25, 0.25), (0.1, 0.0, -0.1), (1.0, 0.5, 2.0), **RULE)
BASELINE = [{"source": f"question {k}", "output": f"answer {k}"} for k in range(24)]
BASELINE = [row | {"my_score": 1 + k % 7 / 2 + k % 3 / 2} for k, row in enumerate(BASELINE)]
"""Items whose audit (``--scores-field my_score --scale 1-5``) is kept as a run folder, without its report."""
KEPT = Path(__file__).with_name("kept")
"""Version -> what it saved of PROGRAMS, CORRECTION, JURY and BASELINE. A release adds its folder, and changes none."""
versions = pytest.mark.parametrize("version", [folder.name for folder in sorted(KEPT.iterdir())])


def test_a_rule_of_acceptance_that_a_file_cannot_hold_is_not_saved_as_its_margin(tmp_path):
    class Late(Improvement):
        def __call__(self, before, after):
            return after > 4

    program = loop(pointwise(), accept=Late())
    with pytest.raises(TypeError, match=r"accept=.* cannot be saved, because a file holds no more than a margin"):
        program.save(tmp_path / "loop.json")
    program.accept = Improvement(1)
    program.save(tmp_path / "loop.json")


class Held(dspy.Module):
    def __init__(self, program):
        super().__init__()
        self.held = program

    def forward(self, **inputs):
        return self.held(**inputs)


def in_list(program):
    return Held([Held(program)])


def with_model(lm):
    judge = PointwiseJudge(QUALITY)
    judge.predict.lm = lm
    return judge


def edited(program, folder, edit):
    """Save a program, edit the state in its file, and return the file."""
    file = folder / "judge.json"
    program.save(str(file))
    state = json.loads(file.read_text())
    edit(state)
    file.write_text(json.dumps(state))
    return file


def state_in(ending, program, fresh, folder):
    program.save(str(folder / f"state.{ending}"))
    fresh.load(str(folder / f"state.{ending}"), allow_pickle=ending == "pkl")
    return fresh


def whole_program(program, fresh, folder):
    program.save(str(folder / "program"), save_program=True)
    return dspy.load(str(folder / "program"), allow_pickle=True)


WAYS = {ending: functools.partial(state_in, ending) for ending in ("json", "pkl")} | {"save_program": whole_program}
WAYS["cloudpickle"] = lambda program, fresh, folder: cloudpickle.loads(cloudpickle.dumps(program))
WAYS["deepcopy"] = lambda program, fresh, folder: copy.deepcopy(program)
WAYS["Module.deepcopy"] = lambda program, fresh, folder: program.deepcopy()
DEPTHS = {0: (lambda p: p, lambda p: p), 2: (in_list, lambda outer: outer.held[0].held)}


def shown(judge):
    """All that decides a judge's answers: what the model is shown, the labels, and what is made of them."""
    if isinstance(judge, PointwiseJudge):
        example = dspy.Example(source="s", output="q=2 z=0")
        settings = judge.scoring, judge.sampling, judge.correction
        return judge.messages(example), judge.criterion.labels, settings
    names = ("ties", "debias", "calibration", "min_coverage", "instruction_place", "corrections")
    (prediction,) = judge.batch([pair(1, 2)], lm=Comparer(lean=0.5, tie=-2.0))
    return judge.messages(pair(1, 2)), judge.criterion, prediction.toDict(), [getattr(judge, n) for n in names]


def behavior(program):
    if isinstance(program, PairwiseRanker):
        order = program.batch([pair(3, 1, 2)], lm=Comparer(tie=-2.0))[0].toDict()
        return shown(program.judge), order, program.seed, program.orders
    if not hasattr(program, "feedback"):
        return shown(program)
    names = ("max_iterations", "accept", "perfect", "k", "seed", "field", "paths", "critical")
    feedback = program.feedback
    settings = [[getattr(part, name, None) for name in names] for part in (program, feedback)]
    judged = shown(feedback.judge) if hasattr(feedback, "judge") else None
    demos = [dict(demo) for demo in program.generate.predict.demos]
    copied = program.deepcopy()
    copied.set_lm(Scripted("first", "2", "'a' is a critical accuracy/addition error", "9", r"\boxed{1}", "9"))
    steps = repr(copied(source="s", data="d").steps)  # NaN is not equal to itself
    copied.set_lm(Seeded(temperature=1.0))
    drafts = [step.output for step in copied(source="s", data="d").steps]
    return judged, (feedback.name, feedback.low, feedback.high), steps, drafts, demos, settings


@functools.cache
def expected_of(name):
    return behavior(PROGRAMS[name][0]())


EVERY = [(way, depth) for way in WAYS for depth in DEPTHS]
EVERY = [pytest.param(*one, marks=[pytest.mark.slow] * (one != ("json", 2))) for one in EVERY]


@pytest.mark.parametrize(("way", "depth"), EVERY)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_survives(name, way, depth, tmp_path):
    make, make_fresh = PROGRAMS[name]
    put, take = DEPTHS[depth]
    program, expected = put(make()), expected_of(name)
    assert make_fresh().dump_state() != make().dump_state()
    restored = WAYS[way](program, put(make_fresh()), tmp_path)
    assert behavior(take(restored)) == expected
    assert behavior(take(program)) == expected


@versions
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_version_saved_is_loaded(name, version):
    program, file = PROGRAMS[name][1](), KEPT / version / f"{name}.json"
    saved = json.loads(file.read_text())
    program.load(str(file))
    del saved["metadata"]
    assert json.loads(json.dumps(program.dump_state())) == saved


@versions
def test_corrections_and_rules_that_a_version_saved_are_loaded(version):
    assert load(KEPT / version / "correction.json") == CORRECTION
    assert load(KEPT / version / "jury.json") == JURY


@pytest.mark.parametrize("name", ["pointwise", "sampled", "calibrated", "pairwise", "ranker"])
def test_load_makes_the_program_that_a_file_holds(name, tmp_path):
    made = PROGRAMS[name][0]()
    made.save(str(file := tmp_path / "program.json"))
    for loaded in (load(file), load(file, ScoreCorrection, type(made))):
        assert type(loaded) is type(made)
        assert behavior(loaded) == expected_of(name)


SOMETHING_ELSE = [(loop(pointwise()), "refine loop"), (Held(pointwise()), "nothing"), (pairwise(), "pairwise judge")]
SOMETHING_ELSE += [(CORRECTION, "correction"), (JURY, "rule"), ({"settings": {"kind": "x" * 500}}, "xxx")]
SOMETHING_ELSE += [({"settings": {"kind": [3]}}, "nothing")]


@pytest.mark.parametrize(("content", "held"), SOMETHING_ELSE)
def test_a_file_of_something_else_is_refused_by_what_it_holds(content, held, tmp_path):
    file = tmp_path / "it.json"
    if isinstance(content, dict):
        file.write_text(json.dumps(content))
    elif isinstance(content, dspy.Module):
        content.save(str(file))
    else:
        save(content, file)
    with pytest.raises(ValueError, match=rf"it\.json holds .*{held}.*pointwise judge") as raised:
        load(file, PointwiseJudge)
    assert len(str(raised.value)) < 500


@versions
def test_an_audit_that_a_version_kept_is_a_baseline(version):
    moved = [row | {"my_score": (row["my_score"] + 1) / 2} for row in BASELINE]
    found = drift(KEPT / version / "baseline", moved, scores_field="my_score", scale=(1, 5))
    assert found["drift"].value == pytest.approx(np.mean([(1 - row["my_score"]) / 2 for row in BASELINE]))
    assert (found["drift"].n, found["drift"].undefined) == (24, 0)


def test_a_compiled_judge_survives_with_its_report(tmp_path):
    optimizer = BiasedDemos(k=4, n_resamples=100, seed=0, select=False)
    compiled = optimizer.compile(PointwiseJudge(QUALITY), trainset=items(40, 1), valset=items(20, 2), lm=FormulaLM())
    restored = whole_program(Held(compiled), None, tmp_path).held
    assert shown(restored) == shown(compiled)
    assert restored.report.demonstrations == compiled.report.demonstrations


def frozen(program, part):
    getattr(program, part)._compiled = True  # as BootstrapFewShot and MIPROv2 leave it
    return program


@pytest.mark.parametrize("again", [lambda fresh, part: fresh, frozen], ids=["into a new one", "into a compiled one"])
@pytest.mark.parametrize("way", ["json", pytest.param("pkl", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "part"), [("ranker", "judge"), ("loop", "generate"), ("loop", "feedback")])
def test_a_program_survives_with_a_part_that_was_compiled_before(name, part, way, again, tmp_path):
    make, make_fresh = PROGRAMS[name]
    restored = WAYS[way](frozen(make(), part), again(make_fresh(), part), tmp_path)
    getattr(restored, part)._compiled = False  # a frozen part takes no other model
    assert behavior(restored) == expected_of(name)


def test_a_ranker_of_a_judge_that_was_compiled_before_is_loaded(tmp_path):
    frozen(PairwiseRanker(pairwise(), seed=7), "judge").save(str(tmp_path / "ranker.json"))
    ranker = load(tmp_path / "ranker.json")
    assert (shown(ranker.judge), ranker.seed) == (shown(pairwise()), 7)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_is_set_survives_without_its_weights(way, depth, lms, tmp_path):
    put, take = DEPTHS[depth]
    program, fresh = put(PointwiseJudge(QUALITY)), put(PointwiseJudge(QUALITY))
    take(program).set_lm(lms["llama"])
    expected = take(program)(source="the cat", output="sat").score
    restored = WAYS[way](program, fresh, tmp_path)
    judge = take(restored)
    assert type(judge.predict.lm) is type(lms["llama"])
    assert judge(source="the cat", output="sat").score == pytest.approx(expected, abs=1e-6)
    assert judge.predict.lm.engine is lms["llama"].engine  # the weights in memory are shared
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()] + [cloudpickle.dumps(program)]
    assert max(map(len, written)) < 20_000


@pytest.mark.slow
def test_a_saved_judge_answers_alike_in_another_process(lms, tmp_path):
    judge = with_model(lms["llama"])
    judge.save(str(tmp_path / "judge.json"))
    judge.save(str(tmp_path / "program"), save_program=True)
    code = (
        "import dspy, evalbias\n"
        "for judge in (evalbias.load('judge.json'), dspy.load('program', allow_pickle=True)):\n"
        "    print(judge(source='the cat', output='sat').score)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    expected = judge(source="the cat", output="sat").score
    np.testing.assert_allclose([float(line) for line in told.stdout.split()], expected, atol=1e-5)


def test_a_saved_model_that_is_gone_is_missed_only_when_it_is_asked(lms, tmp_path):
    judge = with_model(lms["llama"])
    judge.save(str(tmp_path / "judge.json"))
    file = tmp_path / "judge.json"
    file.write_text(file.read_text().replace(lms["llama"].dump_state()["model"], str(tmp_path / "gone")))
    restored = load(file)
    restored.save(str(tmp_path / "again.json"))
    assert (tmp_path / "again.json").read_text() == file.read_text()
    with pytest.raises(FileNotFoundError, match="gone does not exist"):
        restored(source="the cat", output="sat")
    restored.set_lm(lms["llama"])
    assert restored(source="the cat", output="sat").score == judge(source="the cat", output="sat").score


def test_code_of_a_saved_model_runs_only_from_a_trusted_file(lms, tmp_path):
    judge = with_model(lms["llama"])
    file = tmp_path / "judge.json"
    judge.save(str(file))
    assert '"trust_remote_code": false' in file.read_text()
    file.write_text(file.read_text().replace('"trust_remote_code": false', '"trust_remote_code": true'))
    assert load(file).predict.lm.dump_state()["trust_remote_code"] is False
    trusting = PointwiseJudge(QUALITY)
    trusting.load(str(file), allow_unsafe_lm_state=True)
    assert trusting.predict.lm.dump_state()["trust_remote_code"] is True


def test_a_servers_address_is_trusted_only_on_demand_and_its_key_is_never_written(lms, tmp_path, monkeypatch):
    monkeypatch.delenv("EVALBIAS_API_KEY", raising=False)
    example = {"source": "the cat", "output": "sat"}
    with serving(lms["llama"], key=KEY) as (address, _):
        folder = lms["llama"].dump_state()["model"]
        judge = with_model(ServerLM("tiny", base_url=address, tokenizer=folder, api_key=KEY))
        expected = judge(**example).score
        for number, way in enumerate(WAYS.values()):
            (tmp_path / str(number)).mkdir()
            way(judge, PointwiseJudge(QUALITY), tmp_path / str(number))
        written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()] + [cloudpickle.dumps(judge)]
        assert len(written) == 5
        assert not any(KEY.encode() in content for content in written)
        with pytest.raises(ValueError, match=r"has no address: .* allow_unsafe_lm_state=True"):
            load(tmp_path / "0" / "state.json")(**example)
        state = json.loads((tmp_path / "0" / "state.json").read_text())
        state["predict"]["lm"]["api_base"] = state["predict"]["lm"].pop("base_url")  # an argument that ServerLM lacks
        (tmp_path / "other.json").write_text(json.dumps(state))
        with pytest.raises(ValueError, match="has no address"):
            load(tmp_path / "other.json")(**example)
        monkeypatch.setenv("EVALBIAS_API_KEY", KEY)
        judge.predict.lm = None
        trusting = PointwiseJudge(QUALITY)
        trusting.load(str(tmp_path / "0" / "state.json"), allow_unsafe_lm_state=True)
        assert trusting(**example).score == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["api_base", "base_url"])
def test_a_model_of_dspy_is_not_asked_without_the_address_it_was_saved_with(name, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)  # with which the provider itself would be asked
    judge, file = with_model(dspy.LM("openai/tiny", api_key=KEY, **{name: STRANGE})), tmp_path / "judge.json"
    judge.save(str(file))
    loaded = load(file)
    for asked in (loaded, loaded.deepcopy()):
        with pytest.raises(ValueError, match=r"'openai/tiny' has no address: .* allow_unsafe_lm_state=True.* set_lm"):
            asked(source="the cat", output="sat")
    loaded.save(str(tmp_path / "again.json"))
    assert (tmp_path / "again.json").read_text() == file.read_text()
    judge.load(str(file), allow_unsafe_lm_state=True)
    assert judge.get_lm().kwargs[name] == STRANGE
    loaded.set_lm(dspy.LM("openai/tiny"))
    assert loaded.get_lm().model == "openai/tiny"


STRANGE = "http://127.0.0.1:9/v1"
"""An address that a stranger writes into a saved program."""


@pytest.mark.parametrize(("part", "written", "message"), [
    ({"config": {"api_base": STRANGE}}, True, "holds 'config', which no saved program does"),
    ({"callbacks": [STRANGE]}, True, "holds 'callbacks'"),
    ({"lm": {"model": "openai/x", "azure_endpoint": STRANGE}}, True, "'lm' holds 'azure_endpoint'"),
    ({"lm": {"model": "openai/x", "n": 5000}}, True, "'n' of 'lm' is 5000: give a number of 100 at most"),
    ({"lm": {"model": "openai/x", "max_tokens": "9" * 99}}, True, "'max_tokens' of 'lm' is '999"),
    ({"lm": {"model": "openai/x", "extra_body": {"proxy": STRANGE}}}, True, r"'lm\.extra_body' holds 'proxy'"),
    ({"lm": {"model": "openai/x", "extra_body": {"n": 5000}}}, True, r"'n' of 'lm\.extra_body' is 5000"),
    ({"lm": [STRANGE]}, True, "'lm' is .* give an object"),
    ({"max_iterations": 10**9}, False, "max_iterations=1000000000: give a whole number from 0 to 1000"),
    ({"api_base": STRANGE}, False, "has the settings .*'api_base'"),
])  # fmt: skip
@pytest.mark.parametrize("plain", [False, True], ids=["ours", "dspy.Predict"])
def test_a_saved_loop_holds_what_was_written_and_nothing_else(part, written, message, plain, tmp_path):
    made = loop(PointwiseJudge(QUALITY))
    if plain:
        made.generate = dspy.Predict("data -> text")
    before = made.dump_state()
    name = next(name for name in before if name.startswith("generate")) if written else "settings"
    file = edited(made, tmp_path, lambda state: state[name].update(part))
    with pytest.raises(ValueError, match=message) as refusal:
        made.load(str(file))
    assert not written or f"'{name}' of the saved program" in str(refusal.value)
    assert made.dump_state() == before
    file = edited(made, tmp_path, lambda state: state.update({f"{name}.lm": {"api_base": STRANGE}}))
    with pytest.raises(ValueError, match=r"holds '.*\.lm', which it has not"):
        made.load(str(file))


@pytest.mark.slow
@given(data=st.data())
def test_no_address_in_a_saved_program_reaches_a_model(data):
    made = data.draw(st.sampled_from([pointwise, pairwise, lambda: loop(PointwiseJudge(QUALITY))]))()
    state = json.loads(json.dumps(made.dump_state()))
    names = st.sampled_from([*vars(dspy.Predict("a -> b")), *dspy.LM("openai/x").dump_state(), "api_base", "x"])
    leaves = st.just(STRANGE) | st.none() | st.integers()
    values = st.recursive(leaves, lambda inner: st.dictionaries(names, inner) | st.lists(inner))
    for _ in range(data.draw(st.integers(1, 3))):
        place = state[data.draw(st.sampled_from(list(state)))]
        for _ in range(data.draw(st.integers(0, 3))):  # down to any depth
            inner = [one for one in (place.values() if isinstance(place, dict) else []) if isinstance(one, dict)]
            place = data.draw(st.sampled_from(inner)) if inner else place
        if isinstance(place, dict):
            place[data.draw(names | st.sampled_from([*place, "x"]))] = data.draw(values)
    with contextlib.suppress(ValueError):
        made.load_state(state)
    for _, one in made.named_predictors():
        assert one.config == {}
        assert one.callbacks == []
        assert STRANGE not in json.dumps(one.lm.kwargs if type(one.lm) is dspy.LM else {})  # others refuse


NO_JUDGES = [b"", b"{", b"{}", b'{"settings": {}}', '{"settings": {}}'.encode("utf-16"), b"\x80\x04.", b"[" * 100_000]
NO_JUDGES += [json.dumps({"settings": {"kind": kind}}).encode() for kind in ([], {}, 3, None)]


@pytest.mark.parametrize("content", NO_JUDGES, ids=range(len(NO_JUDGES)))
def test_a_file_that_is_no_saved_judge_is_named(content, tmp_path):
    (tmp_path / "judge.json").write_bytes(content)
    for loading in (load, lambda file: PointwiseJudge(QUALITY).load(str(file))):
        with pytest.raises(ValueError, match=r"judge\.json"):
            loading(tmp_path / "judge.json")


def test_states_of_other_programs_are_refused_and_change_nothing(tmp_path):
    judge = pairwise()
    judge.save(str(tmp_path / "pairwise.json"))
    other = PointwiseJudge(QUALITY)
    before = other.dump_state()
    with pytest.raises(ValueError, match="The state is of a pairwise judge, not of a pointwise judge"):
        other.load(str(tmp_path / "pairwise.json"))
    with pytest.raises(ValueError, match="The state is of a pairwise judge, not of a pointwise judge"):
        in_list(other).load_state(in_list(judge).dump_state())
    broken = judge.dump_state()
    broken["settings"]["debias"] = "swap"
    with pytest.raises(ValueError, match="debias='swap' is unknown"):
        in_list(PairwiseJudge(QUALITY)).load_state({"held[0].held.instrument": broken})
    del broken["settings"]["debias"]
    with pytest.raises(ValueError, match="save it again with this version"):
        PairwiseJudge(QUALITY).load_state(broken)
    assert other.dump_state() == before


@pytest.mark.parametrize("part", ["settings", "judge.settings", "judge.predict"])
def test_a_refused_state_changes_nothing_also_where_a_part_was_compiled(part):
    ranker = frozen(PairwiseRanker(pairwise(), orders=3), "judge")
    state = frozen(PairwiseRanker(PairwiseJudge(QUALITY), orders=2), "judge").dump_state()
    state[part] = {**state[part], "kind": "other"}
    before = ranker.dump_state()
    with pytest.raises(ValueError, match=r"other|kind"):
        ranker.load_state(state)
    assert ranker.dump_state() == before
    assert ranker.orders == 3


def test_a_reset_copy_keeps_the_judge_and_its_model_and_forgets_what_was_fitted():
    judge = pairwise()
    judge.set_lm(Scripted("A"))
    reset = judge.reset_copy()
    assert (reset.criterion, reset.debias, reset.corrections) == (judge.criterion, "permutation", {})
    assert reset.get_lm().model == "fake/scripted"
    assert judge.corrections
    assert PROGRAMS["calibrated"][0]().reset_copy().correction is None
    with pytest.raises(ValueError, match="debias='permutaton' is unknown"):
        judge.debias = "permutaton"


SCORED = {"source": "the source", "output": "o", "score": 3}
COMPARED = {"source": "the source", "candidates": ["a", "b"], "preference": "A"}
REMOVED = {"calibration": "calibraeval", "corrections": {"2": {"shares": [0.4, 0.9], "values": [0.0, 1.0]}}}
SAVED = {"scores": PointwiseJudge(QUALITY), "compares": PairwiseJudge(QUALITY)}
SAVED["ranks"] = PairwiseRanker(SAVED["compares"])
DAMAGES = [  # the part of what was saved, its changes (... deletes), and the problem
    ("compares", "settings", {"criterion": ...}, "damaged"),
    ("compares", "settings", {"criterion": {"name": "a", "definition": "b", "scale": [1, 5], "weight": 2}}, "weight"),
    ("compares", "", {"predict": None}, "damaged"),
    ("compares", "", {"settings": []}, "holds nothing"),
    ("compares", "settings", {"corrections": {"2": {"offsets": [0.1]}}}, "damaged"),
    ("compares", "settings", {"corrections": {"2": {"offsets": ["x", "y"]}}}, "damaged"),
    ("compares", "settings", {"min_coverage": "0.5"}, "min_coverage='0.5'"),
    ("compares", "settings", {"min_coverage": None}, "min_coverage=None"),
    ("compares", "settings", {"language": ["ja"]}, "language"),
    ("compares", "settings", REMOVED, "calibration='calibraeval' is unknown"),
    ("scores", "settings", {"repair": {"offsets": []}}, "repair"),  # unknown, and not dropped
    ("scores", "predict", {"signature": {"instructions": None}}, "'instructions' in 'signature' is None: give a text"),
    ("scores", "predict", {"signature": None}, "'instructions' in 'signature' is None: give a text"),
    ("scores", "predict", {"demos": None}, r"'demos' is None: give a list of demonstrations, \[\] for none"),
    ("scores", "predict", {"demos": "abc"}, "'demos' is 'abc': give a list"),
    ("scores", "predict", {"demos": [SCORED, "hello"]}, "Demonstration 2 in 'demos' is 'hello': give an object with"),
    ("scores", "predict", {"demos": [{"source": "the source", "score": 3}]}, "'output' of .* 'the source' is missing"),
    ("scores", "predict", {"demos": [SCORED | {"output": ["3"]}]}, "'output' of .* 'the source' is a list, not a text"),
    ("scores", "predict", {"demos": [SCORED | {"score": "good"}]}, "score of .* 'the source' is 'good': give a number"),
    ("scores", "predict", {"demos": [SCORED | {"score": [3]}]}, r"score of .* 'the source' is \[3\]: give a number"),
    ("scores", "predict", {"demos": [SCORED | {"score": True}]}, "score of .* 'the source' is True: give a number"),
    ("scores", "predict", {"demos": [SCORED | {"score": None}]}, "demonstration 'the source' has no score"),
    ("scores", "predict", {"demos": [SCORED | {"score": 9}]}, "'the source' has no label. The score 9 is outside"),
    ("compares", "predict", {"demos": ["hello"]}, "Demonstration 1 in 'demos' is 'hello': give an object with"),
    ("compares", "predict", {"demos": [COMPARED | {"candidates": "ab"}]}, "'the source' has the candidates 'ab'"),
    ("compares", "predict", {"demos": [COMPARED | {"candidates": ["a", None]}]}, "Candidate 2 of .* is None"),
    ("compares", "predict", {"demos": [COMPARED | {"preference": "first"}]}, "'the source' is 'first': give 0 or 'A'"),
    *(("ranks", "settings", {"orders": orders}, f"orders={orders}: give a whole") for orders in (10**9, 0, 2.0)),
]


@pytest.mark.parametrize(("kind", "part", "changes", "problem"), DAMAGES)
def test_a_damaged_judge_is_refused_with_file_field_and_remedy(kind, part, changes, problem, tmp_path):
    def damage(state):
        place = state[part] if part else state
        place.update(changes)
        for name in [name for name, value in changes.items() if value is ...]:
            del place[name]

    file = edited(SAVED[kind], tmp_path, damage)
    with pytest.raises(ValueError, match=rf"judge\.json\b.*{problem}"):
        load(file)


@pytest.mark.parametrize("value", [-3, 1.5, math.nan, "0.5", None, True])
def test_a_setting_outside_its_range_is_refused_whenever_it_is_set(value):
    with pytest.raises(ValueError, match=r"min_coverage=.*: give a number from 0 to 1"):
        PairwiseJudge(QUALITY, min_coverage=value)
    judge = PairwiseJudge(QUALITY)
    with pytest.raises(ValueError, match=r"min_coverage=.*: give a number from 0 to 1"):
        judge.min_coverage = value
    assert judge.min_coverage == PairwiseJudge(QUALITY).min_coverage
    ranker = PairwiseRanker(judge)
    with pytest.raises(ValueError, match=r"orders=1\.5: give a whole number from 1 to 10000"):
        ranker.orders = 1.5
    with pytest.raises(ValueError, match="scoring='direct' is unknown"):
        judge.scoring = "direct"


# --- texts that models are asked with, which decide every recorded number: ``make words`` writes the snapshot anew, and
# benchmarks that use a changed text run again ---

C = criteria.SYNTHETIC
NATURAL = Criterion("自然さ", "日本語として自然か？")
MAIL = Criterion("自然さ", "日本語として自然か？", task="返信を書いてください。", output_label="返信")
FIRST = {"instruction_place": "first"}
JUDGES = {
    "scores": PointwiseJudge(C),
    "two words": PointwiseJudge(criteria.PRESETS["webnlg2020"][4]),
    "scores in Japanese": PointwiseJudge(NATURAL, language="ja"),
    "scores with own words in Japanese": PointwiseJudge(MAIL, language="ja"),
    "compares": PairwiseJudge(C, ties=True),
    "compares, instructed first": PairwiseJudge(C, ties=True, **FIRST),
    "compares in Japanese": PairwiseJudge(MAIL, language="ja", ties=True),
    "compares in Japanese, instructed first": PairwiseJudge(MAIL, language="ja", ties=True, **FIRST),
    "compares with an own instruction": PairwiseJudge(C, instruction="Mind the quality.", **FIRST),
    "compares with an own instruction in Japanese": PairwiseJudge(
        MAIL, language="ja", ties=True, instruction="自然さで勝るのは{answers}か。"
    ),
}


@pytest.mark.parametrize("name", JUDGES)
def test_the_messages_of_a_judge(name, snapshot):
    judge = JUDGES[name]
    judge.predict.demos = [dspy.Example(source="s", output="o", candidates=["p", "q"], score=2, preference="B")]
    if name == "compares in Japanese":
        judge.predict.demos[0].preference = "tie"
    messages = judge.messages({"source": "src", "output": "out", "candidates": ["x", "y"]})
    assert [(message["role"], message["content"]) for message in messages] == snapshot


def test_the_texts_whose_likelihood_is_asked_for(snapshot):
    told = PointwiseJudge(NATURAL, language="ja").criterion, PointwiseJudge(MAIL, language="ja").criterion
    assert [likelihood_messages(criterion, "src") for criterion in (C, *told)] == snapshot


def test_the_criteria(snapshot):
    assert {name: list(map(str, group)) for name, group in (criteria.PRESETS | {"synthetic": [C]}).items()} == snapshot


def test_the_signatures_of_the_loops(snapshot):
    loops = [task().loop for task in TASKS.values()]
    texts = [predictor.signature.instructions for loop in loops for _, predictor in loop.named_predictors()]
    texts += [signature.instructions for signature in (FindMissing, FindErrors, Paraphrase)]
    assert texts == snapshot


def test_the_examples_of_the_loops(snapshot):
    roles, tasks = ("generate", "feedback", "refine"), (TRANSLATION, CONCEPTS)
    assert [{role: [row.toDict() for row in task.get(role, ())] for role in roles} for task in tasks] == snapshot
