"""
The equations of a program by the calls of the user's that traced them, and loops of
Python that were unrolled into it: the body's equations were traced from the same calls.

JAX traces a jitted function once for several calls, and keeps it for other programs. So
what is inside of one is said to be called from where this program calls it; newer
releases leave out its callers, older ones keep those of the first call.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.jaxlink.contents import captured, is_literal, kind_of
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder, line_at
from jaxmon.agent.jaxlink.transforms import jaxprs_in
from jaxmon.clocks import monotonic
from jaxmon.errors import ConfigFileError
from jaxmon.facts.contents import CompileLines, Unrolled
from jaxmon.facts.programs import CALLS, CompiledProgram, EquationStack, TracedLine
from jaxmon.host import sources
from jaxmon.host.files import bounded


_FEWEST_TIMES = 8
# Of the calls in a body, those that only a few passes make.
_SPECIAL = 0.1
_MOST_OUTERMOST, _MOST = 4000, 100_000
_MOST_FILES = 16

# Operation, calls that traced it, names, and shapes of its results.
_Origin: TypeAlias = tuple[str, Any, Any, tuple[Any, ...]]
_LOOPS = (ast.For, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def unrolled(jaxpr: Any, place: str, lines: SourceLineFinder) -> Unrolled | None:
    """Return the loop that is most of the function at *place*; 2 µs per equation."""
    if not place:
        return None
    first, rest = jaxpr.eqns[:_MOST_OUTERMOST], jaxpr.eqns[_MOST_OUTERMOST:_MOST]
    counts = Counter(filter(None, map(_origin, first)))
    inside, nested = Counter[str](), dict[Any, tuple[str, ...]]()
    bodies = defaultdict[str, list[_Origin]](list)
    totals = Counter(origin[1] for origin in counts.elements())
    for origin, times in counts.items():
        if totals[origin[1]] == 1:
            continue
        is_first = origin[1] not in nested
        if is_first:
            codes, offsets = origin[1].raw_frames()
            nested[origin[1]] = _loops(codes, offsets, place, lines)
        for where in nested[origin[1]][:1]:
            inside[where] += times if times >= _FEWEST_TIMES else 0
            # What follows from the same calls may be of derivatives.
            if is_first:
                bodies[where].append(origin)
    where = max(bodies, key=inside.__getitem__, default="")
    found = sorted(bodies[where], key=counts.__getitem__)
    found = found[int(_SPECIAL * len(found)) :]
    if not found or (times := counts[body := found[0]]) < _FEWEST_TIMES:
        return None
    times += sum(_origin(of) == body for of in rest if of.primitive.name == body[0])
    is_double = all(nested[of[1]][1:] for of in found)
    inner = nested[body[1]][1] if is_double else ""
    return Unrolled(where, times, inside[where] / len(first), len(jaxpr.eqns), inner)


def _origin(equation: Any) -> _Origin | None:
    info = equation.source_info
    if info.traceback is None:
        return None
    shapes = tuple([getattr(var.aval, "shape", None) for var in equation.outvars])
    return equation.primitive.name, info.traceback, info.name_stack, shapes


def _loops(
    codes: list[CodeType], offsets: list[int], place: str, lines: SourceLineFinder
) -> tuple[str, ...]:
    """
    Return those of these calls that loops make within the function, outermost first;
    the innermost alone if the function is none of them.
    """
    found: list[str] = []
    for code, offset in zip(codes, offsets, strict=True):
        if code.co_name == "tree_map":  # calls once for each leaf
            return ()
        file, first = code.co_filename, code.co_firstlineno
        if lines.is_user(file) and not sources.package_of(file):
            bodies = [body for body in _bodies(file) if first <= body[0]]
            at = (line_at(code, offset) or 0) if bodies else 0
            if any(begin <= at <= end for begin, end in bodies):
                found.append(f"{sources.display_path(file)}:{at}")
            if f"{sources.display_path(file)}:{first}" == place:
                return tuple(dict.fromkeys(reversed(found)))
    return tuple(found[:1])


@functools.lru_cache(maxsize=_MOST_FILES)
def _bodies(file: str) -> tuple[tuple[int, int], ...]:
    try:
        tree = ast.parse(bounded.read(Path(file)))
    except (ConfigFileError, SyntaxError, ValueError) as error:
        interrupts.pass_on(error)
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, _LOOPS):
            found.append((node.body[0].lineno, node.body[-1].end_lineno or 0))
        elif isinstance(node, _COMPREHENSIONS):
            found.append((node.lineno, node.end_lineno or 0))
    return tuple(found)


_MOST_EQUATIONS, _MOST_DEPTH = 200_000, 60
_MOST_STACKS, _MOST_CALLS = 500, 2000
_OFTEN = 1000
_JITTED = ("jit", "pjit")
_MOST_ROWS, _MOST_LENGTH, _MOST_ITEMS = 20_000, 240, 16
_GIVEN = r"(?!False\b)\b\w"

_Place: TypeAlias = tuple[str, int, str]
_Calls: TypeAlias = tuple[_Place, ...]


class EquationReader:
    """Reads jaxprs *until* a time of `monotonic`; 1 to 3 µs per equation."""

    def __init__(self, lines: SourceLineFinder, until: float) -> None:
        self._lines = lines
        self._until = until
        self._places: dict[tuple[CodeType, int], _Place] = {}
        self._stacks: dict[Any, _Calls] = {}

    def read(self, jaxpr: Any, place: str) -> CompiledProgram:
        """Return what is in *jaxpr*, if it is there, of a function at *place*."""
        if jaxpr is None:
            return CompiledProgram(unknown="JAX has let go of its jaxpr")
        try:
            self._count(jaxpr, place)
            constants = captured(jaxpr, self._lines)
        except AttributeError as error:
            interrupts.pass_on(error)
            return CompiledProgram(unknown=f"this JAX is another: {error}")
        largest = sorted(self._counts.copy().items(), key=lambda of: -of[1].total())
        return CompiledProgram(
            equations=sum(counts.total() for _, counts in largest),
            uncounted=self._left <= 0,
            stacks=tuple(_stacks(largest)),
            captured=constants,
            unrolled=unrolled(jaxpr, place, self._lines),
        )

    def heaviest(self, jaxpr: Any, place: str) -> CompileLines:
        """Return which lines of the user's, in loops or not, have most equations."""
        self._count(jaxpr, place)
        loop = unrolled(jaxpr, place, self._lines)
        lines, inside = defaultdict[str, Counter[str]](Counter), 0
        for calls, counts in self._counts.items():
            at = [f"{sources.display_path(file)}:{line}" for file, line, _ in calls]
            lines[at[-1] if at else ""].update(counts)
            inside += counts.total() if loop and loop.where in at else 0
        total = sum(counts.total() for counts in lines.values())
        lines.pop("", None)
        where = max(lines, key=lambda line: lines[line].total(), default="")
        operations = dict(lines[where].most_common())
        return CompileLines(
            equations=total,
            uncounted=self._left <= 0,
            most=lines[where].total(),
            where=where,
            operations={k: v for k, v in operations.items() if k not in CALLS},
            unrolled=loop,
            inside=inside,
        )

    def _count(self, jaxpr: Any, place: str) -> None:
        self._place, self._stacks = place, {}
        self._left = _MOST_EQUATIONS
        self._counts = defaultdict[_Calls, Counter[str]](Counter)
        for calls, _, equation in self._walk(jaxpr, (), "", _MOST_DEPTH):
            self._counts[calls][equation.primitive.name] += 1

    def listing(self, jaxpr: Any, place: str) -> dict[str, Any]:
        """
        Return *rows* of text for what is in *jaxpr*, each with the number of one of the
        *places*, of the user's line, or -1, and whether rows are *missing* in the end;
        some 20 µs per equation. No code of the user's runs for that.
        """
        self._place, self._stacks, self._left = place, {}, _MOST_ROWS
        rows, places = list[tuple[int, str]](), dict[_Place, int]()
        names = _Names()
        rows.append((-1, names.signature(jaxpr)))
        for calls, depth, equation in self._walk(jaxpr, (), "", _MOST_DEPTH):
            at = places.setdefault(calls[-1], len(places)) if calls else -1
            indent = "  " * (_MOST_DEPTH - depth)
            rows.append((at, f"{indent}{names.row(equation)}"[:_MOST_LENGTH]))
        return {"places": list(places), "rows": rows, "missing": self._left <= 0}

    def _walk(
        self, jaxpr: Any, base: _Calls, name: str, depth: int
    ) -> Iterator[tuple[_Calls, int, Any]]:
        """
        Yield what is in *jaxpr*, of the jitted function *name*, called by *base*, with
        its calls and what is left of *depth*.
        """
        for equation in jaxpr.eqns:
            self._left -= 1
            if self._left <= 0:
                return
            if self._left % _OFTEN == 0 and monotonic() > self._until:
                self._left = 0
                return
            primitive = equation.primitive.name
            calls = self._calls(equation.source_info.traceback)
            if calls[: len(base)] != base:
                calls = base + _inside(calls, name)
            yield calls, depth, equation
            for _, inner in jaxprs_in(equation) if depth else ():
                if primitive in _JITTED:
                    called = str(equation.params.get("name", ""))
                    yield from self._walk(inner, calls, called, depth - 1)
                else:
                    yield from self._walk(inner, base, name, depth - 1)

    def _calls(self, traceback: Any) -> _Calls:
        if traceback is None:
            return ()
        if (cached := self._stacks.get(traceback)) is not None:
            return cached
        found: list[_Place] = []
        libraries: list[_Place] = []
        for code, offset in zip(*traceback.raw_frames(), strict=True):
            file = code.co_filename
            if self._lines.is_user(file):
                found.append(self._place_of(code, offset))
                if f"{sources.display_path(file)}:{code.co_firstlineno}" == self._place:
                    break
            elif not libraries and self._lines.is_package(file):
                libraries.append(self._place_of(code, offset))
        self._stacks[traceback] = calls = tuple(reversed(found or libraries))
        return calls

    def _place_of(self, code: CodeType, offset: int) -> _Place:
        key = code, offset
        if key not in self._places:
            line = line_at(code, offset) or code.co_firstlineno
            self._places[key] = code.co_filename, line, code.co_qualname
        return self._places[key]


