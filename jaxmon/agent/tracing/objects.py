"""
What is certain about values in the source of a traced function, what the objects are
that it refers to, and what may be wrong there.

A function changes counters of the program while it is traced, and on no other call:
what follows from the counter is a constant of the program.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent import inspection
from jaxmon.agent.counted import uncounted
from jaxmon.agent.inspection import ABSENT


Node: TypeAlias = ast.FunctionDef | ast.Lambda
Names: TypeAlias = "dict[str, TracedValue]"


class TracedFunction(NamedTuple):
    """
    A function that JAX traces, with its *holder* if it is a method, and how many
    arguments, and which, a partial has *given*; all others are *traced*, or may be
    static.
    """

    function: Any
    holder: Any = ABSENT
    given: tuple[int, frozenset[str]] = (0, frozenset())
    traced: bool = True


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
    """A mistake of a *kind* above: where, and the source, as ``np.random.normal``."""

    kind: str
    file: str
    line: int
    text: str
    within: str


class ValueOrigin(NamedTuple):
    """What a value of the host makes a program depend on: a number, or a time."""

    mistake: Mistake
    random: bool


@dataclass(frozen=True, slots=True)
class Local:
    """A function defined in what is read; *outer* knows the names around it."""

    node: Node
    outer: Callable[[str], TracedValue]
    file: str


@dataclass(frozen=True, slots=True)
class TracedValue:
    """
    What is certain about a value; the defaults say that nothing is.

    Attributes:
        traced: it is a traced value, or contains one.
        mixed: if so, that is not certain of what it contains.
        elements: what it contains, if that is known one by one.
        shown: it is text that shows a traced value.
        frozen: the values of the host that it was computed from.
        object: the object itself, if it exists outside of the call.
        outer: it exists outside of the call, whatever it is.
        kind: the class that it is of, if that is known, but not the object.
        functions: what runs when it is called, or what is in it.
        yields: calling it returns traced values.
        is_file: it is an open file.
    """

    traced: bool = False
    mixed: bool = False
    elements: tuple[TracedValue, ...] = ()
    shown: bool = False
    frozen: tuple[ValueOrigin, ...] = ()
    object: Any = ABSENT
    outer: bool = False
    kind: type | None = None
    functions: tuple[FunctionType | Local, ...] = ()
    yields: bool = False
    is_file: bool = False

    @property
    def key(self) -> object:
        """Equal for values of which the same is certain."""
        flags = self.traced, self.mixed, self.shown, self.outer, self.yields
        elements = tuple(element.key for element in self.elements)
        objects = id(self.object), self.kind, self.is_file
        return flags, self.frozen, objects, self.functions, elements

    @property
    def content(self) -> TracedValue:
        """What is certain about anything that it contains."""
        if self.traced and not self.mixed:
            return TRACED
        return TracedValue(frozen=self.frozen, functions=self.functions)


NOTHING = TracedValue()
TRACED = TracedValue(traced=True)


def together(values: Iterable[TracedValue]) -> TracedValue:
    """Return what is certain about a value that contains all *values*."""
    values = list(values)
    return TracedValue(
        traced=any(value.traced for value in values),
        mixed=not all(value.traced and not value.mixed for value in values),
        shown=any(value.shown for value in values),
        frozen=origins(values),
        functions=tuple(f for value in values for f in value.functions),
    )


def origins(values: Iterable[TracedValue]) -> tuple[ValueOrigin, ...]:
    """Return the values of the host that *values* were computed from."""
    return tuple(dict.fromkeys(origin for value in values for origin in value.frozen))


def either(first: TracedValue, second: TracedValue) -> TracedValue:
    """Return what is certain about a value that is one of two."""
    if first == second:
        return first
    return TracedValue(
        traced=first.traced and second.traced,
        mixed=first.mixed or second.mixed,
        shown=first.shown and second.shown,
        frozen=tuple(origin for origin in first.frozen if origin in second.frozen),
    )


def joined(first: Names, second: Names) -> Names:
    """Return what is certain about names after one of two branches."""
    return {
        name: either(value, second[name])
        for name, value in first.items()
        if name in second
    }


class Counters:
    """The counters that one jitted function changes."""

    def __init__(self) -> None:
        self._origins: dict[tuple[object, str], ValueOrigin] = {}

    def add(self, holder: object, name: str, mistake: Mistake) -> ValueOrigin:
        """Note that *name* changes: of an object, or of a module by its file."""
        origin = self._origins[holder, name] = ValueOrigin(mistake, random=False)
        return origin

    def name(self, file: str, name: str) -> TracedValue | None:
        """Return the counter that *name* is in *file*, `None` if it is none."""
        return _value(self._origins.get((file, name)))

    def attribute(self, base: TracedValue, name: str) -> TracedValue | None:
        """Return the counter *name* of *base*, `None` if it is none."""
        return _value(self._origins.get((holder_of(base), name)))


def counts(node: Node, target: ast.expr, value: ast.expr) -> bool:
    """Return whether *node* assigns *target* once, a value made from the old one."""
    text = ast.unparse(target)
    again = [name for name in ast.walk(value) if _is(name, text, ast.Load)]
    stores = [name for name in ast.walk(node) if _is(name, text, ast.Store)]
    return bool(again) and len(stores) == 1


def _is(node: ast.AST, text: str, context: type[ast.expr_context]) -> bool:
    """Return whether *node* is the name or attribute *text*, loaded or stored."""
    return (
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, context)
        and ast.unparse(node) == text
    )


def holder_of(base: TracedValue) -> object:
    """Return what distinguishes *base* from others, `None` if that is unknown."""
    return base.kind if base.object is ABSENT else id(base.object)


def _value(origin: ValueOrigin | None) -> TracedValue | None:
    return None if origin is None else TracedValue(frozen=(origin,))


CONTAINERS: dict[type, frozenset[str]] = {
    list: frozenset(("append", "extend", "insert")),
    deque: frozenset(("append", "appendleft", "extend")),
    set: frozenset(("add", "update")),
    dict: frozenset(("update", "setdefault")),
}
"""The methods by which a container takes values."""

STORES = frozenset().union(*CONTAINERS.values())
"""All of these."""

LEVELS = frozenset(
    ("debug", "info", "warning", "warn", "error", "critical", "exception", "log")
)
"""The methods of a logger."""

CALLBACKS = ("callback", "id_tap", "id_print", "host_call", "debug.print")
"""Functions of JAX that call a function of the host at each execution."""

WRAPPERS = frozenset(
    ("jit", "pmap", "vmap", "grad", "value_and_grad", "checkpoint", "remat", "jacfwd")
) | frozenset(
    ("jacrev", "jacobian", "hessian", "custom_jvp", "custom_vjp", "named_call")
)
"""Functions of JAX that return a function which calls their first argument."""

CALLERS = frozenset(
    ("scan", "cond", "switch", "while_loop", "fori_loop", "map", "associative_scan")
) | frozenset(("vjp", "jvp", "linearize", "reduce_window", "custom_root"))
"""Functions of JAX that call their arguments with traced values."""

ARRAY_METHODS = frozenset(
    (
        *("all", "any", "argmax", "argmin", "astype", "clip", "conj", "copy", "cumsum"),
        *("add", "apply", "divide", "max", "mean", "min", "mul", "multiply"),
        *("power", "prod", "ravel", "reshape", "set", "squeeze", "std", "subtract"),
        *("sum", "swapaxes", "take", "transpose", "var"),
    )
)
"""Methods of arrays, and of ``x.at[i]``, that return arrays."""

_MAKING = {
    "optax": frozenset(("apply_updates", "incremental_update", "periodic_update")),
    "equinox": frozenset(("apply_updates", "tree_at", "partition", "combine")),
}
"""Functions of libraries that return a new value and do nothing else."""

MAKING_METHODS = {"apply_gradients": "grads"}
"""The same for methods of training states, recognized by an argument."""

ARRAY_ATTRIBUTES = frozenset(("T", "mT", "at", "flat", "imag", "real"))
"""Attributes of arrays that are, or lead to, arrays."""

_ARRAYS = (
    *("jax.numpy", "jax.lax", "jax.nn", "jax.random", "jax.scipy", "jax.image"),
    *("jax.numpy.linalg", "jax.numpy.fft", "jax.scipy.special", "jax.scipy.linalg"),
    *("jax.scipy.signal", "jax.scipy.stats.norm"),
)
_OTHERS = ("jax", "jax.tree", "jax.tree_util", "jax.debug", "jax.experimental")
_NO_ARRAYS = frozenset(
    (
        *("array_repr", "array_str", "broadcast_shapes", "can_cast"),
        *("save", "savez", "set_printoptions"),
        *("dtype", "einsum_path", "finfo", "get_printoptions", "iinfo"),
        *("iscomplexobj", "isdtype", "isrealobj", "isscalar", "issubdtype", "key_impl"),
        *("ndim", "printoptions", "promote_types", "result_type", "shape", "size"),
    )
)
_CLOCKS = {
    "time": (
        *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic"),
        *("monotonic_ns", "process_time", "process_time_ns"),
    )
}
_RANDOM = {
    "uuid": ("uuid1", "uuid4"),
    "secrets": ("randbelow", "randbits", "token_bytes", "token_hex", "choice"),
    "os": ("urandom",),
}
# What prepares a generator, or needs no luck.
_NO_CHOICE = frozenset(
    ("seed", "get_state", "set_state", "getstate", "setstate", "default_rng", "shuffle")
)
_GENERATORS = (
    ("random", "Random"),
    ("random", "SystemRandom"),
    ("numpy.random._generator", "Generator"),
    ("numpy.random.mtrand", "RandomState"),
)
_SELF = vars(BuiltinFunctionType)["__self__"].__get__
_DEEPEST = 16


class Draw(NamedTuple):
    """A function of the host that returns another number, or time, at each call."""

    text: str
    random: bool


def draw_of(function: Any, *, seeded: bool) -> Draw | None:
    """Return what the value of *function* depends on, if not only on arguments."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and function is vars(numpy).get("default_rng"):
        return None if seeded else Draw("numpy.random.default_rng", random=True)
    loaded = sum(name in sys.modules for name in (*_CLOCKS, *_RANDOM))
    draw = _draws(loaded).get(id(function))
    if draw is not None:
        return draw
    holder = None
    if type(function) is MethodType:
        holder, name = function.__self__, function.__func__.__name__
    elif inspection.is_subclass(type(function), BuiltinFunctionType):
        holder, name = _SELF(function), function.__name__
    if holder is None or type(holder) is ModuleType:
        return None
    return draw_by(holder, name)


