"""The race of what may make a judge agree better, on items that people labeled, and how its scores are then read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dspy
import numpy as np
import optuna

from evalbias.evaluation.judged import LEVEL_SHARES, Judged
from evalbias.measures.arrays import FloatArray, IntArray, defined
from evalbias.measures.corrections import ScoreCorrection, fit_level_weights, fit_line, level_features
from evalbias.optimizers.base import rounds
from evalbias.optimizers.correction import folds_of
from evalbias.optimizers.offers import COMBINATION, DEMOS, GUIDELINES, LIBRARY, Offer, without_cue
from evalbias.optimizers.rules import KAPPA, PEARSON, AgreementMeasure, agreement_of
from evalbias.optimizers.selection import hardly_answers
from evalbias.programs.edits import with_lines

FEWEST = 24  # fewest items in the first round: on half of them, every third search loses the one edit that helps
TRIALS = 8  # combinations that are tried
MADE_OF = {LIBRARY: 3, DEMOS: 2, GUIDELINES: 1}  # kind -> its best that combinations are made of
PENALTIES = (1.0, 3.0, 10.0)  # of the weights of the levels: variance of what a line leaves, over that of a weight


@dataclass(frozen=True)
class Ran:
    """An offer on the items that it does not show."""

    offer: Offer
    # agreement less that of the given judge on the same items; minus infinity where it is undefined or rests on labels
    # that the model hardly gives
    gain: float
    judged: Judged


@dataclass
class Race:
    """Offers judge more and more of the items, and the worse ones of each kind leave after a round.

    These are the rounds of successive halving (Jamieson and Talwalkar 2016), each of twice as many items as the
    one before. A budget of judgments decides how many rounds there are; without one, every offer judges every item.
    """

    judge: Any
    items: Sequence[dspy.Example]
    before: Judged  # the judge's own answers to the items
    answers: Callable[[Any, Sequence[dspy.Example]], Judged]  # runs a judge on items
    budget: int | None
    seed: int

    def __post_init__(self) -> None:
        self.measure = agreement_of(self.before)
        order = np.random.default_rng([self.seed, 1])  # not that of the demonstrations
        self.order = order.permutation(len(self.items))

    def run(self, offers: Sequence[Offer]) -> list[Ran]:
        """Return the offers that judged all items, and how well."""
        left = [Ran(offer, 0.0, self.before) for offer in offers]
        budget = math.inf if self.budget is None else self.budget
        for size in rounds(len(self.items), FEWEST, len(offers), budget):
            left = [self.judged(runner.offer, size) for runner in left]
            if size < len(self.items):
                kinds = dict.fromkeys(runner.offer.kind for runner in left)
                ranked = sorted(left, key=lambda runner: -runner.gain)
                ranked_of = [[runner for runner in ranked if runner.offer.kind == kind] for kind in kinds]
                left = [runner for some in ranked_of for runner in some[: math.ceil(len(some) / 2)]]
        return left

    def judged(self, offer: Offer, size: int) -> Ran:
        """Have an offer judge the first of the items in a random order, but for those that it shows."""
        places = np.array([i for i in self.order if int(i) not in offer.shows][:size], dtype=np.int64)
        judged = self.answers(offer.program, [self.items[i] for i in places])
        before = self.before.take(places)
        gain = self.measure.value(judged) - self.measure.value(before)
        if math.isnan(gain) or judged.unanswered > before.unanswered or hardly_answers(judged, before):
            gain = -math.inf
        return Ran(offer, gain, judged)

    def combined(self, ran: Sequence[Ran]) -> list[Ran]:
        """Search combinations of the best of each kind with Optuna's TPE; each judges all items."""
        best = sorted(ran, key=lambda runner: -runner.gain)
        parts = {
            kind: [runner.offer for runner in best if runner.offer.kind == kind and runner.gain > -math.inf][:most]
            for kind, most in MADE_OF.items()
        }
        space: dict[str, Sequence[Any]] = {offer.name: (False, True) for offer in (*parts[LIBRARY], *parts[GUIDELINES])}
        if parts[DEMOS]:
            space[DEMOS] = ("", *(offer.name for offer in parts[DEMOS]))
        affordable = TRIALS if self.budget is None else self.budget // len(self.items)
        trials = min(TRIALS, math.prod(map(len, space.values())), affordable)
        if len(space) < 2 or trials < 2:
            return []
        alone, tried = [*itertools.chain(*parts.values())], dict[str, Ran]()

        def measure(settings: dict[str, Any]) -> float:
            used = [offer for offer in alone if settings.get(offer.name) is True or settings.get(DEMOS) == offer.name]
            name = " and ".join(offer.name for offer in used)
            if name not in tried:
                tried[name] = self.judged(combination(self.judge, used), len(self.items))
            return max(tried[name].gain, -2.0)  # of what is undefined: worse than any

        search_settings(space, measure, trials=trials, seed=self.seed)
        return [runner for name, runner in tried.items() if name not in ("", *(offer.name for offer in alone))]


