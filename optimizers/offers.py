"""Offers that may make a judge agree better with people: demonstrations, wordings, guidelines, DSPy's programs."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Judged
from evalbias.lm.contract import as_unanswered
from evalbias.lm.decisions import ClientLM
from evalbias.lm.dspy_seam import FAILED, INVALID, keys_hidden, message_of
from evalbias.measures import rs_scores, unfairness_scores
from evalbias.measures.arrays import FloatArray, IntArray
from evalbias.optimizers.base import Problem, shown_by
from evalbias.optimizers.likelihood import with_demos
from evalbias.programs import prompts
from evalbias.programs.edits import edits, guidelines, with_lines
from evalbias.programs.items import preference_label
from evalbias.programs.metrics import agreement_feedback, labeled
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge

READING, LINE = "reading", "line"
DEMOS, LIBRARY, GUIDELINES, INSTRUCTION = "demonstrations", "library", "guidelines", "instruction"
COMBINATION, ORDERS, REASONING = "combination", "both orders", "reasoning"

CASES = 8  # items in one request for guidelines: the model that reflects reads them side by side
REQUESTS = 3  # requests for guidelines
MOST_GUIDELINES = 12  # lines that a judge is shown
LONGEST = 1_500  # characters of a text that the model that reflects is shown
ALIKE = 0.8  # share of equal characters from which two guidelines are one
QUOTED = 5  # words in a row that a wording may not share with an item


@dataclass(frozen=True)
class Offer:
    """A judge that may agree better than the given one."""

    kind: str
    name: str  # in words
    program: Any
    shows: frozenset[int] = frozenset()  # places of the items that it shows, which cannot tell how well it judges
    lines: tuple[str, ...] = ()  # that the instruction gained
    cue: bool = True  # whether its prompts end with the cue of the given judge
    parts: tuple[str, ...] = ()  # names of the offers that it combines


# 1. General edits of the question.


def worded(judge: Any) -> list[Offer]:
    """Offer every edit of the library alone, and the judge without the cue at the end of its prompts."""
    offers = [
        Offer(LIBRARY, f"edit ({name})", with_lines(judge, [line]), lines=(line,))
        for name, line in edits(judge).items()
    ]
    if judge.cue:
        offers.append(Offer(LIBRARY, "no cue", without_cue(judge), cue=False))
    return offers


def without_cue(judge: Any) -> Any:
    """Return a copy of a judge whose prompts end with the texts or the question, and whose corrections are dropped."""
    program = judge.deepcopy()
    program.cue = False
    return program


# 2. Demonstrations.


def demonstrated(problem: Problem, judged: Judged, sizes: Sequence[int], *, seed: int) -> list[Offer]:
    """Offer demonstrations of every size that leaves half of the items: random, spread over people's scores, of RS.

    ``judged`` are the given judge's answers to the items, as in all of these functions.
    """
    judge, items = problem.student, problem.fit
    order = np.random.default_rng(seed).permutation(len(items))
    order = order[[can_say(judge, items[i]) for i in order]]
    choices: dict[str, IntArray] = {"random": order}
    if isinstance(judge, PointwiseJudge):
        human = judged.covariate(HUMAN_SCORES)
        choices["spread"] = order
        if LIKELIHOODS in judged.covariates:
            rs = rs_scores(judged.covariate(LIKELIHOODS), unfairness_scores(judged.answers, human))
            choices["highest RS"] = np.argsort(-np.nan_to_num(rs, nan=-1.0), kind="stable")
    offers, left_out = list[Offer](), problem.left_out
    for way, places in choices.items():
        for k in sizes:
            name = f"{k} demonstrations ({way})"
            if 2 * k > len(items) or k > len(order):
                left_out[name] = f"{len(order)} items cannot show {k} and tell how well the others are judged"
                continue
            picked = spread(human, order, k) if way == "spread" else [int(i) for i in places[:k]]
            try:
                program = _demonstrating(judge, [items[i] for i in picked])
            except ValueError as error:  # a score has no label
                left_out[name] = str(error)
                continue
            offers.append(Offer(DEMOS, name, program, frozenset(picked)))
    return offers


def can_say(judge: Any, item: dspy.Example) -> bool:
    """Return whether people's label of an item is an answer of the judge: one without ties cannot be shown a tie."""
    return not isinstance(judge, PairwiseJudge) or judge.ties or preference_label(item) != prompts.TIE


def spread(human: FloatArray, order: IntArray, k: int) -> list[int]:
    """Return k places whose human scores (n,) are spread evenly over the ranks; equal ones in the given order."""
    ranked = order[np.argsort(human[order], kind="stable")]
    picked = ranked[np.linspace(0, len(ranked) - 1, k).round().astype(int)]
    return [int(i) for i in order if i in set(picked.tolist())]  # as they come, not the worst first


def _demonstrating(judge: Any, examples: Sequence[dspy.Example]) -> Any:
    """Return the judge with demonstrations; of pairs the first and the second candidate win in turn."""
    if isinstance(judge, PointwiseJudge):
        return with_demos(judge, examples)
    program = judge.deepcopy()
    program.corrections = {}
    demos = []
    for place, example in enumerate(examples):
        label, candidates = preference_label(example), list(example.candidates)
        if label in ("A", "B") and label != "AB"[place % 2]:
            label, candidates = "AB"[place % 2], candidates[::-1]
        demos.append(dspy.Example({**judge.own(example), "candidates": candidates, "preference": label}))
    program.predict.demos = demos
    return program


