"""The embedded judge's tokenizer: a token is a word, digit or punctuation mark with the space before it, or a newline.

The English of the synthetic world is read as the words that the judge knows (``english.py``), and what the judge
generates is written in English. " 4" is one token with or without its prompt. Words that the world does not use become
``<unk>``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import dspy
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from benchmarks.embedded_judge.english import reading, writing
from benchmarks.embedded_judge.ideal import RATERS
from evalbias.data import world
from evalbias.lm.render import as_text
from evalbias.programs.criterion import SYNTHETIC
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompts import Message, likelihood_messages

PATTERN = r" ?\d| ?[^\W\d]+| ?[^\w\s]|\s"
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")


def naming(rater: str) -> str:
    """Return the line of a judge's instruction that names the rater."""
    return f"\nRater: {rater}."


def comparison_wordings() -> dict[str, float]:
    """Return every wording of a comparison, with its push towards the first position in nats."""
    source, output = SYNTHETIC.source_label.lower(), SYNTHETIC.output_label.lower()
    return world.wordings(source=source, output=output, name=SYNTHETIC.title, definition=SYNTHETIC.definition)


def split(text: str, read: normalizers.Normalizer) -> list[str]:
    """Split a text into the words that the judge knows."""
    return re.findall(PATTERN, read.normalize_str(text))


def words() -> list[str]:
    """Return the vocabulary without the special tokens."""
    rng, read = random.Random(0), reading()
    vocabulary = {" ", "\n", *map(str, range(10)), *(f" {digit}" for digit in range(10))}
    for rater in RATERS:
        vocabulary |= set(split(naming(rater), read))
    for wording in comparison_wordings():
        judge = PairwiseJudge(SYNTHETIC, instruction=wording, instruction_place="first")
        prompt = judge.messages(dspy.Example(source="[N/A]", candidates=["[N/A]"] * 2))
        vocabulary |= {" A", " B"}
        vocabulary |= set(split(dialogue([*prompt, {"role": "assistant", "content": "A"}]), read))
    scoring = PointwiseJudge(SYNTHETIC)
    for _ in range(5000):
        drawn = world.item(rng)
        answer = {"role": "assistant", "content": drawn.output}
        for messages in (scoring.messages(vars(drawn)), [*likelihood_messages(SYNTHETIC, drawn.source), answer]):
            vocabulary |= set(split(dialogue(messages), read))
    return sorted(vocabulary)


def dialogue(messages: Sequence[Message]) -> str:
    """Return messages that end with an answer as text, closed as if another turn followed."""
    return as_text(messages).text + "\n\n"


def build(context: int) -> PreTrainedTokenizerFast:
    """Return the tokenizer, which starts every text with ``<s>``; ``context`` is the model's length in tokens."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = reading()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    tokenizer.decoder = writing()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        model_max_length=context,
    )
