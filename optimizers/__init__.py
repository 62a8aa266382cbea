"""Teleprompters that compile the bias out of a judge."""

from evalbias.optimizers.biased_demos import BiasedDemos, BiasedDemosReport
from evalbias.optimizers.likelihood_mitigation import LikelihoodMitigation, MitigationReport
from evalbias.optimizers.multi_criteria import CompiledCriteria, compile_each, count_answers
from evalbias.optimizers.zepo import ZEPO, GrammarParaphraser, LMParaphraser

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
