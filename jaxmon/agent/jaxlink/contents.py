"""
What makes a program slower or larger than it needs to be, as far as its jaxpr shows.

Operations on constants, which XLA computes while it compiles, element by element where
it has no fast way: that may take longer than all calls. A constant is an array that a
jitted function takes from around it, and not as an argument.

Branches that are all computed: under `jax.vmap`, elements of a batch may take different
ones, so JAX runs each for the whole batch, and selects. Before each branch it compares
the index, and selects operands; at the end, results. All that is traced from the line
that calls `lax.cond` or `lax.switch`; the operations of branches are not. Outside of
`vmap`, these calls are one operation.

Arrays that each device holds whole, though they could be divided among devices: the
compiled program has the shapes of what a device holds, the jaxpr those of all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import log2, prod
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.jaxlink import products
from jaxmon.agent.jaxlink.flops import trip_count
from jaxmon.agent.jaxlink.products import UncountableError, bytes_of, elements
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_in, jaxprs_of
from jaxmon.facts.contents import Captured, Folded, Selected, WholeArrays
from jaxmon.host.sources import display_path


# Smaller arrays than that take no time, whatever is done with them.
_SMALLEST = 1000
_MOST_EQUATIONS, _MOST_CALLERS = 20_000, 3
# Fewer bytes of constants take no time to copy either, and are held whole on purpose.
LEAST_BYTES = 1 << 20
# XLA computes prefix sums in windows of so many elements.
_WINDOW = 16
_CUMULATIVE = frozenset(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"))
_SCATTERS = ("scatter", "select_and_")
# Run a program of their own: they are not folded as one operation.
_LOOPS = frozenset(("scan", "while", "cond"))


class _Work(NamedTuple):
    """What XLA does *steps* times for an *operation* on constants, and its equation."""

    steps: float
    operation: str
    equation: Any


def folded(jaxpr: Any, lines: SourceLineFinder) -> Folded | None:
    """
    Return the operation on constants that takes most steps in *jaxpr*, with those of
    all, if there is one. Takes a microsecond per equation, if there are large
    constants.
    """
    constants = [var for var in jaxpr.constvars if elements(var) >= _SMALLEST]
    if not constants or len(jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    work, _ = _walk(jaxpr, constants)
    if not work:
        return None
    most = max(work, key=lambda of: of.steps)
    largest = max(constants, key=elements)
    return Folded(
        where=lines.place_of(most.equation.source_info.traceback),
        callers=_callers(most.equation, lines),
        operation=most.operation,
        constant=kind_of(largest),
        steps=int(sum(of.steps for of in work)),
        programs=1,
    )


def captured(jaxpr: Any, lines: SourceLineFinder) -> Captured | None:
    """Return the large constants of *jaxpr* and what it calls; 1 µs per equation."""
    arrays = [
        (var, inside)
        for inside in jaxprs_of(jaxpr, _MOST_EQUATIONS)
        for var in inside.constvars
    ]
    total = sum(bytes_of(var) for var, _ in arrays)
    if total < LEAST_BYTES:
        return None
    largest, inside = max(arrays, key=lambda array: bytes_of(array[0]))
    uses = (of for of in inside.eqns if any(var is largest for var in of.invars))
    use = next(uses, None)
    return Captured(
        where=lines.place_of(use.source_info.traceback) if use else "",
        callers=_callers(use, lines) if use else (),
        largest=kind_of(largest),
        bytes=total,
        arrays=len(arrays),
        programs=1,
    )


def _walk(jaxpr: Any, constants: Iterable[Any]) -> tuple[list[_Work], list[bool]]:
    """Return work on *constants* by equation, and which results are constant."""
    fixed, work = set(constants), []
    for equation in jaxpr.eqns:
        inputs = [var for var in equation.invars if not is_literal(var)]
        if not inputs or not fixed.issuperset(inputs):
            continue
        name = equation.primitive.name
        inner = called(equation.params)
        if name in _LOOPS or equation.effects:
            continue
        if inner is None:
            fixed.update(equation.outvars)
            if steps := _steps(name, equation):
                work.append(_Work(steps, name, equation))
            continue
        found, results = _walk(inner, [*inner.invars, *inner.constvars])
        # A function of JAX is traced once: only its call knows who called it.
        work += [_Work(of.steps, of.operation, equation) for of in found]
        outputs = zip(equation.outvars, results, strict=False)
        fixed.update(var for var, is_fixed in outputs if is_fixed)
    return work, [is_literal(var) or var in fixed for var in jaxpr.outvars]


def _steps(name: str, equation: Any) -> float:
    """Return how often XLA runs a small program for an operation; 0 if it does not."""
    parameters, times = equation.params, 0.0
    size = max(map(elements, equation.outvars), default=0)
    if name in _CUMULATIVE:
        times = min(_WINDOW, equation.invars[0].aval.shape[parameters["axis"]])
    elif name.startswith("reduce_window"):
        times = prod(parameters["window_dimensions"])
    elif name.startswith(_SCATTERS):
        size, times = max(map(elements, equation.invars), default=0), 1
    elif name == "sort":
        times = log2(max(size, 2))
    elif name == "conv_general_dilated":
        try:
            return products.convolution(equation) / 2
        except UncountableError:
            return 0.0
    return size * times


def _callers(equation: Any, lines: SourceLineFinder) -> tuple[str, ...]:
    frames = getattr(equation.source_info.traceback, "frames", ())
    users = [frame for frame in frames if lines.is_user(frame.file_name)]
    places = [f"{display_path(frame.file_name)}:{frame.line_num}" for frame in users]
    return tuple(dict.fromkeys(places[1 : 1 + _MOST_CALLERS]))


def called(parameters: Mapping[str, Any]) -> Any:
    """Return the jaxpr that an operation with these *parameters* runs, if any."""
    for name in ("jaxpr", "call_jaxpr"):
        jaxpr = getattr(parameters.get(name), "jaxpr", parameters.get(name))
        if hasattr(jaxpr, "eqns"):
            return jaxpr
    return None


def is_literal(variable: Any) -> bool:
    """Return whether it is no variable, but a constant in its place."""
    return hasattr(variable, "val")


def kind_of(variable: Any) -> str:
    """Return its type and shape, such as ``float32[400,400]``."""
    return f"{variable.aval.dtype}{list(variable.aval.shape)}".replace(" ", "")


_COMPARES, _SELECTS = "eq", "select_n"
_ADDED = frozenset((_COMPARES, _SELECTS, "stop_gradient", "broadcast_in_dim"))
_CALLS = frozenset(("cond", "switch"))
PRODUCTS = {"dot_general": products.dot, "conv_general_dilated": products.convolution}
# Cost as much as products of their matrix, more or less.
LIBRARY = frozenset(("cholesky", "eig", "eigh", "lu", "qr", "schur", "svd"))
SORTS = frozenset(("sort", "fft"))


def selected(jaxpr: Any, lines: SourceLineFinder) -> Selected | None:
    """
    Return the branches in vain that are most of *jaxpr*, unless a loop may run any
    number of times. Takes a microsecond per equation without branches, else 25 µs.
    """
    if not any(
        equation.primitive.name == _SELECTS and _call(equation, lines) is not None
        for inside in jaxprs_of(jaxpr, _MOST_EQUATIONS)
        for equation in inside.eqns
    ):
        return None
    found: Selected | None = most_in_vain(jaxpr, lines, _BranchReader)
    return found


class WorkReader:
    """Counts work, of products *weight* times; *vain* has facts on it by line."""

    # What an operation of a product costs, in elements of others: both are judged by.
    weights = (1 / 64, 1.0)

    def __init__(self, lines: SourceLineFinder, weight: float) -> None:
        self.lines, self._weight = lines, weight
        self._left, self._caller = _MOST_EQUATIONS, ""
        self.vain: dict[str, Any] = {}

    def read(self, jaxpr: Any, times: float = 1.0) -> float:
        """Return the work of *jaxpr*, and judge it; `UncountableError` if unknown."""
        self._left -= len(jaxpr.eqns)
        if self._left < 0:
            raise UncountableError
        work = [self.work(equation, times) for equation in jaxpr.eqns]
        self.judge(jaxpr, work, times)
        return sum(work)

    def judge(self, jaxpr: Any, work: list[float], times: float) -> None:
        """Note what of *jaxpr* is in vain, with the *work* of each equation."""

    def work(self, equation: Any, times: float) -> float:
        """Return the work of *equation*, which runs so many *times*."""
        name, inner = equation.primitive.name, list(jaxprs_in(equation))
        if name == "custom_linear_solve":  # the others are for derivatives
            inner = [(name, equation.params["jaxprs"].solve.jaxpr)]
        if name in PRODUCTS:
            return self._weight * PRODUCTS[name](equation)
        if not inner:
            operands = (*equation.invars, *equation.outvars)
            size: float = max(map(elements, operands), default=0)
            if name in LIBRARY:
                size *= self._weight * max(equation.invars[0].aval.shape)
            return size * log2(max(size, 2)) if name in SORTS else size
        trips = equation.params["length"] if name == "scan" else 1
        trips = trip_count(equation) if name == "while" else trips
        if trips is None:
            raise UncountableError
        before, self._caller = self._caller, self.place_of(equation)
        work = sum(trips * self.read(jaxpr, trips * times) for _, jaxpr in inner)
        self._caller = before
        return work

    def place_of(self, equation: Any) -> str:
        """Return the line of *equation*, or of the call that has it, if JAX's has."""
        return self.lines.place_of(equation.source_info.traceback) or self._caller


