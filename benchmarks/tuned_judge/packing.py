"""Many prompts as one row: prefixes that prompts share run through the model once, forwards and backwards.

The row is the engine's token trie (``evalbias.lm.tree``): every token attends to its ancestors and itself, at its own
position, so that the hidden state of a prompt's last token is the same as in a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from benchmarks.tuned_judge.questions import Question
from evalbias.lm.local import LocalEngine
from evalbias.lm.score import decoder
from evalbias.lm.tokens import Scored, choice_sequences
from evalbias.lm.tree import Rows, packs


@dataclass(frozen=True)
class Packed:
    """The trie of n prompts, T tokens."""

    ids: Tensor  # (T,) tokens
    positions: Tensor  # (T,) position of each token in its prompts
    sees: Tensor  # (T, T) whether a token attends to another
    last: list[int]  # (n,) place of each prompt's last token
    answers: list[dict[int, float]]  # for each prompt, the token of every answer -> its share in the target


def pack(engine: LocalEngine, questions: Sequence[Question]) -> Packed:
    """Tokenize questions as the engine does when it judges, and merge their common prefixes.

    Raises:
        ValueError: A label of a question is more than one token.
    """
    prompts, answers = [], []
    for question in questions:
        (choices,) = choice_sequences(engine.tokenizer, [engine.render(question.messages)], question.labels)
        if any(len(choice.ids) != choice.start + 1 for choice in choices):
            raise ValueError(f"The labels {question.labels} are not single tokens of this model: use another model.")
        shares = [question.target.get(label, 0.0) for label in question.labels]
        answers.append({choice.ids[-1]: share for choice, share in zip(choices, shares, strict=True)})
        prompts.append(choices[0].ids[:-1])
    order = sorted(set(prompts))
    rows = Rows([Scored((*row, 0), len(row)) for row in order])  # the hidden state of the last token is needed
    (trie,) = packs(rows, rows.tokens, {})
    places = np.arange(len(trie.ids))
    sees = (places <= places[:, None]) & (places[:, None] < trie.ends)
    last = {order[row]: place for place, _, row in trie.reads.tolist()}
    return Packed(
        torch.from_numpy(trie.ids),
        torch.from_numpy(trie.positions),
        torch.from_numpy(sees),
        [last[prompt] for prompt in prompts],
        answers,
    )


def answer_losses(model: torch.nn.Module, packed: Packed) -> Tensor:
    """Return the cross-entropy in nats of each answer, (n,), over the whole vocabulary.

    A judge that puts probability on other tokens than the labels is thus taught to answer with a label.
    """
    hidden = decoder(model)(
        input_ids=packed.ids[None],
        position_ids=packed.positions[None],
        attention_mask=packed.sees[None, None],
        use_cache=False,
    ).last_hidden_state[0, packed.last]  # (n, d)
    head: Any = model.get_output_embeddings
    logprobs = log_softmax(head()(hidden).float(), dim=-1)  # (n, V)
    return torch.stack(
        [
            -torch.stack([share * row[token] for token, share in answer.items()]).sum()
            for row, answer in zip(logprobs, packed.answers, strict=True)
        ]
    )
