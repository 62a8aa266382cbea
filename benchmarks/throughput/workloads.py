"""What is asked: judge prompts as the package writes them, of real texts, and a model of random weights to answer."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from evalbias import data
from evalbias.data import pairs as make_pairs
from evalbias.data.wordings import GENERAL
from evalbias.lm.types import Prompt
from evalbias.programs.criteria import NEWSROOM, WEBNLG
from evalbias.programs.prompt import comparison_messages, judge_messages, likelihood_messages

SHOTS = 8
INSTRUCTIONS = 5
"""In a population."""


@dataclass(frozen=True)
class Workload:
    """Prompts, each with the texts whose log-probability is asked behind it.

    Attributes:
        name: For the table.
        prompts: As text: the judge is a base model.
        choices: Of each prompt; a likelihood has one.
    """

    name: str
    prompts: list[Prompt]
    choices: list[tuple[str, ...]]


def pointwise(folder: Path, n: int) -> Workload:
    """Eight rated WebNLG items before each of n others."""
    items = data.load("webnlg2020", folder / "upstream/webnlg-challenge-2020")
    criterion = next(c for c in WEBNLG if c.name == "fluency")
    demos = [(e.source, e.output, str(1 + k % 5)) for k, e in enumerate(items[:SHOTS])]
    found: list[Prompt] = [judge_messages(criterion, e.source, e.output, demos=demos) for e in items[SHOTS : SHOTS + n]]
    return Workload(f"{SHOTS}-shot pointwise, WebNLG", found, [criterion.labels] * n)


def population(folder: Path, n: int, *, last: bool = True) -> Workload:
    """Newsroom pairs under each instruction of a population, n prompts in all, pair by pair as ZEPO asks them."""
    items = data.load("newsroom", folder / "upstream/newsroom.json")
    criterion = NEWSROOM[0]
    wordings = [" ".join(parts) for parts in itertools.islice(itertools.product(*GENERAL), 0, None, 7)][:INSTRUCTIONS]
    told = {"source": "article", "output": "summary", "name": criterion.title, "definition": criterion.definition}
    pairs = make_pairs(items, inputs=max(1, n // 100), limit=-(-n // INSTRUCTIONS), seed=0)
    found: list[Prompt] = [
        comparison_messages(
            criterion,
            pair.source,
            list(pair.candidates),
            labels=("A", "B"),
            instructions=wording.format(**told),
            last=last,
        )
        for pair in pairs
        for wording in wordings
    ]
    place = "last" if last else "first"
    return Workload(f"ZEPO population, Newsroom pairs, instruction {place}", found[:n], [("A", "B")] * n)


def paper_order(folder: Path, n: int) -> Workload:
    """The same with the instruction first."""
    return population(folder, n, last=False)


def likelihood(folder: Path, n: int) -> Workload:
    """Every token of n WebNLG outputs after their sources."""
    items = data.load("webnlg2020", folder / "upstream/webnlg-challenge-2020")[:n]
    criterion = WEBNLG[0]
    found: list[Prompt] = [likelihood_messages(criterion, e.source) for e in items]
    return Workload("continuation likelihood, WebNLG", found, [(e.output,) for e in items])


WORKLOADS = {
    "pointwise": pointwise,
    "population": population,
    "population-first": paper_order,
    "likelihood": likelihood,
}


def model(folder: Path, *, hidden: int, layers: int, vocabulary: int, save_to: Path) -> Path:
    """A Llama of random weights with a tokenizer of the texts' own: speed does not need trained weights."""
    items = data.load("webnlg2020", folder / "upstream/webnlg-challenge-2020")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=8192, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((f"{e.source}\n{e.output}" for e in items), trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(save_to)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=int(hidden * 8 / 3) // 32 * 32,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        max_position_embeddings=8192,
    )
    LlamaForCausalLM(config).save_pretrained(save_to)
    return save_to
