"""
The places in the user's code that call jitted functions, ask iterators for items, or
transfer arrays.

A cached call runs in C++: the innermost frame is the caller's, at the instruction that
calls. So places are remembered when a call is seen, and found in the code of functions
on a stack, by global names and by names of what it has been seen to call.
"""

from __future__ import annotations

import builtins
import dis
import os
from collections import defaultdict
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any, Literal, TypeAlias

from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.jit import TYPE_NAME, directories, is_inside, is_module
from jaxmon.agent.jaxlink.source_lines import AGENT, SourceLineFinder
from jaxmon.host.sources import OURS
from jaxmon.threads import get_ident, get_native_id
from jaxmon.tuples import NamedTuple


DEVICE = "device"
"""Calls a jitted function: dispatches it, or waits until it can be."""

EAGER = "eager"
"""Runs an operation outside of jit."""

NUMPY = "numpy"
"""Calls NumPy. It waits for an array of JAX that it reads, without a frame of JAX."""

FETCH = "fetch"
TRANSFER = "transfer"

MAX_SITES = 10_000
"""Maximum number of places and functions remembered, and of transfer sites."""

_MOST_THREADS, _MOST_CALLERS = 64, 16
_LONGEST = 50_000
# Bytes of an instruction, and of its cache behind it.
_UNIT = 2
_RECEIVING = frozenset(("recv", "recv_into", "recvfrom", "recvmsg", "accept"))
# What waits for work in C: of `queue.SimpleQueue`, of the terminal or a pipe.
_TAKING, _INPUT, _STDIN = "get", "input", "stdin"
_SLEEP, _SLEEPS = ("time", "sleep"), ("sleep", "time.sleep")
_ANSWERS = "set_result"
_BUILTINS = frozenset(vars(builtins))
# Functions of NumPy that wait for a file in C.
_FILES = frozenset(("fromfile",))
_Place: TypeAlias = tuple[int | None, int | None]
_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_LOADS = (*_GLOBAL, "LOAD_FAST", "LOAD_DEREF")
_WRAPPERS = frozenset(("reraise_with_filtered_traceback", "cache_miss"))


class CallSite(NamedTuple):
    """A place that calls, and what the thread does then; *code* keeps its id."""

    state: str
    function: str
    code: CodeType


