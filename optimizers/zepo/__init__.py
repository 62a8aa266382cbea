"""ZEPO: zero-shot search for a fairer instruction (Zhou et al., EMNLP 2024), one file for each decision."""

from evalbias.optimizers.zepo.acceptance import Acceptance, StrictImprovement
from evalbias.optimizers.zepo.candidate import Candidate
from evalbias.optimizers.zepo.objectives import (
    BiasObjective,
    CalibrationGap,
    Confidence,
    ContextFreeConfidence,
    Fairness,
    Objective,
    ScoreUniformity,
)
from evalbias.optimizers.zepo.proposers import GrammarParaphraser, LMParaphraser, Proposal, Proposer
from evalbias.optimizers.zepo.search import ZEPO
from evalbias.optimizers.zepo.stopping import Epochs, Patience, Stopping
from evalbias.optimizers.zepo.trace import Tried, ZEPOReport

__all__ = [
    "ZEPO",
    "Acceptance",
    "BiasObjective",
    "CalibrationGap",
    "Candidate",
    "Confidence",
    "ContextFreeConfidence",
    "Epochs",
    "Fairness",
    "GrammarParaphraser",
    "LMParaphraser",
    "Objective",
    "Patience",
    "Proposal",
    "Proposer",
    "ScoreUniformity",
    "Stopping",
    "StrictImprovement",
    "Tried",
    "ZEPOReport",
]
