"""Self-preference: a judge overrates what its own system wrote (Panickssery et al. 2024; Wataoka et al. 2024)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.judged import RATINGS, Judged
from evalbias.evaluation.quality import effect_sample, effect_statistic, is_rated_by_people
from evalbias.measures.arrays import FloatArray

OWN = "writer"
OWN_EXCESS, FAILURES = "own_excess", "own_excess_at_failures"


@dataclass(frozen=True)
class SelfPreference:
    """Advantage that a judge gives outputs for their writer, at equal quality.

    Estimates, all in standard deviations of the score (of the log-odds of a win, for pairs): ``own_excess`` (what an
    output of the judge's own system gets more than one of another system's, at equal quality), the same as
    ``own_excess_at_failures`` on the items that people find worse than most (only for single outputs with three or more
    ratings), and for each writer ``excess_of_NAME`` against all others. The failures are the lower half by one rating
    of each item, chosen by the item's id; the others hold the quality fixed, so that the choice of the items is not
    part of what is measured. A judge that overrates its own failures prefers itself; one that overrates good outputs of
    its own may only share their taste (Roytburg et al. 2026).

    Attributes:
        own: Name of the judge's own system among the writers; without it, only the writers are compared.
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """

    own: str | None = None
    reliability: float | None = None
    name: ClassVar[str] = "self_preference"
    headlines: ClassVar[tuple[str, ...]] = (OWN_EXCESS, FAILURES)
    objective: ClassVar[str | None] = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        writers = _names(judged)
        if judged.pairwise and judged.answers.shape[1] == 1 and len(set(judged.writers)) == 1:
            return False  # one system always stands first, which position explains as well
        return is_rated_by_people(judged) and len(writers) > 1 and (self.own is None or self.own in writers)

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        samples: dict[str, Sample] = {}
        if self.own is not None:
            samples[OWN_EXCESS] = self._excess(judged, self.own, "own system")
            if not judged.pairwise and RATINGS in judged.covariates and judged.covariate(RATINGS).shape[1] > 2:
                samples[FAILURES] = self._excess(_failures(judged), self.own, "own system's failures")
        return samples | {f"excess_of_{name}": self._excess(judged, name, name) for name in _names(judged)}

    def _excess(self, judged: Judged, writer: str, label: str) -> Sample:
        features = {OWN: written_by(judged, writer)}
        statistic = effect_statistic(judged, OWN, features, standardized=False, reliability=self.reliability)
        return effect_sample(judged, statistic, label)


def written_by(judged: Judged, writer: str) -> FloatArray:
    """Return 1 for a writer's outputs and 0 for others, (n,) or (n, 2) for pairs."""
    return np.asarray(np.asarray(judged.writers) == writer, dtype=np.float64)


def _names(judged: Judged) -> list[str]:
    return sorted(set(np.asarray(judged.writers, dtype=str).ravel().tolist()))


def _failures(judged: Judged) -> Judged:
    """Keep the ratings of the items in the lower half by one rating, without that rating; the others get none."""
    ratings = judged.covariate(RATINGS)
    given = [np.flatnonzero(~np.isnan(row)) for row in ratings]
    numbers = [zlib.crc32(name.encode(errors="replace")) for name in judged.ids]  # whatever the order of the rows
    drawn = zip(numbers, given, strict=True)
    chosen = [places[number % len(places)] if len(places) > 2 else -1 for number, places in drawn]
    rest, marks = ratings.copy(), np.full(len(ratings), np.nan)
    for index, place in enumerate(chosen):
        if place >= 0:
            marks[index] = ratings[index, place]
            rest[index, place] = np.nan
    if not np.isnan(marks).all():
        rest[~(marks < np.nanmedian(marks))] = np.nan
    return _with_ratings(judged, rest)


def _with_ratings(judged: Judged, ratings: FloatArray) -> Judged:
    return replace(judged, covariates={**judged.covariates, RATINGS: ratings})
