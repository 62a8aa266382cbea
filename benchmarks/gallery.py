"""Which biases do judges have that other people ran? Audits of recorded judgments, written to docs/gallery.md.

usage: python -m benchmarks.gallery [--sets NAME ...] [--second FILE.gguf] [--documents N] [--out DIR] [--seed 0]
           [--write]

Reads ``EVALBIAS_DATA/judges`` and ``pairs``: what judges of other people said, beside what people said of the same
texts. Each judge and criterion is audited as by ``evalbias audit``, with the recorded likelihoods of SmolLM2;
``--second`` measures those of another model beside them. An audit stands in ``--out`` until the data or the measures
change. ``--write`` puts tables and plots into docs/gallery.md, and the first rows into README.md and docs/index.md.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import sets
from benchmarks.harness import ROOT, argument_parser, lines, markdown, replace_section, write_section
from benchmarks.juries import TRIVIAQA, WROTE
from evalbias import data
from evalbias.evaluation.answers import answers_of, resolve
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.bias import Intervals, Plot
from evalbias.evaluation.biases import BIASES, title_of
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.findings import AGREEMENT
from evalbias.evaluation.judged import LENGTHS, LIKELIHOODS
from evalbias.options import AuditOptions
from evalbias.report.plots import write_png
from evalbias.values import digest, json_number

Record = Mapping[str, Any]
FIELDS = ("id", "input_id", "source", "output", "outputs", "system", "systems", "ratings", "better")
OBJECTIVE = {"reliability": 1.0}  # of labels that are right or wrong by construction


@dataclass(frozen=True)
class Recorded:
    """Judgments of one judge on the items of a data set, on one criterion.

    Attributes:
        judge: Name of the judge, as recorded.
        criterion: Name of the criterion.
        rows: Items as ``evalbias.data.read`` takes them, with the judge's answers in ``judge`` and, of pairs in the
            other order, ``swapped``.
        options: Options of the audit.
        covariates: Name of a covariate -> id of an item -> its value, two for a pair.
    """

    judge: str
    criterion: str
    rows: Sequence[Record]
    options: Mapping[str, Any] = field(default_factory=dict)
    covariates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def row(record: Record, **more: Any) -> dict[str, Any]:
    """Return the fields of an item, and more; ratings by criterion are left out."""
    kept = {name: record[name] for name in FIELDS if name in record and not isinstance(record[name], Mapping)}
    return kept | more


# --- the data sets ----------------------------------------------------------------------------------------------------


def summeval() -> Iterator[Recorded]:
    """SummEval's summaries and articles, rated by three experts; scores (Shen et al. 2023)."""
    scored = sets.judged_summaries()
    likelihoods = {LIKELIHOODS: {summary["id"]: summary["likelihood"] for summary in scored}}
    for judge in scored[0]["judges"]:
        for criterion in scored[0]["ratings"]:
            rows = [row(r, ratings=r["ratings"][criterion], judge=r["judges"][judge][criterion]) for r in scored]
            yield Recorded(judge, criterion, rows, {"scale": (1, 5)}, likelihoods)


def summeval_pairs() -> Iterator[Recorded]:
    """Pairs of these summaries, compared in both orders by GPT-3.5."""
    scored = {summary["id"]: summary for summary in sets.judged_summaries()}
    compared = lines("judges/summeval_pairs.jsonl.gz")
    for criterion in dict.fromkeys(pair["criterion"] for pair in compared):
        rows, likelihoods = [], {}
        for pair in (pair for pair in compared if pair["criterion"] == criterion):
            names = [f"{pair['input_id']}/{system}" for system in pair["systems"]]
            texts = {"outputs": [scored[n]["output"] for n in names], "source": scored[names[0]]["source"]}
            rows.append(row(pair, **texts, judge=pair["winner"], swapped=pair["winner_swapped"]))
            likelihoods[pair["id"]] = [scored[name]["likelihood"] for name in names]
        judge = f"{compared[0]['judge']}, pairs"
        yield Recorded(judge, criterion, rows, covariates={LIKELIHOODS: likelihoods})


def judgebench() -> Iterator[Recorded]:
    """Pairs of answers of which one is right and the other wrong (Tan et al. 2025)."""
    yield from verdicts(
        lines("judges/judgebench.jsonl.gz"), lines("judges/judgebench_verdicts.jsonl.gz"), "right answer"
    )


