"""
Observes transfers between host and device at the functions of JAX that make them:
methods of its array class, by a `MethodPatch`, and what it looks up in modules, by a
`Probe`.

Transfers that JAX makes in C++ alone cannot be observed: a NumPy argument of a cached
call, and, on a CPU, NumPy's direct access to an array's memory. See
`docs/transfers.md`.
"""

from __future__ import annotations

import functools
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmon.agent.guard import Allowance, Guard
from jaxmon.agent.inspection import AnyCall, is_instance, package_of
from jaxmon.agent.jaxlink.backends import is_calling, leave_arrays_alone
from jaxmon.agent.jaxlink.call_sites import (
    CONVERSIONS,
    CallSites,
    TransferSite,
    TransferSites,
)
from jaxmon.agent.jaxlink.jit import stack_from
from jaxmon.agent.jaxlink.listeners import CallbackTimes, Probe
from jaxmon.agent.jaxlink.patches import SITE, Record, SyncCall
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.host.sources import display_path
from jaxmon.indicators.endings import SingleUse
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.otel.traces.spans import Traces

# The methods that read an array or a shard of it, by release; their callers cache the
# result, so a second read does not come here.
_READS = (
    "_single_device_array_to_np_array",  # to 0.5
    "_single_device_array_to_np_array_did_copy",
    "_to_np_array_did_copy",  # since 0.12
)
_MANY = 256
# Examining one takes some 25 µs with cold caches: 0.1 % of a processor.
_BURST, _PER_SECOND = 1000, 40
_times = iter(perf_counter_ns, None)
# Puts a call of Python into a program; the equation of that is some calls further up.
_EMITS, _STEPS = "emit_python_callback", 12
# The function that makes arrays, and by release its module and that module's name of
# the module that converts them.
_CONVERTS, _PUT = "array", "device_put"
_CONVERTERS = (
    ("jax._src.numpy.array_constructors", "lax"),
    ("jax._src.numpy.array", "lax"),
    ("jax._src.numpy.lax_numpy", "lax_internal"),
)
# Values looked at of an array that becomes one of 32 bits, for the first few arrays of
# a line; fewest that must differ, by more than rounding does.
_WIDE, _LOOKED_AT, _LOOKS, _FEWEST, _NOISE = 8, 2048, 3, 20, 1e-11
_NUMBERS = {bool: ("b", 1), int: ("i", 8), complex: ("c", 16)}


def trusted_view(sent: Any) -> Any:
    """
    Return *sent*, or an equivalent that can be inspected without running user code: the
    array of a subclass of NumPy's; for any other class `None`.
    """
    if package_of(type(sent)):
        return sent
    return np.ndarray.view(sent, np.ndarray) if is_instance(sent, np.ndarray) else None


class Loss(NamedTuple):
    """As in `jaxmon.facts.memory.Narrowed`."""

    dtype: str
    spacing: float
    share: float
    asked: bool = False


def loss_of(array: Any) -> Loss | None:
    """Return what the first of an array's 64-bit values lose with 32 bits; 30 µs."""
    dtype = getattr(array, "dtype", None)
    if dtype is None or dtype.itemsize != _WIDE or dtype.kind not in "iuf":
        return None
    values = np.asarray(array).flat[:_LOOKED_AT]
    if dtype.kind != "f":
        narrow = values.astype(f"{dtype.kind}4")
        lost = np.flatnonzero(narrow != values)
        return Loss(str(dtype), 0.0, lost.size / values.size) if lost.size else None
    with np.errstate(all="ignore"):
        narrow = values.astype(np.float32)
        apart = np.abs(np.diff(values))
        differ = apart > _NOISE * np.abs(values[1:])
        merged = differ & (narrow[1:] == narrow[:-1]) & np.isfinite(narrow[1:])
    if differ.sum() < _FEWEST or not merged.any():
        return None
    at = int(np.flatnonzero(merged)[0])
    share = float(merged.sum() / differ.sum())
    return Loss(str(dtype), float(np.spacing(abs(narrow[at]))), share)


