"""Corrected scores of judges that nobody can retrain: effect and agreement on inputs that took no part.

usage: python -m benchmarks.correction [--splits 20] [--seed 0] [--write]

With ``--splits 0`` only the second section is made: learned on all articles, each corrected by a fit on other ones.

Recorded judgments of SummEval (1,200 summaries of 100 articles, three experts; ``judges/README.md`` of the recorded
data). Each split learns on half of the articles and corrects the summaries of the other half. Rows are the judges and
criteria whose effect of length, or of likelihood under SmolLM2-135M, is shown on all articles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.harness import argument_parser, as_text, finish, markdown
from benchmarks.sets import judged_summaries
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS, Judged, mean_of_raters
from evalbias.measures import EqualQuality, estimate_spearman, pearson
from evalbias.measures.agreement import estimate_tied_accuracy
from evalbias.measures.arrays import FloatArray, defined
from evalbias.measures.corrections import fit_score_correction
from evalbias.measures.resample import ALONE
from evalbias.optimizers.correction import COVARIATES, as_scores, learn_correction

FORMS = {"effect": "+.2f", "Pearson": ".3f", "accuracy of order": ".3f", "Spearman": ".3f"}
"""Number of the scores on the other half of the articles -> its format."""
Numbers = Mapping[str, FloatArray]
"""By name, (splits,) each."""


@dataclass(frozen=True)
class Outcome:
    """One judge on one criterion, with one feature."""

    judge: str
    criterion: str
    feature: str
    before: Numbers
    learned: Numbers  # corrected by what ``learn_correction`` takes by default
    full: Numbers  # without the whole effect
    taken: int  # splits in which something is subtracted
    worth: float  # Pearson's correlation of the feature with people


def recorded() -> Iterator[tuple[str, Judged]]:
    """Yield each judge's name with its scores of every criterion."""
    rows = judged_summaries()
    ids, inputs = tuple(row["id"] for row in rows), [row["input_id"] for row in rows]
    ls = np.array([row["likelihood"] for row in rows])
    lengths = np.array([float(len(row["output"])) for row in rows])
    for judge in rows[0]["judges"]:
        for criterion in rows[0]["ratings"]:
            ratings = np.array([row["ratings"][criterion] for row in rows], dtype=np.float64)
            answers = [row["judges"][judge].get(criterion) for row in rows]
            scores = np.array([np.nan if answer is None else answer for answer in answers], dtype=np.float64)
            covariates = {LENGTHS: lengths, LIKELIHOODS: ls, RATINGS: ratings, HUMAN_SCORES: mean_of_raters(ratings)}
            yield judge, Judged(ids, criterion, scores, covariates, inputs=inputs)


def effect(judged: Judged, feature: str, scores: FloatArray) -> tuple[float, float]:
    """Return the effect of a feature on scores at equal quality, and its p."""
    columns = {feature: as_scores(judged, [feature]).covariate(feature)}
    found = EqualQuality(scores, judged.covariate(RATINGS), columns, clusters=judged.inputs).effect(feature)
    return found.value, found.p_value


def numbers(judged: Judged, feature: str, scores: FloatArray) -> tuple[float, ...]:
    """Return effect, Pearson, accuracy with calibrated ties and Spearman of scores."""
    human, kept = judged.covariate(HUMAN_SCORES), defined(scores)
    accuracy = estimate_tied_accuracy(scores, human, clusters=judged.inputs, draws=ALONE).value
    rank = estimate_spearman(scores, human, draws=ALONE).value
    return effect(judged, feature, scores)[0], pearson(scores[kept], human[kept]).value, accuracy, rank


def of_feature(judged: Judged, feature: str) -> Judged:
    """Return the answers with one feature alone."""
    others = {column for name, column in COVARIATES.items() if name != feature}
    return replace(judged, covariates={name: x for name, x in judged.covariates.items() if name not in others})


