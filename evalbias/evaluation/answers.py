"""Answers of any judge: recorded, from a function, or from a program."""

from __future__ import annotations

import copy
import inspect
import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

import dspy
import numpy as np

from evalbias import data as data_sets
from evalbias.data.files import EXPORTS, Source
from evalbias.data.hints import certain_options, judges_of
from evalbias.data.items import TIE, check_size, choice, input_key, item_name, number, rated_criteria
from evalbias.data.rating_values import Codes
from evalbias.data.reading import check_field, opened, table_of
from evalbias.evaluation import judged
from evalbias.evaluation.judged import BETTER, Judged, gather, human_scores, judge_examples, mean_of_raters, padded
from evalbias.evaluation.words import joined
from evalbias.lm.decisions import decided_number, decided_shares, is_decided
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.options import ALL, RECORDED, AuditOptions, Items, Prompted, read_scale
from evalbias.programs.criterion import Criterion
from evalbias.programs.files import load
from evalbias.programs.items import candidates_of, check_two_candidates
from evalbias.programs.judges import asked_together, read_for
from evalbias.programs.jury import AnyJudge, Rubric
from evalbias.programs.metrics import ProgramMetric
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompts import ENGLISH, in_language
from evalbias.values import get_logger

# Judges whose answers are recorded with the items: a column of scores, or columns of choices between two outputs.

QUALITY = "quality"
ROUNDING = 1e-6  # points by which an expected score may miss the end of its scale


def recorded_scores(
    examples: Sequence[dspy.Example],
    field: str,
    *,
    criterion: str | Criterion = QUALITY,
    scale: tuple[float, float] | None = None,
    likelihood_lm: MeasuringLM | None = None,
    several: bool = False,
) -> Judged:
    """Gather a judge's recorded scores and the covariates of the items.

    ``examples`` have the score, a number or None, in ``field``; optionally also ``source``, ``output`` or only its
    ``length``, ``scores`` or ``score``, ``ratings``, ``system`` and ``input_id``. With ``several``, the field holds a
    list of scores of the same prompt, whose mean is the answer. ``criterion`` is that of the human scores; its task
    defines LS, which ``likelihood_lm`` measures. ``scale`` is the judge's (lowest, highest) score; None if unknown.
    ValueError names a field that no item has, or a value that is no number on the scale.

    Examples:
        >>> recorded_scores([dspy.Example(mine=4), dspy.Example(mine=None)], "mine").answers.tolist()
        [4.0, nan]
        >>> recorded_scores([dspy.Example(mine=[4, 5, None])], "mine", several=True).answers.tolist()
        [4.5]
    """
    rows, scale = [], read_scale(scale)
    for i, example in enumerate(_having(examples, field)):
        place, value = f"{field!r} of the item {item_name(example, i)!r:.80}", example.get(field)
        rows.append([_on_scale(answer, place, scale) for answer in (value or [None] if several else [value])])
    answers, judge = mean_of_raters(samples := padded(rows)), f"recorded scores {field!r}"
    check_size(answers, f"The judge's scores {field!r}")
    gathered = gather(examples, as_criterion(criterion), pairwise=False, scorer=likelihood_lm, required=False)
    covariates = {**gathered.covariates, **({judged.SAMPLES: samples} if several else {})}
    return replace(gathered, answers=answers, covariates=covariates, scale=scale, judge=judge)


def _on_scale(value: Any, place: str, scale: tuple[float, float] | None) -> float:
    score = number(value, place, texts=True)
    if scale is not None and (score < scale[0] - ROUNDING or score > scale[1] + ROUNDING):  # NaN is undefined
        outside = f"{place} is {score:g}, outside the scale from {scale[0]:g} to {scale[1]:g}"
        raise ValueError(f"{outside}: correct it, or state the judge's own `scale`.")
    return score


