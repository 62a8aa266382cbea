"""MLflow's MemAlign beside ``benchmarks.align``: the same model, labels and held-out outputs.

usage: .servers/tools/bin/python -m benchmarks.mlflow_align --lm FILE.gguf --encoder FOLDER [--outputs 120] [--write]

It runs in the environment of ``make test-integrations``, with llama.cpp's server of ``make test-servers``. The server
has the model, which judges and distills the guidelines; a sentence encoder finds the nearest labels, such as
all-MiniLM-L6-v2. MLflow's judge writes a whole number and its reason as JSON.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import dspy
import mlflow
import torch
from mlflow.entities import AssessmentSource
from mlflow.exceptions import MlflowException
from mlflow.genai.judges import make_judge
from mlflow.genai.judges.optimizers import MemAlignOptimizer, memalign
from transformers import AutoModel, AutoTokenizer

from benchmarks.align import SETS, rated_outputs
from benchmarks.harness import argument_parser, finish, markdown
from benchmarks.servers import llama_file
from evalbias.evaluation.answers import recorded_scores
from evalbias.evaluation.judged import Judged
from evalbias.optimizers import Align

MODEL, CONTEXT = "openai:/tiny", 16_384  # name of the served model, and its context in tokens
MOST = 800  # tokens that are written at once


def embedded(folder: str, texts: Sequence[str]) -> Any:
    """Return the (n, d) mean states of a sentence encoder, of length 1."""
    encoder, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True, max_length=256)
    with torch.inference_mode():
        states = encoder(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)).numpy()


def logged(items: Sequence[dspy.Example], name: str) -> list[Any]:
    """Log the items as traces with people's mean score as feedback, to the nearest whole number."""
    ids = []
    for item in items:
        with mlflow.start_span("answer") as span:
            span.set_inputs({"problem": item.source})
            span.set_outputs(item.output)
        people = AssessmentSource(source_type="HUMAN", source_id="graders")
        mlflow.log_feedback(trace_id=span.trace_id, name=name, value=round(item.scores[name]), source=people)
        ids.append(span.trace_id)
    return [mlflow.get_trace(name) for name in ids]


def judged(judge: Any, items: Sequence[dspy.Example], criterion: Any) -> Judged:
    """Return a judge's scores of the items, undefined where it fails."""
    rows = []
    for item in items:
        try:
            score = float(judge(inputs={"problem": item.source}, outputs=item.output).value)
        except MlflowException:  # its answer was no JSON
            score = None
        rows.append(item.copy(judge_score=score))
        print(item.id, score, item.scores[criterion.name], sep=" | ", flush=True)
    return recorded_scores(rows, "judge_score", criterion=criterion, scale=criterion.scale)


def main() -> None:
    """Align MLflow's judge, and compare both on held-out outputs."""
    parser = argument_parser(__doc__)
    parser.add_argument("--lm", required=True, help="a .gguf file")
    parser.add_argument("--encoder", required=True, help="a folder of a sentence encoder")
    parser.add_argument("--train", type=int, default=60, help="inputs to align on, two outputs each")
    parser.add_argument("--test", type=int, default=60, help="inputs of the other side")
    parser.add_argument("--outputs", type=int, help="outputs of that side to report on, the first ones; default: all")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    name, (_, criterion) = next(iter(SETS.items()))
    train, test = rated_outputs(name, args.seed, args.train, args.test)
    test = test[: args.outputs]
    memalign.optimizer._build_embedder = lambda *_: dspy.Embedder(partial(embedded, args.encoder))
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    options = ["--ctx-size", CONTEXT, "--parallel", 1, "--threads", args.threads, "--threads-batch", args.threads]
    options += ["--predict", MOST]  # a small model may repeat itself for ever
    with tempfile.TemporaryDirectory() as place, llama_file(args.lm, options) as (address, _):
        os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": address}
        mlflow.set_tracking_uri(f"sqlite:///{place}/mlflow.db")
        mlflow.create_experiment("align", artifact_location=f"{place}/traces")
        mlflow.set_experiment("align")
        task = f"{criterion.definition} The problem: {{{{ inputs }}}} The code: {{{{ outputs }}}}"
        low, high = criterion.scale
        judge = make_judge(
            name=criterion.name,
            instructions=f"{task} Answer with a number from {low} (worst) to {high} (best).",
            model=MODEL,
            feedback_value_type=Literal.__getitem__(tuple(range(low, high + 1))),
            inference_params={"temperature": 0.0, "max_tokens": 300},
        )
        before, started = judged(judge, test, criterion), time.monotonic()
        aligned = judge.align(logged(train, criterion.name), optimizer=MemAlignOptimizer(reflection_lm=MODEL))
        seconds = time.monotonic() - started
        print(aligned.instructions, flush=True)
        after = judged(aligned, test, criterion)
    compared = Align(seed=args.seed).compare(before, after)
    changes = [*compared["agreement"].changes.values(), *compared["verbosity"].changes.values()]
    undefined = [f"{len(test) - int(sum(answers.answers == answers.answers))}" for answers in (before, after)]
    guidelines = aligned.instructions.count("\n  - ")
    row = [str(args.seed), *(change.text() for change in changes), " -> ".join(undefined), f"{seconds:.0f}"]
    text = (
        f"## MLflow's MemAlign on {name}, seed {args.seed}\n\nMLflow {mlflow.__version__}; its judge and its "
        f"reflection are {os.path.basename(args.lm)} in llama.cpp's server ({args.threads} threads). {len(train)} "
        f"labels, {len(test)} of the other outputs; {guidelines} guidelines. Undefined: no JSON; s: "
        "seconds of aligning."
    )
    headings = ["seed", *(change.label for change in changes), "undefined", "s"]
    finish(args, "align", f"{text}\n\n{markdown(headings, [row])}", section=f"MLflow, seed {args.seed}")


if __name__ == "__main__":
    main()
