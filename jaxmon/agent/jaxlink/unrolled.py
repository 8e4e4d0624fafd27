"""
Finds loops of Python that were unrolled into a program: each equation of a jaxpr knows
the calls that traced it, and those of a loop's body were traced from the same ones.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.errors import ConfigFileError
from jaxmon.facts.functions import Unrolled
from jaxmon.host import sources
from jaxmon.host.files import bounded


_FEWEST_TIMES = 8
_MOST_EQUATIONS, _MOST = 4000, 100_000
_MOST_FILES = 16
_INSTRUCTION = 2

_LOOPS = (ast.For, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def unrolled(jaxpr: Any, place: str, lines: SourceLineFinder) -> Unrolled | None:
    """
    Return the loop whose body is most of *jaxpr*, `None` if there is none that is seen
    in the source. Takes 2 µs per equation.

    Args:
        jaxpr: of a function.
        place: where that is defined, ``path/file.py:12``; loops around it do not count.
        lines: knows whose files are whose.
    """
    if not place:
        return None
    first, rest = jaxpr.eqns[:_MOST_EQUATIONS], jaxpr.eqns[_MOST_EQUATIONS:_MOST]
    counts = Counter(filter(None, map(_origin, first)))
    bodies, kept = Counter[tuple[str, int]](), {}
    for origin, times in counts.items():
        if times >= _FEWEST_TIMES:
            codes, offsets = origin[1].raw_frames()
            if where := _loop(codes, offsets, place, lines):
                bodies[where, times] += times
                kept[where, times] = origin
    if not bodies:
        return None
    (where, times), _ = bodies.most_common(1)[0]
    inside = sum(count for (at, _), count in bodies.items() if at == where)
    body = kept[where, times]
    times += sum(_origin(of) == body for of in rest if of.primitive.name == body[0])
    return Unrolled(where, times, inside / len(first), len(jaxpr.eqns))


def _origin(equation: Any) -> tuple[str, Any, Any, tuple[Any, ...]] | None:
    """Return operation, calls that traced it, names and shapes, as far as known."""
    info = equation.source_info
    if info.traceback is None:
        return None
    shapes = tuple([getattr(var.aval, "shape", None) for var in equation.outvars])
    return equation.primitive.name, info.traceback, info.name_stack, shapes


def _loop(
    codes: list[CodeType], offsets: list[int], place: str, lines: SourceLineFinder
) -> str:
    """Return the innermost of these calls that a loop makes, within the function."""
    for code, offset in zip(codes, offsets, strict=True):
        if code.co_name == "tree_map":  # calls once for each leaf
            return ""
        file = code.co_filename
        if not lines.is_user(file) or sources.package_of(file):
            continue
        at = next(islice(code.co_positions(), offset // _INSTRUCTION, None), (None,))[0]
        first = code.co_firstlineno
        if at is not None and any(
            first <= begin <= at <= end for begin, end in _loops(file)
        ):
            return f"{sources.display_path(file)}:{at}"
        if f"{sources.display_path(file)}:{first}" == place:
            break
    return ""


@functools.lru_cache(maxsize=_MOST_FILES)
def _loops(file: str) -> tuple[tuple[int, int], ...]:
    """Return the first and last lines of the bodies of loops in a source *file*."""
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
