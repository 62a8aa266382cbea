"""Proposers of new instructions.

A wording must keep the criterion's name, the instruction's language as far as scripts tell it, and, if the instruction
has it, the place of the answers, ``{answers}``.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import dspy

from evalbias.data.world import GENERAL
from evalbias.lm.dspy_seam import UNSUPPORTED
from evalbias.programs.criterion import Criterion
from evalbias.programs.prompts import ANSWERS, LANGUAGES, LETTERS, filled
from evalbias.programs.writing import LARGEST_SEED
from evalbias.values import WORD_CHARACTER

ATTEMPTS = 4  # largest number of requests for each wording
MIXED = 1 / 3  # largest distance between the scripts of two wordings: Japanese varies in kana and kanji


@dataclass(frozen=True)
class Proposal:
    """New wordings."""

    instructions: tuple[str, ...]  # usable, at most as many as requested; none is known or repeated
    rejected: tuple[tuple[str, str], ...] = ()  # (reason, text)
    calls: int = 0  # requests to a model


class Proposer(Protocol):
    """Rewords an instruction, the incumbent of the search. The same seed gives the same proposals."""

    def __call__(
        self, criterion: Criterion, instruction: str, count: int, *, known: Collection[str], seed: int
    ) -> Proposal:
        """Return up to ``count`` wordings that keep the criterion's name and are not ``known``."""
        ...


def check_proposer(proposer: Proposer) -> None:
    """Refuse what is no proposer, such as a model that could reword."""
    if isinstance(proposer, dspy.BaseLM):
        raise TypeError(f"The model {proposer.model!r} is no proposer: give LMParaphraser(lm), which rewords with it.")
    if not callable(proposer) or isinstance(proposer, type):
        raise TypeError(f"proposer={proposer!r} is none: give GrammarParaphraser() or LMParaphraser(lm).")


def fault(text: str, criterion: Criterion, known: Collection[str], instruction: str = "") -> str | None:
    """Return the reason why a rewording of an instruction cannot be used; None if it can."""
    if not text.strip():
        return "empty"
    if not re.search(rf"(?<!{WORD_CHARACTER}){re.escape(criterion.title)}(?!{WORD_CHARACTER})", text, re.IGNORECASE):
        return f"without the name {criterion.title!r}"
    if ANSWERS in instruction and ANSWERS not in text:
        return f"without {ANSWERS}, the place of the answers"
    ties = (language.tie for language in LANGUAGES.values())
    labels = "|".join(map(re.escape, (*LETTERS, *ties, *criterion.labels)))
    if re.search(rf"(?:^|[:：]|\bis)\W*(?:{labels})\W*$", _split(text)[0]):
        return "an answer, not a question"
    if script_distance(text, instruction, criterion) > MIXED:
        return "in other scripts than the instruction"
    if _plain(text) == _plain(instruction):
        return "a copy of the original"
    return "known already" if _plain(text) in set(map(_plain, known)) else None


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def script_distance(first: str, second: str, criterion: Criterion) -> float:
    """Return the total variation distance between the scripts of two texts' letters, in [0, 1]; NaN without letters.

    The criterion's own words take no part, as they may be of another language than the sentence around them.
    """
    shares = []
    for text in (first, second):
        for own in (criterion.definition, criterion.title, criterion.output_label, criterion.source_label, ANSWERS):
            text = text.replace(own, " ")
        names = [unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha()]
        counts = Counter("KANA" if name.startswith(("HIRAGANA", "KATAKANA")) else name for name in names)
        shares.append({script: n / len(names) for script, n in counts.items()})
    scripts = shares[0].keys() | shares[1].keys()
    return sum(abs(shares[0].get(s, 0) - shares[1].get(s, 0)) for s in scripts) / 2 if all(shares) else math.nan


