"""The words of the demo follow its numbers, whatever these are."""

import dspy
import numpy as np
from planted import compared, scored

from evalbias.evaluation import Judged, compare, measure
from evalbias.evaluation.audit import AGREEMENT
from evalbias.evaluation.biases import Likelihood, Position
from evalbias.evaluation.judged import HUMAN_SCORES
from evalbias.evaluation.rankings import Row
from evalbias.programs import Criterion
from evalbias.report.demo import conclusion, introduction


def concluded(likelihood, first):
    """Return the conclusion about judges with planted biases, (before, after) each."""
    judged = [scored(np.random.default_rng(0), 300, likelihood=one) for one in likelihood]
    change = compare(*(measure(Likelihood(), one, seed=0) for one in judged), n_resamples=999, seed=0)
    places = [compared(np.random.default_rng(1), 200, first=one) for one in first]
    rows = {
        title: Row({"position": measure(Position(), one, seed=0)}, {AGREEMENT: {"spearman": change["performance"]}})
        for title, one in zip(("initial", "searched"), places, strict=True)
    }
    return conclusion(change, rows), change


def test_a_bias_that_is_compiled_away():
    text, change = concluded(likelihood=(2.0, 0.0), first=(1.5, 0.0))
    effect, performance = change["likelihood_effect"], change["performance"]
    wording, place = text.split("\n")
    assert wording == (
        f"In short: the given judge overrates likely wording (effect {effect.before.text()}, 95 % interval "
        f"{effect.before.interval}). The compiled judge shows no likelihood bias ({effect.after.text()}, 95 % interval "
        f"{effect.after.interval}), and its agreement with people rose significantly, from {performance.before.text()} "
        f"to {performance.after.text()}."
    )
    assert ": biased towards the first. Under the searched question" in place
    assert ": no bias shown, and the agreement of its rankings" in place


def test_a_bias_that_compiling_brings_in():
    text, _ = concluded(likelihood=(0.0, -1.0), first=(0.0, -1.5))
    assert "the given judge shows no likelihood bias" in text
    assert "The compiled judge underrates likely wording" in text
    assert "with people fell significantly, from" in text
    assert ": no bias shown. Under the searched question" in text
    assert ": biased towards the second, and" in text


def test_a_judge_that_stays_as_it_was():
    text, change = concluded(likelihood=(1.0, 1.0), first=(1.5, 1.5))
    shown = change["performance"].before.text()
    assert text.count("overrates likely wording") == 2
    assert f"with people did not change significantly ({shown}, then {shown})" in text


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
