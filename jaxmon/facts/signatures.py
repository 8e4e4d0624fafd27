"""
A signatures file: what each function was compiled for. The format is in
docs/persistent-cache.md.

Whatever is not as described there is rejected before anything is imported.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
_CONTAINERS = ("dict", "list", "tuple", "namedtuple", "node", "static")


@dataclass(frozen=True, slots=True)
class RecordedSignature:
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

    def as_json(self) -> dict[str, Any]:
        """Return it as in the file."""
        return {
            "args": list(self.args),
            "kwargs": dict(self.kwargs),
            "compiles": self.compiles,
            "compile_seconds": self.compile_seconds,
            "calls": self.calls,
            "used": self.used,
        }


@dataclass(frozen=True, slots=True)
class RecordedFunction:
    """
    One function.

    Args:
        name: its label in metrics.
        module: where it is defined; empty if it has no name to import it by.
        qualname: its name there.
        parameters: names of its parameters; `None` if unknown.
        options: options of `jax.jit` that are not the default, as text.
        signatures: what it was compiled for.
        omitted: number of further signatures, by the reason why they are missing.
    """

    name: str
    module: str
    qualname: str
    parameters: tuple[str, ...] | None
    options: Mapping[str, str]
    signatures: tuple[RecordedSignature, ...]
    omitted: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return it as in the file."""
        return {
            "function": self.name,
            "module": self.module,
            "qualname": self.qualname,
            "parameters": None if self.parameters is None else list(self.parameters),
            "options": dict(self.options),
            "signatures": [signature.as_json() for signature in self.signatures],
            "not_exportable": dict(self.omitted),
        }


@dataclass(frozen=True, slots=True)
class Document:
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
        return {
            "schema": SCHEMA,
            "versions": dict(self.versions),
            "main": self.main,
            "functions": [function.as_json() for function in self.functions],
        }


def read(path: Path) -> Document:
    """
    Return the content of the file *path*.

    Raises:
        SignaturesError: it cannot be read, or is not such a file.
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
    Return *document*, decoded JSON.

    Raises:
        ValueError: it is not as described in docs/persistent-cache.md.
    """
    found = require_object("the file", document)
    json_text.require_schema(found, SCHEMA)
    versions = {
        name: _text(f"versions.{name}", version)
        for name, version in require_object(
            "versions", found.get("versions", {})
        ).items()
    }
    functions = require_list("functions", found.get("functions"))
    if len(functions) > _MOST_FUNCTIONS:
        msg = f"it has {len(functions)} functions, more than {_MOST_FUNCTIONS}"
        raise ValueError(msg)
    main = _text("main", found.get("main", ""))
    if main and not _is_dotted(main):
        msg = f"main is {main!r:.80}, not the name of a module"
        raise ValueError(msg)
    return Document(versions, main, tuple(map(_function, functions)))