def most_in_vain(
    jaxpr: Any, lines: SourceLineFinder, reader: type[WorkReader], *more: Any
) -> Any:
    """Return the fact on what is most of *jaxpr* of what a *reader* finds in vain."""
    readers = [reader(lines, weight, *more) for weight in reader.weights]
    try:
        wholes = [max(of.read(jaxpr), 1.0) for of in readers]
    except UncountableError:
        return None
    found = []
    for where, vain in readers[0].vain.items():
        pairs = zip(readers, wholes, strict=True)
        ratio = min(of.vain[where].ratio / whole for of, whole in pairs)
        found.append(vain.replace(ratio=min(ratio, 1.0)))
    return max(found, key=lambda of: of.ratio, default=None)


class _BranchReader(WorkReader):
    """Finds branches in vain."""

    def judge(self, jaxpr: Any, work: list[float], times: float) -> None:
        """Note branches by the calls that chose them."""
        calls: dict[Hashable, list[int]] = {}
        for at, equation in enumerate(jaxpr.eqns):
            call = _call(equation, self.lines)
            if call is not None:
                calls.setdefault(call, []).append(at)
        for places in calls.values():
            self._choose(jaxpr.eqns, work, places, times)

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
        where = self.lines.place_of(equations[places[0]].source_info.traceback)
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
    """Return which call of `cond` or `switch`, not a derivative, added *equation*."""
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


