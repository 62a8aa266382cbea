"""How fast are judge probabilities, beside what a user would pick instead? All methods in one interleaved run.

usage: python -m benchmarks.speed [--models SmolLM2 "Gemma 3" Qwen random] [--workloads pointwise population llmbar]
           [--size 64] [--slow-size 16] [--repeats 3] [--threads N] [--methods NAME ...] [--device cpu]
           [--hidden 512 --layers 8 --vocabulary 32000] [--write]

The real models come from ``make models``, the servers from ``make test-servers``; what is missing is named. ``random``
is a Llama with random weights of any size, which also runs on a GPU. Every method answers the same prompts from a cold
start. Those in 32 bits must agree; for files and arithmetic of fewer bits, the table has the largest deviation of a
log-probability from evalbias in 32 bits, which computes with the same file's weights. llama.cpp shares the beginning of
a prompt with the one before it, which the order of the prompts allows.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from benchmarks.harness import argument_parser, finish, markdown, percents
from benchmarks.pretrained import GEMMA3, QWEN, SMOLLM2, models_folder
from benchmarks.servers import SERVERS, Server, llama_file, post, requantized, vllm, with_weights
from benchmarks.workloads import WORKLOADS, Workload, model
from evalbias import LocalLM, ServerLM
from evalbias.lm.tokens import Scored, choice_sequences, joint
from evalbias.lm.tree import Rows
from evalbias.lm.types import MeasuringLM

MODELS = {"SmolLM2": SMOLLM2, "Gemma 3": GEMMA3, "Qwen": QWEN}
RANDOM = "random"
HALF = "bfloat16"
TOLERANCE = 2e-3
"""Largest difference in nats between methods that compute in 32 bits."""
CONTEXT = 4096
COMMON = ["pointwise", "population", "llmbar"]
"""Workloads that are measured if none is named."""
ROWS = {"cpu": 1024, "cuda": 16_384}
"""Device -> rows of the timed matrix product: about as many as a batch has tokens."""
OURS, PUBLISHED, HARNESS, GENERATE = "evalbias", "published", "harness", "generate"
VLLM, LLAMA, LLAMA_PYTHON = "vllm", "llama.cpp", "llama-cpp-python"

TITLES = {
    PUBLISHED: "one forward pass per prompt, full logits",
    HARNESS: "lm-evaluation-harness, transformers",
    GENERATE: "generate, output_scores",
    OURS: "evalbias",
    VLLM: "vLLM server, prefix cache",
    LLAMA: "llama.cpp server, prompt cache",
    LLAMA_PYTHON: "llama.cpp by llama-cpp-python, prompt cache",
}
"""Method -> its name in the table."""


SLOW = (PUBLISHED, GENERATE, HARNESS)
"""Methods that compute every prompt by itself, without a shared prefix."""
HARNESS_BATCH = 8
HEADINGS = ["workload", "prompts", "method", "weights", "seconds (range)", "prompts/s", "time / evalbias"]
HEADINGS += ["deviation in nats", "of the score", "same choice", "peak memory", "processed / distinct tokens"]
HEADINGS += ["time / floor", "GFLOP/s of a matrix product"]

Answers = list[list[float]]
"""Log-probability of every choice after every prompt."""
Method = Callable[[LocalLM, Workload], Answers]


def sequences(lm: LocalLM, work: Workload) -> list[list[Scored]]:
    """Return the token sequences of every prompt's choices, which are the same for all methods."""
    tokenizer, render = lm.engine.tokenizer, lm.engine.render
    if all(len(choices) == 1 for choices in work.choices):
        pairs = [(render(p), choices[0]) for p, choices in zip(work.prompts, work.choices, strict=True)]
        return [[sequence] for sequence in joint(tokenizer, pairs)]
    return choice_sequences(tokenizer, [render(p) for p in work.prompts], work.choices[0])


def published_style(lm: LocalLM, work: Workload) -> Answers:
    """Run one forward pass per prompt with the logits of all positions; single-token choices share the pass."""
    model = lm.engine.loaded.model
    answers = []
    with torch.inference_mode():
        for row in sequences(lm, work):
            logits = model(torch.tensor([row[0].ids[:-1]], device=model.device)).logits[0].float()  # (T, V)
            logprobs = logits.log_softmax(-1)
            answers.append([_sum(logprobs, s) for s in row])
    return answers


