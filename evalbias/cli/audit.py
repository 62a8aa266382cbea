"""``evalbias audit``: the answers to audit, and conditions for a build."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from evalbias import data as data_sets
from evalbias.cli.items import Task, criteria_of
from evalbias.cli.options import ModelOptions, read_scale
from evalbias.cli.run import Run
from evalbias.cli.terminal import say
from evalbias.data.cells import choice_codes
from evalbias.data.columns import parse_mapping
from evalbias.evaluation.answers import answers_of, criterion_asked, load_any_judge, pairs_for, recorded_fields
from evalbias.evaluation.audit import AGREEMENT, Audit, audit_answers, group_field
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import Estimate
from evalbias.programs import PairwiseJudge, PointwiseJudge
from evalbias.programs.items import candidates_of
from evalbias.report.tables import audit_view
from evalbias.values import file_digest

# Conditions under which an audit fails a build, such as ``likelihood>0.2``.


OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*([a-z][a-z_ -]*?)(?:\.([^<>]*[^<>\s]))?\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+))\s*")


@dataclass(frozen=True)
class Condition:
    """A condition on one number of an audit.

    Attributes:
        text: The condition as the user wrote it.
        bias: Name of the bias, or ``"agreement"``.
        estimate: Name of the estimate; None for the headline of a bias.
        operator: One of ``OPERATORS``.
        limit: Number to compare with.
    """

    text: str
    bias: str
    estimate: str | None
    operator: str
    limit: float

    def reason(self, audit: Audit) -> str:
        """Say why the condition is met, or why it cannot be checked, which fails too; empty where it is not met.

        Of a bias, the distance from an unbiased judge is compared, whatever its direction; of an agreement, the number
        itself.

        Raises:
            ValueError: The audit has no estimate of this name.
        """
        estimate, value = self._measured(audit)
        name = self.bias if self.estimate is None else f"{self.bias}.{self.estimate}"
        if math.isnan(value):
            known = "" if estimate is None else estimate.reason
            why = audit.not_measured.get(self.bias) or known or "the number is undefined"
            return f"{self.text}: {name} was not measured ({why})"
        met = OPERATORS[self.operator](value, self.limit)
        return f"{self.text}: {name} is {value:.3g}" if met else ""

    def _measured(self, audit: Audit) -> tuple[Estimate | None, float]:
        """Return the estimate and the number to compare; NaN where there is none."""
        measurement = audit.measurements.get(self.bias)
        if self.estimate is None:
            found = next((f.estimate for f in audit.verdict.findings if f.bias == self.bias), None)
            return found, math.nan if found is None else abs(found.value)
        if measurement is None:
            return None, math.nan
        estimate = measurement.estimates.get(self.estimate)
        if estimate is None:
            raise ValueError(
                f"--fail-on {self.text}: {self.bias} has no estimate {self.estimate!r} here, only "
                f"{', '.join(measurement.estimates)}."
            )
        if estimate.null is None or self.bias == AGREEMENT:
            return estimate, estimate.value
        return estimate, abs(estimate.value - estimate.null)


def parse_conditions(texts: Sequence[str]) -> list[Condition]:
    """Read conditions of the form ``BIAS>NUMBER`` or ``BIAS.ESTIMATE<NUMBER``, several in one text parted by commas.

    Raises:
        ValueError: A condition has another form, or names no bias.
    """
    return [_parse(part) for text in texts for part in text.split(",")]


def _parse(text: str) -> Condition:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(
            f"--fail-on {text!r} is no condition: write BIAS>NUMBER, such as 'likelihood>0.2', or "
            "'agreement.spearman<0.3'."
        )
    bias, estimate, comparison, limit = match.groups()
    bias = re.sub("[ -]", "_", bias)  # tables say scale use and self-preference
    known = [*(name for name in BIASES if name != AGREEMENT), AGREEMENT]
    if bias not in known:
        raise ValueError(f"--fail-on {text}: {bias!r} is unknown, choose one of {', '.join(known)}.")
    if bias == AGREEMENT and estimate is None:
        raise ValueError(f"--fail-on {text}: name the estimate of the agreement, such as agreement.spearman<0.3.")
    return Condition(text.strip(), bias, estimate, comparison, float(limit))


# Run an audit for a command: open the models, gather the answers, leave result and page in the run's folder.


@dataclass(frozen=True)
class Audited:
    """The judge that a command audits, and what it says about it.

    Attributes:
        judge: File of a judge of evalbias; it answers with the model of ``--lm``. None with a model and no recorded
            answers is a new judge of the criterion.
        scores_field: Field of recorded scores.
        winner_field: Field of recorded choices.
        swapped_field: Field of recorded choices in the swapped order.
        better_field: Field of people's choices.
        labels: Codes of the first output, the second and a tie in the fields of choices, with commas between them.
        own_system: Name of the judge's own system among the writers.
        reliability: Reliability of a single rating.
        by: Field whose values name groups of items.
    """

    judge: Path | None
    scores_field: str | None
    winner_field: str | None
    swapped_field: str | None
    better_field: str
    labels: str | None
    own_system: str | None
    reliability: float | None
    by: str | None

    def recorded(self) -> dict[str, Any]:
        """Return what ``data.read`` must know about the fields."""
        codes = choice_codes(self.labels)
        return recorded_fields(self.scores_field, self.winner_field, self.swapped_field, self.better_field, codes)

    @property
    def is_recorded(self) -> bool:
        """True if the judge's answers are in the data."""
        return self.scores_field is not None or self.winner_field is not None

    def check(self, lm: str | None) -> None:
        """Refuse options that do not go together.

        Raises:
            BadParameter: No judge is named, or several, or an option has nothing to do with it.
        """
        named = sum(given is not None for given in (self.judge, self.scores_field, self.winner_field))
        if named > 1 or (not named and lm is None):
            raise typer.BadParameter(
                "name one judge: --lm MODEL with --criterion 'name: definition' or --judge FILE, --scores-field, or "
                "--winner-field."
            )
        if self.judge is not None and lm is None:
            raise typer.BadParameter("--judge answers with a model: name it with --lm.")
        if self.swapped_field is not None and self.winner_field is None:
            raise typer.BadParameter("--swapped-field goes with --winner-field, the choices in the order of outputs.")


