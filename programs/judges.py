"""The base of judges, and questions about items.

One judgment runs through four steps: ``read`` checks the texts, ``_questions`` makes the inputs of the judge's
``dspy.Predict`` of them, the answers become ``_row``s of fields, and ``_predictions`` corrects and averages these.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

import dspy
import numpy as np
from numpy.typing import ArrayLike

from evalbias import data
from evalbias.data.items import item_name
from evalbias.data.reading import opened, table_of
from evalbias.lm import types
from evalbias.lm.cache import CachedLM, as_measuring, measuring, resolve_lm
from evalbias.lm.contract import Reasoned, Reasoning, Sampling, answer_reasoned, ask
from evalbias.lm.decisions import ClientLM, decides
from evalbias.lm.dspy_seam import UsageTracker, active_trace, add_usage, with_callbacks
from evalbias.lm.types import ChoiceLogprobs, Choices, Decision, Likelihood, MeasuringLM, Question, Refused, chunk_of
from evalbias.measures.arrays import FloatArray
from evalbias.options import Items
from evalbias.programs import prompts
from evalbias.programs.criterion import Criterion, check_inputs
from evalbias.programs.items import ALL_INPUTS, OWN_INPUTS, read_item, read_pair
from evalbias.programs.prompts import Fields, Inputs, Language, Message
from evalbias.programs.saved import Instrument, Predictor, Setting, instance_of
from evalbias.values import get_logger

PASSED_SETTINGS = ("cache", "rollout_id")
"""DSPy's own settings of a call, which are passed on; a measured answer depends on no other setting of the call."""

RefusedItems = Literal["undefined", "raise"]
Row = dict[str, Any]
"""Fields of an answer, as DSPy's traces keep it: the score or the log-probabilities, the coverage, and others."""

logger = get_logger(__name__)


class SamplingSetting(Setting[Sampling | None]):
    """Settings for drawing answers with ``scoring="sampled"``; None with any other scoring."""

    def __get__(self, program: Any, owner: type | None = None) -> Sampling | None:
        return super().__get__(program) if program.scoring == "sampled" else None

    def __set__(self, program: Any, value: Sampling | None) -> None:
        if value is not None and program.scoring != "sampled":
            raise ValueError(
                f"scoring={program.scoring!r} does not sample: leave sampling out, or give scoring='sampled'."
            )
        super().__set__(program, Sampling() if value is None else value)


class ReasoningSetting(Setting[Reasoning | None]):
    """Settings for reasons before the answer: True for the defaults, None or False for an answer without reasons."""

    def __set__(self, program: Any, value: Any) -> None:
        value = Reasoning() if value is True else None if value is False else value
        super().__set__(program, value)


class InputsSetting(Setting[Mapping[str, str]]):
    """Input field -> label in the prompt; empty, as it is saved, for source and output under the criterion's labels."""

    def __get__(self, program: Any, owner: type | None = None) -> Mapping[str, str]:
        criterion: Criterion = program.criterion
        own = {"source": criterion.source_label, "output": criterion.output_label}
        return super().__get__(program) or own


class UnlabeledDemos(UserWarning):
    """Demonstrations are left out of a judge's prompt, because they have no answer."""


LOW_COVERAGE = 0.1  # median coverage below which answers mean little: the model hardly ever answers with a label


class LowCoverage(UserWarning):
    """A judge's model hardly ever answers with a label, so that its answers mean little."""


def median_coverage(coverage: ArrayLike) -> float:
    """Return the median of (n,) coverages; NaN where the model reports only shares, or there is no model."""
    values = np.atleast_1d(np.asarray(coverage, dtype=np.float64))
    reported = values[~np.isnan(values)]
    return float(np.median(reported)) if len(reported) else math.nan


class OwnTexts(UserWarning):
    """A judge judges a text of its own model, which it may score too high (self-preference)."""


