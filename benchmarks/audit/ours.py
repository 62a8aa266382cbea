"""What the audit flags; only what its verdict depends on is computed."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.audit.judges import OWN
from evalbias.evaluation.audit import Finding, findings_of
from evalbias.evaluation.bias import Bias
from evalbias.evaluation.biases import BIASES, SelfPreference
from evalbias.evaluation.estimates import Number, measured
from evalbias.evaluation.judged import Judged

OTHERS = ("agreement", "corrected", "joint")
"""Measurements that are not of a bias."""


def findings(judged: Judged, *, seed: int, only: str | None = None) -> tuple[Finding, ...]:
    """Return the findings of ``audit_answers`` on biases, without the estimates that decide none of them.

    The bootstrap of a full audit takes 1 to 2 seconds for 568 items, most of it for numbers that only describe.
    """
    names = [name for name in BIASES if name not in OTHERS] if only is None else [only]
    biases = {name: BIASES[name] for name in names if BIASES[name].applies(judged)}
    deciding = {name: _deciding(bias, judged) for name, bias in biases.items()}
    measurements = {
        name: measured(
            numbers,
            clusters=judged.clusters,
            bias=biases[name],
            criterion=judged.criterion,
            ids=judged.ids,
            columns={},
            seed=seed,
        )
        for name, numbers in deciding.items()
        if numbers
    }
    return findings_of(measurements, judged, {})


def _deciding(bias: Bias, judged: Judged) -> list[Number]:
    """Return the first headline that has a null and that quality cannot explain; see ``finding.headline``."""
    bias = replace(bias, own=OWN) if isinstance(bias, SelfPreference) else bias
    numbers = {one.name: one for one in bias.numbers(judged)}
    headlines = [numbers[name] for name in bias.headlines if name in numbers]
    return [one for one in headlines if one.null is not None and not one.confounded][:1]
