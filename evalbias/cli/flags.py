"""Options in a terminal: the words of each, and the functions from what is typed to its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalbias.options import RECORDED
from evalbias.program_options import NAMES
from evalbias.values import shell_word

_BETWEEN_PAIRS = re.compile(r",(?=[^,=]+=)")  # a comma before the name of a field


def parse_mapping(texts: Iterable[str]) -> dict[str, str]:
    """Read ``ours=theirs`` pairs, several between commas, each field once; a column's own name may hold commas.

    Examples:
        >>> parse_mapping(["source=question,output=answer", "score=rating"])
        {'source': 'question', 'output': 'answer', 'score': 'rating'}
        >>> parse_mapping(["source=the question, asked twice,output=answer"])
        {'source': 'the question, asked twice', 'output': 'answer'}
    """
    mapping: dict[str, str] = {}
    for pair in (pair for text in texts for pair in _BETWEEN_PAIRS.split(text)):
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            raise ValueError(f"--map {pair}: write OURS=THEIRS, such as --map source=question,output=answer.")
        if ours in mapping:
            raise ValueError(f"--map gives the field {ours!r} twice, as {mapping[ours]!r} and {theirs!r}: keep one.")
        mapping[ours] = theirs
    return mapping


def parse_costs(texts: Iterable[str]) -> dict[str, float]:
    """Read ``--cost``: the cost of an answer of each judge."""
    try:
        return {name: float(cost) for name, cost in parse_mapping(texts).items()}
    except ValueError as error:
        raise ValueError(f"--cost: write JUDGE=COST, such as --cost gpt-4=30,llama=1 ({error}).") from None


def parse_codes(text: str) -> tuple[str, ...]:
    """Read ``--labels`` and the like: codes with commas between them."""
    return tuple(part.strip() for part in text.split(","))


def read_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Read ``--systems``: names with commas between them, or, if repeated, a name each, which may hold commas."""
    return parse_codes(texts[0]) if len(texts) == 1 else tuple(texts)


@dataclass(frozen=True)
class Flag:
    """Spelling and parser of an option in a terminal, if its name and type do not determine them."""

    spelling: str = ""  # its words, the first for messages; by default ``--NAME``
    kind: Any = None  # type of the typed value, if not the field's
    read: Callable[[Any], Any] = lambda value: value  # from the typed value to the option's
    more: dict[str, Any] = field(default_factory=dict)  # of ``typer.Option``
    is_argument: bool = False  # True for a positional argument


FILE = Flag(kind=Path, more={"exists": True, "dir_okay": False})
COUNT = Flag(more={"min": 1})
FLAGS = {  # option -> its flag, the same in all commands
    "file": Flag(more={"metavar": "FILE"}, is_argument=True),
    "mapping": Flag("--map", list[str], parse_mapping, {"metavar": "OURS=THEIRS,..."}),
    "labels": Flag(kind=str, read=parse_codes, more={"metavar": "FIRST,SECOND[,TIE]"}),
    **dict.fromkeys(("missing", "keep"), Flag(kind=str, read=parse_codes, more={"metavar": "VALUE,..."})),
    "levels": Flag(kind=str, read=parse_codes, more={"metavar": "WORST,...,BEST"}),
    "pairs": Flag(kind=str, more={"metavar": "N|all"}),
    "scale": Flag(kind=str),
    "criterion": Flag(read=lambda typed: typed[0] if isinstance(typed, list) and len(typed) == 1 else typed),
    "judges": Flag(kind=str, read=parse_codes, more={"metavar": "NAME,NAME,..."}),
    "systems": Flag(kind=list[str], read=read_names, more={"metavar": "A,B,..."}),
    "costs": Flag("--cost", list[str], parse_costs, {"metavar": "JUDGE=COST,..."}),
    "features": Flag("--feature", list[str], more={"metavar": "FIELD"}),
    "probes": Flag("--probe", list[str], more={"metavar": "PROBE"}),
    "only": Flag(more={"metavar": "BIAS"}),  # the names are too long for a line
    "kinds": Flag("--kind", list[str], more={"metavar": "KIND"}),
    "fail_on": Flag(kind=list[str], more={"metavar": "CONDITION"}),
    "certify": Flag(more={"metavar": "RATE=LEAST,..."}),
    "loops": Flag("--data", list[Path], more={"metavar": "PATH", "exists": True}),
    **dict.fromkeys(("judge", "program", "quantile_map", "correction"), FILE),
    **dict.fromkeys(("limit", "documents", "population", "epochs", "budget", "orders", "resamples", "samples"), COUNT),
    **dict.fromkeys(("label_next", "max_tokens", "threads", "in_flight", "sample_tokens"), COUNT),
    "k": Flag("-k", more={"min": 0}),
    **dict.fromkeys(("seed", "max_iterations"), Flag(more={"min": 0})),
    "reliability": Flag(more={"min": 0.01, "max": 1.0}),
    "max_loss": Flag(more={"min": 0.0, "max": 0.99}),
    "api_base": Flag(more={"metavar": "URL[,URL,...]"}),
    "api_key_env": Flag(more={"metavar": "NAME"}),
    "yes": Flag("--yes -y"),
    "as_json": Flag("--json"),
    "pass_mark": Flag("--pass"),
}


def spelled(name: str) -> str:
    """Return an option as it is typed."""
    return (FLAGS.get(name, Flag()).spelling or f"--{name.replace('_', '-')}").split()[0]


def as_typed(text: str) -> str:
    """Write the options that a docstring or an error names in backticks as they are typed."""
    return re.sub(r"`+(\w+)`+", lambda name: spelled(name[1]) if name[1] in NAMES else name[0], text)


# Options of an audit that doctor takes, too.
LABELING = ("mapping", "criterion", "labels", "missing", "keep", "levels", *RECORDED)
ASKED = ["--lm", "MODEL", "--criterion", "quality: is it good?"]  # for a judge without a column of answers


def command_line(spec: str, settings: Mapping[str, Any], command: str = "audit", *, asks: bool = True) -> str:
    """Return a command about a source with these options as a shell reads it; if it ``asks`` a judge, it names it."""
    words = ["evalbias", *command.split(), "--data", spec]
    options = dict(settings)
    if mapping := options.pop("mapping", {}):
        words += [spelled("mapping"), ",".join(f"{ours}={theirs}" for ours, theirs in mapping.items())]
        if parse_mapping(words[-1:]) != mapping:
            raise ValueError(
                f"{spec}: --map cannot name {', '.join(map(repr, mapping.values()))}: rename these columns."
            )
    if scale := options.pop("scale", None):
        options["scale"] = "-".join(f"{end:g}" for end in scale)
    for name, value in options.items():
        words += [spelled(name), ",".join(value) if isinstance(value, list | tuple) else str(value)]
    criterion = [] if not asks or {*RECORDED, "judges"} & {*options} else ASKED[: 2 if "criterion" in options else None]
    return " ".join(map(shell_word, [*words, *criterion]))
