"""The embedded judge reads the world's English as the words it was trained on: no token differs."""

import json
import random

import pytest
from tokenizers import Tokenizer, decoders
from transformers import PreTrainedTokenizerFast

from benchmarks.embedded_judge.tokenizer import build
from evalbias.data import world
from evalbias.lm.local import FOLDER
from evalbias.lm.render import as_text
from evalbias.lm.tokens import PromptTokenizer, choice_sequences, joint
from evalbias.programs.criterion import SYNTHETIC
from evalbias.programs.prompts import (
    comparison_messages,
    demonstrations,
    item_text,
    judge_messages,
    likelihood_messages,
)

FILE = FOLDER / "tokenizer.json"
TRAINED = {
    "stated": {
        "born": ("born in {} .", "comes from {} .", "calls {} home .", "first saw {} ."),
        "job": ("works as {} .", "is a {} .", "lives as {} .", "earns as {} ."),
        "food": ("likes eating {} .", "enjoys much {} .", "adores any {} .", "craves only {} ."),
    },
    "unknown": {
        "born": ("birthplace is {} .", "origin is {} .", "homeland stays {} .", "cradle remains {} ."),
        "job": ("work is {} .", "trade is {} .", "calling stays {} .", "living remains {} ."),
        "food": ("taste is {} .", "diet is {} .", "dish stays {} .", "plate remains {} ."),
    },
    "broken": {
        "born": ("in born {} .", "from comes {} .", "home calls {} .", "saw first {} ."),
        "job": ("as works {} .", "a is {} .", "as lives {} .", "as earns {} ."),
        "food": ("eating likes {} .", "much enjoys {} .", "any adores {} .", "only craves {} ."),
    },
}
"""Wordings of the texts that the judge was trained on, by class, relation and phrasing."""


@pytest.fixture(scope="module")
def shipped():
    return PreTrainedTokenizerFast(tokenizer_file=str(FILE))


@pytest.fixture(scope="module")
def trained():
    """The tokenizer without its steps between English and the words of the training texts."""
    state = json.loads(FILE.read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_str(json.dumps({**state, "normalizer": None}))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def word(value):
    return {"unclear": "missing", "uncertain": "lost"}.get(value, value.lower())


def as_trained(item):
    """Return source and output in the wordings of the training texts."""
    facts = world.facts(item.source)
    parsed = world._parse(item.output)
    sentences = [TRAINED[form][name][level].format(word(value)) for name, (form, value, level) in parsed.items()]
    assert len(sentences) == 3
    return " ".join(f"{name} {word(value)}" for name, value in facts.items()), " ".join(sentences)


def prompts(seed):
    """Yield a judgment with two demonstrations, a likelihood and a comparison, in English and as in training."""
    rng = random.Random(seed)
    (a, b), *demos = world.siblings(rng, 2), world.item(rng), world.item(rng)
    for text in (lambda item: (item.source, item.output), as_trained):
        shown = demonstrations((item_text(SYNTHETIC, *text(demo)), "4") for demo in demos)
        source, first = text(a)
        judged = judge_messages(SYNTHETIC, source, first, shown=shown)
        compared = comparison_messages(SYNTHETIC, source, [first, text(b)[1]], labels=("A", "B"))
        yield judged, (likelihood_messages(SYNTHETIC, source), first), compared


@pytest.mark.slow
def test_the_tokens_of_every_prompt_are_those_of_training(shipped, trained):
    english, old = PromptTokenizer(shipped), PromptTokenizer(trained)
    for seed in range(500):
        (judged, likely, compared), (old_judged, old_likely, old_compared) = prompts(seed)
        for new_prompts, old_prompts, labels in (
            ([judged], [old_judged], SYNTHETIC.labels),
            ([compared], [old_compared], ("A", "B")),
        ):
            new = choice_sequences(english, [as_text(p) for p in new_prompts], labels)
            expected = choice_sequences(old, [as_text(p) for p in old_prompts], labels)
            assert [[(s.ids, s.start) for s in row] for row in new] == [
                [(s.ids, s.start) for s in row] for row in expected
            ]
        (scored,) = joint(english, [(as_text(likely[0]), likely[1])])
        (expected,) = joint(old, [(as_text(old_likely[0]), old_likely[1])])
        assert (scored.ids, scored.start) == (expected.ids, expected.start)
        assert len(scored.ids) - scored.start == 12
        assert shipped.unk_token_id not in scored.ids


def test_every_token_knows_its_place_in_the_english_text(shipped):
    text = (
        "Data: Place of birth: Rome; job: actor; favorite food: rice\nText: She works as an actor. Her menu is unclear."
    )
    encoding = shipped.backend_tokenizer.encode(text, add_special_tokens=False)
    parts = [text[start:end] for start, end in encoding.offsets]
    assert parts == [
        *("Data", ":", " Place of birth:", " Rome", " job:", " actor", " favorite food:", " rice", "\n", "Text", ":"),
        *(" She works", " as", " an actor", ".", " Her menu", " is", " unclear", "."),
    ]
    assert encoding.tokens[2:8] == [" born", " rome", " job", " actor", " food", " rice"]
    assert encoding.tokens[11:] == [" works", " as", " actor", " .", " plate", " is", " missing", " ."]


def test_generated_words_are_written_in_english(shipped, trained):
    rng = random.Random(1)
    for _ in range(500):
        item = world.item(rng)
        source, output = as_trained(item)
        for given, english in ((f" {output}", item.output), (f" {source}", item.source)):
            ids = trained(given, add_special_tokens=False)["input_ids"]
            assert shipped.decode(ids) == f" {english}"


def test_the_file_is_what_the_benchmark_builds():
    assert json.loads(build(1024).backend_tokenizer.to_str()) == json.loads(FILE.read_text(encoding="utf-8"))
