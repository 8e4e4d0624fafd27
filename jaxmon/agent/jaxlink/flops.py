"""
FLOPs of a program, from the jaxpr that JAX lowers.

Products of matrices and convolutions are counted, as the definition of model FLOPs
utilization has it (PaLM, arXiv 2204.02311, appendix B), each as often as the loops
around it run. What `jax.checkpoint` computes once more is kept apart: the hardware does
it, the model does not need it.
"""

from __future__ import annotations

import functools
import importlib.util
import operator
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.jaxlink import products
from jaxmon.agent.jaxlink.products import UncountableError
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_in
from jaxmon.facts.functions import Uncounted


_MOST_EQUATIONS = 500_000
_RECOMPUTED = "rematted_computation"

_PRODUCTS: Mapping[str, Callable[[Any], float]] = {
    "dot_general": products.dot,
    "ragged_dot": products.ragged_dot,
    "ragged_dot_general": products.ragged_dot,
    "conv_general_dilated": products.convolution,
}
# Libraries compute these, in ways of their own.
_LIBRARY = frozenset(
    (
        *("cholesky", "eig", "eigh", "hessenberg", "householder_product", "lu", "qr"),
        *("schur", "svd", "triangular_solve", "tridiagonal", "tridiagonal_solve"),
    )
)
# Not among the primitives that JAX lists, and known to multiply no matrices.
_HARMLESS = frozenset(
    (
        *("accum_grad_in_ref", "addupdate", "all_gather_invariant", "broadcast_to"),
        *("all_gather_reduced", "check", "copy_p", "create_linear", "dce_sink"),
        *("debug_callback", "debug_print", "delay", "dim_as_value", "dimension_size"),
        *("empty", "empty_ref", "free_ref", "freeze", "from_edtype"),
        *("get_global", "inspect_sharding", "io_callback", "iota_2x32_shape"),
        *("layout_constraint", "lu_pivots_to_permutation", "mesh_cast", "mulhi"),
        *("mutable_array", "name", "new_box", "new_ref", "box_get", "box_set"),
        *("optimization_barrier", "outside_call", "pbroadcast", "pcast", "philox2x32"),
        *("philox4x32", "pin", "platform_index", "precv", "preduced", "psend", "psum2"),
        *("psum_invariant", "psum_scatter", "pure_callback", "pvary", "random_clone"),
        *("random_unwrap", "random_wrap", "reciprocal", "reduce_scatter", "reshard"),
        *("relayout", "reduced_vary_cast", "vary_unreduced_cast", "xla_metadata_value"),
        *("unreduced_pmax", "unreduced_pmin", "pbroadcast_dynamic"),
        *("reduced_vary_cast_p", "scatter-sub", "shape_assertion", "split", "stack"),
        *("bitcast", "get", "pgather", "prng_random_bits", "prng_seed", "repeat"),
        *("roll", "swap"),
        *("threefry4x32", "tie", "tile", "to_edtype", "unpin", "unreachable"),
        *("unreduced_psum", "unreduced_reduce_scatter", "unstack", "zeros_like"),
        *("vary_unreduced_cast_p", "with_memory_space_constraint"),
    )
)
_SHARDED = "shard_map"
# Types of parameters that contain no jaxpr: most parameters are of them.
_NO_JAXPRS = frozenset((bool, float, int, str, type(None)))
_KERNELS = ("pallas_call", "core_map", "mpmd_map", "triton_kernel_call")
# Of a kernel, products that are not equations of their own.
_IN_KERNELS = (
    *("wgmma", "tcgen05_mma", "mma", "inline_mgpu", "matmul", "elementwise_inline"),
)

