"""Feedback sources of refine loops: the model itself, and external ones."""

from __future__ import annotations

import ast
import math
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import dspy
import numpy as np
from numpy.typing import ArrayLike

from evalbias.data.items import item_name
from evalbias.measures import MQMError, QuantileMap, mqm_score, read_mqm
from evalbias.measures.arrays import FloatArray, numbers
from evalbias.measures.mqm import LONGEST
from evalbias.programs.items import text_problem
from evalbias.programs.judges import warn_of_own_text
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompts import Fields
from evalbias.programs.saved import Program, Setting, number_within
from evalbias.programs.writing import PlainPredict, draws, sample
from evalbias.values import digest


@dataclass(frozen=True)
class Feedback:
    """Feedback on one output."""

    score: float  # in the source's range; NaN if the feedback is empty, blocked, refused or unreadable
    text: str  # shown to the refiner
    errors: tuple[MQMError, ...] = ()  # the errors that MQM feedback lists
    status: str = ""  # why the score is undefined; empty if it is not


class FeedbackSource(Protocol):
    """Scores an output and says what to improve; a source that counts errors returns the negative count."""

    name: str  # in reports
    low: float  # worst score
    high: float  # best score: every defined one lies in [low, high], and higher is better

    def __call__(self, example: Fields, output: str) -> Feedback:
        """Return feedback on one output for an example (its inputs, and possibly a reference)."""
        ...


def checked_source(source: FeedbackSource) -> FeedbackSource:
    """Return ``source``; ``TypeError`` if it is not a feedback source, so that a function fails before a loop runs."""
    missing = [name for name in ("name", "low", "high") if not hasattr(source, name)]
    if not callable(source) or missing:
        lack = f"no {', '.join(missing)}" if missing else "no __call__"
        raise TypeError(
            f"{source!r} is no feedback source: it has {lack}. Give an object whose call (example, output) returns a "
            "Feedback, with its name and its lowest and highest score; ScorerFeedback(NAME, FUNCTION, low=..., "
            "high=...) makes one of a function (source, output, reference) -> number."
        )
    return source


def on_one_scale(own: Any, expected: Any) -> bool:
    """True if two sources, or runs of loops under one, score on the same range (``low`` to ``high``).

    Scores on different ranges, such as MQM points and chrF, are not comparable: a linear map would create a bias (Xu et
    al. 2024, appendix B). ``MappedFeedback`` puts a metric on MQM's scale.
    """
    return (own.low, own.high) == (expected.low, expected.high)


def expected_scores(quality: ArrayLike, source: Any, own: Any) -> FloatArray:
    """Return (n,) scores under ``source`` as a loop's expected scores; all NaN if its ``own`` range differs."""
    scores = numbers(quality, "quality")
    return scores if on_one_scale(own, source) else np.full_like(scores, np.nan)


def validated(source: FeedbackSource, feedback: Feedback) -> Feedback:
    """Return the feedback with a float score; ``TypeError`` if it is none, ``ValueError`` for a score out of range."""
    if not isinstance(feedback, Feedback):
        raise TypeError(
            f"The feedback source {source.name!r} returned {feedback!r:.80}: return Feedback(score, text) of "
            "evalbias.programs.feedback."
        )
    feedback = replace(feedback, score=float(feedback.score))  # JSON does not take numpy's numbers
    if not math.isnan(feedback.score) and not source.low <= feedback.score <= source.high:
        raise ValueError(
            f"The feedback source {source.name!r} gave {feedback.score:g}, outside its range {source.low:g} to "
            f"{source.high:g}: correct its low and high."
        )
    return feedback


def required_field(source: str, example: Fields, field: str) -> Any:
    """Return a field that a source requires, such as the reference; ``ValueError`` if it is missing or empty."""
    value = example.get(field)
    if value is None or value == "":
        raise ValueError(
            f"The item {item_name(example)!r:.80} has no {field!r}: the feedback source {source!r:.80} needs it."
        )
    return value


