"""
Fail if an internal name of JAX is used outside of `jaxmon/agent/jaxlink/`.

JAX may change any of these names with any release. In one package they can be looked
through, compared with a release (`make compat`), and listed in
docs/contributors/jax-internals.md.
The rules, for code, not for comments and docstrings:

| Rule | Forbids |
|---|---|
| D1 | ``jax._src`` as an attribute or in a text |
| D2 | imports of ``jax._src`` and of ``jaxlib`` |
| D3 | a name of the table, an event or a message of JAX as a text |
| D4 | an attribute of the table: a private one, or one of JAX's objects |
| D5 | reading variables and code of functions: ``f_locals``, ``co_names`` and others |
| D6 | comparing the name of a function on the stack |
| D7 | asking whether something is JAX's by comparing with ``"jax"`` or ``"jaxlib"`` |
| D8 | asking for the release: ``__version_info__`` |

All of them hold in `jaxmon/agent/`; D1, D2 and events everywhere else as well. Tests
may do anything.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from jaxmon.agent.jaxlink.names import NAMES


ROOT = Path(__file__).resolve().parent.parent
DOOR = "jaxmon/agent/jaxlink/"
STRICT = "jaxmon/agent/"
FOLDERS = (
    "jaxmon",
    "alerts",
    "dashboards",
    "exporters",
    "tools",
    "benchmarks",
    "examples",
)

# One of these is in each module that breaks a rule which holds everywhere.
_SIGNS = ("_src", "jaxlib", "__version_info__", "/jax")
_READS = frozenset(
    {
        *("f_locals", "co_freevars", "co_cellvars", "co_consts", "co_names"),
        *("co_varnames", "__closure__", "cell_contents"),
    }
)
_ROOTS = frozenset({"jax", "jaxlib"})
# Words of the table that code may use for other things: what is read from a frame or
# from JAX's code is found by D5 all the same.
_COMMON = frozenset(
    {
        *("args", "array", "axis_name", "backend", "block_until_ready", "children"),
        *("callback", "debugging", "device", "device_put", "devices", "effects", "f"),
        *("backend_compile", "compiled", "cost_analysis", "error_code", "executable"),
        *("fun", "i", "jit", "kwargs", "lock", "name", "object", "out", "p", "pmap"),
        *("path", "put", "self", "session", "stage", "value", "warnings", "__init__"),
        *("is_deleted", "is_ready", "Device", "Mesh", "P", "node_data", "num_leaves"),
        *("unset", "__version__", "AUTO", "__array__", "__call__", "default_memory"),
        *("axis_types", "flops", "message"),
        *("flat_args", "fun_name", "debug_info", "trace", "lower"),
    }
)

# Rules that a module may break, and why.
ALLOWED = {
    ("jaxmon/agent/inspection.py", "D7"): "packages whose classes can be trusted",
    ("jaxmon/agent/memory/holders.py", "D5"): "code of the user's function",
    ("jaxmon/agent/recompiles/argument_trees.py", "D5"): "code of the user's function",
    ("jaxmon/agent/recompiles/causes.py", "D5"): "code of the user's function",
    ("jaxmon/agent/recompiles/recreations.py", "D5"): "code of the user's function",
    ("jaxmon/agent/tracing/reader.py", "D5"): "code of the user's function",
    ("jaxmon/agent/tracing/reader.py", "D6"): "code of the user's function",
    ("jaxmon/agent/warm/recorder.py", "D5"): "code of the user's function",
    ("tools/reference.py", "D1"): "says how to read the table",
    ("tools/check_door.py", "D1"): "this rule",
    ("tools/check_door.py", "D3"): "this rule",
}


def _words() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the words of the table, and its messages."""
    messages = tuple(one.word for one in NAMES if one.path.startswith('"'))
    words = {part for one in NAMES for part in re.split(r"[.:()]", one.path)}
    known = {one.word for one in NAMES} | {
        word for word in words if word.startswith("_") and not word.startswith("__")
    }
    return frozenset(known - _COMMON - {"_src", *messages}), messages


_WORDS, _MESSAGES = _words()
_ATTRIBUTES = frozenset(
    word
    for word in _WORDS
    if word.startswith("_")
    or any(one.word == word for one in NAMES if one.path.startswith("<"))
)


def findings(source: str, *, strict: bool) -> list[tuple[int, str, str]]:
    """
    Return line, rule and what breaks it in *source*.

    Args:
        source: of a module outside of the door.
        strict: it is a module of the agent.
    """
    if not strict and not any(sign in source for sign in _SIGNS):
        return []
    nodes = list(ast.walk(ast.parse(source)))
    documentation = set(map(id, _documentation(nodes)))
    found = {
        (getattr(node, "lineno", 0), rule, what)
        for node in nodes
        if id(node) not in documentation
        for rule, what in _at(node, strict=strict)
    }
    return sorted(found)


def _at(node: ast.AST, *, strict: bool) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Attribute):
        yield from _attribute(node, strict=strict)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _text(node.value, strict=strict)
    elif isinstance(node, ast.Import):
        yield from _imports(one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from _imports([node.module or ""])
    elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
        yield from _imports(_texts(node.args))
    elif strict and isinstance(node, ast.Compare):
        yield from _comparison(node)
    elif (
        strict
        and isinstance(node, (ast.Tuple, ast.List, ast.Set))
        and set(_texts(node.elts)) >= _ROOTS
    ):
        yield "D7", "jax and jaxlib, listed"


def _attribute(node: ast.Attribute, *, strict: bool) -> Iterator[tuple[str, str]]:
    name = node.attr
    if name == "_src":
        yield "D1", ast.unparse(node)
    elif name == "__version_info__":
        yield "D8", ast.unparse(node)
    elif strict and name in _READS:
        yield "D5", f".{name}"
    elif strict and name in _ATTRIBUTES and not _is_own(node.value):
        yield "D4", f".{name}"


def _is_own(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Name) and owner.id in ("self", "cls")


def _text(text: str, *, strict: bool) -> Iterator[tuple[str, str]]:
    if "jax._src" in text or "jax/_src" in text or text == "_src":
        yield "D1", repr(text)
    elif text.startswith("/jax/") or (
        strict and (text in _WORDS or any(one in text for one in _MESSAGES))
    ):
        yield "D3", repr(text)


def _imports(modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    for module in modules:
        if module.partition(".")[0] == "jaxlib" or module.startswith("jax._src"):
            yield "D2", module


def _comparison(node: ast.Compare) -> Iterator[tuple[str, str]]:
    sides = [node.left, *node.comparators]
    inside = [one for side in sides for one in ast.walk(side)]
    attributes = {one.attr for one in inside if isinstance(one, ast.Attribute)}
    if attributes & {"co_name", "co_qualname"}:
        yield "D6", ast.unparse(node)
    if _ROOTS & set(_texts(inside)):
        yield "D7", ast.unparse(node)


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _documentation(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def main() -> int:
    """Print what was found; return the exit code."""
    count = 0
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(DOOR):
                continue
            strict = name.startswith(STRICT)
            for line, rule, what in findings(path.read_text(), strict=strict):
                if (name, rule) not in ALLOWED:
                    print(f"{name}:{line}: {rule} {what}")
                    count += 1
    if count:
        print(f"{count} name(s) of JAX outside of {DOOR}; use its functions instead")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
