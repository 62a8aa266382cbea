"""Facts about items besides a judge's answers: lengths, likelihoods, human scores, writers, inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np

from evalbias.data.item_names import item_name
from evalbias.data.numbers import check_size
from evalbias.data.pairing import input_field, input_key
from evalbias.data.ratings import human_score, is_rated, single_ratings
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.programs.criterion import Criterion
from evalbias.programs.likelihoods import likelihood_scores
from evalbias.programs.pair_labels import people_choice
from evalbias.programs.usable import candidates_of

LIKELIHOODS, LENGTHS, HUMAN_SCORES = "likelihoods", "lengths", "human_scores"
"""Names of covariates: LS in nats, lengths in characters, Score_h; (n,), or (n, candidates) for pairs."""
RATINGS = "ratings"
"""Name of a covariate: (n, r) single ratings of each item in the raters' order, NaN where a rater gave none.

For pairs they are each rater's difference, the first candidate's rating less the second's."""
BETTER = "better"
"""Name of a covariate: (n,) the candidate of each pair that people prefer, 0 or 1; NaN where they prefer none."""

Writers = Sequence[str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class ItemFacts:
    """Facts about n items.

    Attributes:
        ids: Identifiers of the items; a pair's is both its outputs', joined.
        inputs: (n,) the input (document) of each item.
        covariates: Name -> (n,) or (n, 2) numbers; see ``Judged``.
        writers: (n,) names of the systems that wrote the outputs, two for a pair; empty where unknown.
    """

    ids: tuple[str, ...]
    inputs: tuple[str, ...]
    covariates: Mapping[str, FloatArray]
    writers: Writers


def item_facts(
    examples: Sequence[dspy.Example],
    criterion: Criterion,
    *,
    pairwise: bool,
    scorer: MeasuringLM | None = None,
    reduction: str = "sum",
    better: str = BETTER,
    answered: Sequence[str] = (),
    required: bool = True,
) -> ItemFacts:
    """Gather what is known about items that are scored, or about pairs that are compared.

    Args:
        examples: Items or pairs.
        criterion: Criterion of the human scores and ratings; its task defines LS.
        pairwise: Whether the examples are pairs.
        scorer: Model whose likelihood defines LS; None measures none.
        reduction: Reduction of token log-probabilities to LS.
        better: Field of people's choice between the candidates of a pair. ``"preference"`` is read where ``"better"``
            is not given.
        answered: Fields of the judge's own answers, which are not read as people's.
        required: Whether to refuse an item without a human score where others have one. If False, it is undefined.

    Raises:
        ValueError: An item lacks what is needed (it is named), or people's numbers are too small to tell from 0.
    """
    texts = [candidates_of(e) if pairwise else [e.get("output")] for e in examples]
    covariates: dict[str, FloatArray] = {}
    if all(isinstance(text, str) for row in texts for text in row) and all(texts):
        covariates[LENGTHS] = _shaped([len(text) for row in texts for text in row], pairwise)
    if scorer is not None:
        outputs = _likelihood_items(examples, texts)
        values = likelihood_scores(outputs, criterion, scorer, reduction=reduction)
        covariates[LIKELIHOODS] = _shaped(values, pairwise)
    if pairwise:
        choices = _choices(examples, better, answered)
        if not np.isnan(choices).all():
            covariates[BETTER] = choices
    elif any(is_rated(e, criterion.name) for e in examples):
        covariates[HUMAN_SCORES] = human_scores(examples, criterion, required=required)
        check_size(covariates[HUMAN_SCORES], f"People's scores on {criterion.name!r}")
    if (ratings := human_ratings(examples, criterion)).shape[1]:
        covariates[RATINGS] = ratings
        if not pairwise:  # differences of equal ratings may be rounding errors of 0
            check_size(ratings, f"People's ratings on {criterion.name!r}")
    return ItemFacts(
        ids=tuple(item_name(e, i) for i, e in enumerate(examples)),
        inputs=tuple(_input(e, i) for i, e in enumerate(examples)),
        covariates=covariates,
        writers=_writers_of_pairs(examples) if pairwise else _writers_of_outputs(examples),
    )


def likelihood_provenance(criterion: Criterion, scorer: Any, reduction: str) -> dict[str, Any]:
    """Return what LS is of, where a model measures it: its reduction, and the prompt before the output."""
    prompt = {name: getattr(criterion, name) for name in ("task", "source_label", "output_label")}
    return {} if scorer is None else {"reduction": reduction, **prompt}


def human_scores(examples: Sequence[dspy.Example], criterion: Criterion, *, required: bool = True) -> FloatArray:
    """Return (n,) the examples' human scores on a criterion, as rated; NaN where undefined.

    Raises:
        ValueError: An item was not rated on the criterion and ``required``; see ``evalbias.data.human_score``.
    """
    return np.array([human_score(e, criterion.name, required=required) for e in examples], dtype=np.float64)


def human_ratings(examples: Sequence[dspy.Example], criterion: Criterion) -> FloatArray:
    """Return (n, r) the examples' single ratings on a criterion in the raters' order; NaN where a rater gave none."""
    rows = [single_ratings(e, criterion.name) for e in examples]
    padded = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def _input(example: dspy.Example, index: int) -> str:
    """Identify the input; an item that names none has its own."""
    return f"item {index}" if input_field(example) is None else input_key(example)


def _shaped(values: Any, pairwise: bool) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(-1, 2) if pairwise else array


def _likelihood_items(examples: Sequence[dspy.Example], texts: Sequence[Sequence[Any]]) -> list[dspy.Example]:
    for index, (example, row) in enumerate(zip(examples, texts, strict=True)):
        if not row or not all(isinstance(text, str) for text in [example.get("source"), *row]):
            raise ValueError(
                f"The item {item_name(example, index)!r:.80} lacks the texts that a likelihood needs, its source and "
                "what was written to it: add them (source, output or outputs), or name no likelihood model."
            )
    pairs = zip(examples, texts, strict=True)
    return [dspy.Example(source=e.source, output=text) for e, row in pairs for text in row]


def _choices(examples: Sequence[dspy.Example], better: str, answered: Sequence[str]) -> FloatArray:
    """Return (n,) the candidate of each pair that people prefer; NaN for a tie too, where they prefer none."""
    fields = [name for name in ((better, "preference") if better == BETTER else (better,)) if name not in answered]
    choices = np.array([people_choice(e, fields, index=i) for i, e in enumerate(examples)])
    return np.where((choices == 0) | (choices == 1), choices, np.nan)


def _writers_of_pairs(examples: Sequence[dspy.Example]) -> Writers:
    """Return both writers of every pair where all pairs name them, else nothing."""
    named: list[Any] = [e.get("systems") or () for e in examples]
    complete = all(isinstance(n, Sequence) and not isinstance(n, str) and len(n) == 2 for n in named)
    return [(str(a), str(b)) for a, b in named] if complete else ()


def _writers_of_outputs(examples: Sequence[dspy.Example]) -> Writers:
    """Return the writer of every output where all items name theirs, else nothing."""
    named = [e.get("system") for e in examples]
    return () if any(one is None or one == "" for one in named) else [str(one) for one in named]
