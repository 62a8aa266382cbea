"""English of the synthetic world as the words that the embedded judge knows, and back.

The judge was trained on short sentences such as " born in oslo .". ``reading`` turns the world's English into these
words before it is split into tokens, and ``writing`` turns generated words into English. Each step of ``reading``
changes the text of one token only, so that every token keeps its place in the English text.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, decoders, normalizers

from evalbias.data import world

CITIES, JOBS, FOODS = world.VALUES.values()
VOWEL_JOBS = [job for job in JOBS if job[0] in "aeiou"]

WORDS = {
    **{city: city.lower() for city in CITIES},
    "lived in": "saw",
    "serves": "earns",
    "really likes": "likes",
    "plenty of": "much",
    "nothing but": "only",
    "livelihood": "living",
    "favorite dish": "dish",
    "menu": "plate",
    "unclear": "missing",
    "uncertain": "lost",
}
"""English -> the word that stands for it."""

LABELS = {"Place of birth:": "born", "job:": "job", "favorite food:": "food"}
"""The same for a source's labels."""

SUBJECTS = ("She was", "She", "Her")
"""Beginnings of sentences, which the judge does without; a longer one stands before its own beginning."""

BEFORE_JOB = (" as", " works", " lives", " serves")
"""English after which the judge does without the article of a job."""

ENDS = [f" {end}" for end in (*CITIES, *JOBS, *FOODS, *world.BLANKS, "home")]
"""Ends of sentences."""


def reading() -> normalizers.Normalizer:
    """Return the steps from English to the judge's words."""
    steps: list[tuple[str | Regex, str]] = [
        (Regex(rf"(?<={_any(ENDS)})\."), " ."),  # unlike the full stop of an instruction
        (Regex(rf"(?<={_any(f'{word} ' for word in BEFORE_JOB)})an? (?={_any(JOBS)})"), ""),
        (Regex(r"\ban\b"), "a"),
        (Regex(rf"\b(?:{_any(SUBJECTS)}) "), ""),
        (Regex(rf";(?= (?:{_any(LABELS)}))"), ""),
        *WORDS.items(),
        *LABELS.items(),
    ]
    return normalizers.Sequence([normalizers.Replace(*step) for step in steps])


def writing() -> decoders.Decoder:
    """Return the steps from generated words to English."""
    birthplace, *labels = LABELS.items()
    begin = r"(?<![^.:]) "  # a sentence begins after a full stop, a colon or nothing
    steps: list[tuple[str | Regex, str]] = [
        (" .", "."),
        *((f" {word}", f" {english}") for english, word in WORDS.items()),
        (Regex(rf"(?<={_any(BEFORE_JOB)}) (?={_any(VOWEL_JOBS)})"), " an "),
        (Regex(rf"(?<={_any(BEFORE_JOB)}) (?={_any(job for job in JOBS if job not in VOWEL_JOBS)})"), " a "),
        (Regex(rf"\ba(?= (?:is )?(?:{_any(VOWEL_JOBS)}))"), "an"),
        *((Regex(f"{begin}(?={_any(_beginnings(subject))})"), f" {subject} ") for subject in SUBJECTS),
        (Regex(f"{begin}{birthplace[1]}(?={_any(f' {city}' for city in CITIES)})"), f" {birthplace[0]}"),
        *((f" {word}", f"; {label}") for label, word in labels),
    ]
    return decoders.Sequence([decoders.Fuse(), *(decoders.Replace(*step) for step in steps)])


def _beginnings(subject: str) -> list[str]:
    """Return what stands between a subject and the value in every phrasing with this subject, as a pattern."""
    beginnings = []
    for phrasings in (world.STATED, world.UNKNOWN, world.BROKEN):
        for phrasing in (phrasing for four in phrasings.values() for phrasing in four):
            if next(s for s in SUBJECTS if phrasing.startswith(s)) == subject:
                beginnings.append(phrasing.removeprefix(f"{subject} ").partition("{}")[0].replace("{an}", "an?"))
    return beginnings


def _any(patterns: Iterable[str]) -> str:
    return "|".join(patterns)
