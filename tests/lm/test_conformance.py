"""Every kind of model answers the same questions alike: a local one, a server, any ``dspy.LM``, and wrappers."""

import dspy
import numpy as np
import pytest
from fake_server import served
from fakes import outcome

from evalbias.lm.cache import CachedLM, as_measuring
from evalbias.lm.types import Choices, Likelihood, PromptRefused, PromptTooLong, Text

CHOICES = ("1", "2", "10")
PROMPTS = [[{"role": "user", "content": f"the {word} sat on"}] for word in ("cat", "mat", "naïve café")]
LONG = [{"role": "user", "content": "the cat sat on the mat " * 60}]
ASKED = [Choices(prompt, CHOICES) for prompt in PROMPTS]
LIKELY = [Likelihood(prompt, text) for prompt, text in zip(PROMPTS, (" the mat", " 日本", " 4"), strict=True)]
TEXTS = [Text(prompt, 4, temperature=0.0) for prompt in PROMPTS]
DRAWN = [Text(prompt, 4, temperature=1.0, seed=seed) for seed, prompt in enumerate(PROMPTS)]
LIKELIHOODS = {"local", "cached", "cached, in memory", "server"}


def through_dspy(lm):
    return dspy.LM("test/local", engine=lm.engine, cache=False)


KINDS = {"local": lambda lm, _: lm, "any dspy.LM": lambda lm, _: through_dspy(lm)}
KINDS |= {"cached": lambda lm, folder: CachedLM(lm, folder / "answers.jsonl")}
KINDS |= {"cached, of a dspy.LM": lambda lm, folder: CachedLM(through_dspy(lm), folder / "answers.jsonl", chunk=2)}
KINDS |= {"cached, in memory": lambda lm, _: CachedLM(lm)}


@pytest.fixture(scope="module", params=[*KINDS, "server"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def local(lms):
    return lms["qwen2-chat"]


@pytest.fixture(scope="module")
def lm(kind, local, tmp_path_factory):
    if kind != "server":
        yield as_measuring(KINDS[kind](local, tmp_path_factory.mktemp("model")))
        return
    with served(local) as (server, _):
        yield server


def totals(answers):
    return np.concatenate([answers[place].logprobs for place in sorted(answers)])


def test_choices_have_the_models_probabilities_in_any_company(lm, local):
    truth = local.choice_logprobs(PROMPTS, CHOICES)
    together, refused, ended = outcome(lm, ASKED)
    assert (refused, ended) == ({}, None)
    np.testing.assert_allclose(totals(together), truth.logprobs, atol=1e-4)
    for place, question in enumerate(ASKED):
        alone = outcome(lm, [question])[0][0]
        assert (alone.choices, alone.renormalized, alone.samples) == (CHOICES, False, None)
        np.testing.assert_allclose(alone.logprobs, truth.logprobs[place : place + 1], atol=1e-4)
    backwards = outcome(lm, [*ASKED[::-1], ASKED[0]])[0]
    np.testing.assert_allclose(totals(backwards), truth.logprobs[[2, 1, 0, 0]], atol=1e-4)
    np.testing.assert_allclose(lm.choice_logprobs(PROMPTS, list(CHOICES)).coverage, truth.coverage, atol=1e-4)


def test_likelihoods_are_the_models_or_refused_with_the_way_out(lm, kind, local):
    if kind not in LIKELIHOODS:
        with pytest.raises(NotImplementedError, match="likelihood_lm"):
            lm.answer(LIKELY, {})
        return
    pairs = [(q.context, q.continuation) for q in LIKELY]
    for found, truth in zip(lm.loglikelihood(pairs), local.loglikelihood(pairs), strict=True):
        np.testing.assert_allclose(found.per_token, truth.per_token, atol=1e-4)


def test_texts_are_the_models_and_draws_repeat_with_their_seed(lm, kind, local):
    assert lm.texts(PROMPTS, max_tokens=4) == local.texts(PROMPTS, max_tokens=4)
    drawn = [answer.text for answer in outcome(lm, DRAWN)[0].values()]
    if kind == "server":
        return  # the fake one always takes the most probable token
    assert drawn == [answer.text for answer in outcome(local, DRAWN)[0].values()]
    assert drawn == [answer.text for answer in outcome(lm, DRAWN)[0].values()]


def test_a_text_is_written_after_as_if_a_user_had_said_it(local):
    said = [{"role": "user", "content": "the cat sat"}]
    assert local.texts(["the cat sat"], max_tokens=4) == local.texts([said], max_tokens=4)
    assert as_measuring(through_dspy(local)).texts(["the cat sat"], max_tokens=4) == local.texts([said], max_tokens=4)


def test_a_prompt_that_is_too_long_costs_no_other(lm, kind, local):
    answers, refused, ended = outcome(lm, [ASKED[0], Choices(LONG, CHOICES), ASKED[2]])
    assert (list(answers), list(refused), ended) == ([0, 2], [1], None)
    assert "context is 256" in refused[1]
    np.testing.assert_allclose(totals(answers), local.choice_logprobs(PROMPTS, CHOICES).logprobs[[0, 2]], atol=1e-4)
    with pytest.raises(PromptTooLong, match=r"^Text 1 of the call has \d+ tokens"):
        lm.choice_logprobs([PROMPTS[0], LONG], CHOICES)
    answers, refused, _ = outcome(lm, [TEXTS[0], Text(LONG, 4, temperature=0.0)])
    assert (list(answers), list(refused)) == ([0], [1])
    if kind in LIKELIHOODS:
        answers, refused, _ = outcome(lm, [Likelihood(LONG, " mat"), LIKELY[0]])
        assert (list(answers), list(refused)) == ([1], [0])


def test_questions_of_several_kinds_are_one_call(lm, kind, local):
    asked = [ASKED[0], TEXTS[1], *(LIKELY[2:] if kind in LIKELIHOODS else []), ASKED[1]]
    (answers, _, _), (truth, _, _) = outcome(lm, asked), outcome(local, asked)
    assert [type(answer) for answer in answers.values()] == [type(answer) for answer in truth.values()]
    np.testing.assert_allclose(answers[len(asked) - 1].logprobs, truth[len(asked) - 1].logprobs, atol=1e-4)


def test_what_cannot_be_asked_is_said_at_once(lm, kind):
    assert (lm.choice_logprobs([], CHOICES).logprobs.shape, lm.loglikelihood([])) == ((0, 3), [])
    assert outcome(lm, []) == ({}, {}, None)
    with pytest.raises(ValueError, match=r"The prompts are the text 'the cat': give a list"):
        lm.choice_logprobs("the cat", CHOICES)
    with pytest.raises(ValueError, match=r"Text 1 of the call is 'a text': give a pair"):
        lm.loglikelihood([("a", "b"), "a text"])
    if kind in ("local", "cached", "cached, in memory", "server"):
        for choices, match in (((), "no choices"), (("1", "1"), "repeat"), (("1", ""), "is empty")):
            with pytest.raises(ValueError, match=match) as raised:
                lm.choice_logprobs(PROMPTS, choices)
            assert not isinstance(raised.value, PromptRefused)