def draw_by(holder: Any, name: str) -> Draw | None:
    """Return the same of the method *name* of *holder*."""
    if _is_date(holder) and name in ("now", "utcnow", "today"):
        return Draw(f"{inspection.name_of(holder)}.{name}", random=False)
    kind = type(holder)
    if (
        name in _NO_CHOICE
        or (inspection.module_of(kind), inspection.name_of(kind)) not in _GENERATORS
    ):
        return None
    numpy = inspection.module_of(kind).startswith("numpy")
    return Draw(f"{'numpy.' * numpy}random.{name}", random=True)


def name_in_jax(function: Any) -> str:
    """Return ``jax.numpy.sum`` for a public function of JAX, otherwise ``""``."""
    found = _jax_functions(sum(name in sys.modules for name in (*_ARRAYS, *_OTHERS)))
    return found.get(id(function), "")


def returns_arrays(name: str) -> bool:
    """Return whether the function of JAX called *name* maps arrays to arrays."""
    short = name.rpartition(".")[2]
    functions = short.islower() or short == "PRNGKey"
    return name.startswith(_ARRAYS) and short not in _NO_ARRAYS and functions


def only_returns(function: Any) -> bool:
    """
    Return whether a call of *function* does nothing but return a new value.

    What JAX calls for it may have an effect, such as ``jax.debug.print``.
    """
    if name := name_in_jax(function):
        return returns_arrays(name) and name.rpartition(".")[2] not in CALLERS
    if type(function) is not FunctionType:
        return False
    package = str(function.__module__).partition(".")[0]
    return function.__name__ in _MAKING.get(package, ())


