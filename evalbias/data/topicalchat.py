"""TopicalChat-USR (Mehri and Eskenazi 2020): 60 dialogues with six responses each, rated on six aspects."""

from __future__ import annotations

from pathlib import Path

from evalbias.data.dataset import Dataset
from evalbias.data.reading import Source, scores, text

ASPECTS = ("understandability", "naturalness", "coherence", "engagingness", "groundedness", "overall")
RECORDED = {"maintains_context": "coherence", "uses_knowledge": "groundedness"}
"""Names of aspects in the recorded form -> names used here."""

FIELDS = {
    False: ("source", "context", "system_output", "system_id"),
    True: ("context", "fact", "response", "system"),
}
"""Names of the fields for dialogue, fact, response and system in the published (False) and recorded (True) form."""

NO_FACT = "_nofact"


def load_topicalchat(path: Path) -> Dataset:
    """Read the published JSON file, or its recorded JSONL form; both give the same items.

    The source is the dialogue, followed on its own line by the fact that the response should use, if it has one (else
    ``fact`` is None). ``input_id`` is the number of the dialogue; the id adds the position among its responses.

    Raises:
        DataError: A record is malformed; the message names the file and the line or item.
    """
    source = Source("topicalchat", path)
    recorded = path.name.endswith((".jsonl", ".jsonl.gz"))
    names = FIELDS[recorded]
    numbers: dict[tuple[str, str], int] = {}
    places: dict[int, int] = {}
    for where, record in source.rows() if recorded else source.json_records():
        dialogue, fact, output, system = (text(record, name, where, blank=name == names[2]).strip() for name in names)
        number = numbers.setdefault((dialogue, fact), len(numbers))
        places[number] = places.get(number, -1) + 1
        stated_fact = None if fact == NO_FACT else fact
        renamed = {RECORDED.get(k, k): v for k, v in scores(record, where).items()}
        source.add(
            {
                "id": f"topicalchat-{number:02d}-{places[number]}",
                "input_id": f"{number:02d}",
                "system": system,
                "fact": stated_fact,
                "source": dialogue if stated_fact is None else f"{dialogue}\nFact: {stated_fact}",
                "output": output,
                "scores": scores({"scores": renamed}, where, required=ASPECTS),
            },
            where,
        )
    return source.dataset()
