"""Does compiling help real pretrained judges, on items that nothing was fitted to or chosen on?

usage: python -m benchmarks.mitigation FOLDER [--judges NAME ...] [--sets NAME ...] [--criteria NAME ...]
           [--dtype bfloat16] [--train 240] [--test 200] [-k 4] [--seed 0] [--resamples 2000] [--write]

The models come from ``make models``, the ratings from EVALBIAS_DATA. FOLDER keeps every answer of a judge's model, so
that a stopped run goes on, and another rule of choice asks nothing again; ``--judges`` with no name runs no row.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import dspy

from benchmarks import sets
from benchmarks.harness import argument_parser, as_text, finish, keeping_answers, markdown
from benchmarks.pretrained import GEMMA3, SMOLLM2, models_folder
from benchmarks.sets import BINS
from benchmarks.tuned_judge import questions
from evalbias import LikelihoodMitigation, PointwiseJudge
from evalbias.data.items import by_input, input_key
from evalbias.evaluation.judged import RATINGS, Judged
from evalbias.evaluation.words import p_equals
from evalbias.optimizers import rules
from evalbias.optimizers.base import Problem
from evalbias.optimizers.likelihood import against_baselines, baseline_facts
from evalbias.optimizers.rules import CHOICE_LEVEL, PEARSON, Rule, fair_rule, likelihood_rule
from evalbias.optimizers.selection import GIVEN, Candidate, Cost, Selection, choose
from evalbias.programs.criterion import PRESETS, Criterion
from evalbias.values import json_number, to_json

ADAPTER = Path(questions.__file__).parent / "adapter"
TUNED = "SmolLM2, tuned"
JUDGES = {"SmolLM2": (SMOLLM2, None), TUNED: (SMOLLM2, str(ADAPTER)), "Gemma 3": (GEMMA3, None)}
"""Judge -> its file in the models' folder, and its adapter."""

CASES = (
    ("tmu-gfm", "fluency"),
    ("tmu-gfm", "grammar"),
    ("webnlg2020", "fluency"),
    ("webnlg2020", "data_coverage"),
    ("summeval", "fluency"),
    ("topicalchat", "naturalness"),
    ("newsroom", "fluency"),
)
"""Data set and criterion of every row; the last two have one rating an item."""


def open_judge(name: str, dtype: str) -> Any:
    """Load a judge's model, a ``LocalLM``."""
    from evalbias import LocalLM  # it loads torch

    file, adapter = JUDGES[name]
    return LocalLM(str(models_folder() / file), adapter=adapter, dtype=dtype)


def criterion_of(data_set: str, name: str) -> Criterion:
    """Return a data set's criterion."""
    return next(c for c in PRESETS[data_set] if c.name == name)


def usable(data_set: str, criterion: str, *, tuned: bool) -> list[dspy.Example]:
    """Return the rated items of a data set; for the tuned judge, those of inputs that it was not trained on.

    Items without the single ratings are left out where others have them.
    """
    if data_set in questions.SETS:
        rated = questions.rated(data_set)
        trained_on = data_set in questions.PERMISSIVE
        items = rated.test if tuned and trained_on else [*rated.train, *rated.test]
    else:
        items = list(sets.read(data_set))
    defined = [e for e in items if e.scores[criterion] == e.scores[criterion]]
    several = [e for e in defined if "ratings" in e]
    return several or defined


def drawn(items: Sequence[dspy.Example], train: int, test: int, seed: int) -> tuple[list[Any], list[Any]]:
    """Draw a training set and a test set that share no input, with outputs taken evenly from the inputs."""
    inputs = list(by_input(items).values())
    rng = random.Random(seed)
    rng.shuffle(inputs)
    cut = round(len(inputs) * train / (train + test))
    return _evenly(inputs[:cut], train, rng), _evenly(inputs[cut:], test, rng)


def _evenly(inputs: Sequence[Sequence[dspy.Example]], count: int, rng: random.Random) -> list[dspy.Example]:
    """Take one output after another from every input in turn."""
    left = [rng.sample(list(outputs), len(outputs)) for outputs in inputs]
    taken: list[dspy.Example] = []
    while len(taken) < count and any(left):
        for outputs in left:
            if outputs and len(taken) < count:
                taken.append(outputs.pop())
    return taken


