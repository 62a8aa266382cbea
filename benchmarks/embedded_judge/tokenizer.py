"""The embedded judge's tokenizer: a token is a word, a digit or a mark with the blank before it, or a line break.

Nothing is lost: joining the tokens gives the text back, and " 4" is one token whether it is read with its prompt or
not. Words the world does not use are ``<unk>``.
"""

from __future__ import annotations

import random
import re

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from evalbias.data import wordings, world
from evalbias.lm.text import dialogue
from evalbias.programs.criteria import SYNTHETIC
from evalbias.programs.pairwise import CONTENT_FREE
from evalbias.programs.prompt import comparison_messages, judge_messages, likelihood_messages

PATTERN = r" ?\d| ?[^\W\d]+| ?[^\w\s]|\s"
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")


def naming(rater: str) -> str:
    """What is added to a judge's instruction to name the rater."""
    return f"\nRater: {rater}."


def comparison_wordings() -> dict[str, float]:
    """Every wording of a comparison and its push towards the first position."""
    source, output = SYNTHETIC.source_label.lower(), SYNTHETIC.output_label.lower()
    return wordings.wordings(source=source, output=output, name=SYNTHETIC.title, definition=SYNTHETIC.definition)


def words() -> list[str]:
    """The vocabulary without the special tokens."""
    rng = random.Random(0)
    found = {" ", "\n", *map(str, range(10)), *(f" {digit}" for digit in range(10))}
    for rater in world.RATERS:
        found |= set(re.findall(PATTERN, naming(rater)))
    for wording in comparison_wordings():
        prompt = comparison_messages(
            SYNTHETIC, CONTENT_FREE, [CONTENT_FREE] * 2, labels=("A", "B"), instructions=wording
        )
        found |= {" A", " B"} | set(re.findall(PATTERN, dialogue([*prompt, {"role": "assistant", "content": "A"}])))
    for _ in range(5000):
        drawn = world.item(rng)
        answer = {"role": "assistant", "content": drawn.output}
        for messages in (
            judge_messages(SYNTHETIC, drawn.source, drawn.output),
            [*likelihood_messages(SYNTHETIC, drawn.source), answer],
        ):
            found |= set(re.findall(PATTERN, dialogue(messages)))
    return sorted(found)


def build(context: int) -> PreTrainedTokenizerFast:
    """A tokenizer that adds ``<s>`` in front, for a model of that context length."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
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
