"""
A signatures file: what each function was compiled for. The format is in
docs/persistent-cache.md.

Whatever is not as described there is rejected before anything is imported.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jaxmon.errors import ConfigFileError, SignaturesError
from jaxmon.host.files import bounded
from jaxmon.host.formats import json_text
from jaxmon.host.formats.json_text import require_list, require_object


SCHEMA = 1

MOST_BYTES = 32 << 20
"""Maximum size of a file; agents record a tenth of it."""

ARRAYS = ("jax", "numpy")
KINDS = (*ARRAYS, "bool", "int", "float", "complex")
"""What a leaf is: an array of JAX or NumPy, or a number of Python."""

COMPILED, CACHED, FAILED = "compiled", "cached", "failed"
STATUSES = (COMPILED, CACHED, FAILED)
"""What becomes of a signature that `jaxmon warmup` compiles."""

_MOST_FUNCTIONS = 10_000
_LONGEST = 300
_LARGEST = (1 << 31) - 1
_DTYPE = r"[a-z][a-z0-9_]{0,30}(<[a-z0-9]{1,20}>)?"
T = TypeVar("T")
_CONTAINERS = ("dict", "list", "tuple", "namedtuple", "node", "static")


class RecordedSignature(NamedTuple):
    """
    One signature of a function.

    Args:
        args: positional arguments, each as in the file.
        kwargs: keyword arguments, likewise.
        compiles: number of compiles or loads from the persistent cache.
        compile_seconds: what calls waited for these.
        calls: estimated number of calls; `None` if unknown.
        used: whether a call used it after it was warmed up; `None` if unknown.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    compiles: int = 1
    compile_seconds: float = 0.0
    calls: float | None = None
    used: bool | None = None


class RecordedFunction(NamedTuple):
    """
    One function.

    Args:
        function: its label in metrics.
        module: where it is defined; empty if it has no name to import it by.
        qualname: its name there.
        parameters: names of its parameters; `None` if unknown.
        options: options of `jax.jit` that are not the default, as text.
        signatures: what it was compiled for.
        not_exportable: number of further signatures, by the reason why they are
            missing.
    """

    function: str
    module: str
    qualname: str
    parameters: tuple[str, ...] | None
    options: Mapping[str, str]
    signatures: tuple[RecordedSignature, ...]
    not_exportable: Mapping[str, int]


