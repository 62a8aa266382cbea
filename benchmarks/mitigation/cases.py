"""The judges and the items of the table."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy

from benchmarks.pretrained import GEMMA3, SMOLLM2, models_folder
from benchmarks.tuned_judge import questions
from evalbias import LocalLM, data
from evalbias.data.pairing import by_input
from evalbias.programs.criterion import PRESETS, Criterion

FILES = {**questions.FILES, "newsroom": "upstream/newsroom.json", "topicalchat": "upstream/topical_chat.json"}
ADAPTER = Path(questions.__file__).parent / "adapter"
TUNED = "SmolLM2, tuned"
JUDGES = {"SmolLM2": (SMOLLM2, None), TUNED: (SMOLLM2, str(ADAPTER)), "Gemma 3": (GEMMA3, None)}
"""Judge -> its file in the models' folder, and its adapter."""

CASES = (
    ("tmu-gfm", "fluency"),
    ("tmu-gfm", "grammar"),
    ("webnlg2020", "fluency"),
    ("webnlg2020", "data_coverage"),
    ("summeval", "fluency"),
    ("topicalchat", "naturalness"),
    ("newsroom", "fluency"),
)
"""Data set and criterion of every row; the last two have one rating an item."""


def open_judge(name: str, dtype: str) -> LocalLM:
    """Load a judge's model."""
    file, adapter = JUDGES[name]
    return LocalLM(str(models_folder() / file), adapter=adapter, dtype=dtype)


def criterion_of(data_set: str, name: str) -> Criterion:
    """Return a data set's criterion."""
    return next(c for c in PRESETS[data_set] if c.name == name)


def usable(data_set: str, criterion: str, *, tuned: bool) -> list[dspy.Example]:
    """Return the rated items of a data set; for the tuned judge, those of inputs that it was not trained on.

    The data are read from EVALBIAS_DATA (default ../shared/data). Items without the single ratings are left out where
    others have them.
    """
    if data_set in questions.FILES:
        rated = questions.rated(data_set)
        trained_on = data_set in questions.PERMISSIVE
        items = rated.test if tuned and trained_on else [*rated.train, *rated.test]
    else:
        items = list(data.load(data_set, Path(os.environ.get("EVALBIAS_DATA", "../shared/data")) / FILES[data_set]))
    defined = [e for e in items if e.scores[criterion] == e.scores[criterion]]
    several = [e for e in defined if "ratings" in e]
    return several or defined


def drawn(items: Sequence[dspy.Example], train: int, test: int, seed: int) -> tuple[list[Any], list[Any]]:
    """Draw a training set and a test set that share no input.

    A share of the inputs goes to each. Of each input, as many outputs are taken as reach the wanted number evenly.
    """
    inputs = list(by_input(items).values())
    rng = random.Random(seed)
    rng.shuffle(inputs)
    cut = round(len(inputs) * train / (train + test))
    return _evenly(inputs[:cut], train, rng), _evenly(inputs[cut:], test, rng)


def _evenly(inputs: Sequence[Sequence[dspy.Example]], count: int, rng: random.Random) -> list[dspy.Example]:
    """Take one output after another from every input in turn."""
    left = [rng.sample(list(outputs), len(outputs)) for outputs in inputs]
    taken: list[dspy.Example] = []
    while len(taken) < count and any(left):
        for outputs in left:
            if outputs and len(taken) < count:
                taken.append(outputs.pop())
    return taken
