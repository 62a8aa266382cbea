"""TopicalChat-USR (Mehri and Eskenazi 2020): 60 dialogues, six responses each, rated on six aspects."""

from __future__ import annotations

from pathlib import Path

from evalbias.data.dataset import Dataset
from evalbias.data.reading import Source, scores, text

ASPECTS = ("understandability", "naturalness", "coherence", "engagingness", "groundedness", "overall")
RECORDED = {"maintains_context": "coherence", "uses_knowledge": "groundedness"}
"""Aspects that the recorded form calls by their first names."""

FIELDS = {
    False: ("source", "context", "system_output", "system_id"),
    True: ("context", "fact", "response", "system"),
}
"""Dialogue, fact, response and system, as the published and the recorded form call them."""

NO_FACT = "_nofact"


def load_topicalchat(path: Path) -> Dataset:
    """Read the published JSON, or its recorded JSONL form; both give the same items.

    The source is the dialogue and, on a line of its own, the fact that the response should use, where there is one.
    Items have ``input_id``, the dialogue's number, ``system`` and ``fact`` (None where there is none); their id is the
    dialogue's number and the place among its responses.

    Raises:
        DataError: A malformed record; file and line or item are named.
    """
    source = Source("topicalchat", path)
    recorded = path.name.endswith((".jsonl", ".jsonl.gz"))
    numbers: dict[tuple[str, str], int] = {}
    places: dict[int, int] = {}
    for where, record in source.rows() if recorded else source.json_records():
        names = (
            ("context", "fact", "response", "system")
            if recorded
            else ("source", "context", "system_output", "system_id")
        )
        dialogue, fact, output, system = (text(record, name, where, blank=name == names[2]).strip() for name in names)
        number = numbers.setdefault((dialogue, fact), len(numbers))
        places[number] = places.get(number, -1) + 1
        told = None if fact == NO_FACT else fact
        rated = scores(record, where)
        source.add(
            {
                "id": f"topicalchat-{number:02d}-{places[number]}",
                "input_id": f"{number:02d}",
                "system": system,
                "fact": told,
                "source": dialogue if told is None else f"{dialogue}\nFact: {told}",
                "output": output,
                "scores": scores({"scores": {RECORDED.get(k, k): v for k, v in rated.items()}}, where, wanted=ASPECTS),
            },
            where,
        )
    return source.dataset()
