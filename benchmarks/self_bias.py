"""Self-bias of recorded refine loops (Xu et al. 2024), and of loops of the embedded model, whose true quality is known.

usage: python -m benchmarks.self_bias [--only recorded|synthetic] [--seed N] [--threads N] [--out DIR] [--write]

The recordings are read from EVALBIAS_DATA: every model and language pair, best of k, and constrained generation. A
stopped run resumes. The embedded model was trained to write texts of the synthetic world, about any facts. It cannot
follow feedback: a refinement is another draw, and only the feedback's score decides which text is kept. This isolates
the cause of self-bias: of many texts, a judge with a preference picks those that it overrates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from simplemma import lemmatize

import evalbias
from benchmarks.harness import argument_parser, data_folder, finish, markdown
from evalbias.data import world
from evalbias.data.loops import RecordedLoop, recorded_loop
from evalbias.evaluation import LoopSummary, summarize_loop
from evalbias.evaluation.loops import CachedScorer, LoopRun, rounds_plot, run_loops
from evalbias.evaluation.words import UNDEFINED, count, mark, p_equals
from evalbias.measures import estimate_skewness
from evalbias.measures.arrays import FloatArray
from evalbias.measures.resample import ALONE
from evalbias.optimizers.refine import RefineReport
from evalbias.programs import SYNTHETIC, PointwiseJudge, labeled
from evalbias.programs.feedback import Feedback, FeedbackSource, JudgeFeedback, read_feedback, read_missing
from evalbias.programs.loops import SelfRefine
from evalbias.programs.writing import PlainPredict
from evalbias.report import plots

HUMAN = {"gpt-3.5-turbo": ((19.6, 0.803), (21.9, 0.885))}
"""Yoruba to English against a human rater's MQM scores, at iterations 0 and 10, for the models with recorded scores."""

ALL_COVERED = {"gpt-3.5-turbo": {0: 0.02, 10: 0.20}}
"""Model -> iteration -> fraction of the CommonGen Hard outputs that cover all concepts (figure 4)."""

BEST_OF_K = {1: (14.8, 0.735), 4: (16.1, 0.795), 8: (16.7, 0.800), 16: (18.0, 0.830), 32: (18.5, 0.840)}
"""k -> figures of DeepSeek-MoE, Yoruba to English."""


def recorded(folder: Path, *, n_resamples: int = 2_000) -> str:
    """Return all tables of the recordings in a folder."""
    return "\n\n".join([_human(folder), _translation(folder, n_resamples), _best_of_k(folder), _concepts(folder)])


def _human(folder: Path) -> str:
    rows = []
    for model, published in HUMAN.items():
        recording = recorded_loop(folder / f"mt/{model}__yor-en.jsonl")
        own, human = recording.scores("self_score"), recording.scores("human_score")
        for number, figures in zip((0, 10), published, strict=True):
            pair, n = _pair(own[number] - human[number])
            rows.append([model, number, pair, _published(figures), n])
    title = "Own MQM score against a human rater's, Yoruba to English:"
    return table(title, ("model", "iteration", "Bias / Dskew", "published", "n"), rows)


def _translation(folder: Path, n_resamples: int) -> str:
    rows = []
    for file in sorted((folder / "mt").iterdir()):
        recording = recorded_loop(file)
        quality = recording.scores("bleurt_mapped")
        loop = summarize_loop(recording.name, recording.scores("self_score"), quality, n_resamples=n_resamples, seed=0)
        parsed = np.array([[_parsed(recording.records[k][item]) for item in recording.ids] for k in recording.numbers])
        both = ~np.isnan(parsed[0] + parsed[-1])
        first, last = (np.nanmean(parsed[at][both] - quality[at][both]) for at in (0, -1))
        cells = f"{first:.2f} -> {last:.2f} ({both.sum()})", f"{np.isnan(parsed).mean():.1%}"
        rows.append([*recording.name.split("__"), recording.numbers[-1], *_changes(loop), *cells])
    title = "Own MQM score against BLEURT mapped onto the MQM scale, first output -> last iteration:"
    headings = ("model", "pair", "last", "Bias", "Dskew", "quality", "Bias, our parser (items)", "undefined")
    note = (
        "\\* p < .05, † p < .06, last against first (paired permutation test). Bias and Dskew use the recorded own "
        "scores, which count substrings. For our parser, a score is undefined if the output is empty, or if its "
        "feedback names no severity, breaks off or was blocked; that Bias is over the items that are defined in both "
        "rounds."
    )
    return f"{table(title, headings, rows)}\n\n{note}"


