"""
Statistics of each jitted function, by label.

A label is ``module.qualname`` of the user's function. All statistics of a label are
lock-free counters, so the hooks never wait; a scrape sums them. The calls are counted
by the live jitted objects of the function.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast
from weakref import ref

from jaxmon import catalog, interrupts
from jaxmon.agent.counted import CountedFunction, call_count, on_end, uncounted
from jaxmon.agent.inspection import (
    ABSENT,
    field_of,
    found_in,
    is_subclass,
    module_of,
    name_of,
)
from jaxmon.agent.jaxlink.jit import exported, inside_shim, is_module, name_in_program
from jaxmon.agent.jaxlink.source_lines import ProgramLine
from jaxmon.catalog import COMPILE_SECONDS, Metric
from jaxmon.exposition.families import Family, Histogram, SpanIds, Tally, series
from jaxmon.host.sources import display_path, package_of
from jaxmon.threads import RLock
from jaxmon.tuples import NamedTuple


# Number of records after which those of dead objects are folded, and phases added up.
_MANY = 64
OTHER = "other"
UNKNOWN = "unknown"
_SHARED = (OTHER, UNKNOWN)
_NAMES = ("__module__", "__qualname__", "__name__")
_NAMED = frozenset(map(id, (types.FunctionType, types.BuiltinFunctionType)))
_FUNC = vars(functools.partial)["func"].__get__
_DEEPEST = 16
# Maximum share of the labels for functions of JAX itself (jnp operations are jitted
# too), so that they cannot crowd out the user's.
_INTERNAL_SHARE = 4
# Maximum length of a label; real ones have a quarter of it.
_LONGEST = 256


class LiveObjects:
    """
    Weak references to counted objects, and the sum of their calls, including those of
    dead objects.

    The sum costs a third of a microsecond for each object. There is no lock, because
    after a fork it might be held by a thread that no longer exists: what must be atomic
    contains no call, so that neither a thread nor a signal interrupts it.
    """

    def __init__(self) -> None:
        self._ended = 0
        self._numbers = itertools.count()
        # With each, its last count, once it ends.
        self._records: dict[int, tuple[ref[CountedFunction], list[int]]] = {}
        self._many = _MANY

    def add(self, counted: CountedFunction) -> None:
        """Include the calls of *counted*."""
        last: list[int] = []
        on_end(counted, last.append)
        self._records[next(self._numbers)] = ref(counted), last
        if len(self._records) > self._many:
            self._fold()
            self._many = max(_MANY, 2 * len(self._records))

    def __bool__(self) -> bool:
        """Whether some may be alive."""
        return bool(self._records)

    @property
    def calls(self) -> int:
        """Number of calls, including those of dead objects."""
        if not self._records:
            return self._ended
        # Together, without a call in between.
        total, records = self._ended, {**self._records}
        some_ended = False
        for reference, last in records.values():
            counted = reference()
            if last:
                total += last[0]
                some_ended = True
            elif counted is not None:
                total += call_count(counted)
        if some_ended:
            self._fold()
        return total

    def newest_first(self) -> Iterator[tuple[int, CountedFunction]]:
        """Yield the live objects, each with its unique number."""
        for number, (reference, _) in reversed({**self._records}.items()):
            counted = reference()
            if counted is not None:
                yield number, counted

    def _fold(self) -> None:
        records = self._records
        for number, (_, last) in {**records}.items():
            if last and number in records:
                self._ended += last[0]
                del records[number]


class CompilePhases(NamedTuple):
    """What a compile took, `None` if not seen; *loaded*: from the persistent cache."""

    trace_seconds: float | None
    lower_seconds: float | None
    xla_seconds: float
    loaded: bool


class Function:
    """
    The statistics of one function label, in the program *is_users* if one function of
    that has it. `objects` are called through the call layer, traced calls included;
    `traced` are calls made while JAX traced another function; of those that left the
    fast path, `entered_missed` came through the call layer, `other_missed` did not.
    `lowered` returns what JAX lowered last, and `whole` the same with what is not used,
    for as long as JAX keeps them; then `None`.
    """

    def __init__(self, name: str, *, internal: bool) -> None:
        self.name = name
        self.internal = internal
        self.is_users = not internal and name not in _SHARED
        self._code: types.CodeType | None = None
        self.counted = False
        self.objects = LiveObjects()
        self.traced = Tally()
        self.entered_missed = Tally()
        self.other_missed = Tally()
        self.errors: dict[str, Tally] = {}
        self.compiles = {outcome: Tally() for outcome in catalog.OUTCOMES}
        self.recompiles: dict[str, Tally] = {}
        self._phases: dict[str, Histogram] = {}
        # What no one has asked for yet.
        self._observed: deque[tuple[str, float]] = deque()
        self.hits_floor = (0, 0)
        self.series: dict[object, str] = {}
        self.lowered: Callable[[], Any] = type(None)
        self.whole: Callable[[], Any] = type(None)

    def defined_by(self, fun: object) -> None:
        """Note that *fun* has this label: a microsecond or two."""
        if self._code is None and self.is_users:
            self._code = code_of(inner(fun))

    @property
    def place(self) -> str:
        """Where it is defined, ``path/file.py:12``; empty if unknown."""
        code = self._code
        if code is None:
            return ""
        return f"{display_path(code.co_filename)}:{code.co_firstlineno}"

    @property
    def package(self) -> str:
        """The installed package that defines it; empty if the program does."""
        code = self._code
        return "" if code is None else package_of(code.co_filename) or ""

    @property
    def built(self) -> int:
        """How often it was compiled, or loaded from the persistent cache."""
        return self.compiles["compiled"].value + self.compiles["cache_hit"].value

    @property
    def spent(self) -> float:
        """Seconds of all phases of its compiles."""
        return sum(phase.sum for phase in list(self.phases.values()))

    def recompiled(self) -> Counter[str]:
        """Return how often it was recompiled, by cause."""
        return Counter({cause: n.value for cause, n in self.recompiles.copy().items()})

    @property
    def missed(self) -> int:
        """Calls that left the fast path, however the function was created."""
        return self.entered_missed.value + self.other_missed.value

    def observe_phase(
        self, phase: str, seconds: float, ids: SpanIds | None = None
    ) -> None:
        """Add *seconds* to the phase's histogram, with the *ids* of its exemplar."""
        if ids is None:
            self._observed.append((phase, seconds))
            if len(self._observed) < _MANY:
                return
        self._add_up()
        if ids is not None:
            self._histogram(phase).observe(seconds, ids)

    @property
    def phases(self) -> dict[str, Histogram]:
        """What its compiles took, by phase."""
        if self._observed:
            self._add_up()
        return self._phases

    def _add_up(self) -> None:
        observed = self._observed
        with interrupts.expected(IndexError):  # another thread may do so as well
            while observed:
                phase, seconds = observed.popleft()
                self._histogram(phase).observe(seconds)

    def _histogram(self, phase: str) -> Histogram:
        found = self._phases.get(phase)
        if found is None:
            new = Histogram(COMPILE_SECONDS, self.name, phase)
            found = self._phases.setdefault(phase, new)
        return found

    def count_error(self, kind: str) -> None:
        """Count an exception that propagated from a call of this function."""
        self.errors.setdefault(kind, Tally()).add()

    def count_recompile(self, cause: str) -> None:
        """Count a call that recompiled this function."""
        self.recompiles.setdefault(cause, Tally()).add()

    @property
    def calls(self) -> int:
        """Calls so far that the call layer counted; never decreases."""
        return max(self.objects.calls - self.traced.value, self.hits_floor[0])

    def calls_and_hits(self) -> tuple[int, int]:
        """
        Return calls and hits so far; neither ever decreases.

        A call that is between the call layer and the miss path looks like a hit; the
        floor keeps the next scrape from decreasing the count, which Prometheus would
        read as a counter reset.
        """
        missed, calls = self.entered_missed.value, self.calls
        now = calls, max(calls - missed, self.hits_floor[1])
        self.hits_floor = now
        return now