def run_audit(
    spec: str,
    asked: Audited,
    *,
    columns: list[str] | None,
    criterion: str | None,
    written: Mapping[str, str | None],
    scale: str | None,
    lm: str | None,
    likelihood_lm: str | None,
    limit: int | None,
    models: ModelOptions,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> Audit:
    """Audit the judge, print the result and return it."""
    mapping = parse_mapping(columns or ())
    items = data_sets.read(spec, mapping=mapping, **asked.recorded())
    if items.left_out:
        say(items.summary())
    if not items:
        raise ValueError(f"{spec} holds no items to judge: give at least one row with an output.")
    examples = list(items)
    if asked.is_recorded or asked.judge is not None:
        judge = None if asked.judge is None else load_any_judge(asked.judge)
        ends = None if scale is None else read_scale(scale)
        named = criterion_asked(judge, spec, examples, criterion, ends, **written)
    else:
        judge, ends = _new_judge(spec, examples, criterion, scale, written), None
        named = judge.criterion
    if isinstance(judge, PairwiseJudge):
        examples = pairs_for(judge, items, limit, seed, better=asked.better_field)
    task = Task(spec, items.sha256, (named,), None, [], examples, left_out=items.left_out, mapping=mapping)
    options: dict[str, Any] = {name: value for name, value in asdict(asked).items() if value is not None}
    if judge is not None:
        options["judge"] = f"new {judge.kind}" if asked.judge is None else file_digest(asked.judge)
    else:  # the scale is that of the recorded scores; a criterion's own is of prompts, and none is made
        options["scale"] = ends
        options["criteria"] = [{name: value for name, value in asdict(named).items() if name != "scale"}]
    with Run(
        "audit", task, lm=lm, likelihood_lm=likelihood_lm, models=models, seed=seed, out=out, options=options
    ) as run:
        with run.progress(_answers(judge, len(examples))) if run.likelihood_lm is not None else nullcontext():
            judged = answers_of(
                examples,
                judge=judge,
                scores_field=asked.scores_field,
                winner_field=asked.winner_field,
                swapped_field=asked.swapped_field,
                better_field=asked.better_field,
                lm=run.lm,
                likelihood_lm=run.likelihood_lm if judge is None or likelihood_lm is not None else None,
                criterion=named,
                scale=ends,
            )
        found = audit_answers(
            judged,
            own_system=asked.own_system,
            reliability=asked.reliability,
            by=group_field(items, asked.by),
            seed=seed,
        )
        brief, coverage = found.to_dict(), {found.judged.criterion: found.judged.coverage}
        run.finish(
            {"audit": brief, "measurements": found.measurements},
            brief,
            as_json,
            audit_view(found),
            coverage if len(found.judged.coverage) else {},
            found=found,
            verdict=found.verdict.paragraphs[0],
        )
    return found


def _new_judge(
    spec: str, items: Sequence[Any], criterion: str | None, scale: str | None, written: Mapping[str, str | None]
) -> PointwiseJudge | PairwiseJudge:
    """Return a judge of the criterion: one that compares where the data hold pairs, else one that scores."""
    named = criteria_of(spec, None if criterion is None else [criterion], scale, written=written)
    if len(named) > 1:
        raise typer.BadParameter(f"name one of the criteria {', '.join(one.name for one in named)} with --criterion.")
    kind = PairwiseJudge if any(candidates_of(item) for item in items) else PointwiseJudge
    return kind(named[0])


def _answers(judge: Any, items: int) -> int:
    """Return about how many answers of models are needed: judgments, and likelihoods of every text."""
    if judge is None:
        return items
    return 4 * items if isinstance(judge, PairwiseJudge) else 2 * items