Shapes: TypeAlias = Sequence[tuple[int, ...]]

CONSTRAINT = "sharding_constraint"
# Need no element of another device, if all operands are divided alike.
ELEMENTWISE = frozenset(
    (
        *("abs", "add", "add_any", "and", "cbrt", "ceil", "clamp", "copy", "copy_p"),
        *("convert_element_type", "div", "eq", "erf", "exp", "exp2", "expm1", "floor"),
        *("ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic"),
        *("lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow", "rem", "round"),
        *("rsqrt", "select_n", "sign", "sqrt", "square", "stop_gradient", "sub"),
        *("tanh", CONSTRAINT),
    )
)


def whole(
    jaxpr: Any, shapes: Sequence[Shapes], lines: SourceLineFinder
) -> WholeArrays | None:
    """Return what devices hold whole in vain, by *shapes*; 1 µs per equation."""
    if not has_shapes(jaxpr, shapes):
        return None
    return _uneven(jaxpr, shapes[1], lines) or _state(jaxpr, *shapes)


def has_shapes(jaxpr: Any, shapes: Sequence[Shapes]) -> bool:
    """Return whether *shapes* are of arguments and results of *jaxpr*, if not large."""
    sizes = [len(jaxpr.invars), len(jaxpr.outvars)]
    return [*map(len, shapes)] == sizes and len(jaxpr.eqns) <= _MOST_EQUATIONS


