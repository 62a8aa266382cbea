"""From words to options to the function that works: the table of commands, help, errors, signals and exit codes."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from importlib import import_module, resources
from itertools import pairwise
from typing import Annotated, Any, NoReturn, cast, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from evalbias import __version__, options, program_options
from evalbias.cli import runs
from evalbias.cli.flags import FLAGS, Flag, as_typed, spelled
from evalbias.cli.terminal import STOPPED, LeavableStream, readers_may_leave, set_verbosity
from evalbias.options import PYTHON_ONLY
from evalbias.values import message

# The options of a command as its help lists them.

REST = "Options"
RECORDED = "scores_field samples_field winner_field swapped_field"
JUDGE = f"lm judge judges {RECORDED} criterion scale language no_cue source_label output_label rank"
MODELS = "api_base api_key_env tokenizer in_flight adapter device dtype template_options dialect"
SECTIONS = {  # heading -> its options, in the order of a command's help
    "Aim": "aim",
    "Data": "file data systems before after rated loops mapping missing keep levels labels by pairs split_by limit "
    "documents",
    "Model and judge": JUDGE,
    REST: "",
    "Measurement": "only probes kinds features task likelihood_lm own_system own_family reduction reliability outcome "
    "pass_mark length metric quantile_map",
    "Running models": f"{MODELS} samples sample_temperature sample_tokens",
    "Run": "fail_on certify summary threads seed out full as_json yes help",
}


class Sectioned(TyperCommand):
    """A command whose help lists its options by section, as plain text: rich's panels cut long words off."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections that have options."""
        sections: dict[str, list[tuple[int, Any]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                section = next((title for title, names in SECTIONS.items() if parameter.name in names.split()), REST)
                heading = getattr(parameter, "rich_help_panel", None) or section
                names = SECTIONS.get(heading, "").split()
                place = names.index(str(parameter.name)) if parameter.name in names else -1
                sections.setdefault(heading, []).append((place, record))
        places = {heading: place for place, heading in enumerate(SECTIONS)}
        # Headings of a command's forms come before the options without a heading.
        for heading in sorted(sections, key=lambda title: places.get(title, places[REST] - 0.5)):
            with formatter.section(heading):
                formatter.write_dl([record for _, record in sorted(sections[heading], key=lambda placed: placed[0])])


# From a class of options to a command.


def parameter(group: type[Any], option: Field[Any]) -> inspect.Parameter:
    """Return an option as Typer reads it."""
    flag, text = FLAGS.get(option.name, Flag()), as_typed(option.metadata["help"])
    default = inspect.Parameter.empty if option.default is MISSING else option.default
    hint = get_type_hints(group)[option.name]
    several = option.name == "criterion" and "Repeatable" in text
    kind = list[str] if several else flag.kind or (str if hint is Any else hint)
    if kind is not hint and default is not inspect.Parameter.empty:
        default = None if default in (None, ()) else str(default)
        kind |= None
    words, forms = (flag.spelling or spelled(option.name)).split(), forms_of(group)
    takers = [form.heading for form in forms if option.name in form.__dataclass_fields__]
    heading = option.metadata.get("section") or (takers[0] if len(takers) == 1 < len(forms) else None)
    info = (
        typer.Argument(help=text, **flag.more)
        if flag.is_argument
        else typer.Option(*words, help=text, rich_help_panel=heading, hidden="hidden" in option.metadata, **flag.more)
    )
    by_name = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.name, by_name, default=default, annotation=Annotated[kind, info])


def forms_of(taken: type[Any]) -> list[type[Any]]:
    """Return the classes of options of a command's forms; empty for a command with a single form."""
    return [form for form in taken.__bases__ if issubclass(form, options.Options) and form.heading]


def add(app: typer.Typer, name: str, place: str, taken: type[Any]) -> None:
    """Add a command: the function at ``MODULE:NAME``, imported when it runs, takes its groups of options.

    Its help is the docstring of its options, whose first line stands in the list of commands.
    """
    groups = (taken, *taken.beside)

    def run(context: typer.Context, **typed: Any) -> None:
        values = {n: FLAGS.get(n, Flag()).read(v) for n, v in typed.items() if v is not None and v != []}
        sources = {n: getattr(context.get_parameter_source(n), "name", "") for n in values}
        values["typed"] = frozenset(n for n, source in sources.items() if source == "COMMANDLINE")
        module, name = place.split(":")
        filled = (group(**{f.name: values[f.name] for f in fields(group) if f.name in values}) for group in groups)
        getattr(import_module(f"evalbias.cli.{module}"), name)(*filled)

    first = {name: n for n, form in reversed([*enumerate(forms_of(taken))]) for name in form.__dataclass_fields__}
    listed = [parameter(group, f) for group in groups for f in fields(group) if f.name not in PYTHON_ONLY]
    listed.sort(key=lambda entry: first.get(entry.name, 0))  # in the order of the forms
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *listed])  # type: ignore[attr-defined]
    run.__annotations__ = {entry.name: entry.annotation for entry in (context, *listed)}
    run.__doc__ = as_typed(inspect.cleandoc(taken.__doc__ or "").partition("Attributes:")[0])
    app.command(name, cls=Sectioned, short_help=run.__doc__.partition("\n")[0])(run)