def recorded_verdicts(
    examples: Sequence[dspy.Example],
    winner: str,
    *,
    swapped: str | None = None,
    criterion: str | Criterion = QUALITY,
    likelihood_lm: MeasuringLM | None = None,
) -> Judged:
    """Gather a judge's recorded choices between two outputs, in one order or in both.

    ``examples`` are pairs with ``candidates`` or ``outputs``; optionally also ``source``, people's choice ``better``,
    ``ratings``, ``systems`` and ``input_id``. ``winner`` is the field of the judge's choice between the outputs in
    their order: 0 or ``"A"`` for the first, 1 or ``"B"`` for the second, -1 or ``"tie"`` for a tie, None for no answer,
    or the probability of the second between 0 and 1. ``swapped`` is the field of its choice in the other order, whose
    codes name the outputs in their own order too. ``criterion`` is that of the ratings; its task defines LS, which
    ``likelihood_lm`` measures. Answers are (n, orders, 2) by position, with a third class if a tie occurs. ValueError
    names an item that is no pair or has no choice.

    Examples:
        >>> pair = dspy.Example(outputs=["yes", "no"], winner=0, winner_swapped=1)
        >>> recorded_verdicts([pair], "winner", swapped="winner_swapped").answers.tolist()  # always the first position
        [[[1.0, 0.0], [1.0, 0.0]]]
    """
    check_two_candidates(examples)
    check_fields(winner, swapped)
    names = [winner] if swapped is None else [winner, swapped]
    items = [(name, item_name(e, i), e.get(name)) for name in names for i, e in enumerate(_having(examples, name))]
    chosen = [
        cell if isinstance(cell, float) and 0 < cell < 1 else choice(cell, f"{name!r} of the item {item!r:.80}")
        for name, item, cell in items
    ]
    choices = np.array(chosen).reshape(len(names), -1)  # (orders, n)
    gathered = gather(examples, as_criterion(criterion), pairwise=True, scorer=likelihood_lm, answered=names)
    answers, ties = by_position(choices), bool((choices == TIE).any())
    return replace(gathered, answers=answers, ties=ties, judge=f"recorded choices {winner!r}")


def check_fields(winner: str, swapped: str | None) -> None:
    """Refuse a field used for both orders, which hides position bias, or for judge and people, who would agree."""
    if swapped == winner:
        fault = f"The field {winner!r} is named for both orders (`winner_field` and `swapped_field`)"
        remedy = "name the field of the choices in the swapped order, or leave it out if only one order was asked"
        raise ValueError(f"{fault}, and a judge would seem to have no position bias: {remedy}.")
    if BETTER in (winner, swapped):
        raise ValueError(
            f"The field {BETTER!r} is that of people's choices, and is named for the judge's, who would agree. If they "
            f"are the judge's, read them under another name, judge_choice={BETTER} in `mapping`, and name judge_choice."
        )


def by_position(choices: FloatArray) -> FloatArray:
    """Convert (r, n) chosen candidates, the second row in the swapped order, to (n, r, c) answers by position.

    A choice is 0, 1, a probability of candidate 1 in between, -1 for a tie, or NaN. c is 3 if there is a tie,
    else 2.
    """
    tied = np.where(np.isnan(choices), np.nan, choices == TIE)
    second = np.where(choices == TIE, 0.0, choices)
    answers = np.stack([1 - tied - second, second, tied], axis=2)  # (r, n, 3), by candidate
    answers[1:] = answers[1:][..., [1, 0, 2]]
    return np.asarray(answers.swapaxes(0, 1)[..., : 3 if (choices == TIE).any() else 2])


def as_criterion(criterion: str | Criterion) -> Criterion:
    """Return the criterion of recorded answers; a bare name serves only for the prompt of LS."""
    return criterion if isinstance(criterion, Criterion) else Criterion(criterion, f"{criterion}, as people rated it")


def _having(examples: Sequence[dspy.Example], field: str) -> Sequence[dspy.Example]:
    if not examples:
        raise ValueError("There are no items: give at least one.")
    if any(field in e for e in examples):
        return examples
    names = list(dict.fromkeys(name for e in examples for name in e.keys()))  # noqa: SIM118 -- an Example is no dict
    folded = {name.lower(): name for name in names}
    hint = "".join(f" Did you mean {folded[near]!r}?" for near in get_close_matches(field.lower(), folded, n=1))
    raise ValueError(f"No item has a field {field!r}; the fields are {', '.join(names):.500}.{hint}")


# Other judges: a Python function, DSPy module or metric that scores an item or chooses between two outputs.

