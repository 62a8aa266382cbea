"""Write the record of the small judge's training into benchmarks/RESULTS.md.

usage: python -m benchmarks.small_judge.record FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from safetensors import safe_open

from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section


def record(folder: Path) -> str:
    """Return the section on the model, its training data, and its losses."""
    corpus = json.loads((folder / "corpus.json").read_text())
    losses = [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]
    config = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", "pt") as weights:
        parameters = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118 - no mapping
    sets = "; ".join(
        f"{name}: {sizes['train']} rated items used, {sizes['candidates']} held out"
        for name, sizes in corpus.items()
        if isinstance(sizes, dict)
    )
    names = [name for name in losses[0] if name not in ("step", "seconds")]
    marks = [row for row in losses if row["step"] % 200 == 0 or row is losses[0]]
    body = [[str(row["step"]), str(row["seconds"]), *(f"{row[name]:.3f}" for name in names)] for row in marks]
    return "\n\n".join(
        [
            "## The small judge",
            f"A Llama trained from scratch, with {parameters} parameters ({config['num_hidden_layers']} layers of "
            f"width {config['hidden_size']}) and a byte-level BPE of {config['vocab_size']} tokens. Its training data "
            f"are {corpus['texts']} texts of {corpus['tokens']} tokens, and judge prompts with human scores of "
            f"training items ({sets}). It never saw the test items, but it saw other outputs for their inputs. "
            f"{losses[-1]['step']} steps took {losses[-1]['seconds'] / 60:.0f} minutes on one CPU core, seed "
            f"{corpus['seed']}.",
            "Losses in nats, means of 50 steps; for scores, the cross-entropy with the distribution of human scores:",
            markdown(["step", "seconds", *names], body),
        ]
    )


if __name__ == "__main__":
    write_section("small_judge", record(Path(sys.argv[1])))
