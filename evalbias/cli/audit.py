"""``evalbias audit``: audit any judge, and fail a build on conditions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence, Set
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from operator import ge, gt, le, lt
from typing import Any

import typer

from evalbias.cli.run import Run, RunOutcome, Split
from evalbias.cli.terminal import UNDECIDED, say
from evalbias.data.items import DataError, number
from evalbias.evaluation.answers import PreparedAudit, prepared
from evalbias.evaluation.audit import AGREEMENT, Audit, audit
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.verdicts import PassOrFail, labels_to_decide
from evalbias.options import AuditOptions, AuditOut, MeasuringModels, Models
from evalbias.programs import PairwiseJudge
from evalbias.report.tables import audit_view
from evalbias.values import file_digest, message


def audit_command(options: AuditOptions, models: MeasuringModels, out: AuditOut) -> None:
    """Audit the judge; exit with 1 if a condition fails the build, with ``UNDECIDED`` if one is undecided."""
    conditions, rates = parse_conditions(out.fail_on), parse_rates(out.certify)
    if options.judge is not None and options.lm is None:
        raise ValueError("`judge` answers with a model: name it with `lm`.")
    if options.is_recorded:
        refuse_unused(out.given)
    ready = prepared(options)  # all that can be wrong is told before a model is opened
    if ready.dataset.left_out:
        say(ready.dataset.summary())
    with Run("audit", ready, models, out, more=_settings(options, ready)) as run:
        has_model = run.likelihood_lm is not None
        with run.progress(_answers_needed(ready)) if has_model else nullcontext():
            audited = audit(run.options)
        content, judged = audited.to_dict(), audited.judged
        run.leave(
            RunOutcome(
                {"audit": content, "measurements": audited.measurements},
                content,
                [audit_view(audited)],
                {judged.criterion: judged.coverage} if len(judged.coverage) else {},
                page=audited,
                verdict=audited.answer,
            )
        )
    decided = [condition.decide(audited) for condition in conditions]
    for code, why in decided:
        if code:
            typer.echo(message(f"{'undecided' if code == UNDECIDED else 'failed'}: {why}"), err=True)
    for code, why in (certificates := [certified(rate, audited) for rate in rates]):
        said = {0: "certified", UNDECIDED: "undecided"}.get(code, "not certified")
        typer.echo(message(f"{said}: {why}"), err=True)
    decided += certificates
    if codes := {code for code, _ in decided if code}:
        raise typer.Exit(min(codes))  # one that fails decides


def _settings(options: AuditOptions, ready: PreparedAudit) -> dict[str, Any]:
    """Return what decides the numbers besides the options."""
    split = Split(ready.dataset, (ready.criterion,), ready.questions)
    settings = {**split.settings(), "criterion": ready.criterion.name, "judge": None}
    if ready.judge is not None:
        settings["judge"] = f"new {ready.judge.kind}" if options.judge is None else file_digest(options.judge)
    else:  # a criterion's own scale is of prompts, and none is made
        settings["criteria"] = [{name: value for name, value in asdict(ready.criterion).items() if name != "scale"}]
    return settings


def _answers_needed(options: PreparedAudit) -> int:
    """Return about how many answers of models are needed: judgments, and likelihoods of every text."""
    if options.judge is None:
        return len(options.questions)
    return (4 if isinstance(options.judge, PairwiseJudge) else 2) * len(options.questions)


OF_LM = {"api_base", "api_key_env", "tokenizer", "adapter", "template_options", "dialect", "workers"}  # of ``lm`` alone


def refuse_unused(given: Set[str]) -> None:
    """Refuse options on the command line (``given``) that decide nothing in an audit of recorded answers."""
    of_models = {*Models.__annotations__, *MeasuringModels.__annotations__} - {"yes"}
    sampling = {"samples", "sample_temperature", "sample_tokens"}
    prompt = {"task", "source_label", "output_label", "language"}
    both = {"lm", "likelihood_lm"} <= given
    no_model = not given & {"lm", "likelihood_lm"}
    unused: list[tuple[bool, set[str], str]] = [
        (True, {"pairs", *sampling}, "recorded answers are taken as they are"),
        ("scores_field" in given, {"swapped_field", "labels"}, "for choices, and `scores_field` names scores"),
        ("samples_field" in given, {"swapped_field", "labels"}, "for choices, and `samples_field` names scores"),
        ("winner_field" in given, {"scale"}, "recorded choices have no scale"),
        (no_model, prompt | of_models, "no model is asked; the likelihood bias needs one, `lm`"),
        (both, {"lm"}, "recorded answers take one model, that of the likelihood"),
        ("lm" not in given, OF_LM, "for the model of `lm`; name the model of the likelihood there"),
    ]
    for applies, names, reason in unused:
        if applies and (named := sorted(given & names)):
            raise ValueError(f"Leave out {', '.join(f'`{name}`' for name in named)}: {reason}.")


# Conditions under which an audit fails a build, such as ``likelihood>0.2``, or that it must show, ``likelihood<0.2?``.
OPERATORS: dict[str, Callable[[float, float], bool]] = {">=": ge, "<=": le, ">": gt, "<": lt}
_FORM = re.compile(r"\s*([a-z][a-z_ -]*?)(?:\.([^<>]*[^<>\s]))?\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+))\s*(\?)?\s*")


@dataclass(frozen=True)
class Condition:
    """A condition on one number of an audit, which the 95 % interval of the number decides.

    It is shown where it holds at both ends, its contrary where it holds at neither, and else it is undecided. So a
    judge that is measured twice gets 0 once and 1 once in less than 5 % of such pairs, whatever its bias is.
    """

    text: str  # as the user wrote it
    bias: str  # or ``"agreement"``
    estimate: str | None  # None for the headline of a bias
    operator: str  # one of ``OPERATORS``
    limit: float
    required: bool = False  # whether it must be shown, and its contrary fails the build

    def decide(self, audit: Audit) -> tuple[int, str]:
        """Return the exit code, and why: 1 where the build fails, ``UNDECIDED``, or 0.

        Of a bias, its distance from an unbiased judge is compared; of an agreement, the number. One not measured fails.
        """
        e = self._measured(audit)
        name = self.bias if self.estimate is None else f"{self.bias}.{self.estimate}"
        if e is None or math.isnan(e.low + e.high):
            why = audit.not_measured.get(self.bias) or ("the number is undefined" if e is None else e.why_undefined)
            return 1, f"{self.text}: {name} was not measured ({why})"
        value, low, high = e.value, e.low, e.high
        if e.null is not None and self.bias != AGREEMENT:
            value, below, above = abs(value - e.null), e.null - low, high - e.null
            low, high = max(-below, -above, 0.0), max(below, above)
        shown = {OPERATORS[self.operator](end, self.limit) for end in (low, high)}
        code = UNDECIDED if len(shown) > 1 else int(shown == {not self.required})
        told = "not known" if math.isnan(value) else f"{value:.3g}"  # of bounds, only the interval is known
        return code, f"{self.text}: {name} is {told} (95 % interval {low:.3g} to {high:.3g})"

    def _measured(self, audit: Audit) -> Estimate | None:
        if self.estimate is None:
            return next((f.estimate for f in audit.findings if f.bias == self.bias), None)
        if (measurement := audit.measurements.get(self.bias)) is None:
            return None
        if self.estimate not in measurement:
            raise ValueError(
                f"--fail-on {self.text}: {self.bias} has no estimate {self.estimate!r} here, only "
                f"{', '.join(measurement.estimates)}."
            )
        return measurement[self.estimate]


def parse_conditions(texts: Sequence[str]) -> list[Condition]:
    """Read conditions such as ``BIAS>NUMBER`` or ``BIAS.ESTIMATE<NUMBER``, also several of them parted by commas."""
    return [_parse(part) for text in texts for part in text.split(",")]


def _parse(text: str) -> Condition:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(
            f"--fail-on {text!r} is no condition: write BIAS>NUMBER, such as 'likelihood>0.2', "
            "'agreement.spearman<0.3', or what must be shown, 'likelihood<0.2?'."
        )
    bias, estimate, comparison, limit, required = match.groups()
    bias = re.sub("[ -]", "_", bias)  # tables say scale use and self-preference
    known = [*(name for name in BIASES if name != AGREEMENT), AGREEMENT]
    if bias not in known:
        raise ValueError(f"--fail-on {text}: {bias!r} is unknown, choose one of {', '.join(known)}.")
    if bias == AGREEMENT and estimate is None:
        raise ValueError(f"--fail-on {text}: name the estimate of the agreement, such as agreement.spearman<0.3.")
    return Condition(text.strip(), bias, estimate, comparison, float(limit), required is not None)


# The certificate of a judge that passes or fails.
def parse_rates(text: str | None) -> list[Condition]:
    """Read what rates must be shown to reach, such as ``tpr=.8,tnr=.8``."""
    conditions = []
    for part in () if text is None else text.split(","):
        name, _, least = (one.strip() for one in part.partition("="))
        try:
            limit = number(least, "the rate", low=0, high=1, texts=True, required=True)
        except DataError:
            limit = math.nan
        if name not in PassOrFail.headlines or math.isnan(limit):
            raise ValueError(f"--certify {part.strip()!r} names no rate: write tpr=.8, tnr=.8 or tpr=.8,tnr=.8.")
        conditions.append(Condition(part.strip(), PassOrFail.name, name, ">=", limit, required=True))
    return conditions


def certified(rate: Condition, audit: Audit) -> tuple[int, str]:
    """Return the exit code of a rate, and why, with the number of labels that would decide an undecided one."""
    code, why = rate.decide(audit)
    if PassOrFail.name not in audit.measurements:
        return code, f"{why}; the judge and people must say pass or fail (1 or 0)"
    name = str(rate.estimate)
    if math.isnan(audit[PassOrFail.name][name].low):
        return UNDECIDED, why
    if code == UNDECIDED:
        labels = labels_to_decide(audit[PassOrFail.name], name, rate.limit)
        enough = f"about {labels or 0:,} labels would decide it, if it is as estimated"
        return code, f"{why}; {'no number of labels can be promised' if labels is None else enough}"
    return code, why