Call = Callable[[dspy.Example], Any]
Item = TypeVar("Item")
Answer = TypeVar("Answer")

logger = get_logger(__name__)


def function_scores(
    examples: Sequence[dspy.Example],
    judge: Callable[..., Any],
    *,
    criterion: str | Criterion = QUALITY,
    scale: tuple[float, float] | None = None,
    likelihood_lm: MeasuringLM | None = None,
    num_threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Judged:
    """Ask a function or DSPy module to score items, or to choose between the outputs of pairs in both orders.

    ``judge`` is a function of one example, a DSPy module that takes ``source`` and ``output`` (or ``candidates``), or a
    DSPy metric of an example and a prediction with ``output``. It returns a number or a prediction with ``score``; for
    a pair, a choice as in ``recorded_verdicts``, or a prediction with ``winner`` or ``preference``. If it raises an
    error or leaves ``scale``, the answer is undefined, with the error in ``reasons``; a judge that takes other inputs
    or answers no item is a ValueError. ``num_threads`` calls run at the same time, ``progress`` is called with 1 after
    each, and the other arguments are those for recorded answers.

    Examples:
        >>> judged = function_scores([dspy.Example(output="a"), dspy.Example(output="abc")], lambda e: len(e.output))
        >>> judged.answers.tolist()
        [1.0, 3.0]
    """
    if not examples:
        raise ValueError("There are no items: give at least one.")
    pairwise, scale = all(candidates_of(e) for e in examples), read_scale(scale)
    ask = call_of(judge, pairwise=pairwise)
    gathered = gather(examples, as_criterion(criterion), pairwise=pairwise, scorer=likelihood_lm, required=False)
    questions = list(examples)
    if pairwise:  # every pair in its own order, then every pair in the other order
        questions = [e.copy(candidates=list(candidates_of(e)), outputs=list(candidates_of(e))) for e in examples]
        questions += [e.copy(candidates=e.candidates[::-1], outputs=e.outputs[::-1]) for e in questions]
    reasons: dict[str, str] = {}

    def answer(place: int) -> float | tuple[float, ...]:
        example, name = questions[place], gathered.ids[place % len(examples)]
        try:
            value = ask(example)
            return read_choice(value) if pairwise else read_score(value, scale)
        except Exception as error:  # foreign code may raise anything; the item is reported by its id
            reasons[name] = f"{type(error).__name__}: {error}"
            return UNDEFINED_CHOICE if pairwise else math.nan
        finally:
            if progress is not None:
                progress(1)

    values: FloatArray = np.array(in_threads(answer, range(len(questions)), num_threads))
    name, why = next(iter(reasons.items()), ("", ""))
    if np.isnan(values).all():
        failure = f"on the item {name!r:.80} it raised {why}" if reasons else "it returned None or NaN every time"
        raise ValueError(f"The judge answered no item: {failure.removesuffix('.')}.")
    if reasons:
        logger.warning("The judge failed on %d items, which are undefined; on %.80r: %s", len(reasons), name, why)
    if pairwise:  # (2n, 3) -> (n, orders, 2 or 3)
        values = values.reshape(2, -1, 3).swapaxes(0, 1)[..., : 3 if (values[:, 2] > 0).any() else 2]
    who, ties = f"the judge {name_of(judge)}", pairwise and values.shape[2] == 3
    asked = judged.Asking(reasons=reasons, judgments=len(questions))
    return replace(gathered, answers=values, ties=ties, scale=scale, judge=who, asked=asked)


def in_threads(ask: Callable[[Item], Answer], items: Iterable[Item], num_threads: int) -> list[Answer]:
    """Call a function on each item in several threads; return the answers in the items' order."""
    pool = ThreadPoolExecutor(num_threads)
    try:
        futures = [pool.submit(copy_context().run, ask, item) for item in items]
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C or a full disk no further item is begun


def name_of(judge: Any) -> str:
    """Return a function's name, or the class name of another object."""
    return str(getattr(judge, "__name__", type(judge).__name__))


def call_of(judge: Callable[..., Any], *, pairwise: bool) -> Call:
    """Return a function of one example that calls a function, a DSPy module, or a DSPy metric.

    ValueError for other inputs than an audit has: DSPy's own modules would run without them.
    """
    name, text = name_of(judge), "candidates" if pairwise else "output"
    if isinstance(judge, type) and issubclass(judge, dspy.Module):
        raise ValueError(f"The judge {name} is a class: pass an instance, such as {name}().")
    if isinstance(judge, dspy.Module):
        return _call_of_module(judge, ["source", text])
    try:
        signature = inspect.signature(judge)
    except (TypeError, ValueError):  # a builtin without a signature
        return judge
    if _takes(signature, 1):
        return judge
    # A DSPy metric takes an example, a prediction, and usually a trace.
    positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [p.name for p in signature.parameters.values() if p.kind in positional]
    is_metric = names[1:2] in (["pred"], ["prediction"]) or names[2:3] == ["trace"]
    if is_metric and _takes(signature, 2) and not pairwise:
        metric = judge
        if isinstance(judge, ProgramMetric):  # an audit counts undefined answers, a DSPy mean cannot
            metric = copy.copy(judge)
            metric.undefined, metric.undefined_items = math.nan, []
        return lambda example: metric(example, dspy.Prediction(output=example["output"]))
    fault, call = f"The judge {name}{signature} cannot be called with one item", f"judge(item.source, item.{text})"
    raise ValueError(f"{fault}: wrap it in a function that passes the item's texts, such as `lambda item: {call}`.")


def _takes(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def _call_of_module(module: dspy.Module, fields: Sequence[str]) -> Call:
    """Return a function that calls a module with those ``fields`` that are among its inputs."""
    taken, needed = _inputs(module)
    missing = [name for name in needed if name not in fields]
    if missing or (taken and fields[1] not in taken):
        pair = "first=item.candidates[0], second=item.candidates[1]"
        texts = pair if fields[1] == "candidates" else f"answer=item.{fields[1]}"
        fault = f"The judge {name_of(module)} takes {_quoted(missing or taken)}, but an audit passes {_quoted(fields)}"
        remedy = f"wrap it in a function, such as `lambda item: judge(question=item.source, {texts})`"
        raise ValueError(f"{fault}: {remedy}.")

    def call(example: dspy.Example) -> Any:
        inputs = {name: example[name] for name in fields if name in example and (not taken or name in taken)}
        if lacking := [name for name in needed if name not in inputs]:
            raise ValueError(f"the item has no {_quoted(lacking)}, which the judge needs")
        return module(**inputs)

    return call


def _inputs(module: dspy.Module) -> tuple[list[str], list[str]]:
    """Return the names of a module's inputs, and of its required inputs; empty if ``forward`` takes any."""
    forward = getattr(type(module), "forward", None)
    if forward is None:
        return [], []
    _, *parameters = inspect.signature(forward).parameters.values()
    if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return [p.name for p in parameters], [p.name for p in parameters if p.default is p.empty]
    signature = getattr(module, "signature", None) or getattr(getattr(module, "predict", None), "signature", None)
    if signature is None or not forward.__module__.startswith("dspy."):
        return [], []
    inputs = signature.input_fields
    return list(inputs), [name for name, field in inputs.items() if field.is_required()]


def read_score(value: Any, scale: tuple[float, float] | None) -> float:
    """Read a number on the scale, or a prediction's ``score``; None is NaN."""
    score = _field(value, "score") if isinstance(value, dspy.Prediction) else value
    try:
        return _on_scale(decided_number(score), "what the judge returned", scale)
    except data_sets.DataError:
        wanted = data_sets.items.remedy_for(score) or "a number of at most 1e+30, or a prediction with 'score'"
        raise ValueError(f"the judge returned {score!r:.80}: return {wanted}") from None


UNDEFINED_CHOICE = (math.nan, math.nan, math.nan)


def read_choice(value: Any) -> tuple[float, ...]:
    """Read a choice or decision as probabilities of the first output, the second and a tie.

    A choice, by index, ``winner`` or ``preference``, has probability 1; a ``gap`` without a ``winner`` is a tie.
    """
    if isinstance(value, dspy.Prediction):
        chosen = _field(value, "winner", "preference")
        if chosen is None and "winner" not in value and not math.isnan(value.get("gap", math.nan)):
            chosen = TIE
        value = chosen
    places = {choice(label, "the judge's answer"): share for label, share in decided_shares(value)}
    return UNDEFINED_CHOICE if any(map(math.isnan, places)) else tuple(places.get(index, 0.0) for index in (0, 1, TIE))


def _field(prediction: dspy.Prediction, *names: str) -> Any:
    for name in names:
        if name in prediction:
            return prediction[name]
    if len(decided := [value for _, value in prediction.items() if is_decided(value)]) == 1:
        return decided[0]
    there, read = _quoted([name for name, _ in prediction.items()]), " or ".join(map(repr, names))
    raise ValueError(f"the judge returned a prediction with {there or 'no fields'}, of which {read} is read")


def _quoted(names: Sequence[str]) -> str:
    return joined([repr(name) for name in names])


# The answers of an audit's judge: a program, a file, a function, or recorded columns.


class ResolvedAudit(AuditOptions):
    """Options of an audit after loading or making its judge, finding its criterion and reading its data."""

    requested: AuditOptions  # original options, with recognized columns of the judge
    dataset: data_sets.Dataset  # data that were read
    questions: Sequence[dspy.Example]  # items to judge: those of the dataset, or pairs drawn from them
    together: Sequence[PointwiseJudge | PairwiseJudge] = ()  # judges of several criteria, asked in the same request


ANSWER_FIELDS, FOR_NAME = (*RECORDED, "swapped_field"), data_sets.items.CRITERION
"""Options that name fields of a judge's answers, and the placeholder in them for a criterion's name."""

ONE_JUDGE = (
    "Name one judge: a model (`lm`) with a `criterion` or a `judge`, the field of its recorded scores (`scores_field`, "
    "or `samples_field` for several of the same prompt), or the field of its recorded choices (`winner_field`)."
)

Tell = Callable[[str], None]


def resolve(options: AuditOptions, tell: Tell = lambda _: None) -> ResolvedAudit:
    """Read the data, load or make the judge, and find the criterion; ValueError if any is missing or does not fit.

    ``tell`` is called with the recognized columns if no judge is named.
    """
    return _resolved(*_opened(options, tell))


def resolve_each(options: AuditOptions, tell: Tell = lambda _: None) -> list[ResolvedAudit]:
    """Resolve the audit of each requested criterion; judges of evalbias share their requests.

    Raises:
        ValueError: Several criteria are named, but the judge has its own, or items have a single answer or rating.
    """
    options, judge, source = _opened(options, tell)
    if not options.several:
        return [_resolved(options, judge, source)]
    named = _answer_fields(options)
    if judge is not None:
        raise ValueError("`criterion`: a `judge` answers one question. Name one criterion, or leave it out.")
    if options.lm is None and not named:
        raise ValueError(ONE_JUDGE)
    if shared := [f"`{name}` {field!r:.80}" for name, field in named.items() if FOR_NAME not in field]:
        remedy = f"write {FOR_NAME} where its name has the criterion's, such as '{FOR_NAME}_score'"
        fault = f"{shared[0]} has one answer an item, and several criteria are asked for"
        raise ValueError(f"{fault}: {remedy}, or name one `criterion`.")
    criteria = rated_criteria(_read(options, None, source)) if options.criterion == ALL else [*options.criterion]
    names = [*map(_name, criteria)]
    if not names:
        raise ValueError("`criterion`: none is named, or people rated none by name: name those that the judge scores.")
    data_sets.items.check_once(names)
    each = [_resolved(replace(options, criterion=criterion), None, source) for criterion in criteria]
    data_sets.items.check_rated_apart(each[0].dataset, names)
    together = [] if options.is_recorded else [ready.judge for ready in each]
    return [replace(ready, requested=options, together=together) for ready in each]


def _opened(options: AuditOptions, tell: Tell) -> tuple[AuditOptions, Any, Source]:
    """Return the options, completed by ``doctor``'s columns if no judge is named; the loaded judge; the data."""
    if sum(getattr(options, name) is not None for name in ("judge", *RECORDED)) > 1:
        raise ValueError(ONE_JUDGE)
    judge = options.judge
    if isinstance(judge, str | os.PathLike):
        judge = load(judge, PointwiseJudge, PairwiseJudge, Rubric)
    source = opened(options.data)
    if options.is_recorded or judge is not None or options.lm is not None or source.name in EXPORTS:
        return options, judge, source
    doctor = f"evalbias doctor {options.data if isinstance(options.data, str | os.PathLike) else ''}".strip()
    codes = Codes(options.missing, options.keep, options.levels)
    certain = certain_options(table_of(source, options.mapping), ONE_JUDGE, doctor, options.outcome, codes)
    mapping = {**certain.get("mapping", {}), **(options.mapping or {})}
    options = replace(options, **{**certain, "mapping": mapping or None})
    field = options.scores_field or options.samples_field or options.winner_field
    others = [f"{theirs!r} as {ours}" for ours, theirs in mapping.items()]
    tell(f"Columns: {', '.join([f'{field!r} as the judge', *others])} (evalbias doctor says why).")
    return options, None, source


def _answer_fields(options: AuditOptions) -> dict[str, Any]:
    return {name: field for name in ANSWER_FIELDS if (field := getattr(options, name)) is not None}


def _resolved(requested: AuditOptions, judge: Any, source: Source) -> ResolvedAudit:
    """Resolve the audit of a single criterion."""
    # 1. The data; malformed answers and choices are named by file and line.
    named = {name: field for name, field in _answer_fields(requested).items() if FOR_NAME in field}
    if named and requested.criterion is None:
        raise ValueError(f"{next(iter(named.values()))!r:.80} is a field of a criterion: name it, `criterion`.")
    written = {name: field.replace(FOR_NAME, _name(requested.criterion)) for name, field in named.items()}
    options = replace(requested, **written)
    items = _read(options, judge, source)
    if not items:
        raise ValueError(f"{items.path} holds no items to judge: give at least one row with an output.")
    if judge is None and options.lm is None and not options.is_recorded:
        requested = options = replace(options, scores_field=_only_judge(options, items))
    # 2. The judge: of evalbias, a function or program, made anew for the criterion, or None for recorded answers.
    if isinstance(judge, AnyJudge):
        criterion = _own_criterion(judge, options)
    elif judge is None and not options.is_recorded:
        (criterion,) = criteria_of(options, [] if options.criterion is None else [options.criterion])
        if any(candidates_of(item) for item in items):
            place = instruction_place_for(options.lm)
            judge = PairwiseJudge(
                criterion, instruction_place=place, language=language_of(options), cue=not options.no_cue
            )
        else:
            judge = PointwiseJudge(criterion, language=language_of(options), cue=not options.no_cue)
    else:
        criterion = _rated_criterion(options, items)
    compares = isinstance(judge, PairwiseJudge) or (judge is not None and all(candidates_of(item) for item in items))
    if compares and not isinstance(judge, PointwiseJudge) and options.named_probes:
        raise ValueError("`probes`: they are of a judge that scores, and this one compares. Leave them out.")
    if options.pass_mark is not None:
        if compares or options.winner_field is not None:
            raise ValueError("`pass_mark` is for a judge that scores, and this one compares: leave it out.")
        ratings = np.append(judged.human_ratings(items, criterion), human_scores(items, criterion, required=False))
        ratings = ratings[~np.isnan(ratings)]
        if len(ratings) and not ratings.min() < options.pass_mark <= ratings.max():
            ends = f"which parts no ratings from {ratings.min():g} to {ratings.max():g}"
            raise ValueError(f"`pass_mark` is {options.pass_mark:g}, {ends}: give one in between.")
    # 3. The items to judge.
    examples = list(items)
    if isinstance(judge, PairwiseJudge):
        examples = _pairs_to_judge(options, items, criterion.name)
    settings = {f.name: getattr(options, f.name) for f in fields(options)} | {"judge": judge, "criterion": criterion}
    return ResolvedAudit(**settings, requested=requested, dataset=items, questions=examples)


def _read(options: AuditOptions, judge: Any, source: Source) -> data_sets.Dataset:
    choices = [name for name in (options.winner_field, options.swapped_field, BETTER) if name is not None]
    if options.winner_field is not None:
        check_fields(options.winner_field, options.swapped_field)
    keep, mapping = options.keep, options.mapping
    if options.scale is not None:  # the ends of the scale are scores
        code = data_sets.items.value_code
        named = {*map(code, (*options.keep, *options.missing))}
        keep = [*options.keep, *(end for end in options.scale if code(end) not in named)]
    if options.outcome:
        mapping = {**(options.mapping or {}), "outcome": options.outcome}
    scores = [] if options.scores_field is None else [options.scores_field]
    asked = Items(source, mapping=mapping, missing=options.missing, keep=keep, levels=options.levels)
    coded = dict.fromkeys(choices, options.labels)
    return read_for(judge, asked, choices=coded, numbers=scores, samples=options.samples_field)


def instruction_place_for(lm: Any) -> str:
    """Return the place of the instruction in a new pairwise judge, from a model or its name on the command line.

    The embedded judge was trained with the instruction first; for other models, it comes last, as in the paper.
    """
    name = str(getattr(lm, "model", lm))
    return "first" if name == "embedded" or name.startswith("local/embedded@") else "last"


def answers_of(options: ResolvedAudit) -> Judged:
    """Gather a judge's answers on items; ValueError if items lack a field, or the judge answered none.

    For a judge of evalbias, its own model defines LS unless another is named, if it reports likelihoods.
    """
    judge, examples, likelihood_lm = options.judge, options.questions, options.likelihood_lm
    if isinstance(judge, AnyJudge):
        for name in ("source", "candidates" if isinstance(judge, PairwiseJudge) else "output"):
            if name != "source" or name in judge.inputs:
                check_field(examples, name, "the data")
        lm = asked_together(options.together, examples, options.lm)
        ask = partial(judge_examples, judge, examples, lm=lm, progress=options.progress)
        try:
            return ask(likelihood_lm="own" if likelihood_lm is None else likelihood_lm)
        except NotImplementedError as error:
            if likelihood_lm is not None:
                raise
            found = ask()
            return replace(found, asked=replace(found.asked, unmeasurable={"likelihood": str(error)}))
    settings = {"criterion": options.criterion, "likelihood_lm": options.lm if likelihood_lm is None else likelihood_lm}
    if judge is not None:
        asking = {"scale": options.scale, "num_threads": options.num_threads, "progress": options.progress}
        return function_scores(examples, judge, **asking, **settings)
    if (field := options.scores_field or options.samples_field) is not None:
        several = options.samples_field is not None
        return recorded_scores(examples, field, scale=options.scale, several=several, **settings)
    return recorded_verdicts(examples, str(options.winner_field), swapped=options.swapped_field, **settings)


def tell_left_out(items: data_sets.Dataset, tell: Tell = logger.warning) -> None:
    """Report rows of a file that are left out or changed, by default as a warning."""
    if items.left_out or items.notes:
        tell(items.summary())


def _only_judge(options: AuditOptions, items: data_sets.Dataset) -> str:
    """Return the field with the only judge's scores in a tool's export, on the criterion if it is named."""
    judges = judges_of(items[0]) if items.name in EXPORTS else []
    judges = [name for name in judges if all(isinstance(item.get(name), int | float | None) for item in items)]
    ending = f"/{_name(options.criterion)}" if options.criterion is not None else ""
    if len(judges) > 1:
        judges = [name for name in judges if f"/{name}".endswith(ending)] or judges
    if len(judges) == 1:
        return judges[0]
    recorded = f" {items.path} has the recorded scores {', '.join(map(repr, judges))}." if judges else ""
    raise ValueError(f"{ONE_JUDGE}{recorded:.800}")


def _pairs_to_judge(options: AuditOptions, items: Sequence[dspy.Example], criterion: str) -> list[dspy.Example]:
    """Return the data's pairs, or pairs drawn from single outputs, with people's preference if known."""
    if any(candidates_of(e) for e in items):
        return [e.copy(candidates=list(candidates_of(e))) for e in items]
    scores = {(input_key(e), e.output): data_sets.human_score(e, criterion, required=False) for e in reversed(items)}
    drawn = data_sets.pairs(items, limit=options.pairs, ordered=False, seed=options.seed)
    return [pair.copy(better=_better(*(scores[pair.input_id, text] for text in pair.candidates))) for pair in drawn]


def _better(first: float, second: float) -> float:
    """Return the index of the higher score, -1 for equal scores; NaN if either is undefined."""
    return 0 if first > second else 1 if second > first else TIE if first == second else math.nan


# The judged criterion: an evalbias judge's own, a new judge's, or the one that people rated.

PROMPT = ("task", "source_label", "output_label")  # options that replace a criterion's own words


def _own_criterion(judge: AnyJudge, options: AuditOptions) -> Criterion:
    """Return the criterion of a judge of evalbias; refuse another criterion, scale, task or label than its own."""
    own, named = judge.criterion, options.criterion
    if words := _words(options):
        named_words = " and ".join(f"`{name}` {text!r:.80}" for name, text in words.items())
        its_own = f"this judge has its own task, {own.task!r:.80}, and labels; they define LS"
        raise ValueError(f"{named_words}: {its_own}. Leave it out.")
    scales = ["{:g}-{:g}".format(*scale) if scale else None for scale in (options.scale, own.scale)]
    wanted = (options.language, named and _name(named), scales[0])
    its = (judge.language, own.name, scales[1])
    for name, value, own_value in zip(("language", "criterion", "scale"), wanted, its, strict=True):
        if value not in (None, own_value):
            raise ValueError(f"`{name}` {value:.80}: this judge has its own, {own_value:.80}. Leave it out.")
    if options.no_cue:
        raise ValueError("`no_cue`: this judge has its own prompts. Leave it out, or set judge.cue = False.")
    return own


def criteria_of(options: Prompted, names: Sequence[str | Criterion]) -> tuple[Criterion, ...]:
    """Return the criteria of new judges; options such as `task` replace a criterion's own words."""
    if not names:
        raise ValueError("Say what a new judge judges: give `criterion` 'name: definition'.")
    scale, levels = getattr(options, "scale", None), tuple(map(str, options.levels))
    low, high = scale or ((0, 1) if len(levels) == 2 else (1, len(levels) or 5))
    if levels and high - low + 1 != len(levels):
        raise ValueError(f"`levels` names {len(levels)} scores, and `scale` is {low:g}-{high:g}: leave `scale` out.")
    if not (float(low).is_integer() and float(high).is_integer()):
        raise ValueError(f"`scale` is {low:g}-{high:g}: a judge answers with whole numbers, such as 1-5.")
    ends = (int(low), int(high))
    made = [Criterion.parse(name, scale=ends, levels=levels) if isinstance(name, str) else name for name in names]
    if scale is not None and all(criterion.scale != ends for criterion in made):
        raise ValueError("The criteria have a scale of their own: leave `scale` out.")
    data_sets.items.check_once([criterion.name for criterion in made])
    return tuple(_worded(criterion, options) for criterion in made)


def _rated_criterion(options: AuditOptions, items: Sequence[dspy.Example]) -> Criterion:
    """Return the named criterion, or the only rated one."""
    criterion, rated = options.criterion, rated_criteria(items)
    if criterion is not None and rated:
        name = _name(criterion)
        if not any(data_sets.is_rated(e, name) or data_sets.items.single_ratings(e, name) for e in items):
            fault = f"No item is rated on {name!r}; the items are rated on {_quoted(rated):.500}"
            raise ValueError(f"{fault}: name one of these as `criterion`.")
    if criterion is None and len(rated) > 1:
        raise ValueError(f"People rated several criteria, {', '.join(rated)}: name one as `criterion`.")
    if not isinstance(criterion, Criterion):
        name = criterion or (rated[0] if rated else QUALITY)
        criterion = Criterion.parse(name) if ":" in name else as_criterion(name)
    return _worded(criterion, options)


def _worded(criterion: Criterion, options: Prompted) -> Criterion:
    return in_language(replace(criterion, **_words(options)), language_of(options))


def _words(options: Prompted) -> dict[str, Any]:
    words = {name: getattr(options, name, None) for name in PROMPT}
    return {name: text for name, text in words.items() if text is not None}


def language_of(options: Prompted) -> str:
    """Return the language of a new judge's prompts, by default English."""
    return options.language or ENGLISH


def _name(criterion: str | Criterion) -> str:
    criterion = Criterion.parse(criterion) if isinstance(criterion, str) and ":" in criterion else criterion
    return criterion.name if isinstance(criterion, Criterion) else criterion