class CallSites:
    """
    Remembers these places.

    Attributes:
        threads: those that call jitted functions of the user, latest last, with their
            numbers in the kernel: others get their identifiers once they end.
        callers: by function, code and offsets of the innermost frames of the latest
            call of it that was seen.
    """

    def __init__(self) -> None:
        self.threads: dict[int, int] = {}
        self.callers: dict[str, list[tuple[CodeType, int]]] = {}
        self._sites: dict[tuple[int, int], CallSite] = {}
        self._drivers: dict[int, CodeType] = {}
        self._callers: dict[int, CodeType] = {}
        self._called: dict[int, dict[int, str]] = {}
        self._shared: set[tuple[int, int]] = set()
        self._asking: dict[int, WaitOffsets] = {}

    def call_from(
        self, frame: FrameType | None, function: str, *, internal: bool = False
    ) -> None:
        """Remember that *frame* calls *function*, *internal* if it is JAX's own."""
        while frame is not None and frame.f_code.co_name in _WRAPPERS:
            frame = frame.f_back
        # An operation called by another one of JAX has frames of JAX on the stack.
        if frame is not None and not is_inside(frame):
            state = EAGER if internal else DEVICE
            self._add(frame.f_code, frame.f_lasti, state, function)
            if not internal and (
                function in self.callers or len(self.callers) < MAX_SITES
            ):
                found: list[tuple[CodeType, int]] = []
                self.callers[function] = found
                while frame is not None and len(found) < _MOST_CALLERS:
                    found.append((frame.f_code, frame.f_lasti))
                    frame = frame.f_back
        threads, ident, number = self.threads, get_ident(), get_native_id()
        if not internal and threads.get(ident) != number:
            if len(threads) >= _MOST_THREADS:
                threads.pop(next(iter(threads)), None)
            threads[ident] = number

    def add(self, frame: FrameType, state: str, function: str = "") -> None:
        """Remember that *frame* is calling; a third of a microsecond if known."""
        self._add(frame.f_code, frame.f_lasti, state, function)

    def at(self, code: CodeType, offset: int) -> CallSite | None:
        """Return what *code* calls at *offset*, there or by the same name elsewhere."""
        site = self._sites.get((id(code), offset))
        if site is None and id(code) in self._callers:
            return self._elsewhere(code, offset)
        return site

    def called(self, traceback: Any) -> str | None:
        """Return what was called at a *traceback* of JAX, empty if one of several."""
        codes, offsets = traceback.raw_frames()
        site = self.at(codes[0], offsets[0]) if codes else None
        if site is None or site.state != DEVICE:
            return None
        return "" if (id(codes[0]), offsets[0]) in self._shared else site.function

    def drives(self, code: CodeType) -> bool:
        """Return whether *code* is known to call jitted functions or operations."""
        return id(code) in self._drivers

    def calls(self, code: CodeType) -> bool:
        """Return whether *code* is known to call jitted functions."""
        return id(code) in self._callers

    def is_driver(self, code: CodeType) -> None:
        """Remember that *code* calls jitted functions or operations."""
        if len(self._drivers) < MAX_SITES:
            self._drivers[id(code)] = code

    def waits_for_item(self, code: CodeType, offset: int) -> bool:
        """Return whether *code* drives a device, and waits for an item there."""
        key = id(code)
        return key in self._drivers and offset in self._asking.get(key, _NONE).asking

    def offsets(self, code: CodeType) -> WaitOffsets:
        """Return where *code* waits, as far as it was studied."""
        return self._asking.get(id(code), _NONE)

    def study(self, code: CodeType, names: dict[str, Any]) -> None:
        """
        Find the places in *code*, once, and again when one of its global names gets a
        value, as those of a module do; a few microseconds per instruction.
        """
        if (before := self._asking.get(id(code))) is None:
            if len(self._asking) >= MAX_SITES:
                return
        elif not any([dict.__contains__(names, name) for name in before.unbound]):
            return
        asking, receiving, taking, idling, sleeping = (set[int]() for _ in range(5))
        calls = list(_calls(code)) if len(code.co_code) <= _LONGEST else []
        accepts = False
        for call in calls:
            name = call.name if call.is_global else ""
            if call.method == (_STDIN if call.is_loop else _TAKING):
                taking.add(call.offset)
            idling.update([call.offset] * (name == _INPUT))
            sleeping.update([call.offset] * _is_sleep(call, names, code))
            if call.is_loop or name == "next":
                asking.add(call.offset)
                # Python 3.12 is behind it while it runs a generator.
                asking.update([call.offset + _UNIT] * call.is_loop)
            elif call.method in _RECEIVING:
                receiving.add(call.offset)
                accepts = accepts or call.method == "accept"
            elif name and (state := _state_of(dict.get(names, name), call.method)):
                method = call.method if state == NUMPY else ""
                self._add(code, call.offset, state, method)
        idling.update(receiving if accepts else ())
        named = {call.name for call in calls if call.is_global} - _BUILTINS
        unbound = frozenset(of for of in named if not dict.__contains__(names, of))
        answers = any([call.method == _ANSWERS for call in calls])
        self._asking[id(code)] = WaitOffsets(
            code,
            asking=frozenset(asking),
            receiving=frozenset(receiving),
            taking=frozenset(taking),
            idling=frozenset(idling),
            sleeping=frozenset(sleeping),
            unbound=unbound,
            answers=answers,
        )

    def places(self) -> list[tuple[str, CodeType, int]]:
        """Return the known places that call jitted functions: label, code, offset."""
        sites = self._sites.copy().items()
        return [
            (site.function, site.code, offset)
            for (_, offset), site in sites
            if site.state == DEVICE and site.function
        ]

    def _elsewhere(self, code: CodeType, offset: int) -> CallSite | None:
        called = self._called.get(id(code))
        if called is None:
            calls = _calls(code) if len(code.co_code) <= _LONGEST else ()
            named = (call for call in calls if call.name and not call.is_loop)
            called = {call.offset: call.text for call in named}
            self._called[id(code)] = called
        if (text := called.get(offset)) is None:
            return None
        for other, same in called.items():
            site = self._sites.get((id(code), other)) if same == text else None
            if site is not None and site.state == DEVICE:
                self._add(code, offset, DEVICE, site.function)
                return site
        return None

    def _add(self, code: CodeType, offset: int, state: str, function: str) -> None:
        key = id(code), offset
        site = self._sites.get(key)
        if (site is None and len(self._sites) < MAX_SITES) or (
            site is not None and function and not site.function
        ):
            self._sites[key] = CallSite(state, function, code)
            if state != NUMPY:
                self._drivers[id(code)] = code
            if state == DEVICE:
                self._callers[id(code)] = code
        elif site is not None and function not in {"", site.function}:
            self._shared.add(key)


