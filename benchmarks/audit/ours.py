"""The flags of our audit; only what its verdict depends on is computed."""

from __future__ import annotations

from benchmarks.audit.judges import OWN
from evalbias.evaluation.bias import Bias
from evalbias.evaluation.biases import BIASES, Joint
from evalbias.evaluation.estimates import Number, measured
from evalbias.evaluation.findings import Finding, findings_of
from evalbias.evaluation.judged import Judged

BESIDE = ("spread_ratio",)
"""Numbers that decide a finding beside its headline."""


def findings(judged: Judged, *, seed: int, only: str | None = None) -> tuple[Finding, ...]:
    """Return the findings of ``audit_answers`` on biases, without the estimates that decide none of them.

    The bootstrap of a full audit takes 1 to 2 seconds for 568 items, most of it for numbers that only describe.
    """
    biases = [bias.configured(own=OWN) for bias in BIASES.values() if bias.kind == "bias" and only in (None, bias.name)]
    deciding = {bias: _deciding(bias, judged) for bias in biases if bias.applies(judged)}
    joint = BIASES[Joint.name].configured(own=OWN)
    deciding[joint] = joint.numbers(judged)
    measurements = {
        bias.name: measured(
            numbers,
            clusters=judged.clusters,
            bias=bias,
            judged=judged,
            criterion=judged.criterion,
            ids=judged.ids,
            columns={},
            seed=seed,
        )
        for bias, numbers in deciding.items()
        if numbers
    }
    return findings_of(measurements, judged, {})


def _deciding(bias: Bias, judged: Judged) -> list[Number]:
    """Return the first headline that has a null and that quality cannot explain, and what else decides the finding."""
    numbers = {number.name: number for number in bias.numbers(judged)}
    headlines = [numbers[name] for name in bias.headlines if name in numbers]
    beside = [numbers[name] for name in BESIDE if name in numbers]
    return [*[estimate for estimate in headlines if estimate.null is not None and not estimate.confounded][:1], *beside]
