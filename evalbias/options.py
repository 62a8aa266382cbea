"""Every option of every command, declared once: its name, type, default and help.

A class holds the options of a command, or a group that several share; its fields are also the keywords of the
Python function and the settings in run.json. How a terminal spells an option is in ``evalbias.cli.flags``. A name in
backticks is an option's, in docstrings, helps and error messages: a terminal shows it as it is typed.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from typing_extensions import dataclass_transform

from evalbias.values import file_digest

MODELS = ("lm", "likelihood_lm", "proposer_lm", "reflection_lm")
"""Options that name a model; a run keeps the identity of the model in their place."""
PYTHON_ONLY = ("num_threads", "progress", "typed", "evaluate")
"""Fields that are no options of a command."""
NAMED = (
    "'embedded', a folder, a .gguf file, a Hugging Face name, a server's model (with `api_base`), openai/NAME, or "
    "dspy:PROVIDER/NAME for any other that DSPy reaches"
)
CRITERION = "'name: definition', the name of a criterion that is rated, or a ready-made one such as summeval:fluency."
NEW_CRITERION = "'name: definition', or a ready-made criterion such as summeval:fluency."
ALL, RECORDED = "all", ("scores_field", "samples_field", "winner_field")
"""Word for all criteria, in place of their names; and fields, of which one names a judge."""
OTHERWISE = ("reflection_api_base", "threads", "loops")
UNRECORDED = {*MODELS, *PYTHON_ONLY, *OTHERWISE}
"""Options that decide no number, or that a run keeps in another form."""

PROBES = ORDER, UNREAD, INSTRUCTION = ("order", "unread", "instruction")
"""Changes of the items for which a judge is asked again."""
Tested = Literal["likelihood", "position", "verbosity", "self_preference", "family_preference", "scale_use", "order"]


def pair_limit(limit: Any) -> int | None:
    """Read a number of pairs, of at least 1; None for all, which may also be the text ``"all"``."""
    if limit in ("all", None):
        return None
    if not str(limit).isdecimal() or int(limit) < 1:
        raise ValueError(f"`pairs` {limit}: give a number of at least 1, or 'all'.")
    return int(limit)


def read_scale(scale: Any) -> tuple[float, float] | None:
    """Read the lowest and the highest score, also from a text such as 1-5, 0.0-1.0 or -2-2; None if unknown."""
    if scale is None:
        return None
    ends = scale
    if isinstance(scale, str):
        written = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*-\s*(-?\d+(?:\.\d+)?)\s*", scale)
        ends = written.groups() if written else ()
    try:
        low, high = map(float, ends)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"`scale` {scale}: write the lowest and the highest score as 1-5, 0.0-1.0 or -2-2.")
    return low, high


READ = {"scale": read_scale, "pairs": pair_limit}  # option -> function that reads it, also a text
WANTED = {"Sequence": "a list, such as {}", "Mapping": "a dict", "float": "a number", "int": "a number"}
"""First word of an option's type -> what to give in the place of a text."""


def option(text: str, default: Any = None) -> Any:
    """Declare an option by its help and its default; a required option is a ``field`` with this metadata."""
    return field(default=default, metadata={"help": text})


def recorded(options: Any) -> dict[str, Any]:
    """Return the options with a value that affect a run's numbers, for run.json; a file counts by its SHA-256."""
    values = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in UNRECORDED}
    values = {name: value for name, value in values.items() if value is not None and value != ()}
    return {name: file_digest(value) if isinstance(value, Path) else value for name, value in values.items()}


GROUPS: list[type[Any]] = []
"""All classes of options; the docstring of each lists its options."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Options:
    """Options: each class below is a frozen dataclass of keywords."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    beside: ClassVar[tuple[type[Any], ...]] = ()
    """Groups of options that a command takes besides."""
    heading: ClassVar[str] = ""
    """Heading in the help for options that only this form of a command takes; empty if a command has a single form."""

    def __post_init__(self) -> None:
        """Read the options in ``READ``, and refuse a text where a list, dict or number is wanted."""
        for f in fields(self):
            value, kind = getattr(self, f.name), re.split(r"\W", str(f.type))[0]
            if f.name in READ:
                object.__setattr__(self, f.name, READ[f.name](value))
            elif isinstance(value, str) and kind in WANTED:
                wanted = WANTED[kind].format([part.strip() for part in value.split(",")])
                raise ValueError(f"`{f.name}` is the text {value!r:.80}: give {wanted}.")

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        if all("help" in f.metadata for f in fields(cls)):  # not the objects that an audit reads and prepares
            listed = "".join(f"    {f.name}: {f.metadata['help']}\n" for f in fields(cls))
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nAttributes:\n{listed}"
            GROUPS.append(cls)