class FindErrors(dspy.Signature):  # type: ignore[misc]
    """Find the errors of the translation, measured against the source.

    Write one line for each: 'the words' is a SEVERITY CATEGORY/SUBCATEGORY error. The severity is critical if the error
    keeps the reader from understanding, major if it disturbs the reading but the meaning comes through, and minor if it
    does neither. Categories are accuracy (addition, mistranslation, omission, untranslated text), fluency (grammar,
    inconsistency, punctuation, register, spelling), locale convention, style (awkward), terminology and
    non-translation. Where there is nothing to find, write no-error.
    """

    source: str = dspy.InputField()
    translation: str = dspy.InputField()
    errors: str = dspy.OutputField()


class MQMFeedback(Program):
    """Error list that the model writes about its own translation (Xu et al. 2024, section 4.1)."""

    name = "own MQM"
    low, high = -25.0, 0.0
    kind = "MQM feedback"
    critical = Setting[float](number_within(high=0))  # weight of a critical error, as in evalbias.measures.mqm_score

    def __init__(self, *, critical: float = -5.0, **config: Any) -> None:
        super().__init__()
        self.critical = critical
        self.find = PlainPredict(FindErrors, **{"temperature": 0.0, "max_tokens": 400, **config})

    def forward(self, example: Fields, output: str) -> Feedback:
        errors = self.find(source=required_field(self.name, example, "source"), translation=output).errors
        return read_feedback(errors, critical=self.critical)


def read_feedback(text: str, *, critical: float = -5.0) -> Feedback:
    """Turn a written list of errors into feedback; its score is NaN if the list is unreadable."""
    reading = read_mqm(text)
    if reading.status not in ("errors", "no errors"):
        return Feedback(math.nan, text, status=reading.status)
    return Feedback(mqm_score(reading.errors, critical=critical), text, reading.errors)


class JudgeFeedback(dspy.Module):  # type: ignore[misc]
    """Expected score of a judge, passed to the refiner as text; self-feedback if its model also writes the outputs.

    ``source`` names the field of the example that the output answers to; a list is joined with commas.
    """

    def __init__(self, judge: PointwiseJudge, *, source: str = "source") -> None:
        super().__init__()
        self.judge = judge
        self.source = source

    @property
    def name(self) -> str:
        return f"judge of {self.judge.criterion.title}"

    @property
    def low(self) -> float:
        return float(self.judge.criterion.scale[0])

    @property
    def high(self) -> float:
        return float(self.judge.criterion.scale[1])

    def forward(self, example: Fields, output: str) -> Feedback:
        """Judge an output; undefined if it is no text for a judge, ``PromptRefused`` if the model refuses it."""
        if problem := text_problem(output):
            return Feedback(math.nan, f"The output cannot be judged: it {problem}.", status=f"the output {problem}")
        texts = {self.judge.judged: output}
        for field in (name for name in self.judge.inputs if name != self.judge.judged):
            value = required_field(self.name, example, self.source if field == "source" else field)
            texts[field] = value if isinstance(value, str) else ", ".join(map(str, value))
        warn_of_own_text([self.judge], output)
        score = self.judge(**texts).score
        text = f"{self.judge.criterion.title}: {score:.1f} on a scale of {self.low:g} to {self.high:g}"
        return Feedback(score, text, status="no answer" if math.isnan(score) else "")


# Answers to mathematics problems: the boxed answer, and two answers compared by value.

