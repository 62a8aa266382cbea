"""Models in GGUF files, llama.cpp's format: unpacked once into a folder that is loaded like any other model.

The folder holds the dequantized weights in float32 (4 bytes a parameter: .5 GB for 135 million), configuration,
tokenizer and chat template. It lies under ``EVALBIAS_CACHE`` (default ``~/.cache/evalbias``) by the hash of the GGUF
file, and is made again if any of its files is missing or altered.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from filelock import FileLock
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from evalbias.lm.checks import check_config, check_depth, check_weights, readable
from evalbias.lm.fingerprint import cache_folder, file_hash
from evalbias.lm.gguf_tokenizer import check_splitting, set_splitting
from evalbias.runs.values import read_json
from evalbias.runs.visible import get_logger

SUFFIX = ".gguf"
MANIFEST = "unpacked.json"
VERSION = 2
"""Version of the unpacking; a folder of another version is made again."""

UNREAD = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that transformers does not read, although they decide where a model attends."""

_DAMAGED, _REMEDY = "{} cannot be read as a model", "fetch it again, or use the model's original folder"

logger = get_logger(__name__)


def is_gguf(model: str) -> bool:
    """Return whether a model's name is that of a GGUF file."""
    return model.endswith(SUFFIX)


def unpacked(model: str) -> str:
    """Return the folder of a GGUF file's model; unpack it unless it is there, whole and unaltered.

    Raises:
        FileNotFoundError: The file does not exist.
        ImportError: The extra ``gguf`` is not installed.
        ValueError: The file is no GGUF file, or not that of a supported model.
    """
    file = Path(model)
    if not file.is_file():
        raise FileNotFoundError(f"{model} does not exist: give a GGUF file on this machine.")
    folder = cache_folder() / "gguf" / f"{file_hash(file)[:32]}-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not _whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            draft = folder.with_name(f"{folder.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            _unpack(file, draft)
            draft.replace(folder)
    return str(folder)


def _whole(folder: Path) -> bool:
    """Return whether every file of an unpacked folder has the content that was written."""
    if not folder.exists():
        return False
    try:
        written = read_json(folder / MANIFEST)
        whole = bool(written) and all(file_hash(folder / name) == content for name, content in written.items())
    except (OSError, ValueError):
        whole = False
    if not whole:
        logger.warning("%s is damaged and is made again.", folder)
    return whole


def _unpack(file: Path, folder: Path) -> None:
    reader = _reader(file)
    with readable(_DAMAGED.format(file), _REMEDY):
        tensors = {str(tensor.name) for tensor in reader.tensors}
        facts = {name: field.contents() for name, field in reader.fields.items()}
    _check_tensors(tensors, file)
    check_depth(facts.get(f"{facts.get('general.architecture')}.block_count"), tensors, str(file))
    splitting = check_splitting(facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre"), file)
    logger.warning("Unpacking %s into %s, once.", file, folder.with_suffix(""))
    with TemporaryDirectory() as alone:  # transformers would take a tokenizer or an adapter that lies beside the file
        (Path(alone) / file.name).symlink_to(file.resolve())
        source = {"pretrained_model_name_or_path": alone, "gguf_file": file.name, "trust_remote_code": False}
        with readable(_DAMAGED.format(file), _REMEDY):
            config = AutoConfig.from_pretrained(**source)
        check_config(config, str(file))
        with readable(_DAMAGED.format(file), _REMEDY):
            tokenizer = AutoTokenizer.from_pretrained(**source, config=config)
            set_splitting(tokenizer, splitting, starts=facts.get("tokenizer.ggml.add_bos_token"))
            config.name_or_path = ""  # the file's title, which would be taken for a name on the hub
            read, loading = AutoModelForCausalLM.from_pretrained(
                **source, config=copy.deepcopy(config), dtype=torch.float32, output_loading_info=True
            )
        check_weights(loading["missing_keys"], str(file))
        with readable(_DAMAGED.format(file), _REMEDY):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            model.load_state_dict(read.state_dict())  # what is read from a GGUF file cannot be saved
            model.save_pretrained(folder)
            _plain(tokenizer).save_pretrained(folder)
    files = {path.name: file_hash(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps(files), encoding="utf-8")


def _reader(file: Path) -> Any:
    try:
        import accelerate  # noqa: F401  # transformers needs it for GGUF files
        from gguf import GGUFReader
    except ImportError as error:
        raise ImportError(f"{file} is a GGUF file, which takes an extra: pip install 'evalbias[gguf]'.") from error
    if sys.version_info < (3, 11):
        raise ImportError(f"{file} is a GGUF file, which takes Python 3.11 or newer.")

    class Reader(GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, *arguments: Any, **order: Any) -> Any:
            if offset >= len(self.data):  # else a list of any length is read on and on behind the end of the file
                raise ValueError(f"it ends at byte {len(self.data)}")
            return super()._get(offset, *arguments, **order)

    with readable(f"{file} is not a whole GGUF file", "fetch it again"):
        return Reader(file)


def _check_tensors(names: set[str], file: Path) -> None:
    if found := sorted(names.intersection(UNREAD)):
        raise ValueError(
            f"{file} scales its positions by {found[0]}, which would be ignored here: use the model's original folder."
        )


def _plain(tokenizer: Any) -> PreTrainedTokenizerFast:
    """Return the same tokenizer as a class that is loaded as it was saved, whatever the architecture."""
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        chat_template=tokenizer.chat_template,
        clean_up_tokenization_spaces=False,
        **{name: token for name in names if (token := getattr(tokenizer, name)) is not None},
    )
