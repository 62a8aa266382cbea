"""Teleprompters that compile the bias out of a judge."""

from evalbias.optimizers.biased_demos import BiasedDemos, BiasedDemosReport
from evalbias.optimizers.several import CompiledCriteria, compile_each, count_answers

__all__ = ["BiasedDemos", "BiasedDemosReport", "CompiledCriteria", "compile_each", "count_answers"]
