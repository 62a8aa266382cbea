"""Teleprompters that compile the bias out of a judge."""

from evalbias.optimizers.biased_demos import BiasedDemos, BiasedDemosReport

__all__ = ["BiasedDemos", "BiasedDemosReport"]
