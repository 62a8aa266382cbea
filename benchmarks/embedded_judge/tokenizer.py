"""The embedded judge's tokenizer: a token is a word, digit or punctuation mark with the space before it, or a newline.

Joining the tokens restores the text, and " 4" is one token with or without its prompt. Words that the synthetic world
does not use become ``<unk>``.
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
    """Return the line of a judge's instruction that names the rater."""
    return f"\nRater: {rater}."


def comparison_wordings() -> dict[str, float]:
    """Return every wording of a comparison, with its push towards the first position in nats."""
    source, output = SYNTHETIC.source_label.lower(), SYNTHETIC.output_label.lower()
    return wordings.wordings(source=source, output=output, name=SYNTHETIC.title, definition=SYNTHETIC.definition)


def words() -> list[str]:
    """Return the vocabulary without the special tokens."""
    rng = random.Random(0)
    vocabulary = {" ", "\n", *map(str, range(10)), *(f" {digit}" for digit in range(10))}
    for rater in world.RATERS:
        vocabulary |= set(re.findall(PATTERN, naming(rater)))
    for wording in comparison_wordings():
        prompt = comparison_messages(
            SYNTHETIC, CONTENT_FREE, [CONTENT_FREE] * 2, labels=("A", "B"), instructions=wording
        )
        vocabulary |= {" A", " B"}
        vocabulary |= set(re.findall(PATTERN, dialogue([*prompt, {"role": "assistant", "content": "A"}])))
    for _ in range(5000):
        drawn = world.item(rng)
        answer = {"role": "assistant", "content": drawn.output}
        for messages in (
            judge_messages(SYNTHETIC, drawn.source, drawn.output),
            [*likelihood_messages(SYNTHETIC, drawn.source), answer],
        ):
            vocabulary |= set(re.findall(PATTERN, dialogue(messages)))
    return sorted(vocabulary)


def build(context: int) -> PreTrainedTokenizerFast:
    """Return the tokenizer, which starts every text with ``<s>``; ``context`` is the model's length in tokens."""
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
