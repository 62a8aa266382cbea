"""The words of the demo follow its numbers, whatever these are."""

import dspy
import numpy as np
import pytest
from planted import compared, scored

from evalbias.cli.demo import conclusion, introduction
from evalbias.evaluation import Judged, compare, measure
from evalbias.evaluation.audit import AGREEMENT
from evalbias.evaluation.biases import Likelihood, Position
from evalbias.evaluation.judged import HUMAN_SCORES
from evalbias.evaluation.rankings import Row
from evalbias.programs import Criterion


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "first", "words"),
    [
        (
            (2.0, 0.0),
            (1.5, 0.0),
            "given judge overrates likely wording (effect {0}). The compiled judge shows no likelihood bias ({1}), and "
            "its agreement with people rose significantly, from {2} to {3}.|: biased towards the first. Under the "
            "searched question|: no bias shown, and the agreement of its rankings",
        ),
        (
            (0.0, -1.0),
            (0.0, -1.5),
            "judge shows no likelihood bias (effect {0}). The compiled judge underrates likely wording ({1}), and "
            "its agreement with people fell significantly, from {2} to {3}.|: no bias shown. Under the searched|"
            ": biased towards the second, and",
        ),
        (
            (1.0, 1.0),
            (1.5, 1.5),
            "compiled judge overrates likely wording ({1}), and its agreement with people did not change significantly "
            "({2}, then {3}).",
        ),
    ],
)
def test_the_conclusion_says_what_became_of_planted_biases(likelihood, first, words):
    judged = [scored(np.random.default_rng(0), 300, likelihood=one) for one in likelihood]
    change = compare(*(measure(Likelihood(), one, seed=0) for one in judged), n_resamples=999, seed=0)
    places = [compared(np.random.default_rng(1), 200, first=one) for one in first]
    rows = {
        title: Row({"position": measure(Position(), one, seed=0)}, {AGREEMENT: {"spearman": change["performance"]}})
        for title, one in zip(("initial", "searched"), places, strict=True)
    }
    effect, performance = change["likelihood_effect"], change["performance"]
    effects = [f"{e.text()}, 95 % interval {e.interval}" for e in (effect.before, effect.after)]
    text = conclusion(change, rows)
    for part in words.format(*effects, performance.before.text(), performance.after.text()).split("|"):
        assert part in text


def test_the_example_is_the_text_that_the_judge_overrates_most():
    examples = [dspy.Example(id=name, source=f"data {name}", output=f"text {name}") for name in "abc"]
    human = {HUMAN_SCORES: np.array([4.0, 2.0, 1.0])}
    before, after = (
        Judged(tuple("abc"), "quality", np.array(scores), human) for scores in ([4.5, 4.25, np.nan], [4, 2.5, 1])
    )
    text = introduction(Criterion("quality", "is it good?"), examples, before, after)
    assert "from 1 to 5: is it good?" in text
    assert "  Source: data b\n  Output: text b\n" in text
    assert text.endswith("  Score from people 2.00, from the judge 4.25, from the compiled judge 2.50.")