_PRESETS = {"BF16": "bfloat16", "F16": "float16", "TF32": "tf32", "F64": "float64"}
_PRESETS |= {"F32": "float32/highest", "ANY": "float8"}
# Each comparison, as a counter that grows would be compared with its limit, and whether
# the limit itself is included.
_UP = {"lt": 0, "le": 1}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Flops:
    """
    FLOPs of one run of a program, or of a part of it, on all its devices: *amounts* by
    format of the operands (see `format_of`), and whether they are computed once more.
    In *unknown* is why these are not all; *loops* is whether some of it runs in loops,
    and *open_loop* the ``file:line`` of one that runs until a condition is met.
    """

    __slots__ = ("amounts", "loops", "open_loop", "unknown")

    def __init__(self) -> None:
        self.amounts: dict[tuple[str, bool], float] = {}
        self.unknown: Uncounted | None = None
        self.loops = False
        self.open_loop = ""

    def add(self, other: Flops, *, times: float = 1, again: bool = False) -> None:
        """Add *other*, so many *times*, all of it computed *again* or not."""
        for (format_, recomputed), number in other.amounts.items():
            key = (format_, recomputed or again)
            self.amounts[key] = self.amounts.get(key, 0.0) + number * times
        self.unknown = self.unknown or other.unknown
        self.loops = self.loops or other.loops
        self.open_loop = self.open_loop or other.open_loop


def count(jax: Any, jaxpr: Any, lines: SourceLineFinder) -> Flops:
    """Return the FLOPs of *jaxpr*; takes some microseconds per equation."""
    return _Counter(jax, lines).of(jaxpr)


def format_of(equation: Any) -> str:
    """Return a product's format: ``bfloat16``, ``float32/high`` with a precision."""
    kinds = [variable.aval.dtype for variable in equation.invars[:2]]
    widest = str(max(kinds, key=lambda kind: getattr(kind, "itemsize", 0)))
    narrow = widest.partition("_")[0]
    if narrow.startswith(("float8", "float4", "int4", "uint4")):
        return narrow.removeprefix("u")
    widest = {"complex64": "float32", "complex128": "float64"}.get(widest, widest)
    precision = equation.params["precision"]
    asked = precision if isinstance(precision, tuple) else (precision,)
    words = {str(getattr(word, "name", word)) for word in asked} - {"None", "DEFAULT"}
    if not words <= {"HIGH", "HIGHEST"}:
        preset = next(iter(words))
        emulated = preset.rpartition("_")[2].startswith("X")
        return "" if emulated else _PRESETS.get(preset.partition("_")[0], "")
    if widest == "float32" and words:
        return f"{widest}/{max(words).lower()}"
    return widest.removeprefix("u")


