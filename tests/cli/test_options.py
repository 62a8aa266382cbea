"""Options are declared once: a command, its Python function and the callables below it agree on names and defaults."""

import inspect
import sys
import threading
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import fakes
import pytest
from commands import evalbias
from refusals import refusals
from test_layers import SOURCES

import evalbias as package
from evalbias import options, program_options
from evalbias.cli.app import COMMANDS, SECTIONS, parameter
from evalbias.cli.flags import FLAGS, as_typed
from evalbias.cli.items import narrowed, scoring_judges
from evalbias.cli.optimize import AIMS
from evalbias.data import world
from evalbias.evaluation import summarize_loop
from evalbias.evaluation.answers import function_scores, recorded_scores, resolve
from evalbias.evaluation.biases import BIASES
from evalbias.optimizers import ZEPO, BiasedDemos, LikelihoodMitigation
from evalbias.optimizers.refine import ExternalFeedbackRefine
from evalbias.options import AuditOptions, recorded
from evalbias.program_options import NAMES
from evalbias.programs import SYNTHETIC, PairwiseJudge, PairwiseRanker, PointwiseJudge
from evalbias.programs.prompts import LANGUAGES


def defaults(call):
    """Return parameter -> default of a callable, those that its base classes take included."""
    calls = [one.__init__ for one in call.__mro__] if isinstance(call, type) else [call]
    found = {}
    for one in reversed(calls):
        found |= {p.name: p.default for p in inspect.signature(one).parameters.values() if p.default is not p.empty}
    return found


NO_SCALES = ("12", "5-1", (5, 1), 5, (1,), (1, 3, 5), (1, float("inf")))
OTHER_NAMES = {"resamples": "n_resamples", "threads": "num_threads"}
OTHER_THINGS = {"criterion", "objective", "k", "language", "instruction_place"}
"""Names of options that a callable gives to another kind of value, or whose default is a judge's or model's own."""
ALIKE = [
    (program_options.ScoringAim, LikelihoodMitigation, {"max_loss", "resamples", "seed", "reduction"}),
    (program_options.ScoringAim, BiasedDemos, {"resamples", "seed", "reduction"}),
    (program_options.ComparingAim, ZEPO, {"population", "seed"}),
    (program_options.ComparingAim, PairwiseJudge, {"ties", "instruction"}),
    (program_options.RankOptions, PairwiseJudge, {"ties", "debias", "calibration"}),
    (program_options.RankOptions, PairwiseRanker, {"seed", "orders"}),
    (program_options.LoopAim, ExternalFeedbackRefine, {"budget", "seed", "threads"}),
    (program_options.SelfOptions, summarize_loop, {"resamples"}),
    (AuditOptions, type(BIASES["likelihood"]), {"reliability"}),
]


@pytest.mark.parametrize(("group", "call", "shared"), ALIKE)
def test_a_callable_has_the_options_of_its_command_by_name_and_default(group, call, shared):
    theirs = defaults(call)
    ours = {OTHER_NAMES.get(f.name, f.name): f.default for f in fields(group) if f.default is not MISSING}
    both = ours.keys() & theirs.keys() - OTHER_THINGS
    assert {OTHER_NAMES.get(name, name) for name in shared} <= both
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}


def test_every_language_of_a_judge_and_every_bias_of_an_audit_can_be_named_and_english_is_the_default():
    (named, _) = get_args(get_type_hints(options.Prompted)["language"])
    assert get_args(named) == (*LANGUAGES,)
    for call in (PointwiseJudge, PairwiseJudge):
        assert (defaults(call)["language"], defaults(call)["cue"]) == ("en", True)
    (judge,) = scoring_judges(program_options.ScoreOptions("file", lm="embedded", criterion="wit: is it funny?"))
    assert (judge.language, judge.cue) == ("en", True)
    (named, _) = get_args(get_type_hints(options.AuditOptions)["only"])
    of_loops = {"self"}
    assert {*get_args(named)} == {name for name, bias in BIASES.items() if bias.kind == "bias"} - of_loops


def test_the_audit_takes_the_options_of_its_command_and_those_of_another_become_its_own():
    signature = inspect.signature(package.audit)
    assert list(signature.parameters) == [f.name for f in fields(AuditOptions)]
    assert signature.parameters["pairs"].default == 500
    with pytest.raises(TypeError, match="sed"):
        package.audit([], scores_field="x", sed=3)
    jury = options.JuryOptions("a.csv", judges=["x"], swapped_field="{judge}_2", reliability=0.5, seed=3)
    asked = AuditOptions.of(jury, swapped_field=None, scores_field="x")
    assert asked == AuditOptions("a.csv", reliability=0.5, seed=3, scores_field="x")
    with pytest.raises(ValueError, match="`swapped_field` goes with `winner_field`"):
        AuditOptions.of(jury)


@pytest.mark.parametrize(("texts", "values"), [
    ({"scale": "1-5"}, {"scale": (1, 5)}),
    ({"scale": [1, 5]}, {"scale": (1, 5)}),
    ({"pairs": "all"}, {"pairs": None}),
])  # fmt: skip
def test_a_scale_and_pairs_are_read_in_python_as_a_terminal_takes_them(texts, values):
    rows = [{"source": f"s{k}", "output": "a" * (k % 7 + 1), "score": k % 5 + 1, "mine": k % 4 + 1} for k in range(40)]
    of_texts, of_values = (package.audit(rows, scores_field="mine", **how) for how in (texts, values))
    assert of_texts.to_dict() == of_values.to_dict()
    assert "on the scale of 1 to 5" in str(of_texts) or "scale" not in texts


