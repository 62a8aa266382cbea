"""Training data of the small judge: English text, and rated items of the training splits only.

All files come from the folder of recorded data. The items are split as by ``evalbias compile likelihood --seed 0``. A
quarter of each training split is held out, so that demonstrations can be chosen from items whose scores the judge has
never seen.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dspy

from evalbias import data
from evalbias.lm.render import as_text, dialogue
from evalbias.programs.criterion import BINS, PRESETS, Criterion
from evalbias.programs.items import label_of
from evalbias.programs.prompts import judge_messages, likelihood_messages

SPLIT_SEED = 0
HELD_OUT = 0.25
SOURCES = {
    "tmu-gfm": "upstream/tmu-gfm-dataset.csv",
    "webnlg2020": "upstream/webnlg-challenge-2020",
}
TEXTS = {
    "summeval.jsonl.gz": ("source", "summary", "reference"),
    "newsroom.jsonl.gz": ("source", "summary"),
    "topicalchat_usr.jsonl": ("context", "fact", "response"),
    "mqm_ted.jsonl.gz": ("source", "output"),
    "self_bias_recorded/mt/*": ("reference", "output"),
}
"""Files (as glob patterns) -> their fields with running text; text in other languages is left out."""


@dataclass(frozen=True)
class Rated:
    """Training split of a data set.

    Attributes:
        name: Name of the data set.
        criteria: Criteria that its items are rated on.
        bins: Edges that cut human scores into labels; None where the scores are on the labels' scale.
        train: Items to learn from.
        candidates: Items held out, from which demonstrations can be chosen.
    """

    name: str
    criteria: tuple[Criterion, ...]
    bins: tuple[float, ...] | None
    train: list[dspy.Example]
    candidates: list[dspy.Example]


@dataclass(frozen=True)
class Dialogue:
    """A judge prompt in which every item has a score.

    Attributes:
        text: Prompt with its scores.
        places: Offset of each score's first character in the text.
        targets: Label -> probability, for each score: the two labels next to the human score, so that the expectation
            is the human score; one label where human scores are binned.
    """

    text: str
    places: list[int]
    targets: list[dict[str, float]]


def rated(folder: Path, name: str) -> Rated:
    """Load a data set's training split and hold out a part of it."""
    items = data.load(name, folder / SOURCES[name])
    train, _ = data.split(list(items), seed=SPLIT_SEED)
    mixed = random.Random(SPLIT_SEED).sample(train, len(train))
    size = round(HELD_OUT * len(mixed))
    return Rated(name, PRESETS[name], BINS.get(name), mixed[size:], mixed[:size])


def texts(folder: Path, sets: list[Rated]) -> list[str]:
    """Return the distinct English texts, sorted, then the items under the likelihood prompt."""
    running = {t for pattern, fields in TEXTS.items() for t in _fields(folder, pattern, fields) if english(t)}
    prompts = [
        dialogue([*likelihood_messages(s.criteria[0], e.source), {"role": "assistant", "content": e.output}])
        for s in sets
        for e in s.train
    ]
    return sorted(running) + prompts


def english(text: str) -> bool:
    """Return whether nearly all characters are ASCII and the most common English words occur."""
    words = text.lower().split()
    common = sum(word in {"the", "a", "of", "to", "and", "in", "is", "i", "you", "it", "that"} for word in words)
    return len(words) > 3 and common / len(words) > 0.08 and sum(map(str.isascii, text)) / len(text) > 0.97


def judging(rng: random.Random, data_set: Rated, items: int) -> Dialogue:
    """Draw a prompt of rated items under a random criterion, each with its human score."""
    criterion = rng.choice(data_set.criteria)
    usable = [e for e in rng.sample(data_set.train, 2 * items) if e.scores[criterion.name] == e.scores[criterion.name]]
    drawn = usable[:items]
    scores = [float(e.scores[criterion.name]) for e in drawn]
    labels = [label_of(score, criterion, bins=data_set.bins) for score in scores]
    last = drawn[-1]
    shown = [(e.source, e.output, label) for e, label in zip(drawn, labels, strict=True)][:-1]
    messages = judge_messages(criterion, last.source, last.output, demos=shown)
    messages.append({"role": "assistant", "content": labels[-1]})
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    places = [len(as_text(messages[: i + 1]).text) - len(messages[i]["content"]) for i in answers]
    targets = [{label: 1.0} if data_set.bins else around(s, criterion) for s, label in zip(scores, labels, strict=True)]
    return Dialogue(dialogue(messages), places, targets)


def around(score: float, criterion: Criterion) -> dict[str, float]:
    """Return the probabilities of the two labels next to a score whose expectation is the score."""
    shares = {label: 1 - abs(score - value) for label, value in zip(criterion.labels, criterion.values, strict=True)}
    return {label: share for label, share in shares.items() if share > 0}


def _fields(folder: Path, pattern: str, fields: tuple[str, ...]) -> Iterator[str]:
    for path in sorted(folder.glob(pattern)):
        unpacked = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in unpacked.decode("utf-8").splitlines():
            row = json.loads(line)
            yield from (row[field].strip() for field in fields if row.get(field))