def llmbar() -> Iterator[Recorded]:
    """Pairs of outputs of which one follows the instruction (Zeng et al. 2024)."""
    pairs = [pair for pair in lines("pairs/llmbar.jsonl.gz") if pair["set"].startswith("LLMBar-")]
    answers = lines("pairs/llmbar_verdicts.jsonl.gz")
    named = [answer | {"judge": f"{answer['judge']}, {answer['prompt'].replace('_', ' ')}"} for answer in answers]
    yield from verdicts(pairs, named, "instruction followed")


def verdicts(pairs: Sequence[Record], answers: Sequence[Record], criterion: str) -> Iterator[Recorded]:
    """Yield the judges of objectively labeled pairs; the name of a model's owner is left out."""
    by_id, groups = {pair["id"]: pair for pair in pairs}, dict[str, list[Record]]()
    for answer in answers:
        if answer["id"] in by_id:
            answered = row(by_id[answer["id"]], judge=answer["winner"], swapped=answer["winner_swapped"])
            groups.setdefault(answer["judge"].rpartition("_")[2], []).append(answered)
    for judge, rows in groups.items():
        yield Recorded(judge, criterion, rows, OBJECTIVE)


def pandalm() -> Iterator[Recorded]:
    """Pairs of outputs with three people's choices (Wang et al. 2024); judges in one order."""
    pairs = sets.read("pandalm")
    for judge in ("gpt35", "pandalm7b"):
        rows = [row({**pair.toDict(), "outputs": pair.candidates}, judge=pair[judge]) for pair in pairs]
        yield Recorded(judge, "better output", rows)


def arena() -> Iterator[Recorded]:
    """Battles of Chatbot Arena with one user's vote; judges in one order."""
    battles = lines("judges/arena_verdicts.jsonl.gz")
    for judge in ("gpt-5.2", "gpt-4o-mini"):
        yield Recorded(judge, "preferred by users", [row(battle, judge=battle.get(judge)) for battle in battles])


def prd() -> Iterator[Recorded]:
    """Pairs of answers of five models, which are the judges (Li et al. 2023)."""
    pairs = lines("judges/prd_verdicts.jsonl.gz")
    for judge in ("gpt-4", "claude-1", "gpt-3.5", "bard", "vicuna-13b"):
        rows = [row(pair, judge=pair[judge], swapped=pair[f"{judge}/swapped"]) for pair in pairs]
        yield Recorded(judge, "better answer", rows, {"own_system": judge})


def autoj() -> Iterator[Recorded]:
    """Pairs with one person's choice (Li et al. 2024)."""
    pairs = lines("judges/autoj_verdicts.jsonl.gz")
    rows = [row(pair, judge=pair["auto-j-13b"], swapped=pair["auto-j-13b/swapped"]) for pair in pairs]
    yield Recorded("auto-j-13b", "better answer", rows)


def cobbler() -> Iterator[Recorded]:
    """Answers of 15 models, most of which are the judges; comparisons won (Koo et al. 2024)."""
    answers = lines("judges/cobbler_scores.jsonl.gz")
    writers = [*dict.fromkeys(answer["system"] for answer in answers)]
    for judge in [name for name in answers[0] if name in {*writers, "llamav2"}]:
        options = {"scale": (0, 14), "own_system": judge if judge in writers else None}
        yield Recorded(judge, "quality", [row(answer, judge=answer.get(judge)) for answer in answers], options)


def seq2seq() -> Iterator[Recorded]:
    """Summaries, simplifications and corrections, three people by criterion; GPT-4."""
    written = lines("judges/seq2seq_scores.jsonl.gz")
    for task in dict.fromkeys(text["task"] for text in written):
        outputs = [text for text in written if text["task"] == task]
        for criterion in outputs[0]["ratings"]:
            rows = [row(o, ratings=o["ratings"][criterion], judge=o[f"gpt-4/{criterion}"]) for o in outputs]
            counted = min(o["judge"] for o in rows if o["judge"] is not None) <= 0  # errors, on no scale
            yield Recorded(f"gpt-4, {task}", criterion, rows, {} if counted else {"scale": (1, 5)})


def conala() -> Iterator[Recorded]:
    """Python for intents, graded by people who differ by item; GPT-3.5 (Zhuo 2024)."""
    code = lines("judges/ice_conala_scores.jsonl.gz")
    people = sorted({name for snippet in code for name in snippet["raters"]})
    for judge in (name for name in code[0] if name.startswith("gpt-3.5-turbo/")):
        rows = []
        for snippet in code:
            grades = dict(zip(snippet["raters"], snippet["ratings"], strict=True))
            rows.append(row(snippet, ratings=[grades.get(name) for name in people], judge=snippet.get(judge)))
        yield Recorded(judge.replace("_", " "), "usefulness", rows, {"scale": (0, 4)})


