"""Values as JSON and back, digests that identify equal things, and texts that are safe to print."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import logging
import math
import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import partial, wraps
from itertools import chain
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, ParamSpec, TypeVar

import numpy as np

# Functions of options.


P = ParamSpec("P")
Asked = TypeVar("Asked")
Result = TypeVar("Result")


def keywords(options: Callable[P, Asked]) -> Callable[[Callable[[Asked], Result]], Callable[P, Result]]:
    """Call a function of an options object with the object's fields as keywords."""

    def decorate(work: Callable[[Asked], Result]) -> Callable[P, Result]:
        @wraps(work)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            return work(options(*args, **kwargs))

        call.__signature__ = inspect.signature(options)  # type: ignore[attr-defined]
        return call

    return decorate


# Fingerprints: digests of settings, data and programs, by which a log is matched with them.


ANSWER_SETTINGS = frozenset(  # all that is ever written of a model: secrets have too many names to list
    {
        *("model", "model_type", "cache", "num_retries", "rollout_id", "prompt_cache", "use_developer_role"),
        *("temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "n", "stop", "max_tokens"),
        *("max_completion_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias"),
        *("logprobs", "top_logprobs", "response_format", "reasoning", "reasoning_effort", "thinking", "modalities"),
        *("enable_thinking", "verbosity", "service_tier", "finetuning_model", "extra_body", "chat_template_kwargs"),
    }
)
NESTED = ("extra_body", "chat_template_kwargs")  # settings that hold settings
# Other settings that name a secret or a place, or have no effect: models that differ only in these are equal.
PRIVATE = re.compile("key|token$|secret|pass|credential|auth|headers|base|url|endpoint|organi|query|cache$|callback")
SECRET = re.compile(  # names whose values are never written: they grant access and affect no answer
    "apikey|.key(_id)?$|passw|secret|credential|authorization|(^|_)token$|headers$|query$", re.IGNORECASE
)
_LOGIN = re.compile("(?<=://)[^/@\\s]*@")
_QUERY = re.compile("[?#].*", re.DOTALL)
SMALL = 64  # largest number of elements of an array that is described by its values
HELD = ("_parameters", "_buffers", "_modules")  # attributes in which a torch module holds its weights and parts
NEUTRAL = ("history", "callbacks", "report")  # attributes of a DSPy module that do not change what it does


_SORTED = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


def digest(content: Any, length: int = 16) -> str:
    """Return the first digits of the SHA-256 of JSON content; an object that JSON cannot hold counts by its text."""
    return hashlib.sha256(_SORTED.encode(content).encode()).hexdigest()[:length]


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_login(address: str) -> str:
    """Return an address without the user's name and password."""
    return _LOGIN.sub("", address)


def plain_address(address: str) -> str:
    """Return an address without a login and without the query, in which some gateways take the key."""
    return _QUERY.sub("", without_login(address))


def model_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a language model that may be written: those in ``ANSWER_SETTINGS``, at every depth."""
    return {
        name: model_settings(value) if name in NESTED and isinstance(value, Mapping) else value
        for name, value in settings.items()
        if name in ANSWER_SETTINGS
    }


def describe(part: Any, around: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Describe the parts of a module, metric or proposer that affect its behavior, as far as JSON can hold them.

    A language model counts by its name and settings, without keys and addresses; a function by its code, its defaults
    and what it encloses; a partial or bound method by its function with arguments or object; any other object by its
    attributes, but those of modules that begin with an underscore. A part that nothing identifies is a ValueError.
    Objects ``around`` it are not described again.
    """
    around = (*around, part)
    if _is_predictor(part):
        return _describe_predictor(part, around)
    settings = {name: value for name, value in vars(part).items() if name not in NEUTRAL and not name.startswith("_")}
    return {"kind": type(part).__name__, **{name: _plain(value, around) for name, value in settings.items()}}


def _is_predictor(part: Any) -> bool:
    return hasattr(part, "signature") and hasattr(part, "demos")


def _describe_predictor(part: Any, around: tuple[Any, ...]) -> dict[str, Any]:
    import dspy

    fields = {}
    for name, field in part.signature.fields.items():
        extra = field.json_schema_extra or {}
        fields[name] = {"type": str(field.annotation), **{key: str(extra.get(key)) for key in ("desc", "prefix")}}
    return {
        "instructions": part.signature.instructions,
        "fields": fields,
        "demos": [_plain(dict(demo), around) for demo in part.demos],
        "config": _describe_settings(part.config),
        "lm": _plain(part.lm or dspy.settings.lm, around),
    }


def _describe_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a model's settings; an unknown setting may affect answers or be a secret, so its digest counts."""
    public = {name: value for name, value in settings.items() if not PRIVATE.search(name)}
    plain = {name: _plain(value) for name, value in model_settings(public).items()}
    return plain | {name: digest(_plain(value)) for name, value in public.items() if name not in ANSWER_SETTINGS}


def _describe_function(function: Any, around: tuple[Any, ...]) -> dict[str, Any]:
    around = (*around, function)
    enclosed = {name: _plain(value, around) for name, value in inspect.getclosurevars(function).nonlocals.items()}
    state = [_plain(function.__defaults__, around), _plain(function.__kwdefaults__, around), enclosed]
    return {"function": function.__qualname__, "code": digest([_code(function.__code__), *state])}


def _describe_object(value: Any, around: tuple[Any, ...], *, without: Collection[str] = ()) -> dict[str, Any]:
    """Describe an object by its class, its code when called, and its attributes except ``without``."""
    cls, around = type(value), (*around, value)
    slots = [name for base in cls.__mro__ for name in getattr(base, "__slots__", ()) if hasattr(value, name)]
    if not hasattr(value, "__dict__") and not slots:
        raise ValueError(
            f"{value!r:.80} cannot be told from another {cls.__qualname__}, so answers to it cannot be kept: give a "
            "function, a functools.partial of one, or an object with attributes."
        )
    attributes = {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}
    described: dict[str, Any] = {"kind": f"{cls.__module__}.{cls.__qualname__}"}
    if isinstance(call := cls.__dict__.get("__call__"), FunctionType):
        described["call"] = _describe_function(call, around)
    for name, attribute in attributes.items():
        if name in without:
            continue
        try:
            described |= _plain({name: attribute}, around)
        except ValueError:
            if not name.startswith("_"):  # a private lock or connection has no effect on answers
                raise
    return described


def _describe_array(array: Any) -> Any:
    """Return the values of a small array or tensor; a large one counts by the SHA-256 of its bytes."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() else array  # numpy has no bfloat16
    array = np.asarray(array)
    if array.size <= SMALL or array.dtype.hasobject:
        return array.tolist()
    return {"array": hashlib.sha256(array.tobytes()).hexdigest(), "shape": array.shape, "of": str(array.dtype)}


def _code(code: CodeType) -> list[Any]:
    """Return the instructions of a compiled function, and the names that it uses."""
    return [code.co_code.hex(), code.co_names, [_constant(constant) for constant in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)  # a set has no order of its own


def _plain(value: Any, around: tuple[Any, ...] = ()) -> Any:
    """Return a value as JSON data; ``around`` are the objects that hold it, which are not described once more."""
    if isinstance(value, str):
        return without_login(value)
    if value is None or isinstance(value, int | float):
        return value
    if any(value is holder for holder in around):
        return {"again": type(value).__qualname__}
    if isinstance(value, Mapping):
        around = (*around, value)
        return {str(key): "" if SECRET.search(str(key)) else _plain(item, around) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, (*around, value)) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, around) for item in value), key=repr)
    if hasattr(value, "tolist"):
        return _describe_array(value)
    if hasattr(value, "named_parameters") and hasattr(value, "named_buffers"):
        parts = {name: _describe_object(part, around, without=HELD) for name, part in value.named_modules()}
        weights = {**dict(value.named_parameters()), **dict(value.named_buffers())}  # each is read once
        return {"parts": parts, "weights": _plain(weights)}
    if isinstance(value, partial):
        return {"partial": _plain(value.func, around), "args": _plain([*value.args, value.keywords], around)}
    if isinstance(value, MethodType):
        return {"method": _describe_function(value.__func__, around), "object": _plain(value.__self__, around)}
    if isinstance(value, FunctionType):
        return _describe_function(value, around)
    if isinstance(value, type | BuiltinFunctionType | ModuleType):
        return getattr(value, "__qualname__", value.__name__)
    if hasattr(value, "model") and (hasattr(value, "kwargs") or hasattr(value, "choice_logprobs")):
        settings = _describe_settings(getattr(value, "kwargs", None) or {})
        return {"model": str(value.model), **settings} if settings else str(value.model)
    if is_dataclass(value) or isinstance(value, PurePath | bytes | complex | Enum | date | re.Pattern):
        return repr(value)
    if _is_predictor(value) or hasattr(value, "named_parameters") or type(value).__module__.startswith("evalbias."):
        return describe(value, around)
    return _describe_object(value, around)


# Keys in texts of others.


SHORTEST_SECRET = 8  # shortest key that is hidden everywhere in answers: shorter keys may be words


def key_blanker(key: str | None) -> Callable[[str], str]:
    """Return a function that replaces a key in a server's answer by ``[key]``, because some servers repeat it.

    In JSON, characters may be escaped, also in JSON within a JSON string. A short key may be a common word: it is
    replaced only after "Bearer ".
    """
    if key is None:
        return lambda text: text
    before = "Bearer " if len(key) < SHORTEST_SECRET else ""
    letters = [rf"(?:\\{{0,8}}{re.escape(letter)}|\\{{1,8}}u00(?i:{ord(letter):02x}))" for letter in key]
    escaped = re.compile(f"(?<={before})" + "".join(letters))
    # Letters are escaped as \u0041. The search for escapes is ten times faster than that for the key.
    escapes = re.compile(r'\\u00[2-7]|\\[/"\\]' if set(key) & set('/"\\') else r"\\u00[2-7]")

    def blanked(text: str) -> str:
        text = text.replace(before + key, f"{before}[key]")
        return escaped.sub("[key]", text) if escapes.search(text) else text

    return blanked


# Results as JSON and back: every file of a run writes NaN, infinities, arrays and dataclasses in this way.
#
# ``read_json`` reads every JSON file except data, whose errors name a line: see ``evalbias.data.files``.


PLAIN = frozenset({str, int, float, bool, type(None)})
INFINITIES = {math.inf: "Infinity", -math.inf: "-Infinity"}


def to_json(value: Any) -> Any:
    """Return a value as strict JSON can hold it: NaN becomes null, infinities ``"Infinity"`` and ``"-Infinity"``.

    Examples:
        >>> to_json({"scores": np.array([1.0, np.nan, -np.inf])})
        {'scores': [1.0, None, '-Infinity']}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return INFINITIES.get(value)
    if type(value) in PLAIN:  # most values of a journal: asking them for more takes longer than writing them
        return value
    if hasattr(value, "to_dict"):
        return to_json(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if (kinds := set(map(type, value))) <= PLAIN:  # faster than value by value
            return [INFINITIES.get(v) if isinstance(v, float) and not math.isfinite(v) else v for v in value]
        if kinds == {list} and set(map(type, chain(*value))) == {float} and all(map(math.isfinite, chain(*value))):
            return [[*row] for row in value]  # a table of numbers
        return [to_json(item) for item in value]
    return value


def json_number(value: float | str | None) -> float:
    """Read a number as ``to_json`` writes it: null is NaN; anything else, or a number too large, is a ValueError.

    Examples:
        >>> json_number(None), json_number("-Infinity"), json_number(1.5)
        (nan, -inf, 1.5)
    """
    try:
        return math.nan if value is None else float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{value!r:.80} is not a number.") from error


def python_literal(content: str) -> Any:
    """Parse Python's repr of plain values, as pandas writes it; ValueError for anything else."""
    if content.lstrip()[:1] not in ("[", "{"):
        raise ValueError("It is no list and no object.")
    try:
        return ast.literal_eval(_Plain().visit(ast.parse(content.strip(), mode="eval")))
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from error


class _Plain(ast.NodeTransformer):
    """Makes plain values of ``np.float64(3.0)`` and ``nan``; refuses a repeated name in an object."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_number = isinstance(node.func, ast.Attribute) and ast.unparse(node.func).startswith("np.")
        return node.args[0] if is_number and len(node.args) == 1 and not node.keywords else node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        if len({ast.dump(key) for key in node.keys if key}) < len(node.keys):
            raise ValueError("A name stands twice in one object.")
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(None) if node.id == "nan" else node


def read_json(path: str | os.PathLike[str], remedy: str = "delete its folder to start over") -> dict[str, Any]:
    """Read a file of one JSON object; the ValueError of a damaged file names it and the ``remedy``."""
    return json_object(Path(path).read_bytes(), str(path), remedy)


def json_object(content: bytes, place: str, remedy: str) -> dict[str, Any]:
    """Read a JSON object from bytes, such as a line of a file; errors as those of ``read_json``, with this place."""
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not valid JSON ({error}): {remedy}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{place} holds {json.dumps(value):.80} in place of a JSON object: {remedy}.")
    return value


# Names in texts of any script.


_UNSPACED = "\u0e00-\u109f\u1780-\u17ff\u3005-\u318f\u31a0-\u31ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
WORD_CHARACTER = rf"[^\W{_UNSPACED}\U00020000-\U0003ffff]"
"""Pattern of a character that, beside a name, makes it a part of a longer word.

Letters of scripts that write words without spaces (Chinese, Japanese, Thai) or attach particles (Korean) do not.
"""


_HALF_WIDTH = {0xFF01 + place: 0x21 + place for place in range(93)}  # a wave dash is no tilde


def half_width(text: str) -> str:
    """Return a text with ASCII for the full-width forms of it that Chinese and Japanese write.

    Examples:
        >>> half_width("Ａ：４")
        'A:4'
    """
    return text.translate(_HALF_WIDTH)


# Texts of data and servers as a terminal, a page, a log or a CI job may show them.


SIGN = "\ufffd"  # stands in the place of each character that is left out
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"  # control characters, and no characters
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"  # direction, ends of lines, hidden letters
)
_COMMAND = re.compile(r"^([^\S\n]*):(?=:|\Z)|(#)#(?=\w*(?:\[|\Z))", re.MULTILINE)
"""``::error::`` and ``##[error]``, ``##vso[...]``: GitHub trims a line before it looks for the first, and finds the
others anywhere in it, so that an indent does not help. A text may end inside a command."""


def visible(text: object) -> str:
    """Replace the characters that a terminal obeys, that reorder or hide text, or that no UTF-8 file can hold."""
    return _HIDDEN.sub(SIGN, str(text))


def shell_word(word: str) -> str:
    r"""Quote a word for bash and zsh on one line; control characters and CI commands are spelled by their codes.

    Example:
        >>> print(shell_word("the score"), shell_word("my\n'score'"))
        'the score' $'my\n\'score\''
    """
    if "\n" not in word and visible(without_commands(word)) == word:
        return shlex.quote(word)
    spelled = {"\n": r"\n", "\\": r"\\", "'": r"\'"}
    for c in {*word} - {*spelled}:
        if c in "#:" or visible(c) != c:
            spelled[c] = f"\\x{ord(c):02x}" if c < "\x80" else f"\\U{ord(c):08x}"
    return f"$'{''.join(spelled.get(c, c) for c in word)}'"


def without_commands(text: str) -> str:
    """Replace a character of whatever a CI job would read as a command in its log."""
    return _COMMAND.sub(rf"\1\2{SIGN}", text)


def message(text: object) -> str:
    """Return a message as it may be printed or logged: no line but the first begins with what it quotes."""
    return without_commands(visible(text).replace("\n", "\n  "))


def first_few(names: Sequence[str], most: int) -> str:
    """Return the first names with commas between them; dots stand for more than ``most``."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def get_logger(name: str) -> logging.Logger:
    """Return a logger whose messages any handler of the application may print."""
    logger = logging.getLogger(name)
    logger.addFilter(_make_printable)  # once, however often it is added
    return logger


def _make_printable(record: logging.LogRecord) -> bool:
    record.msg, record.args = message(record.getMessage()), ()
    return True