# 3. Guidelines, distilled by a model from how the judge and people differ.


class Distill(dspy.Signature):  # type: ignore[misc]
    """Say by which principles people judge, where a judge's answers differ from theirs.

    Write short general guidelines for the judge, which would have led it to people's answers. Each must hold for texts
    that nobody has seen yet: name no word, name or number of a single case.
    """

    question: str = dspy.InputField(desc="what the judge is asked")
    cases: list[str] = dspy.InputField(desc="texts, what the judge answered, and what people say")
    guidelines: list[str] = dspy.OutputField(desc="at most six, one sentence each")


def distilled(problem: Problem, judged: Judged, reflection_lm: Any, reason: str) -> list[Offer]:
    """Offer guidelines, if any can be made. The most misjudged items come first."""
    judge, items = problem.student, problem.fit
    gaps = [case(judge, item, answer, reason) for item, answer in zip(items, judged.answers, strict=True)]
    order = np.argsort([-(gap if math.isfinite(gap) else -1.0) for gap, _ in gaps], kind="stable")
    principles, wrong = list[str](), "the model that reflects wrote none"
    for start in range(0, min(len(order), CASES * REQUESTS), CASES):
        cases = [gaps[i][1] for i in order[start : start + CASES]]
        predict = dspy.Predict(Distill)
        try:
            with dspy.context(lm=reflection_lm), keys_hidden(reflection_lm):
                lines = predict(question=judge.predict.signature.instructions, cases=cases).guidelines or []
        except dspy.AdapterParseError:
            wrong = "the model that reflects answered in another form"
            continue
        except FAILED as error:
            if not isinstance(error, INVALID):  # without its model, the search would not be what was asked for
                raise as_unanswered(reflection_lm, error) from error
            wrong = message_of(error)  # such as texts that are too long for it
            continue
        for line in lines:
            text = " ".join(str(line).split()).lstrip("-*0123456789. ")
            if quoted := quotes(text, items, judge):
                wrong = f"a guideline quotes an item ({quoted!r:.60})"
            elif text and all(difflib.SequenceMatcher(None, text, other).ratio() <= ALIKE for other in principles):
                principles.append(text)
    if not principles:
        problem.left_out[GUIDELINES] = wrong
        return []
    lines = tuple(guidelines(judge, principles[:MOST_GUIDELINES]))
    return [Offer(GUIDELINES, "guidelines of people's reasons", with_lines(judge, lines), lines=lines)]


def case(judge: Any, item: dspy.Example, answer: Any, reason: str) -> tuple[float, str]:
    """Return by how much a judge differs from people on an item, as a share of the scale, and both in words."""
    if isinstance(judge, PairwiseJudge):
        first = np.mean([row[0] - row[1] if order == 0 else row[1] - row[0] for order, row in enumerate(answer)])
        choice = "A" if first > 0 else "B" if first < 0 else None  # over both orders
        prediction = dspy.Prediction(preference=choice, gap=1.0)
    else:
        prediction = dspy.Prediction(score=float(answer))
    critique = agreement_feedback(judge, reason=reason)(item, prediction, None, "predict")
    texts = [f"{label}: {text!s:.{LONGEST}}" for label, text in judge._texts(judge.own(item))]
    return 1.0 - critique.score, "\n".join([*texts, critique.feedback.splitlines()[0]])


def quotes(text: str, items: Sequence[dspy.Example], judge: Any) -> str:
    """Return words that a text shares with an item and that the question does not hold; empty if it quotes none.

    These are five words in a row, and whatever stands in quotation marks or backticks.
    """
    question = judge.predict.signature.instructions.casefold()
    texts = "\n".join(" ".join(text for _, text in judge._texts(judge.own(e))).casefold() for e in items)
    words = text.casefold().split()
    runs = [" ".join(words[i : i + QUOTED]) for i in range(len(words) - QUOTED + 1)]
    marked = [part.casefold() for part in re.findall(r"[`\"“「]([^`\"”」]{3,})[`\"”」]", text)]
    return next((run for run in (*runs, *marked) if run in texts and run not in question), "")


# 4. What DSPy's own optimizers make of the judge.


def taught(problem: Problem, optimizers: Mapping[str, Any]) -> list[Offer]:
    """Offer what other teleprompters compile on the items; an error of theirs leaves one out."""
    judge, items, offers, left_out = problem.student, problem.fit, list[Offer](), problem.left_out
    if isinstance(judge, PairwiseJudge):
        examples = [e.copy(preference=preference_label(e)) for e in items if can_say(judge, e)]
    else:
        examples = labeled(items, judge.criterion)
    examples = [e.copy(**judge.own(e)).with_inputs(*judge.own(e)) for e in examples]  # by the judge's own names
    for name, optimizer in optimizers.items():
        try:
            with dspy.context(lm=ClientLM(problem.lm)), keys_hidden(getattr(optimizer, "reflection_lm", None)):
                program = optimizer.compile(judge.deepcopy(), trainset=examples)
        except Exception as error:  # of any kind: it is another's code, and ends one candidate and not the search
            left_out[name] = f"{type(error).__name__}: {error!s:.300}"
            continue
        if quoted := quotes(program.predict.signature.instructions, items, judge):
            left_out[name] = f"its instruction quotes an item ({quoted!r:.60})"
            continue
        offers.append(Offer(taught_by(name), f"what {name} compiled", program, shown_by(program, items)))
    return offers


def taught_by(name: str) -> str:
    """Return the kind of what another optimizer makes."""
    return f"{INSTRUCTION} by {name}"
