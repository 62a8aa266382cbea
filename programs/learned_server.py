"""Server of ``LearnedFeedback``: reads texts and writes scores line by line, in the metric's own environment.

The file imports nothing from evalbias, which is not installed there.


usage: learned_server.py comet|bleurt CHECKPOINT
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

Score = Callable[[str, str, str], float]


def comet(checkpoint: str) -> Score:
    """Load COMET from a checkpoint file, or by a name that its package downloads."""
    from comet import download_model, load_from_checkpoint  # type: ignore[import-not-found]

    model = load_from_checkpoint(checkpoint if os.path.exists(checkpoint) else download_model(checkpoint))

    def score(source: str, output: str, reference: str) -> float:
        row = {"src": source, "mt": output, "ref": reference}
        return float(model.predict([row], batch_size=1, progress_bar=False).scores[0])

    return score


def bleurt(checkpoint: str) -> Score:
    """Load BLEURT from the checkpoint's folder."""
    from bleurt.score import BleurtScorer  # type: ignore[import-not-found]

    model = BleurtScorer(checkpoint)
    return lambda source, output, reference: float(model.score(references=[reference], candidates=[output])[0])


def main() -> None:
    """Load the metric, report that it is ready, and score texts until the input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # output of the packages must not mix with the answers
    metric, checkpoint = sys.argv[1:]
    score = {"comet": comet, "bleurt": bleurt}[metric](checkpoint)
    print(json.dumps({"ready": metric}), file=answers, flush=True)
    for line in sys.stdin:
        texts = json.loads(line)
        try:
            answer: dict[str, object] = {"score": score(texts["source"], texts["output"], texts["reference"])}
        except Exception as error:  # an error on one text must not end the server
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