PAPER = "highest RS (sum LS)"
"""End of the name of the paper's method."""
CALIBRATED = "likelihood calibration"
"""Part of the names of the calibrated judges, which share their judgments: all strengths cost no more than one."""
LOST = ("loses", "orders")
"""Beginnings of the reason for which a judge agrees significantly less."""
MAX_LOSS = 0.05
"""Loss of agreement that the second choice of every row allows; the first allows no significant one."""


class KeptSearch(LikelihoodMitigation):
    """Keeps its search, so that another rule can choose from what it tried."""

    problem: Problem
    found: list[Candidate]

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Keep the problem and the candidates."""
        self.problem, self.found = problem, super().candidates(problem)
        return self.found

    def chosen_with(self, max_loss: float) -> Selection:
        """Choose once more where a loss of agreement is allowed; the model keeps its answers (``CachedLM``)."""
        lenient = copy(self)
        lenient.max_loss = max_loss
        inputs = len(set(map(input_key, self.problem.held_back)))
        how: Any = {"test": lambda program: self.tested(self.problem, program), "spent": Cost, "inputs": inputs}
        return choose(self.problem.given, self.found, lenient.rules(self.problem), **how)

    def on_test_items(self, names: Collection[str]) -> dict[str, Judged]:
        """Return the answers on the valset of the given judge, the paper's method, the calibrated judges and others."""
        programs = {GIVEN: self.problem.student} | {
            candidate.name: candidate.program
            for candidate in self.found
            if candidate.name in names or candidate.name.endswith(PAPER) or CALIBRATED in candidate.name
        }
        return {name: self.answers(self.problem, program, self.problem.valset) for name, program in programs.items()}


def compiled(
    criterion: Criterion,
    train: list[dspy.Example],
    test: list[dspy.Example],
    lm: Any,
    *,
    k: int,
    bins: Sequence[float] | None,
    seed: int,
    n_resamples: int,
) -> dict[str, Any]:
    """Compile, and return what was chosen, with ``MAX_LOSS`` too, and every candidate's estimates on the test items."""
    optimizer = KeptSearch((k,), bins=bins, seed=seed, n_resamples=n_resamples)
    report = optimizer.compile(PointwiseJudge(criterion), trainset=train, valset=test, lm=lm).report
    chosen = next(candidate.name for candidate in report.candidates if candidate.chosen)
    with_loss = optimizer.chosen_with(MAX_LOSS)
    lenient = GIVEN if with_loss.chosen is optimizer.problem.given else with_loss.chosen.name
    tried = optimizer.on_test_items((chosen, lenient))
    before = tried[GIVEN]
    number = rules.bias_number(before.covariates.get(RATINGS))
    how: Any = {"n_resamples": n_resamples, "seed": seed}
    rule, agreement = likelihood_rule(number, seed=seed), fair_rule(number, seed=seed)
    problem = optimizer.problem
    facts = baseline_facts(problem.fit, criterion, problem.likelihood_lm, reduction=optimizer.reduction)
    alone = against_baselines(tried[chosen], facts, **how)
    return {
        "decision": report.decision,
        "chosen": chosen,
        "chosen_with_loss": lenient,
        "decision_with_loss": with_loss.decision,
        "paper": next((name for name in tried if name.endswith(PAPER)), None),
        "objective": rules.BIAS_LABELS[number],
        "tried": {name: _row(rule, agreement, judged, before) for name, judged in tried.items()},
        "inner": {made.name: {"p_value": made.p_value, "reason": made.reason} for made in report.candidates},
        "alone": {name: _estimate(e) for name, e in alone["baselines"].items()},
        "against_baselines": alone["against_baselines"],
        "left_out": report.left_out,
        "inputs": {"train": len(set(map(input_key, train))), "test": len(set(map(input_key, test)))},
        "items": {"train": len(train), "test": len(test)},
        "cost": report.cost.to_dict(),
    }


def _row(rule: Rule, agreement: Rule, judged: Judged, before: Judged) -> dict[str, Any]:
    return {
        "estimates": {name: _estimate(e) for name, e in rule.estimates(judged).items()},
        "p_smaller": rule.p_values([judged], before)[0],
        "p_agrees": agreement.p_values([judged], before)[0],
        "loss": rule.loss(judged, before),
        "undefined": judged.unanswered - before.unanswered,
    }


