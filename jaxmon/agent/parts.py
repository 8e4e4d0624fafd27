"""
The parts of an agent; `docs/contributors/jax-internals.md` has what they hook into JAX.

They attach and start in the order of `ROWS`, and stop in reverse. What settings disable
is not imported, and what is *late* not before it has something to do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from jaxmon.agent.context import Context
from jaxmon.agent.errors.last_words import LastWords
from jaxmon.agent.jaxlink import orbax
from jaxmon.agent.part import LatePart, Loading, Part, PartRow
from jaxmon.agent.worker import Watcher
from jaxmon.facts.record import Fact
from jaxmon.indicators.figures import Indicators
from jaxmon.settings import Settings
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.agent.loaded_programs import LoadedPrograms
    from jaxmon.facts.rank import Rank


class Ask(NamedTuple):
    """A method of another part, which is called if that is loaded, else *absent*."""

    path: str
    absent: Callable[[], Any]


def _no_rank() -> Rank:
    from jaxmon.facts.rank import Rank  # noqa: PLC0415 - on request

    return Rank()


_DEVICES = Ask("device_figures.collect", tuple)

NEEDS: Mapping[str, str | Ask | tuple[Ask, ...]] = {
    **{name: f"indicators.{name}" for name in ("guard", "loops", "routes", "timeline")},
    "indicators": "indicators",
    "values": "indicators.logged",
    "loaded": "loaded",
    "pass_traces": "pass_traces",
    "watcher": "reading",
    "words": "words",
    "crashed": "words.crashed",
    "cache": "cache",
    "misses": "misses",
    "function_of": "misses.function_of",
    "on_call_error": "misses.on_call_error",
    "on_callback": "errors.record_callback",
    "failed": "errors.helpers.on_task",
    "failed_helpers": "errors.helpers.latest",
    "look_at_children": "errors.helpers.look",
    "lines": "allocations",
    "memory": "memory.snapshot",
    "utilization": "flops",
    "compiling": "compiles.in_progress",
    "programs": Ask("programs.snapshot", dict),
    "spanning": Ask("programs.spanning", tuple),
    "tracing": Ask("wall_time.compiling", dict),
    "run_ahead": Ask("sampling.run_ahead.look", lambda: (0.0, 0.0)),
    "doing": Ask("wall_time.doing", _no_rank),
    "run": Ask("goodput.describe", Fact),
    "ideal": Ask("flops.ideal_seconds", lambda: None),
    "devices": _DEVICES,
    "all_devices": (Ask("memory.collect", tuple), _DEVICES),
}
"""
What parts are given, by parameter: the path of an attribute of `AgentParts` or of
another part, which is then loaded; an `Ask`; or several of these.
"""


def _samples(wanted: Settings) -> bool:
    return wanted.calls and bool(wanted.sample_rate)


def _reports(wanted: Settings) -> object:
    return wanted.report or wanted.summary_dir


_reads = attrgetter("programs")
# Loaded with the first compile, scrape or second.
_FIRST: Mapping[str, Any] = {
    "late": ("compiling",),
    "early": _reports,
    "scraped": True,
    "soon": True,
}

ROWS: tuple[PartRow, ...] = (
    PartRow("memory", "memory.part:MemoryPart", **_FIRST),
    PartRow("allocations", "memory.lines:MemoryLines", **_FIRST),
    PartRow(
        *("programs", "compiles.programs:Programs", ("loaded", "utilization"), _reads),
        late=("executable",),
        pages=("/debug/hlo", "/debug/jaxpr", "/debug/programs"),
    ),
    PartRow("flops", "flops.part:UtilizationPart", (), _reads, ("call", "lowered")),
    PartRow("tracing", "tracing.part:TraceMistakes", (), _reads, ("compiled",)),
    PartRow("compiles", "compiles.part:Compiles", ("misses", "indicators", "cache")),
    PartRow("cache", "cache.part:PersistentCache"),
    PartRow(
        *("checkpoints", "checkpoints:CheckpointPart", ("timeline",)),
        late=(),
        hears=orbax.EVENTS,
    ),
    PartRow("misses", "compiles.misses:Misses", ("timeline",)),
    PartRow(
        *("errors", "errors.part:ErrorPart", ("function_of", "on_call_error", "words"))
    ),
    PartRow("warnings", "errors.warnings:Warnings", ("function_of", "on_callback")),
    PartRow(
        *("oom", "oom.part:OomReports", ("lines", "programs")),
        late=("compiling", "error"),
        scraped=True,
    ),
    PartRow(
        *("signatures", "warm.part:WarmStarts"),
        late=("call",),
        pages=("/debug/signatures",),
        public=("/-/ready",),
        scraped=True,
    ),
    PartRow("transfers", "transfers:TransferPart", enabled=attrgetter("transfers")),
    PartRow("calls", "calls:CallLayer", enabled=attrgetter("calls")),
    PartRow("timer", "own_metrics:Timer", enabled=_samples),
    PartRow(
        *("sampling", "sampling.part:Sampling", ("spanning",), _samples),
        late=("call", "returned", "timer"),
    ),
    PartRow(
        *("charts", "charts:Charts", ("indicators", "memory"), _samples),
        late=("timer",),
        early=_reports,
    ),
    PartRow(
        *("history", "history.part:SpeedHistory", ("loops", "programs", "devices")),
        enabled=_samples,
        late=("executed", "timer"),
    ),
    PartRow(
        *("timing", "reports.baseline:ExactTiming"),
        enabled=lambda wanted: wanted.calls and wanted.figures_dir is not None,
    ),
    PartRow(
        *("handoffs", "handoffs:Handoffs", ("routes", "guard", "failed")), alone=True
    ),
    PartRow(
        *("determinism", "checks.determinism:DeterminismPart"),
        late=("error",),
        early=attrgetter("shadow_interval"),
    ),
    PartRow(
        *("values", "checks.log_values:LoggedValues", ("values", "watcher")),
        late=("logged",),
    ),
    PartRow(
        *("numerics", "checks.numerics:NumericsPart", ("watcher",)),
        late=("promotion", "sample", "returned"),
    ),
    PartRow("keys", "checks.keys:KeyPart", ("watcher",), late=("lowered", "sample")),
    PartRow("identity", "devices.part:DeviceIdentity", late=(), scraped=True),
    PartRow(
        *("wall_time", "walltime.part:WallTimePart"),
        (
            *("timeline", "routes", "spanning", "run_ahead"),
            *("failed_helpers", "look_at_children"),
        ),
        attrgetter("time_interval"),
        pages=("/debug/stacks",),
        **_FIRST,
    ),
    PartRow(
        *("goodput", "goodput.part:RunGoodput", ("timeline", "loops", "crashed")),
        enabled=lambda wanted: wanted.run or wanted.run_state is not None,
    ),
    PartRow(
        *("rank", "reports.rank:RankPart"),
        ("doing", "run", "loops", "programs", "spanning", "compiling"),
        late=(),
        pages=("/debug/rank",),
    ),
    PartRow(
        *("device_figures", "devices.driver_metrics:DeviceMetrics"),
        enabled=attrgetter("device_figures"),
    ),
    PartRow(
        *("traces", "traces:TracePart", ("indicators",)),
        enabled=lambda wanted: wanted.traces is not False,
    ),
    PartRow(
        *("frameworks", "frameworks:Frameworks"),
        enabled=attrgetter("frameworks"),
        late=("timer",),
    ),
    PartRow("events", "eventlog:EventLogging", enabled=attrgetter("log_events")),
    PartRow(
        *("profile", "reports.profile:Profiler", ("routes", "loaded", "pass_traces")),
        late=(),
        pages=("/debug/passes", "/debug/profile"),
    ),
    PartRow(
        *("passes", "reports.passes:PassTraces", ("compiling", "tracing")),
        enabled=attrgetter("passes_dir"),
    ),
    PartRow(
        *("trackers", "trackers:Trackers"),
        ("loops", "timeline", "all_devices", "ideal"),
        late=(),
    ),
    PartRow("process", "own_metrics:ProcessPart", late=(), scraped=True, alone=True),
    PartRow("container", "own_metrics:Container", late=(), scraped=True, alone=True),
)


class AgentParts:
    """
    The parts of one agent, and what they are given. The program's *indicators* are
    attributed compile time, and their logged arrays read; `loading` says when late
    parts may be loaded.
    """

    def __init__(self, context: Context, indicators: Indicators) -> None:
        self.indicators = indicators
        self.loading = Loading(context.scheduler)
        indicators.on_logged = self._on_logged
        indicators.checks = lambda: _loaded(self._part("determinism"))
        self._context = context
        self._rows = {row.name: row for row in ROWS if row.enabled(context.settings)}
        self._made: dict[str, Part] = {}
        for name, row in self._rows.items():
            if row.late is not None and not row.early(context.settings):
                self._made[name] = LatePart(
                    row,
                    functools.partial(self._make, row),
                    self.loading,
                    {event: getattr(context.observers, event) for event in row.late},
                )
        self._all = tuple([self._part(name) for name in self._rows])

    def __iter__(self) -> Iterator[Part]:
        """Yield all that settings enable, in the order of `ROWS`."""
        return iter(self._all)

    @functools.cached_property
    def loaded(self) -> LoadedPrograms:
        """The loaded XLA programs."""
        from jaxmon.agent.loaded_programs import LoadedPrograms  # noqa: PLC0415

        return LoadedPrograms(self._context.jax)

    def pass_traces(self) -> Part:
        """Return what records compiles from now on."""
        (row,) = (row for row in ROWS if row.name == "passes")
        return self._make(row)

    @functools.cached_property
    def reading(self) -> Watcher:
        """Reads arrays of the program once they are ready."""
        return Watcher("numerics", self._context.scheduler)

    @functools.cached_property
    def words(self) -> LastWords:
        """What this process leaves when it ends."""
        doing = self._ask(Ask("wall_time.position", dict))
        return LastWords(
            self._context,
            self.indicators.loops,
            self._resolved(NEEDS["spanning"]),
            doing,
        )

    def of(self, kind: type[Part]) -> Part | None:
        """Return the part of class *kind*, loaded; `None` if there is none."""
        place = f"{kind.__module__}:{kind.__qualname__}".removeprefix("jaxmon.agent.")
        names = [name for name, row in self._rows.items() if row.place == place]
        return _loaded(self._part(names[0])) if names else None

    def _make(self, row: PartRow) -> Part:
        """Return a new part; what it needs of others is loaded."""
        module, _, kind = row.place.partition(":")
        found: Any = getattr(import_module(f"jaxmon.agent.{module}"), kind)
        given = {name: self._resolved(NEEDS[name]) for name in row.needs}
        part: Part = found(*(() if row.alone else (self._context,)), **given)
        return part

    def _on_logged(self) -> None:
        for observe in self._context.observers.logged:
            observe()

    def _part(self, name: str) -> Part:
        if name not in self._made:
            self._made[name] = self._make(self._rows[name])
        return self._made[name]

    def _resolved(self, need: str | Ask | tuple[Ask, ...]) -> Any:
        if isinstance(need, Ask):
            return self._ask(need)
        if not isinstance(need, str):
            return tuple([self._ask(ask) for ask in need])
        name, *path = need.split(".")
        part = _loaded(self._part(name)) if name in self._rows else getattr(self, name)
        return functools.reduce(getattr, path, part)

    def _ask(self, need: Ask) -> Callable[[], Any]:
        name, *path = need.path.split(".")

        def asked() -> Any:
            found: Any = self._made.get(name)
            if isinstance(found, LatePart):
                found = found.part
            if found is None:
                return need.absent()
            return functools.reduce(getattr, path, found)()

        return asked


def _loaded(part: Part) -> Any:
    return part.load() if isinstance(part, LatePart) else part
