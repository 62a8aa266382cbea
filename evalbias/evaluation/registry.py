"""The biases that commands, reports and searches know. A new bias is a file beside this one and a line here."""

from __future__ import annotations

from evalbias.evaluation.corrected import CorrectedEstimates
from evalbias.evaluation.joint import JointEffects
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.likelihood import LikelihoodBias
from evalbias.evaluation.measurement import Bias, Measurement, measure
from evalbias.evaluation.people import PeopleAgreement
from evalbias.evaluation.position import PositionBias
from evalbias.evaluation.scale_use import ScaleUse
from evalbias.evaluation.self_bias import SelfBias
from evalbias.evaluation.self_preference import SelfPreference
from evalbias.evaluation.verbosity import VerbosityBias

BIASES: dict[str, Bias] = {
    bias.name: bias
    for bias in (
        LikelihoodBias(),
        PositionBias(),
        VerbosityBias(),
        SelfBias(),
        SelfPreference(),
        ScaleUse(),
        JointEffects(),
        PeopleAgreement(),
        CorrectedEstimates(),
    )
}
"""Every bias that can be measured, by name."""


def measure_all(judged: Judged, *, seed: int) -> dict[str, Measurement]:
    """Measure every bias that applies to a judge's answers; name of the bias -> measurement."""
    return {bias.name: measure(bias, judged, seed=seed) for bias in BIASES.values() if bias.applies(judged)}