def warn_of_own_text(judges: Sequence[Judge], text: Any) -> None:
    """Warn, once for each model, if a judge's own model wrote this text according to DSPy's trace.

    The writer is unknown if no predictor in the trace returned exactly this text.
    """
    for writer, _, outputs in reversed(active_trace() or ()):
        if isinstance(outputs, dspy.Prediction) and any(output is text for output in outputs.values()):
            own = {str(getattr(resolve_lm(None, judge.predict), "model", "")) for judge in judges}
            model = str(getattr(resolve_lm(None, writer), "model", None))
            if model in own:
                warnings.warn(
                    f"{model} judges what it wrote itself, and models tend to prefer their own texts: give the judge "
                    "another model (judge.set_lm), or let evalbias.audit measure its self-preference.",
                    OwnTexts,
                    stacklevel=1,  # Python shows the warnings of one place that say the same once
                )
            return


class Judge(Instrument):
    """Base of judges that score and judges that compare: a criterion, a prompt, and the way to ask a model.

    A kind of judge declares ``scoring`` and ``label_fields`` (fields of a demonstration that may hold its answer), and
    implements the methods that raise ``NotImplementedError`` here. Optimizers change the prompt of ``predict``.
    """

    label_fields: tuple[str, ...]
    predict: Predictor
    scoring: Setting[str]
    criterion = Setting[Criterion](
        instance_of(Criterion, "a criterion, evalbias.Criterion(NAME, DEFINITION)"),
        dump=asdict,
        load=lambda fields: Criterion(**fields),
    )
    reasoning = ReasoningSetting(
        instance_of(Reasoning | None, "True, or evalbias.Reasoning(samples=...)"),
        dump=lambda value: value and asdict(value),
        load=lambda saved: saved and Reasoning(**saved),
        resets=("corrections", "correction"),
    )
    inputs = InputsSetting(check_inputs, dump=dict, load=dict)
    judged = Setting[str](instance_of(str, "the name of one of the inputs"))
    language = Setting[str](prompts.known_language, resets=("corrections", "correction"))
    cue = Setting[bool](instance_of(bool, "True or False"), resets=("corrections", "correction"))
    sampling = SamplingSetting(
        instance_of(Sampling, "evalbias.Sampling(samples=...)"),
        dump=lambda value: value and asdict(value),
        load=lambda saved: Sampling(**saved),
    )

    @property
    def has_own_inputs(self) -> bool:
        """True if its inputs were named, by the user or by a signature."""
        return bool(self.settings.values["inputs"])

    def read(self, example: Any, index: int | None = None) -> dspy.Example:
        """Return an example whose texts are checked; calls, batches and optimizers read through this.

        The judged text is its ``output`` or ``candidates``, and the other inputs are its ``source``, whatever the
        judge's own names are; see ``read_item``.
        """
        raise NotImplementedError

    def own(self, item: Fields) -> Inputs:
        """Return the inputs of ``predict`` by name, from an item returned by ``read`` or with the judge's own names."""
        raise NotImplementedError

    def labels(self, inputs: Inputs) -> tuple[str, ...]:
        """Return the answers to choose from."""
        raise NotImplementedError

    def prompt(self, instructions: str, demos: Sequence[Message], inputs: Inputs) -> list[Message]:
        """Return the messages of a prompt: the demonstrations ``demos``, then the question about ``inputs``."""
        raise NotImplementedError

    def _questions(self, item: dspy.Example) -> list[Inputs]:
        """Return the inputs of ``predict`` to ask about an item."""
        return [self.own(item)]

    def _labeled(self, demo: Fields, name: str) -> tuple[Inputs, str]:
        """Return the inputs and the label of a demonstration; ``name`` names it in errors."""
        raise NotImplementedError

    def _texts(self, inputs: Inputs) -> list[tuple[str, str]]:
        """Return the texts of the prompt as (label, text)."""
        raise NotImplementedError

    def _cue(self, phrases: Language) -> str:
        """Return the line that asks for the answer at the end of a prompt; empty if the criterion has none."""
        raise NotImplementedError

    def _closed(self, instructions: str, labels: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
        """Return kind, wording and meanings of a decision model's question."""
        raise NotImplementedError

    def _row(self, answer: ChoiceLogprobs) -> Row:
        """Return the fields of an answer, as DSPy's traces keep it."""
        raise NotImplementedError

    def _predictions(
        self, items: Sequence[dspy.Example], rows: Sequence[Sequence[Any]], lm: Any, refused: RefusedItems
    ) -> list[dspy.Prediction]:
        """Return one prediction for each item from the rows of its questions."""
        raise NotImplementedError

    def _ending(self, phrases: Language) -> str:
        """Return the line that the answer follows; empty if it follows the texts."""
        return self._cue(phrases) if self.cue else ""

    def text(self, inputs: Inputs, *question: str) -> str:
        """Return a question's texts and the lines after them, up to the point where the answer follows."""
        phrases = prompts.LANGUAGES[self.language]
        lines = [phrases.text.format(label=label, text=text) for label, text in self._texts(inputs)]
        ending = self._ending(phrases)
        return "\n".join([*lines, *question, *([ending] if ending else [])])

    def labeled(self, demos: Sequence[Fields]) -> list[tuple[Inputs, str]]:
        """Return (inputs, label) of each demonstration that has an answer, and warn if others are left out.

        DSPy's optimizers give the examples of a whole pipeline to each of its predictors. ``ValueError`` names a
        demonstration whose text is missing or empty, or whose answer is not among the labels.
        """
        own = [demo for demo in demos if any(name in demo for name in self.label_fields)]
        if len(own) < len(demos):
            warnings.warn(
                f"{len(demos) - len(own)} of {len(demos)} demonstrations are not shown to the judge of "
                f"{self.criterion.title}: they have no {' or '.join(map(repr, self.label_fields))}. Label the "
                "training set, if it is the judge's own.",
                UnlabeledDemos,
                stacklevel=2,
            )
        return [self._labeled(demo, f"the demonstration {item_name(demo)!r:.80}") for demo in own]

    def messages(self, example: Fields) -> list[Message]:
        """Return the prompt of one judgment, candidates in the order of ``example``; the texts are not checked."""
        return self._prompts(self.predict.signature.instructions, self.predict.demos)(self.own(example))

    def measuring(self, lm: Any) -> Any:
        """Return the model that chooses labels: ``lm``, or with sampled scoring a wrapper that repeats its answers."""
        return measuring(lm, self.draws)

    @property
    def draws(self) -> Sampling | None:
        """Answers that sampled scoring takes to a prompt: ``sampling``, but after reasons a single one."""
        if self.reasoning is None or self.sampling is None:
            return self.sampling
        return replace(self.sampling, samples=1, temperature=0.0)

    def _check(self, items: Sequence[dspy.Example], lm: Any) -> None:
        """Refuse items that cannot be judged together, before the model is asked."""

    def named(self, texts: Sequence[Any], fields: Inputs) -> Inputs:
        """Return the inputs of a call by name; ``TypeError`` for an input that the judge does not take."""
        names = [*self.predict.signature.input_fields]
        if len(texts) > len(names) or (unknown := [name for name in fields if name not in names]):
            what = f"{len(texts)} texts" if len(texts) > len(names) else f"{unknown[0]!r:.80}"
            raise TypeError(f"The {self.kind} takes the fields {', '.join(map(repr, names))}, not {what}: name these.")
        return {**dict(zip(names, texts, strict=False)), **fields}

    def _judged(self, texts: Sequence[Any], fields: Inputs) -> dspy.Prediction:
        item, lm = self.read(self.named(texts, fields)), resolve_lm(None, self.predict)
        self._check([item], lm)
        # ``JudgeAdapter`` answers decision requests instead of DSPy.
        own = {"lm": ClientLM(lm)} if lm is not None and decides(lm) else {}
        # In a program around it, a closed judge leaves no trace: DSPy would fine-tune that program's own model on it.
        closed = len(dspy.settings.caller_modules or ()) > 1 and not self.tunable
        with dspy.context(adapter=JudgeAdapter(self), **({"trace": None} if closed else {})):
            rows = [self.predict(**question, **own) for question in self._questions(item)]
        return self._warned(self._predictions([item], [rows], lm, "raise"), lm)[0]

    def _warned(self, predictions: list[dspy.Prediction], lm: Any) -> list[dspy.Prediction]:
        """Return the predictions; warn, once per criterion and model, if their coverage is below ``LOW_COVERAGE``."""
        if median_coverage([prediction.coverage for prediction in predictions]) < LOW_COVERAGE:  # NaN is not below
            warnings.warn(
                f"Do not rely on the judge of {self.criterion.name} on {getattr(lm, 'model', 'its model')}: less than "
                f"{100 * LOW_COVERAGE:g} % of the model's probability is on the labels (the coverage), so its answers "
                "mean little. Take another model, or reword the instruction.",
                LowCoverage,
                stacklevel=1,  # Python shows the warnings of one place that say the same once
            )
        return predictions

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: MeasuringLM | None = None,
        progress: Callable[[int], None] | None = None,
        refused: RefusedItems = "undefined",
        **options: Any,
    ) -> list[dspy.Prediction]:
        """Judge many items in few calls of the model; return one prediction per example with the fields of ``forward``.

        DSPy's callbacks, such as MLflow's tracing, receive each judgment as if it were a call. DSPy's traces and its
        ``history`` hold only the requests to models that are called through DSPy: all but ``LocalLM`` and ``ServerLM``.
        Where DSPy tracks usage, ``get_lm_usage()`` of a prediction gives the tokens of its item; the tokens of a
        position calibration belong to no item, and count in ``dspy.track_usage()`` only. A calibration that
        ``calibrate`` has not fitted is fitted to these examples. ``ValueError`` names an example that lacks a text.

        Args:
            examples: With the judge's ``inputs``, by default ``source`` and ``output``; for a judge that compares, with
                ``candidates`` (or ``outputs``) in place of the judged input, whose numbers may differ.
            lm: Model to ask. Defaults to the judge's own model, then to the model that DSPy is configured with.
            progress: Function that is called after every chunk with the number of prompts just answered.
            refused: ``"undefined"`` leaves items undefined that the model cannot take (too long, for example), logs
                their ids and keeps the reason in the prediction's ``undefined``; ``"raise"`` raises.
            **options: Ignored options of ``dspy.Module.batch``; ``return_failed_examples`` raises ``TypeError``.
        """
        check_batch_options(options)
        items = [self.read(example, index) for index, example in enumerate(examples)]
        lm = resolve_lm(lm, self.predict)
        self._check(items, lm)
        questions_of = [self._questions(item) for item in items]
        flat = [(item, inputs) for item, questions in zip(items, questions_of, strict=True) for inputs in questions]
        with usage_by_item(items) as trackers:
            answered = iter(self._ask(flat, lm, refused=refused, progress=progress))
            rows = [[next(answered) for _ in questions] for questions in questions_of]
            done = self._warned(self._predictions(items, rows, lm, refused), lm)
        for tracker, prediction in zip(trackers, done, strict=False):  # empty unless DSPy tracks usage
            prediction.set_lm_usage(tracker.get_total_tokens())
        tell_callbacks(self, items, done)
        return done

    def _ask(
        self,
        pairs: Sequence[tuple[dspy.Example, Inputs]],
        lm: Any,
        *,
        refused: RefusedItems = "undefined",
        progress: Callable[[int], None] | None = None,
    ) -> list[Row]:
        """Return the row of every (item, inputs of ``predict``); a refused row has the reason (``undefined``)."""
        model, size = self.measuring(lm), chunk_of(lm)
        question_of = self._asks(model, self.predict.signature.instructions, self.predict.demos)
        rows: list[Row] = []
        for start in range(0, len(pairs), size):
            part = pairs[start : start + size]
            questions = [question_of(inputs) for _, inputs in part]
            answers, why = answer_items(model, questions, [item for item, _ in part], refused=refused)
            for i, question in enumerate(questions):
                answer = answers[i] if i in answers else types.unanswered(question.choices)
                rows.append(self._row(answer) | ({"undefined": why[i]} if i in why else {}))
            if progress is not None:
                progress(len(part))
        return rows

    def _asks(self, lm: Any, instructions: str, demos: Sequence[Fields]) -> Callable[[Inputs], Choices | Reasoned]:
        """Return the function from inputs of ``predict`` to the model's question.

        The question is the choice of a label after a prompt; for a model of decisions, a closed question whose texts
        have names.
        """
        if lm.decides and self.scoring == "expected" and self.reasoning is None:
            rendered = self._shown(demos, lambda inputs, label: [self._state(inputs, self._wire(label))])
            return lambda inputs: self._decision(instructions, rendered, inputs)
        prompt = self._prompts(instructions, demos)
        return lambda inputs: self._choices(prompt(inputs), inputs)

    def _prompts(self, instructions: str, demos: Sequence[Fields]) -> Callable[[Inputs], list[Message]]:
        """Return the function from inputs of ``predict`` to the messages of the prompt."""
        messages = self._shown(demos, lambda inputs, label: prompts.demonstration(self.text(inputs), label))
        return lambda inputs: self.prompt(instructions, messages, inputs)

    def _shown(self, demos: Sequence[Fields], render: Callable[[Inputs, str], list[Any]]) -> list[Any]:
        """Return the rendered demonstrations, which stand before an item in the prompt."""
        return [part for inputs, label in self.labeled(demos) for part in render(inputs, label)]

    def question(self, example: Fields) -> Choices | Reasoned:
        """Return the question about an item, candidates in the order of ``example``; the texts are not checked."""
        return self._choices(self.messages(example), self.own(example))

    def _choices(self, prompt: list[Message], inputs: Inputs) -> Choices | Reasoned:
        labels, phrases = self.labels(inputs), prompts.LANGUAGES[self.language]
        if self.reasoning is None:
            return Choices(prompt, labels)
        ending = self._ending(phrases)  # the line before the answer moves behind the reasons
        *before, question = prompt
        cut = f"\n{ending}" if ending else ""
        first = {**question, "content": f"{question['content'].removesuffix(cut)}\n{phrases.reasons}"}
        return Reasoned([*before, first], labels, f"{phrases.conclusion}{cut}", self.reasoning)

    def _state(self, inputs: Inputs, answer: Any = None) -> dict[str, Any]:
        """Return the judged texts by name, with the answer of a demonstration; ValueError if two names are equal."""
        named = [*self._texts(inputs), *([] if answer is None else [(self.criterion.name, answer)])]
        state = dict(named)
        if len(state) < len(named) or "demos" in state:
            raise ValueError(
                f"A decision model takes texts by name, and these are {', '.join(name for name, _ in named)}: give the "
                "criterion other labels (source_label, output_label) or another name."
            )
        return state

    def _wire(self, label: str) -> Any:
        """Return the answer of a demonstration in the form that a decision model takes."""
        return label

    def _decision(self, instructions: str, demos: Sequence[dict[str, str]], inputs: Inputs) -> Decision:
        labels = self.labels(inputs)
        kind, wording, meanings = self._closed(instructions, labels)
        state = {**self._state(inputs), **({"demos": demos} if demos else {})}
        return Decision(state, labels, kind, wording, meanings, self.criterion.name)  # type: ignore[arg-type]