# How models are opened, and where a result goes.


class Models(Options):
    """Options for opening models."""

    api_base: str | None = option("Address of the server that runs `lm`, or of several.")
    api_key_env: str | None = option(
        "Environment variable that holds the key for `api_base`. By default EVALBIAS_API_KEY, and OPENAI_API_KEY for "
        "OpenAI's own address only."
    )
    tokenizer: str | None = option("Tokenizer of a server's model, a folder or a name. vLLM and SGLang report theirs.")
    in_flight: int = option("Concurrent requests to each server of `api_base`, at most; hosted models get 16.", 64)
    adapter: str | None = option("Folder of a LoRA adapter for `lm`, if that is a local model.")
    device: str = option("Device for local models: auto, cpu, cuda or cuda:0.", "auto")
    dtype: str = option("Data type of local models: auto, float32, bfloat16 or float16.", "auto")
    template_options: str | None = option(
        "Variables for the chat template of `lm`, as JSON, such as '{\"enable_thinking\": true}'."
    )
    dialect: str = option("Protocol of the server, such as vllm or chat; auto detects it.", "auto")


class MeasuringModels(Models):
    """Options for opening models whose probabilities are measured."""

    samples: int | None = option(
        "Estimate probabilities from this many answers to a prompt if the model reports none; 1 takes its answer as it "
        "is."
    )
    sample_temperature: float = option("Sampling temperature of these answers; 0 for a single answer only.", 1.0)
    sample_tokens: int = option("Token limit of these answers. Models that reason first need more.", 16)
    yes: bool = option("Start long runs without asking.", False)

    def of_another(self, api_base: str | None = None) -> MeasuringModels:
        """Return the options for another model than `lm`, behind another address or none."""
        key = self.api_key_env if api_base == self.api_base else None
        return MeasuringModels(
            api_base=api_base, api_key_env=key, in_flight=self.in_flight, device=self.device, dtype=self.dtype
        )


class Out(Options):
    """Place and form of the result."""

    out: Path | None = option("The run's folder. By default, one under runs/; the same settings give the same one.")
    as_json: bool = option("Print the result as JSON, and nothing else, on stdout.", False)
    typed: frozenset[str] = option("Names of the options on the command line.", frozenset())


class GateOut(Out):
    """Place and form of the result, and conditions on which it fails a build."""

    fail_on: Sequence[str] = option(
        "Exit with code 1 if the 95 % interval shows the condition, such as 'likelihood>0.2' (distance from an "
        "unbiased judge), 'agreement.spearman<0.3' or 'drift>0.1'; with a question mark, such as 'likelihood<0.2?', if "
        "it shows the contrary. Code 3 if it shows neither, 1 if the number cannot be measured. Repeatable.",
        (),
    )
    summary: Path | None = option("Markdown file of the verdict and the findings, such as $GITHUB_STEP_SUMMARY.")


class AuditOut(GateOut):
    """Place and form of the result of an audit, and conditions on which it fails a build."""

    full: bool = option("Print every number, and what the findings rest on; the report has them too.", False)
    certify: str | None = option(
        "Rates that a judge of pass or fail must be shown to reach, such as 'tpr=.8,tnr=.8': exit with code 0 if the "
        "95 % intervals of all lie above, 1 if one lies below, 3 if undecided; it says how many labeled items decide."
    )


# Options that several commands share.


class Items(Options):
    """The items."""

    data: Any = field(
        kw_only=False,
        metadata={
            "help": "A .jsonl, .json, .csv, .tsv or .parquet file, NAME:PATH of a tool's export (mlflow, "
            "langfuse, langsmith, phoenix, inspect, promptfoo, deepeval, opik, pydantic-evals, otel, label-studio "
            "or mturk), or hf:NAME[:SPLIT]."
        },
    )
    mapping: Mapping[str, str] | None = option(
        "Names of your columns: source=question,output=answer,score=rating; of several raters, "
        "rating_1=anna,rating_2=ben. Repeatable."
    )
    missing: Sequence[object] = option(
        "Values of ratings and of a judge's answers in the place of none, such as 0,999,error: they count as missing.",
        (),
    )
    keep: Sequence[object] = option(
        "Numbers that are ratings, although they look like a failure's code, such as 0.", ()
    )
    levels: Sequence[str] = option(
        "Words for ratings, the worst first, such as fail,partial,pass: they are 1, 2 and 3, and two words 0 and 1. A "
        "new judge scores on the same scale, and its prompt says what each score means.",
        (),
    )


