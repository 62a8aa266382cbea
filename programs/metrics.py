"""Judges as DSPy metrics and rewards, and metrics that compile judges.

A metric of a judge scores the output of a program; a metric for compiling a judge compares its answer with a human
label. Both are ``ProgramMetric``s, which count undefined judgments and give feedback to ``dspy.GEPA``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dspy

from evalbias.data.items import choice, human_score, item_name, number
from evalbias.lm.types import PromptRefused
from evalbias.measures.arrays import missing
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import (
    OWN_INPUTS,
    item_label,
    labeled_as_in_dspy,
    letter_of,
    preference_label,
    text_problem,
)
from evalbias.programs.judges import Judge, warn_of_own_text
from evalbias.programs.jury import Jury, Rubric
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompts import LETTERS, TIE
from evalbias.values import get_logger

_counting = threading.Lock()  # of the module: DSPy deep-copies a metric with its program, and locks cannot be copied


class ProgramMetric:
    """Metric of a program's outputs for ``dspy.Evaluate`` and optimizers, ``dspy.GEPA`` included.

    ``judged`` returns the value, NaN if undefined, and the feedback, which says why. An undefined judgment, including
    that of a prompt which the model refuses, counts as ``undefined`` and is logged: DSPy adds up all values, so that a
    single NaN would make its score NaN. ``undefined_items`` holds the id of each such item, or its number among them.
    For a ``judge`` that scores, ``source`` is the field of the example and ``output`` the field of the prediction that
    it judges. Where DSPy bootstraps demonstrations, those whose value is below ``threshold`` are rejected.
    """

    def __init__(
        self,
        judged: Callable[[Any, Any], tuple[float, str]],
        *,
        name: str,
        threshold: float,
        undefined: float,
        judge: PointwiseJudge | Jury | Rubric | None = None,
        source: str = "source",
        output: str = "output",
    ) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold={threshold!r:.80}: give a number above 0 and at most 1, the best value.")
        self.__name__, self.threshold, self.undefined = name, threshold, undefined
        self._judged, self.judge, self.source, self.output = judged, judge, source, output
        self.undefined_items: list[str] = []

    def __call__(
        self, example: Any, prediction: Any, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
    ) -> Any:
        """Return the value; with a ``pred_name``, which GEPA passes, a prediction with ``score`` and ``feedback``.

        With a ``trace``, which DSPy passes when it bootstraps demonstrations, the result is False below the threshold,
        else the value, which DSPy's ``metric_threshold`` may then compare.
        """
        try:
            value, feedback = self._judged(example, prediction)
        except PromptRefused as refusal:
            value, feedback = math.nan, f"The output cannot be judged. {refusal}"
        if math.isnan(value):
            value = self.undefined
            with _counting:
                item = str(example.get("id", len(self.undefined_items)))
                self.undefined_items.append(item)
                get_logger(__name__).warning(
                    "The judgment of item %.80r is undefined and counts as %g (%d so far). %s",
                    item,
                    value,
                    len(self.undefined_items),
                    feedback,
                )
        if pred_name is not None:
            return dspy.Prediction(score=value, feedback=feedback)
        return value if trace is None or value >= self.threshold else False


def judge_metric(
    judge: PointwiseJudge | Jury | Rubric,
    *,
    threshold: float = 0.5,
    source: str = "source",
    output: str | None = None,
    undefined: float = 0.0,
) -> ProgramMetric:
    """Make a metric, which is a reward too: the judge's score of an output, rescaled to [0, 1].

    As a metric, ``dspy.Evaluate(devset=items, metric=judge_metric(judge))`` and optimizers call it with an example and
    the prediction; as a reward, ``dspy.Refine(module=program, N=3, reward_fn=judge_metric(judge), threshold=0.8)`` and
    ``dspy.BestOfN`` call it with the program's inputs.

    Args:
        judge: Judge of the outputs, a jury or a rubric; ``TypeError`` for a judge that compares, which needs
            ``preference_metric``.
        threshold: Least value, above 0, of an output that ``dspy.BootstrapFewShot`` and the like take as a
            demonstration. Defaults to the middle of the judge's scale.
        source: Field of the example that the program worked from. A judge's own ``inputs`` are read by their names, of
            the example or else of the prediction, which may hold what the program retrieved.
        output: Field of the prediction to judge. Defaults to the name of the judge's judged input.
        undefined: Value of an undefined judgment. Defaults to the worst value, so that a program gains nothing by
            outputs that the judge cannot score; ``math.nan`` keeps it undefined. As a reward, DSPy then never takes
            such an output, and returns None if all are undefined.
    """
    scorer = judge.judges[0] if isinstance(judge, Jury | Rubric) else judge
    _check_kind(scorer, PointwiseJudge)
    output = output or scorer.judged

    def judged(example: Any, prediction: Any) -> tuple[float, str]:
        text = _field(prediction, output, "output")
        inputs = _other_inputs(scorer, example, prediction, source)
        if problem := text_problem(text):
            return math.nan, _problem_feedback(judge, problem)
        warn_of_own_text(judge.judges if isinstance(judge, Jury | Rubric) else [judge], text)
        answer = judge(**inputs, **{scorer.judged: str(text)})
        low, high = judge.criterion.scale
        feedbacks = {Jury: jury_feedback, Rubric: rubric_feedback, PointwiseJudge: score_feedback}
        say: Any = next(feedback for kind, feedback in feedbacks.items() if isinstance(judge, kind))
        return (float(answer.score) - low) / (high - low), say(judge, answer)

    return ProgramMetric(
        judged,
        name=judge.criterion.name,
        threshold=threshold,
        undefined=undefined,
        judge=judge,
        source=source,
        output=output,
    )


def preference_metric(
    judge: PairwiseJudge,
    *,
    threshold: float = 0.5,
    source: str = "source",
    output: str | None = None,
    reference: str = "reference",
    undefined: float = 0.0,
) -> ProgramMetric:
    """Make a metric: the ``win_share`` of a program's output against the example's ``reference`` output, in [0, 1].

    It is 0.5 if the two texts are equal. Use a judge with ``debias="permutation"``; otherwise its position bias favors
    the program's output or the reference. ``TypeError`` for a judge that scores; for the other arguments see
    ``judge_metric``.
    """
    _check_kind(judge, PairwiseJudge)
    output = output or judge.judged

    def judged(example: Any, prediction: Any) -> tuple[float, str]:
        ours = _field(prediction, output, "output")
        theirs = _example_text(example, reference, "reference")
        inputs = _other_inputs(judge, example, prediction, source)
        if problem := text_problem(ours):
            return math.nan, _problem_feedback(judge, problem)
        if str(ours) == theirs:
            return 0.5, "The output is the reference itself."
        warn_of_own_text([judge], ours)
        comparison = judge(**inputs, candidates=[str(ours), theirs])
        return float(comparison.win_share), _preference_feedback(judge, comparison)

    return ProgramMetric(judged, name=judge.criterion.name, threshold=threshold, undefined=undefined)


def _check_kind(judge: Any, kind: type) -> None:
    if not isinstance(judge, kind):
        raise TypeError(
            f"This takes a {kind.__name__}, not a {type(judge).__name__}: judge_metric is for a PointwiseJudge, "
            "which scores, and preference_metric is for a PairwiseJudge, which compares."
        )


def _field(values: Any, name: str, argument: str) -> Any:
    """Return a field, or raise an error that names the fields available."""
    if not hasattr(values, "keys"):
        raise TypeError(f"There is no {name!r} in {values!r:.80}: let the program return dspy.Prediction({name}=...).")
    if name not in values:
        remedy = f"name the field with {argument}=" if argument else "add it to the example or the prediction"
        raise ValueError(f"There is no {name!r} among {sorted(values.keys())!s:.500}: {remedy}.")
    return values[name]


def _other_inputs(judge: Any, example: Any, prediction: Any, source: str) -> dict[str, str]:
    """Return a judge's inputs besides the output, from the example, or else the prediction (what was retrieved)."""
    fields = {name: source if name == "source" else name for name in judge.inputs if name != judge.judged}
    found = {f: prediction if f in prediction and f not in example else example for f in fields.values()}
    return {n: _example_text(found[f], f, "source" if n == "source" else "") for n, f in fields.items()}


