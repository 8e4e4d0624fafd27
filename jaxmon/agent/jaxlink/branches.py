"""
Finds branches that are all computed: under `jax.vmap`, elements of a batch may take
different ones, so that JAX runs each for the whole batch, and selects.

Before each branch it compares the index, and selects operands; at the end, results.
All that is traced from the line that calls `lax.cond` or `lax.switch`; the operations
of branches are not. Outside of `vmap`, these calls are one operation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from itertools import pairwise
from typing import Any

from jaxmon.agent.jaxlink import products
from jaxmon.agent.jaxlink.flops import trip_count
from jaxmon.agent.jaxlink.products import UncountableError
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_in, jaxprs_of
from jaxmon.facts.functions import Selected


_MOST_EQUATIONS = 20_000
_COMPARES, _SELECTS = "eq", "select_n"
_ADDED = frozenset((_COMPARES, _SELECTS, "stop_gradient", "broadcast_in_dim"))
_CALLS = frozenset(("cond", "switch"))
_PRODUCTS = {"dot_general": products.dot, "conv_general_dilated": products.convolution}
# What an operation of a product costs, in elements of others: both are judged by.
_WEIGHTS = (1 / 64, 1.0)


def selected(jaxpr: Any, lines: SourceLineFinder) -> Selected | None:
    """
    Return the branches in vain that are most of *jaxpr*; `None` if there are none, or a
    loop may run any number of times. Takes a microsecond per equation without branches,
    else 25 µs.

    Args:
        jaxpr: of a function.
        lines: knows whose files are whose.
    """
    if not any(
        equation.primitive.name == _SELECTS and _call(equation, lines) is not None
        for inside in jaxprs_of(jaxpr, _MOST_EQUATIONS)
        for equation in inside.eqns
    ):
        return None
    readers = [_BranchReader(lines, weight) for weight in _WEIGHTS]
    try:
        wholes = [max(reader.read(jaxpr), 1.0) for reader in readers]
    except UncountableError:
        return None
    found = []
    for where, branches in readers[0].vain.items():
        pairs = zip(readers, wholes, strict=True)
        ratio = min(reader.vain[where].ratio / whole for reader, whole in pairs)
        found.append(branches.replace(ratio=min(ratio, 1.0)))
    return max(found, key=lambda of: of.ratio, default=None)


class _BranchReader:
    """
    Reads a program, of which an operation of a product is *weight* elements of others.

    Attributes:
        vain: branches by line; *ratio* is the work of all but the cheapest.
    """

    def __init__(self, lines: SourceLineFinder, weight: float) -> None:
        self._lines, self._weight = lines, weight
        self._left = _MOST_EQUATIONS
        self.vain: dict[str, Selected] = {}

    def read(self, jaxpr: Any, times: float = 1.0) -> float:
        """Return the work of one run of *jaxpr*, which runs so many *times*."""
        self._left -= len(jaxpr.eqns)
        if self._left < 0:
            raise UncountableError
        work = [self._work(equation, times) for equation in jaxpr.eqns]
        calls: dict[Hashable, list[int]] = {}
        for at, equation in enumerate(jaxpr.eqns):
            call = _call(equation, self._lines)
            if call is not None:
                calls.setdefault(call, []).append(at)
        for places in calls.values():
            self._choose(jaxpr.eqns, work, places, times)
        return sum(work)

    def _work(self, equation: Any, times: float) -> float:
        name, inner = equation.primitive.name, list(jaxprs_in(equation))
        if name in _PRODUCTS:
            return self._weight * _PRODUCTS[name](equation)
        if not inner:
            operands = (*equation.invars, *equation.outvars)
            return max(map(products.elements, operands), default=0)
        trips = equation.params["length"] if name == "scan" else 1
        trips = trip_count(equation) if name == "while" else trips
        if trips is None:
            raise UncountableError
        return sum(trips * self.read(jaxpr, trips * times) for _, jaxpr in inner)

    def _choose(
        self, equations: list[Any], work: list[float], places: list[int], times: float
    ) -> None:
        """Note the branches of a line; what JAX adds to them is at *places*."""
        names = [equations[at].primitive.name for at in places]
        begins = [
            at for at, name in zip(places, names, strict=True) if name == _COMPARES
        ]
        number = max(len(equations[at].invars) for at in places) - 1
        # What needs no operand is not compared for.
        if _SELECTS not in names or not begins or len(begins) % number:
            return
        where = self._lines.place_of(equations[places[0]].source_info.traceback)
        if not where:
            return
        shape = equations[begins[0]].outvars[0].aval.shape
        before = self.vain.get(where, Selected(where, number, *shape[:1]))
        vain, added = before.ratio, set(places)
        for first in range(0, len(begins), number):
            bounds = begins[first : first + number + 1]
            # Before the next call, if there is one, the last selection is the end.
            after = bounds[number] if bounds[number:] else len(equations)
            bounds[number:] = [places[bisect_left(places, after) - 1]]
            branches = [
                sum(work[at] for at in range(low, high) if at not in added)
                for low, high in pairwise(bounds)
            ]
            vain += times * (sum(branches) - min(branches))
        self.vain[where] = before.replace(ratio=vain)


def _call(equation: Any, lines: SourceLineFinder) -> Hashable:
    """
    Return which call of `cond` or `switch` added *equation*; `None` if none did, or for
    its derivative.
    """
    origin = equation.source_info
    is_added = equation.primitive.name in _ADDED and origin.traceback is not None
    if not is_added or "transpose" in str(origin.name_stack):
        return None
    codes, offsets = origin.traceback.raw_frames()
    for at, code in enumerate(codes):
        file = code.co_filename
        if not lines.is_jax(file):
            return None
        if code.co_name in _CALLS and file.endswith("conditionals.py"):
            return tuple(codes[at + 1 :]), tuple(offsets[at + 1 :])
    return None
