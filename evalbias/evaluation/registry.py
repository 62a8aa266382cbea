"""The biases that commands, reports and searches know. A new bias is a file beside this one and a line here."""

from __future__ import annotations

from evalbias.evaluation.estimates import Bias
from evalbias.evaluation.likelihood import LikelihoodBias
from evalbias.evaluation.position import PositionBias
from evalbias.evaluation.self_bias import SelfBias
from evalbias.evaluation.verbosity import VerbosityBias

BIASES: dict[str, Bias] = {
    bias.name: bias
    for bias in (
        LikelihoodBias(),
        PositionBias(),
        VerbosityBias(),
        SelfBias(),
    )
}
"""Name -> bias."""
