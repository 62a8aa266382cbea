"""Answers ``LearnedFeedback`` line by line; runs in the Python that has the metric and imports nothing of ours.

usage: learned_server.py comet|bleurt CHECKPOINT
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

Score = Callable[[str, str, str], float]


def comet(checkpoint: str) -> Score:
    """COMET: a checkpoint's file, or a name that its package downloads."""
    from comet import download_model, load_from_checkpoint  # type: ignore[import-not-found]

    model = load_from_checkpoint(checkpoint if os.path.exists(checkpoint) else download_model(checkpoint))

    def score(source: str, output: str, reference: str) -> float:
        row = {"src": source, "mt": output, "ref": reference}
        return float(model.predict([row], batch_size=1, progress_bar=False).scores[0])

    return score


def bleurt(checkpoint: str) -> Score:
    """BLEURT: the checkpoint's folder."""
    from bleurt.score import BleurtScorer  # type: ignore[import-not-found]

    model = BleurtScorer(checkpoint)
    return lambda source, output, reference: float(model.score(references=[reference], candidates=[output])[0])


def main() -> None:
    """Load, say so, and answer until the input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a package prints is no answer
    metric, checkpoint = sys.argv[1:]
    score = {"comet": comet, "bleurt": bleurt}[metric](checkpoint)
    print(json.dumps({"ready": metric}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            told: dict[str, object] = {"score": score(asked["source"], asked["output"], asked["reference"])}
        except Exception as error:  # of this text: the next one may fare better
            told = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