def _estimate(estimate: Any) -> Mapping[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}


Row = Mapping[str, Any]
HEADINGS = ("judge", "data set, criterion", "form", "likelihood bias", "BiasScore", "agreement", "performance")


def report(rows: Sequence[Row]) -> str:
    """Return the section as Markdown."""
    done = [row for row in rows if "tried" in row]
    settings = sorted({_settings(row) for row in done})
    return "\n\n".join(
        [
            "## Compiling the likelihood bias out of real judges",
            "*Given* is the judge without demonstrations, *paper* the demonstrations of highest RS, *compiled* what "
            f"`LikelihoodMitigation` returned, *with loss* what it returned where `max_loss={MAX_LOSS:g}` allows a "
            "fall in agreement (Pearson), if that is another judge. All estimates are of held-out "
            "inputs, with 95 % intervals over inputs. Likelihood bias is the likelihood effect; where every item has "
            "a single rating, it is the z-scored BiasScore (z), which confounds noise in the ratings with bias. "
            "*Likelihood alone* and *length alone* rank by more or by less of it, whichever people prefer in the "
            f"training items. {'; '.join(settings)}.",
            markdown([*HEADINGS, "against the given one"], [line for row in done for line in lines(row)]),
            *(f"{row['judge']} on {row['set']} was not run: {row['why_not']}." for row in rows if "why_not" in row),
            summary(done),
        ]
    )


def lines(row: Row) -> list[list[str]]:
    """Return a row's lines: the judge in its three forms, then the two baselines that read no text."""
    title = f"{row['set']}, {row['criterion']} ({row['items']['test']} outputs of {row['inputs']['test']} inputs)"
    forms = [("given", "given"), ("paper", row["paper"]), ("compiled", row["chosen"])]
    if row["chosen_with_loss"] != row["chosen"]:
        forms.append(("with loss", row["chosen_with_loss"]))
    judges = [
        [row["judge"], title, f"{form}: {name}" if form in ("compiled", "with loss") else form, *_cells(row, name)]
        for form, name in forms
        if name is not None
    ]
    alone = [[row["judge"], title, name, "", "", "", interval_of(e), ""] for name, e in row["alone"].items()]
    return [*judges, *alone]


def _cells(row: Row, name: str) -> list[str]:
    tried = row["tried"][name]
    estimates = tried["estimates"]
    name_of_bias, bias = next(iter(estimates.items()))
    mark = " (z)" if name_of_bias == "bias_score_z" else ""
    against = ""
    if name != "given":
        loss = tried["loss"] or "no loss"
        smaller, agrees = (p_equals(json_number(tried[name])) for name in ("p_smaller", "p_agrees"))
        against = f"less biased {smaller}, agrees better {agrees}; {loss}"
    agreement, performance = interval_of(estimates[PEARSON.name]), interval_of(estimates["performance"])
    score = as_text(json_number(estimates["bias_score"]["value"]), "+.2f")
    return [interval_of(bias) + mark, score, agreement, performance, against]


def summary(rows: Sequence[Row]) -> str:
    """Count in how many rows the compiled judge keeps what it promises."""
    with_paper = [row for row in rows if row["paper"] is not None]
    harmed = [row for row in with_paper if row["tried"][row["paper"]]["loss"].startswith(LOST)]
    above = [row for row in with_paper if _above(row)]
    unbeaten = [row for row in rows if "not significantly better" in row["against_baselines"]]
    points = [
        f"Compiled: {_kept(rows, 'chosen')}",
        f"Compiled where a loss of {MAX_LOSS:g} is allowed: {_kept(rows, 'chosen_with_loss')}",
        f"The paper's method loses agreement significantly in {len(harmed)} of {len(with_paper)} rows.",
        f"In {len(above)} of {len(with_paper)} rows, the given judge, one of its calibrated forms or the compiled "
        "judge has no more bias than the paper's method and no lower agreement.",
        f"In {len(unbeaten)} of {len(rows)} rows, the judge does not agree with people significantly better than "
        "likelihood alone or length alone.",
    ]
    return "\n".join(f"- {point}" for point in points)