def _put(frame: FrameType) -> list[Any]:
    stack = stack_from(frame, sys.maxsize)
    puts = [at.f_locals.get("x") for at in stack if at.f_code.co_name == _PUT]
    given: Any = puts[0] if puts else None
    if type(given) is dict:
        return [*given.values()]
    return [*given] if type(given) in {list, tuple} else [given]


class ObservedTarget(NamedTuple):
    """An attribute of JAX to replace, for calls by *caller* if that is given."""

    owner: Any
    name: str
    observe: AnyCall
    allowance: Allowance
    caller: str | None = None


class TransferHooks:
    """
    Observes the transfers that pass through Python code of JAX. At 256 *records*,
    *enough* is called on that thread; *narrowed* is what arrays made at a line have
    lost.
    """

    def __init__(
        self,
        jax: Any,
        guard: Guard,
        enough: Callable[[], None],
        calls: CallSites,
        traces: Traces,
    ) -> None:
        self.records: deque[Record] = deque()
        self._note = self.records.append
        self.observes = True
        self.callbacks: dict[str, CallbackTimes] = {}
        self.profiles: dict[str, CallbackTimes] = {}
        self.narrowed: dict[str, Loss] = {}
        self._looked: dict[int, int] = {}
        self._lines = SourceLineFinder(jax)
        self._jax = jax
        self._guard = guard
        self._enough = enough
        self._traces = traces
        self._origins = TransferSites(jax, calls)
        self._looping: dict[int, bool] = {}
        self._emits, *allowances = [
            Allowance(burst=_BURST, rate=_PER_SECOND) for _ in range(5)
        ]
        self._allowances = allowances
        self._reads, self._waits, self._puts, self._conversions = allowances
        self._clean = is_calling(jax)
        self._array: type = jax._src.array.ArrayImpl  # noqa: SLF001

    def places(self) -> tuple[list[ObservedTarget], list[ObservedTarget]]:
        """Return what to replace with a `MethodPatch`, and what with a `Probe`."""
        source: Any = self._jax._src  # noqa: SLF001
        array = self._array
        methods = [
            ObservedTarget(array, name, self.on_read, self._reads)
            for name in _READS
            if name in vars(array)
        ]
        if not methods:
            msg = f"array class has none of {', '.join(_READS)}"
            raise AttributeError(msg)
        methods.append(
            ObservedTarget(array, "block_until_ready", self.on_wait, self._waits)
        )
        pxla, puts = source.interpreters.pxla, (self.on_device_put, self._puts)
        waits = self.on_block_until_ready, self._waits
        probes = [
            *_everywhere(*puts, "batched_device_put", pxla, source.dispatch),
            *_everywhere(*waits, "batched_block_until_ready", source.api),
            # Only since 0.12, and only if the program enabled it.
            *_everywhere(*puts, "shard_args", pxla, required=False),
        ]
        for place in (*methods, *probes):
            vars(place.owner)[place.name]
        return methods, probes

    def conversions(self) -> Iterator[tuple[ModuleType, str, list[ObservedTarget]]]:
        """Yield the module of ``jnp.array`` and what it converts with, by name."""
        lax: Any = self._jax._src.lax.lax  # noqa: SLF001
        steps = [
            ObservedTarget(lax, step, self.on_convert, self._conversions, _CONVERTS)
            for step in CONVERSIONS
            if step in vars(lax)
        ]
        for path, name in _CONVERTERS:
            module = sys.modules.get(path)
            if module is not None and vars(module).get(name) is lax:
                yield module, name, steps
                return

    def on_read(self, frame: FrameType, bound: AnyCall, array: Any) -> AnyCall | None:
        """Observe a copy of *array*, or of one shard of it, to the host."""
        if not (weight := self._reads.take()):
            return None
        site = self._origins.of(frame, "device_to_host")
        if site is None:
            return None
        aval = array.aval
        nbytes = math.prod(aval.shape) * aval.dtype.itemsize
        # Up to 0.11 the shards of an array are read one by one in a loop; which of the
        # two places in JAX's code this is never changes.
        at = frame.f_lasti
        looping = self._looping.get(at)
        if looping is None:
            looping = frame.f_locals.get("self", array) is not array
            self._looping[at] = looping
        count = 0 if looping and frame.f_locals.get("i") else 1
        self._reads.latest = site, count, nbytes
        return self._begin(bound, site, weight, count, nbytes)

    def on_wait(self, __: FrameType, bound: AnyCall, _: Any) -> SyncCall | None:
        """Observe a lookup of ``block_until_ready``."""
        if not (weight := self._waits.take()):
            return None
        wait = SyncCall()
        wait.bound, wait.start, wait.weight = bound, self._start_wait, weight
        return wait

    def on_block_until_ready(
        self, frame: FrameType, original: AnyCall
    ) -> AnyCall | None:
        """Observe a sync with several arrays."""
        weight = self._waits.take()
        return self._start_wait(frame, original, weight) if weight else None

    def on_device_put(self, frame: FrameType, original: AnyCall) -> AnyCall | None:
        """Observe what sends arrays, of NumPy or already on a device, to devices."""
        if not (weight := self._puts.take()):
            return None
        variables = frame.f_locals
        sent = variables.get("batch_xs")
        if sent is None:
            sent = variables.get("xs", ())
        nbytes, scalars = 0, True
        for array in map(trusted_view, sent):
            if not isinstance(array, self._array):
                nbytes += self._nbytes(array)
                scalars = scalars and not getattr(array, "ndim", 0)
        if not nbytes:
            return None
        site = self._origins.of(frame, "host_to_device", scalars=scalars)
        if site is None:
            return None
        if site.how == _PUT:
            self._look(site, frame)
        self._puts.latest = site, 1, nbytes
        return self._begin(original, site, weight, 1, nbytes)

    def on_convert(self, frame: FrameType, original: AnyCall) -> AnyCall | None:
        """Observe ``jnp.array``, whose last step sends a NumPy array in C++."""
        if not (weight := self._conversions.take()) or not self._clean():
            return None
        variables = frame.f_locals
        sent = variables.get("out")
        if sent is None:
            sent = variables.get("object")
        sent = trusted_view(sent)
        if isinstance(sent, self._array):
            return None
        site = self._origins.of(frame, "host_to_device")
        if site is None:
            return None
        self._look(site, frame, asked=variables.get("dtype") is not None)
        nbytes = self._nbytes(sent)
        self._conversions.latest = site, 1, nbytes
        return self._begin(original, site, weight, 1, nbytes)

    def settle(self) -> None:
        """Record those that passed since the latest that was observed as that."""
        for allowance in self._allowances:
            latest, passed = allowance.latest, allowance.passed()
            if latest is not None and passed:
                (site, count, nbytes), now = latest, perf_counter_ns()
                started = (site, passed, count, nbytes, now - site.spent, None)
                self._note((started, now))

    def _look(self, site: TransferSite, at: FrameType, *, asked: bool = False) -> None:
        """Look at what `jnp.array` or `jax.device_put` get, a few times on a line."""
        looks = self._looked.get(id(site), 0)
        if looks >= _LOOKS or not site.file or self._jax.config.jax_enable_x64:
            return
        self._looked[id(site)] = looks + 1
        given = _put(at) if site.how == _PUT else [at.f_locals.get("object")]
        views = [of for of in map(trusted_view, given) if isinstance(of, np.ndarray)]
        for loss in filter(None, map(loss_of, views)):
            place = f"{display_path(site.file)}:{site.line}"
            self.narrowed.setdefault(place, Loss(*loss[:-1], asked))

    def on_profile(self, frame: FrameType, original: AnyCall) -> AnyCall | None:
        """Observe that the program starts or stops a profile."""
        line = self._lines.that_calls(frame)
        if line is None:  # a profile of ours
            return None
        place = line.place
        if place not in self.profiles and len(self.profiles) >= _MANY:
            return None
        return self.profiles.setdefault(place, CallbackTimes()).began(frame, original)

    def callback_places(self) -> list[ObservedTarget]:
        """Return where JAX looks up what puts a call of Python into a program."""
        source: Any = self._jax._src  # noqa: SLF001
        # The second up to 0.4.
        found = [source.callback, source.interpreters.mlir]
        emits = [
            ObservedTarget(module, _EMITS, self.on_emit, self._emits)
            for module in found
            if _EMITS in vars(module)
        ]
        profiles = [
            ObservedTarget(source.profiler, name, self.on_profile, self._emits)
            for name in ("start_trace", "stop_trace")
            if name in vars(source.profiler)
        ]
        return emits + profiles

    def on_emit(self, frame: FrameType, original: AnyCall) -> AnyCall | None:
        """Observe that a program gets a call of Python."""
        leave_arrays_alone(self._jax, self._guard)
        stack = stack_from(frame.f_back, _STEPS)
        equations = filter(None, [at.f_locals.get("eqn") for at in stack])
        # What `jax.vmap` makes of a callback has no line of the program's.
        found = (self._lines.place_of(of.source_info.traceback) for of in equations)
        place = next(filter(None, found), "")
        if place not in self.callbacks and len(self.callbacks) >= _MANY:
            return None
        times = self.callbacks.setdefault(place, CallbackTimes())
        return functools.partial(self._emit, original, times)

    def _emit(
        self,
        original: AnyCall,
        times: CallbackTimes,
        context: Any,
        callback: AnyCall,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        watched = Probe(
            callback,
            # The program outlasts the agent.
            lambda *call: times.began(*call) if self.observes else None,
            guard=self._guard,
            site=SITE,
        )
        return original(context, watched, *args, **kwargs)

    def _start_wait(
        self, frame: FrameType, bound: AnyCall, weight: int
    ) -> AnyCall | None:
        try:
            site = self._origins.of(frame, "sync")
            if site is None:
                return None
            self._waits.latest = site, 1, 0
            return self._begin(bound, site, weight, 1, 0)
        except Exception:  # noqa: BLE001 - contained: the user's call goes on
            self._guard.failed(SITE)
            return None

    def _nbytes(self, sent: Any) -> int:
        dtype = getattr(sent, "dtype", None)
        if dtype is None:
            kind, itemsize = _NUMBERS.get(type(sent), ("f", 8))
        else:
            kind, itemsize = dtype.kind, dtype.itemsize
        wide = kind in "fiuc" and itemsize == (16 if kind == "c" else 8)
        if wide and not self._jax.config.jax_enable_x64:
            itemsize //= 2
        return int(getattr(sent, "size", 1) * itemsize)

    def _begin(
        self, call: AnyCall, site: TransferSite, weight: int, count: int, nbytes: int
    ) -> AnyCall:
        if len(self.records) >= _MANY:
            self._enough()
        # Inlined `ending`, because reads and syncs are frequent.
        once = SingleUse()
        once.__call__ = call
        tracer = self._traces.tracer
        place = None if tracer is None else tracer.place()
        started = ((site, weight, count, nbytes, perf_counter_ns(), place),)
        record = map(self._note, zip(started, _times))  # noqa: B905 - one is endless
        once.__del__ = record.__next__
        return once


def _everywhere(
    observe: AnyCall,
    allowance: Allowance,
    name: str,
    *users: ModuleType,
    required: bool = True,
) -> Iterator[ObservedTarget]:
    """Yield *name* in each module of jaxlib in which *users* look it up."""
    found: set[int] = set()
    for user in users:
        for alias in ("xc", "_jax"):
            module = vars(user).get(alias)
            if module is not None and name in vars(module) and id(module) not in found:
                found.add(id(module))
                yield ObservedTarget(module, name, observe, allowance)
    if required and not found:
        msg = f"jaxlib has no {name}"
        raise AttributeError(msg)