class _Counter:
    """Counts jaxprs, each one once: programs share them."""

    def __init__(self, jax: Any, lines: SourceLineFinder) -> None:
        self._jax = jax
        self._lines = lines
        # With the jaxpr itself, so that its id cannot be another's.
        self._counted: dict[int, tuple[Any, Flops]] = {}
        self._left = _MOST_EQUATIONS
        self._plain = (_HARMLESS | _listed(jax)) - {_SHARDED}
        self._adding: Mapping[str, Callable[[Flops, Any], None]] = {
            **dict.fromkeys(_PRODUCTS, self._add_product),
            **dict.fromkeys(_LIBRARY, self._add_library),
            **dict.fromkeys(_KERNELS, self._add_kernel),
            "scan": self._add_scan,
            "while": self._add_while,
            "cond": self._add_branches,
            "custom_linear_solve": self._add_solve,
        }

    def of(self, jaxpr: Any, *, kernel: bool = False) -> Flops:
        counted = self._counted.get(id(jaxpr))
        if counted is not None:
            return counted[1]
        found = Flops()
        for equation in jaxpr.eqns:
            self._left -= 1
            if self._left < 0:
                found.unknown = Uncounted("size")
                break
            name = equation.primitive.name
            add = self._adding.get(name)
            # Most are such, and programs may have tens of thousands of them.
            plain = add is None and name in self._plain and not kernel
            if plain and _calls_none(equation.params):
                continue
            part = Flops()
            if add is not None:
                add(part, equation)
            else:
                self._add_called(part, equation, kernel=kernel)
            if part.amounts:
                stack = str(equation.source_info.name_stack)
                found.add(part, again=_RECOMPUTED in stack)
            elif part.unknown or part.loops:
                found.add(part)
        self._counted[id(jaxpr)] = jaxpr, found
        return found

    def _add_product(self, found: Flops, equation: Any) -> None:
        try:
            flops = _PRODUCTS[equation.primitive.name](equation)
        except UncountableError:
            found.unknown = self._unknown("size", equation)
            return
        if flops:
            found.amounts[format_of(equation), False] = flops

    def _add_library(self, found: Flops, equation: Any) -> None:
        found.unknown = self._unknown("library", equation)

    def _add_called(self, found: Flops, equation: Any, *, kernel: bool) -> None:
        """Add what is called, once; an operation of which nothing is known is not."""
        name, times = equation.primitive.name, _shards(equation)
        if kernel and name.startswith(_IN_KERNELS):
            found.unknown = self._unknown("kernel", equation)
            return
        called = [jaxpr for _, jaxpr in jaxprs_in(equation)]
        if times is None:
            found.unknown = self._unknown("layout", equation)
            return
        for jaxpr in called:
            found.add(self.of(jaxpr, kernel=kernel), times=times)
        is_understood = called or kernel or name in self._plain
        if not is_understood:
            found.unknown = self._unknown("library", equation)

    def _add_scan(self, found: Flops, equation: Any) -> None:
        parameters = equation.params
        found.add(self.of(_open(parameters["jaxpr"])), times=parameters["length"])
        found.loops = True

    def _add_while(self, found: Flops, equation: Any) -> None:
        parameters = equation.params
        body = self.of(_open(parameters["body_jaxpr"]))
        condition = self.of(_open(parameters["cond_jaxpr"]))
        found.loops = True
        trips = trip_count(equation)
        if trips is None:
            found.open_loop = self._lines.place_of(equation.source_info.traceback)
        counts = any(of.amounts or of.unknown for of in (body, condition))
        if counts and trips is None:
            found.unknown = self._unknown("loop", equation)
        elif counts and trips is not None:
            found.add(body, times=trips)
            found.add(condition, times=trips + 1)

    def _add_branches(self, found: Flops, equation: Any) -> None:
        branches = [self.of(_open(branch)) for branch in equation.params["branches"]]
        first = branches[0]
        found.loops = any(branch.loops for branch in branches)
        loops = [branch.open_loop for branch in branches]
        found.open_loop = next(filter(None, loops), "")
        found.unknown = next((of.unknown for of in branches if of.unknown), None)
        if any(branch.amounts != first.amounts for branch in branches):
            found.unknown = found.unknown or self._unknown("branch", equation)
        found.add(first)

    def _add_solve(self, found: Flops, equation: Any) -> None:
        # The other functions are for derivatives.
        found.add(self.of(_open(equation.params["jaxprs"].solve)))

    def _add_kernel(self, found: Flops, equation: Any) -> None:
        """Add what a kernel does on its grid, or what its author says of it."""
        parameters = equation.params
        grid = getattr(parameters.get("grid_mapping"), "grid", None)
        jaxpr = parameters.get("jaxpr")
        if jaxpr is not None and grid is not None:
            once = self.of(_open(jaxpr), kernel=True)
            fixed = all(isinstance(size, int) for size in grid)
            if once.unknown is None and (fixed or not once.amounts):
                found.add(once, times=prod(grid) if fixed else 1)
                return
        claimed = getattr(parameters.get("cost_estimate"), "flops", None)
        kinds = [str(getattr(of.aval, "dtype", "")) for of in equation.invars]
        kind = next((kind for kind in kinds if "float" in kind), None)
        if claimed is None or kind is None:
            found.unknown = self._unknown("kernel", equation)
        else:
            found.amounts[kind.partition("_")[0], False] = float(claimed)

    def _unknown(self, reason: str, equation: Any) -> Uncounted:
        place = self._lines.place_of(equation.source_info.traceback)
        return Uncounted(reason, equation.primitive.name, place)


