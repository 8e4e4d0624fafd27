"""Finds the source lines that transfer data, and the function called there."""

from __future__ import annotations

import os
from types import CodeType, FrameType
from typing import Any, Literal, TypeAlias

from jaxmon.agent.jaxlink.activity import FETCH, TRANSFER
from jaxmon.agent.jaxlink.call_sites import CallSites
from jaxmon.agent.jaxlink.jit import directories
from jaxmon.agent.jaxlink.source_lines import AGENT, SourceLineFinder
from jaxmon.host.sources import OURS


MAX_SITES = 10_000
"""Maximum number of transfer sites distinguished."""

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
_WRAPPERS = frozenset({"wrapper", "wrapped", "reraise_with_filtered_traceback"})
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
    """
    A source line that transfers data in one direction by one function.

    Attributes:
        file: source file; empty if no line of the program is on the stack.
        line: line number in *file*.
        direction: direction of the transfer, or ``sync``.
        how: name of the function that the program called.
        code: keeps the id of the code object from being reused.
        ended: when the latest transfer ended, in nanoseconds.
    """

    __slots__ = (
        "bytes",
        "code",
        "count",
        "direction",
        "ended",
        "file",
        "how",
        "line",
        "nanoseconds",
        "reported",
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
        self.ended = 0
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
        Return the transfer site on the stack of *frame*; `None` if the transfer is made
        by JAX itself or by us, or is observed as a whole further up.

        Costs 0.15 µs per frame with warm CPU caches, four times that between two XLA
        executions.

        Args:
            frame: the frame of JAX that makes the transfer.
            direction: direction of the transfer.
            scalars: only numbers are sent, which may be literals.
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
                elif name not in _WRAPPERS:
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
    if how in _WORDS:
        return _WORDS[how]
    return how.strip("_") or "unknown"
