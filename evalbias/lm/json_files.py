"""The JSON files of a model's folder; transformers reads them without a look at what they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
            read_object(folder / name)


def read_object(file: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: The file holds something else; it is named.
    """
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:  # bytes that are not UTF-8 too
        raise ValueError(f"{file} is not valid JSON ({error}): fetch it again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds {json.dumps(content):.80} in place of a JSON object: fetch it again.")
    return content
