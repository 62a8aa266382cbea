"""Wordings of a comparison in the synthetic world, and the position bias that each causes in its judge.

A wording takes one phrase from every part. Each phrase moves the judge towards the first position by a known number of
nats (away from it if negative), and a wording by the sum of its phrases. Nothing else about a wording matters, so the
fairest wording is known.
"""

from __future__ import annotations

import itertools

PARTS: tuple[dict[str, float], ...] = (
    {
        "Which {output} is": 0.8,
        "What {output} is": 0.3,
        "Choose the {output} that is": 0.1,
        "Say which {output} is": -0.1,
        "Find the {output} that is": -0.4,
        "Name the {output} that is": -0.8,
    },
    {"better on": 0.6, "best for": 0.2, "stronger on": -0.2, "ahead on": -0.6},
    {"{name}:": 0.3, "{name}.": 0.0, "{name},": -0.3},
    {"{definition}": 0.4, "judge by the {source}.": 0.0, "look at all of the {source}.": -0.4},
)

GENERAL: tuple[tuple[str, ...], ...] = (
    (
        "Which {output} is",
        "Say which {output} is",
        "Decide which {output} is",
        "Choose the {output} that is",
        "Point out the {output} that is",
    ),
    ("better on", "stronger on", "the better one on", "ahead on"),
    ("{name}:", "{name}."),
    (
        "{definition}",
        "{definition} Read every {output} to its end first.",
        "{definition} Weigh each {output} against the {source}.",
        "{definition} The order in which they stand means nothing.",
        "{definition} Neither length nor place counts.",
    ),
)
"""Phrases for any criterion, all of which keep its definition. Their effect on a judge is unknown."""

GAIN = 1.5
"""Nats by which one point of quality moves the pairwise judge."""


def wordings(*, source: str, output: str, name: str, definition: str) -> dict[str, float]:
    """List every wording with its bias towards the first position, in nats."""
    fields = {"source": source, "output": output, "name": name, "definition": definition}
    biases = {}
    for phrases in itertools.product(*(part.items() for part in PARTS)):
        text = " ".join(phrase for phrase, _ in phrases).format(**fields)
        biases[text] = sum(bias for _, bias in phrases)
    return biases
