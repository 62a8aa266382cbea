"""A bias, and what measuring it on one judge gives: estimates, and everything they were computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evalbias.evaluation.by_name import ByName
from evalbias.evaluation.coverage import median_coverage
from evalbias.evaluation.estimates import N_RESAMPLES, Estimate, Sample, clusters_of, estimates_of
from evalbias.evaluation.formatting import Tabular, count, title
from evalbias.evaluation.judged import Judged
from evalbias.measures.arrays import FloatArray
from evalbias.measures.resampling import defined_items
from evalbias.runs.values import to_json


class Bias(Protocol):
    """A bias: what its estimates are computed from. A new one is a file with this, and a line in ``registry.py``."""

    @property
    def name(self) -> str:
        """Key in the registry, in reports, in JSON and on the command line."""
        ...

    @property
    def headlines(self) -> tuple[str, ...]:
        """Names of the estimates that a short table shows."""
        ...

    @property
    def objective(self) -> str | None:
        """Name of the estimate that a search may bring to its null; None where there is none."""
        ...

    def applies(self, judged: Judged) -> bool:
        """Return whether the answers and covariates suffice to measure this bias."""
        ...

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """Return what each estimate is computed from, by name.

        Raises:
            ValueError: A covariate is missing.
        """
        ...


@dataclass(frozen=True, repr=False)
class Measurement(Tabular, ByName[Estimate]):
    """One bias of one judge on n items; ``measurement["fairness"]`` is the estimate of that name.

    Attributes:
        bias: Name of the bias.
        criterion: Name of the judged criterion.
        ids: Identifiers of the items.
        estimates: Name -> estimate.
        headlines: Names of the estimates that a short table shows.
        samples: What the estimates were computed from.
        columns: Name -> (n,) or (n, d) numbers about the items.
        coverage: Median probability that any answer follows; NaN where unknown.
        cost: Name -> amount of what the measurement took, such as judgments.
        notes: Name -> count of what else happened, such as ties.
        provenance: What decides the numbers.
        clusters: (n,) input of each item; items of one input are resampled and swapped together. None where every item
            has its own.
    """

    bias: str
    criterion: str
    ids: tuple[str, ...]
    estimates: Mapping[str, Estimate]
    headlines: tuple[str, ...]
    samples: Mapping[str, Sample] = field(compare=False)
    columns: Mapping[str, FloatArray] = field(compare=False)
    coverage: float = float("nan")
    cost: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    clusters: Sequence[str] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Return the bias and its estimates; ``table`` shows them in rows, ``items`` the numbers by item."""
        estimates = "; ".join(f"{e.label} {e.text()} ({e.interval})" for e in self.estimates.values())
        return f"Measurement({title(self.bias)} on {self.criterion}, n={len(self.ids)}: {estimates})"

    @property
    def undefined(self) -> dict[str, int]:
        """Column -> number of items in which it is undefined; columns without any are left out."""
        counts = {name: int((~defined_items(column)).sum()) for name, column in self.columns.items()}
        return {name: amount for name, amount in counts.items() if amount}

    def items(self) -> list[dict[str, Any]]:
        """Return one record per item: its id and every column."""
        columns = {name: column.tolist() for name, column in self.columns.items()}
        return [{"id": one, **{n: c[i] for n, c in columns.items()}} for i, one in enumerate(self.ids)]

    def to_dict(self, *, items: bool = True) -> dict[str, Any]:
        """Return everything but the samples as JSON data, in which undefined numbers are None.

        Args:
            items: Whether to return the columns too.
        """
        content: dict[str, Any] = {
            "bias": self.bias,
            "criterion": self.criterion,
            "estimates": self.estimates,
            "undefined": self.undefined,
            "coverage": self.coverage,
            "cost": self.cost,
            "notes": self.notes,
            "provenance": self.provenance,
        }
        return dict(to_json({**content, "items": {"id": self.ids, **self.columns}} if items else content))

    def _parts(self) -> Mapping[str, Estimate]:
        return self.estimates

    def _title(self) -> str:
        return f"{title(self.bias).capitalize()} on {self.criterion}"

    def _headings(self) -> tuple[str, ...]:
        return ("estimate", "value", "95 % interval", *(["no bias"] if self._has_null() else []), "n")

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for e in self.estimates.values():
            null = "" if e.null is None else e.text(e.null)
            rows.append((e.label, e.text(), e.interval, *([null] if self._has_null() else []), str(e.n)))
        return rows

    def _has_null(self) -> bool:
        return any(e.null is not None for e in self.estimates.values())

    def caption(self) -> str:
        """Return the undefined items, the inputs of the intervals, and the notes."""
        parts = [f"undefined {name.replace('_', ' ')}: {amount}" for name, amount in self.undefined.items()]
        if self.clusters is not None:
            parts.append(f"intervals over {count(max((e.units for e in self.estimates.values()), default=0), 'input')}")
        return "; ".join([*parts, *(f"{name.replace('_', ' ')}: {amount}" for name, amount in self.notes.items())])


def measure(bias: Bias, judged: Judged, *, seed: int, n_resamples: int = N_RESAMPLES) -> Measurement:
    """Measure a bias on what a judge did; no model is asked.

    Args:
        bias: See ``BIASES``.
        judged: Answers and covariates; see ``judge_examples``.
        seed: Seed for the bootstrap.
        n_resamples: Bootstrap resamples of each interval.

    Raises:
        TypeError: The bias is given by its name.
        ValueError: A covariate that the bias needs is missing.
    """
    if isinstance(bias, str):
        raise TypeError(f"The bias {bias!r} is a name: give evalbias.BIASES[{bias!r}].")
    columns = {"scores": judged.answers} if not judged.pairwise else _orders(judged)
    return measured(
        bias.samples(judged),
        clusters=clusters_of(judged),
        bias=bias.name,
        headlines=bias.headlines,
        criterion=judged.criterion,
        ids=judged.ids,
        columns={**columns, **judged.covariates},
        seed=seed,
        n_resamples=n_resamples,
        coverage=median_coverage(judged.coverage),
        cost={"judgments": judged.judgments},
        provenance={**judged.provenance, "seed": seed, "n_resamples": n_resamples},
    )


def measured(
    samples: Mapping[str, Sample],
    *,
    seed: int,
    n_resamples: int = N_RESAMPLES,
    clusters: Sequence[str] | None = None,
    **fields: Any,
) -> Measurement:
    """Compute the estimates of samples; the other arguments are fields of ``Measurement``."""
    estimates = estimates_of(samples, seed=seed, n_resamples=n_resamples, clusters=clusters)
    return Measurement(estimates=estimates, samples=samples, clusters=clusters, **fields)


def _orders(judged: Judged) -> dict[str, FloatArray]:
    names = ("answers", "answers_swapped")
    return {name: judged.answers[:, order] for order, name in enumerate(names[: judged.answers.shape[1]])}
