"""One task judged on several criteria: each judge is compiled on its own, and all of them and the total compared."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from evalbias.data.item_names import item_name
from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.judged import Judged, total
from evalbias.lm.contract import measuring, resolve_lm
from evalbias.lm.memo import LikelihoodMemo
from evalbias.measures.likelihood import TOTAL
from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.likelihood_optimizer import LikelihoodOptimizer
from evalbias.programs.criterion import Criterion
from evalbias.programs.pointwise import PointwiseJudge

LIKELIHOOD = "likelihood"


@dataclass(frozen=True)
class CompiledCriteria:
    """Judges compiled side by side.

    Attributes:
        judges: Criterion -> compiled judge.
        reports: Criterion -> report of its compilation.
        before: Criterion, and ``total`` where there are several -> the baseline's answers on the valset.
        after: The same of the compiled judges.
        comparisons: The same -> comparison of the likelihood bias.
    """

    judges: dict[str, PointwiseJudge]
    reports: dict[str, CompileReport]
    before: dict[str, Judged]
    after: dict[str, Judged]
    comparisons: dict[str, Comparison]


def compile_each(
    optimizer: LikelihoodOptimizer,
    judges: Sequence[PointwiseJudge],
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    lm: Any = None,
) -> CompiledCriteria:
    """Compile one judge for each of several criteria of one task.

    Args:
        optimizer: Optimizer for every criterion, with the same settings and seed; LS is measured once for all.
        judges: At least one judge, each of another criterion.
        trainset: See the optimizer.
        valset: Items on which all are compared.
        lm: Model of the judges. Defaults to their own, else DSPy's.

    Raises:
        ValueError: As the optimizer's ``compile``, an empty valset, or one ``score`` for several criteria.
    """
    if not judges or not valset:
        raise ValueError(f"{len(judges)} judges and {len(valset)} validation items: give at least one of each.")
    ambiguous = [e for e in (*trainset, *valset) if "score" in e and e.get("scores") is None]
    if len(judges) > 1 and ambiguous:
        raise ValueError(
            f"The item {item_name(ambiguous[0])!r:.80} has one score for {len(judges)} criteria: give one for each, "
            "scores={CRITERION: NUMBER}."
        )
    optimizer = copy.copy(optimizer)
    models = [resolve_lm(lm, j.predict) for j in judges]
    if optimizer.likelihood_lm is not None:
        optimizer.likelihood_lm = LikelihoodMemo(measuring(optimizer.likelihood_lm))
    elif all(model is models[0] for model in models):
        lm = LikelihoodMemo(measuring(models[0]))
    compiled = {j.criterion.name: optimizer.compile(j, trainset=trainset, valset=valset, lm=lm) for j in judges}
    reports: dict[str, CompileReport] = {name: judge.report for name, judge in compiled.items()}
    before = {name: report.before for name, report in reports.items() if report.before}
    after = {name: report.after for name, report in reports.items() if report.after}
    comparisons = {name: report.comparison[LIKELIHOOD] for name, report in reports.items()}
    if len(reports) > 1:
        before[TOTAL], after[TOTAL] = total(list(before.values())), total(list(after.values()))
        comparisons[TOTAL] = optimizer.compare(before[TOTAL], after[TOTAL])[LIKELIHOOD]
    return CompiledCriteria(compiled, reports, before, after, comparisons)


def count_answers(
    optimizer: LikelihoodOptimizer,
    criteria: Sequence[Criterion],
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
) -> int:
    """Return about how many answers ``compile_each`` asks for: judgments, and each text's likelihood once."""
    texts = {(e.source, e.output) for e in valset}
    for criterion in criteria:
        texts |= {(e.source, e.output) for e in optimizer.measured(trainset, criterion)}
    return len(texts) + sum(optimizer.judgments(trainset, valset, c) for c in criteria)
