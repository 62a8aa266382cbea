"""Measure the biases of a judge and compare two judges on the same items."""

from evalbias.evaluation.aspects import Aspect, measure_aspects
from evalbias.evaluation.loop_summary import LoopSummary, summarize_loop
from evalbias.evaluation.style import Paraphrased, StyleReport, measure_style

__all__ = [
    "Aspect",
    "LoopSummary",
    "Paraphrased",
    "StyleReport",
    "measure_aspects",
    "measure_style",
    "summarize_loop",
]