def wmt23() -> Iterator[Recorded]:
    """Translations with two people's scores; GPT-4, which is one of the writers."""
    translated = lines("judges/wmt23_ende_scores.jsonl.gz")
    rows = [row(translation, judge=translation["gpt-4"]) for translation in translated]
    yield Recorded("gpt-4, GEMBA-MQM", "translation", rows, {"own_system": "gpt-4"})


def topicalchat() -> Iterator[Recorded]:
    """Replies with one mean rating; the mean of 20 sampled scores (Chiang and Lee 2023)."""
    replies = lines("judges/topicalchat_samples.jsonl.gz")
    for judge in replies[0]["judges"]:
        for criterion in replies[0]["judges"][judge]:
            samples = [reply["judges"].get(judge, {}).get(criterion) for reply in replies]
            scored = zip(replies, samples, strict=True)
            rows = [row(reply, score=reply["scores"][criterion], judge=sampled) for reply, sampled in scored]
            yield Recorded(judge.replace("_", " "), criterion, rows, {"samples_field": "judge"})


def ttcw() -> Iterator[Recorded]:
    """Stories with 14 tests each, passed or failed by three experts (Chakrabarty et al. 2024)."""
    stories = lines("judges/ttcw_verdicts.jsonl.gz")
    own = {"gpt-4-turbo": "GPT4", "gpt-3.5-turbo": "GPT3.5", "claude-1.3": "Claude"}
    for judge in ("gpt-4-turbo", "gpt-3.5-turbo", "claude-1.3", "claude-2.0", "claude-2.1", "gemini-pro"):
        options = {"scale": (0, 1), "own_system": own.get(judge)}
        yield Recorded(judge, "tests passed", [row(story, judge=story.get(judge)) for story in stories], options)


def triviaqa() -> Iterator[Recorded]:
    """Answers to questions, right or wrong by one person (Thakur et al. 2025); their texts are not published."""
    answers = lines("judges/triviaqa_verdicts.jsonl.gz")
    for judge in TRIVIAQA.split():
        rows = [row(answer, score=answer["human"], judge=answer.get(judge)) for answer in answers]
        yield Recorded(judge, "right answer", rows, {"scale": (0, 1), "own_system": WROTE.get(judge)})


def hanna() -> Iterator[Recorded]:
    """Stories with three people's ratings and lengths, without texts (Chhun et al. 2024); the first of four prompts."""
    stories = lines("judges/hanna_scores.jsonl.gz")
    lengths = {LENGTHS: {story["id"]: story["length"] for story in stories}}
    for judge in ("chatgpt", "mistral-7b", "llama-13b", "beluga-13b", "orca-platypus-13b"):
        for criterion, name in ((criterion, f"{judge}/prompt 1/{criterion}") for criterion in stories[0]["ratings"]):
            rows = []
            for story in stories:
                ratings, answer = story["ratings"][criterion], story[name]
                score = answer if answer >= 1 else None  # -1 was recorded where no score could be read
                rows.append(row(story, ratings=ratings, judge=score))
            yield Recorded(judge, criterion, rows, {"scale": (1, 5)}, lengths)


COLLECTIONS: dict[str, Callable[[], Iterator[Recorded]]] = {
    collection.__name__.replace("_", "-"): collection
    for collection in (
        *(summeval, summeval_pairs, judgebench, llmbar, pandalm, arena, prd, autoj),
        *(cobbler, seq2seq, conala, wmt23, topicalchat, ttcw, triviaqa, hanna),
    )
}
"""Data set -> a function that yields its judges; each has a section of docs/gallery.md, where people say what it is."""


# --- the audits -------------------------------------------------------------------------------------------------------


def audited(recorded: Recorded, seed: int) -> dict[str, Any]:
    """Return the audit of a recorded judge as JSON data, its paragraphs among them."""
    pairwise = "outputs" in recorded.rows[0]
    options: dict[str, Any] = {"criterion": recorded.criterion, "seed": seed, **recorded.options}
    if "samples_field" not in options:
        options["winner_field" if pairwise else "scores_field"] = "judge"
    if any("swapped" in record for record in recorded.rows):
        options["swapped_field"] = "swapped"
    ready = resolve(AuditOptions(data=list(recorded.rows), **options))
    judged = answers_of(ready).counted_in(ready.length)
    covariates = {name: np.array([of[i] for i in judged.ids], dtype=float) for name, of in recorded.covariates.items()}
    judged = replace(judged, covariates={**judged.covariates, **covariates})
    result = audit_answers(judged, own_system=ready.own_system, reliability=ready.reliability, seed=seed)
    return {"paragraphs": result.paragraphs, **result.to_dict()}