class FunctionTable:
    """
    Functions by label, at most *limit* of them; the rest, `overflow`, share ``other``.
    `compiled`: Unix time and label of the latest compiles of the program's functions.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._internal_limit = max(limit // _INTERNAL_SHARE, 1)
        self._used = self._internal_used = 0
        self._functions: dict[str, Function] = {}
        self._by_short_name: dict[str, set[str]] = {}
        # Reentrant: a signal handler may call a jitted function while this
        # thread creates an entry.
        self._lock = RLock()
        self.overflow = Tally()
        self.compiled: deque[tuple[float, str]] = deque(maxlen=100)

    def __iter__(self) -> Iterator[Function]:
        return iter(list(self._functions.values()))

    def missed(self) -> int:
        """Return how many calls of all functions have left the fast path."""
        return sum(function.missed for function in self)

    def totals(self) -> tuple[int, int, float]:
        """Return compiles, recompiles and seconds of all functions."""
        compiles, recompiles, seconds = 0, 0, 0.0
        for function in self:
            compiles += function.built
            recompiles += function.recompiled().total()
            seconds += function.spent
        return compiles, recompiles, seconds

    def of(self, fun: object) -> Function:
        """Return the entry of the callable *fun*, if who jitted it is unknown."""
        name, internal = label(fun)
        found = self.named(name, internal=internal)
        found.defined_by(fun)
        return found

    def named(self, name: str, *, internal: bool = False) -> Function:
        """Return the entry called *name*, ``other`` if the table is full."""
        return self._functions.get(name) or self._create(valid(name), internal=internal)

    def by_short_name(self, short: str) -> Function:
        """Return the only function whose ``__name__`` is *short*, else ``unknown``."""
        names = self._by_short_name.get(short, set())
        return self.named(next(iter(names)) if len(names) == 1 else UNKNOWN)

    def _create(self, name: str, *, internal: bool) -> Function:
        with self._lock:
            if name in self._functions:  # another thread was faster
                return self._functions[name]
            if name not in _SHARED:
                full = self._used >= self._limit
                if full or (internal and self._internal_used >= self._internal_limit):
                    self.overflow.add()
                    return self.named(OTHER)
                self._used += 1
                self._internal_used += internal
                self._by_short_name.setdefault(name.rpartition(".")[2], set()).add(name)
            created = self._functions[name] = Function(name, internal=internal)
            return created


def label(fun: object, line: ProgramLine | None = None) -> tuple[str, bool]:
    """
    Return the label of the callable *fun* and whether it is JAX's own.

    Partials and bound methods are named after the function inside; a callable object
    without its own name after its class; an exported program, possibly from another
    process, ``exported.`` with the name of its source. A callable of JAX that the
    program jits, at *line*, is named after the user's function inside, or else as if it
    were defined there. Runs no user code.
    """
    if type(fun) is types.FunctionType:  # as most
        home, qualname = cast("Any", fun.__module__), fun.__qualname__
        home = "builtins" if home is None else home  # generated
        is_named = type(home) is type(qualname) is str and home and qualname
        if is_named and not is_module(home):
            return valid(f"{home}.{qualname}"), False
    for _ in range(_DEEPEST):
        if not is_subclass(type(fun), functools.partial):
            break
        fun = _FUNC(fun)
    if (program := exported(fun)) is not None:
        return valid(f"exported.{program.fun_name}"), False
    of: Any = uncounted(fun.__func__ if type(fun) is types.MethodType else fun)
    if id(type(of)) in _NAMED:
        given: tuple[Any, ...] = of.__module__, of.__qualname__, of.__name__
    else:
        given = tuple([_attribute(of, name) for name in _NAMES])
    module, *names = [part if type(part) is str else None for part in given]
    module = module or module_of(type(fun))
    name = next(filter(None, names), None) or name_of(type(fun))
    if not is_module(module):
        return valid(f"{module or UNKNOWN}.{name}"), False
    if (inside := inside_shim(of)) is not None:
        return label(inside, line)
    users = name_in_program(of, search=line is not None)
    if users is None and line is not None:
        users = _name_at(line, name)
    return valid(users or f"{module}.{name}"), users is None


def _name_at(line: ProgramLine, name: str) -> str:
    inside = "" if line.function == "<module>" else f"{line.function}.<locals>."
    return f"{line.module}.{inside}{name.rpartition('.')[2]}"


def valid(name: str) -> str:
    """
    Return *name* as a label: printable, and of moderate length.

    Distinct names stay distinct: unprintable characters and lone surrogates are
    escaped, and a truncated part is replaced by a digest.
    """
    if not name.isprintable():
        name = "".join(
            [
                character
                if character.isprintable()
                else character.encode("unicode_escape").decode()
                for character in name
            ]
        )
    if len(name) > _LONGEST:
        digest = hashlib.blake2s(name.encode(), digest_size=8).hexdigest()
        name = f"{name[: _LONGEST - 20]}...{digest}"
    return name


def _attribute(fun: object, name: str) -> Any:
    found = field_of(fun, name)
    return found_in(type(fun), name) if found is ABSENT else found


def inner(fun: object) -> Any:
    """Return the function inside partials, bound methods and decorators."""
    for _ in range(_DEEPEST):
        kind = type(fun)
        if kind is types.FunctionType and not fun.__dict__:
            break  # the common case: not wrapped
        if kind is types.MethodType:
            fun = fun.__func__  # type: ignore[attr-defined]
        elif is_subclass(kind, functools.partial):
            fun = _FUNC(fun)
        else:
            wrapped = field_of(uncounted(fun), "__wrapped__")
            if wrapped is ABSENT:
                break
            fun = wrapped
    return fun


def code_of(fun: object) -> types.CodeType | None:
    """Return the code of *fun*, if it is a Python function."""
    return fun.__code__ if type(fun) is types.FunctionType else None


def place_of(fun: object) -> str | None:
    """Return ``file.py:12`` of the function inside *fun*, if there is one."""
    code = code_of(inner(fun))
    if code is None:
        return None
    file = code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{file}:{code.co_firstlineno}"


def bare_name(qualname: str) -> str:
    """
    Return the name without enclosing functions, such as ``<lambda>`` or ``Model.step``.
    """
    return qualname.rpartition("<locals>.")[2]


def active(table: FunctionTable) -> list[Function]:
    """
    Return the functions that have series.

    `jax.jit` alone creates none, nor does a traced call: libraries jit more than a
    program uses.
    """
    return [f for f in table if is_active(f) or f.name == UNKNOWN]


def is_active(function: Function) -> bool:
    """Return whether the program has called *function* or compiled it."""
    return bool(
        function.phases  # decides for most functions
        or function.missed
        or function.errors
        or any(tally.value for tally in function.compiles.values())
        or function.objects.calls > function.traced.value
    )


def series_of(function: Function, metric: Metric, *values: str) -> str:
    """Return the series of *function* in *metric*, created once."""
    key = (metric.name, *values)
    found = function.series.get(key)
    if found is None:
        found = function.series[key] = series(metric, function.name, *values)
    return found


def by_function(metric: Metric, figures: Iterable[tuple[Function, float]]) -> Family:
    """Return the family *metric* from a value of each function."""
    return Family(metric, [(series_of(f, metric), value) for f, value in figures])


def by_value(
    metric: Metric, figures: Iterable[tuple[Function, Iterable[str], dict[str, Tally]]]
) -> Family:
    """
    Return the family *metric* by the value of its second label, from functions, the
    values that each exports from the start, at 0, and counts.
    """
    samples: list[tuple[str, float]] = []
    name = metric.name
    for function, initial, tallies in figures:
        counts = dict.fromkeys(initial, 0)
        for value, tally in tallies.copy().items():
            counts[value] = tally.value
        labels = function.series.get
        samples += [
            (labels((name, v)) or series_of(function, metric, v), n)
            for v, n in counts.items()
        ]
    return Family(metric, samples)
