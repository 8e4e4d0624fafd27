"""
Persistent cache misses, why JAX did not store the compiled programs, and the entries
that could not be read or written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from types import MappingProxyType

from jaxmon.agent.events import EventLog
from jaxmon.agent.jaxlink.cache import SUFFIX, Failed, JaxCache
from jaxmon.exposition.families import Tally
from jaxmon.host import disclosure
from jaxmon.threads import RLock
from jaxmon.tuples import NamedTuple


# Functions named for each reason.
_FUNCTIONS = 50

NAMED = 3
"""Maximum number of functions or modules listed in a message."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UncachedPrograms(NamedTuple):
    """
    Programs that were compiled but not cached, for one reason.

    Attributes:
        programs: how many.
        seconds: their total compile time.
        functions: compile time by function, for the first functions at least.
    """

    programs: int = 0
    seconds: float = 0.0
    functions: Mapping[str, float] = MappingProxyType({})

    def __str__(self) -> str:
        worst = sorted(self.functions, key=self.functions.__getitem__, reverse=True)
        names = ", ".join(worst[:NAMED]) + (", ..." if len(worst) > NAMED else "")
        many = "1 program" if self.programs == 1 else f"{self.programs:,} programs"
        return f"{many} ({names}), {self.seconds:.1f} s of compiling"


class CacheMiss:
    """
    Outcome of one persistent cache miss.

    Attributes:
        key: the cache key.
        module: name of the XLA module.
        seconds: compile time.
        callbacks: whether the program calls back into Python.
        unread: whether an entry exists that could not be read.
        stored: whether JAX was about to write an entry.
        failed: whether writing failed.
        too_large: whether the entry exceeds the maximum cache size.
    """

    __slots__ = (
        *("callbacks", "failed", "key", "module", "seconds", "stored", "too_large"),
        "unread",
    )

    def __init__(
        self,
        key: str,
        module: str = "",
        seconds: float = 0.0,
        *,
        callbacks: bool = False,
        unread: bool = False,
    ) -> None:
        self.key = key
        self.module = module
        self.seconds = seconds
        self.callbacks = callbacks
        self.unread = unread
        self.stored = False
        self.failed = False
        self.too_large = False


def reason_not_stored(attempt: CacheMiss, jax: JaxCache) -> str | None:
    """Return why JAX did not store a program, `None` if it did, or tried to."""
    reason: str | None = "below_size"
    if attempt.too_large:
        reason = "too_large"
    elif attempt.stored or attempt.failed:
        reason = None
    elif attempt.seconds < jax.config.jax_persistent_cache_min_compile_time_secs:
        reason = "below_threshold"
    elif attempt.callbacks:
        reason = "host_callback"
    elif jax.process != 0:
        reason = "not_writer"
    elif not jax.opened:
        reason = None
    return reason


class UncachedByReason:
    """
    Accumulates programs that were compiled but not cached, by reason. Thread-safe.
    """

    def __init__(self) -> None:
        # Reentrant: see Histogram.
        self._lock = RLock()
        self._refused: dict[str, UncachedPrograms] = {}

    def add(self, reason: str, function: str, seconds: float) -> None:
        """Add a program of *function* that took *seconds* to compile."""
        with self._lock:
            before = self._refused.get(reason, UncachedPrograms())
            functions = dict(before.functions)
            if function in functions or len(functions) < _FUNCTIONS:
                functions[function] = functions.get(function, 0.0) + seconds
            self._refused[reason] = UncachedPrograms(
                before.programs + 1, before.seconds + seconds, functions
            )

    def by_reason(self) -> Mapping[str, UncachedPrograms]:
        """Return the programs not cached so far, by reason."""
        return dict(self._refused)


class CacheErrors:
    """
    Counts errors, records each as an event, and remembers the latest.

    Attributes:
        counts: errors by operation: ``read`` and ``write``.
        last: class and message of the latest.
        trouble: what keeps the file system from reading or writing entries; `None` once
            an entry has been read or written again.
    """

    def __init__(self, events: EventLog) -> None:
        self.counts = {"read": Tally(), "write": Tally()}
        self.last: str | None = None
        self.trouble: str | None = None
        self._events = events

    def add(self, failed: Failed, error: BaseException) -> None:
        """Record that an operation *failed* with *error*."""
        self.counts[failed.operation].add()
        message = self.last = disclosure.error(error)
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            message = os.strerror(error.errno) if error.errno else message
            full = "the file system is full, or a quota was reached: "
            self.trouble = (full if error.errno in _FULL else "") + message
        file, advice = f"{failed.key}{SUFFIX}", ""
        if failed.operation == "read" and not isinstance(error, OSError):
            advice = (
                f" JAX does not replace unreadable entries: delete the file {file}."
            )
        done = "read" if failed.operation == "read" else "written"
        self._events.add(
            "cache",
            None,
            f"An entry for {failed.module} could not be {done}: {message}.{advice}",
            operation=failed.operation,
            module=failed.module,
            file=file,
            error=type(error).__name__,
        )

    def over(self) -> None:
        """Note that an entry has been read or written: the trouble is over."""
        self.trouble = None