def is_numpy(function: Any) -> bool:
    """Return whether *function* is one of NumPy's."""
    if type(function) is FunctionType:
        return str(function.__module__).startswith("numpy")
    return inspection.package_of(type(function)) == "numpy"


def is_logger(value: Any) -> bool:
    """Return whether *value* is a logger, or a module with the same functions."""
    if type(value) is ModuleType:
        return value.__name__ in ("logging", "absl.logging")
    return any(
        (inspection.module_of(kind), inspection.name_of(kind)) == ("logging", "Logger")
        for kind in type.__dict__["__mro__"].__get__(type(value))
    )


def attribute_of(value: Any, name: str) -> Any:
    """Return an attribute of *value* without running its code, or `ABSENT`."""
    if type(value) is ModuleType or inspection.is_subclass(type(value), ModuleType):
        fields = ModuleType.__getattribute__(value, "__dict__")
        found = fields.get(name, ABSENT)
        return (
            sys.modules.get(f"{fields.get('__name__')}.{name}", ABSENT)
            if found is ABSENT
            else found
        )
    if inspection.is_subclass(type(value), type):
        found = inspection.found_in(value, name)
    else:
        found = inspection.field_of(value, name)
        if found is ABSENT:
            found = inspection.found_in(type(value), name)
    kind = type(found)
    if kind is staticmethod:
        return found.__func__
    computed = (classmethod, property, functools.cached_property)
    return ABSENT if kind in computed else found