MOST_DIGITS = 1_000  # longest answer that is read as a number; Python refuses to convert more than 4,300 digits
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_NUMBER = re.compile(r"([+-]?)\(?(-?(?:\d+\.?\d*|\.\d+))\)?(?:/\(?(-?(?:\d+\.?\d*|\.\d+))\)?)?")
_NOISE = re.compile(r"\\(?:left|right|,|!|;|:|quad|\$|%)|[\s$%]|\^\s*\{?\\circ\}?")
_GROUP = r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
_FRACTION = re.compile(rf"\\[dt]?frac{_GROUP}{_GROUP}")
_SHORT_FRACTION = re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)")
_UNIT = re.compile(rf"(?<=[\d}}\s])\\(?:text|mathrm|textrm|mbox){_GROUP}\s*$")  # after a number, not part of it
_WORDS = re.compile(rf"\\(?:text|mathrm|textrm|textbf|mathbf|mbox){_GROUP}")
_ALIASES = {r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne"}


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{...}``, stripped; None if there is none, it is empty or does not close.

    Examples:
        >>> boxed_answer(r"so it is \boxed{\frac{1}{2}}.")
        '\\frac{1}{2}'
    """
    starts = [match.end() for match in _BOX.finditer(text)]
    if not starts:
        return None
    depth, start = 1, starts[-1]
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place].strip() or None
    return None


def same_value(first: str, second: str) -> bool:
    r"""Compare two answers as numbers or, where one is not a number, as text without spaces and layout.

    Numbers are compared exactly, as fractions. No algebra is done: ``x+1`` and ``1+x`` differ.

    Examples:
        >>> same_value(r"\frac{1}{2}", "0.5"), same_value("1,000", "1000"), same_value("x+1", "x + 1")
        (True, True, True)
        >>> same_value("1/3", "0.33")
        False
    """
    (a_variable, a), (b_variable, b) = _split_assignment(_plain(first)), _split_assignment(_plain(second))
    if a_variable and b_variable and a_variable != b_variable:
        return False
    a_number, b_number = _number(a), _number(b)
    return a_number == b_number if a_number is not None and b_number is not None else a == b


def _plain(text: str) -> str:
    bare = _WORDS.sub(r"\1", _UNIT.sub("", text.strip().rstrip(".")))
    bare = _SHORT_FRACTION.sub(r"(\1)/(\2)", _FRACTION.sub(r"(\1)/(\2)", bare))
    for long, short in _ALIASES.items():
        bare = re.sub(re.escape(long) + r"(?![a-zA-Z])", re.escape(short), bare)
    return _NOISE.sub("", bare).rstrip(".")


def _split_assignment(text: str) -> tuple[str, str]:
    """Split ``x=3`` into variable and value; the variable is empty if the answer has none."""
    match = re.fullmatch(r"([a-zA-Z])=(.*)", text)
    return (match[1], match[2]) if match else ("", text)


def _number(text: str) -> Fraction | None:
    bare = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    match = _NUMBER.fullmatch(bare)
    if not match or len(bare) > MOST_DIGITS:
        return None
    sign, numerator, denominator = match.groups()
    if denominator is not None and not Fraction(denominator):
        return None
    value = Fraction(numerator) / Fraction(denominator or 1)
    return -value if sign == "-" else value


class Vote(NamedTuple):
    """The majority vote of several paths (Wang et al. 2023)."""

    answer: str | None  # that most paths reach; None if no path came to an answer
    solution: str  # text of the first path that reaches the answer; empty if no path does


def vote(solve: dspy.Module, source: str, *, paths: int, number: int = 0, seed: int = 0) -> Vote:
    """Draw ``paths`` solutions of a problem and vote on their boxed answers; on ties the answer that came first wins.

    Solutions without a box have no vote, whereas the published code counts them as a further answer.
    Each vote ``number`` (from 0) uses its own draws; draw 0 is reserved for the solution that is voted on.
    ``ValueError`` if ``solve`` (``source`` to ``output``) decodes greedily, so that all paths would be the same.
    """
    if paths > 1 and not draws(solve):
        raise ValueError(f"The {paths} paths would all be the same: draw them at a temperature above 0.")
    first = 1 + number * paths
    solutions = [str(sample(solve, first + k, seed, source=source).output) for k in range(paths)]
    answers = {solution: answer for solution in solutions if (answer := boxed_answer(solution)) is not None}
    winner = majority([answers[solution] for solution in solutions if solution in answers])
    if winner is None:
        return Vote(None, "")
    return Vote(winner, next(solution for solution, answer in answers.items() if same_value(answer, winner)))


def majority(answers: Iterable[str]) -> str | None:
    """Return the answer whose value occurs most often; the first such answer on ties, None without answers."""
    counts: dict[str, int] = {}
    for answer in answers:
        counted = next((other for other in counts if same_value(other, answer)), answer)
        counts[counted] = counts.get(counted, 0) + 1
    return max(counts, key=counts.__getitem__, default=None)


class ConsistencyFeedback(Program):
    """Score 1 if the boxed answer agrees with the majority of sampled solutions, else 0 (Xu et al. 2024, section 4.1).

    The refiner receives the majority's answer. ``solve``, from ``source`` to ``output``, is sampled ``paths`` times (10
    in the paper) at its own temperature; ``seed`` is for models that draw by a seed.
    """

    name = "majority of its own paths"
    low, high = 0.0, 1.0
    kind = "self-consistency feedback"
    paths = Setting[int](number_within(1, 1000, whole=True))
    seed = Setting[int](number_within(0, whole=True))

    def __init__(self, solve: dspy.Module, *, paths: int = 10, seed: int = 0) -> None:
        super().__init__()
        self.solve, self.paths, self.seed = solve, paths, seed

    def forward(self, example: Fields, output: str) -> Feedback:
        source = str(required_field(self.name, example, "source"))
        seed = self.seed + zlib.crc32(output.encode())  # every output is compared with samples of its own
        return self.read(vote(self.solve, source, paths=self.paths, seed=seed), output)

    def read(self, ballot: Vote, output: str) -> Feedback:
        """Return the feedback on a solution that follows from a vote; its score is NaN if no path came to an answer."""
        if ballot.answer is None:
            return Feedback(math.nan, "no path came to an answer", status="unreadable")
        own = boxed_answer(output)
        agrees = own is not None and same_value(own, ballot.answer)
        return Feedback(float(agrees), f"most paths end in \\boxed{{{ballot.answer}}}")


class ExactAnswer:
    """External oracle: score 1 if the boxed answer equals the example's ``answer`` in value, else 0."""

    name = "the right answer"
    low, high = 0.0, 1.0

    def __call__(self, example: Fields, output: str) -> Feedback:
        answer, own = str(required_field(self.name, example, "answer")), boxed_answer(output)
        right = own is not None and same_value(own, answer)
        return Feedback(float(right), "the answer is right" if right else "the answer is wrong")


