"""Several judges as one DSPy program: a jury on one criterion, and a rubric of several criteria."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, get_args

import dspy
import numpy as np

from evalbias.data.items import human_score, input_keys
from evalbias.lm.cache import resolve_lm
from evalbias.measures.juries import JuryRule, label_weights
from evalbias.programs.criterion import Criterion
from evalbias.programs.judges import asked_together
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.saved import Instrument, Setting, instance_of
from evalbias.values import to_json

Member = PointwiseJudge | PairwiseJudge


def rule_of(saved: Mapping[str, Any]) -> JuryRule:
    """Read a rule from JSON data; an error of ``MALFORMED`` or a ValueError for another form."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
    return JuryRule(**fields)


class Jury(Instrument):
    """Several judges whose scores of an output, or choices between two, are combined.

    Args:
        judges: Two or more judges that all score, or all compare, in the order of the rule.
        rule: How the scores are combined, and which judges answer first; by default the mean of all. ``learn_jury`` and
            'evalbias jury' learn a rule from recorded answers.

    Raises:
        ValueError: Fewer than two judges, judges of both kinds, of different scales, or a rule for another number of
            judges.
    """

    kind = "jury"
    rule = Setting[JuryRule](
        instance_of(JuryRule, "a JuryRule"), dump=lambda value: dict(to_json(asdict(value))), load=rule_of
    )

    def __init__(self, judges: Sequence[Member], *, rule: JuryRule | None = None) -> None:
        if len(judges) < 2 or not any(all(isinstance(judge, kind) for judge in judges) for kind in get_args(Member)):
            names = ", ".join(type(judge).__name__ for judge in judges)
            raise ValueError(f"judges=[{names:.200}]: give two or more PointwiseJudge, or two or more PairwiseJudge.")
        super().__init__()
        self.rule, self.judges = JuryRule.plain(len(judges)) if rule is None else rule, list(judges)
        self._check()

    def _check(self) -> None:
        if len(self.rule.weights) != len(self.judges):
            raise ValueError(f"The rule is of {len(self.rule.weights)} members, and the jury has {len(self.judges)}.")
        scales = {judge.criterion.scale for judge in self.judges}
        if len(scales) > 1 and not self.pairwise:
            raise ValueError(f"The judges score on the scales {sorted(scales)}: give judges of one scale.")

    @property
    def criterion(self) -> Criterion:
        """Criterion of the first judge; all judges share its scale."""
        return self.judges[0].criterion

    @property
    def pairwise(self) -> bool:
        return isinstance(self.judges[0], PairwiseJudge)

    def forward(self, *texts: Any, **fields: Any) -> dspy.Prediction:
        """Judge an item, passed as arguments like those of the judges; returns a prediction as ``batch`` does."""
        return self.batch([dspy.Example(self.judges[0].named(texts, fields))])[0]

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: Any = None,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[dspy.Prediction]:
        """Judge many items; each judge answers in one batch all items that the rule needs it for.

        Args:
            examples: With the inputs of the judges, by default ``source`` and ``output``, or two ``candidates``.
            lm: Model to ask. Defaults to each judge's own, then to the model that DSPy is configured with.
            progress: Function that is called with the number of judgments just done.
            **options: Options of the judges' ``batch``.

        Returns:
            One prediction per example: ``score``, or ``win_share`` in [0, 1] of the first candidate; ``scores``, judge
            number from 0 -> answer, NaN if the judge was not needed; and ``asked``, the number of judges that answered.
        """
        self._check()
        rule, name = self.rule, "win_share" if self.pairwise else "score"
        table, counts = np.full((2, len(examples), len(self.judges)), [[[np.nan]], [[0.0]]])

        def ask(places: Sequence[int], rows: Any) -> None:
            for place in places:
                items = [examples[row] for row in rows]
                answers = self.judges[place].batch(items, lm=lm, progress=progress, **options) if items else []
                table[rows, place], counts[rows, place] = [float(answer[name]) for answer in answers], 1.0

        def values() -> Any:
            return 2 * table - 1 if self.pairwise else table

        ask(rule.first or rule.members, np.arange(len(examples)))
        if rule.first:
            ask([place for place in rule.members if place not in rule.first], np.flatnonzero(~rule.settled(values())))
        combined = rule(values())
        combined = (1 + combined) / 2 if self.pairwise else combined
        return [
            dspy.Prediction(**{name: float(value)}, scores=dict(enumerate(row.tolist())), asked=int(count))
            for value, row, count in zip(combined, table, counts.sum(axis=1), strict=True)
        ]


# Several criteria.


def _weights(name: str, value: Any) -> None:
    if not value or not all(isinstance(w, int | float) and 0 <= w < math.inf for w in value) or sum(value) <= 0:
        raise ValueError(f"{name}={value!r:.80}: give each criterion a weight of at least 0, and one of them more.")