class Document(NamedTuple):
    """
    The content of a file.

    Args:
        versions: JAX's version and platform when it was recorded, by name.
        main: the module that ran as ``__main__``, empty if it was a script.
        functions: the functions.
    """

    versions: Mapping[str, str]
    main: str
    functions: tuple[RecordedFunction, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as in the file."""
        functions = [
            of._asdict() | {"signatures": [found._asdict() for found in of.signatures]}
            for of in self.functions
        ]
        return {"schema": SCHEMA, **self._asdict(), "functions": functions}


def read(path: Path) -> Document:
    """
    Return the content of the file *path*. Raises `SignaturesError`: it cannot be read,
    or is not such a file.
    """
    try:
        data = bounded.read(path, most=MOST_BYTES, pipe=True)
    except ConfigFileError as error:
        msg = f"{path}: {error}"
        raise SignaturesError(msg) from error
    try:
        return parsed(json_text.parse(data))
    except (ValueError, OverflowError) as error:
        msg = (
            f"{path} is not a signatures file: {error}; create one with `jaxmon "
            "signatures export`"
        )
        raise SignaturesError(msg) from error


def parsed(document: Any) -> Document:
    """
    Return *document*, decoded JSON. Raises `ValueError`: it is not as described in
    docs/persistent-cache.md.
    """
    found = require_object("the file", document)
    json_text.require_schema(found, SCHEMA)
    functions = require_list("functions", found.get("functions"))
    most = f"at most {_MOST_FUNCTIONS}"
    _require(len(functions) <= _MOST_FUNCTIONS, "functions", len(functions), most)
    return Document(
        _all("versions", found.get("versions", {}), _text),
        _module("main", found.get("main", "")),
        tuple(map(_function, functions)),
    )


def _function(value: Any) -> RecordedFunction:
    found = require_object("a function", value)
    name = _text("function", found.get("function"))
    parameters = found.get("parameters")
    if parameters is not None:
        what = f"parameters of {name}"
        parameters = tuple(_text(what, of) for of in require_list(what, parameters))
    signatures = require_list(f"signatures of {name}", found.get("signatures"))
    return RecordedFunction(
        name,
        _module(f"module of {name}", found.get("module")),
        _text(f"qualname of {name}", found.get("qualname")),
        parameters,
        _all(f"options of {name}", found.get("options", {}), _text),
        tuple(_signature(name, signature) for signature in signatures),
        _all(f"not_exportable of {name}", found.get("not_exportable", {}), _whole),
    )


def _signature(name: str, value: Any) -> RecordedSignature:
    found = require_object(f"a signature of {name}", value)
    args = require_list(f"args of {name}", found.get("args"))
    kwargs = require_object(f"kwargs of {name}", found.get("kwargs", {}))
    for argument in (*args, *kwargs.values()):
        _require_node(name, argument)
    calls, used = found.get("calls"), found.get("used")
    return RecordedSignature(
        tuple(args),
        kwargs,
        _whole(f"compiles of {name}", found.get("compiles", 1)),
        _number(f"compile_seconds of {name}", found.get("compile_seconds", 0)),
        None if calls is None else _number(f"calls of {name}", calls),
        used if isinstance(used, bool) else None,
    )


def without_unused(document: Document) -> Document:
    """Return *document* without signatures that are known not to have been used."""
    functions = [
        function._replace(signatures=kept)
        for function in document.functions
        if (kept := tuple(of for of in function.signatures if of.used is not False))
    ]
    return document._replace(functions=tuple(functions))


def parts(of: RecordedSignature) -> Iterator[tuple[str, Any]]:
    """Yield leaves, containers without their content, and static values, by place."""
    for number, argument in enumerate(of.args):
        yield from _parts(argument, f"[{number}]")
    for name, argument in of.kwargs.items():
        yield from _parts(argument, name)


def _parts(node: Any, where: str) -> Iterator[tuple[str, Any]]:
    kind = next((kind for kind in _CONTAINERS if kind in (node or ())), "static")
    if kind == "static":
        yield where, node
        return
    yield where, {key: None if key == kind else value for key, value in node.items()}
    pairs = node[kind] if kind == "dict" else enumerate(node[kind])
    for key, value in pairs:
        yield from _parts(value, f"{where}[{key!r}]")


def texts(signatures: Sequence[RecordedSignature]) -> list[str]:
    """Return what is peculiar to each of the *signatures* of one function."""
    found = [
        {(where, _text_of(node)) for where, node in parts(of)} for of in signatures
    ]
    common = set.intersection(*found) if len(found) > 1 else set()
    return [
        ", ".join(f"{where}: {text}" for where, text in sorted(these - common))[
            :_LONGEST
        ]
        for these in found
    ]


def _text_of(node: Any) -> str:
    """Return a part of a signature as text, an array as ``float32[8,4]``."""
    if not node or node.get("kind") not in ARRAYS:
        return json.dumps(node)
    sizes = ",".join(map(str, node["shape"]))
    more = {key: node[key] for key in ("weak", "device", "sharding") if key in node}
    return f"{node['dtype']}[{sizes}]" + (f" {json.dumps(more)}" if more else "")


def _require_node(name: str, value: Any) -> None:
    if value is None:
        return
    what = f"an argument of {name}"
    node = require_object(what, value)
    # A node has a static part, too.
    kind = next((kind for kind in _CONTAINERS if kind in node), "")
    _require(bool(kind) != ("shape" in node), what, value, "an array or container")
    if not kind:
        _require_leaf(name, node)
        return
    if kind in {"node", "static"}:
        _require_static(name, node.get("static"))
    if kind == "static":
        return
    for item in require_list(what, node[kind]):
        if kind == "dict":
            named = _is_pair(item) and type(item[0]) in (str, int)
            _require(named, f"an item of {what}", item, "key and value")
        _require_node(name, item[1] if kind == "dict" else item)
    if kind in {"namedtuple", "node"}:
        _require_path(name, node.get("class"))


def _require_path(name: str, value: Any) -> None:
    path = _text(f"an object of {name}", value)
    is_path = path.count(":") == 1 and all(map(_is_dotted, path.split(":")))
    _require(is_path, f"an object of {name}", path, "module:name")


def _require_leaf(name: str, leaf: Mapping[str, Any]) -> None:
    for dimension in require_list(f"a shape of {name}", leaf["shape"]):
        _whole(f"a dimension of {name}", dimension)
    dtype = _text(f"a dtype of {name}", leaf.get("dtype"))
    _require(re.fullmatch(_DTYPE, dtype), f"a dtype of {name}", dtype, "a name of one")
    kind, weak = leaf.get("kind"), leaf.get("weak", False)
    _require(kind in KINDS, f"a kind of {name}", kind, f"one of {KINDS}")
    _require(isinstance(weak, bool), f"weak of {name}", weak, "true or false")
    if leaf.get("device") is not None:
        _whole(f"a device of {name}", leaf["device"])
    sharding = require_object(f"a sharding of {name}", leaf.get("sharding") or {})
    for axis in require_list(f"axes of {name}", sharding.get("axes", [])):
        _require(_is_pair(axis), f"an axis of {name}", axis, "name and size")
        _text(f"an axis of {name}", axis[0])
        _whole(f"an axis of {name}", axis[1])


def _require_static(name: str, value: Any) -> None:
    inner: Any = value
    if isinstance(value, dict):
        kind, inner = next(iter(value.items())) if len(value) == 1 else ("", None)
        if kind == "name":
            _require_path(name, inner)
            return
        fits = kind in {"list", "dict"} and isinstance(inner, list)
        fits = fits and (kind == "list" or all(map(_is_pair, inner)))
        _require(fits, f"a static argument of {name}", value, "a value")
    for item in inner if isinstance(inner, list) else ():
        _require_static(name, item)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2  # noqa: PLR2004 - key and value


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _require(fits: object, what: str, value: Any, wanted: str) -> None:
    if not fits:
        msg = f"{what} is {value!r:.80}, not {wanted}"
        raise ValueError(msg)


def _all(what: str, value: Any, read: Callable[[str, Any], T]) -> dict[str, T]:
    return {key: read(what, item) for key, item in require_object(what, value).items()}


def _module(what: str, value: Any) -> str:
    name = _text(what, value)
    _require(not name or _is_dotted(name), what, name, "the name of a module")
    return name


def _text(what: str, value: Any) -> str:
    fits = isinstance(value, str) and len(value) <= _LONGEST
    _require(fits, what, value, f"a string of at most {_LONGEST} characters")
    return str(value)


def _whole(what: str, value: Any) -> int:
    fits = type(value) is int and 0 <= value <= _LARGEST
    _require(fits, what, value, f"a whole number from 0 to {_LARGEST}")
    return int(value)


def _number(what: str, value: Any) -> float:
    fits = type(value) in (int, float) and 0 <= value < math.inf
    _require(fits, what, value, "a number from 0")
    return float(value)