def _example_text(example: Any, name: str, argument: str) -> str:
    """Return a text that the judge is shown besides the output: an unusable text is an error."""
    value = _field(example, name, argument)
    if problem := text_problem(value):
        raise ValueError(f"{name!r} of the item {item_name(example)!r:.80} {problem}: give a text that is not empty.")
    return str(value)


def _problem_feedback(judge: Judge, problem: str) -> str:
    """Say why the output could not be judged, and what the question would have been."""
    return f"The output cannot be judged: it {problem}. The question was: {judge.criterion.definition}"


def score_feedback(judge: PointwiseJudge, answer: Any) -> str:
    """Say which score the judge gave, which way it leans around its most probable label, and on what question."""
    criterion = judge.criterion
    question = f"The question was: {criterion.definition}"
    if math.isnan(answer.score):
        return f"The judge gave no score on {criterion.title}. {question}"
    low, high = criterion.scale
    lean = answer.score - answer.mode
    way = "higher" if lean > 0.05 else "lower" if lean < -0.05 else "neither higher nor lower"
    share = answer.distribution[criterion.labels[criterion.values.index(int(answer.mode))]]
    return (
        f"The judge scored the output {answer.score:.2f} on {criterion.title}, from {low} (worst) to {high} (best). "
        f"Its most probable score is {answer.mode:g} (probability {share:.2f}), and it leans {way}. {question}"
    )