class Rubric(Instrument):
    """Scores an output by the weighted mean of its scores on several criteria.

    It is called, audited, saved and loaded as a ``PointwiseJudge``. A model that takes closed questions answers all
    criteria of an item in a single request, any other model one criterion per request.

    Args:
        criteria: Two or more criteria of one scale and of different names; or judges of them, such as compiled judges.
        weights: Weight of each criterion, at least 0; they are divided by their sum. Defaults to equal weights; see
            ``learn_weights``.
        name: Name of the weighted mean in reports, and key of its human scores in items.
        **options: Options of ``PointwiseJudge`` for the judge of each criterion, such as ``inputs`` and ``reasoning``.

    Raises:
        ValueError: Fewer than two criteria, different scales or inputs, a name twice, or weights that do not fit.

    Examples:
        >>> polite, short = Criterion("politeness", "is it polite?"), Criterion("brevity", "is it short?")
        >>> Rubric([polite, short], weights=[3, 1]).weights
        (0.75, 0.25)
    """

    kind = "rubric"
    scoring, correction, reasoning = "expected", None, None  # of the whole: its criteria have their own
    weights = Setting[tuple[float, ...]](_weights, dump=list, load=tuple)
    name = Setting[str](instance_of(str, "a text"))

    def __init__(
        self,
        criteria: Sequence[Criterion | PointwiseJudge],
        weights: Sequence[float] | None = None,
        *,
        name: str = "quality",
        **options: Any,
    ) -> None:
        judges = [c if isinstance(c, PointwiseJudge) else PointwiseJudge(c, **options) for c in criteria]
        shares = [1.0] * len(judges) if weights is None else [*weights]
        names = [judge.criterion.name for judge in judges]
        shapes = {(judge.criterion.scale, *judge.inputs, judge.judged) for judge in judges}
        if len(judges) < 2 or len({*names}) < len(names) or len(shapes) > 1 or len(shares) != len(judges):
            raise ValueError(
                f"A rubric of {names} with {len(shares)} weights: give two or more criteria of different names, one "
                "scale and the same inputs, and a weight for each or none."
            )
        _weights("weights", shares)
        super().__init__()
        self.weights, self.name, self.judges = tuple(share / sum(shares) for share in shares), name, judges

    @property
    def criterion(self) -> Criterion:
        """The rubric as a criterion: its name, the shared scale and labels, a definition that lists the criteria."""
        parts = ", ".join(judge.criterion.title for judge in self.judges)
        return replace(self.judges[0].criterion, name=self.name, definition=f"the weighted mean of {parts}", levels=())

    @property
    def predict(self) -> Any:
        """Predictor of the first criterion, whose model all criteria use."""
        return self.judges[0].predict

    @property
    def inputs(self) -> Mapping[str, str]:
        return self.judges[0].inputs

    @property
    def judged(self) -> str:
        return self.judges[0].judged

    @property
    def language(self) -> str:
        return self.judges[0].language

    def read(self, example: Any, index: int | None = None) -> dspy.Example:
        """Return an example whose texts are checked, as ``PointwiseJudge.read`` does."""
        return self.judges[0].read(example, index)

    def forward(self, *texts: str, **fields: str) -> dspy.Prediction:
        """Score an output, passed by the judges' inputs; returns a prediction as ``batch`` does."""
        return self.batch([dspy.Example(self.judges[0].named(texts, fields))], refused="raise")[0]

    def batch(self, examples: Sequence[dspy.Example], *, lm: Any = None, **options: Any) -> list[dspy.Prediction]:
        """Score many items; ``lm`` and ``options`` are those of ``PointwiseJudge.batch``.

        A prediction has ``score``, the weighted mean on the criteria's scale; ``scores`` by criterion; ``coverage``,
        the least of those with a weight; and ``parts``, the prediction on each. If a criterion with a weight is
        undefined, ``score`` is NaN and ``undefined`` says why.
        """
        lm = asked_together(self.judges, examples, resolve_lm(lm, self.predict))
        each = [judge.batch(examples, lm=lm, **options) for judge in self.judges]
        done = []
        for parts in zip(*each, strict=True):
            # score = sum_k w_k score_k, over the criteria with a weight
            weighted = [(w, part) for w, part in zip(self.weights, parts, strict=True) if w]
            score = sum(w * part.score for w, part in weighted)
            by_name = dict(zip((judge.criterion.name for judge in self.judges), parts, strict=True))
            why = [part.undefined for _, part in weighted if "undefined" in part]
            scores = {n: float(part.score) for n, part in by_name.items()}
            coverage = np.min([part.coverage for _, part in weighted])  # NaN if any of them is
            fields = {"score": float(score), "scores": scores, "coverage": float(coverage), "parts": by_name}
            done.append(dspy.Prediction(**fields, **({"undefined": why[0]} if why else {})))
        return done

    def learn_weights(self, examples: Sequence[dspy.Example], *, lm: Any = None) -> tuple[float, ...]:
        """Fit the weights to human scores of the weighted mean (``scores[name]`` or ``score``); keep and return them.

        See ``evalbias.measures.juries.label_weights``, also for the ``ValueError``.
        """
        table = [[*prediction.scores.values()] for prediction in self.batch(examples, lm=lm)]
        labels = [human_score(e, self.name, required=False) for e in examples]
        learned = label_weights(table, labels, clusters=input_keys([self.read(e, i) for i, e in enumerate(examples)]))
        self.weights = tuple(learned.tolist())
        return self.weights


AnyJudge = PointwiseJudge | PairwiseJudge | Rubric
"""A judge of evalbias that asks one model about one item."""
