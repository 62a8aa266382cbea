"""Teleprompters that compile the bias out of a judge."""

from evalbias.optimizers.likelihood import BiasedDemos as BiasedDemos
from evalbias.optimizers.likelihood import BiasedDemosReport as BiasedDemosReport
from evalbias.optimizers.likelihood import CompiledCriteria as CompiledCriteria
from evalbias.optimizers.likelihood import LikelihoodMitigation as LikelihoodMitigation
from evalbias.optimizers.likelihood import MitigationReport as MitigationReport
from evalbias.optimizers.likelihood import compile_each as compile_each
from evalbias.optimizers.proposers import GrammarParaphraser as GrammarParaphraser
from evalbias.optimizers.proposers import LMParaphraser as LMParaphraser
from evalbias.optimizers.zepo import ZEPO as ZEPO
