"""The embedded judge reads the world's English as the words it was trained on."""

import json
import random

import pytest
from transformers import PreTrainedTokenizerFast

from benchmarks.embedded_judge.tokenizer import build
from evalbias.data import world
from evalbias.lm.local import FOLDER
from evalbias.lm.render import as_text
from evalbias.lm.tokens import PromptTokenizer, joint
from evalbias.programs.criterion import SYNTHETIC
from evalbias.programs.prompts import likelihood_messages

FILE = FOLDER / "tokenizer.json"


@pytest.fixture(scope="module")
def shipped():
    return PreTrainedTokenizerFast(tokenizer_file=str(FILE))


def test_the_file_is_what_the_benchmark_builds():
    assert json.loads(build(1024).backend_tokenizer.to_str()) == json.loads(FILE.read_text(encoding="utf-8"))


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


def test_every_wording_is_known_has_the_length_of_the_training_texts_and_is_written_as_it_was_read(shipped):
    """Four tokens a sentence, none of them unknown: so neither length nor spelling tells the quality."""
    rng, tokenizer = random.Random(1), PromptTokenizer(shipped)
    for _ in range(500):
        item = world.item(rng)
        (scored,) = joint(tokenizer, [(as_text(likelihood_messages(SYNTHETIC, item.source)), item.output)])
        assert len(scored.ids) - scored.start == 12
        assert shipped.unk_token_id not in scored.ids
        for text in (item.source, item.output):
            assert shipped.decode(shipped(f" {text}", add_special_tokens=False)["input_ids"]) == f" {text}"