def generate_scores(lm: LocalLM, work: Workload) -> Answers:
    """Call ``generate`` of transformers for one token with ``output_scores``, one prompt at a time."""
    model = lm.engine.loaded.model
    answers = []
    with torch.inference_mode():
        for row in sequences(lm, work):
            ids = torch.tensor([row[0].ids[: row[0].start]], device=model.device)
            how = {"max_new_tokens": 1, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
            output = model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **how)
            logprobs = output.scores[0][0].float().log_softmax(-1)
            answers.append([float(logprobs[s.ids[s.start]]) for s in row])
    return answers


def harness(lm: LocalLM, work: Workload) -> Answers:
    """Run lm-evaluation-harness's transformers backend on the same tokens, as log-likelihood requests."""
    from lm_eval.models.huggingface import HFLM

    loaded = lm.engine.loaded
    backend = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=HARNESS_BATCH, backend="causal")
    rows = sequences(lm, work)
    requests = [
        (("", str(i)), list(s.ids[: s.start]), list(s.ids[s.start :])) for i, row in enumerate(rows) for s in row
    ]
    results = iter(backend._loglikelihood_tokens(requests, disable_tqdm=True))
    return [[next(results)[0] for _ in row] for row in rows]


def _sum(logprobs: torch.Tensor, sequence: Scored) -> float:
    places = torch.arange(sequence.start - 1, len(sequence.ids) - 1)
    return float(logprobs[places, torch.tensor(sequence.ids[sequence.start :])].sum())


def ours(lm: LocalLM, work: Workload) -> Answers:
    """Run this package from a cold start."""
    lm.engine.scorer.prefixes.clear()
    return asked(lm, work)


def asked(lm: MeasuringLM, work: Workload) -> Answers:
    """Return a measuring model's answers to a workload."""
    if all(len(choices) == 1 for choices in work.choices):
        pairs = [(p, choices[0]) for p, choices in zip(work.prompts, work.choices, strict=True)]
        return [[likelihood.total] for likelihood in lm.loglikelihood(pairs)]
    rows: Any = lm.choice_logprobs(work.prompts, work.choices[0]).logprobs
    return [list(row) for row in np.asarray(rows)]


METHODS: dict[str, Method] = {PUBLISHED: published_style, GENERATE: generate_scores, HARNESS: harness}
"""Methods of others that run in this process."""


class ServerMethod:
    """A real vLLM server with the same model, queried by ``ServerLM``; it is stopped while other methods run.

    With the folder of the model's tokenizer, the server is given tokens.
    """

    def __init__(self, address: str, process: subprocess.Popen[bytes], *, tokenizer: str) -> None:
        self._address = address.removesuffix("/v1")
        self.group = process.pid  # the process leads its group
        self._lm = ServerLM("tiny", base_url=address, tokenizer=tokenizer)
        os.killpg(self.group, signal.SIGSTOP)

    def __call__(self, lm: LocalLM, work: Workload) -> Answers:
        """Run from a cold start: the server first forgets every prompt."""
        os.killpg(self.group, signal.SIGCONT)
        try:
            self._forget()
            return asked(self._lm, work)
        finally:
            os.killpg(self.group, signal.SIGSTOP)

    def _forget(self) -> None:
        post(f"{self._address}/reset_prefix_cache")


class LlamaMethod(ServerMethod):
    """A real llama.cpp server with one slot; see ``ServerMethod``."""

    def _forget(self) -> None:
        post(f"{self._address}/slots/0?action=erase")


class LlamaTexts:
    """llama.cpp through llama-cpp-python, which keeps the beginning that a text shares with the one before it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.group = process.pid
        self._read()  # the model is loaded

    def __call__(self, lm: LocalLM, work: Workload) -> Answers:
        """Run from a cold start: the cache is emptied first."""
        requests: list[dict[str, Any]] = [{}, *({"ids": s.ids, "start": s.start} for (s,) in sequences(lm, work))]
        return [[answer] for answer in [self._ask(request) for request in requests][1:]]

    def _ask(self, request: dict[str, Any]) -> Any:
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def applies(method: str, work: Workload) -> bool:
    """Return whether a method can answer a workload.

    Generation and llama.cpp's own server measure no given texts, for which there is llama.cpp's library.
    """
    texts = len(work.choices[0]) == 1
    return method not in ((GENERATE, LLAMA) if texts else (LLAMA_PYTHON,))


def reset_peak(method: Any, device: torch.device) -> None:
    """Reset the counters of peak memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    for pid in _processes(method):
        (Path("/proc") / str(pid) / "clear_refs").write_text("5")


