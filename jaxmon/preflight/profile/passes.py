"""
Where compiles went: what `PassTraces` wrote, and XLA's passes in it.

XLA makes an event for each pass, on the thread that compiles the program, and one that
names the module around those of a pipeline. Only that thread counts, and of each event
what none within it has: threads that help to generate code run at the same time.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

from jaxmon.facts.contents import CompileLines
from jaxmon.facts.reader import from_json
from jaxmon.preflight.profile.lines import FOLDING, LOAD, REST, SlowLine, slow_lines
from jaxmon.preflight.profile.xspace import Plane, parse


AUTOTUNING, GENERATION, OTHER = "autotuning", "code generation", "other passes"
_GROUPS = {
    # Names of passes, and of functions around them, in openxla/xla: compilers of
    # xla/service, passes of xla/hlo/transforms, xla/service and its spmd and gpu. Only
    # those of CPUs have been seen in traces.
    AUTOTUNING: r"autotun|algorithm[-_]picker",
    FOLDING: r"constant[-_]folding",
    "partitioning": r"spmd|shard|sdy|partition",
    "layout": r"layout|transpose-folding",
    "copy insertion": r"copy[-_]insertion|copy-elision",
    GENERATION: r"^(Cpu|Jit|Gpu|Llvm)Compiler::|^ThunkEmitter::|^Codegen|^SplitModule"
    r"|^Compile(To|And|Single|Module)|^Xla(Compile|Emit|Optimize)|llvm|LLVM"
    r"|^CreateGpuExecutable|^LoadExecutable|cudnn-fusion-compiler",
    "fusion": r"fusion",
    "scheduling": r"schedul|rematerial|latency-hiding|memory-space|buffer",
    "simplification": r"algsimp|simplif|^[dc]se$|dce|canonicali|eliminat|inlin|expander"
    r"|decompos|rewriter|converter|normaliz|legaliz|upcaster|mover|hoist",
}
# What the runtime calls XLA in; up to JAX 0.6, pipelines do not name the module.
_CALL = "Client::Compile"
_PIPELINE = r" \(([\w.\-]+)\)$"
# Of XLA's clock and ours, in picoseconds.
_SLACK = 1_000_000_000


@dataclass
class TracedCompile:
    """
    A program.

    Attributes:
        internal: whether *function* is JAX's own.
        untraced: why what XLA did is not known, if so.
        seconds: until it could be called, without those of others in between.
        xla: of these, in JAX's call of XLA, or of the persistent cache.
        parts: these seconds, by what they went into; in XLA by group of passes.
        passes: those in XLA, by pass.
        equations: of what JAX traced, and *lines* that much of it goes into, the most
            first; only known if it took long.
    """

    function: str
    internal: bool
    untraced: str
    seconds: float = 0.0
    xla: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    passes: dict[str, float] = field(default_factory=partial(defaultdict, float))
    equations: int | None = None
    lines: list[SlowLine] = field(default_factory=list)

    def complete(self, groups: Mapping[str, float], rest: str | None) -> None:
        """Add the seconds of *groups*, and the *rest* of XLA's and of all."""
        if not (groups.keys() - {GENERATION} or rest or self.untraced):
            self.untraced = "XLA reported no passes, as before JAX 0.5"
        self.parts |= groups
        what = rest or ("not recorded" if self.untraced else "in no pass")
        self.parts[what] = max(self.xla - sum(groups.values()), 0.0)
        self.parts[REST] = max(self.seconds - sum(self.parts.values()), 0.0)


class CompileTimes(NamedTuple):
    """Programs, and functions of unfinished compiles."""

    programs: list[TracedCompile]
    unfinished: list[str]


def read(directory: Path) -> CompileTimes:
    """Return what agents wrote to *directory*. Raises `WireError`, `ValueError`."""
    found = CompileTimes([], [])
    for path in sorted(directory.glob("*.jsonl")):
        begun: dict[str, TracedCompile] = {}
        loaded: dict[str, bool] = {}
        costs: dict[str, CompileLines] = {}
        for line in map(json.loads, path.read_text().splitlines()):
            marker = line.pop("marker")
            if "function" in line:
                begun[marker] = TracedCompile(**line)
            elif "lines" in line:
                costs[marker] = from_json(CompileLines, line["lines"])
            else:
                program = begun[marker]
                program.untraced = program.untraced or line["cut"] or ""
                program.seconds, program.xla = line["seconds"], line["xla"]
                program.parts |= line["phases"]
                loaded[marker] = line["loaded"]
        finished = {marker: begun.pop(marker) for marker in loaded}
        found.programs.extend(finished.values())
        found.unfinished.extend(program.function for program in begun.values())
        trace = path.with_suffix(".xplane.pb")
        space = parse(trace.read_bytes() if trace.exists() else b"")
        times: dict[str, list[OwnTime]] = defaultdict(list)
        for plane in space.planes:  # each of one session
            times.update(_own_times(plane, finished))
        for marker, program in finished.items():
            groups: dict[str, float] = defaultdict(float)
            for name, group, seconds in times[marker]:
                if group:
                    groups[group] += seconds
                    program.passes[name] += seconds
            program.complete(groups, LOAD if loaded[marker] else None)
            if marker in costs:
                program.equations = costs[marker].equations
                of_all = program.parts, program.seconds
                program.lines = slow_lines(costs[marker], *of_all)
    return found


