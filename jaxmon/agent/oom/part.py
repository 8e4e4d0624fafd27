"""
Out-of-memory reports: what requested memory, what holds it, what was left.

The process may be about to exit, so the failing thread waits for the report, for a
bounded time: gathering may hang with the device, and writing with the disk. Nothing is
ever allocated on a device, and the backends are never initialised. Each section is
gathered separately, so that a failure affects only its own.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import platform
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context, CountedError
from jaxmon.agent.events import Kind
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink import backends, failures
from jaxmon.agent.memory.lines import MemoryLines
from jaxmon.agent.memory.part import ArrayGroup, count_buffers, group_arrays, sizes
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.reports import directory
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic, wall_time
from jaxmon.exposition.families import Family, Tally, gauge
from jaxmon.facts import events
from jaxmon.facts.events import FailedAllocation, OomReport
from jaxmon.facts.functions import Program
from jaxmon.facts.memory import Arrays, Device, HostMemory
from jaxmon.facts.record import encoded
from jaxmon.host import disclosure
from jaxmon.threads import Event, Lock
from jaxmon.version import version


SITE = "oom_facts"

# Live arrays are summed for at most this long.
_ARRAYS_SECONDS = 0.05
# With more arrays, the source lines are those of the last regular snapshot; if there is
# none yet, taking one may hold the GIL for up to a second, but not much longer.
_MANY_ARRAYS = 20_000
_MOST_ARRAYS = 100_000
# XLA rounds up and adds a little.
_ABOUT = 0.01
_LINES = 20
_PROGRAMS = 5
_EVENTS: Mapping[str, tuple[Kind, int]] = {
    "compiles": ("compile", 10),
    "recompiles": ("recompile", 10),
    "leaks": ("leak", 3),
}
# Dropped in this order from a report that is too large.
_EXPENDABLE = ("recompiles", "compiles", "leaks", "programs", "lines", "live_arrays")


_Read: TypeAlias = Callable[[], Mapping[str, Program]]


class ReportBuilder:
    """Gathers the contents of reports, with statistics that *programs* returns."""

    def __init__(self, context: Context, lines: MemoryLines, programs: _Read) -> None:
        self.lines = lines
        self.programs = programs
        self._context = context
        self._guard = context.guard
        self._versions: Mapping[str, str | None] = {}

    def prepare(self) -> None:
        """Read the required files while there is memory for it."""
        self._versions = {
            "jaxmon": version(),
            "jax": self._context.jax.__version__,
            "jaxlib": backends.version(),
            "python": platform.python_version(),
        }

    def build(self, failure: FailedAllocation, *, skipped: int) -> OomReport:
        """Return a report about *failure*, after *skipped* failures without one."""
        from jaxmon.agent.oom.text import advice  # noqa: PLC0415
        from jaxmon.host.resources.container import memory  # noqa: PLC0415

        report = OomReport(
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(failure.time)),
            program=Path(sys.argv[0]).name if sys.argv and sys.argv[0] else None,
            pid=os.getpid(),
            versions=self._versions,
            failure=failure,
            failures_without_report=skipped,
        )
        sections: dict[str, Callable[[OomReport], OomReport]] = {
            "devices": self._devices,
            "host": lambda report: report.replace(host=HostMemory(**memory())),
            "live_arrays": self._live_arrays,
            "lines": self._lines,
            "programs": self._programs,
            **{name: functools.partial(self._last, name) for name in _EVENTS},
            "advice": lambda report: report.replace(advice=advice(report)),
        }
        for name, gather in sections.items():
            try:
                report = gather(report)
            except Exception as error:  # noqa: BLE001 - contained: the rest is worth it
                if not isinstance(error, MemoryError):
                    self._guard.failed(SITE, stays_on=True)
                report = report.without(name, disclosure.error(error)[:200])
        return report

    def wait_for_programs(self) -> None:
        """Have programs analysed that were just compiled; a section has failures."""
        with interrupts.expected(Exception):  # a section has it
            self.programs()

    def _devices(self, report: OomReport) -> OomReport:
        if not backends.initialised(self._context.jax):
            return report
        devices = [
            Device(str(device.id), device.device_kind).replace(
                **sizes(device.memory_stats() or {})
            )
            for device in self._context.jax.local_devices()
        ]
        return report.replace(devices=tuple(devices))

    def _live_arrays(self, report: OomReport) -> OomReport:
        if not backends.initialised(self._context.jax):
            return report
        arrays = self._context.jax.live_arrays()
        deadline, count = monotonic() + _ARRAYS_SECONDS, 0
        number, size, offloaded = Counter[str](), Counter[str](), 0
        groups = Counter[ArrayGroup]()
        for kind in group_arrays(arrays):
            groups[kind] += 1
            if monotonic() >= deadline:
                break
        counts = count_buffers(self._context.jax, self._guard, groups)
        for kind, device, buffers in counts:
            here = buffers if device == kind.devices[0] else 0
            count += here
            if kind.offloaded:
                offloaded += kind.shard_bytes * buffers
            else:
                name = str(kind.dtype)
                number[name] += here
                size[name] += kind.shard_bytes * buffers
        found = events.LiveArrays(
            arrays=count + len(arrays),
            added_up=count,
            bytes=sum(size.values()),
            offloaded_bytes=offloaded,
            by_dtype={
                name: Arrays(number[name], nbytes)
                for name, nbytes in size.most_common(_LINES)
            },
        )
        return report.replace(live_arrays=found)

    def _lines(self, report: OomReport) -> OomReport:
        # A snapshot takes time, and host memory.
        tight = report.host.is_tight or "host" in report.unavailable
        if self.lines.has_snapshot:
            most = 0 if tight else _MANY_ARRAYS
        else:
            most = _MANY_ARRAYS if tight else _MOST_ARRAYS
        arrays = report.live_arrays.arrays
        fresh = arrays is not None and arrays <= most
        return report.replace(lines=self.lines.lines(_LINES, fresh=fresh))

    def _programs(self, report: OomReport) -> OomReport:
        programs, name = self.programs(), report.failure.function
        largest = sorted(programs, key=lambda name: -_size(programs[name]))[:_PROGRAMS]
        if name not in programs:
            # A failed wait does not identify the program; the size of the request may.
            from jaxmon.agent.oom.text import requested_bytes  # noqa: PLC0415

            asked = requested_bytes(report.failure.text)
            name = next((n for n, of in programs.items() if _may_ask(of, asked)), "")
        return report.replace(
            asked={name: programs[name]} if name else {},
            programs={name: programs[name] for name in largest},
        )

    def _last(self, name: str, report: OomReport) -> OomReport:
        kind, most = _EVENTS[name]
        latest = [
            events.EventFact(
                time=event.time,
                function=event.function or "",
                message=event.message[:1000],
            )
            for event in self._context.events.since(kind=kind)[-most:]
        ]
        return report.replace(**{name: tuple(latest)})


def text_of(report: OomReport) -> str:
    """Return *report* as strict JSON of bounded size."""
    for name in ("", *_EXPENDABLE):
        if name:
            report = report.without(name, "omitted: the report is too large")
        data = encoded(report.filled())
        # The runtime's message may contain a table of buffers, which that would cut.
        data["failure"]["text"] = report.failure.text
        text = json.dumps(data, indent=1, allow_nan=False) + "\n"
        if len(text) <= directory.MAX_BYTES:
            break
    return text


def _size(program: Program) -> float:
    return program.peak_bytes or program.temporary_bytes or 0


def _may_ask(program: Program, asked: int | None) -> bool:
    needs = (program.temporary_bytes, program.output_bytes)
    return asked is not None and any(
        [need is not None and abs(need - asked) <= asked * _ABOUT for need in needs]
    )


PAUSE_SECONDS = 10.0
"""Minimum time between two reports; errors in between are only counted."""

_MAX_TEXT = 16 * 1024
# The failing thread waits at most this long for its report.
_WAIT_SECONDS = 2.0
# Freed when memory has run out, so that there is some for the report and for loading
# the modules it needs. What runs out is address space, or the kernel's commit limit.
# `bytes` reserves both by `calloc`; as nothing is written to it, none is resident.
_RESERVE_BYTES = 4 << 20


class OomReports(Part):
    """Writes out-of-memory reports, one at a time and rate-limited."""

    name = "oom"

    def __init__(self, context: Context, lines: MemoryLines, programs: _Read) -> None:
        self.facts = ReportBuilder(context, lines, programs)
        self._context = context
        self._guard = context.guard
        self._directory = directory.ReportDirectory(context.settings.report_dir)
        self._worker = Worker("oom", context.scheduler)
        self._written: deque[str] = deque(maxlen=directory.MAX_REPORTS)
        self._count = Tally()
        self._numbers = itertools.count(1)
        # Acquired without blocking: a thread that finds it held leaves the report to
        # the other.
        self._busy = Lock()
        self._due = 0.0
        self._skipped = Tally()
        self._reported = 0
        self._reserve: bytes | None = None
        self._stopped = False
        context.observers.error.append(self.on_error)

    @property
    def count(self) -> int:
        """Number of reports written."""
        return self._count.value

    def paths(self) -> list[str]:
        """Return the paths of this process's reports, oldest first."""
        return list(self._written)

    def start(self) -> None:
        """Prepare what may be impossible later: a thread, memory, contents of files."""
        self._reserve = bytes(_RESERVE_BYTES)
        self.facts.prepare()
        self._context.scheduler.prepare(self.name)

    def stop(self) -> None:
        """Let a report in progress finish, and write no more."""
        self._stopped = True
        self._worker.stop()
        self._reserve = None

    def on_error(self, seen: CountedError) -> None:
        """Write a report if an error is out of memory."""
        if seen.kind != "oom":
            return
        text = failures.message_of(seen.error, limit=_MAX_TEXT, lines=None)
        self.write(
            FailedAllocation(
                function=seen.function.name,
                kind=seen.kind,
                type=type(seen.error).__name__,
                message=seen.message,
                text=text if seen.quoted else "",
                stage=seen.stage,
                where=seen.where,
                time=wall_time(),
            )
        )

    def explain(self) -> Explanation:
        """Return the paths of this process's reports, oldest first."""
        return Explanation({"errors": lambda: events.Errors(tuple(self.paths()))})

    def collect(self) -> list[Family]:
        """Return the number of reports."""
        return [gauge(catalog.OOM_REPORTS, self.count)]

    def write(self, failure: FailedAllocation) -> None:
        """Report *failure* and wait for that: usually 10 to 100 ms, at most 2 s."""
        now = monotonic()
        if not self._stopped and now >= self._due:
            # Those just compiled are analysed, which this thread can wait for.
            self.facts.wait_for_programs()
        is_free = not self._stopped and self._busy.acquire(blocking=False)
        if not is_free or now < self._due:
            self._skipped.add()
            if is_free:
                self._busy.release()
            return
        self._due = now + PAUSE_SECONDS
        self._reserve = None
        done = Event()

        def job() -> None:
            try:
                self._report(failure)
            finally:
                self._busy.release()
                done.set()
                self._refill()

        if self._worker.submit(job, urgent=True):
            done.wait(_WAIT_SECONDS)
        else:
            self._busy.release()

    # --- on the worker's thread --------------------------------------------------

    def _report(self, failure: FailedAllocation) -> None:
        from jaxmon.agent.oom.text import render  # noqa: PLC0415

        skipped = self._skipped.value
        stem = directory.stem_of(failure.time, next(self._numbers))
        try:
            report = self.facts.build(failure, skipped=skipped - self._reported)
            path = self._directory.write(
                stem,
                {
                    ".json": disclosure.document(text_of(report)),
                    ".txt": disclosure.document(render(report)),
                },
            )
        except (directory.ReportDirError, OSError, MemoryError) as error:
            # The disk may be full too; the user should know what is missing.
            log.warning(
                "%s ran out of memory; jaxmon could not write its report: %s",
                failure.function,
                str(error) or type(error).__name__,
            )
            return
        self._reported = skipped
        self._count.add()
        self._written.append(str(path))
        readable = path.with_suffix(".txt")
        log.warning("%s ran out of memory; report: %s", failure.function, readable)
        self._context.events.add(
            "oom",
            failure.function,
            f"{failure.message}\nreport: {readable}",
            report=str(path),
            text=str(readable),
            advice=list(report.advice),
        )

    def _refill(self) -> None:
        try:
            self._reserve = bytes(_RESERVE_BYTES)
        except MemoryError:
            self._reserve = None
