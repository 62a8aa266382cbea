"""``evalbias audit``: audit any judge, recorded or asked, and fail a build by what it shows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from operator import ge, gt, le, lt
from typing import Any

import typer

from evalbias.cli.app import COMMANDS
from evalbias.cli.flags import LABELING, command_line, spelled
from evalbias.cli.items import audit_settings
from evalbias.cli.run import Run, RunOutcome
from evalbias.cli.terminal import UNDECIDED, say
from evalbias.data.files import EXPORTS
from evalbias.data.hints import like_ratings
from evalbias.evaluation.answers import ResolvedAudit, answers_of, resolve_each, tell_left_out
from evalbias.evaluation.audit import AuditReport, AuditReports, answers_needed, audit_each
from evalbias.evaluation.bias import Section
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.changes import by_item
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.findings import AGREEMENT, LINES, NextStep, height
from evalbias.evaluation.verdicts import PassOrFail, labels_to_decide
from evalbias.evaluation.words import Table
from evalbias.options import RECORDED, AuditOptions, AuditOut, GateOut, MeasuringModels, Models
from evalbias.report.builds import Outcome, check_summary, markdown, write_summary
from evalbias.report.page import in_terminal
from evalbias.report.tables import biases_table
from evalbias.values import message


def audit_command(options: AuditOptions, models: MeasuringModels, out: AuditOut) -> None:
    # 1. Errors of the user are reported before a model is opened.
    conditions, rates = parse_conditions(out.fail_on, (), options.features), parse_rates(out.certify)
    if options.only and (not_tested := [c.text for c in conditions if c.is_of_bias and c.bias != options.only]):
        raise ValueError(f"`fail_on` {not_tested[0]}: `only` {options.only} is tested. Leave one of both out.")
    if out.summary is not None:
        check_summary(out.summary)
    if options.judge is not None and options.lm is None:
        raise ValueError("`judge` answers with a model: name it with `lm`.")
    each = resolve_each(options, say)
    if each[0].is_recorded:  # maybe by the only judge in a tool's export
        is_only_judge = not options.is_recorded and each[0].dataset.name in EXPORTS
        refuse_unused(out.typed | ({"scores_field"} if is_only_judge else set()))
    tell_left_out(each[0].dataset, say)
    for ready in each if rates else ():
        _check_verdicts(ready)
    # 2. The audit and its decisions.
    options = each[0].requested
    named = replace(options, judge=each[0].judge, criterion=each[0].criterion)
    with Run("audit", named, models, out, more=audit_settings(*each)) as run:
        each = [replace(ready, lm=run.options.lm, likelihood_lm=run.options.likelihood_lm) for ready in each]
        with run.progress(answers_needed(each)):
            audits = audit_each(each)
        several = AuditReports(audits) if options.several else None
        audits = audits if several else {"": next(iter(audits.values()))}
        certificate = [_certified(rate, audit, name) for name, audit in audits.items() for rate in rates]
        steps = [] if several else _step_lines(audits[""], {**vars(models), **vars(options)}, out.typed, full=out.full)
        run.leave(audit_outcome(audits, several, certificate, steps, full=out.full))
    # 3. Results for a build: files, messages, and the exit code.
    decided = [c.decide(audit, name) for name, audit in audits.items() for c in conditions] + certificate
    summary: dict[str, Sequence[str | Table]] = {}
    if out.summary is not None:
        summary = {"": [several.verdict]} if several else {}
        summary |= {name: [*audit.first_screen, biases_table(audit)] for name, audit in audits.items()}
    tell_build("Audit of an LLM judge", summary, decided, out)


def tell_build(
    title: str, sections: Mapping[str, Sequence[str | Table]], decided: Sequence[Outcome], out: GateOut
) -> None:
    """Write the summary for a build, print the conditions that do not pass, and exit with the code of the worst."""
    if out.summary is not None:
        write_summary(out.summary, markdown(title, sections, decided))
    for outcome in decided:
        if outcome.word != "passed":
            typer.echo(message(outcome.sentence), err=True)
    if codes := {outcome.code for outcome in decided} - {0}:
        raise typer.Exit(min(codes))  # a failed condition decides


def audit_outcome(
    audits: Mapping[str, AuditReport],
    several: AuditReports | None,
    certificate: Sequence[Outcome],
    step: Sequence[str],
    *,
    full: bool = False,
) -> RunOutcome:
    """Return the output of a run: its files, page and terminal text for an audit, or for audits of several criteria."""
    contents, results = {}, {}
    for name, audit in audits.items():
        rated = [{"decision": rate.word, "why": rate.why} for rate in certificate if rate.criterion == name]
        contents[name] = audit.to_dict() | ({"certificate": rated} if rated else {})
        results[name] = {"audit": contents[name], "measurements": audit.measurements, "items": by_item(audit.judged)}
    covered = {a.judged.criterion: a.judged.asked.coverage for a in audits.values() if len(a.judged.asked.coverage)}
    more = [Section("Certificate", [rate.sentence for rate in certificate])] if certificate else []
    whole = audits[""] if several is None else several
    printed, screen = [in_terminal(whole, full=full), *step], [*whole.first_screen, *step]
    if several is None:
        return RunOutcome(results[""], contents[""], printed, covered, whole, more, screen)
    content, result = ({"verdict": several.verdict, "criteria": parts} for parts in (contents, results))
    return RunOutcome(result, content, printed, covered, whole, more, screen)


def _step_lines(audit: AuditReport, options: Mapping[str, Any], typed: Set[str], *, full: bool) -> list[str]:
    """Return lines about the next step and, if the screen has room, about a second step."""
    step = audit.next_step
    lines = step_words(step, options, typed)
    if step.besides is None:
        return lines
    both = [*lines, *step_words(step.besides, options, typed, begins="Or, ")]
    return both if full or sum(map(height, [*audit.first_screen, *both])) <= LINES else lines


def step_words(step: NextStep, options: Mapping[str, Any], typed: Set[str], *, begins: str = "Next: ") -> list[str]:
    """Return lines about a step; a command on the same data repeats the typed options of the audit that it takes."""
    if not step.command:
        return [f"{begins}{step.why}."]
    words, takes = f"evalbias {step.command}", ["data", *LABELING]
    if step.command in COMMANDS:
        form = COMMANDS[step.command][1]
        takes = [name for group in (form, *form.beside) for name in group.__dataclass_fields__]
    if "data" in takes:
        kept = {*typed, *RECORDED} - {"data", "yes"} - {name for name in takes if spelled(name) in step.more.split()}
        settings = {name: value for name in takes if name in kept and (value := options.get(name)) is not None}
        words = command_line(str(options["data"]), settings, step.command, asks=False)
    return [f"{begins}{step.why}:", f"  {words} {step.more}".rstrip()]


def _check_verdicts(ready: ResolvedAudit) -> None:
    """Refuse to certify a judge if its verdicts, or people's, are missing or are not all pass or fail."""
    needed = "`certify` needs a judge's recorded verdicts (`scores_field`)"
    if ready.scores_field is None:
        raise ValueError(f"{needed}, pass or fail (1 or 0).")
    judged = answers_of(replace(ready, lm=None, likelihood_lm=None))
    if not judged.rated:
        hint = like_ratings(judged.examples, judged.judge)
        raise ValueError(f"{needed} and people's labels (column label), and nobody labeled these items. {hint}".strip())
    if not judged.pass_or_fail:
        raise ValueError(f"{needed} and people's labels, and some of these are neither pass nor fail (1 or 0).")