def _uneven(
    jaxpr: Any, returned: Shapes, lines: SourceLineFinder
) -> WholeArrays | None:
    made = {
        equation.outvars[0]: equation
        for equation in jaxpr.eqns
        if equation.primitive.name == CONSTRAINT
    }
    found = WholeArrays("uneven")
    for variable, shape in zip(jaxpr.outvars, returned, strict=True):
        equation = None if is_literal(variable) else made.get(variable)
        if equation is None or not _is_whole(variable, shape):
            continue
        if not (where := lines.place_of(equation.source_info.traceback)):
            continue
        sharding = equation.params.get("sharding")
        axes = getattr(getattr(sharding, "mesh", None), "shape", {})
        parts = [
            prod(axes.get(name, 1) for name in (of if isinstance(of, tuple) else (of,)))
            for of in getattr(sharding, "spec", ())
        ]
        if all(size % number == 0 for size, number in zip(shape, parts, strict=False)):
            continue
        found = found.replace(
            arrays=(*found.arrays, kind_of(variable)),
            bytes=found.bytes + bytes_of(variable) * (1 - 1 / prod(parts)),
            parts=prod(parts),
            where=where,
        )
    arrays = tuple(dict.fromkeys(found.arrays))
    return found.replace(arrays=arrays) if arrays else None


def _is_whole(variable: Any, shape: tuple[int, ...]) -> bool:
    return bytes_of(variable) >= LEAST_BYTES and shape == variable.aval.shape


def _state(jaxpr: Any, taken: Shapes, returned: Shapes) -> WholeArrays | None:
    """
    Return arguments that are only computed with element by element, and returned, whole
    both times, though what they are computed with is divided, and used otherwise too:
    parameters that are whole beside a divided state are used otherwise themselves.
    """
    arguments = list(zip(jaxpr.invars, taken, strict=True))
    large = {
        variable: 1 << at
        for at, (variable, _) in enumerate(arguments)
        if bytes_of(variable) >= LEAST_BYTES
    }
    outputs, otherwise = _flow(jaxpr, large)
    results = list(zip(outputs, jaxpr.outvars, returned, strict=True))
    found = WholeArrays("state")
    for at, (variable, shape) in enumerate(arguments):
        mask = large.get(variable, 0) & ~otherwise
        kept = any(of & mask and shape == var.aval.shape for of, var, shape in results)
        if not kept or not _is_whole(variable, shape):
            continue
        for other, (beside, part) in enumerate(arguments):
            both = mask | large.get(beside, 0) & otherwise
            parts = prod(beside.aval.shape) // max(prod(part), 1)
            if both != mask and parts > 1 and any(of & both == both for of in outputs):
                found = found.replace(
                    arrays=(*found.arrays, argument_name(jaxpr, at)),
                    bytes=found.bytes + bytes_of(variable) * (1 - 1 / parts),
                    parts=parts,
                    like=argument_name(jaxpr, other),
                )
                break
    return found if found.arrays else None


def _flow(jaxpr: Any, masks: Mapping[Any, int]) -> tuple[list[int], int]:
    """
    Return of which arguments each result of *jaxpr* is made element by element, as
    bits, and those that other operations use; *masks* are those of its own.
    """
    found, otherwise = dict(masks), 0
    for equation in jaxpr.eqns:
        given = [0 if is_literal(of) else found.get(of, 0) for of in equation.invars]
        if not any(given):
            continue
        inner, mask = called(equation.params), 0
        for bits in given:
            mask |= bits
        results = [mask] * len(equation.outvars)
        if inner is not None and len(inner.invars) == len(given):
            results, more = _flow(inner, dict(zip(inner.invars, given, strict=True)))
            otherwise |= more
        elif not _is_elementwise(equation):
            otherwise, results = otherwise | mask, []
        found.update(zip(equation.outvars, results, strict=False))
    outputs = [0 if is_literal(of) else found.get(of, 0) for of in jaxpr.outvars]
    return outputs, otherwise


def _is_elementwise(equation: Any) -> bool:
    """Return whether all operands are as large as the results, or numbers."""
    shapes = {equation.outvars[0].aval.shape, ()}
    return equation.primitive.name in ELEMENTWISE and all(
        value.aval.shape in shapes for value in equation.invars
    )


def argument_name(jaxpr: Any, at: int) -> str:
    """Return JAX's name of the argument number *at*, or its type."""
    names = getattr(getattr(jaxpr, "debug_info", None), "arg_names", None) or ()
    is_named = len(names) == len(jaxpr.invars) and names[at]
    return str(names[at]) if is_named else kind_of(jaxpr.invars[at])


def kind_of_argument(jaxpr: Any, at: int, number: int) -> str:
    """Return type and shape of an argument; empty if there are not that *number*."""
    return kind_of(jaxpr.invars[at]) if len(jaxpr.invars) == number else ""
