"""A jury of judges as a DSPy program and metric: all at once, or the others only where the first ones differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

import dspy
import numpy as np

from evalbias.measures.juries import JuryRule
from evalbias.programs.criterion import Criterion
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.saved import Instrument, Setting, instance_of
from evalbias.values import to_json

Member = PointwiseJudge | PairwiseJudge


def rule_of(saved: Mapping[str, Any]) -> JuryRule:
    """Read a rule from JSON data; an error of ``MALFORMED`` or a ValueError for another form."""
    given: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in saved.items()}
    return JuryRule(**given)


class Jury(Instrument):
    """Several judges of one output, or of two, whose scores become one.

    Args:
        judges: Two or more judges that all score, or all compare, in the order of the rule.
        rule: How their scores become one, and who is asked first; by default the mean of all. ``learn_jury`` and
            'evalbias jury' learn one from recorded answers.

    Raises:
        ValueError: Fewer than two judges, judges of both kinds, of different scales, or a rule of another number of
            members.
    """

    kind = "jury"
    rule = Setting[JuryRule](
        instance_of(JuryRule, "a JuryRule"), dump=lambda value: dict(to_json(asdict(value))), load=rule_of
    )

    def __init__(self, judges: Sequence[Member], *, rule: JuryRule | None = None) -> None:
        if len(judges) < 2 or not any(all(isinstance(one, kind) for one in judges) for kind in get_args(Member)):
            names = ", ".join(type(one).__name__ for one in judges)
            raise ValueError(f"judges=[{names:.200}]: give two or more PointwiseJudge, or two or more PairwiseJudge.")
        super().__init__(rule=JuryRule.plain(len(judges)) if rule is None else rule)
        self.judges = list(judges)
        self._check()

    def _check(self) -> None:
        if len(self.rule.weights) != len(self.judges):
            raise ValueError(f"The rule is of {len(self.rule.weights)} members, and the jury has {len(self.judges)}.")
        scales = {one.criterion.scale for one in self.judges}
        if len(scales) > 1 and not self.pairwise:
            raise ValueError(f"The judges score on the scales {sorted(scales)}: give judges of one scale.")

    @property
    def criterion(self) -> Criterion:
        """Criterion of the first judge; its scale is that of all."""
        return self.judges[0].criterion

    @property
    def pairwise(self) -> bool:
        """True if the judges compare."""
        return isinstance(self.judges[0], PairwiseJudge)

    def forward(self, *texts: Any, **fields: Any) -> dspy.Prediction:
        """Judge one item, given as the judges take it; returns a prediction as ``batch`` does."""
        return self.batch([dspy.Example(self.judges[0].named(texts, fields))])[0]

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: Any = None,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[dspy.Prediction]:
        """Judge many items; each judge answers all items that it is needed for in one batch.

        Args:
            examples: With the inputs of the judges, by default ``source`` and ``output``, or two ``candidates``.
            lm: Model to ask. Defaults to each judge's own, then to the one that DSPy is configured with.
            progress: Function that is called with the number of judgments just done.
            **options: Those of ``batch`` of the judges.

        Returns:
            One prediction per example: ``score``, or ``win_share`` in [0, 1] of the first candidate; ``scores`` of the
            judges by their number, NaN of one that was not asked; and ``asked``, how many were.
        """
        self._check()
        rule, name = self.rule, "win_share" if self.pairwise else "score"
        table, counts = np.full((2, len(examples), len(self.judges)), [[[np.nan]], [[0.0]]])

        def ask(places: Sequence[int], rows: Any) -> None:
            for place in places:
                some = [examples[row] for row in rows]
                answers = self.judges[place].batch(some, lm=lm, progress=progress, **options) if some else []
                table[rows, place], counts[rows, place] = [float(one[name]) for one in answers], 1.0

        def values() -> Any:
            return 2 * table - 1 if self.pairwise else table

        ask(rule.first or rule.members, np.arange(len(examples)))
        if rule.first:
            ask([one for one in rule.members if one not in rule.first], np.flatnonzero(~rule.settled(values())))
        combined = rule(values())
        combined = (1 + combined) / 2 if self.pairwise else combined
        return [
            dspy.Prediction(**{name: float(one)}, scores=dict(enumerate(row.tolist())), asked=int(count))
            for one, row, count in zip(combined, table, counts.sum(axis=1), strict=True)
        ]