@functools.cache
def _listed(jax: Any) -> frozenset[str]:
    """Return the names of JAX's primitives; few of them multiply matrices."""
    # Its package must not be imported: that adds to what JAX's traces depend on, since
    # 0.12, and then the program compiles all its functions again.
    file = Path(jax.__file__).parent / "extend" / "core" / "primitives.py"
    spec: Any = importlib.util.spec_from_file_location(f"{__name__}.listed", file)
    primitives = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(primitives)
    found = vars(primitives).items()
    return frozenset(primitive.name for name, primitive in found if name.endswith("_p"))


def _calls_none(parameters: Mapping[str, Any]) -> bool:
    """Return whether *parameters* are those of an operation that runs no jaxpr."""
    for value in parameters.values():
        if type(value) in _NO_JAXPRS:
            continue
        if type(value) is not tuple or not all([type(v) in _NO_JAXPRS for v in value]):
            return False
    return True


def _open(value: Any) -> Any:
    return getattr(value, "jaxpr", value)


def _shards(equation: Any) -> int | None:
    """Return on how many shards a ``shard_map`` runs, else 1; `None` if unknown."""
    if equation.primitive.name != _SHARDED:
        return 1
    parameters = equation.params
    sizes = dict(parameters["mesh"].shape)
    names = parameters.get("newly_manual_axes", parameters.get("manual_axes"))
    if "auto" in parameters:  # up to 0.6.0
        names = sizes.keys() - parameters["auto"]
    if names is None:
        return None
    shards: int = prod(sizes[name] for name in names)
    return shards


def trip_count(equation: Any) -> int | None:
    """
    Return how often the loop of a ``while`` *equation* runs that counts from a constant
    to a constant, in constant steps; `None` for any other. Most of them are a ``scan``.
    """
    parameters = equation.params
    condition = parameters["cond_jaxpr"].jaxpr
    body = parameters["body_jaxpr"].jaxpr
    outer = equation.invars
    first, second = parameters["cond_nconsts"], parameters["body_nconsts"]
    compared = _source(condition, condition.outvars[0])
    if compared is None or compared.primitive.name not in _MIRRORED:
        return None
    name, (left, right) = compared.primitive.name, compared.invars
    if _number(left) is not None or left in condition.invars[:first]:
        name, left, right = _MIRRORED[name], right, left
    if left not in condition.invars[first:]:
        return None
    if right in condition.invars[:first]:
        right = outer[condition.invars.index(right)]
    at = condition.invars.index(left) - first
    counter = body.invars[second + at]
    start, limit = _number(outer[first + second + at]), _number(right)
    step = _step(body, counter, body.outvars[at])
    if start is None or limit is None or not step:
        return None
    if step < 0:
        start, limit, step, name = -start, -limit, -step, _MIRRORED[name]
    return None if name not in _UP else max(0, -((start - limit - _UP[name]) // step))


def _step(body: Any, counter: Any, result: Any) -> int | None:
    found = _source(body, result)
    if found is None or found.primitive.name not in ("add", "sub"):
        return None
    left, right = found.invars
    if found.primitive.name == "add" and right is counter:
        left, right = right, left
    amount = _number(right)
    if left is not counter or amount is None:
        return None
    return amount if found.primitive.name == "add" else -amount


def _source(jaxpr: Any, result: Any) -> Any:
    for equation in reversed(jaxpr.eqns):
        if any(variable is result for variable in equation.outvars):
            return equation
    return None


def _number(value: Any) -> int | None:
    literal = getattr(value, "val", None)
    if literal is None or getattr(value.aval, "shape", None) != ():
        return None
    with interrupts.expected(TypeError):  # a float, or an array that is none
        return operator.index(literal)
    return None
