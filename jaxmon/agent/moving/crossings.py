"""
Where data crosses between host and device: the places in JAX, seen without a frame.

Arrays are read by methods of JAX's array class, so a `Method` stands in for each:
its look-up runs our observer, which returns and hands out a callable for one call,
whose end the interpreter tells us (see `jaxmon.agent.probe`). Data is sent by
functions that JAX looks up in its modules; these get a `Probe`.

What JAX does in C++ alone has no place: a NumPy argument of a cached call, and, on a
CPU, NumPy's look into an array's memory. `docs/transfers.md` tells users.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any, Literal, TypeAlias

from jaxmon.agent.guard import Guard
from jaxmon.agent.holding.sites import OURS, PROGRAMS, Sites


SITE = "transfers"
MAX_SITES = 10_000
"""Places in programs that are told apart."""

Direction = Literal["device_to_host", "host_to_device", "sync"]

Started: TypeAlias = tuple["Site", int, int, int]
"""Where, how many (a shard after the first adds none), bytes, and since when."""

Record: TypeAlias = tuple[Started, int]
"""The same, and until when; both in nanoseconds of the performance counter."""

# The methods that read an array or a shard of it, by release; their callers keep
# what they read, so a second look does not come here.
_READS = (
    "_single_device_array_to_np_array",  # to 0.5
    "_single_device_array_to_np_array_did_copy",
    "_to_np_array_did_copy",  # since 0.12
)

# Names of JAX's functions, in words of users; others stand for themselves.
_WORDS = {
    "__array__": "numpy",
    "_item": "item",
    "_device_get": "device_get",
    "try_to_block": "block_until_ready",
    "_wait": "block_until_ready",
}
# Functions of JAX that stand around others, and say nothing about what happens.
_WRAPPERS = frozenset({"wrapper", "wrapped", "reraise_with_filtered_traceback"})
_NUMBERS = {bool: ("b", 1), int: ("i", 8), complex: ("c", 16)}
_EXPLICIT = frozenset(
    {"asarray", "array", "device_put", "device_put_sharded", "device_put_replicated"}
)

# The last step of ``jnp.array``, taken in C++ where a program is compiled for it; the
# latter since 0.10.
_CONVERSIONS = ("_convert_element_type", "stage")

_USER, _PLUMBING, _JAX, _LOWERING, _OURS = range(5)
_AGENT = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - a prefix of file names
# A sampled call runs below a frame of ours, which is not its author.
_TRANSPARENT = tuple(_AGENT + name for name in ("calls.py", "sampling.py"))
_LOWERING_FILES = ("mlir.py", "partial_eval.py")


@dataclass(eq=False, slots=True)
class Site:
    """
    A place in the program from which data crosses, in one way.

    Attributes:
        file: source file; empty where no line of the program is on the stack.
        line: in *file*.
        direction: where the data goes, ``sync`` for a wait that moves none.
        how: what the program called, in words.
        code: keeps the identity of the code object from being used again.
    """

    file: str
    line: int
    direction: Direction
    how: str
    code: CodeType | None = None
    count: int = 0
    bytes: int = 0
    nanoseconds: int = 0
    told: bool = False


class Crossing(functools.partial):  # type: ignore[type-arg]
    """
    A callable for one call, which notes as it is dropped when that was.
    """

    __slots__ = ("note", "record")

    note: Callable[[Record], None]
    record: Started

    def __del__(self) -> None:
        self.note((self.record, time.perf_counter_ns()))


class Wait:
    """
    ``array.block_until_ready`` before it is called: a look-up alone is no wait.
    """

    __slots__ = ("_bound", "_start")

    def __init__(
        self, bound: Callable[[], Any], start: Callable[..., Crossing | None]
    ) -> None:
        self._bound = bound
        self._start = start

    @property
    def __call__(self) -> Callable[[], Any]:
        """
        The method, for one call.
        """
        return self._start(sys._getframe(1), self._bound) or self._bound  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bound, name)


class Method:
    """
    Stands in for a method of JAX's array class and shows each use to *observe*.
    """

    def __init__(
        self,
        original: Any,
        observe: Callable[[FrameType, Callable[..., Any], Any], Any],
        guard: Guard,
    ) -> None:
        self._original = original
        self._observe = observe
        self._guard = guard
        self.active = True

    def __get__(self, array: Any, owner: type | None = None) -> Any:
        bound = self._original.__get__(array, owner)
        if array is None or not self.active or not self._guard.on(SITE):
            return bound
        try:
            return self._observe(sys._getframe(1), bound, array) or bound  # noqa: SLF001
        except Exception:  # noqa: BLE001 - contained: the user's call goes on
            self._guard.failed(SITE)
            return bound


@dataclass(frozen=True, slots=True)
class Place:
    """
    An attribute of JAX to stand in for.

    Attributes:
        owner: a module, or the class of arrays.
        name: the attribute.
        observe: takes the calling frame, the original, and of a method the array.
    """

    owner: Any
    name: str
    observe: Callable[..., Any]


@dataclass(slots=True)
class _Seen:
    """
    The files of frames, sorted; bounded, for programs that make code.
    """

    jax: tuple[str, ...]
    sites: Sites
    kinds: dict[str, int] = field(default_factory=dict)

    def learn(self, file: str) -> int:
        kind = self._kind(file)
        if len(self.kinds) < MAX_SITES:
            self.kinds[file] = kind
        return kind

    def _kind(self, file: str) -> int:
        if file.startswith(self.jax):
            below = f"interpreters{os.sep}"
            head, _, name = file.rpartition(below)
            return _LOWERING if head and name in _LOWERING_FILES else _JAX
        if file.startswith(_AGENT):
            return _PLUMBING if file in _TRANSPARENT else _OURS
        if file.startswith(OURS):
            return _USER if file.startswith(PROGRAMS) else _PLUMBING
        # Frozen modules are the interpreter's own.
        if file.startswith("<frozen ") or self.sites.is_library(file):
            return _PLUMBING
        return _USER


class Crossings:
    """
    Observes every crossing that passes a place in JAX.

    Attributes:
        records: what was seen and not taken away yet.
        enough: called when many records wait, on the thread that made one.
    """

    def __init__(
        self, jax: Any, guard: Guard, enough: Callable[[], None], *, many: int = 64
    ) -> None:
        self.records: deque[Record] = deque()
        self._note = self.records.append
        self._jax = jax
        self._guard = guard
        self._enough = enough
        self._many = many
        self._sites: dict[tuple[int, int, str, str], Site] = {}
        self._lines: dict[tuple[int, int, str, str], Site] = {}
        self._rest: dict[tuple[Direction, str], Site] = {}
        self._looping: dict[int, bool] = {}
        self._files = _Seen(_directories("jax", "jaxlib"), Sites(jax))
        self._clean: Callable[[], bool] = jax._src.core.trace_state_clean  # noqa: SLF001
        self._array: type = jax._src.array.ArrayImpl  # noqa: SLF001

    def places(self) -> tuple[list[Place], list[Place]]:
        """
        Return what to stand in for with a `Method`, and with a `Probe`.

        Raises:
            AttributeError: this JAX reads or sends data in another way.
        """
        source: Any = self._jax._src  # noqa: SLF001
        array = self._array
        methods = [
            Place(array, name, self.on_read) for name in _READS if name in vars(array)
        ]
        if not methods:
            msg = f"array class has none of {', '.join(_READS)}"
            raise AttributeError(msg)
        methods.append(Place(array, "block_until_ready", self.on_wait))
        pxla = source.interpreters.pxla
        probes = [
            *_everywhere(self.on_put, "batched_device_put", pxla, source.dispatch),
            *_everywhere(
                self.on_wait_for_many, "batched_block_until_ready", source.api
            ),
            # Only since 0.12, and only where the program asked for it.
            *_everywhere(self.on_put, "shard_args", pxla, required=False),
        ]
        lax: Any = source.lax.lax
        probes += [
            Place(lax, name, self.on_convert)
            for name in _CONVERSIONS
            if name in vars(lax)
        ]
        for place in (*methods, *probes):
            vars(place.owner)[place.name]
        return methods, probes

    # --- observers ---------------------------------------------------------------

    def on_read(
        self, frame: FrameType, bound: Callable[..., Any], array: Any
    ) -> Crossing | None:
        """
        Observe a copy of *array*, or of one shard of it, to the host.
        """
        site = self._site(frame, "device_to_host")
        if site is None:
            return None
        aval = array.aval
        nbytes = math.prod(aval.shape) * aval.dtype.itemsize
        # To 0.11 the shards of an array are read one by one in a loop; which of the
        # two places in JAX's code this is never changes.
        at = frame.f_lasti
        looping = self._looping.get(at)
        if looping is None:
            looping = frame.f_locals.get("self", array) is not array
            self._looping[at] = looping
        count = 0 if looping and frame.f_locals.get("i") else 1
        return self._begin(bound, site, count, nbytes)

    def on_wait(
        self, frame: FrameType, bound: Callable[..., Any], _: Any
    ) -> Wait | None:
        """
        Observe a look-up of ``block_until_ready``.
        """
        del frame
        return Wait(bound, self._start_wait)

    def on_wait_for_many(
        self, frame: FrameType, original: Callable[..., Any]
    ) -> Crossing | None:
        """
        Observe a wait for several arrays.
        """
        return self._start_wait(frame, original)

    def on_put(self, frame: FrameType, original: Callable[..., Any]) -> Crossing | None:
        """
        Observe what sends arrays, of NumPy or already on a device, to devices.
        """
        variables = frame.f_locals
        sent = variables.get("batch_xs")
        if sent is None:
            sent = variables.get("xs", ())
        nbytes, scalars = 0, True
        for one in sent:
            if not isinstance(one, self._array):
                nbytes += self._nbytes(one)
                scalars = scalars and not getattr(one, "ndim", 0)
        if not nbytes:
            return None
        site = self._site(frame, "host_to_device", scalars=scalars)
        return None if site is None else self._begin(original, site, 1, nbytes)

    def on_convert(
        self, frame: FrameType, original: Callable[..., Any]
    ) -> Crossing | None:
        """
        Observe ``jnp.array``, whose last step sends a NumPy array in C++.
        """
        if frame.f_code.co_name != "array" or not self._clean():
            return None
        variables = frame.f_locals
        sent = variables.get("out")
        if sent is None:
            sent = variables.get("object")
        if isinstance(sent, self._array):
            return None
        site = self._site(frame, "host_to_device")
        return (
            None if site is None else self._begin(original, site, 1, self._nbytes(sent))
        )

    # --- inside ------------------------------------------------------------------

    def _start_wait(
        self, frame: FrameType, bound: Callable[..., Any]
    ) -> Crossing | None:
        if not self._guard.on(SITE):
            return None
        try:
            site = self._site(frame, "sync")
            return None if site is None else self._begin(bound, site, 1, 0)
        except Exception:  # noqa: BLE001 - contained: the user's call goes on
            self._guard.failed(SITE)
            return None

    def _nbytes(self, sent: Any) -> int:
        """
        Return the bytes that *sent*, an array of NumPy or a number, has on a device.
        """
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
        self, call: Callable[..., Any], site: Site, count: int, nbytes: int
    ) -> Crossing:
        if len(self.records) >= self._many:
            self._enough()
        crossing = Crossing(call)
        crossing.note = self._note
        crossing.record = (site, count, nbytes, time.perf_counter_ns())
        return crossing

    def _site(  # noqa: C901 - one walk up the stack, kept quick
        self, frame: FrameType, direction: Direction, *, scalars: bool = False
    ) -> Site | None:
        """
        Return the place in the program below which *frame* runs; `None` where the
        crossing is JAX's own or ours, or is seen as a whole further up.
        """
        how, before, argument = "", "", False
        kinds = self._files.kinds
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            kind = kinds.get(code.co_filename)
            if kind is None:
                kind = self._files.learn(code.co_filename)
            if kind == _JAX:
                name = code.co_name
                if name == "cache_miss":
                    argument = True
                elif name not in _WRAPPERS:
                    how, before = name, how
                    if name == "array" and before in _CONVERSIONS:
                        return None
            elif kind == _USER:
                break
            elif kind != _PLUMBING:
                return None
            at = at.f_back
        if scalars and (argument or how not in _EXPLICIT):
            return None  # literals, not data
        if argument and direction == "host_to_device":
            how = "argument"
        if at is None:
            return self._elsewhere(direction, how)
        key = (id(at.f_code), at.f_lasti, direction, how)
        return self._sites.get(key) or self._add(key, at, direction, how)

    def _add(
        self,
        key: tuple[int, int, str, str],
        at: FrameType,
        direction: Direction,
        how: str,
    ) -> Site:
        if len(self._sites) >= MAX_SITES:
            return self._elsewhere(direction, how)
        # Several bytecodes of a line may do the same.
        code, line = at.f_code, at.f_lineno or 0
        words = _in_words(how)
        site = Site(code.co_filename, line, direction, words, code)
        site = self._lines.setdefault((id(code), line, direction, words), site)
        return self._sites.setdefault(key, site)

    def _elsewhere(self, direction: Direction, how: str) -> Site:
        words = _in_words(how)
        site = Site("", 0, direction, words)
        return self._rest.setdefault((direction, words), site)


def _in_words(how: str) -> str:
    if how in _WORDS:
        return _WORDS[how]
    return how.strip("_") or "unknown"


def _everywhere(
    observe: Callable[..., Any], name: str, *users: ModuleType, required: bool = True
) -> Iterator[Place]:
    """
    Yield the modules of jaxlib in which *users* look *name* up.
    """
    found: set[int] = set()
    for user in users:
        for alias in ("xc", "_jax"):
            module = vars(user).get(alias)
            if module is not None and name in vars(module) and id(module) not in found:
                found.add(id(module))
                yield Place(module, name, observe)
    if required and not found:
        msg = f"jaxlib has no {name}"
        raise AttributeError(msg)


def _directories(*packages: str) -> tuple[str, ...]:
    return tuple(
        os.path.dirname(file) + os.sep  # noqa: PTH120 - a prefix of file names
        for package in packages
        if (file := getattr(sys.modules.get(package), "__file__", None))
    )
