"""Align: how often it replaces a judge without need, what gains it finds, and what it does on a judge of code.

``--simulate`` draws worlds in which the words of the prompt decide how well a judge follows the quality of an output,
with errors that are mostly the item's own under any prompt, as those of real judges are.

``--lm MODEL`` aligns a real judge, which begins with a plain question, on rated outputs of ``--set``, by default code
snippets (ICE, CoNaLa), and measures it on outputs for other inputs. The answers are kept in ``--out``, so a run that
was stopped goes on. ``--bare`` compiles the same judge on the same outputs with DSPy's own optimizers as they are, the
model of the judge (or ``--api-base``, a server of it) writing for them, and measures what each returns on the same
others. ``--alone`` measures each edit and each way to choose demonstrations by itself on the others, for so many draws:
what there is to be found. ``--readings`` does so with the ways to read the scores of one and the same answers.
"""

from __future__ import annotations

import argparse
import re
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import numpy as np

import evalbias
from benchmarks.harness import argument_parser, as_text, finish, keeping_answers, lines, markdown, percents
from evalbias.data.items import input_key
from evalbias.evaluation.judged import HUMAN_SCORES, judge_examples
from evalbias.lm.decisions import ClientLM
from evalbias.lm.types import Answers, ChoiceLogprobs, Choices, MeasuringLM, Question
from evalbias.measures.corrections import fit_line
from evalbias.optimizers import Align, offers
from evalbias.optimizers.base import Problem
from evalbias.optimizers.offers import REASONING, Offer
from evalbias.optimizers.race import reading
from evalbias.optimizers.selection import Candidate
from evalbias.programs.metrics import agreement_feedback, labeled

SNIPPETS = "judges/ice_conala_scores.jsonl.gz"  # code that people graded, below EVALBIAS_DATA
WRITTEN = "judges/seq2seq_scores.jsonl.gz"  # simplifications and corrections that people rated, below EVALBIAS_DATA
EDIT = "point by point"  # words of the edit of the library that helps in the planted worlds
SIDES = ("before", "after")
READ = {"spearman": "Spearman", "pearson": "Pearson", "error": "mean error"}
LONGEST = 400  # tokens of a text that DSPy's optimizers have the model write
OWN = 0.7  # share of the error's variance that is the item's own, whatever the prompt
CRITERION = evalbias.Criterion("merit", "is it any good?")
CODE = evalbias.Criterion(
    "correctness", "is the code correct?", (0, 4), "Write code that solves the problem.", "Problem", "Code"
)
simpler = partial(evalbias.Criterion, task="Simplify the text.", source_label="Text", output_label="Simplified text")
SETS = {
    "CoNaLa": (SNIPPETS, CODE),
    "simplification, meaning": (WRITTEN, simpler("semantics", "is the meaning kept?")),
    "simplification, fluency": (WRITTEN, simpler("fluency", "is the text fluent?")),
    "simplification, simplicity": (WRITTEN, simpler("simplicity", "is the text simple?")),
}
"""Set of outputs that people rated -> its file and the criterion, in the plain words that a judge is asked at first."""


class World(MeasuringLM):
    """A judge whose score is the quality in the text and an error, of which ``noise`` is the standard deviation."""

    model = "world"

    def __init__(self, noise: Callable[[str], float]) -> None:
        self.noise = noise

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        """Set the probabilities of the labels: the nearer to the score, the more probable."""
        for place, question in enumerate(questions):
            if not isinstance(question, Choices):
                raise NotImplementedError("The world reports no likelihoods.")
            text = "\n".join(message["content"] for message in question.prompt if isinstance(message, dict))
            quality = re.findall(r"worth (-?\d+\.\d+)", text)[-1]
            errors = [np.random.default_rng(zlib.crc32(part.encode())).normal() for part in (quality, text)]
            error = self.noise(text) * float(np.dot([OWN**0.5, (1 - OWN) ** 0.5], errors))
            logits = -((np.arange(1, len(question.choices) + 1) - 3 - 0.8 * (float(quality) + error)) ** 2)
            logits = logits - np.logaddexp.reduce(logits)
            answers[place] = ChoiceLogprobs(question.choices, logits[None])


