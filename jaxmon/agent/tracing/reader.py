"""Reads a jitted function, and the functions of the program that it calls."""

from __future__ import annotations

import ast
import builtins
import gc
import inspect
import linecache
import sys
import tokenize
import types
from collections.abc import Callable, Collection
from importlib.util import decode_source
from pathlib import Path
from types import CodeType

from jaxmon import interrupts
from jaxmon.agent.inspection import ABSENT
from jaxmon.agent.tracing import objects
from jaxmon.agent.tracing.expressions import Arguments
from jaxmon.agent.tracing.objects import NOTHING, Local, Names, Node, TracedValue
from jaxmon.agent.tracing.statements import Statements
from jaxmon.errors import JaxmonError
from jaxmon.host.files import bounded
from jaxmon.threads import get_ident


_MAX_READS = 100
"""
Maximum number of functions read for one that is jitted; one that gets other kinds of
arguments is read again.
"""

_DEEPEST = 8
"""Maximum depth of calls that are followed."""

_MAX_BYTES = 1 << 20
"""Maximum size of a source file: larger ones are generated."""

_MAX_LINES = 2_000
"""Maximum lines of a function."""


def read(
    entry: objects.TracedFunction,
    *,
    static: Collection[str | int],
    is_user: Callable[[str], bool],
) -> list[objects.Mistake]:
    """
    Return the mistakes in *entry* and in what it calls. Runs no code of the program,
    and takes a few milliseconds.

    Args:
        entry: the jitted function.
        static: positions and names of its static arguments.
        is_user: returns whether a file is the user's.
    """
    reading = _Reading(is_user)
    reading.enter(entry, static)
    found: dict[tuple[str, str, int], objects.Mistake] = {}
    for mistake in reading.mistakes:
        found.setdefault((mistake.kind, mistake.file, mistake.line), mistake)
    return list(found.values())


class _Reading:
    def __init__(self, is_user: Callable[[str], bool]) -> None:
        self.mistakes: dict[objects.Mistake, None] = {}
        self._is_user = is_user
        self._nodes: dict[types.CodeType, Node | None] = {}
        self._active: list[Node] = []
        self._results: dict[object, TracedValue] = {}
        self._counters = objects.Counters()
        self._left = _MAX_READS

    def enter(
        self, entry: objects.TracedFunction, static: Collection[str | int]
    ) -> None:
        """Read the jitted function."""
        node = self._node(entry.function)
        if node is None:
            return
        names: Names = {}
        count, given = entry.given
        order = parameters_of(node)
        is_bound = entry.holder is not ABSENT and bool(_positional(node))
        if is_bound:
            names[order[0]] = TracedValue(object=entry.holder, outer=True)
        for at, name in enumerate(order[is_bound:]):
            if name in static or at - count in static:
                kind = None if at or is_bound else _class_of(entry.function)
                names[name] = TracedValue(outer=True, kind=kind)
            elif at < count or name in given or not entry.traced:
                names[name] = NOTHING
            else:
                names[name] = objects.TRACED
        self._read(_local(entry.function, node), names, entry=True)

    def run(self, value: TracedValue, arguments: Arguments) -> TracedValue:
        """Read the functions in *value*; return what is certain about their results."""
        found: TracedValue | None = None
        for function in value.functions:
            result = self._call(function, arguments)
            found = result if found is None else objects.either(found, result)
        return found or NOTHING

    def _call(
        self, function: types.FunctionType | Local, arguments: Arguments
    ) -> TracedValue:
        if not isinstance(function, Local):
            node = self._node(function)
            if node is None:
                return NOTHING
            function = _local(function, node)
        return self._read(function, _bound(function.node, arguments))

    def _node(self, function: types.FunctionType) -> Node | None:
        code = function.__code__
        if not self._is_user(code.co_filename):
            return None
        if code not in self._nodes:
            self._nodes[code] = node_of(code)
        return self._nodes[code]

    def _read(
        self, function: Local, names: Names, *, entry: bool = False
    ) -> TracedValue:
        node = function.node
        key = node, *(value.key for value in names.values())
        if key in self._results:
            return self._results[key]
        if not self._left or len(self._active) >= _DEEPEST or node in self._active:
            return NOTHING
        self._left -= 1
        self._active.append(node)
        try:
            statements = Statements(
                function, names, self.run, counters=self._counters, entry=entry
            )
            statements.read()
        finally:
            self._active.pop()
        self.mistakes.update(statements.mistakes)
        self._results[key] = statements.returned or NOTHING
        return self._results[key]


def _class_of(function: types.FunctionType) -> type | None:
    """Return the class in whose body *function* was defined, if it is a global one."""
    *outer, name = function.__qualname__.split(".")
    if len(outer) != 1:
        return None
    found = dict.get(function.__globals__, outer[0])
    if type(found) is not type:
        return None
    return found if name in vars(found) else None


def _bound(node: Node, arguments: Arguments) -> Names:
    """Return the parameters of *node* for a call with *arguments*."""
    given, named = arguments
    every = named.get("*", NOTHING)
    names = dict.fromkeys(parameters_of(node), every)
    positional = _positional(node)
    names.update(zip(positional, given, strict=False))
    names.update({name: value for name, value in named.items() if name in names})
    if node.args.vararg is not None and len(given) > len(positional):
        names[node.args.vararg.arg] = objects.together(given[len(positional) :])
    return names


def _positional(node: Node) -> list[str]:
    return [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)]


def _local(function: types.FunctionType, node: Node) -> Local:
    return Local(node, _outer(function), function.__code__.co_filename)


def _outer(function: types.FunctionType) -> Callable[[str], TracedValue]:
    """Return what says what a name means in *function* that is not local to it."""
    free = function.__code__.co_freevars
    cells = dict(zip(free, function.__closure__ or (), strict=False))
    scopes = (function.__globals__, vars(builtins))

    def outer(name: str) -> TracedValue:
        if name in cells:
            with interrupts.expected(ValueError):  # deleted, or not set yet
                return TracedValue(object=cells[name].cell_contents, outer=True)
            return NOTHING
        for scope in scopes:
            found = dict.get(scope, name, ABSENT)
            if found is not ABSENT:
                return TracedValue(object=found, outer=True)
        return NOTHING

    return outer


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
        first = min([node.lineno, *(of.lineno for of in node.decorator_list)])
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
    Return the tree of *source*; raises what `ast.parse` does.

    Python 3.11 counts the depth of a tree for all threads together: if the garbage
    collector lets another thread build one meanwhile, both raise `SystemError`, also in
    the program. Within a collection there is no other.
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
