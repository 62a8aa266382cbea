"""Options of the commands that make and run programs: judges that score or compare, and refine loops."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from evalbias import options
from evalbias.options import NEW_CRITERION, Coded, Judging, MeasuringModels, Options, Out, Seeded, again, option

# Run a judge that scores or compares.


class ScoreOptions(Seeded, Judging, options.Prompted):
    """Options of a command that scores items."""

    heading: ClassVar[str] = "Scores"
    criterion: Any = option(NEW_CRITERION + " Repeatable; `rank` takes one.")
    scale: tuple[float, float] | None = option(
        "Scale of the criterion that you give as 'name: definition', such as 1-7; 1-5 if not given."
    )
    judge: Path | None = option("JSON file of a judge to run on `lm`.")
    refused: Literal["undefined", "raise"] = option(
        "What to do with an item that the model cannot take, such as one that is too long: leave it undefined and "
        "name it, or raise an error.",
        "undefined",
    )


class Comparing(Judging, options.Prompted):
    """Outputs that are compared, the model that compares them, and its third answer."""

    documents: int | None = option("Use only this many documents (inputs), drawn with the seed.")
    ties: bool = option("Allow the judge to answer that there is no difference.", False)


class RankOptions(Seeded, Comparing):
    """Options of a command that ranks the outputs of each document."""

    heading: ClassVar[str] = "Rankings, with --rank"
    criterion: Any = again("criterion", ScoreOptions)
    judge: Path | None = again("judge", ScoreOptions)
    calibration: Literal["none", "batch", "pride"] | None = option(
        "Correct for the judge's position preference, without labels. By default, what the saved judge does."
    )
    orders: int = option(
        "Sort from this many random initial orders, and average scores and agreement; the paper's code: 100.", 1
    )
    debias: Literal["none", "permutation"] | None = option(
        "permutation asks in both orders and averages. By default, what the saved judge does."
    )


class JudgeOptions(ScoreOptions, RankOptions):
    """Score every item of a data set, or rank the outputs of each document.

    Writes scores.jsonl to the run's folder, one line for each item. The judge is saved or new. With `rank`, a
    judge that compares sorts the outputs of each document in pairs (PairS), and rankings.jsonl has one line for each
    document.
    """

    beside = (MeasuringModels, Out)
    rank: bool = option("Rank the outputs of each document by comparing them, in place of scoring them.", False)


# Run a refine loop, or measure recorded loops.

TASK = Literal["translation", "constrained-generation", "mathematics"]


class Mapped(Options):
    """A map of the expected scores."""

    quantile_map: Path | None = option(
        "Pairs of the metric's scores and human MQM scores, needed for Bias: a .jsonl or .csv file with a field "
        "named after the metric and a field mqm."
    )


class SelfOptions(Seeded, Mapped):
    """Measure the self-bias of refine loops.

    Measures Bias and distance skewness of recorded loops, round by round, with intervals. Runs no model. Several loops,
    such as those of several models, are shown side by side.
    """

    loops: Sequence[Path] = field(
        kw_only=False, metadata={"help": "File of recorded loops, or a run folder of evalbias refine run. Repeatable."}
    )
    mapping: Mapping[str, str] | None = option("Names of your columns, such as id=item,self_score=mine. Repeatable.")
    own: str = option("Field that holds the loop's own score.", "self_score")
    expected: str = option("Field that holds the output's expected score.", "expected")
    by: Literal["iteration", "k"] = option("Field that numbers the rounds.", "iteration")
    resamples: int = option("Number of resamples for the intervals and the test.", 2_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.own == self.expected:
            raise ValueError(
                f"`own` and `expected` both name {self.own!r}, and a loop would seem to have no Bias: name the field "
                "of each."
            )


class LoopOptions(Seeded, Mapped, Judging):
    """A loop: its task, items and model."""

    beside = (options.Models, Out)
    task: TASK = field(
        metadata={
            "section": "Data",
            "help": "Task of the loop. In mathematics, a vote replaces the answer in every iteration, as in the paper.",
        }
    )
    data: Any = field(
        metadata={"help": "Items with the fields of the task: a file of the same formats as for judge, or hf:NAME."}
    )
    mapping: Mapping[str, str] | None = option(
        "Names of your columns, such as source=german,reference=english. Repeatable."
    )
    limit: int | None = option("Process only this many items, from the start.")
    max_tokens: int | None = option("Maximum length of an answer, in tokens. By default, what the task needs.")
    metric: Literal["chrf", "bleu"] = option("Reference metric for translations.", "chrf")
    threads: int = option("Number of items to process at a time.", 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task not in get_args(TASK):  # a terminal can check it only after the aim is known to be a loop
            raise ValueError(f"`task` {self.task:.80} is no loop's: choose one of {', '.join(get_args(TASK))}.")
        if self.task != "translation" and (self.metric, self.quantile_map) != ("chrf", None):
            raise ValueError(
                f"`metric` and `quantile_map` are for translations: the task {self.task} defines its own quality."
            )


class StyleOptions(LoopOptions):
    """Measure a model's preference for its own style.

    The model paraphrases outputs that others wrote (field 'output'), and judges both versions.
    """


class FeedbackOptions(LoopOptions):
    """A loop that refines, and the external feedback that it may get."""

    max_iterations: int | None = option("Maximum number of refinements per item (10 if not given).")
    feedback_temperature: float | None = option(
        "Temperature at which the model's own feedback is drawn, 1 as in the published code if not given. At 0 a "
        "text has one score."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.feedback_temperature is not None and self.task == "mathematics":
            raise ValueError("`feedback_temperature` is for feedback in words: in mathematics the feedback is a vote.")


class RefineOptions(FeedbackOptions):
    """Run a refine loop on every item.

    Writes outputs.jsonl and steps.jsonl to the run's folder. A stopped run continues. To see Bias and Dskew for each
    refinement, run evalbias refine measure --data FOLDER.
    """

    feedback: Literal["own", "external"] = option(
        "Source of feedback: the model itself, or the task's external source.", "own"
    )
    program: Path | None = option("JSON file of a compiled loop, which decides the number of refinements.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.program is not None and self.max_iterations is not None:
            raise ValueError("`program` decides the refinements: leave `max_iterations` out.")


# Make a judge or a loop that is better by the chosen aim.


class Choosing(Options):
    """The check of a result before it is written."""

    bare: bool = option(
        "Run the paper's method as published: no choice on held-back items, no racing, PairS averaged over 100 orders. "
        "Its result is written even where the test items show that it is worse than what was given.",
        False,
    )


class AlignOptions(Seeded, Coded, Judging, options.Prompted):
    """Make a judge agree better with the people who labeled the items.

    Tries readings of the scores, demonstrations, edits of the question and combinations of these; with
    --reflection-lm, also guidelines made of people's reasons and an instruction by DSPy's GEPA. The judge is kept
    unless another is shown to agree better, at no larger bias, on inputs that it was not made from. Writes the judge
    to the run's folder. It is 'evalbias optimize --aim agreement'.
    """

    beside = (MeasuringModels, Out)
    criterion: Any = option(NEW_CRITERION)
    scale: tuple[float, float] | None = again("scale", ScoreOptions)
    judge: Path | None = option("JSON file of the judge to begin with, instead of a new one for `criterion`.")
    ties: bool = again("ties", Comparing)
    reflection_lm: Any = option(
        "Model that writes guidelines and instructions from what people say, any that `lm` takes. Without it only "
        "readings of the scores, demonstrations and general edits of the question are tried."
    )
    reflection_api_base: str | None = option("Address of the server that runs `reflection_lm`, or `proposer_lm`.")
    reason: str = option("Field or column in which people say why they rated an item so.", "reason")
    reasoning: bool = option("Try also that the model writes reasons before each answer, which takes long.", False)
    budget: int = option("Judgments, approximately, that comparing the candidates on the labels may take.", 1200)
    limit: int | None = option("Use only this many items, drawn with the seed.")


class AgreementAim(AlignOptions):
    """A judge that scores or compares is made to agree with people, on items that they labeled."""

    heading: ClassVar[str] = "Judges of labeled items (--aim agreement)"
    aim: str = option("agreement.", "agreement")


class ScoringAim(Choosing, Seeded, options.Likely, Judging, options.Prompted):
    """A judge that scores is compiled on rated outputs, and compared before and after on a fifth of them."""

    heading: ClassVar[str] = "Judges that score (--aim likelihood)"
    beside = (MeasuringModels, Out)
    aim: str = option("likelihood, or probe:KIND.", "likelihood")
    criterion: Any = option(NEW_CRITERION + " Repeatable for a judge that scores.")
    scale: tuple[float, float] | None = again("scale", ScoreOptions)
    judge: Path | None = option("JSON file of the judge to begin with, instead of a new one for `criterion`.")
    k: int = option("Number of demonstrations.", 8)
    split_by: Literal["instance", "input"] = option(
        "What to split by; with input, all items of one input land on the same side.", "instance"
    )
    reduction: Literal["sum", "mean"] = option(
        "How an output's likelihood is computed from the log-probabilities of its tokens; the paper uses sum.", "sum"
    )
    limit: int | None = option("Use only this many items, drawn with the seed.")
    resamples: int = option("Number of random swaps in the permutation test.", 100_000)
    max_loss: float = option("Loss of agreement (Pearson's r) to allow for a smaller bias, such as 0.05.", 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1:
            raise ValueError(f"`k` is {self.k}: compiling needs one demonstration or more.")
        if self.aim != "likelihood" and self.max_loss:
            raise ValueError(f"`max_loss` is for the aim likelihood, and `aim` is {self.aim}: leave it out.")


class ComparingAim(Choosing, Seeded, Coded, Comparing):
    """A wording is searched for a judge that compares, on half of the documents, and tested on the others."""

    heading: ClassVar[str] = "Judges that compare (--aim fairness)"
    beside = (MeasuringModels, Out)
    aim: str = option("fairness, or probe:KIND.", "fairness")
    criterion: Any = option(NEW_CRITERION)
    judge: Path | None = again("judge", ScoringAim)
    proposer_lm: Any = option(
        "Model that rewords the instruction: 'grammar' (no model), or any that `lm` takes.", "grammar"
    )
    reflection_api_base: str | None = again("reflection_api_base", AlignOptions)
    population: int = option("Number of wordings in each epoch.", 5)
    epochs: int = option("Number of epochs.", 5)
    pairs: int | None = option("Maximum number of pairs, drawn with the seed, or 'all'.", 200)
    exact: bool = option(
        "Judge every wording on every pair, instead of dropping wordings early that cannot win (racing).", False
    )
    orders: int | None = option(
        "Average agreement with people over rankings from this many random initial orders (100 with `bare`, else 1)."
    )
    instruction: str | None = option(
        "Your own wording to start from. It must contain the criterion's name; {answers} stands for the answers, "
        "which otherwise follow in a line of their own."
    )
    instruction_place: Literal["first", "last"] | None = option(
        "Where the instruction stands in the prompt: last, as in the paper, or first. By default last, but first for "
        "'embedded', which was trained so."
    )


class LoopAim(Choosing, FeedbackOptions):
    """A refine loop is compiled on half of the items, and compared before and after on the others."""

    heading: ClassVar[str] = "Refine loops (--aim self-bias)"
    aim: str = option("self-bias.", "self-bias")
    k: int = option("Maximum number of demonstrations.", 4)
    budget: int | None = option("Approximate number of requests to the model for training items.")


class OptimizeOptions(ScoringAim, ComparingAim, LoopAim, AgreementAim):
    """Make a judge that agrees with people, or is less biased, or a refine loop.

    With labels, makes a judge agree with people, as 'evalbias align' does. Or compiles demonstrations and calibrations
    into a judge that scores (rated outputs), searches a wording for a judge that compares (pairs, or several outputs of
    each input; no labels), or compiles a refine loop under external feedback. Half of the inputs are kept back, and
    the given program is kept unless another is shown there to be better. Items that took no part compare both. Writes
    the judge or program.json to the run's folder.
    """

    beside = (MeasuringModels, Out)
    aim: str | None = option(  # type: ignore[assignment]
        "What becomes better. Of judges of labeled items: agreement. Of judges that score: likelihood. Of judges that "
        "compare: fairness of the two positions. Of both: probe:KIND, such as probe:authority, with a KIND of evalbias "
        "probe. Of refine loops: self-bias. By default what `judge` or the data allow: agreement if people rated or "
        "compared the outputs, else fairness if there are pairs or several outputs of an input."
    )
    task: str | None = option(  # type: ignore[assignment]
        f"For self-bias, the loop's task: {', '.join(get_args(TASK))}. Else the task that the outputs were written "
        "for, such as 'Summarize the article.': likelihoods depend on it, and a saved judge has its own."
    )
    k: int | None = option("Number of demonstrations: 8, of a loop at most 4, if not given.")  # type: ignore[assignment]
    limit: int | None = option("Use only this many items, drawn with the seed; of a loop, the first.")

    def __post_init__(self) -> None:
        """Check nothing: the class of the chosen aim checks its options."""


class DemoOptions(Seeded):
    """Measure and mitigate two biases of the embedded judge, offline.

    Chooses RS demonstrations and searches a fair wording. Runs on a synthetic world and needs no network, key or GPU.
    """

    recorded: bool = option("Audit recorded scores of a real model instead, in seconds; needs no model.", False)


NAMES = {name for group in options.GROUPS for name in inspect.get_annotations(group)}
"""Names of the options of all commands."""