class _Names(dict[Any, str]):
    """Short names of variables, in the order in which they come."""

    def __missing__(self, variable: Any) -> str:
        found, number = "", len(self)
        while number >= 0:
            number, letter = divmod(number, 26)
            found, number = chr(97 + letter) + found, number - 1
        self[variable] = found
        return found

    def row(self, equation: Any) -> str:
        """Return the text of *equation*, without the equations inside of it."""
        made = self._kinds(equation.outvars)
        taken = (self._value(of) for of in equation.invars)
        options = dict(equation.params)
        several = {name: _plain(of) for name, of in options.items()}
        for name, inner in jaxprs_in(equation):
            several[name] = f"{several.get(name, '')}{self.signature(inner)}"
        if equation.primitive.name in _JITTED:
            several["name"] = str(options.get("name", ""))
        # What is nothing, or False, is mostly what JAX passes if it is not given.
        found = (f"{k}={v}" for k, v in several.items() if re.search(_GIVEN, v))
        name = f"{equation.primitive.name}[{', '.join(found)}]".removesuffix("[]")
        return f"{made} = {' '.join((name, *taken))}"

    def signature(self, jaxpr: Any) -> str:
        """Return the names of what *jaxpr* is given, and what it returns."""
        results = " ".join(self._value(of) for of in jaxpr.outvars)
        return f"({self._kinds(jaxpr.invars)}) -> ({results})"

    def _kinds(self, variables: Iterable[Any]) -> str:
        return " ".join(f"{self[of]}:{kind_of(of)}" for of in variables)

    def _value(self, variable: Any) -> str:
        if not is_literal(variable):
            return self[variable]
        return _plain(variable.val) or kind_of(variable)


def _plain(value: Any) -> str:
    """Return the text of numbers and tuples of them; of anything else, none."""
    if isinstance(value, tuple):
        return f"({','.join(map(_plain, value[:_MOST_ITEMS]))})"
    if type(value) in (bool, int, float):
        return str(value)
    home, _, _ = type(value).__module__.partition(".")
    is_theirs = home in ("jax", "numpy") and getattr(value, "shape", None) == ()
    return str(value.item()) if is_theirs and hasattr(value, "item") else ""


def _stacks(largest: list[tuple[_Calls, Counter[str]]]) -> Iterator[EquationStack]:
    room = _MOST_CALLS
    for calls, counts in largest[:_MOST_STACKS]:
        room -= len(calls)
        if room < 0:
            break
        lines = tuple(TracedLine(*place) for place in calls)
        yield EquationStack(lines, counts.total(), dict(counts.most_common()))


def _inside(calls: _Calls, name: str) -> _Calls:
    for at, (_, _, function) in enumerate(calls):
        if function.rpartition(".")[2] == name:
            return calls[at:]
    return ()
