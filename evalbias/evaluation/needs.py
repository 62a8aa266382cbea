"""Requirements of measuring each bias, and those that the items of an audit lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import dspy
import numpy as np

from evalbias.data.ratings import rated_criteria
from evalbias.evaluation.formatting import count, joined
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS, Judged
from evalbias.evaluation.quality import is_rated_by_people, on_one_scale


@dataclass(frozen=True)
class Given:
    """Inputs of an audit.

    Attributes:
        judged: The judge's answers, and what is known about the items.
        examples: The items; without them, their inputs are taken to be there.
        own: Name of the judge's own system among the writers.
    """

    judged: Judged
    examples: Sequence[dspy.Example] = ()
    own: str | None = None


MAPPED = "name yours in mapping, or by --map rating_1=COLUMN,rating_2=COLUMN"
Need = Callable[[Given], str]
"""Says what is lacking, as the end of "it needs ..."; empty where nothing is."""


def what_is_lacking(bias: str, given: Given) -> str:
    """Return what measuring a bias takes and the items lack, as the end of "it needs ..."; empty where nothing is."""
    return joined([words for need in NEEDS.get(bias, ()) if (words := need(given))])


def _model(given: Given) -> str:
    there = LIKELIHOODS in given.judged.covariates
    return "" if there else "a model that reports likelihoods, such as a local one (likelihood_lm, --likelihood-lm)"


def _inputs(given: Given) -> str:
    there = all(isinstance(e.get("source"), str) for e in given.examples)
    return "" if there else "the input of every item (field source)"


def _texts(given: Given) -> str:
    field = "outputs, or output_1 and output_2" if given.judged.pairwise else "output"
    return "" if LENGTHS in given.judged.covariates else f"the texts that were judged (field {field})"


def _people(given: Given) -> str:
    if is_rated_by_people(given.judged):
        return ""
    if given.judged.pairwise:
        return "people's choices between the outputs (field better, or name another: better_field, --better-field)"
    if others := rated_criteria(given.examples):
        names = joined([repr(name) for name in others])
        return f"people's ratings on {given.judged.criterion!r:.80} (the items are rated on {names:.500})"
    return f"people's ratings (columns rating_1, rating_2, ...; {MAPPED}) or scores (column score)"


def _both_orders(given: Given) -> str:
    there = given.judged.answers.shape[1] > 1 or BETTER in given.judged.covariates
    needed = (
        "choices in both orders (swapped_field, --swapped-field) or people's choices (better_field, --better-field)"
    )
    return "" if there else needed


def _writers(given: Given) -> str:
    names = sorted(set(np.asarray(given.judged.writers, dtype=str).ravel().tolist()))
    if not names:
        field = "systems, or system_1 and system_2" if given.judged.pairwise else "system"
        return f"the writers of the outputs (field {field})"
    if len(names) == 1:
        return f"outputs of several writers ({names[0]:.80} wrote all of these)"
    if len(set(given.judged.writers)) == 1 and given.judged.answers.shape[1] == 1:
        return (
            "pairs in which either system stands first (swap the outputs of half of the pairs, and their choices too)"
        )
    missing = given.own is not None and given.own not in names
    return f"outputs of {given.own!r:.80} (the writers are {', '.join(names):.500})" if missing else ""


def _own_system(given: Given) -> str:
    needed = "the name of the judge's own system among the writers (own_system, --own-system)"
    return "" if given.own is not None else needed


def _two_ratings(given: Given) -> str:
    ratings = given.judged.covariates.get(RATINGS)
    there = ratings is not None and bool(((~np.isnan(ratings)).sum(axis=1) > 1).any())
    return "" if there else f"two or more ratings of each item (columns rating_1, rating_2, ...; {MAPPED})"


def _same_scale(given: Given) -> str:
    if given.judged.scale is None:
        return "the judge's lowest and highest score (scale, --scale)"
    if HUMAN_SCORES not in given.judged.covariates or on_one_scale(given.judged):
        return ""
    if np.isnan(given.judged.answers).all():
        return "scores by the judge (all are undefined)"
    return "people's ratings on the judge's scale (scale, --scale)" + _off_scale(given.judged)


def _off_scale(judged: Judged) -> str:
    """Name the first item that people rated off the judge's scale, as the end of a sentence; empty if there is none."""
    low, high = judged.scale or (-np.inf, np.inf)
    rated = judged.covariates.get(RATINGS, judged.covariate(HUMAN_SCORES))
    rated = rated.reshape(len(judged.ids), -1)  # (n, raters)
    items = np.flatnonzero(((rated < low) | (rated > high)).any(axis=1))
    if not len(items):
        return ""
    row = rated[items[0]]
    value = row[(row < low) | (row > high)][0]
    return (
        f"; outside {low:g} to {high:g} are the ratings of {count(len(items), 'item')}, such as "
        f"{judged.ids[items[0]]!r:.80} with {value:g}"
    )


NEEDS: Mapping[str, Sequence[Need]] = {
    "likelihood": (_model, _inputs, _texts, _people),
    "position": (_both_orders,),
    "verbosity": (_texts, _people),
    "self_preference": (_writers, _own_system, _people),
    "scale_use": (_two_ratings, _same_scale),
    "agreement": (_people,),
}
"""Name of a bias, or ``"agreement"``, -> what measuring it takes."""