def search_settings(
    space: Mapping[str, Sequence[Any]], measure: Callable[[dict[str, Any]], float], *, trials: int, seed: int
) -> None:
    """Measure as many settings, name -> one of its choices, each chosen by what was measured before; more is better."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    optuna.logging.set_verbosity(verbosity)
    for number in range(trials):
        study.sampler = optuna.samplers.TPESampler(seed=seed * 1_000_003 + number)
        trial = study.ask()
        study.tell(trial, measure({name: trial.suggest_categorical(name, choices) for name, choices in space.items()}))


def combination(judge: Any, used: Sequence[Offer]) -> Offer:
    """Offer a judge with the lines and the demonstrations of several offers, without its cue if one has none."""
    lines = [line for offer in used for line in offer.lines]
    shown = next((offer for offer in used if offer.kind == DEMOS), None)
    program, shows = (judge, frozenset[int]()) if shown is None else (shown.program, shown.shows)
    names = tuple(offer.name for offer in used)
    program = with_lines(program, lines) if lines else program.deepcopy()
    program = program if all(offer.cue for offer in used) else without_cue(program)
    return Offer(COMBINATION, " and ".join(names), program, shows, parts=names)


# How a judge's scores are read. A judge that is lenient, or whose scores crowd, is nearer to people along a line
# a + b score, fitted by least squares; one whose model holds some level too probable, with weights of the levels; of 0
# and 1, where the score from which people would pass an item is not .5.

Fit = Callable[[FloatArray, FloatArray, Mapping[str, FloatArray]], ScoreCorrection | None]


def reading(judged: Judged, *, seed: int, weighs: bool = True) -> ScoreCorrection | None:
    """Fit how a judge's scores are read, also by weights of its levels; None where no reading is nearer to people.

    Shown on the items themselves, by parts: each part is read by what the others fit, and the mean absolute difference
    from people must be lower than that of the scores, or of a simpler reading, by more than its standard error; of pass
    or fail, the share of wrong verdicts.
    """
    measure = agreement_of(judged)
    if measure is not KAPPA and not (measure is PEARSON and judged.on_peoples_scale and judged.scale):
        return None
    # 1 the readings, the simplest first
    scores, people, features = judged.answers, measure.columns(judged)[1], dict[str, FloatArray]()
    readings: list[list[Fit]] = [[lambda x, y, _: _cut(x, y)]]
    if measure is PEARSON and (scale := judged.scale):
        readings = [[lambda x, y, _: fit_line(x, y, scale)]]
        if weighs and LEVEL_SHARES in judged.covariates:
            features = level_features(judged.covariate(LEVEL_SHARES), scale)
            readings.append([partial(fit_level_weights, scale=scale, penalty=penalty) for penalty in PENALTIES])
    # 2 the items and their parts
    kept = defined(scores, people, *features.values())
    folds = folds_of(judged, seed)[kept]
    scores, people, features = scores[kept], people[kept], {name: x[kept] for name, x in features.items()}
    if len(np.unique(folds)) < 3:
        return None
    # 3 the first that is nearer than those before
    chosen: Fit | None = None
    nearest = _error(measure, scores, people)
    for rivals in readings:
        errors = [_error(measure, _read(fit, scores, people, features, folds), people) for fit in rivals]
        best = min(range(len(rivals)), key=lambda place: float(errors[place].mean()))
        gain = nearest - errors[best]
        if gain.mean() > gain.std() / math.sqrt(len(gain)):
            chosen, nearest = rivals[best], errors[best]
    return chosen and chosen(scores, people, features)


def _error(measure: AgreementMeasure, read: FloatArray, people: FloatArray) -> FloatArray:
    return np.abs((read >= 0.5 if measure is KAPPA else read) - people)


def _read(
    fit: Fit, scores: FloatArray, people: FloatArray, features: Mapping[str, FloatArray], folds: IntArray
) -> FloatArray:
    """Return the scores (n,) of each part as what the others fit reads them."""
    read = np.array(scores)
    for fold in np.unique(folds):
        inside = folds == fold
        within, others = ({name: x[side] for name, x in features.items()} for side in (inside, ~inside))
        if (found := fit(scores[~inside], people[~inside], others)) is not None:
            read[inside] = found(scores[inside], within)
    return read


def _cut(scores: FloatArray, people: FloatArray) -> ScoreCorrection | None:
    """Return a reading that brings the score from which most verdicts are right to .5; None where no score is."""
    levels = np.unique(scores)
    cuts = (levels[1:] + levels[:-1]) / 2
    if not len(cuts):
        return None
    right = [(1 - np.abs((scores >= cut) - people)).sum() for cut in cuts]
    cut = float(cuts[int(np.argmax(right))])
    return ScoreCorrection({}, reading=((0.0, 0.0), (cut, 0.5), (1.0, 1.0))) if 0 < cut < 1 else None
