"""
JAX's persistent compilation cache: hits, and why other lookups missed.

JAX reports lookups and hits by events, but programs it did not store and errors only in
its log and by `warnings.warn`. Both happen in functions that JAX looks up in its
modules, so probes observe them: ``compiler._cache_write`` and the ``warn`` that
``compiler`` and ``lru_cache`` call, while the exception is being handled.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING

from jaxmon import catalog
from jaxmon.agent.cache import directory as cache_directory
from jaxmon.agent.cache.directory import DirectoryScan, DirectoryScanner
from jaxmon.agent.context import Context
from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink import patches as patch_targets
from jaxmon.agent.jaxlink.cache import (
    SUFFIX,
    Failed,
    JaxCache,
    Write,
    failed_at,
    is_refusal,
    written,
)
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.listeners import CACHE_STORED, TIME_SAVED
from jaxmon.agent.jaxlink.patches import ModuleProxy
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder, set_at
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.catalog import Metric
from jaxmon.clocks import monotonic, wall_time
from jaxmon.exposition.families import Family, Tally, family_of, gauge, series
from jaxmon.host import disclosure
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.facts import events, functions

_EVERY = 30.0
_THRESHOLD = "jax_persistent_cache_min_compile_time_secs"

# Keys that missed are remembered, to recognise our own entries.
_KEYS = 10_000
# Functions named for each reason.
_FUNCTIONS = 50
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CacheMiss:
    """Outcome of a miss: of an entry that JAX could not read, only the key is known."""

    stored = failed = too_large = False

    def __init__(self, of: Write, *, unread: bool) -> None:
        self.of, self.unread = of, unread


def reason_not_stored(attempt: CacheMiss, jax: JaxCache) -> str | None:
    """Return why JAX did not store a program, `None` if it did, or tried to."""
    reason: str | None = "below_size"
    if attempt.too_large:
        reason = "too_large"
    elif attempt.stored or attempt.failed:
        reason = None
    elif attempt.of.seconds < jax.config.jax_persistent_cache_min_compile_time_secs:
        reason = "below_threshold"
    elif attempt.of.callbacks:
        reason = "host_callback"
    elif jax.process != 0:
        reason = "not_writer"
    elif not jax.opened:
        reason = None
    return reason


class CacheErrors:
    """Counts errors, records each, and knows the *trouble* until it is over."""

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


class _CacheThread(threading.local):
    attempt: CacheMiss | None = None


class PersistentCache(Part):
    """
    Counts lookups, writes and errors, and reports obstacles.

    Methods called on compiling threads take microseconds; a separate thread scans the
    directory and may hang with it.
    """

    name = "cache"

    def __init__(
        self,
        context: Context,
        *,
        scan: Callable[..., DirectoryScan] = cache_directory.scan,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._module = context.jax
        self._jax = JaxCache(context.jax)
        self._watch = DirectoryScanner(self._jax, scan=scan, clock=clock)
        self._events = context.events
        self._requests = _tallies()
        self._functions: dict[Function, dict[str, Tally]] = {}
        self._writes = Tally()
        self._errors = CacheErrors(context.events)
        self._thread = _CacheThread()
        # Reentrant: see Histogram.
        self._lock = RLock()
        self._saved = self._lost = 0.0
        # By reason: programs, their seconds, and those of functions.
        self._refused: dict[str, tuple[int, float, dict[str, float]]] = {}
        self._missing: dict[str, set[str]] = {}
        self._missing_keys = 0
        self._asked = False
        self._started = wall_time()
        self._queued = False
        self._reported: dict[str, object] = {}
        self._worker = Worker(
            "cache",
            context.scheduler,
            every=0 if context.settings.serverless else _EVERY,
            routine=self._scan_periodically,
            gives_up=False,
        )

    # --- observers, on the compiling thread --------------------------------------

    def looked_up(self, function: Function, *, hit: bool, heard: bool = True) -> bool:
        """
        Record a lookup, on the compiling thread, whose writes would be *heard*; return
        whether programs are kept anywhere: JAX reports it even without a directory.
        """
        attempt, self._thread.attempt = self._thread.attempt, None
        first, self._asked = not self._asked, True
        is_configured = self._jax.configured is not None
        if is_configured:
            result = "hit" if hit else "miss"
            self._requests[result].add()
            found = self._functions.get(function)
            found = found or self._functions.setdefault(function, _tallies())
            found[result].add()
            if hit:
                self._errors.over()
            elif attempt is not None and heard:
                self._settle(function, attempt)
        if first:
            self._scan_soon()
        return is_configured

    def stored(self) -> None:
        """Record that JAX is about to write an entry."""
        if self._thread.attempt is not None:
            self._thread.attempt.stored = True

    def saved(self, seconds: float, _: str | None = None) -> None:
        """
        Add the compile time that a hit saved, less the time to retrieve the program.

        JAX stores compile time in whole seconds, so the saving of a program that
        compiled in under a second is negative; a counter must not decrease.
        """
        with self._lock:
            # In this order, NaN becomes 0 too.
            self._saved += max(0.0, seconds)
            self._lost += max(0.0, -seconds)

    def on_write(self, frame: FrameType, _: object) -> None:
        """Observe that JAX is about to write the program just compiled."""
        if not self._jax.configured:
            return
        write, before = written(frame), self._thread.attempt
        unread = before is not None and before.unread and before.of.key == write.key
        self._thread.attempt = CacheMiss(write, unread=unread)

    def on_warning(self, frame: FrameType, _: object) -> None:
        """Observe a warning of JAX's cache: a failure if it handles an exception."""
        error, failed = sys.exception(), failed_at(frame)
        if error is None or failed is None:
            return
        if failed.operation == "write":
            if self._thread.attempt is not None:
                self._thread.attempt.failed = True
        elif not failed.sought:
            unknown = Write(failed.key, "", 0.0, callbacks=False)
            self._thread.attempt = CacheMiss(unknown, unread=True)
        self._errors.add(failed, error)
        self._scan_soon()

    def on_refusal(self, frame: FrameType, _: object) -> None:
        """Observe a warning that an entry exceeds the maximum size of the cache."""
        if is_refusal(frame) and self._thread.attempt is not None:
            self._thread.attempt.too_large = True

    # --- life --------------------------------------------------------------------

    def attach(self, hooks: Hooks) -> None:
        """Observe writes, and why others do not happen."""
        hooks.hear({CACHE_STORED: self.stored}, {TIME_SAVED: self.saved})
        hooks.attach("persistent_cache", self._take, needs=("cache",))

    def _take(self, at: HookPlaces) -> None:
        at.probe(*patch_targets.cache_writes(self._module), self.on_write)
        warners = patch_targets.warners(self._module)
        observers = self.on_warning, self.on_refusal
        for place, observe in zip(warners, observers, strict=True):
            warnings = getattr(*place)
            warn = at.stand_in(warnings.warn, observe)
            at.replace(*place, ModuleProxy(warnings, {"warn": warn}))

    def start(self) -> None:
        """Start the thread that scans the directory."""
        self._worker.start()

    def stop(self) -> None:
        """Stop it, without waiting for a hung directory."""
        self._worker.stop(wait=not self._watch.hung)

    def scan(self) -> None:
        """Scan the directory now, on this thread, and record new obstacles."""
        self._queued = False
        with self._lock:
            sought = {module: tuple(keys) for module, keys in self._missing.items()}
        self._watch.scan(sought, hits=self._requests["hit"].value)
        for obstacle in self._obstacles():
            mark = object()
            if self._reported.setdefault(obstacle.reason, mark) is mark:
                reason, advice = obstacle.reason, obstacle.advice
                text = f"{obstacle.message} {advice}"
                self._events.add("cache", None, text, reason=reason, advice=advice)

    # --- reading -----------------------------------------------------------------

    def explain(self) -> Explanation:
        """Return the statistics and the obstacles."""
        by_function = {"cache": lambda: self.snapshot().functions}
        return Explanation({"cache": self.snapshot}, by_function)

    def snapshot(self) -> events.Cache:
        """Return the statistics, also by function, and the obstacles as text."""
        from jaxmon.facts import events  # noqa: PLC0415 - on request

        config = self._jax.config
        listing = self._watch.listing
        return events.Cache(
            enabled=bool(config.jax_enable_compilation_cache),
            directory=self._jax.configured,
            requests=_counted(self._requests),
            functions={
                function.name: _counted(tallies)
                for function, tallies in self._functions.copy().items()
            },
            writes=self._writes.value,
            errors={o: n.value for o, n in self._errors.counts.items()},
            saved_seconds=self._saved - self._lost,
            size_bytes=listing.size,
            entries=listing.entries,
            obstacles=tuple(self._obstacles()),
        )

    def collect(self) -> list[Family]:
        """Return the metrics of the cache. About 50 µs."""
        listing = self._watch.listing
        families = [
            _family(catalog.PERSISTENT_CACHE_REQUESTS, self._requests),
            _family(catalog.PERSISTENT_CACHE_ERRORS, self._errors.counts),
            gauge(catalog.PERSISTENT_CACHE_WRITES, self._writes.value),
            gauge(catalog.PERSISTENT_CACHE_SAVED_SECONDS, self._saved),
        ]
        if listing.size is not None and listing.entries is not None:
            families += [
                gauge(catalog.PERSISTENT_CACHE_SIZE_BYTES, listing.size),
                gauge(catalog.PERSISTENT_CACHE_ENTRIES, listing.entries),
            ]
        found = {obstacle.reason for obstacle in self._obstacles()}
        every = catalog.PERSISTENT_CACHE_OBSTACLES
        states = [(reason, int(reason in found)) for reason in every]
        return [*families, family_of(catalog.PERSISTENT_CACHE_OBSTACLE, states)]

    # --- inside ------------------------------------------------------------------

    def _settle(self, function: Function, attempt: CacheMiss) -> None:
        """Record the outcome of a program JAX was about to write."""
        reason = reason_not_stored(attempt, self._jax)
        if reason != "below_threshold":
            self._remember(attempt)
        if attempt.failed:
            return
        if reason is not None:
            self._refuse(reason, function.name, attempt.of.seconds)
        elif attempt.stored and not attempt.unread:
            # JAX does not replace an unreadable entry.
            self._writes.add()
            self._errors.over()

    def _refuse(self, reason: str, name: str, seconds: float) -> None:
        """Count a program that was compiled but not cached."""
        with self._lock:
            programs, total, functions = self._refused.get(reason, (0, 0.0, {}))
            if name in functions or len(functions) < _FUNCTIONS:
                functions = {**functions, name: functions.get(name, 0.0) + seconds}
            self._refused[reason] = programs + 1, total + seconds, functions

    def _remember(self, attempt: CacheMiss) -> None:
        with self._lock:
            if self._missing_keys < _KEYS:
                self._missing_keys += 1
                self._missing.setdefault(attempt.of.module, set()).add(attempt.of.key)
        self._scan_soon()

    def _scan_periodically(self) -> None:
        # A directory shared by many processes is slow when all of them scan it.
        if self._watch.may_rescan:
            self.scan()

    def _scan_soon(self) -> None:
        if not self._queued and self._watch.may_rescan:
            self._queued = True
            self._worker.submit(self.scan)

    def _obstacles(self) -> list[functions.Obstacle]:
        from jaxmon.agent.cache import obstacles as rules  # noqa: PLC0415 - on request

        jax, listing = self._jax, self._watch.listing
        private, flag = self._varying()
        refused = {
            reason: rules.UncachedPrograms(*found)
            for reason, found in self._refused.copy().items()
        }
        fast = "below_threshold" in refused
        return rules.obstacles(
            rules.CacheState(
                enabled=bool(jax.config.jax_enable_compilation_cache),
                directory=jax.configured,
                asked=self._asked,
                given_up=(given_up := jax.given_up(self._errors.last)),
                package=jax.missing_package() if given_up else "",
                trouble=self._errors.trouble or self._watch.problem,
                max_size=jax.config.jax_compilation_cache_max_size,
                size=listing.size,
                free=listing.free,
                check_contents=jax.check_contents,
                min_seconds=jax.config.jax_persistent_cache_min_compile_time_secs,
                threshold_at=self._threshold_at if fast else "",
                min_bytes=jax.config.jax_persistent_cache_min_entry_size_bytes,
                process=jax.process,
                refused=refused,
                hits=self._requests["hit"].value,
                writes=self._writes.value,
                private=private,
                flag=flag,
                elsewhere=self._watch.elsewhere,
            )
        )

    @functools.cached_property
    def _threshold_at(self) -> str:
        return set_at(_THRESHOLD, SourceLineFinder(self._module))

    def _varying(self) -> tuple[str, tuple[str, str] | None]:
        """Return what keeps other processes from what this one wrote, if known."""
        if self._requests["hit"].value or not self._writes.value:
            return "", None
        from jaxmon.agent.cache import obstacles as rules  # noqa: PLC0415 - on request

        moment = rules.Moment(os.getpid(), self._started, wall_time())
        path = self._jax.configured or ""
        return rules.varying(path, moment), rules.varying_flag(os.environ, moment)


def _tallies() -> dict[str, Tally]:
    return {"hit": Tally(), "miss": Tally()}


def _counted(tallies: Mapping[str, Tally]) -> functions.Requests:
    from jaxmon.facts import functions  # noqa: PLC0415 - on request

    return functions.Requests(**{name: tally.value for name, tally in tallies.items()})


def _family(metric: Metric, tallies: dict[str, Tally]) -> Family:
    return Family(metric, [(series(metric, v), t.value) for v, t in tallies.items()])