def peak(method: Any, device: torch.device) -> int:
    """Return the peak since the last reset, in bytes: of the GPU, or the sum over the method's processes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    total = 0
    for pid in _processes(method):
        status = (Path("/proc") / str(pid) / "status").read_text()
        total += int(status.split("VmHWM:")[1].split()[0]) * 1024
    return total


def _processes(method: Any) -> list[int]:
    group = getattr(method, "group", None)
    if group is None:
        return [os.getpid()]
    pids = []
    for process in Path("/proc").iterdir():
        with suppress(ProcessLookupError):  # another process that ends meanwhile
            pids += [int(process.name)] if process.name.isdigit() and os.getpgid(int(process.name)) == group else []
    return pids


@dataclass(frozen=True)
class Contender:
    """A method with its weights."""

    title: str  # in the table
    weights: str  # format of the weights it computes with
    run: Method
    exact: bool  # whether its answers must agree with evalbias in 32 bits
    size: int  # number of prompts that it answers; fewer for methods that share no prefix


@dataclass
class Measured:
    """Measurements of one contender."""

    seconds: list[float] = field(default_factory=list)  # of every repeat
    memory: int = 0  # peak in bytes
    rates: list[float] = field(default_factory=list)  # GFLOP/s of a matrix product before every repeat
    deviation: float = 0.0  # largest difference of a log-probability from evalbias in 32 bits, in nats
    moved: float = 0.0  # largest difference of an expected choice, numbered from 0, from the same
    same: float = 1.0  # least share of prompts after which the same choice is the likeliest


def measured(lm: LocalLM, work: Workload, contenders: Mapping[str, Contender], repeats: int) -> dict[str, Measured]:
    """Time the contenders in turns on the workload."""
    results = {name: Measured() for name in contenders}
    device = lm.engine.loaded.model.device
    for _ in range(repeats):
        truth = np.empty(0)
        rate = gemm(lm.engine.loaded.model)
        for name, contender in contenders.items():  # evalbias is the first
            reset_peak(contender.run, device)
            started = time.perf_counter()
            answers = np.array(contender.run(lm, work))
            results[name].seconds.append(time.perf_counter() - started)
            results[name].rates.append(rate)
            results[name].memory = max(results[name].memory, peak(contender.run, device))
            truth = answers if name == OURS else truth
            deviation = float(np.abs(answers - truth).max())
            if contender.exact and deviation > TOLERANCE * max(1.0, float(np.abs(truth).max())):
                raise AssertionError(f"{contender.title} deviates by {deviation:.2g} nats on {work.name}.")
            results[name].deviation = max(results[name].deviation, deviation)
            results[name].moved = max(results[name].moved, float(np.abs(expected(answers) - expected(truth)).max()))
            results[name].same = min(results[name].same, float((answers.argmax(1) == truth.argmax(1)).mean()))
    return results


def expected(answers: np.ndarray) -> np.ndarray:
    """Return (n,) expected choices, numbered from 0, of (n, c) log-probabilities."""
    return np.asarray(softmax(answers, axis=1) @ np.arange(answers.shape[1]))


def gemm(model: Any) -> float:
    """Measure the GFLOP/s of a matrix product with the model's shape, device and precision."""
    hidden, kind = model.config.hidden_size, {"device": model.device, "dtype": model.dtype}
    a, b = torch.randn(ROWS[model.device.type], hidden, **kind), torch.randn(hidden, 4 * hidden, **kind)
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < 0.5:
        product = a @ b
        float(product[0, 0])  # waits for a GPU to finish
        rounds += 1
    return rounds * 2 * a.shape[0] * hidden * 4 * hidden / (time.perf_counter() - started) / 1e9


def arithmetic(lm: LocalLM, work: Workload) -> tuple[float, float]:
    """Return the GFLOP of the distinct tokens: of the weights with the logits that are read, and of attention."""
    model, scored = lm.engine.loaded.model, [s for row in sequences(lm, work) for s in row]
    weights = sum(p.numel() for p in model.base_model.layers.parameters())
    head = model.get_output_embeddings().weight.numel()
    read = {s.ids[:at] for s in scored for at in range(s.start, len(s.ids))}
    rows, pairs = Rows(scored), 0
    distinct = rows.tokens
    for row, length in zip(rows.ids, rows.shared, strict=True):
        pairs += (len(row) * (len(row) + 1) - length * (length + 1)) // 2  # a token attends to itself and all before it
    config = model.config
    attention = 4 * pairs * config.hidden_size * config.num_hidden_layers
    return 2 * (weights * distinct + head * len(read)) / 1e9, attention / 1e9


