"""Files of models: checks of their content, and models in GGUF files."""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
import sys
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from tokenizers import pre_tokenizers, processors
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from evalbias.lm.fingerprint import cache_folder, file_hash
from evalbias.values import read_json

MOST = 10_000  # most layers, blocks or labels that a configuration may name; transformers builds each of them

FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "adapter_config.json",
)
"""Small files that hold an object each. A tokenizer.json is large: it is examined only if it cannot be read."""

_COUNT = re.compile("(layers?|blocks|depth|labels)$")
_NUMBER = re.compile(r"\.(\d+)\.")


@contextmanager
def readable(problem: str, remedy: str) -> Iterator[None]:
    """Turn any exception of a third-party loader about a damaged file into a ValueError."""
    try:
        yield
    except (OSError, ImportError, MemoryError, torch.OutOfMemoryError):  # the machine is to blame, not the file
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{problem} ({type(error).__name__}: {reason}): {remedy}.") from error


def check_json_files(folder: Path) -> None:
    """Refuse a folder if a file in ``FILES`` is not a JSON object."""
    for name in FILES:
        if (folder / name).is_file():
            read_json(folder / name, "fetch it again")


def check_counts(settings: dict[str, Any], name: str) -> None:
    """Refuse a config.json with more than ``MOST`` layers, blocks or labels: transformers makes lists that long."""
    pending: list[Any] = [settings]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                if isinstance(value, int) and value > MOST and _COUNT.search(key):
                    raise ValueError(
                        f"The config.json of {name} has {key}={value:.3g}, which no model has: fetch it again."
                    )
            pending += node.values()
        elif isinstance(node, list):
            pending += node


def check_depth(layers: Any, tensors: Collection[str], name: str) -> None:
    """Refuse a checkpoint of less than half its configuration's layers: building the others would fill the memory.

    ``tensors`` is empty if the names are not known yet.
    """
    held = len({number[1] for tensor in tensors if (number := _NUMBER.search(tensor))})
    if isinstance(layers, int) and not 0 < layers <= (2 * held + 10 if tensors else MOST):
        raise ValueError(f"{name} has weights of {held} layers, and its configuration names {layers}: fetch it again.")


def check_config(config: Any, name: str) -> None:
    """Check that a configuration belongs to a decoder-only language model."""
    kind = type(config).__name__.removesuffix("Config")
    if getattr(config, "is_encoder_decoder", False):
        fault = f"{name} is an encoder-decoder model ({kind}), which does not continue its prompt"
        raise ValueError(f"{fault}: use a causal model.")
    own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ValueError(f"{name} is not a causal language model ({kind}): use a model that continues text.")


def check_weights(missing: Iterable[str], name: str) -> None:
    """Refuse a checkpoint that lacked weights: transformers fills them with random numbers."""
    if lacking := sorted(missing):
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        fault = f"{name} has no weights for {', '.join(lacking[:3])}{more}, which would be random"
        raise ValueError(f"{fault}: use a checkpoint of the whole language model, output layer included.")


# Rules by which the tokenizer of a GGUF file splits text before it merges characters; the file names its rule.
#
# A tokenizer that splits otherwise than in training gives the model token sequences that it has never seen, without any
# error: unknown splittings are refused.

SENTENCEPIECE, BYTE_LEVEL = "llama", "gpt2"  # kinds of tokenizers; SentencePiece does not split beforehand
# Splittings that cut off every digit and then split as GPT-2 does; transformers takes them for GPT-2's.
SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
# Splittings of Llama 3, after which a word in the vocabulary is a token without merges; transformers reads the
# splitting only. A text begins with the start token unless the file says otherwise.
WHOLE_WORDS = frozenset({"llama3", "llama-v3", "llama-bpe"})
KNOWN = SINGLE_DIGITS | WHOLE_WORDS | {"gpt-2", "qwen2", "deepseek-r1-qwen"}


def check_splitting(kind: Any, splitting: Any, file: Path) -> str | None:
    """Return the splitting (``tokenizer.ggml.pre``), if it is supported; None if the tokenizer does not split."""
    if kind == SENTENCEPIECE:
        return None
    if kind != BYTE_LEVEL:
        raise ValueError(f"{file} has a tokenizer of the kind {kind!r}, which is not supported: use another model.")
    if not isinstance(splitting, str) or splitting not in KNOWN:
        fault = f"{file} splits text by the rules {splitting!r}, which are not known here"
        raise ValueError(f"{fault}, so its tokens would differ from those of its training: {ORIGINAL}.")
    return splitting