def _kept(rows: Sequence[Row], form: str) -> str:
    compiled = [row for row in rows if row[form] != "given"]
    kept = f"the given judge was kept in {len(rows) - len(compiled)} of {len(rows)} rows."
    if not compiled:
        return kept
    lost = [_name(row) for row in compiled if row["tried"][row[form]]["loss"].startswith(LOST)]
    halved = [row for row in compiled if _bias(row, row[form]) <= _bias(row, "given") / 2]
    gained = [row for row in compiled if json_number(row["tried"][row[form]]["p_agrees"]) < CHOICE_LEVEL]
    return (
        f"{kept} In the other {len(compiled)}, the bias was at least halved in {len(halved)}, and agreement was "
        f"gained significantly in {len(gained)} and lost significantly in {len(lost)}"
        f"{': ' + ', '.join(lost) if lost else ''}."
    )


def _above(row: Row) -> bool:
    bias, agreement = _bias(row, row["paper"]), _agreement(row, row["paper"])
    return any(
        _bias(row, name) <= bias and _agreement(row, name) >= agreement
        for name in row["tried"]
        if name in ("given", row["chosen"]) or name.startswith("likelihood calibration")
    )


def _settings(row: Row) -> str:
    return f"{row['judge']}: {row['lm']['model']}, {row['lm']['dtype']}, k = {row['k']}, seed {row['seed']}"


def _name(row: Row) -> str:
    return f"{row['judge']} on {row['set']} {row['criterion']}"


def _bias(row: Row, name: str) -> float:
    first = next(iter(row["tried"][name]["estimates"].values()))
    return abs(json_number(first["value"]))


def _agreement(row: Row, name: str) -> float:
    return json_number(row["tried"][name]["estimates"][PEARSON.name]["value"])


def interval_of(estimate: Mapping[str, Any]) -> str:
    """Return a value with its interval, if it has one."""
    value, low, high = (as_text(json_number(estimate[key]), "+.2f") for key in ("value", "low", "high"))
    return value if value == low == high else f"{value} [{low}, {high}]"


FEWEST = 40
"""Fewest inputs with which a row is run: an inner test needs a quarter of them."""


def main() -> None:
    """Parse the command line and run the rows."""
    parser = argument_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--judges", nargs="*", choices=list(JUDGES), default=list(JUDGES))
    parser.add_argument("--sets", nargs="+", default=list(dict.fromkeys(name for name, _ in CASES)))
    parser.add_argument("--criteria", nargs="+", default=list(dict.fromkeys(name for _, name in CASES)))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--train", type=int, default=240)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("--resamples", type=int, default=2000)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for judge in args.judges:
        lm = open_judge(judge, args.dtype)
        slug = judge.replace(", ", "-").replace(" ", "-").lower()
        journal = keeping_answers(lm, args.folder / f"{slug}.journal.jsonl")
        for data_set, name in CASES:
            if data_set not in args.sets or name not in args.criteria:
                continue
            items = usable(data_set, name, tuned=judge == TUNED)
            train, test = drawn(items, args.train, args.test, args.seed)
            row = {"judge": judge, "set": data_set, "criterion": name, "k": args.k, "seed": args.seed}
            row["lm"] = lm.provenance()
            inputs = len(set(map(input_key, items)))
            if inputs < FEWEST:
                row["why_not"] = f"only {inputs} inputs are left that the judge was not trained on"
            else:
                started = time.monotonic()
                settings = {"k": args.k, "bins": BINS.get(data_set), "seed": args.seed, "n_resamples": args.resamples}
                row |= compiled(criterion_of(data_set, name), train, test, journal, **settings)
                row["seconds"] = round(time.monotonic() - started)
                print(f"{judge}, {data_set}, {name}: {row['seconds']} s. {row['decision']}", file=sys.stderr)
            file = args.folder / f"{slug}.{data_set}.{name}.{args.seed}.json"
            file.write_text(json.dumps(to_json(row), indent=1) + "\n", encoding="utf-8")
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(args.folder.glob("*.json"))]
    finish(args, "mitigation", report(rows))


if __name__ == "__main__":
    main()