def _parsed(record: Mapping[str, Any]) -> float:
    """Return the own score of a recorded output as our loops would parse it."""
    if not (record["output"] or "").strip():
        return math.nan
    return read_feedback(record["feedback_text"] or "").score


def _changes(loop: LoopSummary) -> list[str]:
    tested = [first_to_last(loop, name) + mark(loop.change[name].p_value) for name in ("bias", "skewness")]
    return [*tested, first_to_last(loop, "expected")]


def _best_of_k(folder: Path) -> str:
    rows = []
    file = next(path for path in sorted((folder / "best_of_k").iterdir()) if "__pool" not in path.name)
    recording = recorded_loop(file, by="k")
    for index, k in enumerate(recording.numbers):
        field = "self_score_crit10" if k == 1 else "self_score"  # the published figures used these fields
        pair, n = _pair(recording.scores(field)[index] - recording.scores("bleurt_mapped")[index])
        rows.append([k, pair, _published(BEST_OF_K[k]), n])
    title = "Best of k by the model's own score, DeepSeek-MoE, Yoruba to English (critical errors weigh -10 at k = 1):"
    return table(title, ("k", "Bias / Dskew", "published", "n"), rows)


def _concepts(folder: Path) -> str:
    rows = []
    for recording in _commongen(folder):
        for number in (recording.numbers[0], recording.numbers[-1]):
            records = [recording.records[number][item] for item in recording.ids]
            recorded_scores = recording.scores("self_all_covered")[recording.numbers.index(number)]
            own = np.array([_believes(r) for r in records])
            row = [recording.name, number, f"{np.nanmean(own):.2f} ({np.isnan(own).sum()})"]
            for matching, covers in MATCHINGS.items():
                shares = np.array([np.mean([covers(r["output"], c) for c in r["concepts"]]) for r in records])
                covered = (shares == 1).astype(float)
                published = f" ({ALL_COVERED[recording.name][number]:.2f})" if matching == "substring" else ""
                row += [f"{covered.mean():.2f}{published}", f"{shares.mean():.2f}"]
                row += [_pair(scores - covered)[0] for scores in (own, recorded_scores)]
            rows.append(row)
    title = "CommonGen Hard: outputs that the model believes cover all concepts, and those that do:"
    counted = ("all covered", "mean share", "Bias / Dskew", "with recorded scores")
    headings = [f"{matching}: {cell}" for matching in MATCHINGS for cell in counted]
    headings[0] += " (published)"
    total, unread = sum(len(r.ids) * len(r.numbers) for r in _commongen(folder)), unreadable_answers(folder)
    note = (
        f"{len(unread)} of {total} answers, of all iterations, could not be read and are left out. "
        '"Substring" is the paper\'s count, in which "thrown" covers "throw"; in "lemma", "caught" covers "catch", and '
        '"catch" does not cover "cat".'
    )
    return f"{table(title, ('model', 'iteration', 'believes all covered (undefined)', *headings), rows)}\n\n{note}"


def _holds(text: str, concept: str) -> bool:
    return concept.lower() in text.lower()


def _holds_lemmas(text: str, concept: str) -> bool:
    """Return whether an English text holds the words of a concept, one after the other, in any inflection."""
    words, phrase = (
        [str(lemmatize(word, lang="en")).lower() for word in re.findall(r"\w+|[^\w\s]", words.lower())]
        for words in (text, concept)
    )
    return any(words[n : n + len(phrase)] == phrase for n in range(len(words) - len(phrase) + 1))


MATCHINGS: dict[str, Callable[[str, str], bool]] = {"substring": _holds, "lemma": _holds_lemmas}


def unreadable_answers(folder: Path) -> list[str]:
    """Return the recorded answers on missing concepts that cannot be read, in the order of the iterations."""
    return [
        record["feedback_text"] or ""
        for recording in _commongen(folder)
        for number in recording.numbers
        for record in recording.records[number].values()
        if np.isnan(_believes(record))
    ]


def _commongen(folder: Path) -> list[RecordedLoop]:
    return [recorded_loop(file) for file in sorted((folder / "commongen").iterdir())]


def _believes(record: Mapping[str, Any]) -> float:
    """Return 1 if the answer says that all concepts are covered, 0 if it names some, NaN if it is unreadable."""
    missing = read_missing(record["feedback_text"] or "", record["concepts"])
    return math.nan if missing is None else float(not missing)


def _pair(differences: FloatArray) -> tuple[str, int]:
    """Return Bias and Dskew of own less expected scores (n,), and the number of items that have both."""
    skewness = estimate_skewness(differences, draws=ALONE)
    return f"{np.nanmean(differences):.2f} / {skewness.value:.3f}", skewness.n


