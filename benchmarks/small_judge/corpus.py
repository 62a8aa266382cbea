"""What the small judge is trained on: English text, and rated items of the training splits only.

Every file is read from the folder of recorded data. The items are split as ``evalbias compile likelihood --seed 0``
splits them; a quarter of each training split is kept back, so that demonstrations can be chosen among items whose
scores the judge has never seen.
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
from evalbias.lm.text import as_text, dialogue
from evalbias.programs.criteria import BINS, PRESETS
from evalbias.programs.criterion import Criterion
from evalbias.programs.labels import label_of
from evalbias.programs.prompt import judge_messages, likelihood_messages

SPLIT_SEED = 0
KEPT_BACK = 0.25
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
"""Which fields of which files are running text; what is not English is left out."""


@dataclass(frozen=True)
class Rated:
    """A data set's items: ``train`` to learn from, ``candidates`` kept back to choose demonstrations from."""

    name: str
    criteria: tuple[Criterion, ...]
    bins: tuple[float, ...] | None
    train: list[dspy.Example]
    candidates: list[dspy.Example]


@dataclass(frozen=True)
class Dialogue:
    """A judge prompt whose every item is rated.

    Attributes:
        text: The prompt and its scores.
        places: Offset of each score's first character in the text.
        targets: Of each score, probability by label: the two labels around the human score, so that the expectation
            is the human score itself; one label where human scores are binned.
    """

    text: str
    places: list[int]
    targets: list[dict[str, float]]


def rated(folder: Path, name: str) -> Rated:
    """The training split of a data set, cut into its two parts."""
    items = data.load(name, folder / SOURCES[name])
    train, _ = data.split(list(items), seed=SPLIT_SEED)
    mixed = random.Random(SPLIT_SEED).sample(train, len(train))
    back = round(KEPT_BACK * len(mixed))
    return Rated(name, PRESETS[name], BINS.get(name), mixed[back:], mixed[:back])


def texts(folder: Path, sets: list[Rated]) -> list[str]:
    """Every distinct English text, sorted: running text, then items under the likelihood prompt."""
    running = {t for pattern, fields in TEXTS.items() for t in _fields(folder, pattern, fields) if english(t)}
    prompts = [
        dialogue([*likelihood_messages(s.criteria[0], e.source), {"role": "assistant", "content": e.output}])
        for s in sets
        for e in s.train
    ]
    return sorted(running) + prompts


def english(text: str) -> bool:
    """Whether nearly all letters are ASCII and the commonest English words are there."""
    words = text.lower().split()
    common = sum(word in {"the", "a", "of", "to", "and", "in", "is", "i", "you", "it", "that"} for word in words)
    return len(words) > 3 and common / len(words) > 0.08 and sum(map(str.isascii, text)) / len(text) > 0.97


def judging(rng: random.Random, of: Rated, items: int) -> Dialogue:
    """A prompt of so many items under a criterion drawn at random, each with its human score."""
    criterion = rng.choice(of.criteria)
    usable = [e for e in rng.sample(of.train, 2 * items) if e.scores[criterion.name] == e.scores[criterion.name]]
    drawn = usable[:items]
    scores = [float(e.scores[criterion.name]) for e in drawn]
    labels = [label_of(score, criterion, bins=of.bins) for score in scores]
    last = drawn[-1]
    shown = [(e.source, e.output, label) for e, label in zip(drawn, labels, strict=True)][:-1]
    messages = judge_messages(criterion, last.source, last.output, demos=shown)
    messages.append({"role": "assistant", "content": labels[-1]})
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    places = [len(as_text(messages[: i + 1]).text) - len(messages[i]["content"]) for i in answers]
    targets = [{label: 1.0} if of.bins else around(s, criterion) for s, label in zip(scores, labels, strict=True)]
    return Dialogue(dialogue(messages), places, targets)


def around(score: float, criterion: Criterion) -> dict[str, float]:
    """The score as a mean of its two neighboring labels."""
    shares = {label: 1 - abs(score - value) for label, value in zip(criterion.labels, criterion.values, strict=True)}
    return {label: share for label, share in shares.items() if share > 0}


def _fields(folder: Path, pattern: str, fields: tuple[str, ...]) -> Iterator[str]:
    for path in sorted(folder.glob(pattern)):
        unpacked = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in unpacked.decode("utf-8").splitlines():
            row = json.loads(line)
            yield from (row[field].strip() for field in fields if row.get(field))