# Signals that stop a command like Ctrl-C: SIGTERM from a scheduler, and SIGHUP after a lost connection.

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
REPEATED = 1.0
"""Seconds within which a second signal is ignored (timeout(1) sends two), so that arrived answers are kept."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let each signal raise ``KeyboardInterrupt``, as Ctrl-C does; an ignored signal stays ignored.

    A stopped command ends with SystemExit of 128 and the signal's number; a further signal ends the process at once.
    """
    received: list[int] = []
    times: list[float] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        times.append(time.monotonic())
        if len(times) == 1 or times[-1] - times[-2] > REPEATED:
            raise KeyboardInterrupt

    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled: dict[int, Any] = {number: handler for number, handler in before.items() if handler in usual}
    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        if not received or (isinstance(stop, SystemExit) and stop.code != 128 + signal.SIGINT):
            raise
        code = 128 + received[0]
        handled = dict.fromkeys(handled, lambda *_: os._exit(code))
        raise SystemExit(code) from stop
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


# The commands. Results go to stdout, progress to stderr; every command that costs time leaves a run folder.

EVERYWHERE = ("--quiet", "-q", "--verbose", "-v")  # behind a command's name too, where most people write them
DEFECT = 70  # exit code of a command that failed by a fault of evalbias, as in ``sysexits.h``
COLLECTED = (100_000, 20, 20)
"""Thresholds of Python's garbage collector in a command. PyTorch, Transformers and DSPy make a million objects that
stay; with the usual threshold of 700, looking at them again and again is an eighth of the time of a short command."""

COMMANDS: dict[str, tuple[str, type[Any]]] = {  # -> module of NAME_command, options
    "demo": ("demo", program_options.DemoOptions),
    "doctor": ("doctor", options.DoctorOptions),
    "audit": ("audit", options.AuditOptions),
    "correct": ("correct", options.CorrectOptions),
    "probe emit": ("probe", options.ProbeEmitOptions),
    "probe read": ("probe", options.ProbeReadOptions),
    "probe run": ("probe", options.ProbeRunOptions),
    "jury": ("several", options.JuryOptions),
    "drift": ("several", options.DriftOptions),
    "compare": ("several", options.CompareOptions),
    "align": ("optimize", program_options.AlignOptions),
    "optimize": ("optimize", program_options.OptimizeOptions),
    "judge": ("judge", program_options.JudgeOptions),
    "refine run": ("refine", program_options.RefineOptions),
    "refine measure": ("refine", program_options.SelfOptions),
    "refine style": ("refine", program_options.StyleOptions),
}
GROUPED = {  # heading of the help -> its commands, as a newcomer meets them
    "Make a judge": ["align", "optimize", "demo"],
    "Audit a judge": ["doctor", "audit", "probe", "jury", "compare", "drift"],
    "Run a judge": ["judge", "refine", "correct", "runs"],
}
LAST = "evalbias --skill prints what a coding agent needs to know, as a SKILL.md."