OF_LM = {"api_base", "api_key_env", "tokenizer", "adapter", "template_options", "dialect"}  # options of ``lm`` only


def refuse_unused(typed: Set[str], model: str = "lm") -> None:
    """Refuse typed options without effect on recorded answers; the option ``model`` names that of the likelihood."""
    of_models = {*Models.__annotations__, *MeasuringModels.__annotations__} - {"yes"}
    sampling = {"samples", "sample_temperature", "sample_tokens"}
    prompt = {"task", "source_label", "output_label", "language"}
    both = {"lm", "likelihood_lm"} <= typed
    no_model = not typed & {"lm", "likelihood_lm"}
    unused: list[tuple[bool, set[str], str]] = [
        (True, {"pairs", "no_cue", *sampling}, "recorded answers are taken as they are"),
        ("scores_field" in typed, {"swapped_field", "labels"}, "for choices, and `scores_field` names scores"),
        ("samples_field" in typed, {"swapped_field", "labels"}, "for choices, and `samples_field` names scores"),
        ("winner_field" in typed, {"scale"}, "recorded choices have no scale"),
        (no_model, prompt | of_models, f"no model is asked; the likelihood bias needs one, `{model}`"),
        (both, {"lm"}, "recorded answers take one model, that of the likelihood"),
        ("lm" not in typed, OF_LM, "for the model of `lm`; name the model of the likelihood there"),
    ]
    for applies, names, reason in unused:
        if applies and (named := sorted(typed & names)):
            raise ValueError(f"Leave out {', '.join(f'`{name}`' for name in named)}: {reason}.")


