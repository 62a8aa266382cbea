"""Put the record of the small judge's training into benchmarks/RESULTS.md.

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
    """What the model is, what it was trained on, and how its losses went."""
    corpus = json.loads((folder / "corpus.json").read_text())
    losses = [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]
    config = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", "pt") as weights:
        parameters = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118 - no mapping
    sets = "; ".join(
        f"{name}: {told['train']} rated items seen, {told['candidates']} kept back"
        for name, told in corpus.items()
        if isinstance(told, dict)
    )
    names = [name for name in losses[0] if name not in ("step", "seconds")]
    marks = [row for row in losses if row["step"] % 200 == 0 or row is losses[0]]
    body = [[str(row["step"]), str(row["seconds"]), *(f"{row[name]:.3f}" for name in names)] for row in marks]
    return "\n\n".join(
        [
            "## The small judge",
            f"A Llama from scratch, {parameters} parameters ({config['num_hidden_layers']} layers of "
            f"{config['hidden_size']}), byte-level BPE of {config['vocab_size']} tokens; "
            f"{corpus['texts']} texts of {corpus['tokens']} tokens, and judge prompts with human scores of training "
            f"items ({sets}; the test items were never seen, other outputs of their inputs were). {losses[-1]['step']} "
            "steps in "
            f"{losses[-1]['seconds'] / 60:.0f} minutes on one CPU core, seed {corpus['seed']}.",
            "Losses in nats (means of 50 steps; scores: cross-entropy with the human scores' distribution):",
            markdown(["step", "seconds", *names], body),
        ]
    )


if __name__ == "__main__":
    write_section("small_judge", record(Path(sys.argv[1])))
