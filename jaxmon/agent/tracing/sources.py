"""Which function is read, its source, and what may be wrong in it."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import linecache
import sys
import tokenize
import types
from collections.abc import Callable
from importlib.util import decode_source
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.counted import uncounted
from jaxmon.agent.inspection import ABSENT, field_of, is_subclass
from jaxmon.errors import JaxmonError
from jaxmon.host.files import bounded
from jaxmon.threads import get_ident


Node: TypeAlias = ast.FunctionDef | ast.Lambda

_MAX_BYTES = 1 << 20
"""Maximum size of a source file: larger ones are generated."""

_MAX_LINES = 2_000
"""Maximum lines of a function."""


def node_of(code: CodeType) -> Node | None:
    """
    Return the syntax tree of *code*, its lines numbered as in the file; `None` if there
    is no source, or if it has changed since it was loaded.

    Reads the file, or what a notebook keeps of its cells. Takes about a millisecond for
    a hundred lines.
    """
    first = code.co_firstlineno
    lines = _lines(code.co_filename)[first - 1 : first - 1 + _MAX_LINES]
    try:
        block = inspect.getblock(lines)
        text = "".join(block)
        # A method or an inner function is indented.
        prefix = "if 1:\n" if text[:1].isspace() else ""
        tree = parsed(prefix + text)
    except (
        *(SyntaxError, ValueError, RecursionError, IndexError),
        tokenize.TokenError,
    ) as error:
        interrupts.pass_on(error)
        return None
    found = [node for node in ast.walk(tree) if _is_of(node, code)]
    if len(found) != 1 or not _is_unchanged(code, text, len(block)):
        return None
    ast.increment_lineno(tree, first - 1 - bool(prefix))
    node = found[0]
    assert isinstance(node, ast.FunctionDef | ast.Lambda)  # noqa: S101 - for mypy
    return node


def parameters_of(node: Node) -> list[str]:
    """Return the names of all parameters of *node*, in the order of its code."""
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    gathered = [
        parameter for parameter in (given.vararg, given.kwarg) if parameter is not None
    ]
    return [parameter.arg for parameter in (*named, *gathered)]


def _lines(file: str) -> list[str]:
    cached = linecache.cache.get(file)
    if cached is not None and len(cached) == 4:  # noqa: PLR2004 - not a lazy one
        return cached[2]
    if file.startswith("<"):
        return []
    with interrupts.expected(JaxmonError, SyntaxError, UnicodeError):
        content = bounded.read(Path(file), most=_MAX_BYTES)
        return decode_source(content).splitlines(keepends=True)
    return []


def _is_of(node: ast.AST, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        named = code.co_name == "<lambda>"
    elif isinstance(node, ast.FunctionDef):
        first = min(
            [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
        )
        named = code.co_name == node.name and first <= 2  # noqa: PLR2004 - the first line
    else:
        return False
    return named and parameters_of(node) == list(code.co_varnames[: _arguments(code)])


def _arguments(code: CodeType) -> int:
    gathered = bool(code.co_flags & inspect.CO_VARARGS) + bool(
        code.co_flags & inspect.CO_VARKEYWORDS
    )
    return code.co_argcount + code.co_kwonlyargcount + gathered


def _is_unchanged(code: CodeType, text: str, lines: int) -> bool:
    """Return whether *text*, of so many *lines*, may be what *code* was made of."""
    last = max([line or 0 for _, _, line in code.co_lines()], default=0)
    # A private name is stored with its class.
    names = [
        name for name in code.co_names if not name.startswith("_") and "." not in name
    ]
    return last < code.co_firstlineno + lines and all(name in text for name in names)


def parsed(source: str) -> ast.Module:
    """
    Return the tree of *source*.

    Python 3.11 counts the depth of a tree for all threads together. If the garbage
    collector runs code while a tree is built, and that lets another thread build one,
    both raise `SystemError`, also in the program. Within a collection there is no
    other, and no thread that has been stopped by one while it builds.

    Raises:
        SyntaxError, ValueError, RecursionError: as `ast.parse`.
    """
    if sys.version_info >= (3, 12):  # which collects between two instructions only
        return ast.parse(source)
    found: list[ast.Module | Exception] = []
    here = get_ident()

    def build(phase: str, _: object) -> None:
        if phase == "start" and get_ident() == here and not found:
            try:
                found.append(ast.parse(source))
            except Exception as error:  # noqa: BLE001 - raised below
                found.append(error)

    gc.callbacks.append(build)
    try:
        while not found:  # unless another thread collects just now
            gc.collect(0)
    finally:
        gc.callbacks.remove(build)
    tree = found[0]
    if isinstance(tree, Exception):
        raise tree
    return tree


FROZEN = "frozen"
"""A value of the host, such as the time, became a constant of the program."""

ADVANCED = "advanced"
"""A counter of the program changed while tracing, and became a constant."""

LEAKED = "leaked"
"""A traced value was stored outside of the function."""

PRINTED = "printed"
"""A traced value was printed or logged while tracing, and on no later call."""

DROPPED = "dropped"
"""The result of ``x.at[i].set(v)`` is not used, so nothing is set."""


class Mistake(NamedTuple):
    """
    One mistake.

    Attributes:
        kind: one of the constants of this module.
        file: as the interpreter knows it.
        line: of the call or the assignment.
        text: its source, abridged: ``np.random.normal``, ``losses.append``.
        function: name of the Python function that contains it.
    """

    kind: str
    file: str
    line: int
    text: str
    function: str


_PARTIAL = vars(functools.partial)
_MOST_WRAPPERS = 16


class TracedFunction(NamedTuple):
    """
    A function that JAX traces.

    Attributes:
        function: the Python function.
        holder: the object that it is a method of, or `ABSENT`.
        given: number of arguments that a partial provides, and their names.
        traced: whether all other arguments are traced, but for static ones.
    """

    function: Any
    holder: Any = ABSENT
    given: tuple[int, frozenset[str]] = (0, frozenset())
    traced: bool = True


def entry_of(fun: object, is_library: Callable[[str], bool]) -> TracedFunction | None:
    """
    Return the user's function inside *fun*, which is jitted.

    Args:
        fun: the callable passed to `jax.jit`.
        is_library: returns whether a file belongs to a library other than JAX.
    """
    holder: Any = ABSENT
    count, names, traced = 0, frozenset[str](), True
    for _ in range(_MOST_WRAPPERS):
        fun = uncounted(fun)
        if is_subclass(type(fun), functools.partial):
            bound: Any = fun
            count += len(_PARTIAL["args"].__get__(bound))
            names |= frozenset(_PARTIAL["keywords"].__get__(bound))
            fun = _PARTIAL["func"].__get__(bound)
        elif type(fun) is types.MethodType:
            holder, fun = fun.__self__, fun.__func__
        elif (wrapped := field_of(fun, "__wrapped__")) is not ABSENT:
            is_python = type(fun) is types.FunctionType
            code = getattr(fun, "__code__", None) if is_python else None
            # JAX passes on what it gets; others may separate what is static.
            traced = traced and (code is None or not is_library(code.co_filename))
            fun = wrapped
        else:
            break
    if type(fun) is not types.FunctionType:
        return None
    return TracedFunction(fun, holder, (count, names), traced)