class Prompted(Items):
    """The items, and words around them in a prompt."""

    source_label: str | None = option("Name of the source in prompts, such as Dialogue.")
    output_label: str | None = option("Name of an output in prompts, such as Reply.")
    language: Literal["en", "ja"] | None = option(
        "Language of a new judge's prompt around the criterion and the texts; en if not given."
    )
    no_cue: bool = option(
        "End a new judge's prompts with the texts or the question, without a cue such as 'Quality:' before the answer. "
        "Models that follow instructions may agree with people better so, or worse.",
        False,
    )


class Coded(Options):
    """Codes of choices."""

    labels: Sequence[object] = option(
        "Codes that your data use for the first output, the second and a tie, such as 1,2,tie.", ()
    )


class Judging(Options):
    """The model that judges."""

    lm: Any = field(metadata={"help": f"Model: {NAMED}."})


class Likely(Options):
    """The likelihood of the outputs."""

    task: str | None = option(
        "Task that the outputs were written for, such as 'Summarize the article.' Likelihoods depend on it. A saved "
        "judge has its own."
    )
    likelihood_lm: Any = option("Model that measures how likely the outputs are. By default, the judge's model.")


class Long(Options):
    """The length of the outputs, for verbosity."""

    length: Literal["characters", "graphemes"] = option(
        "Unit of a text's length: characters (code points, composed), or graphemes, in which an emoji of several "
        "code points counts once.",
        "characters",
    )


class Reliable(Options):
    """The reliability of single ratings."""

    reliability: float | None = option(
        "Share of a rating's variance that is quality, for items with one rating each; 1 for objective labels. "
        "Without it, effects have only bounds."
    )


class Seeded(Options):
    """The seed."""

    beside: ClassVar[tuple[type[Any], ...]] = (Out,)
    seed: int = option("Seed for all random draws.", 0)


# Audit any judge, and correct recorded answers.


class RecordedAnswers(Seeded, Reliable, Long, Likely, Coded, Prompted):
    """Answers of a judge, recorded with the items."""

    scores_field: str | None = option("Field of the judge's recorded scores; {criterion} stands for the criterion.")
    winner_field: str | None = option("Field of its recorded choices of two outputs: 0 or A, 1 or B, tie, or null.")
    swapped_field: str | None = option("Field of its choices in the other order; 0 still means the same output.")
    criterion: Any = option(CRITERION)
    scale: tuple[float, float] | None = option("Lowest and highest possible score, such as 1-5, 0.0-1.0 or -2-2.")


