"""Adapt SmolLM2-135M-Instruct to human ratings with LoRA.

usage: python -m benchmarks.tuned_judge.train OUT [--sets tmu-gfm summeval] [--steps 200] [--seed 0]
           [--resume]

The model is read from EVALBIAS_MODELS (default .models; see ``make models``), the ratings from EVALBIAS_DATA (default
../shared/data). OUT becomes the folder of the adapter, with losses.jsonl and record.json. A stopped run resumes from
its last checkpoint and draws the same questions as an uninterrupted one; --steps may differ, which moves the end,
before which the learning rate falls.

What ships is trained on permissively licensed ratings only. WebNLG's (CC BY-NC-SA 4.0) need to be asked for, --sets
webnlg2020, and an adapter trained on them may not be passed on with evalbias.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file

from benchmarks.pretrained import SMOLLM2, models_folder
from benchmarks.tuned_judge import questions
from benchmarks.tuned_judge.packing import answer_losses, pack
from evalbias import LocalLM
from evalbias.runs import versions

RANK, SCALE = 12, 2.0
"""Rank of the adapter on every projection, at which it takes 7.4 MB in 16 bits; factor of its product."""

PEAK, WARMUP, FALL = 1e-3, 10, 0.2
"""Learning rate, steps until it is reached, and share of the steps in which it falls to 0 at the end."""

POINTWISE, PAIRWISE = "pointwise", "pairwise"
COURSE = {
    "tmu-gfm": (*[(POINTWISE, 8, 6)] * 3, (PAIRWISE, 4, 2)) * 2,
    "summeval": ((POINTWISE, 1, 8),),
    "webnlg2020": ((POINTWISE, 3, 8), (PAIRWISE, 3, 2)),
}
"""Data set -> kinds of steps, repeated in turn: (kind, inputs, outputs of each). A step on SummEval, whose articles are
long, takes as much as three on TMU-GFM."""

LOSSES = "losses.jsonl"
EVERY = 5
"""Number of steps between checkpoints."""


def draws(names: list[str]) -> list[tuple[str, questions.Draw]]:
    """Return the kinds of steps of the given data sets, in turn, with functions that draw their questions."""
    turns: list[tuple[str, questions.Draw]] = []
    for name in names:
        items = questions.rated(name)
        for kind, inputs, outputs in COURSE[name]:
            if kind == PAIRWISE:
                draw = questions.pairwise_draws(items, inputs=inputs)
            else:
                draw = questions.pointwise_draws(items, inputs=inputs, outputs=outputs)
            turns.append((f"{name} {kind}", draw))
    return turns


def rate(step: int, steps: int) -> float:
    """Return the learning rate of a step: a linear warm-up, the peak, and a linear fall."""
    return PEAK * min(1.0, (step + 1) / WARMUP, (steps - step) / (FALL * steps))


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a log of losses; none if there is no log yet."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def save_adapter(model: PeftModel, folder: Path) -> None:
    """Write the adapter in 16 bits, in peft's format."""
    config = model.peft_config["default"]
    config.base_model_name_or_path, config.inference_mode = SMOLLM2, True
    config.save_pretrained(folder)
    weights = {name: value.to(torch.float16).contiguous() for name, value in get_peft_model_state_dict(model).items()}
    save_file(weights, folder / "adapter_model.safetensors")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=questions.SETS, default=list(questions.PERMISSIVE))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Run the command."""
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    lm = LocalLM(str(models_folder() / SMOLLM2), device="cpu", dtype="bfloat16")
    turns = draws(args.sets)
    engine = lm.engine
    model = get_peft_model(
        engine.loaded.model, LoraConfig(r=RANK, lora_alpha=round(SCALE * RANK), target_modules="all-linear")
    )
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, weight_decay=0.0)
    checkpoint, first, spent = args.out / "checkpoint.pt", 0, 0.0
    if args.resume:
        state: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        first, spent = state["step"], state["seconds"]
        set_peft_model_state_dict(model, state["adapter"])
        optimizer.load_state_dict(state["optimizer"])
    started = time.monotonic() - spent
    rows = [row for row in read_rows(args.out / LOSSES) if row["step"] <= first]
    with (args.out / LOSSES).open("w", encoding="utf-8") as log:
        log.writelines(json.dumps(row) + "\n" for row in rows)
        for step in range(first, args.steps):
            kind, draw = turns[step % len(turns)]
            drawn = draw(random.Random(f"{args.seed} {step}"))
            for group in optimizer.param_groups:
                group["lr"] = rate(step, args.steps)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = answer_losses(model.get_base_model(), pack(engine, drawn)).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            seconds = round(time.monotonic() - started)
            row = {"step": step + 1, "kind": kind, "questions": len(drawn), "loss": round(loss.item(), 4)}
            rows.append({**row, "seconds": seconds})
            log.write(json.dumps(rows[-1]) + "\n")
            log.flush()
            if (step + 1) % EVERY == 0 or step + 1 == args.steps:
                state = {"adapter": get_peft_model_state_dict(model), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step + 1, "seconds": seconds}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)
                save_adapter(model, args.out)
    kinds = sorted({row["kind"] for row in rows})
    record = {
        "base": SMOLLM2,
        "sets": args.sets,
        "questions": {kind: sum(row["questions"] for row in rows if row["kind"] == kind) for kind in kinds},
        "split": {"by": "input", "seed": questions.SPLIT_SEED},
        "settings": {"rank": RANK, "scale": SCALE, "peak": PEAK, "warmup": WARMUP, "fall": FALL, "course": COURSE},
        "steps": args.steps,
        "seed": args.seed,
        "seconds": seconds,
        "versions": versions(),
    }
    (args.out / "record.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