def worded(n: int, seed: int) -> list[dspy.Example]:
    """Draw outputs whose quality stands in them, with one rating each."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    ratings = np.clip(np.round(3 + quality + 0.5 * rng.normal(size=n)), 1, 5)
    return [
        dspy.Example(id=str(i), source=f"s{i}", output=f"text {i} worth {q:.4f}", scores={"merit": float(r)})
        for i, (q, r) in enumerate(zip(quality, ratings, strict=True))
    ]


WORLDS: dict[str, Callable[[str], float]] = {
    "nothing helps": lambda text: 1.2,
    "one edit helps": lambda text: 0.8 if EDIT in text else 1.2,
}


def simulated(labels: int, repeats: int) -> list[list[str]]:
    """Return a row for each world: how often a judge is replaced, and by how much it agrees better on new items."""
    rows = []
    for name, noise in WORLDS.items():
        lm, agreeing, nearer, asked, gains = World(noise), 0, 0, 0, []
        judge, new = evalbias.PointwiseJudge(CRITERION), worded(2_000, 10_000)
        for seed in range(repeats):
            found = Align(seed=seed, learning_curve=False).compile(judge, trainset=worded(labels, seed), lm=lm)
            chosen, decision = bool(found.report.kind), found.report.decision
            agreeing += chosen and "better agreement" in decision
            nearer += chosen and "nearer" in decision
            asked += found.report.cost.judgments
            if seed < 10:
                gains.append(pearson(found, new, lm) - pearson(judge, new, lm))
        replaced = percents(agreeing / repeats, nearer / repeats)
        rows.append([name, str(labels), *replaced, as_text(float(np.mean(gains)), "+.3f"), f"{asked / repeats:,.0f}"])
    return rows


def pearson(judge: Any, items: Sequence[dspy.Example], lm: Any) -> float:
    """Return the correlation with people on items."""
    people = [next(iter(item.scores.values())) for item in items]
    return float(np.corrcoef([answer.score for answer in judge.batch(items, lm=lm)], people)[0, 1])


Side = list[dspy.Example]


def rated(name: str) -> Side:
    """Return the outputs of a set, with people's mean score and ratings."""
    file, criterion = SETS[name]
    rows = [row for row in lines(file) if row.get("task", name) == name.partition(",")[0]]
    items = []
    for row in rows:
        ratings = row["ratings"] if file == SNIPPETS else row["ratings"][criterion.name]
        texts = {field: row[field] for field in ("id", "input_id", "source", "output")}
        people = {"scores": {criterion.name: float(np.mean(ratings))}, "ratings": {criterion.name: ratings}}
        items.append(dspy.Example(**texts, **people))
    return items


def rated_outputs(name: str, seed: int, train: int, test: int) -> tuple[Side, Side]:
    """Draw two outputs of each of so many inputs of a set, on two sides that share no input."""
    return drawn(rated(name), seed, train, test)


def drawn(items: Sequence[dspy.Example], seed: int, train: int, test: int, *, each: int = 2) -> tuple[Side, Side]:
    """Draw outputs of each of so many inputs, on two sides that share no input; empty ones are left out."""
    rng, of = np.random.default_rng(seed), dict[str, Side]()
    for item in (items[place] for place in rng.permutation(len(items))):
        if item.output.strip():
            of.setdefault(input_key(item), []).append(item)
    inputs = [of[name][:each] for name in rng.permutation(sorted(of))[: train + test]]
    first, second = ([item for some in side for item in some] for side in (inputs[:train], inputs[train:]))
    return first, second


snippets = partial(rated_outputs, "CoNaLa")
Study = tuple[str, str, str]  # title, text and section of a result


def section_of(args: argparse.Namespace, *words: str) -> str:
    """Return the section of a result, which names the set if it is not the first one."""
    return ", ".join([*([args.set] if args.set != next(iter(SETS)) else []), *words])


def real(args: argparse.Namespace, lm: Any) -> Study:
    """Align a real judge on rated outputs, and compare both judges on outputs for other inputs."""
    criterion, (train, test) = SETS[args.set][1], rated_outputs(args.set, args.seed, args.train, args.test)
    align = Align(k=args.k, budget=args.budget, seed=args.seed, learning_curve=False, log_dir=args.out)
    report = align.compile(evalbias.PointwiseJudge(criterion), trainset=train, valset=test, lm=lm).report
    changes = report.comparison["agreement"].changes.values()
    told = "\n".join(text for text in report.paragraphs if text not in report.remarks)  # which quote outputs
    headings = ("seed", "labels", "other outputs", *(change.label for change in changes))
    row = [args.seed, len(train), len(test), *(change.text() for change in changes)]
    text = f', on inputs that took no part, from "{criterion.definition}":\n\n{markdown(headings, [row])}'
    title, section = f"Align on {args.set}, seed {args.seed}", section_of(args, f"seed {args.seed}")
    return title, f"{text}\n\n```text\n{told}\n```", section