# External feedback by comparison with a reference: sacrebleu's metrics, and any other scoring function.

METRICS = ("chrf", "bleu")


class ReferenceFeedback:
    """Similarity of an output to the example's reference, in [0, 100]; the refiner receives the score only.

    ``metric``, ``"chrf"`` or ``"bleu"``, is sacrebleu's at sentence level and the name in a ``QuantileMap``;
    ``signature`` holds its settings as sacrebleu writes them, with its version.
    """

    low, high = 0.0, 100.0

    def __init__(self, metric: str = "chrf") -> None:
        if metric not in METRICS:
            raise ValueError(f"metric={metric!r} is unknown: choose one of {METRICS}.")
        try:
            from sacrebleu.metrics import BLEU, CHRF
        except ImportError as error:
            raise ImportError("Reference metrics need sacrebleu: pip install 'evalbias[reference]'.") from error
        self.name = metric
        self._metric = CHRF() if metric == "chrf" else BLEU(effective_order=True)
        self._metric.sentence_score("a", ["a"])  # the signature holds the number of references
        self.signature = f"sacrebleu {metric}|{self._metric.get_signature()}"

    def __call__(self, example: Fields, output: str) -> Feedback:
        reference = required_field(self.name, example, "reference")
        score = min(100.0, self._metric.sentence_score(output, [reference]).score)
        return Feedback(score, f"similarity to a reference: {score:.0f} of 100")


