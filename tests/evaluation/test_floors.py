"""What a judge's agreement with people must surpass."""

from dataclasses import replace

import numpy as np
from planted import compared, scored

from evalbias.evaluation.agreement import PeopleAgreement
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.estimates import measure
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, Judged
from evalbias.report.sections import sections


def said(judged):
    return PeopleAgreement().caution(measure(PeopleAgreement(), judged, seed=0, n_resamples=50), seed=0)


def test_a_judge_that_reads_the_text_surpasses_them_and_a_judge_of_noise_does_not():
    rng = np.random.default_rng(0)
    good = scored(rng, 200, raters=3, error=0.2)
    assert said(good) == ""
    noise = replace(good, answers=rng.normal(3, 1, 200))
    agreement = measure(PeopleAgreement(), noise, seed=0, n_resamples=50)
    own, likelihood, length = (agreement[name].text() for name in ("spearman", "likelihood_floor", "length_floor"))
    assert said(noise) == (
        "The judge is not shown to agree with people better than always preferring the likelier or the longer output "
        f"would: Spearman {own} against {likelihood} and {length}."
    )
    short = replace(noise, covariates={**noise.covariates, LENGTHS: -noise.covariates[LENGTHS]})
    assert "the likelier or the shorter output" in said(short)
    only = {name: column for name, column in noise.covariates.items() if name not in (LENGTHS, LIKELIHOODS)}
    assert said(replace(noise, covariates=only)) == ""


def test_a_copy_of_the_floor_does_not_surpass_it():
    judged = scored(np.random.default_rng(1), 300, raters=3)
    copy = replace(judged, answers=judged.covariates[LENGTHS])
    assert "preferring the longer output would" in said(replace(copy, covariates=_without(copy, LIKELIHOODS)))


def test_pairs_count_with_the_mean_over_the_orders():
    pairs = compared(np.random.default_rng(2), 300, raters=3)
    assert said(replace(pairs, covariates=_without(pairs, LENGTHS, LIKELIHOODS))) == ""
    first = np.zeros_like(pairs.answers)
    first[:, :, 0] = 1.0  # the first position wins in both orders
    found = said(replace(pairs, answers=first))
    assert found.startswith("The judge is not shown to agree with people better than always preferring the likelier or")
    assert " would: accuracy 0.50 against 0." in found


def test_nothing_is_said_where_nothing_can_be_compared():
    nobody = Judged(("a", "b"), "q", np.array([1.0, 2.0]), {HUMAN_SCORES: np.full(2, np.nan), LENGTHS: np.ones(2)})
    assert said(nobody) == ""


def test_the_audit_and_its_report_say_it():
    rng = np.random.default_rng(3)
    judged = scored(rng, 200, raters=3)
    found = audit_answers(replace(judged, answers=rng.normal(3, 1, 200)))
    assert found.caution in found.paragraphs
    assert found.caution.startswith("The judge is not shown to agree with people better than")
    (section,) = [one for one in sections(found) if one.title == "Agreement with people"]
    assert section.remark == found.caution
    good = audit_answers(scored(rng, 200, raters=3, error=0.2))
    assert good.caution == ""
    assert "not shown to agree" not in good.verdict


def _without(judged, *names):
    return {name: column for name, column in judged.covariates.items() if name not in names}
