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
from evalbias.cli.terminal import say
from evalbias.evaluation.answers import PreparedAudit, prepared
from evalbias.evaluation.audit import AGREEMENT, Audit, audit
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import Estimate
from evalbias.options import AuditOptions, AuditOut, MeasuringModels, Models
from evalbias.programs import PairwiseJudge
from evalbias.report.tables import audit_view
from evalbias.values import file_digest, message


def audit_command(options: AuditOptions, models: MeasuringModels, out: AuditOut) -> None:
    """Audit the judge; exit with 1 if a condition is met."""
    conditions = parse_conditions(out.fail_on)
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
                verdict=audited.paragraphs[0],
            )
        )
    if met := [reason for condition in conditions if (reason := condition.reason(audited))]:
        for reason in met:
            typer.echo(message(f"failed: {reason}"), err=True)
        raise typer.Exit(1)


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
        ("winner_field" in given, {"scale"}, "recorded choices have no scale"),
        (no_model, prompt | of_models, "no model is asked; the likelihood bias needs one, `lm`"),
        (both, {"lm"}, "recorded answers take one model, that of the likelihood"),
        ("lm" not in given, OF_LM, "for the model of `lm`; name the model of the likelihood there"),
    ]
    for applies, names, reason in unused:
        if applies and (named := sorted(given & names)):
            raise ValueError(f"Leave out {', '.join(f'`{name}`' for name in named)}: {reason}.")


# Conditions under which an audit fails a build, such as ``likelihood>0.2``.


OPERATORS: dict[str, Callable[[float, float], bool]] = {">=": ge, "<=": le, ">": gt, "<": lt}
_FORM = re.compile(r"\s*([a-z][a-z_ -]*?)(?:\.([^<>]*[^<>\s]))?\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+))\s*")


@dataclass(frozen=True)
class Condition:
    """A condition on one number of an audit."""

    text: str  # as the user wrote it
    bias: str  # or ``"agreement"``
    estimate: str | None  # None for the headline of a bias
    operator: str  # one of ``OPERATORS``
    limit: float

    def reason(self, audit: Audit) -> str:
        """Say why the condition is met, or why it cannot be checked, which fails too; empty where it is not met.

        Of a bias, the distance from an unbiased judge is compared in either direction; of an agreement, the number.
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
            headline = next((f.estimate for f in audit.findings if f.bias == self.bias), None)
            return headline, math.nan if headline is None else abs(headline.value)
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
    """Read conditions such as ``BIAS>NUMBER`` or ``BIAS.ESTIMATE<NUMBER``, also several of them parted by commas."""
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