class _Grouped(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in GROUPED.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by group, each with the first line of its help."""
        for heading, names in GROUPED.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(formatter.width)) for name in names])

    def invoke(self, ctx: Any) -> Any:
        """Run a command; its exceptions propagate, because typer would exit with 1 for some errors."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ConnectionError(f"{error}") from error
        except EOFError as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        except typer.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise SystemExit(STOPPED) from abort
            if isinstance(abort.__context__, EOFError):
                raise ValueError("Nobody is there to answer the question: give --yes.") from abort
            raise


app = typer.Typer(cls=_Grouped, no_args_is_help=True, rich_markup_mode=None, epilog=LAST)
PARTS = {
    "": app,
    "probe": typer.Typer(no_args_is_help=True, help="Ask a judge about texts with one thing changed."),
    "refine": typer.Typer(no_args_is_help=True, help="Run refine loops, and measure the self-bias of loops."),
    "runs": runs.app,
}
for part, inner in list(PARTS.items())[1:]:
    app.add_typer(inner, name=part)
for command, (module, taken) in COMMANDS.items():
    part, _, leaf = command.rpartition(" ")
    add(PARTS[part], leaf, f"{module}:{command.replace(' ', '_')}_command", taken)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evalbias {__version__}")
        raise typer.Exit


def _skill(wanted: bool) -> None:
    if wanted:
        typer.echo(resources.files("evalbias").joinpath("SKILL.md").read_text(encoding="utf-8"), nl=False)
        raise typer.Exit


@app.callback(epilog=LAST)
def evalbias(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and results only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the log as well.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    skill: Annotated[bool, typer.Option("--skill", callback=_skill, is_eager=True, hidden=True)] = False,
) -> None:
    """Compile LLM judges that agree with people and are less biased, and audit any judge.

    Exit codes: 0 done; 1 a --fail-on or --certify condition fails, or you answered a question with no; 2 an error that
    you can correct (the message says how); 3 such a condition is undecided; 70 a defect of evalbias, please report it;
    129 stopped by SIGHUP, 130 by Ctrl-C, 143 by SIGTERM (run the same command again to continue).
    """
    set_verbosity(quiet=quiet, verbose=verbose)


def user_errors() -> tuple[type[BaseException], ...]:
    """Return the errors that a user can correct; DSPy's own too (a missing key, a server that is down)."""
    ours = (ValueError, OSError, ImportError, NotImplementedError, FloatingPointError)
    loaded = sys.modules.get("dspy.utils.exceptions")
    return ours if loaded is None else (*ours, loaded.LMError)


def check_words(words: Sequence[str]) -> None:
    """Refuse an empty word, which an unset shell variable leaves: as a path, it would name the current folder."""
    for before, word in pairwise(["evalbias", *words]):
        joined = word.startswith("--") and "=" in word
        named, value = word.split("=", 1) if joined else (before, word)
        if not value.strip():
            remedy = f", or leave {named} out" if named.startswith("-") else ""
            raise ValueError(f"What follows {named} is empty: give a value{remedy}.")


def _exit(code: int, error: BaseException, text: str) -> NoReturn:
    """Print an error message and exit, even if a full disk prevents printing."""
    try:
        typer.echo(message(text), err=True)
    except OSError:
        cast(LeavableStream, sys.stderr).discard()
    finally:
        raise SystemExit(code) from error


def main() -> None:
    """Run a command; an error is printed in one line, and its traceback with ``-v`` if no user can correct it."""
    words = sys.argv[1:]
    gc.set_threshold(*COLLECTED)
    with readers_may_leave(), stopped_by_signals():
        try:
            check_words(words)
            app(sorted(words, key=lambda word: word not in EVERYWHERE))  # which come first, in their order
        except user_errors() as error:
            _exit(2, error, as_typed(f"evalbias: {error}"))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the tokenizers, which are written in Rust, is no Exception
            logging.getLogger("evalbias").info("The error was raised here:", exc_info=error)
            named = f"evalbias: {type(error).__name__}: {error!s:.2000}".removesuffix(": ")
            remedy = "This is a defect of evalbias: please report it, with the traceback that -v prints."
            _exit(DEFECT, error, f"{named}. {remedy}")
