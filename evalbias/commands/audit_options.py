"""Which of an audit's options recorded answers use."""

from __future__ import annotations

from collections.abc import Set

import typer

LM, LIKELIHOOD_LM = "--lm", "--likelihood-lm"
SAMPLING = {"--samples", "--sample-temperature", "--sample-tokens"}
CHOICES = {"--swapped-field", "--better-field", "--labels"}
PROMPT = {"--task", "--source-label", "--output-label"}
OF_LM = {"--api-base", "--api-key-env", "--tokenizer", "--adapter", "--template-options", "--dialect", "--workers"}
OF_ANY_MODEL = {"--in-flight", "--device", "--dtype", "--exact-resume"}


def check_used(given: Set[str]) -> None:
    """Refuse options that decide nothing in an audit of recorded answers.

    Args:
        given: Options on the command line.

    Raises:
        BadParameter: An option is not used; it is named.
    """
    has_model = bool(given & {LM, LIKELIHOOD_LM})
    unused: list[tuple[bool, set[str], str]] = [
        (True, {"--pairs", *SAMPLING}, "recorded answers are taken as they are"),
        ("--scores-field" in given, CHOICES, "for choices, and --scores-field names scores"),
        ("--winner-field" in given, {"--scale"}, "recorded choices have no scale"),
        (not has_model, PROMPT | OF_LM | OF_ANY_MODEL, "no model is asked; the likelihood bias needs one, --lm"),
        ({LM, LIKELIHOOD_LM} <= given, {LM}, "recorded answers take one model, that of the likelihood"),
        (LM not in given, OF_LM, "for the model of --lm; name the model of the likelihood there"),
    ]
    for applies, options, reason in unused:
        if applies and (named := sorted(given & options)):
            raise typer.BadParameter(f"leave out {', '.join(named)}: {reason}.")