def _published(figures: tuple[float, float]) -> str:
    return f"{figures[0]:.1f} / .{round(1000 * figures[1])}"


def first_to_last(loop: LoopSummary, name: str, form: str = ".2f") -> str:
    """Return an estimate of a loop's first and last round, in a format."""
    first, last = (loop.rounds[at][name].value for at in (0, -1))
    return " -> ".join(UNDEFINED if math.isnan(value) else f"{value:{form}}" for value in (first, last))


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table under a title."""
    return f"{title}\n\n{markdown(headings, rows)}"


ITEMS = 200
REFINEMENTS = 10
RATED = 400
"""Number of rated items that the demonstrations are chosen from."""


class TrueQuality:
    """Feedback source that scores a text with its true quality in the synthetic world, from 1 to 5."""

    name = "true quality"
    low, high = (float(end) for end in world.SCALE)

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Return feedback on a text about the example's ``source``."""
        return Feedback(world.true_quality(str(example["source"]), output), "")


@dataclass(frozen=True)
class Arm:
    """The loops of all items under one kind of feedback."""

    name: str  # of the feedback
    run: LoopRun
    quality: FloatArray  # (t + 1, n) true quality of the outputs
    commonness: FloatArray  # (t + 1,) mean commonness of the phrasings
    own: LoopSummary  # self-bias of the loop's own feedback
    judged: LoopSummary  # self-bias of the plain judge on the same outputs


class WriteAgain(dspy.Module):
    """Refiner that ignores draft and feedback and draws again from the generator."""

    def __init__(self, generate: dspy.Module) -> None:
        super().__init__()
        self.generate = generate

    def forward(self, draft: str, feedback: str, **inputs: Any) -> Any:
        """Draw another output."""
        return self.generate(**inputs)


def items(n: int, *, seed: int) -> list[dspy.Example]:
    """Return n items with different facts to write about."""
    drawn = world.documents(n, 1, seed=seed)
    return [dspy.Example(id=e.id, source=e.source, data=e.source) for e in drawn]


def loop(feedback: FeedbackSource) -> SelfRefine:
    """Return a refine loop of the embedded model under a feedback source."""
    write = PlainPredict(dspy.Signature("data -> text", world.TASK), temperature=1.0, max_tokens=24)
    return SelfRefine(write, feedback, WriteAgain(write), max_iterations=REFINEMENTS, perfect=None, field="text")


def arms(*, seed: int, out: Path | None, threads: int) -> list[Arm]:
    """Run the loop under the plain judge, under the judge with RS demonstrations, and under the true quality."""
    lm = fresh_lm()
    rated = world.examples(RATED, seed=seed)
    plain = plain_judge(rated)
    optimizer = evalbias.BiasedDemos(k=8, seed=seed, select=False)
    compiled = optimizer.compile(PointwiseJudge(SYNTHETIC), trainset=rated, lm=lm)
    for judge in (plain, compiled):
        judge.predict.lm = lm
    judges = {"own judge": JudgeFeedback(plain), "own judge, RS demonstrations": JudgeFeedback(compiled)}
    results, examples = [], items(ITEMS, seed=seed + 1)
    sources: dict[str, FeedbackSource] = {**judges, TrueQuality.name: TrueQuality()}
    for name, source in sources.items():
        folder = None if out is None else out / name.replace(" ", "-").replace(",", "")
        run = run_loops(loop(source), examples, lm=fresh_lm(), log_dir=folder, num_threads=threads)
        quality = run.quality(examples, TrueQuality())
        common = run.quality(examples, Commonness())
        scorer = CachedScorer(judges["own judge"], None if folder is None else folder / "judged.jsonl")
        own = summarize_loop(name, run.own(), quality, seed=seed)
        judged = summarize_loop(name, run.quality(examples, scorer), quality, seed=seed)
        results.append(Arm(name, run, quality, np.nanmean(common, axis=1), own, judged))
    return results


class Commonness:
    """Feedback source that scores how common a text's phrasings are; undefined where the text leaves out a fact."""

    name, low, high = "commonness", -4.0, 4.0

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Return feedback on a text."""
        return Feedback(true_commonness(output), "")


def true_commonness(output: str) -> float:
    """Measure how common a text's phrasings are, as in ``Item.commonness``; NaN if a relation is not mentioned."""
    levels = [math.log(world.FREQUENCIES[level]) for _, _, level in world._parse(output).values()]
    if len(levels) < len(world.VALUES):
        return math.nan
    return sum((level - world._MEAN) / world._SD for level in levels) / math.sqrt(len(levels))


