"""Teleprompters that compile the bias out of a judge."""

from evalbias.optimizers.likelihood import (
    BiasedDemos,
    BiasedDemosReport,
    CompiledCriteria,
    LikelihoodMitigation,
    MitigationReport,
    compile_each,
    count_answers,
)
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser
from evalbias.optimizers.zepo import ZEPO

__all__ = [
    "ZEPO",
    "BiasedDemos",
    "BiasedDemosReport",
    "CompiledCriteria",
    "GrammarParaphraser",
    "LMParaphraser",
    "LikelihoodMitigation",
    "MitigationReport",
    "compile_each",
    "count_answers",
]