def bare(name: str, judge: Any, train: Sequence[dspy.Example], lm: Any, writer: Any, args: argparse.Namespace) -> Any:
    """Compile a judge with one of DSPy's optimizers, with about ``args.budget`` calls of its metric."""
    examples = labeled(train, judge.criterion)
    half, metric = len(examples) // 2, agreement_feedback(judge)
    with dspy.context(lm=ClientLM(lm)):
        if name == "GEPA":
            gepa = dspy.GEPA(metric, reflection_lm=writer, max_metric_calls=args.budget, num_threads=1, seed=args.seed)
            return gepa.compile(judge.deepcopy(), trainset=examples[:half], valset=examples[half:])
        if name == "SIMBA":  # a step of it calls the metric about 2 * bsize * num_candidates times
            simba = dspy.SIMBA(
                metric=metric, bsize=16, num_candidates=3, max_steps=3, prompt_model=writer, num_threads=1
            )
            return simba.compile(judge.deepcopy(), trainset=examples, seed=args.seed)
        mipro = dspy.MIPROv2(
            metric, prompt_model=writer, auto=None, num_candidates=4, num_threads=1, seed=args.seed, track_stats=False
        )
        trials = max(1, args.budget // (len(examples) - half) - 1)
        return mipro.compile(
            judge.deepcopy(), trainset=examples[:half], valset=examples[half:], num_trials=trials, minibatch=False
        )


def writer_of(lm: str, api_base: str, **options: Any) -> dspy.LM:
    """Return the model of a file behind a server, such as llama.cpp's, which writes faster."""
    return dspy.LM(f"openai/{Path(lm).stem}", api_base=api_base, api_key="none", cache=False, **options)


def others(args: argparse.Namespace, model: Any) -> Study:
    """Return a row for each of DSPy's optimizers: agreement and the effect of length on outputs for other inputs."""
    criterion, (train, test) = SETS[args.set][1], rated_outputs(args.set, args.seed, args.train, args.test)
    judge, align, body = evalbias.PointwiseJudge(criterion), Align(seed=args.seed), list[list[str]]()
    headings, writer = list[str](), model
    if args.api_base is not None:
        writer = writer_of(args.lm, args.api_base, max_tokens=LONGEST, temperature=1.0)
    for name in args.bare:
        lm, started, calls = keeping_answers(model, args.out / "answers.jsonl"), time.monotonic(), len(writer.history)
        compiled = bare(name, judge, train, lm, writer, args)
        texts, seconds = len(writer.history) - calls, time.monotonic() - started
        cost = [f"{sum(lm.questions.values()):,}", str(texts), f"{seconds:.0f}"]
        compared = align.compare(*(judge_examples(program, test, lm=lm) for program in (judge, compiled)))
        changes = [*compared["agreement"].changes.values(), *compared["verbosity"].changes.values()]
        headings = ["optimizer", "demonstrations", *(change.label for change in changes), "judgments", "texts", "s"]
        body.append([name, str(len(compiled.predict.demos)), *(change.text() for change in changes), *cost])
        print(*body[-1], sep=" | ", flush=True)
    text = (
        f". {len(train)} labels, {len(test)} outputs for other inputs; judgments: those that the optimizer asked "
        "for, known ones included; texts: requests to write; s: seconds of compiling, without what was known."
    )
    section = section_of(args, "bare", f"seed {args.seed}")
    title = f"DSPy's optimizers as they are on {args.set}, seed {args.seed}"
    return title, f"{text}\n\n{markdown(headings, body)}", section


def alone(args: argparse.Namespace, model: Any) -> Study:
    """Return a row for each thing that Align tries by itself: Pearson with people and the effect of length."""
    judge, align = evalbias.PointwiseJudge(SETS[args.set][1]), Align(n_resamples=2_000)
    found: dict[str, list[Any]] = {}
    for seed in range(args.alone):
        lm = keeping_answers(model, args.out / f"answers{seed}.jsonl")
        train, test = rated_outputs(args.set, seed, args.train, args.test)
        answered, before = (judge_examples(judge, items, lm=lm) for items in (train, test))
        problem = Problem(judge, train, [], [], lm, Candidate("given", judge))
        offered = offers.demonstrated(problem, answered, args.k, seed=seed) + offers.worded(judge)
        if args.reasons:
            thinking = judge.deepcopy()
            thinking.reasoning = evalbias.Reasoning(samples=args.reasons)
            offered = [Offer(REASONING, f"reasons before the answer (texts a judgment: {args.reasons})", thinking)]
        for offer in offered:
            compared = align.compare(before, judge_examples(offer.program, test, lm=lm))
            changes = [compared["agreement"].changes["pearson"], compared["verbosity"].changes["length_effect"]]
            found.setdefault(offer.name, []).append(changes)
            print(seed, offer.name, *(change.text() for change in changes), sep=" | ", flush=True)
    body = []
    for name, rows in found.items():
        both = [[f"{np.mean([getattr(row[i], side).value for row in rows]):+.2f}" for side in SIDES] for i in (0, 1)]
        body.append([name, *(agreement.text() for agreement, _ in rows), *map(" -> ".join, both)])
    headings = ("what", *(f"split {seed}" for seed in range(args.alone)), "mean", "effect of length, mean")
    about = f". {len(train)} labels, {len(test)} other outputs in each split; Pearson with people: \\* p < .05."
    title, words = ("Reasons", "reasons") if args.reasons else ("What Align tries, one by one", "one by one")
    return f"{title}, on {args.set}", f"{about}\n\n{markdown(headings, body)}", section_of(args, words)


def readings(args: argparse.Namespace, model: Any) -> Study:
    """Return a row for each judge and way to read its scores: agreement of the others with people, mean of the splits.

    The judge's own answers are read; its prompt is the given one, or has no cue.
    """
    judge, align, body = evalbias.PointwiseJudge(SETS[args.set][1]), Align(n_resamples=200), list[list[str]]()
    numbers: dict[tuple[str, str], list[Any]] = {}
    lm = keeping_answers(model, args.out / "answers.jsonl")
    for seed in range(args.readings):
        train, test = rated_outputs(args.set, seed, args.train, args.test)
        for name, program in (("as given", judge), ("no cue", offers.without_cue(judge))):
            labeled, asked = (judge_examples(program, items, lm=lm) for items in (train, test))
            people, scale = labeled.covariate(HUMAN_SCORES), judge.criterion.scale
            found = {"the mean level": None, "a line": fit_line(labeled.answers, people, scale)}
            found["as Align chooses"] = reading(labeled, seed=seed)
            for way, correction in found.items():
                read = program.deepcopy()
                read.correction = correction
                after = judge_examples(read, test, lm=lm)
                changes = align.compare(asked, after)["agreement"].changes
                numbers.setdefault((name, way), []).append([changes[n].after.value for n in READ])
                weights = "weights" if correction and correction.slopes else "no weights"
                print(seed, name, way, weights, *(f"{v:+.2f}" for v in numbers[name, way][-1]), sep=" | ", flush=True)
    for (name, way), rows in numbers.items():
        body.append([name, way, *(f"{value:+.3f}" for value in np.mean(rows, axis=0))])
    about = f". {len(train)} labels, {len(test)} other outputs in each split; means of {args.readings} splits."
    text = f"{about}\n\n{markdown(('prompt', 'scores are', *READ.values()), body)}"
    return f"How scores are read, on {args.set}", text, section_of(args, "readings", Path(args.lm).stem)


def main() -> None:
    """Run what the command line asks for."""
    parser = argument_parser(__doc__, out="align")
    parser.add_argument("--simulate", type=int, metavar="REPEATS", help="simulate so many searches of each world")
    parser.add_argument("--labels", type=int, nargs="+", default=[80, 150])
    parser.add_argument("--lm", help="a folder or .gguf file of a model that judges code")
    parser.add_argument("--set", choices=[*SETS], default="CoNaLa")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--train", type=int, default=60, help="inputs to align on")
    parser.add_argument("--test", type=int, default=60, help="inputs to report on")
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--k", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--api-base", help="server of the same model that writes for DSPy's: llama.cpp's is faster")
    parser.add_argument("--bare", nargs="+", choices=["GEPA", "SIMBA", "MIPROv2"], help="DSPy's in place of Align")
    parser.add_argument("--alone", type=int, metavar="SPLITS", help="each thing that is tried by itself, in so many")
    parser.add_argument(
        "--reasons", type=int, metavar="TEXTS", help="of --alone, reasons in so many texts, not the rest"
    )
    parser.add_argument("--readings", type=int, metavar="SPLITS", help="ways to read the scores, in so many")
    args = parser.parse_args()
    if args.simulate:
        rows = [row for labels in args.labels for row in simulated(labels, args.simulate)]
        replaced = ("replaced for agreement", "replaced for nearer scores")
        headings = ("world", "labels", *replaced, "gain on new items", "judgments")
        text = (
            f"## Align in simulated worlds\n\n{args.simulate} searches a row; gain: Pearson with people on 2,000 new "
            f"items, mean of 10 searches. Where one edit helps, it raises Pearson by .11. Where nothing helps, a line "
            f"through the scores still brings them nearer to people.\n\n{markdown(headings, rows)}"
        )
        finish(args, "align", text, section="simulated")
    if args.lm:
        args.out.mkdir(parents=True, exist_ok=True)
        lm = evalbias.LocalLM(args.lm, dtype=args.dtype, max_tokens=LONGEST, temperature=1.0)
        if args.reasons and args.api_base is not None:
            lm = evalbias.ServerLM(
                Path(args.lm).stem, base_url=args.api_base, tokenizer=args.lm, in_flight=4, timeout=600
            )
        study = alone if args.alone else readings if args.readings else others if args.bare else real
        title, text, section = study(args, lm)
        finish(args, "align", f"## {title}\n\n{lm.model} in {args.dtype}{text}", section=section)


if __name__ == "__main__":
    main()