def audits(recorded: Iterable[Recorded], seed: int, out: Path) -> list[dict[str, Any]]:
    """Audit every judge of a data set, or read the audit that stands in ``out``."""
    done = []
    for judgments in recorded:
        key = digest([MEASURES, seed, *vars(judgments).values()])
        file = out / f"{key}.json"
        if not file.exists():
            start = time.monotonic()
            audit = {"judge": judgments.judge, "criterion": judgments.criterion, "audit": audited(judgments, seed)}
            out.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(audit), encoding="utf-8")
            print(f"{file.name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
        done.append(json.loads(file.read_text(encoding="utf-8")))
    return done


MEASURES = digest(
    [
        path.read_text(encoding="utf-8")
        for folder in ("measures", "evaluation")
        for path in sorted((ROOT / "evalbias" / folder).glob("*.py"))
    ]
)
"""Sources that decide the numbers of an audit besides its data."""


# --- another model that measures likelihood ---------------------------------------------------------------------------


def summaries_of(documents: int | None) -> list[dict[str, Any]]:
    """Return the summaries of some articles, in no order that means anything; None for all."""
    by_article = sorted(sets.judged_summaries(), key=lambda summary: digest(summary["input_id"]))
    articles = list(dict.fromkeys(summary["input_id"] for summary in by_article))[:documents]
    return [summary for summary in by_article if summary["input_id"] in articles]


def measured_likelihoods(model: Path, out: Path, documents: int | None = None) -> dict[str, float]:
    """Measure id -> log-likelihood of the summaries of some articles under a model, or read them from ``out``."""
    file, wanted = out / f"likelihoods-{model.stem}.json", summaries_of(documents)
    measured = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    left = [row(summary) for summary in wanted if summary["id"] not in measured]
    if left:
        from evalbias import LocalLM
        from evalbias.programs.judges import likelihood_scores

        lm, (criterion, *_) = LocalLM(str(model), device="cpu", dtype="float32"), sets.SUMMARIES
        for start in range(0, len(left), 24):  # kept as they come; the tokens of an article run once
            some = list(data.read(left[start : start + 24]))
            values = likelihood_scores(some, criterion, lm)
            measured |= dict(zip([item.id for item in some], map(float, values), strict=True))
            file.write_text(json.dumps(measured), encoding="utf-8")
    return {summary["id"]: measured[summary["id"]] for summary in wanted}


def by_model(results: Sequence[Record], second: Sequence[Record], *, name: str) -> str:
    """Return the likelihood effects of the same judges by the model that measures likelihood."""
    rows, same, alike = [], 0, 0
    for result, other in zip(results, second, strict=True):
        pair = [finding(result, "likelihood"), finding(other, "likelihood")]
        rows.append((result["judge"], result["criterion"], *map(cell, pair)))
        if pair[0] and pair[1]:
            same += pair[0]["status"] == pair[1]["status"]
            alike += pair[0]["estimate"] * pair[1]["estimate"] > 0
    sentence = (
        f"On {results[0]['audit']['n']} summaries: of {len(rows)} findings, {same} are the same with both models; "
        f"{alike} effects have the same sign."
    )
    return f"{sentence}\n\n{markdown(['judge', 'criterion', 'SmolLM2 135M', name], rows)}"


# --- the page ---------------------------------------------------------------------------------------------------------

BESIDE = {"human_ceiling": "one person", "likelihood_floor": "likelihood alone", "length_floor": "length alone"}
UNTESTED = {
    "likelihood_effect_within": "likelihood within systems",
    "length_effect_within": "length within systems",
    "test_retest": "correlation of two scores",
    "flip_rate": "two scores differ",
    "samples_needed": "scores for 10 % noise",
}
"""Further estimates that have a column, which no audit tests."""
PLOTS = {
    "likelihood": ("Effect of likelihood at equal quality, in sd of the score", ("summeval", "summeval-pairs")),
    "verbosity": (
        "Effect of length at equal quality, in sd of the score",
        ("summeval", "summeval-pairs", "judgebench"),
    ),
    "position": ("How often the output shown first wins", ("summeval-pairs", "judgebench", "llmbar", "prd", "autoj")),
}
"""Bias -> title of its plot, and the data sets whose judges it shows."""
FIRST = [
    ("summeval", "gpt-3.5-turbo-0301, multiple choice", "coherence", "GPT-3.5 on summaries (SummEval)", "likelihood"),
    ("llmbar", "ChatGPT, Vanilla", "instruction followed", "ChatGPT on LLMBar", "verbosity"),
    ("judgebench", "o1-mini-2024-09-12", "right answer", "o1-mini on JudgeBench", "position"),
    ("cobbler", "vicuna", "quality", "Vicuna 13B on answers of 15 models (CoBBLEr)", "self_preference"),
]
"""Rows of the first pages: data set, judge, criterion, what they call it, and a bias."""


def finding(result: Record, bias: str) -> dict[str, Any] | None:
    """Return what an audit found of a bias; None where it has no number."""
    found: dict[str, Any] | None = result["audit"]["biases"].get(bias)
    return None if found is None or found["low"] is None else found


def raw(found: Record) -> dict[str, Any]:
    """Return the estimate behind a finding as it is measured, not as the distance from an unbiased judge."""
    estimate: dict[str, Any] = found["estimates"][found["name"]]
    return estimate


def number(estimate: Record, name: str) -> str:
    """Format a number of an estimate: a share in percent, others with two decimals."""
    value = round(json_number(estimate[name]), 10) + 0.0
    return f"{100 * value:.0f} %" if estimate["unit"] == "share" else f"{value:{'+' if estimate['signed'] else ''}.2f}"


def written(estimate: Record | None) -> str:
    """Return an estimate with its interval, or its bounds."""
    if estimate is None or estimate["low"] is None:
        return "-"
    low, high = number(estimate, "low"), number(estimate, "high")
    defined = estimate["value"] is not None
    return f"{number(estimate, 'value')} ({low} to {high})" if defined else f"between {low} and {high}"


def cell(found: Record | None) -> str:
    """Return the estimate of a finding: in bold where the judge is biased, with "?" where that is open."""
    if found is None:
        return "-"
    text = written(raw(found))
    return {"biased": f"**{text}**", "no sign": text}.get(found["status"], f"{text} ?")


def estimates(result: Record) -> dict[str, Any]:
    """Return every estimate of an audit by its name."""
    of_biases = [bias["estimates"] for bias in result["audit"]["biases"].values()]
    return {name: e for some in (*of_biases, *result["audit"]["further"].values()) for name, e in some.items()}


def agreement(result: Record) -> list[str]:
    """Return the agreement with people with its interval, and the numbers that stand beside it."""
    values, ends = result["audit"][AGREEMENT], result["audit"]["agreement_intervals"]
    name = "spearman" if "spearman" in values else "accuracy"
    if values.get(name) is None:
        return ["-"] * (1 + len(BESIDE))
    own = f"{values[name]:.2f} ({ends[name]['low']:.2f} to {ends[name]['high']:.2f})"
    return [own, *("-" if values.get(name) is None else f"{values[name]:.2f}" for name in BESIDE)]


def table(results: Sequence[Record]) -> str:
    """Return the audits of a data set, a sentence for each below them, and why a bias was not measured."""
    biases = [name for name in BIASES if any(finding(result, name) for result in results)]
    headings = ["judge", "criterion", "items", "agreement", *BESIDE.values(), *map(title_of, biases)]
    headings += UNTESTED.values()
    rows, sentences, missing = [], [], dict[str, str]()
    for record in results:
        content = record["audit"]
        cells = [content["n"], *agreement(record), *(cell(finding(record, name)) for name in biases)]
        cells += [written(estimates(record).get(name)) for name in UNTESTED]
        rows.append([record["judge"], record["criterion"], *cells])
        sentences.append(f"- {record['judge']}, {record['criterion']}: {' '.join(content['first_screen'])}")
        missing |= {bias: why for bias, why in content["not_measured"].items() if bias in BIASES}
    kept = [k for k in range(len(headings)) if k < 4 or any(cells[k] != "-" for cells in rows)]
    printed = markdown([headings[k] for k in kept], [[cells[k] for k in kept] for cells in rows])
    words = "<details markdown><summary>In words</summary>\n\n" + "\n".join(sentences) + "\n\n</details>"
    why = "; ".join(f"{title_of(bias)}: {reason}" for bias, reason in missing.items())
    return f"{printed}\n\n{words}" + (f"\n\nNot measured everywhere: {why}." if why else "")


def overview(results: Sequence[Record]) -> str:
    """Return how many audits found which bias."""
    rows = []
    for bias in BIASES:
        findings = [found for found in (finding(result, bias) for result in results) if found]
        biased, clear = ([raw(f) for f in findings if f["status"] == status] for status in ("biased", "no sign"))
        ranked = sorted((e for e in biased if e["value"] is not None), key=lambda e: float(e["value"]))
        span = f"{number(ranked[0], 'value')} to {number(ranked[-1], 'value')}" if ranked else "-"
        if findings:
            undecided = len(findings) - len(biased) - len(clear)
            rows.append((title_of(bias), len(findings), len(biased), len(clear), undecided, span))
    beaten = sum(bool((result["audit"]["validity"] or {}).get("no_better_than")) for result in results)
    printed = markdown(["bias", "audits", "biased", "no sign", "open", "estimates of the biased"], rows)
    return (
        f"{printed}\n\nIn {beaten} of {len(results)} audits the judge is not shown to agree with people better than "
        "likelihood or length alone."
    )


def forest(results: Mapping[str, Sequence[Record]], bias: str, path: Path) -> bool:
    """Draw a bias of the judges of some data sets that have an estimate of it; False without any."""
    rows, undefined = dict[str, Sequence[Estimate]](), ("value", "low", "high", "p_value", "points")
    title, names = PLOTS[bias]
    for result in (result for name in names for result in results.get(name, ())):
        found = finding(result, bias)
        if found is not None and raw(found)["value"] is not None:
            content: dict[str, Any] = {k: json_number(v) if k in undefined else v for k, v in raw(found).items()}
            rows[f"{result['judge']}, {result['criterion']}"] = [Estimate(**content)]
    if rows:
        null = next(iter(rows.values()))[0].null
        mark = Intervals(rows, null, f"{null:g} = no bias", percent=bias == "position")
        write_png(Plot(title, "", [mark]), path)
        Image.open(path).quantize(32).save(path, optimize=True)  # a fifth of the size
    return bool(rows)


def first_rows(results: Mapping[str, Sequence[Record]]) -> str:
    """Return the rows that the first pages show; a bias that was not found is left out."""
    rows = []
    for name, judge, criterion, title, bias in FIRST:
        for result in results.get(name, ()):
            found = finding(result, bias) if (result["judge"], result["criterion"]) == (judge, criterion) else None
            if found is not None and found["status"] == "biased":
                rows.append((title, found["sentence"]))
    return markdown(["judge", "what the audit found"], rows)


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> None:
    """Audit the recorded judges, print the tables, and write the pages below ``root`` if asked."""
    parser = argument_parser(__doc__, out="gallery")
    parser.add_argument("--sets", nargs="*", choices=[*COLLECTIONS], default=[*COLLECTIONS])
    parser.add_argument("--second", type=Path, help="GGUF file of a second model that measures likelihood")
    parser.add_argument("--documents", type=int, help="number of articles whose summaries they read; by default all")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    results = {name: audits(COLLECTIONS[name](), args.seed, args.out) for name in args.sets}
    every = [result for some in results.values() for result in some]
    sections = {name: table(some) for name, some in results.items()}
    if args.second is not None:
        measured = measured_likelihoods(args.second, args.out, args.documents)
        ours = [replace(judgments, rows=[r for r in judgments.rows if r["id"] in measured]) for judgments in summeval()]
        theirs = [replace(judgments, covariates={LIKELIHOODS: measured}) for judgments in ours]
        pair = (audits(some, args.seed, args.out) for some in (ours, theirs))
        sections["models"] = by_model(*pair, name=args.second.stem)
    folder = root / "docs" if args.write else args.out
    if every:
        drawn = (bias for bias in PLOTS if forest(results, bias, folder / f"gallery-{bias}.png"))
        sections["plots"] = "\n\n".join(f"![{PLOTS[bias][0]}](gallery-{bias}.png)" for bias in drawn)
        sections["overview"] = overview(every)
    for name, text in sections.items():
        print(f"## {name}\n\n{text}\n", flush=True)
    if args.write:
        for name, text in sections.items():
            (write_section if name == "overview" else replace_section)(root / "docs/gallery.md", name, text)
    if args.write and every:
        for page in (root / "README.md", root / "docs/index.md"):
            replace_section(page, "gallery", first_rows(results))


if __name__ == "__main__":
    main()
