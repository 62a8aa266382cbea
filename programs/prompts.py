"""Wording of the prompts, in which criterion, demonstrations and item become chat messages.

A message is ``{"role": "system" | "user" | "assistant", "content": str}``. The language model turns messages into
tokens, with its chat template or as plain text for a base model.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from evalbias.programs.criterion import Criterion
from evalbias.programs.languages import LANGUAGES

Message = dict[str, str]
ENGLISH = "en"


def scoring_instructions(criterion: Criterion, language: str = ENGLISH) -> str:
    """Return a scoring judge's initial instruction, before any optimization."""
    said = LANGUAGES[language]
    return f"{said.scoring.format(**said.words(criterion))}\n{answer_format(criterion, language)}"


def answer_format(criterion: Criterion, language: str = ENGLISH) -> str:
    """Return the last line of a scoring judge's instruction, which names the answers."""
    low, high = criterion.scale
    return LANGUAGES[language].scale.format(low=low, high=high)


def item_text(criterion: Criterion, source: str, output: str, language: str = ENGLISH) -> str:
    """Render one item up to the point where its score follows."""
    said = LANGUAGES[language]
    texts = ((criterion.source_label, source), (criterion.output_label, output))
    lines = [said.text.format(label=label, text=text) for label, text in texts]
    return "\n".join([*lines, said.score.format(name=criterion.title.capitalize())])


def judge_messages(
    criterion: Criterion,
    source: str,
    output: str,
    *,
    shown: Sequence[Message] = (),
    instructions: str | None = None,
    language: str = ENGLISH,
) -> list[Message]:
    """Render the prompt of one judgment; ``instructions`` default to ``scoring_instructions``.

    ``shown`` holds the messages of ``demonstrations``, which are rendered once for all prompts.
    """
    wording = scoring_instructions(criterion, language) if instructions is None else instructions
    head = {"role": "system", "content": wording}
    return [head, *shown, {"role": "user", "content": item_text(criterion, source, output, language)}]


def demonstrations(shown: Iterable[tuple[str, str]]) -> list[Message]:
    """Render the text and the label of each demonstration, in the order shown."""
    return [
        {"role": role, "content": content}
        for text, label in shown
        for role, content in (("user", text), ("assistant", label))
    ]


def likelihood_messages(criterion: Criterion, source: str) -> list[Message]:
    """Render the context of the likelihood score, ``log P(output | source, task)`` (Ohi et al. 2024, eq 1)."""
    content = f"{criterion.source_label}: {source}\n{criterion.output_label}:"
    return [{"role": "system", "content": criterion.task}, {"role": "user", "content": content}]


LETTERS = string.ascii_uppercase
"""Names of the candidates in a comparison, by position."""

TIE = LANGUAGES[ENGLISH].tie
"""Label of a tie in data and in traces; a prompt has that of its language."""


def comparison_labels(count: int, *, ties: bool, language: str = ENGLISH) -> tuple[str, ...]:
    """Return the answers of a comparison: A, B, ... by position, then possibly "Tie"."""
    return tuple(LETTERS[:count]) + ((LANGUAGES[language].tie,) if ties else ())


ANSWERS = "{answers}"
"""Stands for the answers in the instruction of a comparison."""


def answer_line(language: str = ENGLISH) -> str:
    """Return the end of a comparison's initial instruction."""
    return f"\n{LANGUAGES[language].answers}"


def asked(instruction: str, labels: Sequence[str], language: str = ENGLISH) -> str:
    """Return an instruction with the answers in place of ``{answers}``, in a line at its end where it has none.

    Examples:
        >>> asked("Which is better, {answers}?", ("A", "B", "Tie"))
        'Which is better, A, B or Tie?'
    """
    said = LANGUAGES[language]
    whole = instruction if ANSWERS in instruction else instruction + answer_line(language)
    return whole.replace(ANSWERS, said.either.format(others=said.comma.join(labels[:-1]), last=labels[-1]))


def comparison_instructions(criterion: Criterion, language: str = ENGLISH) -> str:
    """Return a comparison's initial instruction, without the line that names the answers."""
    said = LANGUAGES[language]
    return said.comparison.format(**said.words(criterion))


def comparison_messages(
    criterion: Criterion,
    source: str,
    candidates: Sequence[str],
    *,
    labels: Sequence[str],
    last: bool,
    shown: Sequence[Message] = (),
    instructions: str | None = None,
    language: str = ENGLISH,
) -> list[Message]:
    """Render the prompt of one comparison; ``labels`` has one per candidate, and possibly one for ties.

    ``shown`` holds the messages of ``demonstrations``. ``instructions`` default to ``comparison_instructions``; see
    ``asked`` for how the answers are named. ``last`` puts them after the candidates, as in the template of Zhou et al.
    (2024, appendix A), so that prompts of different wordings share a long prefix.
    """
    said = LANGUAGES[language]
    wording = comparison_instructions(criterion, language) if instructions is None else instructions
    instruction = asked(wording, labels, language)
    head = [] if last else [{"role": "system", "content": instruction}]
    ending = ["", said.question.format(instruction=instruction)] if last else []
    question = pair_text(criterion, source, candidates, ending, language)
    return [*head, *shown, {"role": "user", "content": question}]


YES_NO = ("Yes", "No")


def same_question_messages(first: str, second: str) -> list[Message]:
    """Render the question whether two instructions, of any language, ask the same, up to one of ``YES_NO``."""
    content = (
        f"First instruction: {first}\n\nSecond instruction: {second}\n\n"
        "Do both instructions ask for a judgment of the same quality? Answer with Yes or No.\nSame quality:"
    )
    return [{"role": "user", "content": content}]


def pair_text(
    criterion: Criterion,
    source: str,
    candidates: Sequence[str],
    ending: Sequence[str] = (),
    language: str = ENGLISH,
) -> str:
    """Render candidates up to the point where the better one is named, which follows the lines of ``ending``."""
    said = LANGUAGES[language]
    lines = [said.text.format(label=criterion.source_label, text=source)]
    for letter, candidate in zip(LETTERS, candidates, strict=False):
        label = said.candidate.format(label=criterion.output_label, letter=letter)
        lines.append(said.text.format(label=label, text=candidate))
    return "\n".join([*lines, *ending, said.better.format(**said.words(criterion))])
