"""An open run of a refine loop: its task, items, models and folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from evalbias.commands.model_options import ModelOptions
from evalbias.commands.models import identity, open_lm
from evalbias.commands.refine_options import SAME, LoopOptions, RefineOptions
from evalbias.commands.run import ModelWatch
from evalbias.commands.terminal import Resumable
from evalbias.commands.translation_metric import TranslationMetric
from evalbias.data.columns import parse_mapping
from evalbias.data.reading import decoded
from evalbias.data.refinements import load_items
from evalbias.evaluation import CachedScorer
from evalbias.lm.contract import measuring
from evalbias.programs.criteria import FLUENCY, UNDERSTANDABILITY
from evalbias.programs.examples import read_examples
from evalbias.programs.feedback import ConsistencyFeedback, FeedbackSource, InstructScore, JudgeFeedback
from evalbias.programs.feedback.instructscore import PROMPT
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.refine import SelfRefine
from evalbias.programs.saving import read_state
from evalbias.programs.tasks import TASKS, TEMPERATURE, RefineTask, check_items
from evalbias.runs.folder import RunFolder


class Refining(Resumable):
    """An open run of a loop; use it in a ``with``, which releases its folder.

    Args:
        command: Command as the user typed it.
        loop: Task, items, model and folder.
        options: Options of the command.
        models: Options that decide how models are opened.
    """

    def __init__(self, command: str, loop: LoopOptions, *, options: RefineOptions, models: ModelOptions) -> None:
        self.config: dict[str, Any] = {} if loop.max_tokens is None else {"max_tokens": loop.max_tokens}
        options.check()
        iterations = 10 if options.max_iterations is None else options.max_iterations
        self.metric = TranslationMetric(loop.task, options.metric)
        examples = None if options.examples is None else read_examples(options.examples)
        given = self.metric.arguments | ({} if examples is None else {"examples": examples})
        self.task = TASKS[loop.task](max_iterations=iterations, seed=loop.seed, **given, **self.config)
        state = None if options.program is None else read_state(options.program, SelfRefine.kind)
        if state is not None:
            _load(with_refiner(self.task), state, options.program, seed=loop.seed)
        mapping = parse_mapping(loop.columns or ())
        items, sha256 = load_items(loop.data, mapping=mapping)
        self.items = items[: loop.limit]
        check_items(self.task, self.items)
        if options.instructscore is not None:
            _check_instructscore(self.task, command, options.feedback)
        self.seed, self.options = loop.seed, options
        self.lm = open_lm(loop.lm, models, writes=True)
        self.lm.cache = False  # a stopped run continues from the log, and tokens are counted as spent
        self.aspects_lm = self._opened_for_aspects(models)
        self.external: FeedbackSource = self.task.external
        if options.instructscore is not None:
            request = PROMPT if options.prompt is None else decoded(options.prompt.read_bytes(), options.prompt)
            self.external = InstructScore(
                open_lm(options.instructscore, models.of_another(), writes=True), prompt=request
            )
        settings = {
            "command": command,
            "task": loop.task,
            "data": loop.data,
            "data_sha256": sha256,
            **({"map": mapping} if mapping else {}),
            "seed": loop.seed,
            "limit": loop.limit,
            "max_tokens": loop.max_tokens,
            "temperature": TEMPERATURE,
            "lm": identity(self.lm),
            **asdict(options),
            "program": state,
            "prompt": None,
            "examples": None if examples is None else examples.to_dict(),
            "metric": self.metric.settings,
            "aspects_lm": None if self.aspects_lm is None else identity(self.aspects_lm),
            "aspects_api_base": None,  # an address does not decide the numbers
        }
        if isinstance(self.external, InstructScore):
            settings |= {"instructscore": identity(self.external.lm), "prompt": self.external.prompt}
        self.folder = RunFolder(loop.out, settings)
        try:
            self.watch = ModelWatch(self.folder, measuring(self.lm), lambda: self.folder.path.rglob("*.jsonl"))
            self.watch.check()
        except BaseException:
            self.close()
            raise
        self.scorer = CachedScorer(self.task.external, self.folder.path / "quality.jsonl")

    def _opened_for_aspects(self, models: ModelOptions) -> Any:
        """Open the judge of fluency and understandability; None where none is named."""
        named = self.options.aspects_lm
        if named is None or named == SAME:
            return None if named is None else self.lm
        return open_lm(named, models.of_another(self.options.aspects_api_base))

    def close(self) -> None:
        """Release the run's folder and stop the metric."""
        self.folder.close()
        self.metric.close()

    def aspects(self) -> list[CachedScorer]:
        """Return judges of fluency and understandability, each with a log; none where no model is named for them.

        Raises:
            NotImplementedError: The model measures no probabilities.
        """
        if self.aspects_lm is None:
            return []
        measuring(self.aspects_lm)
        scorers = []
        for criterion in (FLUENCY, UNDERSTANDABILITY):
            judge = PointwiseJudge(criterion)
            judge.predict.lm = self.aspects_lm
            source = JudgeFeedback(judge, source=self.task.source)
            scorers.append(CachedScorer(source, self.folder.path / f"{criterion.name}.jsonl"))
        return scorers

    @property
    def aspects_judge(self) -> str:
        """Name of the model that judges fluency and understandability."""
        same = identity(self.aspects_lm) == identity(self.lm)
        return "the model that wrote the texts" if same else str(self.aspects_lm.model)


def _check_instructscore(task: RefineTask, command: str, feedback: str) -> None:
    """Refuse InstructScore where it has nothing to compare with, or would not be heard."""
    if "reference" not in task.fields:
        raise ValueError(f"--instructscore compares with a reference: the task {task.name} has none.")
    if command == "refine" and feedback == "own":
        raise ValueError("--instructscore is external feedback: add --feedback external.")


def with_refiner(task: RefineTask) -> SelfRefine:
    """Return the task's loop if a refiner listens to its feedback.

    Raises:
        ValueError: Votes replace the answer.
    """
    if not isinstance(task.loop, SelfRefine):
        raise ValueError(f"In the task {task.name} votes replace the answer: use --task {task.name}-refiner.")
    return task.loop


def _load(loop: SelfRefine, state: dict[str, Any], file: Path | None, *, seed: int) -> None:
    try:
        loop.load_state(state)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{file} is a compiled loop of another task: {error}") from error
    loop.seed = seed  # the command's seed decides a run, not the one that was saved
    if isinstance(loop.feedback, ConsistencyFeedback):
        loop.feedback.seed = seed