OwnTime: TypeAlias = tuple[str, str, float]
"""Name, group and seconds of an event without those in it; no group: it is no pass."""


class TimedEvent(NamedTuple):
    """An event of a trace, in picoseconds."""

    name: str
    start: int
    end: int

    def holds(self, event: TimedEvent) -> bool:
        """Return whether *event* is within this one, or almost."""
        return self.start <= event.start and event.end <= self.end + _SLACK


def _own_times(
    plane: Plane, compiles: Mapping[str, TracedCompile]
) -> Iterator[tuple[str, list[OwnTime]]]:
    """Yield the marker of each compile in *plane*, and the times of its thread."""
    lines, spans = [], []
    ends = {name: int(program.xla * 1e12) for name, program in compiles.items()}
    for line in plane.lines:
        zero = line.timestamp * 1000
        events = [
            TimedEvent(of.name, zero + of.start, zero + of.start + of.duration)
            for of in line.events
        ]
        lines.append(events)
        # Compiles that this thread waits for, or does itself.
        compiling = (of for of in events if of.name in ends)
        spans.append([of._replace(end=of.end + ends[of.name]) for of in compiling])
    found: dict[str, list[list[OwnTime]]] = defaultdict(list)
    for events, within in zip(lines, spans, strict=True):
        threads: dict[str, list[OwnTime]] = defaultdict(list)
        for tree in _trees(events, within):
            modules = {_module(event.name) for event in tree} - {None}
            around = [of for of in chain(*spans) if of.holds(tree[0])]
            if around and (modules or any(_CALL in event.name for event in tree)):
                # That of its module, or else the latest.
                of_module = [
                    of for of in around if _bare(compiles[of.name].function) in modules
                ]
                span = max(of_module or around, key=attrgetter("start"))
                threads[span.name] += own_times(tree)
        for marker, times in threads.items():
            found[marker].append(times)
    for marker, several in found.items():
        yield marker, max(several, key=lambda times: sum(of[2] for of in times))


@cache
def _module(event: str) -> str | None:
    """Return the module of a pipeline's *event*, as `_bare` does."""
    found = re.search(_PIPELINE, event)
    return found and _bare(found[1])


def _bare(name: str) -> str:
    """Return what the *name* of a function and that of its module have in common."""
    name = name.rpartition(".")[2].removeprefix("jit_")
    return re.sub(r"\W", "_", name).strip("_")


def _trees(
    events: Sequence[TimedEvent], within: Sequence[TimedEvent]
) -> Iterator[list[TimedEvent]]:
    """Yield outermost events, each with those in it; *within* these, if any are."""
    tree: list[TimedEvent] = []
    for event in events:
        if not within or any(span.holds(event) for span in within):
            if tree and event.start >= tree[0].end:
                yield tree
                tree = []
            tree.append(event)
    if tree:
        yield tree


def own_times(events: Iterable[TimedEvent]) -> Iterator[OwnTime]:
    """Yield the own times of *events* of a thread, in order of their starts."""
    # Events that are open, their groups, and the time that is in them.
    stack: list[tuple[TimedEvent, str, list[int]]] = []
    for event in (*events, TimedEvent("", 1 << 63, 1 << 63)):
        while stack and stack[-1][0].end <= event.start:
            closed, group, inner = stack.pop()
            spent = max(closed.end - closed.start - sum(inner), 0)
            yield closed.name, group, spent / 1e12
        if stack:
            stack[-1][2].append(event.end - event.start)
        around = stack[-1][1] if stack else ""
        group = group_of(event.name, around, outermost=not stack)
        stack.append((event, group, []))


@cache
def group_of(name: str, around: str = "", *, outermost: bool = False) -> str:
    """Return the group of the event *name*, in one of *around*; empty if no pass."""
    if around == AUTOTUNING:  # which compiles candidates
        return around
    if _module(name) is None:
        for group, pattern in _GROUPS.items():
            if re.search(pattern, name):
                return group
        if around != GENERATION and not (outermost or "::" in name):
            return OTHER
    return around if around == GENERATION else ""