test_another_text_is_refused_in_python_by_the_option_its_value_and_the_remedy = refusals(
    lambda texts: package.audit([{"output": "a", "mine": 1}], scores_field="mine", **texts),
    *(({"scale": text}, "`scale` .*: write the lowest and the highest score as 1-5") for text in NO_SCALES),
    ({"pairs": 0}, "`pairs` 0: give a number of at least 1, or 'all'"),
    ({"labels": "1, 2"}, r"`labels` is the text '1, 2': give a list, such as \['1', '2'\]"),
    ({"features": "digits"}, r"`features` is the text 'digits': give a list, such as \['digits'\]"),
    ({"mapping": "score=mine"}, "`mapping` is the text 'score=mine': give a dict"),
    ({"reliability": ".8"}, "`reliability` is the text '.8': give a number"),
)


@pytest.mark.parametrize("measure", [recorded_scores, function_scores])
def test_the_scale_of_answers_is_read_alike(measure):
    examples = package.data.read([{"output": "abc", "mine": 3}, {"output": "ab", "mine": 2}])
    judge = "mine" if measure is recorded_scores else lambda e: len(e.output)
    assert measure(examples, judge, scale="1-5").scale == (1, 5)
    with pytest.raises(ValueError, match=r"`scale` \(5, 1\): write the lowest and the highest score"):
        measure(examples, judge, scale=(5, 1))


def test_single_outputs_are_drawn_as_many_pairs_by_both_doors():
    items = world.documents(40, 6, seed=3)
    judge = PairwiseJudge(SYNTHETIC)
    asked = AuditOptions(items, judge=judge, seed=1)
    assert len(resolve(asked).questions) == 500  # of 600
    assert len(resolve(replace(asked, pairs=None)).questions) == 600


def test_every_option_has_help_and_one_spelling():
    for _, asked in COMMANDS.values():
        for group in (asked, *asked.beside):
            for field in fields(group):
                assert field.name in options.PYTHON_ONLY or parameter(group, field).annotation
    assert FLAGS.keys() <= NAMES
    assert {name for names in SECTIONS.values() for name in names.split()} <= NAMES | {"help"}
    for group in options.GROUPS:
        assert all(f"    {one.name}: " in group.__doc__ for one in fields(group)), group
    assert as_typed("give `scores_field` and ``mapping``, not `other`") == "give --scores-field and --map, not `other`"


def test_optimize_takes_the_options_of_its_aims():
    assert {aim.options for aim in AIMS.values()} == {*program_options.OptimizeOptions.__bases__}
    asked = program_options.OptimizeOptions("a.csv", lm="m", budget=3, task="mathematics")
    given = {"data", "lm", "task"}
    forms = {name: aim.options for name, aim in AIMS.items()}
    assert narrowed(asked, "self-bias", forms, {*given, "budget"}).k == 4  # its own default
    with pytest.raises(ValueError, match="budget"):
        narrowed(asked, "likelihood", forms, {*given, "budget"})


def test_files_count_by_content_and_models_by_identity(tmp_path):
    (tmp_path / "judge.json").write_text("{}")
    kept = recorded(program_options.ScoreOptions("a.csv", lm="m", judge=tmp_path / "judge.json"))
    assert (len(kept["judge"]), kept["data"]) == (64, "a.csv")
    assert kept.keys() == {"data", "seed", "judge", "refused", "no_cue"}  # neither models nor what is not given


def files_passed(work):
    """Return the files of ours whose functions a piece of work passes, once it has imported what it needs."""
    root, passed = Path(package.__file__).parents[1], set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            passed.add(frame.f_code.co_filename)

    work()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = {Path(file).resolve() for file in passed}
    return sorted(f"{f}" for f in files if f.suffix == ".py" and {*f.parents} & {*map(root.joinpath, SOURCES)})


def auditing(folder):
    rows = [f"q{k},{'a ' * (1 + k % 5)},{k % 5},{1 + k % 4},{k % 4 + 2}" for k in range(30)]
    (folder / "replies.csv").write_text("\n".join(["source,output,mine,rating_1,rating_2", *rows]))
    words = ["-q", "audit", "--data", "replies.csv", "--scores-field", "mine", "--out", "run"]
    return lambda: evalbias(*words, cwd=folder)


def compiling(_):
    sets = {"trainset": fakes.items(60, seed=1), "valset": fakes.items(30, seed=2)}
    optimizer = BiasedDemos(4, select=False, n_resamples=99)
    return lambda: optimizer.compile(PointwiseJudge(SYNTHETIC), **sets, lm=fakes.FormulaLM())


def scoring(_):
    lm, judge, examples = package.embedded_judge_lm(), PointwiseJudge(SYNTHETIC), world.examples(2, seed=1)
    return lambda: judge.batch(examples, lm=lm)


@pytest.mark.slow
# how a terminal reads options, and what a baseline keeps, have modules of their own
@pytest.mark.parametrize(("prepared", "most"), [(auditing, 41), (compiling, 25), (scoring, 17)])
def test_a_way_through_passes_few_files(prepared, most, tmp_path):
    files = files_passed(prepared(tmp_path))
    assert 5 < len(files) <= most, " ".join(files)