def set_splitting(tokenizer: Any, splitting: str | None, *, starts: bool | None) -> None:
    """Make a tokenizer that transformers read from a GGUF file split as the file says.

    ``starts``: whether texts begin with the start token (``tokenizer.ggml.add_bos_token``); None if not specified.
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


# Models in GGUF files, llama.cpp's format: weights in blocks of a few bits, dequantized whenever the model is loaded.
#
# What a file says about configuration, tokenizer and places of weights takes seconds to read: it is kept as a folder of
# some 10 MB under ``EVALBIAS_CACHE``, by the file's hash, and made again if any of its files is missing or altered.

SUFFIX, MANIFEST, TENSORS = ".gguf", "unpacked.json", "tensors.json"
VERSION = 3  # version of the folder's format; other versions are made again
CHUNK = 1 << 18  # weights that a thread dequantizes at a time: 1 MB of float32 stays in a core's cache
# Tensors that transformers does not read, although they decide where a model attends.
UNREAD = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
ORIGINAL = "use the model's original folder"
_DAMAGED, _REMEDY = "{} cannot be read as a model", f"fetch it again, or {ORIGINAL}"


def unpacked(model: str) -> str:
    """Return the folder of a GGUF file's configuration and tokenizer; make it unless it exists unaltered."""
    file = Path(model)
    if not file.is_file():
        raise FileNotFoundError(f"{model} does not exist: give a GGUF file on this machine.")
    folder = cache_folder() / "gguf" / f"{file_hash(file)[:32]}-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not _whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            _unpack(file, folder)
    return str(folder)


def _whole(folder: Path) -> bool:
    """Return whether every file of an unpacked folder has the content that was written."""
    try:
        written = read_json(folder / MANIFEST)
        return bool(written) and all(file_hash(folder / name) == content for name, content in written.items())
    except (OSError, ValueError):
        return False