def compiled(*, seed: int, out: Path | None, threads: int) -> RefineReport:
    """Compile the loop under the plain judge, with the true quality as external feedback."""
    lm = fresh_lm()
    plain = plain_judge(world.examples(RATED, seed=seed))
    plain.predict.lm = lm
    examples = items(ITEMS, seed=seed + 1)
    half = ITEMS // 2
    optimizer = evalbias.ExternalFeedbackRefine(
        TrueQuality(), seed=seed, num_threads=threads, log_dir=None if out is None else out / "compiled", select=False
    )
    student = loop(JudgeFeedback(plain))
    program = optimizer.compile(student, trainset=examples[:half], valset=examples[half:], lm=fresh_lm())
    report: RefineReport = program.report
    return report


def plain_judge(rated: list[dspy.Example]) -> PointwiseJudge:
    """Return a judge with eight demonstrations drawn at random, which prefers common phrasing."""
    few = dspy.teleprompt.LabeledFewShot(k=8)
    judge: PointwiseJudge = few.compile(PointwiseJudge(SYNTHETIC), trainset=labeled(rated, SYNTHETIC))
    return judge


def fresh_lm() -> evalbias.LocalLM:
    """Return the embedded model with its generator at the first draw, without a cache."""
    lm = evalbias.embedded_judge_lm(device="cpu")
    lm.cache = False
    return lm


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="self-bias")
    parser.add_argument("--only", choices=["recorded", "synthetic"])
    parser.add_argument("--threads", type=int, default=16)
    args = parser.parse_args()
    parts = {}
    if args.only != "synthetic":
        folder = data_folder("self_bias_recorded")
        parts["recorded"] = f"## Self-bias (Xu et al. 2024): the recorded loops\n\n{recorded(folder)}"
    if args.only != "recorded":
        parts["synthetic"] = synthetic(args.seed, args.out, args.threads)
    for name, text in parts.items():
        finish(args, "self_bias", text, section=name)


def synthetic(seed: int, out: Path, threads: int) -> str:
    """Run the loops of the embedded model, write their plots into the folder, and return the section."""
    loops = arms(seed=seed, out=out, threads=threads)
    report = compiled(seed=seed, out=out, threads=threads)
    sides = {"own": report.compiled_loop.rounds, "external": report.external.rounds}
    judged = {arm.judged.name: arm.judged.rounds for arm in loops}
    for name, lines in (("judged", judged), ("sides", sides)):
        if drawn := rounds_plot({loop: (range(len(rounds)), rounds) for loop, rounds in lines.items()}):
            plots.write_png(drawn, out / f"{name}.png")
    title = "## Self-bias: loops of the embedded model, where the true quality is known"
    settings = (
        f"{ITEMS} texts, {REFINEMENTS} refinements (each a new draw; only the feedback's score decides which is kept), "
        f"seed {seed}."
    )
    return "\n\n".join([title, settings, _arms(loops), _compiled(report)])


def _arms(loops: list[Arm]) -> str:
    rows = []
    for arm in loops:
        own, quality = (first_to_last(arm.own, name) for name in ("own", "expected"))
        bias = first_to_last(arm.judged, "bias", "+.2f") + mark(arm.judged.change["bias"].p_value)
        skewness = first_to_last(arm.judged, "skewness")
        common = f"{arm.commonness[0]:+.2f} -> {arm.commonness[-1]:+.2f}"
        rows.append([arm.name, own, quality, f"{arm.own.rounds[-1]['bias'].value:+.2f}", bias, skewness, common])
    headings = ("feedback", "its score", "true quality (1-5)", "its final Bias", "own judge's Bias")
    return markdown((*headings, "own judge's Dskew", "commonness"), rows)


def _compiled(report: RefineReport) -> str:
    tried = " (tried, but they did not help)" if report.shown is not None and not report.demonstrations else ""
    comparison = report.comparison["self"]
    quality, bias, calls = comparison["quality"], comparison["bias"], comparison.cost["calls"]
    return (
        f"Compiled with the true quality as external feedback ({report.items} items, {report.calls} requests): at most "
        f"{count(report.iterations, 'refinement')}, {count(len(report.demonstrations), 'demonstration')}{tried}. "
        f"On {quality.after.n} other items: true quality "
        f"{quality.before.value:.2f} -> {quality.after.value:.2f} ({p_equals(quality.p_value)}), "
        f"Bias {bias.before.value:+.2f} -> {bias.after.value:+.2f}, "
        f"requests per item {calls[0]:.1f} -> {calls[1]:.1f}."
    )


if __name__ == "__main__":
    main()