def method_of(kind: type, name: str) -> FunctionType | None:
    """Return the method *name* of objects of class *kind*."""
    found = inspection.found_in(kind, name)
    return found if type(found) is FunctionType else None


def is_bound(holder: Any, name: str, function: Any) -> bool:
    """Return whether *function* is a method that gets *holder* as an argument."""
    return (
        type(function) is FunctionType
        and inspection.found_in(type(holder), name) is function
    )


def keeps_attributes(value: Any) -> bool:
    """Return whether the class is plain: modules of networks restore attributes."""
    kinds = type.__dict__["__mro__"].__get__(type(value))
    return type(value) is ModuleType or len(kinds) == 2  # noqa: PLR2004 - and object


@functools.lru_cache(maxsize=1)
def _draws(_: int) -> dict[int, Draw]:
    """Return the functions of modules by id, as often as `_jax_functions`."""
    found = {}
    for table, random in ((_CLOCKS, False), (_RANDOM, True)):
        for module, names in table.items():
            for name in names:
                function = vars(sys.modules.get(module, object)).get(name)
                if function is not None:
                    found[id(function)] = Draw(f"{module}.{name}", random)
    return found


@functools.lru_cache(maxsize=1)
def _jax_functions(_: int) -> dict[int, str]:
    """Return JAX's public functions by id, anew when the number of modules differs."""
    found: dict[int, str] = {}
    for name in (*_ARRAYS, *_OTHERS):
        module = sys.modules.get(name)
        for short, value in list(vars(module).items()) if module else ():
            if not short.startswith("_") and type(value) is not ModuleType:
                found.setdefault(id(value), f"{name}.{short}")
    return found


def unwrapped(function: Any) -> FunctionType | None:
    """Return the Python function inside decorators of *function*, if there is one."""
    for _ in range(_DEEPEST):
        if type(function) is MethodType:
            function = function.__func__
            continue
        wrapped = inspection.field_of(uncounted(function), "__wrapped__")
        if wrapped is ABSENT:
            break
        function = wrapped
    return function if type(function) is FunctionType else None


def _is_date(value: Any) -> bool:
    module = sys.modules.get("datetime")
    return module is not None and (value is module.datetime or value is module.date)