def rows(
    lm: LocalLM, work: Workload, contenders: Mapping[str, Contender], results: Mapping[str, Measured]
) -> list[list[str]]:
    """Return the table's rows.

    The floor is the time of the distinct tokens' arithmetic (weights, and the logits that are read) at the rate of a
    matrix product in the same run; in brackets, it includes attention.
    """
    scorer = lm.engine.scorer
    before = scorer.tokens_run, scorer.tokens_distinct
    ours(lm, work)
    run, distinct = scorer.tokens_run - before[0], scorer.tokens_distinct - before[1]
    gflop, attention = arithmetic(lm, work)
    own = statistics.median(results[OURS].seconds)
    body = []
    for name, result in results.items():
        median, rate = statistics.median(result.seconds), statistics.median(result.rates)
        seconds = f"{median:.2f} ({min(result.seconds):.2f} to {max(result.seconds):.2f})"
        speeds = [seconds, f"{len(work.prompts) / median:.1f}", f"{median / own:.2f}x"]
        ours_alone = ["", "", ""]
        chosen = [f"{result.moved:.3f}", *percents(result.same)] if len(work.choices[0]) > 1 else ["", ""]
        deviations = [f"{result.deviation:.1e}", *chosen]
        if name == OURS:
            floor = f"{median * rate / gflop:.2f} ({median * rate / (gflop + attention):.2f})"
            ours_alone = [f"{run / distinct:.3f}", floor, f"{(gflop + attention) / median:.0f} of {rate:.0f}"]
            deviations = ["", "", ""]
        cells = [work.name, str(len(work.prompts)), contenders[name].title, contenders[name].weights]
        body.append([*cells, *speeds, *deviations, f"{result.memory / 2**20:.0f} MB", *ours_alone])
    return body


def contenders_of(
    file: Path,
    size: int,
    slow_size: int,
    chosen: Sequence[str] | None,
    place: Path,
    until_done: ExitStack,
    device: str = "cpu",
) -> tuple[LocalLM, dict[str, Contender], list[str]]:
    """Load a model in every method; return ours in 32 bits, the contenders, and the names of those missing.

    The installed servers run on CPUs, and llama.cpp's reads GGUF files only.
    """
    wanted = [OURS, HALF, *METHODS, VLLM, LLAMA, LLAMA_PYTHON] if chosen is None else [OURS, *chosen]
    lm = LocalLM(str(file), dtype="float32", device=device)
    missing = []
    contenders = {OURS: Contender(TITLES[OURS], "float32", ours, True, size)}
    if HALF in wanted:
        half = LocalLM(str(file), dtype=HALF, device=device)
        contenders[HALF] = Contender(TITLES[OURS], HALF, lambda _, work: ours(half, work), False, size)
    for name in (PUBLISHED, GENERATE, HARNESS):
        if name == HARNESS and find_spec("lm_eval") is None:
            missing += [f"{TITLES[HARNESS]} (pip install 'evalbias[bench]')"] * (name in wanted)
        elif name in wanted:
            contenders[name] = Contender(TITLES[name], "float32", METHODS[name], True, slow_size)
    if device != "cpu":
        return lm, contenders, missing
    folder = str(with_weights(lm, str(place / "weights")))
    if VLLM in wanted and (SERVERS / "vllm/.installed").exists():
        server = until_done.enter_context(vllm(Path(folder), length=CONTEXT, space=2))
        contenders[VLLM] = Contender(TITLES[VLLM], "float32", ServerMethod(*server, tokenizer=folder), True, size)
    elif VLLM in wanted:
        missing.append(f"{TITLES[VLLM]} (make test-servers)")
    if file.suffix != ".gguf":
        return lm, contenders, missing
    if (SERVERS / "llama/bin/llama-quantize").exists():
        for kind, path in _precisions(file, place).items():
            run: dict[str, Method] = {}
            if LLAMA in wanted:
                run[LLAMA] = LlamaMethod(*until_done.enter_context(_llama(path, place)), tokenizer=folder)
            if LLAMA_PYTHON in wanted:
                run[LLAMA_PYTHON] = until_done.enter_context(_llama_texts(path))
            contenders |= {
                f"{name} {kind}": Contender(TITLES[name], kind, how, False, size) for name, how in run.items()
            }
    elif {LLAMA, LLAMA_PYTHON} & {*wanted}:
        missing.append("llama.cpp (make test-servers)")
    return lm, contenders, missing