class LMParaphraser:
    """Rewords the whole instruction with any ``dspy.LM``, which answers in the form of DSPy's adapter.

    Small models often leave the last line out, which names the place of the answers: it then follows as it was.

    The request is in the language of ``LANGUAGES`` whose script is nearest to the instruction's, and asks for it. The
    whole field ``wording`` of the answer is the new instruction. An answer without it is rejected, so that no preamble
    of a chat model becomes an instruction, and so is one that the model could not finish.

    Args:
        lm: Model that rewords; another model than the judge may do it better.
        temperature: Sampling temperature (the paper: .9).
        max_tokens: Largest length of an answer.
    """

    def __init__(self, lm: Any, *, temperature: float = 0.9, max_tokens: int = 1_000) -> None:
        self.lm = lm
        self.temperature = temperature
        self.max_tokens = max_tokens

    def __call__(
        self, criterion: Criterion, instruction: str, count: int, *, known: Collection[str], seed: int
    ) -> Proposal:
        """A rejected wording is requested again, with another seed."""
        calls, takes_seed = 0, True
        near = min(LANGUAGES.values(), key=lambda language: script_distance(language.reword, instruction, criterion))
        reword = dspy.Signature("instruction, keep: list[str] -> wording", near.reword)

        def draw(attempt: int) -> tuple[str, str | None]:
            nonlocal calls, takes_seed
            predict, number = dspy.Predict(reword), (seed * 10_007 + attempt) % LARGEST_SEED
            keep = [criterion.title, ANSWERS] if ANSWERS in instruction else [criterion.title]
            config = {"temperature": self.temperature, "max_tokens": self.max_tokens}
            config["seed" if takes_seed else "rollout_id"] = number  # either gets past DSPy's cache
            wrong = None
            # The predictor's own history tells how its answers ended.
            with dspy.context(lm=self.lm, disable_history=False, max_history_size=10_000):
                try:
                    text = _bare(predict(instruction=instruction, keep=keep, config=config).wording or "")
                    text = _with_line(text, instruction)
                except dspy.AdapterParseError as error:
                    text = error.lm_response
                    wrong = "without the field that the adapter reads" if text.strip() else "empty"
                except UNSUPPORTED:
                    if not takes_seed:
                        raise
                    takes_seed = False
                    return draw(attempt)
            calls += len(predict.history)
            last = predict.history[-1]["response"]  # LiteLLM's responses hold their choices
            if any(choice.finish_reason == "length" for choice in getattr(last, "choices", [last])):
                wrong = f"longer than max_tokens={self.max_tokens}"
            return text, wrong

        return replace(_gathered(draw, criterion, instruction, count, known), calls=calls)


def _bare(text: str) -> str:
    """Return a field's text without a model's thoughts before it, and the fence or the quotation marks around it."""
    text = text.rpartition("</think>")[2].strip()
    if fenced := re.fullmatch(r"```\w*\n(.*)\n```", text, re.DOTALL):
        text = fenced[1].strip()
    quoted = re.fullmatch(r"\"([^\"]*)\"|'([^']*)'|“([^”]*)”|「([^」]*)」", text)
    return next(filter(None, quoted.groups()), "").strip() if quoted else text


def _with_line(text: str, instruction: str) -> str:
    """Return a wording with the instruction's line of the answers, unless it has their place or names them itself."""
    words = (rf"(?<!{WORD_CHARACTER}){letter}(?!{WORD_CHARACTER})" for letter in LETTERS[:2])
    names = all(re.search(word, text) for word in words)  # both: A is also an article
    return text if not text or ANSWERS in text or names else text + _split(instruction)[1]