class ScorerFeedback:
    """Score of any function ``(source, output, reference) -> number``, such as a learned metric; higher is better.

    ``name`` stands in reports and is shown to the refiner; ``low`` is below ``high``. A score of NaN is undefined.

    Examples:
        >>> source = ScorerFeedback("length", lambda source, output, reference: len(output), low=0, high=100)
        >>> source({"source": "chien", "reference": "dog"}, "dog").score
        3.0
    """

    def __init__(self, name: str, score: Callable[[str, str, str], float], *, low: float, high: float) -> None:
        if not low < high:
            raise ValueError(f"low={low} is not below high={high}: give the range of the scores of {name!r}.")
        self.name = name
        self.score = score
        self.low, self.high = low, high

    def __call__(self, example: Fields, output: str) -> Feedback:
        source, reference = (str(required_field(self.name, example, field)) for field in ("source", "reference"))
        score = float(self.score(source, output, reference))
        if math.isnan(score):
            return Feedback(score, "no score", status="no score")
        return Feedback(score, f"{self.name}: {score:.2f} on a scale of {self.low:g} to {self.high:g}")


NARROWEST = 0.05
"""Smallest part of a metric's range that the scores of a map fill; those of another scale, 0 to 1 of 100, fill less."""


class MappedFeedback:
    """Feedback of a metric whose score is mapped onto MQM points (Xu et al. 2024, appendix B).

    The refiner is shown the metric's own text. ``quantile_map`` is fitted on texts that have both scores.
    ``ValueError`` if its ``metric`` is not the source's name, it leads out of [-25, 0], or it was fitted to scores on
    another scale, such as chrF from 0 to 1. ``map_id`` is its digest: scores under another map are not mixed with
    these.
    """

    low, high = -25.0, 0.0

    def __init__(self, source: FeedbackSource, quantile_map: QuantileMap) -> None:
        quantile_map.check_metric(checked_source(source).name)
        fitted, target = quantile_map.source, quantile_map.target
        # 1. Single scores may lie outside the source's range, because learned metrics are clipped to it.
        inside = source.low <= float(np.median(fitted)) <= source.high
        if not inside or fitted[-1] - fitted[0] < NARROWEST * (source.high - source.low):
            raise ValueError(
                f"The quantile map was fitted to scores from {fitted[0]:g} to {fitted[-1]:g}, and {source.name!r} "
                f"gives {source.low:g} to {source.high:g}: fit it to scores on the scale of {source.name!r}."
            )
        # 2. What it leads to are MQM points.
        if target[0] < self.low or target[-1] > self.high:
            raise ValueError(
                f"The quantile map leads to scores from {target[0]:g} to {target[-1]:g}, outside the MQM scores from "
                "-25 to 0: fit it on pairs of a metric and MQM scores, the metric's first."
            )
        self.source = source
        self.name = f"{source.name} mapped onto MQM"
        self.map_id = digest([quantile_map.metric, fitted.tolist(), target.tolist()])
        self._map = quantile_map

    def __call__(self, example: Fields, output: str) -> Feedback:
        feedback = self.source(example, output)
        return replace(feedback, score=float(self._map([feedback.score])[0]))


# Read which concepts an answer names as missing: "none", a Python list, or concepts with commas, bullets or numbers
# between. Nothing is missing only where the answer says so and nothing else. An answer in other words is unreadable.

_NOTHING = re.compile(
    r"(?:(?:yes|no)[,.] )?(?:all(?: (?:of )?(?:the )?(?:concepts|words))?(?: (?:is|are))? (?:covered|included|present)|"
    r"(?:none|nothing|no concepts?)(?:(?: is| are)? missing)?|no|n/a)",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"\*\*|__|```\w*")
_LABEL = re.compile(r"^(?:the )?missing(?: concepts?| words?)?(?::| (?:is|are):?)", re.IGNORECASE)
_BREAK, _AND = re.compile(r"(?:^|\s)\(?\d{1,2}[.)]\s+|[,;\n\u2022、，；]"), re.compile(r"&|\band\b", re.IGNORECASE)
_AROUND = " \t.!*-+\u2013'\"`\u2018\u2019\u201c\u201d()[]{}。「」『』（）"


