"""Questions about self-bias, ready to be asked: of style, of other aspects than quality, of several models."""

from evalbias.programs.analyses.aspects import Aspect, measure_aspects
from evalbias.programs.analyses.models import LoopSummary, summarise_loop
from evalbias.programs.analyses.style import Paraphrased, StyleReport, measure_style

__all__ = [
    "Aspect",
    "LoopSummary",
    "Paraphrased",
    "StyleReport",
    "measure_aspects",
    "measure_style",
    "summarise_loop",
]