def asked_together(judges: Sequence[Judge], examples: Sequence[dspy.Example], lm: Any) -> Any:
    """Return ``lm`` with cached answers to the judges' questions about the examples, for the judges' ``batch``.

    A model of decisions answers in one request all questions about an item that share texts and demonstrations, such as
    one for each criterion. Any other model is returned unchanged, as is ``lm`` without judges or with reasoning.
    """
    if not judges or not as_measuring(lm).decides or any(judge.reasoning for judge in judges):
        return lm
    model, items = CachedLM(lm), [[judge.read(example, i) for i, example in enumerate(examples)] for judge in judges]
    asks = [judge._asks(model, judge.predict.signature.instructions, judge.predict.demos) for judge in judges]
    rows = (zip(judges, asks, row, strict=True) for row in zip(*items, strict=True))
    questions: list[Any] = [ask(inputs) for row in rows for judge, ask, e in row for inputs in judge._questions(e)]
    model.answer(questions, {})
    return model


# Items of a file, for a judge with its own inputs.


def read_for(
    judge: Any,
    options: Items,
    *,
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
    samples: str | None = None,
) -> data.Dataset:
    """Read the items of a command's options, which a judge's own ``inputs`` may name; see ``evalbias.data.read``.

    The judged input's column, or a pair's two columns (``answer_1``, ``answer_2``), become the outputs.
    """
    source, mapping = options.data, options.mapping
    if has_own := isinstance(judge, Instrument) and [*getattr(judge, "inputs", OWN_INPUTS)] != [*OWN_INPUTS]:
        source, mapped, mapping = opened(source), dict(mapping or {}), None
        for end in ("", "_1", "_2") if judge.judged != "output" else ():
            name = f"{judge.judged}{end}"
            if name in mapped or (name in source.columns and f"output{end}" not in mapped):
                mapped[f"output{end}"] = mapped.pop(name, name)
        source = table_of(source, mapped)
        if "source" not in judge.inputs:  # the other inputs are
            for _, row in source.rows:
                row["source"] = next((row.get(name) for name in judge.inputs if name != judge.judged), None)
    read = partial(data.read, missing=options.missing, keep=options.keep, levels=options.levels)
    items = read(source, mapping=mapping, choices=choices, numbers=numbers, samples=samples)
    if has_own:
        items[:] = as_judged(judge, items)
    return items