class GrammarParaphraser:
    """Rewords without a model: a wording takes one phrase from each part, and a new one changes some of these.

    It changes one part, with probability one half another one, and so on, so that most wordings stay close to the given
    instruction. An instruction that the parts cannot make, such as a hand-written one, has no parts to change: wordings
    are then drawn freely. A last line with the place of the answers stays as it is.

    Args:
        parts: Alternatives for each place; ``{source}``, ``{output}``, ``{name}`` and ``{definition}`` are the
            criterion's. Defaults to phrases that fit any criterion, ``evalbias.data.world.GENERAL``.
    """

    def __init__(self, parts: Iterable[Iterable[str]] = GENERAL) -> None:
        self.parts = [tuple(options) for options in parts]

    def __call__(
        self, criterion: Criterion, instruction: str, count: int, *, known: Collection[str], seed: int
    ) -> Proposal:
        if count:
            self.check(criterion, instruction)
        rng, parts = random.Random(seed), self._filled(criterion)
        question, ending = _split(instruction)
        choices = _choices(question, parts)

        def draw(_: int) -> tuple[str, None]:
            if choices is None:
                phrases = [rng.choice(options) for options in parts]
            else:
                phrases = [options[i] for options, i in zip(parts, _mutated(choices, parts, rng), strict=True)]
            return " ".join(phrases) + ending, None

        # Phrases have no place of the answers; where no line has it, the judge's own line follows.
        return _gathered(draw, criterion, instruction if ending else question.replace(ANSWERS, ""), count, known)

    def check(self, criterion: Criterion, instruction: str) -> None:
        """Refuse an instruction or a definition in another script than the phrases; the error names what rewords it."""
        if not _is_latin(re.sub(r"{\w+}", "", " ".join(itertools.chain(*self.parts)))):
            return
        for text in (_split(instruction)[0], criterion.definition):
            if not _is_latin(text):
                raise ValueError(
                    f"GrammarParaphraser cannot reword {text!r:.80}: its phrases are English. Name a model that "
                    "rewords, LMParaphraser(lm) or `proposer_lm`, or give GrammarParaphraser phrases of your own."
                )

    def makes(self, criterion: Criterion, instruction: str) -> bool:
        return _choices(_split(instruction)[0], self._filled(criterion)) is not None

    def _filled(self, criterion: Criterion) -> list[tuple[str, ...]]:
        return [tuple(filled(option, criterion) for option in options) for options in self.parts]


def _split(instruction: str) -> tuple[str, str]:
    """Return an instruction without its last line, and that line if it has the place of the answers."""
    question, newline, line = instruction.rpartition("\n")
    return (question, newline + line) if newline and ANSWERS in line else (instruction, "")


def _is_latin(text: str) -> bool:
    """Return whether three of four letters of a text are Latin, which English is written in: names may be others."""
    letters = [letter for letter in text if letter.isalpha()]
    return sum(unicodedata.name(letter, "").startswith("LATIN") for letter in letters) >= 0.75 * len(letters)


def _choices(text: str, parts: Sequence[tuple[str, ...]]) -> tuple[int, ...] | None:
    """Return the phrase of each part that a text was made from, or None if the parts cannot make it."""
    match = re.fullmatch(" ".join(f"({'|'.join(map(re.escape, options))})" for options in parts), text)
    if not parts or match is None:
        return None
    return tuple(options.index(phrase) for options, phrase in zip(parts, match.groups(), strict=True))


def _mutated(choices: Sequence[int], parts: Sequence[tuple[str, ...]], rng: random.Random) -> list[int]:
    """Return the choices with one part's phrase changed, with probability one half another one's, and so on."""
    mutated, changeable = list(choices), [place for place, options in enumerate(parts) if len(options) > 1]
    for place in rng.sample(changeable, len(changeable)):
        mutated[place] = rng.choice([i for i in range(len(parts[place])) if i != choices[place]])
        if rng.random() < 0.5:
            break
    return mutated


Draw = Callable[[int], tuple[str, str | None]]
"""Number of the attempt -> (text, what is wrong with it already; None if nothing)."""


def _gathered(draw: Draw, criterion: Criterion, instruction: str, count: int, known: Collection[str]) -> Proposal:
    """Draw until there are enough usable wordings, or the attempts are spent."""
    usable: list[str] = []
    rejected: list[tuple[str, str]] = []
    for attempt in range(count * ATTEMPTS):
        if len(usable) == count:
            break
        text, wrong = draw(attempt)
        wrong = wrong or fault(text, criterion, {*known, *usable}, instruction)
        if wrong:
            rejected.append((wrong, text))
        else:
            usable.append(text)
    return Proposal(tuple(usable), tuple(rejected))
