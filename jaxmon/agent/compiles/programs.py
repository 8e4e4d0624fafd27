"""
Program statistics from XLA executables.

The compiling thread only queues the executable (microseconds). Half a second later, or
when asked, a thread of ours counts the FLOPs of the user's programs with others, and
releases them. What XLA says of a program, and its HLO, is read there too as long as the
`WorkBudget` covers it: many small programs would take a percent of the process. The
rest, and JAX's own programs, are read later, or when someone asks, if still loaded.

XLA's own fingerprint of an executable covers source lines, and differs between an
executable that was compiled and the same one loaded from the persistent cache. Hosts
running the same program would look different. So a program is identified by a digest of
its optimised HLO, without the metadata that only names source lines.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from jaxmon import catalog
from jaxmon.agent.compiles.hlo import Hlo, read_hlo
from jaxmon.agent.context import Context
from jaxmon.agent.flops.part import Lowered, UtilizationPart
from jaxmon.agent.functions import CompilePhases, Function
from jaxmon.agent.jaxlink import executables
from jaxmon.agent.jaxlink.backends import local_devices
from jaxmon.agent.jaxlink.contents import captured, folded, selected, whole
from jaxmon.agent.jaxlink.inefficiencies import inefficient
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder, set_at
from jaxmon.agent.jaxlink.transforms import redrawn
from jaxmon.agent.jaxlink.updates import unused, zeroed
from jaxmon.agent.loaded_programs import (
    LoadedPages,
    LoadedProgram,
    LoadedPrograms,
    SeenCompile,
)
from jaxmon.agent.memory.copies import ArgumentCopies
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import thread_time, wall_time
from jaxmon.exposition.families import Family, Sample, Tally, labels_text, series
from jaxmon.facts import functions as facts
from jaxmon.facts.contents import Unrolled
from jaxmon.host.http.server import Handler


# Executables queued for analysis, which keeps them alive. Analysis is faster than
# compiling, so only loading a great many from the persistent cache fills the queue.
_WAITING = 64
# Small programs follow each other: reading them together takes less.
_GATHER_SECONDS = 0.5
# A scrape waits so long for programs that wait for others.
_SCRAPE_SECONDS = 0.05

# For what the budget did not cover at once.
_INTERVAL_SECONDS = 2.0
# A request waits so long for all of it.
_ASKED_SECONDS = 0.5
_MOST_UNREAD = 4096

# Equations of programs that may contain an unrolled loop.
_LARGE = 300
# Facts that a new program replaces.
_OF_THE_LATEST = (
    *("selected", "inefficient", "whole", "resharded", "duplicated", "zeroed"),
    "unreduced",
)
# Distinct programs remembered per function; later ones count as new.
_REMEMBERED = 10_000

_METRICS = {
    "flops": catalog.PROGRAM_FLOPS,
    "accessed_bytes": catalog.PROGRAM_ACCESSED_BYTES,
    "argument_bytes": catalog.PROGRAM_ARGUMENT_BYTES,
    "output_bytes": catalog.PROGRAM_OUTPUT_BYTES,
    "temporary_bytes": catalog.PROGRAM_TEMPORARY_BYTES,
    "peak_bytes": catalog.PROGRAM_PEAK_BYTES,
    "code_bytes": catalog.PROGRAM_CODE_BYTES,
    "fusions": catalog.PROGRAM_FUSIONS,
    "instructions": catalog.PROGRAM_INSTRUCTIONS,
    "devices": catalog.PROGRAM_DEVICES,
}
_MATRIX = {f"{work}_flops": work for work in catalog.FLOPS_WORK}


def _unrolled(jaxpr: Any, place: str, lines: SourceLineFinder) -> Unrolled | None:
    if executables.size_of(jaxpr) < _LARGE:
        return None
    from jaxmon.agent.jaxlink.equations import unrolled  # noqa: PLC0415 - most are small

    return unrolled(jaxpr, place, lines)


_OF_COMPILES: dict[str, tuple[Callable[..., Any], Callable[..., float]]] = {
    "folded": (lambda jaxpr, _, lines: folded(jaxpr, lines), lambda of: of.steps),
    "captured": (lambda jaxpr, _, lines: captured(jaxpr, lines), lambda of: of.bytes),
    "unrolled": (_unrolled, lambda found: found.operations),
}


class _Record:
    """The programs of one function."""

    def __init__(self) -> None:
        self.programs = self.read = 0
        self.double = self.promotes = False
        self.seen: set[str] = set()
        # What is in its programs, by the name of the fact.
        self.contents: dict[str, Any] = {}
        self.is_read = False
        self.finished = 0.0
        self.begin(0.0)
        # What is exported of it, by metric; empty until that is asked for. Replaced
        # after each change: a scrape meanwhile fills one that is no longer used.
        self.samples: dict[str, Sample] = {}

    def begin(self, finished: float) -> None:
        """Forget the latest program: another one has *finished*."""
        self.finished = max(finished, self.finished)
        self.fingerprint: str | None = None
        # Of what a device has of arguments and results, and what it gets of others.
        self.shapes: tuple[Any, ...] = ()
        self.exchanges: tuple[executables.Exchange, ...] = ()
        for name in _OF_THE_LATEST:
            self.contents.pop(name, None)
        self.figures: dict[str, float] = {}
        self.samples = {}

    def add(self, fingerprint: str | None) -> None:
        """Count a program unless it is already known."""
        self.is_read, self.samples = True, {}
        self.read += fingerprint is not None
        if fingerprint is not None and fingerprint not in self.seen:
            self.programs += 1
            if len(self.seen) < _REMEMBERED:
                self.seen.add(fingerprint)

    def samples_of(self, name: str) -> dict[str, Sample]:
        """Return what is exported of it, by metric, for the function *name*."""
        found = self.samples
        if found:
            return found
        if self.is_read:
            programs = catalog.PROGRAMS
            found[programs.name] = (series(programs, name), self.programs)
        if self.fingerprint is not None:
            info = catalog.PROGRAM_INFO
            found[info.name] = (series(info, name, self.fingerprint), 1)
        # All have the same label; for each compile, escaping it ten times would count.
        labels = labels_text(("function",), (name,))
        for figure, metric in _METRICS.items():
            if (value := self.figures.get(figure)) is not None:
                found[metric.name] = (f"{metric.name}{{{labels}}}", value)
        return found


class Programs(Part):
    """
    Analyses executables off the compiling thread.

    For JAX's own functions only the number of programs is kept.
    """

    name = "programs"

    def __init__(
        self, context: Context, loaded: LoadedPrograms, utilization: UtilizationPart
    ) -> None:
        self._jax = context.jax
        self.loaded = loaded
        self._utilization = utilization
        self._budget = context.scheduler.budget
        # By identity: programs not read yet.
        self._unread: dict[int, SeenCompile] = {}
        self._queued, self._read = Tally(), Tally()
        self._worker = Worker(
            "programs",
            context.scheduler,
            every=_INTERVAL_SECONDS,
            routine=self._read_affordable,
            limit=_WAITING,
            gather=_GATHER_SECONDS,
        )
        self._pages = LoadedPages(
            context.jax, context.guard, self._worker, loaded, self._read_all
        )
        self._records: dict[Function, _Record] = {}
        self._promotion = context.observers.promotion
        self._copies = ArgumentCopies(context)
        context.observers.executable.append(self.take)

    def pages(self) -> dict[str, Handler]:
        """Return the endpoints that show programs."""
        hlo, jaxpr, programs = self._pages.hlo, self._pages.jaxpr, self._pages.programs
        return {"/debug/hlo": hlo, "/debug/jaxpr": jaxpr, "/debug/programs": programs}

    def dropped(self) -> dict[str, int]:
        """Return the number of executables not analysed because the queue was full."""
        return {"program": self._worker.refused.value}

    def take(self, function: Function, executable: Any, phases: CompilePhases) -> None:
        """Queue an *executable* on the compiling thread; kept for half a second."""
        lowered = self._utilization.lowered(function)
        now, identity = wall_time(), id(executable)
        # What was known of another that had this identity.
        self.loaded.records.pop(identity, None)
        self._unread.pop(identity, None)
        # JAX keeps what it has traced for as long as it may compile it again.
        jaxpr = type(None) if lowered.jaxpr is None else weakref.ref(lowered.jaxpr)
        program = SeenCompile(function, now, phases, jaxpr)
        if not function.is_users:
            self._leave(identity, program)
            return
        job = functools.partial(self._analyse, program, executable, lowered)
        if self._worker.submit(job):
            self._queued.add()
        else:
            self._utilization.dropped_program(function)

    def start(self) -> None:
        """Begin to read what is left later."""
        self._worker.start()

    def refresh(self, *, asked: bool) -> None:
        """Read all programs now: a report of a short run has them, too."""
        del asked
        self.finish(_ASKED_SECONDS)

    def finish(self, timeout: float) -> None:
        """Have all programs read, and wait for that at most *timeout* seconds."""
        if self._unread:
            self._worker.submit(self._read_all)
        self._worker.drain(timeout)

    def stop(self) -> None:
        """Drop the queue."""
        self._worker.stop()
        self._unread.clear()

    def explain(self) -> Explanation:
        """Return the statistics of each function's latest program."""
        return Explanation(functions={"program": self._explained})

    def _explained(self) -> dict[str, facts.Program]:
        self.finish(_ASKED_SECONDS)
        return self.snapshot()

    def snapshot(self) -> dict[str, facts.Program]:
        """Return the latest program of each function, analysed now if it is new."""
        found = {}
        for function, record in self._latest().items():
            if not function.internal:
                given: dict[str, Any] = {
                    "programs": record.programs,
                    "read": record.read,
                    "fingerprint": record.fingerprint,
                    "finished": record.finished,
                    **self._copies.of(function),
                    **record.figures,
                }
                if record.double:
                    given |= self._enabled
                given |= record.contents.copy()
                found[function.name] = facts.Program(**given)
        return found

    def spanning(self) -> list[Function]:
        """Return the functions that also run on devices of other processes, in µs."""
        local = local_devices(self._jax)
        return [
            function
            for function, record in self._records.copy().items()
            if local and record.figures.get("devices", 0) > local
        ]

    def collect(self) -> list[Family]:
        """Return the number of programs and the latest's statistics, analysed now."""
        records = self._latest()
        found = [
            record.samples_of(function.name) for function, record in records.items()
        ]
        metric = catalog.PROGRAM_MATRIX_FLOPS
        matrix = [
            (series(metric, function.name, work), record.figures[name])
            for function, record in records.items()
            for name, work in _MATRIX.items()
            if name in record.figures
        ]
        return [
            Family(metric, [s[metric.name] for s in found if metric.name in s])
            for metric in (catalog.PROGRAMS, catalog.PROGRAM_INFO, *_METRICS.values())
        ] + [Family(metric, matrix)]

    def _latest(self) -> dict[Function, _Record]:
        """Return all records; waits a moment for programs that were just compiled."""
        if self._queued.value != self._read.value:
            self._worker.drain(_SCRAPE_SECONDS)
        return self._records.copy()

    def _contents(self, function: Function, jaxpr: Any) -> Iterator[tuple[str, Any]]:
        """Yield what the latest program contains, by name of the fact."""
        record, traced = self._records[function], function.whole()
        yield "selected", selected(jaxpr, self._lines)
        yield "inefficient", inefficient(jaxpr, self._lines)
        yield "zeroed", zeroed(jaxpr, self._lines)
        if traced is not None:
            yield "unused", unused(traced, self._lines)
        yield "redrawn_at", redrawn(jaxpr, self._lines)
        if record.promotes:
            yield "promoted_at", executables.promoted_at(jaxpr, self._lines)
        if record.double:
            yield "widened_at", executables.widened_at(jaxpr, self._lines)
        if record.shapes:
            yield "whole", whole(jaxpr, record.shapes, self._lines)
            from jaxmon.agent.jaxlink.exchanges import resharded  # noqa: PLC0415 - on one device, nothing is
            from jaxmon.agent.jaxlink.replicas import unreduced  # noqa: PLC0415 - likewise

            yield "unreduced", unreduced(jaxpr, self._lines)
            devices = int(record.figures.get("devices", 0))
            given = record.shapes, record.exchanges, devices, self._lines
            yield "resharded", resharded(jaxpr, *given)

    def _note_compiled(self, function: Function, jaxpr: Any) -> None:
        """Note why one more program takes long to compile, if its *jaxpr* is known."""
        if jaxpr is None:
            return
        record, began = self._records[function], thread_time()
        for name, (read, size) in _OF_COMPILES.items():
            found = read(jaxpr, function.place, self._lines)
            before = record.contents.get(name)
            if found is not None:
                most = max(found, before or found, key=size)
                programs = (before.programs if before else 0) + 1
                record.contents[name] = most.replace(programs=programs)
        self._budget.spend(began)

    @functools.cached_property
    def _enabled(self) -> dict[str, Any]:
        where = set_at("jax_enable_x64", self._lines)
        return {"double": True, **({"double_at": where} if where else {})}

    @functools.cached_property
    def _lines(self) -> SourceLineFinder:
        return SourceLineFinder(self._jax)

    @functools.cached_property
    def _printing(self) -> Any:
        return executables.printing(self._jax)

    def _leave(self, identity: int, program: SeenCompile) -> None:
        """Leave a *program* to be read later."""
        if len(self._unread) >= _MOST_UNREAD:
            self._unread.pop(next(iter(self._unread)), None)
        self._unread[identity] = program

    def _analyse(self, program: SeenCompile, executable: Any, lowered: Lowered) -> None:
        self._records.setdefault(program.function, _Record()).begin(program.finished)
        try:
            self._take_in(program, executable, lowered)
        finally:
            self._read.add()

    def _take_in(self, program: SeenCompile, executable: Any, lowered: Lowered) -> None:
        function, facts = program.function, dict[str, float]()
        # How many devices it runs on is in its text, or clear.
        is_read = self._budget.covers() or self._jax.process_count() > 1
        # That takes less than its FLOPs, and later not every program is read.
        self._note_compiled(function, lowered.jaxpr)
        if is_read:
            facts = self._described(program, executable)
            self._note_jaxpr(function, lowered.jaxpr)
        counted = self._utilization.count(function, lowered, executable, facts)
        record = self._records[function]
        record.figures = {**record.figures, **counted}
        record.samples = {}
        if is_read:
            self._utilization.place(function, executable, facts)
        else:
            self._leave(id(executable), program)

    def _note_jaxpr(self, function: Function, jaxpr: Any) -> None:
        """Note what is in the *jaxpr* of the latest program of *function*."""
        self._copies.note_jaxpr(function, jaxpr)
        if jaxpr is not None:
            record = self._records[function]
            began = thread_time()
            if function.is_users:
                contents = self._contents(function, jaxpr)
                record.contents.update((k, v) for k, v in contents if v is not None)
            self._budget.spend(began)

    def _described(self, program: SeenCompile, executable: Any) -> dict[str, float]:
        """
        Read a *program*; return its figures, also of the function if it is latest.
        """
        began = thread_time()
        function, finished = program.function, program.finished
        try:
            options = self._printing
            texts = executables.texts(executable, options)
            text = read_hlo(texts, comparable=options is not None)
        except RuntimeError:  # deleted since, or its backend shows no HLO
            text = Hlo(None, 0, 0)
        record = self._records.setdefault(function, _Record())
        record.add(text.fingerprint)
        figures: dict[str, float] = {}
        if function.is_users:
            is_latest = record.finished == finished
            if is_latest:
                figures = executables.facts(executable)
            if text.text:
                names = ("instructions", "fusions", "devices")
                figures |= {name: getattr(text, name) for name in names}
            for see in self._promotion if text.promotes else ():
                see(function)
            if is_latest:
                record.fingerprint, record.shapes = text.fingerprint, text.shapes
                record.exchanges = text.exchanges
                if text.alike and executables.takes_whole(executable):
                    record.contents["duplicated"] = True
                record.double |= text.double
                record.promotes |= text.promotes
                accessed = figures.get("accessed_bytes")
                self._copies.note(function, text.copies, executable, accessed)
                record.figures = {**record.figures, **figures}
        if text.text:
            found = LoadedProgram(program, text.text, text.copy, figures)
            self.loaded.note(executable, found)
        self._budget.spend(began)
        return figures

    def _read_all(self) -> None:
        """Read what is left, and still loaded."""
        self._read_rest(object)

    def _read_affordable(self) -> None:
        if self._unread and self._budget.covers():
            self._read_rest(self._budget.covers)

    def _read_rest(self, goes_on: Callable[[], object]) -> None:
        # Those of the user first: the others only have a number.
        left = [
            (executable, found)
            for executable, _ in self.loaded.now()
            if (found := self._unread.get(id(executable))) is not None
        ]
        left.sort(key=lambda item: (item[1].function.internal, -item[1].finished))
        for executable, program in left:
            if not goes_on():
                return
            if self._unread.pop(id(executable), None) is None:
                continue
            function = program.function
            facts = self._described(program, executable)
            if self._records[function].finished == program.finished:
                self._note_jaxpr(function, program.jaxpr())
                self._utilization.place(function, executable, facts)