class _Call(NamedTuple):
    """A place that calls, or takes the next item of a loop, as it begins."""

    offset: int
    name: str = ""
    attributes: tuple[str, ...] = ()
    is_global: bool = False
    is_loop: bool = False

    @property
    def method(self) -> str:
        return self.attributes[-1] if self.attributes else ""

    @property
    def text(self) -> str:
        return ".".join((self.name, *self.attributes))


class WaitOffsets(NamedTuple):
    """
    Offsets of *code* that wait: of loops, for a socket, queue, user, or a time; global
    names that had no value, and whether it sets the results of futures.
    """

    code: CodeType | None = None
    asking: frozenset[int] = frozenset()
    receiving: frozenset[int] = frozenset()
    taking: frozenset[int] = frozenset()
    idling: frozenset[int] = frozenset()
    sleeping: frozenset[int] = frozenset()
    unbound: frozenset[str] = frozenset()
    answers: bool = False


_NONE = WaitOffsets()


def _state_of(value: object, method: str) -> str | None:
    kind = type(value)
    if kind is ModuleType:
        name = str(vars(value).get("__name__"))
        if name == "numpy":
            return None if method in _FILES else NUMPY
        # Functions of `jax` itself are seen by their frames.
        return EAGER if is_module(name) and name != "jax" else None
    return DEVICE if name_of(kind) == TYPE_NAME else None


def _is_sleep(call: _Call, names: dict[str, Any], code: CodeType) -> bool:
    """Return whether it is one of `time.sleep`, by any name, or imported in *code*."""
    value = dict.get(names, call.name) if call.is_global else None
    if type(value) is ModuleType:
        value = vars(value).get(call.method)
    if type(value) is BuiltinFunctionType:
        return (value.__module__, value.__name__) == _SLEEP
    imported = call.text in _SLEEPS and {*_SLEEP} <= {*code.co_names}
    return imported and not call.is_global


def _calls(code: CodeType) -> Iterator[_Call]:
    """Yield what *code* calls or loops over; its name is loaded where that begins."""
    names: dict[_Place, tuple[str, bool]] = {}
    attributes: defaultdict[_Place, list[str]] = defaultdict(list)
    for instruction in dis.get_instructions(code):
        place = instruction.positions
        start = None if place is None else (place.lineno, place.col_offset)
        if instruction.opname == "FOR_ITER":
            over = () if start is None else tuple(attributes[start])
            yield _Call(instruction.offset, attributes=over, is_loop=True)
        elif start is None:
            continue
        elif instruction.opname.startswith(_LOADS):
            names[start] = str(instruction.argval), instruction.opname in _GLOBAL
            attributes.pop(start, None)
        elif instruction.opname in {"LOAD_METHOD", "LOAD_ATTR"}:
            attributes[start].append(str(instruction.argval))
        elif instruction.opname.startswith(("CALL", "PRECALL")):
            (name, is_global), path = names.get(start, ("", False)), attributes[start]
            if name or path:
                yield _Call(instruction.offset, name, tuple(path), is_global=is_global)


Direction = Literal["device_to_host", "host_to_device", "sync"]

CONVERSIONS = ("_convert_element_type", "stage")
"""
The last step of ``jnp.array``, made in C++ if a program is compiled for it; the latter
since 0.10.
"""

# Public names of JAX's functions; others are shown as they are.
_WORDS = {
    "__array__": "numpy",
    "_item": "item",
    "_device_get": "device_get",
    "try_to_block": "block_until_ready",
}
# Wrapper functions of JAX, which say nothing about the operation.
_CASTS = frozenset({"wrapper", "wrapped", "reraise_with_filtered_traceback"})
_EXPLICIT = frozenset(
    {"asarray", "array", "device_put", "device_put_sharded", "device_put_replicated"}
)

_USER, _PLUMBING, _JAX, _INTERNAL, _OURS = range(5)
_LOWERING_FILES = ("mlir.py", "partial_eval.py")
# Files that run callbacks: XLA has copied their operands to the host in C++, and JAX
# creates arrays from these in host memory, which is not a transfer.
_CALLBACK_FILES = ("callback.py", "debugging.py")


# Code and offset of the user's line, direction, function of JAX, and code and offset of
# the line that calls it, which may be a library's.
_Key: TypeAlias = tuple[int, int, Direction, str, int, int]


