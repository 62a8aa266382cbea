"""Workloads: judge prompts of the package on real texts, and a model with random weights that answers them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks import sets
from benchmarks.align import CODE, snippets
from evalbias.data import pairs as make_pairs
from evalbias.data.world import GENERAL
from evalbias.lm.types import Prompt
from evalbias.programs.criterion import PRESETS, Criterion
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompts import likelihood_messages

SHOTS = 8
INSTRUCTIONS = 5
"""Number of instructions in a population."""


@dataclass(frozen=True)
class Workload:
    """Prompts, each with the texts whose log-probability is measured after it."""

    name: str  # name in the table
    prompts: list[Prompt]  # prompts as messages
    choices: list[tuple[str, ...]]  # texts after each prompt; one text for a likelihood


def pointwise(n: int) -> Workload:
    """Return n WebNLG items as prompts, with eight rated items before each."""
    items = sets.read("webnlg2020")
    criterion = next(c for c in PRESETS["webnlg2020"] if c.name == "fluency")
    judge = PointwiseJudge(criterion)
    judge.predict.demos = [e.copy(score=1 + k % 5) for k, e in enumerate(items[:SHOTS])]
    prompts: list[Prompt] = [judge.messages(e) for e in items[SHOTS : SHOTS + n]]
    return Workload(f"{SHOTS}-shot pointwise, WebNLG", prompts, [criterion.labels] * n)


def population(n: int, *, last: bool = True) -> Workload:
    """Return n prompts: Newsroom pairs under each instruction of a population, pair by pair as in ZEPO."""
    items = sets.read("newsroom")
    criterion = PRESETS["newsroom"][0]
    wordings = [" ".join(parts) for parts in itertools.islice(itertools.product(*GENERAL), 0, None, 7)][:INSTRUCTIONS]
    names = {"source": "article", "output": "summary", "name": criterion.title, "definition": criterion.definition}
    pairs = make_pairs(items, inputs=max(1, n // 100), limit=-(-n // INSTRUCTIONS), seed=0)
    texts = [wording.format(**names) for wording in wordings]
    place = "last" if last else "first"
    judges = [PairwiseJudge(criterion, instruction=text, instruction_place=place) for text in texts]
    prompts: list[Prompt] = [judge.messages(e) for e in pairs for judge in judges]
    return Workload(f"ZEPO population, Newsroom pairs, instruction {place}", prompts[:n], [("A", "B")] * n)


def population_first(n: int) -> Workload:
    """Return the same population with the instruction before each pair."""
    return population(n, last=False)


def likelihood(n: int) -> Workload:
    """Return n WebNLG outputs, whose tokens are all measured after their sources."""
    items = sets.read("webnlg2020")[:n]
    criterion = PRESETS["webnlg2020"][0]
    prompts: list[Prompt] = [likelihood_messages(criterion, e.source) for e in items]
    return Workload("continuation likelihood, WebNLG", prompts, [(e.output,) for e in items])


def summaries(n: int) -> Workload:
    """Return n of SummEval's summaries, of which twelve are measured after each article, as in an audit."""
    items = sorted(sets.judged_summaries(), key=lambda r: str(r["input_id"]))[:n]
    criterion = sets.SUMMARIES[0]
    prompts: list[Prompt] = [likelihood_messages(criterion, r["source"]) for r in items]
    return Workload("likelihood, SummEval summaries", prompts, [(r["output"],) for r in items])


def llmbar(n: int) -> Workload:
    """Return n prompts: LLMBar's pairs, each in both orders."""
    items = sets.read("llmbar")
    criterion = Criterion("quality", "How well does the output carry out the instruction?")
    judge = PairwiseJudge(criterion, instruction_place="first")
    prompts: list[Prompt] = [
        judge.messages({"source": pair.source, "candidates": order})
        for pair in items[: -(-n // 2)]
        for order in (list(pair.candidates), list(pair.candidates)[::-1])
    ]
    return Workload("LLMBar pairs, both orders", prompts[:n], [("A", "B")] * n)


def conala(n: int) -> Workload:
    """Return n snippets of code, which are scored as an audit scores them."""
    judge, problems = PointwiseJudge(CODE), -(-n // 2)
    prompts: list[Prompt] = [judge.messages(item) for item in snippets(0, problems, problems)[1][:n]]
    return Workload("code scored, CoNaLa", prompts, [CODE.labels] * n)


WORKLOADS = {
    workload.__name__.replace("_", "-"): workload
    for workload in (pointwise, population, population_first, likelihood, summaries, llmbar, conala)
}


def model(*, hidden: int, layers: int, vocabulary: int, save_to: Path) -> Path:
    """Save a Llama with random weights and a tokenizer trained on the texts; speed needs no trained weights."""
    items = sets.read("webnlg2020")
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
