"""A local model whose answers are kept in a file, so that a stopped benchmark goes on."""

from __future__ import annotations

import json
from pathlib import Path

from evalbias import LocalLM
from evalbias.lm.cache import JournaledLM
from evalbias.values import to_json


def keeping_answers(lm: LocalLM, file: Path) -> JournaledLM:
    """Return the model with a file of its answers, which hold for the same weights, precision and packages only."""
    return JournaledLM(lm, file, model=json.dumps(to_json(lm.provenance())))
