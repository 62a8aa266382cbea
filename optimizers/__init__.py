"""Teleprompters that compile the bias out of a judge."""

from evalbias.optimizers.biased_demos import BiasedDemos, BiasedDemosReport
from evalbias.optimizers.multi_criteria import CompiledCriteria, compile_each, count_answers
from evalbias.optimizers.zepo import ZEPO, GrammarParaphraser, LMParaphraser

__all__ = [
    "ZEPO",
    "BiasedDemos",
    "BiasedDemosReport",
    "CompiledCriteria",
    "GrammarParaphraser",
    "LMParaphraser",
    "compile_each",
    "count_answers",
]