def _precisions(file: Path, place: Path) -> dict[str, Path]:
    """Return the file as it is, and in 8 and 32 bits; one above 1 GiB, of which several would not fit, not in 32."""
    kind = file.stem.rsplit(".", 1)[-1].rsplit("-", 1)[-1].upper()
    made = ["Q8_0"] if file.stat().st_size > 2**30 else ["Q8_0", "F32"]
    return {kind: file, **{other: requantized(file, other, place) for other in made}}


def _llama(file: Path, place: Path) -> AbstractContextManager[Server]:
    """Start llama.cpp's server with one slot, which shares the beginning of every prompt with the one before."""
    slots = place / f"{file.stem}.slots"
    slots.mkdir()
    threads = torch.get_num_threads()
    options = ["--ctx-size", CONTEXT, "--parallel", 1, "--threads", threads, "--threads-batch", threads]
    return llama_file(file, [*options, "--cache-ram", 0, "--slot-save-path", f"{slots}/"])


@contextmanager
def _llama_texts(file: Path) -> Iterator[LlamaTexts]:
    """Start llama.cpp's library in the environment of the servers."""
    command: list[Any] = [SERVERS / "llama/bin/python", Path(__file__).with_name("llama_texts.py"), file, CONTEXT]
    command.append(torch.get_num_threads())
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(
        [*map(str, command), str(torch.get_num_threads())], start_new_session=True, **pipes
    ) as process:
        yield LlamaTexts(process)
        process.terminate()


def compared(
    lm: LocalLM, make: Callable[[int], Workload], contenders: Mapping[str, Contender], repeats: int
) -> list[list[str]]:
    """Measure a workload: at the full size, and at the smaller one together with the methods that need it."""
    body = []
    for size in sorted({contender.size for contender in contenders.values()}):
        work = make(size)
        able = {key: contender for key, contender in contenders.items() if applies(key.split()[0], work)}
        taking_part = {key: contender for key, contender in able.items() if contender.size == size or key == OURS}
        added = rows(lm, work, taking_part, measured(lm, work, taking_part, repeats))
        print(*added, sep="\n", file=sys.stderr, flush=True)
        body += added
    return body


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=[*MODELS, RANDOM], default=["SmolLM2", "Gemma 3"])
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS], default=COMMON)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--slow-size", type=int, default=16, help="prompts for methods that share no prefix")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every method")
    parser.add_argument("--methods", nargs="+", choices=[HALF, *SLOW, VLLM, LLAMA, LLAMA_PYTHON], help="default: all")
    parser.add_argument("--device", default="cpu", help="of the random model")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # the servers inherit it
    for name in args.models:
        with ExitStack() as until_done:
            place = Path(until_done.enter_context(tempfile.TemporaryDirectory()))
            file, device = models_folder() / MODELS.get(name, ""), "cpu"
            if name == RANDOM:
                sizes = {"hidden": args.hidden, "layers": args.layers, "vocabulary": args.vocabulary}
                file, device = model(**sizes, save_to=place / "random"), args.device
            lm, contenders, missing = contenders_of(
                file, args.size, args.slow_size, args.methods, place, until_done, device
            )
            workloads = [WORKLOADS[name] for name in args.workloads]
            body = [row for make in workloads for row in compared(lm, make, contenders, args.repeats)]
            where = f"{torch.get_num_threads()} threads" if device == "cpu" else torch.cuda.get_device_name(device)
            text = (
                f"{lm.model}, {lm.engine.loaded.model.num_parameters():,} parameters, {where}; medians of "
                f"{args.repeats} interleaved repeats, each from a cold start. *Deviation* is the largest difference "
                "of a log-probability from evalbias in float32; *of the score*, that of the expected choice, numbered "
                "from 0; *same choice*, how often the likeliest one is the same. The floor is the time of the distinct "
                "tokens' arithmetic (weights, and the logits that are read) at the rate of a matrix product in the "
                "same run; in brackets, it includes attention. Memory is the peak of the GPU, or of the method's own "
                "processes: evalbias's holds the weights of its rows at once, and vLLM's 2 GiB for its KV cache."
            )
            if missing:
                text += f" Missing: {', '.join(missing)}."
            title = f"Throughput on {'a CPU' if device == 'cpu' else where}: {name}"
            section = name if args.workloads == COMMON else " ".join([name, *args.workloads, *(args.methods or [])])
            finish(args, "speed", f"## {title}\n\n{text}\n\n{markdown(HEADINGS, body)}", section=section)


if __name__ == "__main__":
    main()