def jury_feedback(jury: Jury, answer: Any) -> str:
    """Say which score the jury gave, which its judges gave, and on what question."""
    scores = ", ".join(f"{score:.2f}" for score in answer.scores.values() if not math.isnan(score))
    low, high = jury.criterion.scale
    return (
        f"The jury scored the output {answer.score:.2f} on {jury.criterion.title}, from {low} (worst) to {high} "
        f"(best); its judges gave {scores or 'no score'}. The question was: {jury.criterion.definition}"
    )


def rubric_feedback(rubric: Rubric, answer: Any) -> str:
    """Say which score the rubric gave, and which its criteria got, on what questions."""
    low, high = rubric.criterion.scale
    parts = "; ".join(
        f"{answer.scores[criterion.name]:.2f} on {criterion.title} (weight {weight:.2f}): {criterion.definition}"
        for criterion, weight in zip((judge.criterion for judge in rubric.judges), rubric.weights, strict=True)
    )
    return (
        f"The output got {answer.score:.2f} on {rubric.criterion.title}, from {low} (worst) to {high} (best): {parts}"
    )


def _preference_feedback(judge: PairwiseJudge, comparison: Any) -> str:
    """Say which text the judge prefers, how strongly, and whether the order of the two decided."""
    question = f"The question was: {judge.criterion.definition}"
    share = float(comparison.win_share)
    if math.isnan(share):
        return f"The judge's comparison on {judge.criterion.title} is undefined. {question}"
    side = "the output" if share > 0.5 else "the reference" if share < 0.5 else "neither text"
    text = f"The judge prefers {side} on {judge.criterion.title}: the output wins with probability {share:.2f}."
    if comparison.consistent is not None:
        text += " Both orders agree." if comparison.consistent else " The preference changes with the order of the two."
    return f"{text} {question}"


# Metrics that compile a judge, and training sets with labels.


def preference_accuracy(
    example: Any,
    prediction: Any,
    trace: Any = None,
    pred_name: str | None = None,
    pred_trace: Any = None,
    *,
    undefined: float = 0.0,
) -> Any:
    """Score a pairwise judge as a DSPy metric: 1 if it agrees with the pair's label, else 0.

    The label is ``preference`` or ``better``: 0 or ``"A"``, 1 or ``"B"``, or a tie, as ``evalbias.data.items.choice``
    reads it; ``ValueError`` without a label. The score is 0.5 if people have a preference and the judge has none. An
    undefined comparison counts as ``undefined`` and is logged; ``math.nan`` keeps it undefined. With a ``pred_name``,
    which ``dspy.GEPA`` passes, returns a ``dspy.Prediction`` with ``score`` and ``feedback``.
    """
    metric = ProgramMetric(_preferred, name="preference_accuracy", threshold=1.0, undefined=undefined)
    return metric(example, prediction, trace, pred_name, pred_trace)


def _preferred(example: Any, prediction: Any) -> tuple[float, str]:
    people = preference_label(example)
    if people is None:
        raise ValueError(
            f"The item {item_name(example)!r:.80} has no label: give preference='A' or 0 for the first candidate, 'B' "
            "or 1 for the second, or leave the item out. evalbias.data.pairs(items, criterion=NAME, seed=0) labels the "
            "pairs of rated outputs."
        )
    preferred = choice(_field(prediction, "preference", ""), "The judge's preference", count=len(LETTERS))
    chosen = TIE if math.isnan(preferred) else letter_of(preferred)
    if chosen != TIE:
        value, verdict = float(chosen == people), f"The judge prefers {chosen}"
    elif math.isnan(preferred) and math.isnan(prediction.get("gap", 0.0)):
        value, verdict = math.nan, "The judge's comparison is undefined"
    else:
        value, verdict = 1.0 if people == TIE else 0.5, "The judge has no preference"
    return value, f"{verdict}; {'people have none' if people == TIE else f'people prefer {people}'}."


