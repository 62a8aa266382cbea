"""Files of models: what they must hold, and GGUF files unpacked."""

from __future__ import annotations

import copy
import json
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from filelock import FileLock
from tokenizers import pre_tokenizers, processors
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from evalbias.lm.fingerprint import cache_folder, file_hash
from evalbias.values import get_logger, read_json

MOST = 10_000  # most layers, blocks or labels that a configuration may name; each is built one by one

FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "adapter_config.json",
)
"""Small files that hold an object each. A tokenizer.json is large: it is looked at when it cannot be read."""

_COUNT = re.compile("(layers?|blocks|depth|labels)$")
_NUMBER = re.compile(r"\.(\d+)\.")


@contextmanager
def readable(problem: str, remedy: str) -> Iterator[None]:
    """Turn what a third-party loader raises about a damaged file, which may be anything, into one ValueError."""
    try:
        yield
    except (OSError, ImportError, MemoryError, torch.OutOfMemoryError):  # they say what the machine lacks
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{problem} ({type(error).__name__}: {reason}): {remedy}.") from error


def check_json_files(folder: Path) -> None:
    """Refuse a folder of which one of ``FILES`` holds something else than a JSON object."""
    for name in FILES:
        if (folder / name).is_file():
            read_json(folder / name, "fetch it again")


def check_counts(settings: dict[str, Any], name: str) -> None:
    """Refuse a config.json of more than ``MOST`` layers, blocks or labels: transformers makes lists of such lengths."""
    rest: list[Any] = [settings]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            for key, value in one.items():
                if isinstance(value, int) and value > MOST and _COUNT.search(key):
                    raise ValueError(
                        f"The config.json of {name} has {key}={value:.3g}, which no model has: fetch it again."
                    )
            one = list(one.values())
        rest += one if isinstance(one, list) else []


def check_depth(layers: Any, tensors: Collection[str], name: str) -> None:
    """Refuse a checkpoint of less than half its configuration's layers: building the others would fill the memory.

    ``tensors`` are empty if they are not known yet.
    """
    held = len({number[1] for tensor in tensors if (number := _NUMBER.search(tensor))})
    if isinstance(layers, int) and not 0 < layers <= (2 * held + 10 if tensors else MOST):
        raise ValueError(f"{name} has weights of {held} layers, and its configuration names {layers}: fetch it again.")


def check_config(config: Any, name: str) -> None:
    """Check that a configuration is that of a decoder-only language model."""
    kind = type(config).__name__.removesuffix("Config")
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"{name} is an encoder-decoder model ({kind}), which does not continue its prompt: use a causal model."
        )
    own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ValueError(f"{name} is not a causal language model ({kind}): use a model that continues text.")


def check_weights(missing: Iterable[str], name: str) -> None:
    """Refuse a checkpoint that lacked weights: transformers fills them with random numbers."""
    if lacking := sorted(missing):
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise ValueError(
            f"{name} has no weights for {', '.join(lacking[:3])}{more}, which would be random: use a checkpoint of the "
            "whole language model, output layer included."
        )


# Rules by which the tokenizer of a GGUF file splits text before it merges characters; the file names one of them.
#
# A tokenizer that splits otherwise than in training gives the model token sequences that it has never seen, without any
# error: unknown splittings are refused.

SENTENCEPIECE, BYTE_LEVEL = "llama", "gpt2"  # kinds of tokenizers; the first do not split beforehand
# Splittings that cut off every digit and then split as GPT-2 does; transformers takes them for GPT-2's.
SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
# Splittings of Llama 3, after which a word of the vocabulary is one token without any merges; transformers reads the
# splitting only. A text begins with the start token unless the file says otherwise.
WHOLE_WORDS = frozenset({"llama3", "llama-v3", "llama-bpe"})
KNOWN = SINGLE_DIGITS | WHOLE_WORDS | {"gpt-2", "qwen2", "deepseek-r1-qwen"}


def check_splitting(kind: Any, splitting: Any, file: Path) -> str | None:
    """Return the splitting (``tokenizer.ggml.pre``), if known here; None if its kind of tokenizer does not split."""
    if kind == SENTENCEPIECE:
        return None
    if kind != BYTE_LEVEL:
        raise ValueError(f"{file} has a tokenizer of the kind {kind!r}, which is not supported: use another model.")
    if not isinstance(splitting, str) or splitting not in KNOWN:
        raise ValueError(
            f"{file} splits text by the rules {splitting!r}, which are not known here, so its tokens would differ from "
            "those of its training: use the model's original folder."
        )
    return splitting


def set_splitting(tokenizer: Any, splitting: str | None, *, starts: bool | None) -> None:
    """Make a tokenizer that transformers read from a GGUF file split as the file says.

    ``starts`` tells whether texts begin with the start token (``tokenizer.ggml.add_bos_token``), None if unsaid.
    """
    backend = tokenizer.backend_tokenizer
    if splitting in SINGLE_DIGITS:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if splitting in WHOLE_WORDS:
        backend.model.ignore_merges = True
        if starts is None:
            start = (tokenizer.bos_token, tokenizer.bos_token_id)
            backend.post_processor = processors.TemplateProcessing(single=f"{start[0]} $A", special_tokens=[start])


# Models in GGUF files, llama.cpp's format: unpacked once into a folder that is loaded like any other model.
#
# The folder holds the dequantized weights in float32 (4 bytes a parameter: .5 GB for 135 million), configuration,
# tokenizer and chat template. It lies under ``EVALBIAS_CACHE`` (default ``~/.cache/evalbias``) by the hash of the GGUF
# file, and is made again if any of its files is missing or altered.

SUFFIX = ".gguf"
MANIFEST = "unpacked.json"
VERSION = 2  # version of the unpacking; a folder of another version is made again
# Tensors that transformers does not read, although they decide where a model attends.
UNREAD = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_DAMAGED, _REMEDY = "{} cannot be read as a model", "fetch it again, or use the model's original folder"

logger = get_logger(__name__)


def unpacked(model: str) -> str:
    """Return the folder of a GGUF file's model; unpack it unless it is there, whole and unaltered."""
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
    if unread := sorted(tensors.intersection(UNREAD)):
        raise ValueError(
            f"{file} scales its positions by {unread[0]}, which would be ignored here: use the model's original folder."
        )
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


def _plain(tokenizer: Any) -> PreTrainedTokenizerFast:
    """Return the same tokenizer as a class that is loaded as it was saved, whatever the architecture."""
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        chat_template=tokenizer.chat_template,
        clean_up_tokenization_spaces=False,
        **{name: token for name in names if (token := getattr(tokenizer, name)) is not None},
    )
