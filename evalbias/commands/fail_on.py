"""Conditions under which an audit fails a build, such as ``likelihood>0.2``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evalbias.evaluation.audit import AGREEMENT, Audit
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.registry import BIASES

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
