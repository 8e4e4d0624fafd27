"""
Program statistics from XLA executables.

The compiling thread only queues the executable (microseconds); a background thread
analyses it with others half a second later, or when asked, at a fraction of the compile
time, and releases it.

XLA's own fingerprint of an executable covers source lines, and differs between an
executable that was compiled and the same one loaded from the persistent cache. Hosts
running the same program would look different. So a program is identified by a digest of
its optimised HLO, without the metadata that only names source lines.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from jaxmon import catalog
from jaxmon.agent.compiles.hlo_page import HloPage
from jaxmon.agent.context import Context
from jaxmon.agent.counters import Tally
from jaxmon.agent.flops.part import Lowered, UtilizationPart
from jaxmon.agent.functions import OTHER, UNKNOWN, Function
from jaxmon.agent.jaxlink import executables
from jaxmon.agent.jaxlink.backends import local_devices
from jaxmon.agent.loaded_programs import LoadedProgram, LoadedPrograms, copy_bytes
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic, thread_time, wall_time
from jaxmon.exposition.families import Family, Sample, labels_text, series
from jaxmon.facts import functions as facts
from jaxmon.host.http.server import Handler


# Hex digits of a fingerprint: 64 bits distinguish the programs of a fleet.
_DIGITS = 16

# In the first line of a module; omitted if they are 1.
_PARTITIONS = r", num_partitions=(\d+)"
_REPLICAS = r", replica_count=(\d+)"
# Backends call libraries for products of matrices.
_LIBRARY = r'custom-call\([^\n]*custom_call_target="[^"]*(?:gemm|matmul|dot|conv)'
_DOUBLE = rf"= \(?f64\[\d[^=\n]* (?:dot\(|convolution\(|{_LIBRARY})"


# Executables queued for analysis, which keeps them alive. Analysis is faster than
# compiling, so only loading a great many from the persistent cache fills the queue.
_WAITING = 64
# Small programs follow each other: reading them together takes less.
_GATHER_SECONDS = 0.5
# A scrape waits so long for programs that wait for others.
_SCRAPE_SECONDS = 0.05

# What XLA says of a large program may take a twentieth of the time that compiling it
# took. It is asked at once, unless that takes more than so much of the time; then, of
# the programs of a function, for the latest at intervals.
_SHARE, _LITTLE_SECONDS = 0.0025, 0.002
_INTERVAL_SECONDS = 2.0

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

# Several functions share these labels, so there is no latest program.
_SHARED = (OTHER, UNKNOWN)


class Hlo(NamedTuple):
    """
    Information from a program's HLO text.

    Attributes:
        fingerprint: hex digits; equal for equal programs, whichever host compiled them.
            Ignores large constants, which HLO text omits. `None` if this JAX cannot
            print HLO without source lines.
        instructions: their number in all computations, including fused ones.
        fusions: how many of these are fusions.
        devices: number of devices it runs on, including those of other processes.
        promotes: whether it computes in float64 although no argument is float64.
        double: whether it multiplies matrices of float64, or convolves with them.
        text: length of the text.
        copy: bytes that a copy of the program takes in memory while it is made.
    """

    fingerprint: str | None
    instructions: int
    fusions: int
    devices: int = 1
    promotes: bool = False
    double: bool = False
    text: int = 0
    copy: int = 0


def read_hlo(texts: Iterable[str], *, comparable: bool) -> Hlo:
    """
    Read the modules of an executable, usually one.

    Holds the GIL for about 1 ms per 100 kB of text.

    Args:
        texts: HLO text of each module.
        comparable: whether everything that differs between hosts is omitted.
    """
    digest = sha256()
    instructions = fusions = 0
    devices, promotes, double = 1, False, False
    length = copy = 0
    for text in texts:
        length += len(text)
        copy += copy_bytes([text])
        digest.update(text.encode())
        # Each instruction is on its own line, and nothing else is indented.
        instructions += text.count("\n  ")
        fusions += text.count(" fusion(")
        head = text.partition("\n")[0]
        devices = max(devices, _number(_PARTITIONS, head) * _number(_REPLICAS, head))
        # Few programs compute in float64, and the search takes milliseconds.
        if "f64[" in text:
            promotes = promotes or _promotes(head)
            double = double or re.search(_DOUBLE, text) is not None
    fingerprint = digest.hexdigest()[:_DIGITS] if comparable else None
    return Hlo(
        fingerprint, instructions, fusions, devices, promotes, double, length, copy
    )


def _number(pattern: str, head: str) -> int:
    found = re.search(pattern, head)
    return int(found[1]) if found else 1


def _promotes(head: str) -> bool:
    # Argument and result types are before and after "->".
    arguments = head.partition("entry_computation_layout=")[2]
    return "f64[" not in arguments.partition("->")[0]


class _Record:
    """The programs of one function."""

    __slots__ = (
        "double",
        "figures",
        "fingerprint",
        "finished",
        "programs",
        "samples",
        "seen",
    )

    def __init__(self) -> None:
        self.programs = 0
        self.seen: set[str] = set()
        self.fingerprint: str | None = None
        self.finished = 0.0
        self.double = False
        self.figures: dict[str, float] = {}
        # What is exported of it, by metric; empty until that is asked for. Replaced
        # after each change: a scrape meanwhile fills one that is no longer used.
        self.samples: dict[str, Sample] = {}

    def add(self, fingerprint: str | None) -> None:
        """Count a program unless it is already known."""
        if fingerprint is None:
            return
        if fingerprint not in self.seen:
            self.programs += 1
            if len(self.seen) < _REMEMBERED:
                self.seen.add(fingerprint)

    def samples_of(self, name: str) -> dict[str, Sample]:
        """Return what is exported of it, by metric, for the function *name*."""
        found = self.samples
        if not found:
            found.update(_samples(name, self))
        return found


class Programs(Part):
    """
    Analyses executables off the compiling thread.

    For JAX's own functions only the number of programs is kept.

    Args:
        context: shared state of the agent.
        loaded: learns about each program.
        utilization: counts the FLOPs of each.
    """

    name = "programs"

    def __init__(
        self, context: Context, loaded: LoadedPrograms, utilization: UtilizationPart
    ) -> None:
        self._jax = context.jax
        self.loaded = loaded
        self._utilization = utilization
        # Identity of the latest program of each function, until XLA says what it takes.
        self._unweighed: dict[Function, int] = {}
        self._due = 0.0
        self._queued, self._read = Tally(), Tally()
        self._worker = Worker(
            "programs",
            context.scheduler,
            every=_INTERVAL_SECONDS,
            routine=self._weigh_late,
            limit=_WAITING,
            gather=_GATHER_SECONDS,
        )
        self._hlo = HloPage(context.jax, context.guard, self._worker, loaded)
        self._records: dict[Function, _Record] = {}
        self._promotion = context.observers.promotion
        context.observers.executable.append(self.take)

    def pages(self) -> dict[str, Handler]:
        """Return the endpoint that prints programs."""
        return {"/debug/hlo": self._hlo.respond}

    def dropped(self) -> dict[str, int]:
        """Return the number of executables not analysed because the queue was full."""
        return {"program": self._worker.refused.value}

    def take(self, function: Function, executable: Any) -> None:
        """
        Queue an executable just compiled or loaded; called on the compiling thread.

        Args:
            function: the function compiled.
            executable: XLA's loaded executable; kept until analysed, half a second.
        """
        self.loaded.forget(executable)
        lowered = self._utilization.lowered(function)
        now = wall_time()
        job = functools.partial(self._analyse, function, executable, now, lowered)
        if self._worker.submit(job):
            self._queued.add()
        else:
            self._utilization.dropped_program(function)

    def start(self) -> None:
        """Begin to weigh what is left later."""
        self._worker.start()

    def refresh(self, *, asked: bool) -> None:
        """Analyse what waits for others now: a report of a short run has it, too."""
        del asked
        self._worker.drain(_GATHER_SECONDS)

    def finish(self, timeout: float) -> None:
        """
        Wait until queued executables have been analysed, at most *timeout* seconds.
        """
        self._worker.submit(self._weigh_rest)
        self._worker.drain(timeout)

    def stop(self) -> None:
        """Drop the queue."""
        self._worker.stop()
        self._unweighed.clear()

    def explain(self) -> Explanation:
        """Return the statistics of each function's latest program."""
        return Explanation(functions={"program": self.snapshot})

    def snapshot(self) -> dict[str, facts.Program]:
        """
        Return the latest program of each function by label; as in `collect`, those just
        compiled are analysed for it.
        """
        return {
            function.name: facts.Program(
                programs=record.programs,
                fingerprint=record.fingerprint,
                finished=record.finished,
            ).replace(**({"double": True} if record.double else {}), **record.figures)
            for function, record in self._latest().items()
            if not function.internal
        }

    def spanning(self) -> list[Function]:
        """
        Return the functions whose latest program also runs on devices of other
        processes. Takes microseconds.
        """
        own = local_devices(self._jax)
        return [
            function
            for function, record in self._records.copy().items()
            if own and record.figures.get("devices", 0) > own
        ]

    def collect(self) -> list[Family]:
        """
        Return the number of programs, and the statistics of the latest; those just
        compiled are analysed for it.
        """
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

    @functools.cached_property
    def _printing(self) -> Any:
        return executables.printing(self._jax)

    def _analyse(
        self, function: Function, executable: Any, finished: float, lowered: Lowered
    ) -> None:
        try:
            self._take_in(function, executable, finished, lowered)
        finally:
            self._read.add()

    def _take_in(
        self, function: Function, executable: Any, finished: float, lowered: Lowered
    ) -> None:
        try:
            options = self._printing
            texts = executables.texts(executable, options)
            text = read_hlo(texts, comparable=options is not None)
        except RuntimeError:  # deleted since, or its backend shows no HLO
            text = None
        if text is not None:
            known = LoadedProgram(function, finished, text.text, text.copy)
            self.loaded.note(executable, known)
        own = not function.internal and function.name not in _SHARED
        figures: dict[str, float] = {}
        if own and text is not None:
            figures["instructions"] = text.instructions
            figures["fusions"] = text.fusions
            figures["devices"] = text.devices
            if text.promotes:
                for see in self._promotion:
                    see(function)
        if own:
            figures |= self._utilization.count(function, lowered, executable, figures)
        fingerprint = None if text is None else text.fingerprint
        record = self._records.setdefault(function, _Record())
        record.add(fingerprint)
        if own:
            record.finished = finished
            record.fingerprint, record.figures = fingerprint, figures
            record.double = text is not None and text.double
            if text is None or monotonic() >= self._due:
                self._unweighed.pop(function, None)
                self._weigh([(function, executable)])
            else:
                self._unweighed[function] = id(executable)
        record.samples = {}

    def _weigh_late(self) -> None:
        if self._unweighed and monotonic() >= self._due:
            self._weigh_rest()

    def _weigh_rest(self) -> None:
        """Weigh what is left of the latest programs, and still loaded."""
        wanted, self._unweighed = self._unweighed, {}
        self._weigh(
            (known.function, one)
            for one, known in self.loaded.now()
            if known is not None
            and known.function is not None
            and wanted.get(known.function) == id(one)
        )

    def _weigh(self, programs: Iterable[tuple[Function, Any]]) -> None:
        """Add XLA's statistics of *programs*."""
        began = thread_time()
        for function, executable in programs:
            facts = executables.facts(executable)
            record = self._records[function]
            record.figures = {**facts, **record.figures}
            record.samples = {}
            self._utilization.place(function, executable, facts)
        spent = thread_time() - began
        self._due = monotonic() + spent / _SHARE if spent > _LITTLE_SECONDS else 0.0


def _samples(name: str, record: _Record) -> dict[str, Sample]:
    found: dict[str, Sample] = {
        catalog.PROGRAMS.name: (series(catalog.PROGRAMS, name), record.programs)
    }
    if record.fingerprint is not None:
        info = catalog.PROGRAM_INFO
        found[info.name] = (series(info, name, record.fingerprint), 1)
    # All have the same label; for each compile, escaping it ten times would count.
    labels = labels_text(("function",), (name,))
    for figure, metric in _METRICS.items():
        if (value := record.figures.get(figure)) is not None:
            found[metric.name] = (f"{metric.name}{{{labels}}}", value)
    return found