def as_judged(judge: Any, items: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Return items with outputs or candidates as the judge reads them; ``ValueError`` names an item without a text."""
    reads = [read_pair if "candidates" in item else read_item for item in items]
    return [read(item, i, judge.inputs, judge.judged) for i, (read, item) in enumerate(zip(reads, items, strict=True))]


class JudgeAdapter(dspy.Adapter):  # type: ignore[misc]
    """Adapter that asks a judge's question in the judge's own prompt."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.judge = judge

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[Row]:
        judge = self.judge
        lm = lm.client if isinstance(lm, ClientLM) else lm
        question = judge._asks(as_measuring(lm), signature.instructions, demos)(inputs)
        options = {name: lm_kwargs[name] for name in PASSED_SETTINGS if name in lm_kwargs}
        return [judge._row(ask(lm, question, judge.draws, **options))]


def check_batch_options(options: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for options that ``dspy.Module.batch`` does not have, or that change its result."""
    inspect.signature(dspy.Module.batch).bind(None, [], **options)
    if options.get("return_failed_examples"):
        raise TypeError("return_failed_examples is not needed: what the model refuses has a prediction that says why.")


_trackers: ContextVar[Mapping[int, UsageTracker]] = ContextVar("_trackers")
"""Python's ``id`` of an item in the current batch -> counter of the tokens of its questions."""


def tracks_usage() -> bool:
    """Return whether DSPy counts the tokens of calls: by its setting ``track_usage`` or in ``dspy.track_usage()``."""
    return bool(dspy.settings.track_usage) or dspy.settings.usage_tracker is not None


@contextmanager
def usage_by_item(items: Sequence[dspy.Example]) -> Iterator[Sequence[UsageTracker]]:
    """Count the tokens of each item's questions in this context; yields no trackers if DSPy tracks no usage."""
    trackers = [UsageTracker() for _ in items] if tracks_usage() else []
    token = _trackers.set(dict(zip(map(id, items), trackers, strict=False)))
    try:
        yield trackers
    finally:
        _trackers.reset(token)


def tell_callbacks(program: dspy.Module, items: Sequence[dspy.Example], predictions: Sequence[dspy.Prediction]) -> None:
    """Report each judgment of a batch to DSPy's callbacks as if it were a call; its duration has no meaning."""
    if not (dspy.settings.callbacks or program.callbacks):
        return
    for item, prediction in zip(items, predictions, strict=True):

        @with_callbacks  # type: ignore[untyped-decorator]
        def call(instance: dspy.Module, *args: Any, **kwargs: Any) -> dspy.Prediction:
            """Return the prediction; the parameters have the names of ``dspy.Module.__call__``'s."""
            return prediction  # noqa: B023

        call(program, **program.own(item))


# Items that a model refuses, for example because they are too long: left undefined and reported, or an error.


def answer_items(
    model: MeasuringLM,
    questions: Sequence[Question | Reasoned],
    examples: Sequence[dspy.Example],
    *,
    refused: RefusedItems = "undefined",
) -> tuple[dict[int, Any], dict[int, str]]:
    """Ask one question per example; if the model refuses a question, only its own answer is missing.

    Returns index -> answer, and index of a refused item -> a sentence with its name and the reason, which is also
    logged. With ``refused="raise"``, the first refusal raises ``PromptRefused`` with the item's name.
    """
    if refused not in ("undefined", "raise"):
        raise ValueError(f"refused={refused!r} is unknown: choose 'undefined' or 'raise'.")
    answers: dict[int, Any] = {}
    answer_reasoned(model.answer, questions, answers)
    if trackers := _trackers.get(None):
        for i, answer in answers.items():
            if id(examples[i]) in trackers and not isinstance(answer, Refused):
                add_usage(trackers[id(examples[i])], model.model, answer.usage)
    reasons = {i: answer.reason for i, answer in sorted(answers.items()) if isinstance(answer, Refused)}
    if refused == "raise":
        types.raise_refused(answers, {i: _prompt_of(examples[i]) for i in reasons})
    sentences = {i: f"{_prompt_of(examples[i])} {reason}" for i, reason in reasons.items()}
    if sentences:
        distinct = list(dict.fromkeys(sentences.values()))
        more = f" The same holds for {len(distinct) - 1} more." if len(distinct) > 1 else ""
        logger.warning("%s Its judgment is undefined.%s", distinct[0], more)
    return {i: answer for i, answer in answers.items() if i not in reasons}, sentences


def _prompt_of(example: dspy.Example) -> str:
    """Name a prompt by the id of its item, the ids of its pair, or else the beginning of its source."""
    if example.get("ids"):
        return f"The prompt of the pair {tuple(example.ids)!r:.80}"
    if example.get("id") is not None:
        return f"The prompt of the item {example.id!r:.80}"
    if not example.get("source"):
        return f"The prompt of the item with the output {str(example.get('output'))[:60]!r}..."
    return f"The prompt of the item with the source {str(example['source'])[:60]!r}..."


REDUCTIONS = ("sum", "mean")


def context_of(example: dspy.Example) -> Any:
    """Return as one text the inputs that an output was written for: empty if it needs no input, None if unknown."""
    return example.get(ALL_INPUTS, example.get("source"))


def likelihood_scores(
    examples: Sequence[dspy.Example], criterion: Criterion, lm: MeasuringLM, *, reduction: str = "sum"
) -> FloatArray:
    """Measure (n,) LS, ``log P(output | source, task)`` in nats (Ohi et al. 2024, eq 1); NaN if refused.

    The criterion's task is the description d of eq 1. ``reduction`` is ``"sum"`` over the output's tokens, or
    ``"mean"`` as in the paper's code. Equal texts are scored once.
    """
    return likelihoods_and_refusals(examples, criterion, lm, reduction, refused="undefined")[0][:, 0]


def likelihoods_and_refusals(
    examples: Sequence[dspy.Example], criterion: Criterion, lm: MeasuringLM, *reductions: str, refused: RefusedItems
) -> tuple[FloatArray, dict[int, str]]:
    """Measure (n, reductions) LS in nats like ``likelihood_scores``; also return item index -> reason of refusal."""
    for reduction in reductions:
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is unknown: choose one of {REDUCTIONS}.")
    texts = [(context_of(e), e.output) for e in examples]
    unique = dict(zip(texts, examples, strict=True))
    questions = [Likelihood(prompts.likelihood_messages(criterion, source), output) for source, output in unique]
    answers, reasons = answer_items(measuring(lm), questions, list(unique.values()), refused=refused)
    by_index = {i: [ls.total if name == "sum" else ls.mean for name in reductions] for i, ls in answers.items()}
    place = {text: index for index, text in enumerate(unique)}
    values = np.array([by_index.get(place[text], [np.nan] * len(reductions)) for text in texts], dtype=np.float64)
    values = values.reshape(len(texts), len(reductions))
    return values, {i: reasons[place[text]] for i, text in enumerate(texts) if place[text] in reasons}