class TransferSite:
    """A line that transfers or syncs; the latest *ended* then, *spent* nanoseconds."""

    __slots__ = (
        *("bytes", "code", "count", "direction", "ended", "file", "how", "line"),
        *("nanoseconds", "reported", "spent"),
    )

    def __init__(
        self,
        file: str,
        line: int,
        direction: Direction,
        how: str,
        code: CodeType | None = None,
    ) -> None:
        self.file = file
        self.line = line
        self.direction = direction
        self.how = how
        self.code = code
        self.count = 0
        self.bytes = 0
        self.nanoseconds = 0
        self.ended = self.spent = 0
        self.reported = False


class TransferSites:
    """Finds and keeps the transfer sites. Thread-safe; bounded by `MAX_SITES`."""

    def __init__(self, jax: Any, calls: CallSites) -> None:
        self._calls = calls
        self._sites: dict[_Key, TransferSite] = {}
        self._lines: dict[tuple[int, int, str, str], TransferSite] = {}
        self._rest: dict[tuple[Direction, str], TransferSite] = {}
        self._kinds: dict[str, int] = {}
        self._jax = directories(jax)
        source = os.path.join(self._jax[0], "_src", "")  # noqa: PTH118
        interpreters = os.path.join(source, "interpreters", "")  # noqa: PTH118
        self._internal = {
            *(source + name for name in _CALLBACK_FILES),
            *(interpreters + name for name in _LOWERING_FILES),
        }
        self._libraries = SourceLineFinder(jax)

    def of(  # noqa: C901 - one walk up the stack, kept quick
        self, frame: FrameType, direction: Direction, *, scalars: bool = False
    ) -> TransferSite | None:
        """
        Return the transfer site on the stack of *frame*; `None` if JAX itself or we
        transfer, or it is observed further up. If *scalars*, only numbers are sent,
        maybe literals. Costs 0.15 µs per frame with warm CPU caches, four times that
        between two XLA executions.
        """
        # The program calls the method itself, without a frame of JAX.
        how = "block_until_ready" if direction == "sync" else ""
        argument, kinds = False, self._kinds
        caller: FrameType | None = None
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            file = code.co_filename
            kind = kinds.get(file)
            if kind is None:
                kind = self._learn(file)
            if kind == _JAX:
                name = code.co_name
                if name == "cache_miss":
                    argument = True
                elif name not in _CASTS:
                    if name == "array" and how in CONVERSIONS:
                        return None
                    how = name
            elif kind == _USER:
                break
            elif kind != _PLUMBING:
                return None
            elif caller is None:
                caller = at
            at = at.f_back
        if scalars and (argument or how not in _EXPLICIT):
            return None  # literals, not data
        if argument and direction == "host_to_device":
            how = "argument"
        if at is None:
            return self._elsewhere(direction, how)
        by = at if caller is None else caller
        key = (id(at.f_code), at.f_lasti, direction, how, id(by.f_code), by.f_lasti)
        return self._sites.get(key) or self._add(key, at, by)

    def _add(self, key: _Key, at: FrameType, by: FrameType) -> TransferSite:
        _, _, direction, how, *_ = key
        if len(self._sites) >= MAX_SITES:
            return self._elsewhere(direction, how)
        # Several bytecodes of a line may make the same transfer.
        code, line = at.f_code, at.f_lineno or 0
        words = _display_name(how)
        site = TransferSite(code.co_filename, line, direction, words, code)
        site = self._lines.setdefault((id(code), line, direction, words), site)
        for frame in (at, by):
            self._calls.add(frame, TRANSFER if direction == "host_to_device" else FETCH)
        return self._sites.setdefault(key, site)

    def _elsewhere(self, direction: Direction, how: str) -> TransferSite:
        words = _display_name(how)
        site = TransferSite("", 0, direction, words)
        return self._rest.setdefault((direction, words), site)

    def _learn(self, file: str) -> int:
        kind = self._kind(file)
        if len(self._kinds) < MAX_SITES:  # bounded, for programs that generate code
            self._kinds[file] = kind
        return kind

    def _kind(self, file: str) -> int:
        if file.startswith(self._jax):
            return _INTERNAL if file in self._internal else _JAX
        if file.startswith(AGENT):
            return _OURS
        if file.startswith(OURS):
            return _PLUMBING
        # Frozen modules are the interpreter's own.
        if file.startswith("<frozen ") or self._libraries.is_library(file):
            return _PLUMBING
        return _USER


def _display_name(how: str) -> str:
    return _WORDS[how] if how in _WORDS else how.strip("_") or "unknown"