def read_missing(text: str, concepts: Sequence[str]) -> list[str] | None:
    r"""Read the missing concepts from a written answer, in the order of ``concepts``; None if it is unreadable.

    The answer may say that nothing is missing, or be a Python list, or concepts in bullets, numbers or a row, also
    after a label such as "Missing:". Any other word makes it unreadable, as do more than ``LONGEST`` characters. A
    Python list of other words only says that something is missing too, and is returned as it is.

    Examples:
        >>> read_missing("1. dog\n2. cat", ["dog", "cat"]), read_missing("all covered", ["dog", "park"])
        (['dog', 'cat'], [])
        >>> read_missing("犬、「公園」。", ["犬", "公園", "投げる"])
        ['犬', '公園']
        >>> print(read_missing("All covered except dog.", ["dog", "park"]))
        None
    """
    if len(text) > LONGEST:
        return None
    listed = _LABEL.sub("", _MARKUP.sub("", text).strip(), count=1).strip()
    if _NOTHING.fullmatch(listed.strip(_AROUND)):
        return []
    words = _python_list(listed)
    if words == []:
        return []
    required, entries = {*map(_bare, concepts)}, _BREAK.split(listed) if words is None else words
    parts = [[entry] if words is not None or _bare(entry) in required else _AND.split(entry) for entry in entries]
    names = {name for entry in parts for part in entry if (name := _bare(part))}
    missing = [concept for concept in concepts if _bare(concept) in names]
    if words is None:
        return missing if names and names <= required else None
    return missing or [word for word in words if word.strip()] or None


def _bare(text: str) -> str:
    return text.strip(_AROUND).casefold()


def _python_list(text: str) -> list[str] | None:
    """Return the words of a Python list; None if the text is something else."""
    try:
        words = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two: lists nested too deep
        return None
    return [*map(str, words)] if isinstance(words, list | tuple | set) else None


# Feedback for constrained generation: the missing concepts, listed by the model or found in the text.

NOTHING_MISSING = "all of them are there"


class FindMissing(dspy.Signature):  # type: ignore[misc]
    """Say which of the concepts the text leaves out.

    Write them with commas between; write none where every concept stands in the text.
    """

    concepts: list[str] = dspy.InputField()
    text: str = dspy.InputField()
    missing: str = dspy.OutputField()


class ConceptsFeedback(dspy.Module):  # type: ignore[misc]
    """Self-feedback that lists missing concepts (Xu et al. 2024, section 4.1): score 1 if none is missing, else 0."""

    name = "own list of missing concepts"
    low, high = 0.0, 1.0

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.find = PlainPredict(FindMissing, **{"temperature": 0.0, "max_tokens": 200, **config})

    def forward(self, example: Fields, output: str) -> Feedback:
        concepts = required_concepts(self.name, example)
        answer = self.find(concepts=concepts, text=output).missing
        missing = read_missing(answer, concepts)
        if missing is None:
            return Feedback(float("nan"), answer, status="empty" if not answer.strip() else "unreadable")
        return _on_missing(missing)


class ExactConcepts:
    """External oracle: score 1 if the text covers every concept, else 0.

    A concept is covered if it occurs anywhere, in any case, also inside a word: "thrown" covers "throw", and "catch"
    covers "cat" (Xu et al. 2024, section 4.1).
    """

    name = "exact match of concepts"
    low, high = 0.0, 1.0

    def __call__(self, example: Fields, output: str) -> Feedback:
        concepts, text = required_concepts(self.name, example), output.lower()
        return _on_missing([concept for concept in concepts if concept.lower() not in text])


def required_concepts(source: str, example: Fields) -> list[str]:
    """Return the example's ``concepts``; ``ValueError``, naming ``source``, if they are missing or no list of texts."""
    concepts = required_field(source, example, "concepts")
    if isinstance(concepts, str) or not all(isinstance(c, str) and c.strip() for c in concepts):
        raise ValueError(f"The item {item_name(example)!r} has the concepts {concepts!r:.60}: give a list of words.")
    return list(concepts)


def _on_missing(missing: Sequence[str]) -> Feedback:
    return Feedback(float(not missing), f"missing: {', '.join(missing)}" if missing else NOTHING_MISSING)