def _function(value: Any) -> RecordedFunction:
    found = require_object("a function", value)
    name = _text("function", found.get("function"))
    module = _text(f"module of {name}", found.get("module"))
    qualname = _text(f"qualname of {name}", found.get("qualname"))
    if module and not _is_dotted(module):
        msg = f"module of {name} is {module!r:.80}, not the name of a module"
        raise ValueError(msg)
    parameters = found.get("parameters")
    if parameters is not None:
        listed = require_list(f"parameters of {name}", parameters)
        parameters = tuple(
            _text(f"parameter of {name}", parameter) for parameter in listed
        )
    options = require_object(f"options of {name}", found.get("options", {}))
    omitted = require_object(
        f"not_exportable of {name}", found.get("not_exportable", {})
    )
    signatures = require_list(f"signatures of {name}", found.get("signatures"))
    return RecordedFunction(
        name,
        module,
        qualname,
        parameters,
        {key: _text(f"option of {name}", option) for key, option in options.items()},
        tuple(_signature(name, signature) for signature in signatures),
        {key: _whole(f"count of {name}", number) for key, number in omitted.items()},
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
        replace(function, signatures=kept)
        for function in document.functions
        if (kept := tuple(of for of in function.signatures if of.used is not False))
    ]
    return replace(document, functions=tuple(functions))


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
    """Check an argument of *name*, or a part of one."""
    if value is None:
        return
    node = require_object(f"an argument of {name}", value)
    if "shape" in node:
        _require_leaf(name, node)
        return
    # A node has a static part, too.
    kind = next((kind for kind in _CONTAINERS if kind in node), None)
    if kind is None:
        msg = f"an argument of {name} is {value!r:.80}, which is no array or container"
        raise ValueError(msg)
    if kind in {"node", "static"}:
        _require_static(name, node.get("static"))
    if kind == "static":
        return
    for item in require_list(f"an argument of {name}", node[kind]):
        inner = item
        if kind == "dict":
            pair = require_list(f"an argument of {name}", item)
            if len(pair) != 2 or type(pair[0]) not in (str, int):  # noqa: PLR2004
                msg = (
                    f"an argument of {name} has {item!r:.80} in place of key and value"
                )
                raise ValueError(msg)
            inner = pair[1]
        _require_node(name, inner)
    if kind in {"namedtuple", "node"}:
        _require_path(name, node.get("class"))


def _require_path(name: str, value: Any) -> None:
    path = _text(f"an object of {name}", value)
    if path.count(":") != 1 or not all(map(_is_dotted, path.split(":"))):
        msg = f"an argument of {name} has the object {path!r:.80}; give module:name"
        raise ValueError(msg)


def _require_leaf(name: str, leaf: Mapping[str, Any]) -> None:
    shape = require_list(f"a shape of {name}", leaf["shape"])
    for dimension in shape:
        if _whole(f"a dimension of {name}", dimension) > _LARGEST:
            msg = f"a dimension of {name} is {dimension}, more than {_LARGEST}"
            raise ValueError(msg)
    dtype = _text(f"a dtype of {name}", leaf.get("dtype"))
    if not re.fullmatch(_DTYPE, dtype):
        msg = f"a dtype of {name} is {dtype!r:.40}"
        raise ValueError(msg)
    if leaf.get("kind") not in KINDS:
        msg = f"a kind of {name} is {leaf.get('kind')!r:.40}; give one of {KINDS}"
        raise ValueError(msg)
    if not isinstance(leaf.get("weak", False), bool):
        msg = f"weak of {name} is {leaf['weak']!r:.40}, not true or false"
        raise ValueError(msg)  # noqa: TRY004 - the file is wrong, not the program
    if leaf.get("device") is not None:
        _whole(f"a device of {name}", leaf["device"])
    sharding = require_object(f"a sharding of {name}", leaf.get("sharding") or {})
    for axis, size in require_list(f"axes of {name}", sharding.get("axes", [])):
        _text(f"an axis of {name}", axis)
        _whole(f"an axis of {name}", size)


def _require_static(name: str, value: Any) -> None:
    inner = value
    if isinstance(value, dict):
        kind, inner = next(iter(value.items())) if len(value) == 1 else ("", None)
        if kind == "name":
            _require_path(name, inner)
            return
        whole = {"list": isinstance(inner, list), "dict": _is_pairs(inner)}
        if not whole.get(kind, False):
            msg = f"a static argument of {name} is {value!r:.80}, which is no value"
            raise ValueError(msg)
    for item in inner if isinstance(inner, list) else ():
        _require_static(name, item)


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, list) and len(item) == 2  # noqa: PLR2004 - a key and a value
        for item in value
    )


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        msg = f"{what} is {value!r:.40}, not a string of at most {_LONGEST} characters"
        raise ValueError(msg)
    return value


def _whole(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        msg = f"{what} is {value!r:.40}, not a whole number from 0"
        raise ValueError(msg)
    return value


def _number(what: str, value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        msg = f"{what} is {value!r:.40}, not a number from 0"
        raise ValueError(msg)
    return float(value)
