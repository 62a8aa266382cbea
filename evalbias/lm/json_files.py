"""The JSON files of a model's folder; transformers reads them without a look at what they hold."""

from __future__ import annotations

from pathlib import Path

from evalbias.runs.values import read_json

FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "adapter_config.json",
)
"""Small files that hold an object each. A tokenizer.json is large: it is looked at when it cannot be read."""


def check_json_files(folder: Path) -> None:
    """Refuse a folder of which one of ``FILES`` is damaged.

    Raises:
        ValueError: A file holds something else than a JSON object; it is named.
    """
    for name in FILES:
        if (folder / name).is_file():
            read_json(folder / name, "fetch it again")