def _unpack(file: Path, folder: Path) -> None:
    reader = _reader(file)
    with readable(_DAMAGED.format(file), _REMEDY):
        facts = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {t.name: [int(t.tensor_type), t.shape.tolist()[::-1], t.data_offset] for t in reader.tensors}
        vocabulary = tensors["token_embd.weight"][1][0]
    if unread := sorted(tensors.keys() & set(UNREAD)):
        raise ValueError(f"{file} scales its positions by {unread[0]}, which would be ignored here: {ORIGINAL}.")
    check_depth(facts.get(f"{facts.get('general.architecture')}.block_count"), tensors.keys(), str(file))
    splitting = check_splitting(facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre"), file)
    with TemporaryDirectory() as alone:  # transformers would load a tokenizer or adapter beside the file
        (Path(alone) / "whole.gguf").symlink_to(file.resolve())
        with readable(_DAMAGED.format(file), _REMEDY):
            _write_outline(facts, reader, vocabulary, Path(alone) / "outline.gguf")
            config = AutoConfig.from_pretrained(alone, gguf_file="outline.gguf", vocab_size=vocabulary)
            tokenizer = PreTrainedTokenizerFast.from_pretrained(alone, gguf_file="whole.gguf")
            set_splitting(tokenizer, splitting, starts=facts.get("tokenizer.ggml.add_bos_token"))
            config.save_pretrained(folder)
            # as a class that is loaded as it was saved, whatever the architecture
            PreTrainedTokenizerFast(
                tokenizer_object=tokenizer.backend_tokenizer,
                chat_template=tokenizer.chat_template,
                clean_up_tokenization_spaces=False,
                **{name: getattr(tokenizer, name) for name in ("bos_token", "eos_token", "unk_token", "pad_token")},
            ).save_pretrained(folder)
    (folder / TENSORS).write_text(json.dumps({"architecture": facts["general.architecture"], "tensors": tensors}))
    files = {path.name: file_hash(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps(files), encoding="utf-8")


def _write_outline(facts: dict[str, Any], reader: Any, vocabulary: int, path: Path) -> None:
    """Write a GGUF file without tokens and weights; transformers would parse the tokens for ten seconds."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, facts["general.architecture"])
    writer.add_vocab_size(vocabulary)
    for name, field in reader.fields.items():
        of_tokens = name.startswith("tokenizer.") and isinstance(facts[name], list)
        if not (of_tokens or name.startswith("GGUF.") or name.endswith((".architecture", ".vocab_size"))):
            writer.add_key_value(name, facts[name], field.types[0], field.types[-1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.zeros(1, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_gguf(file: Path, config: Any, dtype: torch.dtype | str, **options: Any) -> Any:
    """Return the model of a GGUF file, and what transformers reports about loading it.

    Memory holds the weights once, in ``dtype`` ("auto" is float32), plus a single matrix in float32.
    """
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    weights: dict[str, torch.Tensor] = {}
    dtype = torch.float32 if isinstance(dtype, str) else dtype
    with readable(_DAMAGED.format(file), _REMEDY):
        places = read_json(Path(unpacked(str(file))) / TENSORS)
        with torch.device("meta"):
            outline = AutoModelForCausalLM.from_config(config)
        processor = TENSOR_PROCESSORS.get(places["architecture"], TensorProcessor)(config=config.to_dict())
        # Transformers would spend seconds on a table of names per module: the first two tables hold all names.
        base = SimpleNamespace(config=config, state_dict=outline.base_model.state_dict, named_children=tuple)
        named = {outline.base_model_prefix: base}.items
        whole = SimpleNamespace(config=config, state_dict=outline.state_dict, named_children=named)
        names = get_gguf_hf_weights_map(whole, processor)
        # 16-bit weights are copied from the same buffer: new pages for every matrix take a second in a large model.
        most = max((math.prod(shape) for _, shape, _ in places["tensors"].values()), default=0)
        place = np.empty(0 if dtype is torch.float32 else most, np.float32)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for name, (kind, shape, offset) in places["tensors"].items():
                values = place[: math.prod(shape)].reshape(shape) if len(place) else np.empty(shape, np.float32)
                _dequantize(file, offset, kind, values, pool)
                # in transformers' own layout; it puts experts, which it joins, among the weights itself
                made = processor.process(values, name, tensor_key_mapping=names, parsed_parameters={"tensors": weights})
                if made.name in names:
                    weights[names[made.name]] = torch.from_numpy(np.ascontiguousarray(made.weights)).to(dtype)
        return type(outline).from_pretrained(None, config=config, state_dict=weights, dtype=dtype, **options)


def _dequantize(file: Path, offset: int, number: int, values: NDArray[np.float32], pool: ThreadPoolExecutor) -> None:
    """Read weights at an offset of a file, in blocks of GGML's type ``number``."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    kind = GGMLQuantizationType(number)
    block, size = GGML_QUANT_SIZES[kind]  # weights and bytes of a block
    flat, step = values.reshape(-1), CHUNK // block  # blocks at a time

    def fill(first: int) -> None:
        weights = flat[first * block : (first + step) * block]
        # read, not mapped: mapped pages would count as the process's memory
        packed = np.fromfile(file, np.uint8, len(weights) // block * size, offset=offset + first * size)
        if kind is GGMLQuantizationType.Q4_K:
            _unpack_q4_k(packed, weights)
        else:
            weights[:] = dequantize(packed[None], kind)[0]

    list(pool.map(fill, range(0, values.size // block, step)))


def _unpack_q4_k(packed: NDArray[np.uint8], weights: NDArray[np.float32]) -> None:
    """Unpack GGML's Q4_K to the same bits as gguf, which takes five times as long.

    A block of 256 weights w = d s q - m o holds two halves (d, m), eight scales s and offsets o of six bits in 12
    bytes, the upper two bits of the last four beside those of the first four, and 256 numbers q of four bits.
    """
    blocks = packed.reshape(-1, 144)
    d, m = np.ascontiguousarray(blocks[:, :4]).view(np.float16).astype(np.float32).T
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.hstack([first & 63, third & 15 | first >> 6 << 4])
    offsets = np.hstack([second & 63, third >> 4 | second >> 6 << 4])
    pairs, made = blocks[:, 16:].reshape(-1, 4, 32), weights.reshape(-1, 4, 2, 32)
    made[...] = np.stack([pairs & 15, pairs >> 4], axis=2)
    made *= (d[:, None] * scales).reshape(-1, 4, 2, 1)
    made -= (m[:, None] * offsets).reshape(-1, 4, 2, 1)


def _reader(file: Path) -> Any:
    try:
        from gguf import GGUFReader, GGUFValueType
    except ImportError as error:
        raise ImportError(f"{file} is a GGUF file, which takes an extra: pip install 'evalbias[gguf]'.") from error
    if sys.version_info < (3, 11):
        raise ImportError(f"{file} is a GGUF file, which takes Python 3.11 or newer.")

    class Reader(GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, *arguments: Any, **order: Any) -> Any:
            if offset >= len(self.data):  # else a list of any length would be read beyond the end of the file
                raise ValueError(f"it ends at byte {len(self.data)}")
            return super()._get(offset, *arguments, **order)

        def _get_field_parts(self, offset: int, kind: int) -> Any:
            if kind != GGUFValueType.ARRAY or (count := int(self._get(offset + 4, np.uint64)[0])) <= MOST:
                return super()._get_field_parts(offset, kind)
            # tokens or merges, which transformers reads: the loop over them takes five seconds
            of, end = GGUFValueType(int(self._get(offset, np.uint32)[0])), offset + 12
            if of is not GGUFValueType.STRING:
                end += count * np.dtype(self.gguf_scalar_to_np[of]).itemsize
            for _ in range(count if of is GGUFValueType.STRING else 0):
                end += 8 + struct.unpack_from("<Q", self.data, end)[0]
            return end - offset, [], [], [GGUFValueType.ARRAY, of]

    with readable(f"{file} is not a whole GGUF file", "fetch it again"):
        return Reader(file)