def score_closeness(criterion: Criterion, *, undefined: float = 0.0) -> ProgramMetric:
    """Make a metric for compiling a judge: 1 at the example's ``score``, falling to 0 over the width of the scale.

    The example's score is the label that ``labeled`` adds, ``score``, or else its human score on the criterion in
    ``scores``; ``ValueError`` names an example without a score on the scale. ``undefined`` is the value of an undefined
    judgment; ``math.nan`` keeps it undefined. Demonstrations that DSPy bootstraps are within half a step of that score.
    """
    low, high = criterion.scale

    def judged(example: Any, prediction: Any) -> tuple[float, str]:
        human = _human_label(labeled_as_in_dspy(example, criterion), criterion)
        ours = number(_field(prediction, "score", ""), "The judge's score", texts=True)
        if math.isnan(ours):
            return math.nan, f"The judge gave no score on {criterion.title}; people gave {human:g}."
        gap = abs(human - ours)
        way = "as people did" if gap < 0.005 else f"{round(gap, 2):g} too {'high' if ours > human else 'low'}"
        sentence = f"The judge scored {round(ours, 2):g} on {criterion.title} where people scored {human:g}: {way}."
        return 1.0 - gap / (high - low), sentence

    return ProgramMetric(judged, name="score_closeness", threshold=1.0 - 0.5 / (high - low), undefined=undefined)


def agreement_feedback(judge: PointwiseJudge | PairwiseJudge, *, reason: str = "reason") -> ProgramMetric:
    """Make the metric with which ``dspy.GEPA`` rewrites a judge's instruction to agree with people, in [0, 1].

    Called as ``metric(gold, pred, trace, pred_name, pred_trace)``, it returns a prediction with ``score``, that of
    ``score_closeness`` or of ``preference_accuracy``, and ``feedback``: which way the judge erred, what people say, and
    which words about the answers the instruction has to keep, such as "The judge scored 5 on quality where people
    scored 2: 3 too high. They say: it invents a source." Without ``pred_name`` it returns the score.

    Args:
        judge: Judge to compile, which the metric does not ask; ``TypeError`` for any other program.
        reason: Field of the examples with people's reason, a text. An example may have no reason; ``ValueError`` names
            an example whose reason is not a text.

    Examples:
        >>> judge = PointwiseJudge(Criterion("quality", "is it good?"))
        >>> gold = dspy.Example(source="s", output="o", score=2, reason="It invents a source.")
        >>> feedback = agreement_feedback(judge)(gold, dspy.Prediction(score=5.0), None, "predict")
        >>> feedback.score, feedback.feedback.splitlines()[0]
        (0.25, 'The judge scored 5 on quality where people scored 2: 3 too high. They say: It invents a source.')
    """
    agreement: Callable[[Any, Any], tuple[float, str]] = _preferred
    kept, threshold = "", 1.0  # a judge that compares names the answers in its prompt itself
    if not isinstance(judge, PairwiseJudge):
        _check_kind(judge, PointwiseJudge)
        closeness = score_closeness(judge.criterion)
        agreement, threshold = closeness._judged, closeness.threshold
        if judge.predict.signature.instructions.endswith(judge.answer_format):
            kept = f"\nEnd the instruction with these words: {judge.answer_format}"

    def judged(example: Any, prediction: Any) -> tuple[float, str]:
        value, sentence = agreement(example, prediction)
        return value, f"{sentence}{_reason(example, reason)}{kept}"

    return ProgramMetric(judged, name="agreement", threshold=threshold, undefined=0.0)


def _reason(example: Any, field: str) -> str:
    """Return people's reason as a sentence; empty without a reason."""
    reason = example.get(field)
    if missing(reason):  # such as an empty cell of a data frame
        return ""
    if not isinstance(reason, str):
        raise ValueError(
            f"{field!r} of the item {item_name(example)!r:.80} is {reason!r:.80}: give people's reason as a text, or "
            "None."
        )
    return f" They say: {reason.strip()}" if reason.strip() else ""


def labeled(
    examples: Iterable[dspy.Example], criterion: Criterion, *, bins: Sequence[float] | None = None
) -> list[dspy.Example]:
    """Copy the examples and add ``score``, the nearest label: a training set for any DSPy optimizer.

    ``bins`` cut human ``scores`` by criterion, or a single ``score``, as in ``label_of``; ``ValueError`` names an item
    without a score that fits a label. Inputs are ``source`` and ``output``; without ``output``, an item keeps its own.
    """
    scored = [e.copy(score=item_label(e, criterion, bins=bins)) for e in examples]
    return [e.with_inputs(*OWN_INPUTS) if "output" in e else e for e in scored]


def _human_label(example: Any, criterion: Criterion) -> float:
    """Return the human score for comparison with a judge; ``ValueError`` if it is missing, NaN or outside the scale."""
    name, field = item_name(example), "score" if "score" in example else "scores"  # labeled() adds the first
    human = human_score(dspy.Example({"id": name, field: example.get(field)}), criterion.name)
    low, high = criterion.scale
    if not low <= human <= high:
        fault = "is undefined" if math.isnan(human) else f"is {human:g}, outside the scale from {low} to {high}"
        raise ValueError(
            f"The human score of the item {name!r:.80} on {criterion.name!r} {fault}: leave the item out, or map the "
            "scores to labels with evalbias.labeled(examples, criterion, bins=...)."
        )
    return human