class AuditOptions(RecordedAnswers):
    """Say whether a judge is biased, by how much, and what helps.

    Measures every bias and the agreement with people. Say which judge: `lm` with `criterion` or `judge`,
    `scores_field`, `samples_field`, or `winner_field`; the only one in a tool's export need not be named.

    Exit codes: 0 done; 1 a condition of `fail_on` or `certify` fails; 2 an error that you can correct (the message says
    how); 3 such a condition is undecided; 70 a defect of evalbias, please report it.
    """

    beside = (MeasuringModels, AuditOut)
    criterion: Any = option(CRITERION + " Repeatable; 'all' are those that are rated.")
    lm: Any = option(
        f"Model of the judge: {NAMED}. With recorded answers: model that measures how likely the outputs are."
    )
    judge: Any = option("JSON file of a judge to run on `lm`.")
    samples_field: str | None = option(
        "Field that holds several recorded scores of the same prompt, as a list, or NAME of columns NAME_1, NAME_2 "
        "...: their mean is audited, and how noisy the judge is."
    )
    outcome: str | None = option("Column of an outcome, such as tests passed: the only rating, and without error.")
    own_system: str | None = option(
        "Name of the judge's own system, as the field system has it: several with commas between, or as 'gpt-4*'."
    )
    own_family: str | None = option(
        "Names of systems of the judge's family, such as 'gpt-*': what they get apart from its own system."
    )
    pass_mark: float | None = option(
        "Lowest rating that passes, such as 4: which items the judge may decide alone, and what its probabilities are "
        "worth, is measured against it."
    )
    by: str | None = option("Field that groups the items, for the agreement in each.")
    probes: Sequence[str] | None = option(
        "Ask a judge that scores again with one thing changed: 'order' (options reversed), 'unread' (nonsense in place "
        "of the output), 'instruction' (a request for the highest level at its end); or 'none'. Repeatable. By default "
        "all three of a judge that answers closed questions, about 100 items at most."
    )
    features: Sequence[str] = option(
        "Test this too: a field of a number, or of yes or no, about each output; or a count in the texts: headings, "
        "bullets, bold, emoji, digits, citations, hedges or sentences. Repeatable.",
        (),
    )
    only: Tested | None = option("Test this bias, such as verbosity, by itself, uncorrected for several, and no other.")
    pairs: int | None = option("Maximum number of pairs, drawn with the seed, or 'all'.", 500)
    num_threads: int = option("Calls of a function at the same time.", 1)
    progress: Any = option("Called with the number of judgments done; False shows no bar in a terminal or notebook.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.swapped_field is not None and self.winner_field is None:
            raise ValueError("`swapped_field` goes with `winner_field`, the choices in the order of outputs.")
        if self.pass_mark is not None and not math.isfinite(self.pass_mark):
            raise ValueError(f"`pass_mark` is {self.pass_mark:g}: give the lowest rating that passes, such as 4.")
        if self.features and self.only is not None:
            raise ValueError(f"`features`: `only` {self.only} is tested. Leave one of both out.")
        if ORDER in (self.named_probes or ()) and self.only not in (None, ORDER):
            raise ValueError(f"`probes` order: `only` {self.only} is tested. Leave one of both out.")
        if self.named_probes and self.is_recorded:
            raise ValueError("`probes`: recorded answers cannot be asked for again. Leave them out.")
        if self.outcome is not None and self.reliability not in (None, 1):
            raise ValueError("`reliability`: an outcome has no error. Leave it out, or map the column as a `score`.")

    @classmethod
    def of(cls, options: Any, **changed: Any) -> AuditOptions:
        """Return the options of an audit that another command's options have too, and those that are changed."""
        return cls(**{f.name: getattr(options, f.name) for f in fields(cls) if hasattr(options, f.name)} | changed)

    @property
    def several(self) -> bool:
        """True for a list of criteria, or all."""
        return isinstance(self.criterion, list | tuple) or self.criterion == ALL

    @property
    def named_probes(self) -> list[str] | None:
        """Names of the probes; None for the default probes."""
        if self.probes is None:
            return None
        named = [name.strip() for name in self.probes]
        if named == ["none"]:
            return []
        for name in named:
            if name not in PROBES or named.count(name) > 1:
                raise ValueError(
                    f"`probes` {name!r:.80}: name order, unread or instruction, each once, or none by itself."
                )
        return named

    @property
    def is_recorded(self) -> bool:
        """True if the judge's answers are in the data."""
        return any(getattr(self, name) is not None for name in RECORDED)


OF_AUDIT = "With `label_next`, as of evalbias audit."


class DoctorOptions(Options):
    """Say what a file holds, and which audit it allows.

    Where a column may be several things, it lists a command for each answer.
    """

    file: str = option("File or folder of data, or NAME:PATH.", "")
    data: str = field(default="", metadata={"help": "The same, as other commands take it.", "hidden": True})
    label_next: int | None = option("Write as many items to rate next, as CSV.")
    mapping: Mapping[str, str] | None = option(OF_AUDIT)
    criterion: str | None = option(OF_AUDIT)
    labels: Sequence[object] = option(OF_AUDIT, ())
    missing: Sequence[object] = option(OF_AUDIT, ())
    keep: Sequence[object] = option(OF_AUDIT, ())
    levels: Sequence[str] = option(OF_AUDIT, ())
    scores_field: str | None = option(OF_AUDIT)
    samples_field: str | None = option(OF_AUDIT)
    winner_field: str | None = option(OF_AUDIT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.file) == bool(self.data):
            raise ValueError("Name one file: evalbias doctor FILE.")


class CorrectOptions(RecordedAnswers):
    """Correct recorded scores of a judge that cannot be changed.

    Learns from rated items what the scores owe to length, likelihood, `features`, position and leniency, subtracts what
    it costs nothing to remove, and says what the rest would cost. Writes correction.json, for new items, and
    corrected.jsonl to the run's folder. Corrected scores may lie beyond the scale.
    """

    beside = (MeasuringModels, Out)
    features: Sequence[str] = option("Field of a number about each output, or a count as in an audit. Repeatable.", ())
    correction: Path | None = option(
        "correction.json of an earlier run, to apply to these items; they need no ratings."
    )
    max_loss: float = option("Loss of agreement (Pearson's r) to allow for a smaller effect, such as 0.05.", 0.0)


class JuryOptions(Seeded, Reliable, Likely, Long, Prompted):
    """Say what several recorded judges are worth together.

    Says which of them to keep, too. The items need two ratings each, or one whose `reliability` is stated.
    """

    beside = (MeasuringModels, Out)
    judges: Sequence[str] = option("Fields of the judges' recorded scores or choices, such as gpt-4,llama.", ())
    swapped_field: str | None = option("Field of a judge's choices in the other order; {judge} stands for its name.")
    criterion: Any = option(CRITERION)
    costs: Mapping[str, float] | None = option("Cost of one answer of each judge, such as gpt-4=30; 1 if not given.")


# Changes between two files of judged outputs.

SIDE = "The {} outputs with their scores (for drift, those of the {} judge): data as for an audit, or its run folder."


def again(name: str, group: type[Options] = AuditOptions) -> Any:
    """Declare an option as an audit does, or another group."""
    declared = group.__dataclass_fields__[name]
    return field(default=declared.default, metadata=declared.metadata)


class Sides(Options):
    """Outputs of several systems or periods that a judge scored."""

    mapping: Mapping[str, str] | None = again("mapping")
    missing: Sequence[object] = again("missing")
    keep: Sequence[object] = again("keep")
    levels: Sequence[str] = again("levels")
    scores_field: str | None = again("scores_field")
    samples_field: str | None = again("samples_field")
    criterion: Any = option("Name of the criterion that is judged, where people rated several.")
    scale: tuple[float, float] | None = again("scale")


class DriftOptions(Sides, Seeded):
    """Say whether the system improved or the judge changed.

    Splits the change of the mean score between two periods into the judge's part and the system's, by anchors, texts
    that both judges scored: items of both files with the same input and output. Says in which scores the judge
    changed, in its biases and in its agreement with people, and how many anchors would be enough. The run folder of an
    audit is a stored baseline.
    """

    beside = (GateOut,)
    before: Any = field(kw_only=False, metadata={"help": SIDE.format("first", "old")})
    after: Any = field(kw_only=False, metadata={"help": SIDE.format("second", "new")})
    margin: float | None = option(
        "Smallest change of the judge that is worth finding, in points. By default 0.2 standard deviations of the old "
        "judge's scores."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin is not None and not self.margin > 0:
            raise ValueError(f"`margin` is {self.margin}: give points above 0, such as 0.2.")


class CompareOptions(Reliable, Sides):
    """Say whether one system is better than another.

    By people's ratings of a random few outputs of each and a judge's scores of all, paired by input. Each system is
    corrected by its own ratings. Says how many would decide, whether the judge favors a system, and how much of its
    difference of two is length, likelihood, a feature of yours or its own writing. The systems are those of a column of
    `data`, or two files, `before` and `after`.
    """

    beside: ClassVar[tuple[type[Any], ...]] = (GateOut,)
    data: Any = field(default=None, kw_only=False, metadata={"help": "Outputs with a column system, as for an audit."})
    systems: Sequence[str] = option("Systems of `data` to compare, such as A,B. By default all. Repeatable.", ())
    before: Any = option(SIDE.format("first", "old") + " In the place of `data`.")
    after: Any = option(SIDE.format("second", "new"))
    rated: Any = option("Further items of the same judge that people rated: data or the run folder of an audit.")
    evaluate: Any = option("dspy.Evaluate with a metric of a judge, where `before` and `after` are DSPy programs.")
    features: Sequence[str] = again("features")
    own_system: str | None = again("own_system")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.data is None) == (self.before is None) or (self.before is None) != (self.after is None):
            raise ValueError("Give `data` of all systems, or two files of outputs: `before` and `after`.")


# Ask a judge about texts with a single change.


class Changing(Seeded, Items):
    """Changes of the texts."""

    kinds: Sequence[str] = option(
        "What is changed: style, authority, bandwagon, label, 'label: a student', distraction, verbosity, injection or "
        "null, by default all. Repeatable.",
        (),
    )
    scale: tuple[float, float] | None = again("scale")


class ProbeEmitOptions(Changing):
    """Write items with one thing changed, and with placebos, for a judge of yours.

    Your judge answers every row in a field of the file, and evalbias probe read says what moves it.
    """

    beside = ()
    out: Path = field(metadata={"help": "The .jsonl file to write."})


class ProbeReadOptions(Seeded, Coded, Items):
    """Say what moves a judge, from its answers to the rows of probe emit, found by their ids."""

    scores_field: str | None = again("scores_field")
    winner_field: str | None = again("winner_field")
    swapped_field: str | None = again("swapped_field")
    criterion: Any = option("Name of the criterion that is judged, where people rated several.")
    scale: tuple[float, float] | None = again("scale")


class ProbeRunOptions(Judging, Changing, Prompted):
    """Ask a judge about items with one thing changed, and say what moves it."""

    beside = (MeasuringModels, Out)
    judge: Path | None = again("judge")
    criterion: Any = option(NEW_CRITERION)
    limit: int | None = option("Use only this many items, drawn with the seed.")