# Conditions under which an audit fails a build, such as ``likelihood>0.2``, or that it must show, ``likelihood<0.2?``.
OPERATORS: dict[str, Callable[[float, float], bool]] = {">=": ge, "<=": le, ">": gt, "<": lt}
_FORM = re.compile(r"\s*([a-z][a-z_ -]*?)(?:\.([^<>]*[^<>\s]))?\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+))\s*(\?)?\s*")


NOT_ASKED = "it was not asked for, or such a judge cannot have it"
WORDS = {0: "passed", 1: "failed", UNDECIDED: "undecided"}


@dataclass(frozen=True)
class Condition:
    """A condition on a number of an audit, which the 95 % interval of the number decides.

    It is shown if it holds at both ends, its contrary if it holds at neither, otherwise it is undecided. So a
    judge that is measured twice gets 0 once and 1 once in less than 5 % of such pairs, whatever its bias is.
    """

    text: str  # as the user wrote it
    bias: str  # or ``"agreement"``
    estimate: str | None  # None for the headline of a bias
    operator: str  # one of ``OPERATORS``
    limit: float
    required: bool = False  # True if it must be shown; then its contrary fails the build

    @property
    def is_of_bias(self) -> bool:
        """True for a bias, which may be left out of the tests; False for an agreement."""
        return self.bias not in BIASES or BIASES[self.bias].kind == "bias"

    def decide(self, audit: AuditReport, criterion: str = "") -> Outcome:
        """Decide it by an audit, which may cover one of several criteria.

        A bias is compared by its distance from an unbiased judge, an agreement by its value; if unmeasured, it fails.
        """
        decided = self.decide_on(self._measured(audit), audit.not_measured.get(self.bias, ""))
        return decided._replace(criterion=criterion)

    def decide_on(self, e: Estimate | None, why: str = "") -> Outcome:
        """Decide it by an estimate, or by the reason why the number was not measured."""
        name = self.bias if self.estimate is None else f"{self.bias}.{self.estimate}"
        if e is None or math.isnan(e.low + e.high):
            why = why or (NOT_ASKED if e is None else e.why_undefined)
            return Outcome(1, f"{self.text}: {name} was not measured ({why})", WORDS[1], self.text)
        value, low, high = e.value, e.low, e.high
        if e.null is not None and self.bias != AGREEMENT:
            value, below, above = abs(value - e.null), e.null - low, high - e.null
            low, high = max(-below, -above, 0.0), max(below, above)
        holds = {OPERATORS[self.operator](end, self.limit) for end in (low, high)}
        code = UNDECIDED if len(holds) > 1 else int(holds == {not self.required})
        shown_value = "not known" if math.isnan(value) else f"{value:.3g}"  # bounds have only an interval
        why = f"{self.text}: {name} is {shown_value} (95 % interval {low:.3g} to {high:.3g})"
        return Outcome(code, why, WORDS[code], self.text)

    def _measured(self, audit: AuditReport) -> Estimate | None:
        if self.estimate is None:
            return next((f.estimate for f in audit.findings if f.bias == self.bias), None)
        if (measurement := audit.measurements.get(self.bias)) is None:
            return None
        if self.estimate not in measurement:
            raise ValueError(
                f"`fail_on` {self.text}: {self.bias} has no estimate {self.estimate!r} here, only "
                f"{', '.join(measurement.estimates)}."
            )
        return measurement[self.estimate]