def outcome(name: str, judged: Judged, feature: str, splits: int, seed: int) -> Outcome:
    """Learn on half of the articles and measure on the other half, for every split."""
    alone = of_feature(judged, feature)
    inputs, rng, rows, taken = np.array(judged.inputs), np.random.default_rng(seed), [], 0
    articles = np.unique(inputs)
    for _ in range(splits):
        chosen = np.isin(inputs, rng.permutation(articles)[: len(articles) // 2])
        train, test = (alone.take(np.flatnonzero(some)) for some in (chosen, ~chosen))
        learned = learn_correction(train, seed=seed).correction
        columns = {feature: as_scores(train, [feature]).covariate(feature)}
        whole = fit_score_correction(train.answers, train.covariate(RATINGS), columns, clusters=train.inputs)
        values = {feature: as_scores(test, [feature]).covariate(feature)}
        both = (correction(test.answers, values) for correction in (learned, whole))
        rows.append([numbers(test, feature, scores) for scores in (test.answers, *both)])
        taken += feature in learned.slopes
    before, corrected, full = (
        dict(zip(FORMS, part.T, strict=True))
        for part in np.moveaxis(np.array(rows), 1, 0)  # (3, splits, 4)
    )
    worth = pearson(as_scores(judged, [feature]).covariate(feature), judged.covariate(HUMAN_SCORES)).value
    return Outcome(name, judged.criterion, feature, before, corrected, full, taken, worth)


def table(outcomes: Sequence[Outcome], splits: int) -> str:
    """Return one row an outcome: before and after, mean over the splits."""
    body = []
    for outcome in outcomes:
        before, after, full = (
            {name: as_text(numbers[name].mean(), form) for name, form in FORMS.items()}
            for numbers in (outcome.before, outcome.learned, outcome.full)
        )
        title = outcome.judge, outcome.criterion, f"{outcome.worth:+.2f}"
        changes = (f"{before[name]} -> {after[name]}" for name in FORMS)
        body.append([*title, *changes, f"{outcome.taken} of {splits}", f"{full['effect']}, {full['Pearson']}"])
    headings = ("judge", "criterion", "feature with people", *FORMS, "taken in", "all of it: effect, Pearson")
    return markdown(headings, body)


def section(outcomes: Sequence[Outcome], splits: int) -> str:
    """Return the page's section."""
    by_length, by_likelihood = ([o for o in outcomes if o.feature == name] for name in ("length", "likelihood"))
    halved = [o for o in by_length if abs(o.learned["effect"].mean()) <= abs(o.before["effect"].mean()) / 2]
    free = [o for o in halved if o.learned["Pearson"].mean() >= o.before["Pearson"].mean()]
    kept = [o for o in by_likelihood if o.taken <= splits / 2]
    return "\n\n".join(
        [
            "## Scores corrected on inputs that took no part",
            f"Means over {splits} splits: learned on 50 articles, measured on the other 50. *Effect* is in standard "
            "deviations of the score at equal quality; *feature with people* is Pearson's correlation of the feature "
            "itself with the mean rating. *Taken in* counts the splits in which the default subtracts anything; the "
            "last column is what subtracting all of the effect gives.",
            "### Length",
            table(by_length, splits),
            f"The effect is halved or better in {len(halved)} of {len(by_length)} rows, at no lower Pearson in "
            f"{len(free)} of these.",
            "### Likelihood",
            table(by_likelihood, splits),
            f"The scores keep their effect in most splits in {len(kept)} of {len(by_likelihood)} rows.",
        ]
    )


def crossed(rows: Sequence[tuple[str, Judged, str]], seed: int) -> str:
    """Return the section of corrections that are learned on all articles and tested across their folds."""
    body, halved = [], 0
    for name, judged, feature in rows:
        found = learn_correction(of_feature(judged, feature), seed=seed)
        changes = found.comparison.changes
        effects, agreement = changes[f"{feature}_effect"], changes["pearson"]
        before, after = abs(effects.before.value), abs(effects.after.value)
        halved += feature == "length" and after <= before / 2 and agreement.difference.value >= 0
        gain = agreement.difference
        agrees = f"{agreement.before.value:.3f} -> {agreement.after.value:.3f}"
        ends = f"{gain.low:+.3f} to {gain.high:+.3f}" if gain.value else ""
        strength = next(f"{point.strength:g}" for point in found.front if point.chosen)
        body.append([name, judged.criterion, feature, effects.text().rstrip("*"), agrees, ends, strength])
    headings = ("judge", "criterion", "feature", "effect", "Pearson", "95 % interval of the change", "strength")
    lengths = sum(feature == "length" for *_, feature in rows)
    return "\n\n".join(
        [
            "## Learned on all articles, each corrected by a fit on others",
            "What `evalbias correct` gives on the whole file, in ten folds of articles: a summary is corrected by what "
            "the other nine folds tell.",
            markdown(headings, body),
            f"The effect of length is halved or better at no lower Pearson in {halved} of {lengths} rows.",
        ]
    )


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__)
    parser.add_argument("--splits", type=int, default=20)
    args = parser.parse_args()
    rows = [
        (name, judged, feature)
        for feature in COVARIATES
        for name, judged in recorded()
        if effect(judged, feature, judged.answers)[1] < 0.05
    ]
    if args.splits:
        outcomes = [outcome(*row, args.splits, args.seed) for row in rows]
        finish(args, "correction", section(outcomes, args.splits))
    finish(args, "correction", crossed(rows, args.seed), section="all articles")


if __name__ == "__main__":
    main()
