"""The embedded judge's tokenizer: one token a word, a line break or a mark; blanks are not tokens."""

from __future__ import annotations

import random
import re

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from evalbias.data import world
from evalbias.programs.criteria import SYNTHETIC
from evalbias.programs.prompt import judge_messages, likelihood_messages

PATTERN = r"\n|\w+|[^\w\s]"
RATERS = ("stern", "cool", "mild", "warm", "fond")
"""Words that name a rater in some training episodes, by fifths of the taste."""


def words() -> list[str]:
    """The vocabulary without the special tokens."""
    rng = random.Random(0)
    found = {*RATERS, "rater", "Rater", "\n", *map(str, range(10))}
    for _ in range(5000):
        drawn = world.item(rng)
        messages = judge_messages(SYNTHETIC, drawn.source, drawn.output)
        messages += likelihood_messages(SYNTHETIC, drawn.source)
        for message in messages:
            found |= set(re.findall(PATTERN, message["content"]))
    return sorted(found)


def build(context: int) -> PreTrainedTokenizerFast:
    """A tokenizer that adds ``<s>`` in front, for a model of that context length."""
    vocabulary = {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), behavior="removed", invert=True)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=context,
    )