def parse_conditions(
    texts: Sequence[str], numbers: Sequence[str] = (), features: Sequence[str] = ()
) -> list[Condition]:
    """Read conditions such as ``BIAS>NUMBER`` or ``BIAS.ESTIMATE<NUMBER``, also several of them parted by commas.

    With the names of ``numbers``, the conditions are on these, in place of biases; ``features`` are more biases.
    """
    return [_parse(part, numbers, features) for text in texts for part in text.split(",")]


def _parse(text: str, numbers: Sequence[str], features: Sequence[str]) -> Condition:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(
            f"`fail_on` {text!r} is no condition: write BIAS>NUMBER, such as 'likelihood>0.2', "
            "'agreement.spearman<0.3', or what must be shown, 'likelihood<0.2?'."
        )
    bias, estimate, comparison, limit, required = match.groups()
    bias = re.sub("[ -]", "_", bias)  # as tables spell scale use and self-preference
    choices = numbers or [*(name for name in BIASES if name != AGREEMENT), AGREEMENT, *features]
    if bias not in choices:
        raise ValueError(f"`fail_on` {text}: {bias!r} is unknown, choose one of {', '.join(choices)}.")
    condition = Condition(text.strip(), bias, estimate, comparison, float(limit), required is not None)
    if estimate is None and not numbers and not condition.is_of_bias:
        names = " or ".join(f"{bias}.{name}" for name in BIASES[bias].headlines)
        raise ValueError(f"`fail_on` {text}: name an estimate of {bias}{f', such as {names}' if names else ''}.")
    return condition


# The certificate of a judge that passes or fails.


def parse_rates(text: str | None) -> list[Condition]:
    """Read the rates that must be shown, such as ``tpr=.8,tnr=.8``."""
    rates = []
    for part in () if text is None else text.split(","):
        name, _, least = (word.strip() for word in part.lower().partition("="))
        limit = float(least) if re.fullmatch(r"\d+\.?\d*|\.\d+", least) else math.nan
        if name not in PassOrFail.headlines or not 0 <= limit <= 1:
            raise ValueError(f"--certify {part.strip()!r}: give a rate a number from 0 to 1, such as tpr=.8,tnr=.8.")
        rates.append(Condition(part.strip(), PassOrFail.name, name, ">=", limit, required=True))
    return rates


def _certified(rate: Condition, audit: AuditReport, criterion: str) -> Outcome:
    """Decide whether a judge reaches a rate, and add the number of labeled items that would decide it."""
    (code, why, *_), measured, name = rate.decide(audit), audit[PassOrFail.name], str(rate.estimate)
    if math.isnan(measured[name].low):
        code = UNDECIDED
    elif code == UNDECIDED:
        labels = labels_to_decide(measured, name, rate.limit)
        enough = f"about {labels or 0:,} labeled items would decide it, if it is as estimated"
        why += f"; {'no number of labeled items can be promised' if labels is None else enough}"
    word = {0: "certified", UNDECIDED: "undecided"}.get(code, "not certified")
    return Outcome(code, why, word, rate.text, criterion)
