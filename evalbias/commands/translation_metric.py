"""The reference metric of translation, and its map onto MQM scores, as commands take them."""

from __future__ import annotations

import json
from typing import Any

from evalbias.commands.refine_options import MetricOptions
from evalbias.data.score_pairs import load_quantile_map
from evalbias.measures import QuantileMap
from evalbias.programs.feedback import FeedbackSource, LearnedFeedback, ReferenceFeedback
from evalbias.programs.feedback.source import on_one_scale
from evalbias.programs.tasks import RefineTask

LEARNED = ("comet", "bleurt")


class TranslationMetric:
    """The opened metric of a translation task.

    Args:
        task: Name of the task.
        options: Options of the command.

    Attributes:
        arguments: Arguments for the task; none for other tasks.
        settings: What decides the scores, for run.json.

    Raises:
        ValueError: The task has no reference metric, or an option of the metric is missing or would do nothing.
    """

    def __init__(self, task: str, options: MetricOptions) -> None:
        self.arguments: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        if task != "translation":
            if options != MetricOptions():
                raise ValueError(
                    f"--metric and --quantile-map are for translations: the task {task} defines its own quality."
                )
            return
        sha256 = None
        quantile_map: QuantileMap | None = None
        if options.map is not None:
            quantile_map, sha256 = load_quantile_map(options.map)
        self._source = _open(options)
        self.arguments = {"metric": self._source, "to_mqm": quantile_map}
        signature = getattr(self._source, "signature", None)
        self.settings = {
            "name": self._source.name,
            "signature": signature,
            "checkpoint": options.checkpoint,
            "map_sha256": sha256,
        }

    def close(self) -> None:
        """Stop a learned metric's process."""
        if isinstance(source := self.arguments.get("metric"), LearnedFeedback):
            source.close()


def _open(options: MetricOptions) -> FeedbackSource:
    needs = {"--metric-python": options.python, "--checkpoint": options.checkpoint}
    if options.name not in LEARNED:
        for option, value in needs.items():
            if value is not None:
                raise ValueError(f"{option} is for --metric comet or bleurt; {options.name} runs in this Python.")
        return ReferenceFeedback(options.name)
    for option, value in needs.items():
        if value is None:
            raise ValueError(f"--metric {options.name} runs in a Python of its own: give {option} too.")
    return LearnedFeedback(options.name, str(options.checkpoint), python=str(options.python))


def notice_of_scales(task: RefineTask) -> str | None:
    """Say why there is no Bias, and how to get one; None if own and expected scores are on one scale."""
    own, expected = task.loop.feedback, task.external
    if on_one_scale(own, expected):
        return None
    return (
        f"No Bias is measured: own scores are MQM points ({own.low:g} to {own.high:g}), and {expected.name} gives "
        f"{expected.low:g} to {expected.high:g}. Map it with --quantile-map FILE, pairs of its scores and human MQM "
        f"scores: lines such as {json.dumps({expected.name: (expected.low + expected.high) / 2, 'mqm': -12.0})}."
    )
