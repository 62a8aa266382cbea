"""Adapter that turns a judge's signature, demonstrations and inputs into one judgment.

A measured answer does not depend on sampling settings, so only ``cache`` and ``rollout_id`` of a call's settings are
passed to the model; ``direct`` scoring decodes greedily, and ``sampled`` scoring has settings of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import dspy
from dspy import lm15

from evalbias.data.item_names import item_name
from evalbias.data.numbers import recorded_number
from evalbias.data.surrogates import lone_surrogate
from evalbias.lm.asking import aask, ask, awrite, write
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.types import ChoiceLogprobs
from evalbias.programs.criterion import Criterion
from evalbias.programs.labels import label_of
from evalbias.programs.prompt import Message, item_text, judge_head

PASSED_SETTINGS = ("cache", "rollout_id")
MAX_SCORE_TOKENS = 8
"""Largest number of tokens that direct scoring generates."""

_GREEDY = lm15.Config(temperature=0.0, max_tokens=MAX_SCORE_TOKENS)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?!\d)(?![\w.]*\d)")


class JudgmentAdapter(dspy.Adapter):  # type: ignore[misc]
    """Adapter that asks for the score's distribution (``expected``, ``sampled``) or a written score (``direct``)."""

    def __init__(self, criterion: Criterion, scoring: str, sampling: Sampling | None = None) -> None:
        super().__init__()
        self.criterion = criterion
        self.scoring = scoring
        self.sampling = sampling

    def format(self, signature: Any, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[Message]:
        """Return the messages of one judgment."""
        return self.prompts(signature, demos, [inputs])[0]

    def prompts(
        self, signature: Any, demos: Sequence[Mapping[str, Any]], items: Sequence[Mapping[str, Any]]
    ) -> list[list[Message]]:
        """Return the messages of one judgment per item; the demonstrations are rendered once."""
        shown = [(text_field(d, "source"), text_field(d, "output"), self._label(d)) for d in demos]
        head = judge_head(self.criterion, demos=shown, instructions=signature.instructions)
        return [[*head, self._item_message(item)] for item in items]

    def _item_message(self, item: Mapping[str, Any]) -> Message:
        text = item_text(self.criterion, text_field(item, "source"), text_field(item, "output"))
        return {"role": "user", "content": text}

    def _label(self, demo: Mapping[str, Any]) -> str:
        named = f"demonstration {item_name(demo)!r:.80}"
        score = recorded_number(demo.get("score"), f"The score of the {named}")
        if math.isnan(score):
            raise ValueError(
                f"The {named} has no score: label the training set with evalbias.programs.labeled(examples, criterion)."
            )
        try:
            return label_of(score, self.criterion)
        except ValueError as error:
            raise ValueError(f"The {named} has no label. {error}") from error

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask for one judgment; see ``dspy.Adapter``."""
        messages, options = self.format(signature, demos, inputs), call_options(lm_kwargs)
        if self.scoring == "direct":
            return [written_score(self.criterion, write(lm, messages, _GREEDY, **options))]
        return expected_scores(self.criterion, ask(lm, messages, self.criterion.labels, self.sampling, **options))

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask for one judgment asynchronously; see ``dspy.Adapter``."""
        messages, options = self.format(signature, demos, inputs), call_options(lm_kwargs)
        if self.scoring == "direct":
            return [written_score(self.criterion, await awrite(lm, messages, _GREEDY, **options))]
        answer = await aask(lm, messages, self.criterion.labels, self.sampling, **options)
        return expected_scores(self.criterion, answer)


def call_options(lm_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a call that are DSPy's own, not the model's."""
    return {name: lm_kwargs[name] for name in PASSED_SETTINGS if name in lm_kwargs}


def text_field(item: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a text that is not empty.

    Raises:
        ValueError: The field is missing, empty, not a text, or holds a lone surrogate.
    """
    value = item.get(name)
    check_no_metric(value, "judge_metric")
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name!r} is {value!r:.80} in {_named(item)}: give a text that is not empty.")
    if problem := text_problem(value):
        raise ValueError(f"{name!r} of {_named(item)} {problem}: write the character whole, or remove it.")
    return value


def _named(item: Mapping[str, Any]) -> str:
    return f"the item {item['id']!r:.80}" if item.get("id") is not None else f"{str(dict(item))[:80]!r}..."


def check_no_metric(source: Any, factory: str) -> None:
    """Refuse an example in place of a text, as a judge gets it that is itself called as a metric.

    Raises:
        TypeError: It is an example; the message names the factory that makes a metric of a judge.
    """
    if isinstance(source, dspy.Example):
        raise TypeError(
            "The judge was called with an example in place of a text. To use it as a metric, pass "
            f"metric=evalbias.{factory}(judge); to judge an example, call judge(**example.inputs())."
        )


def text_problem(value: Any) -> str | None:
    """Say what keeps a value from being shown to a judge as a text, such as "is empty"; None if nothing does."""
    if value is None:
        return "is None"
    if not isinstance(value, str | Number):  # a model would read Python's notation of a list or an object
        return f"is a {type(value).__name__}, not a text"
    if not str(value).strip():
        return "is empty"
    surrogate = lone_surrogate(str(value))
    return surrogate and f"holds {surrogate}"


def expected_scores(criterion: Criterion, answer: ChoiceLogprobs) -> list[dict[str, Any]]:
    """Return the fields of a prediction for each row; the score is the expectation (Ohi et al. 2024, eq 7).

    Score and mode are NaN if no label has any probability.
    """
    rows = zip(answer.probabilities, answer.coverage, strict=True)
    return [
        _expected(criterion, dict(zip(criterion.labels, p.tolist(), strict=True)), float(c), answer.samples)
        for p, c in rows
    ]


def _expected(
    criterion: Criterion, distribution: dict[str, float], coverage: float, samples: int | None
) -> dict[str, Any]:
    score = sum(value * distribution[label] for value, label in zip(criterion.values, criterion.labels, strict=True))
    mode = math.nan if math.isnan(score) else float(max(distribution, key=distribution.__getitem__))
    return {"score": score, "distribution": distribution, "mode": mode, "coverage": coverage, "samples": samples}


def written_score(criterion: Criterion, text: str) -> dict[str, Any]:
    """Read the first whole number of a text as the score; NaN without a number or if it is off the scale."""
    match = _NUMBER.search(text)
    score = float(match.group()) if match and match.group() in criterion.labels else math.nan
    return {"score": score, "distribution": None, "mode": score, "coverage": math.nan, "samples": None}
