"""
The parts of an agent, and what each hooks into JAX.

| hook | part | attaches to | observes |
|---|---|---|---|
| monitoring | compiles | `jax.monitoring` | phases, outcomes, persistent cache |
| compiles | compiles | ``compiler.compile_or_get_cached`` | compiles, in progress |
| persistent_cache | cache | ``compiler._cache_write``, warnings | programs not cached |
| misses | misses | ``pjit._infer_params`` and others | misses and reasons |
| causes | recompiles | the hooks *misses* and *compiles* | causes of recompiles |
| errors | errors | ``traceback_util._filtering_mode`` | errors that leave a call |
| uncaught | errors | `sys.excepthook`, `sys.exit`, others | uncaught errors, ends |
| runtime_errors | errors | `jax.errors.JaxRuntimeError` | errors raised by syncs |
| deleted_arrays | errors | JAX's array class | reads of donated arrays |
| warnings | errors | ``warnings`` in JAX's modules, its loggers | warnings |
| handoffs | handoffs | queues and thread pools of Python | whom work is for |
| monitoring | checkpoints | `jax.monitoring` | Orbax's saves and restores |
| transfers | transfers | JAX's array class, `device_put` | transfers, syncs |
| calls | calls | ``pjit._cpp_pjit``, what `jax.pmap` calls | calls and hits |
| sampling | sampling | JAX's hook after a cached call | dispatch, execution times |
| timing | sampling | the same, for `jaxmon baseline` | the time of each call |

The only module that knows them all. They attach and start in this order, and stop in
reverse; parts disabled by settings are not imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxmon.agent.cache.part import PersistentCache
from jaxmon.agent.calls import CallLayer
from jaxmon.agent.checkpoints import CheckpointPart
from jaxmon.agent.checks.determinism import DeterminismPart
from jaxmon.agent.checks.keys import KeyPart
from jaxmon.agent.checks.log_values import LoggedValues
from jaxmon.agent.checks.numerics import NumericsPart
from jaxmon.agent.compiles.misses import Misses
from jaxmon.agent.compiles.part import Compiles
from jaxmon.agent.context import Context
from jaxmon.agent.devices.part import DeviceIdentity
from jaxmon.agent.errors.last_words import LastWords
from jaxmon.agent.errors.part import ErrorPart
from jaxmon.agent.errors.warnings import Warnings
from jaxmon.agent.goodput.identity import is_run
from jaxmon.agent.handoffs import Handoffs
from jaxmon.agent.loaded_programs import LoadedPrograms
from jaxmon.agent.memory.lines import MemoryLines
from jaxmon.agent.memory.part import MemoryPart
from jaxmon.agent.oom.part import OomReports
from jaxmon.agent.part import Part
from jaxmon.agent.recompiles.part import Recompiles
from jaxmon.agent.reports.profile import Profiler
from jaxmon.agent.reports.rank import RankPart
from jaxmon.agent.trackers.part import Trackers
from jaxmon.agent.warm.part import WarmStarts
from jaxmon.agent.worker import Watcher
from jaxmon.facts.rank import Rank
from jaxmon.facts.record import Fact
from jaxmon.indicators.figures import Indicators


if TYPE_CHECKING:
    from jaxmon.agent.compiles.programs import Programs


def parts_of(context: Context, indicators: Indicators) -> list[Part]:
    """
    Return the parts of one agent.

    Args:
        context: shared state of the agent.
        indicators: what the program marks and logs: compile time is attributed to its
            activities, and its logged arrays are read.
    """
    wanted = context.settings
    programs, utilization, mistakes = None, None, list[Part]()
    run_ahead = _unknown
    loaded = LoadedPrograms(context.jax)
    if wanted.programs:
        from jaxmon.agent.compiles.programs import Programs  # noqa: PLC0415
        from jaxmon.agent.flops.part import UtilizationPart  # noqa: PLC0415
        from jaxmon.agent.tracing.part import TraceMistakes  # noqa: PLC0415

        utilization = UtilizationPart(context)
        programs = Programs(context, loaded, utilization)
        mistakes += [utilization, TraceMistakes(context)]
    devices = None
    if wanted.device_figures:
        from jaxmon.agent.devices.driver_metrics import DeviceMetrics  # noqa: PLC0415

        devices = DeviceMetrics(context)
    lines = MemoryLines(context)
    cache = PersistentCache(context)
    recompiles = Recompiles(context)
    misses = Misses(context, indicators.timeline)
    spanning = programs.spanning if programs is not None else tuple
    errors = ErrorPart(
        context,
        function_of=misses.function_of,
        on_call_error=misses.on_call_error,
        words=LastWords(context, indicators.loops, spanning),
    )
    memory = MemoryPart(context)
    compiles = Compiles(context, misses, indicators, recompiles, cache)
    found: list[Part] = [
        memory,
        lines,
        *([programs] if programs is not None else []),
        *mistakes,
        compiles,
        cache,
        CheckpointPart(context, indicators.timeline),
        misses,
        recompiles,
        errors,
        Warnings(
            context,
            function_of=misses.function_of,
            on_callback=errors.record_callback,
        ),
        OomReports(
            context,
            lines=lines,
            programs=programs.snapshot if programs is not None else dict,
        ),
    ]
    found.append(WarmStarts(context, expected=wanted.expect_warmup))
    if wanted.transfers:
        from jaxmon.agent.transfers import TransferPart  # noqa: PLC0415

        found.append(TransferPart(context))
    if wanted.calls:
        found.append(CallLayer(context))
        if wanted.sample_rate:
            from jaxmon.agent.charts import Charts  # noqa: PLC0415
            from jaxmon.agent.history.part import SpeedHistory  # noqa: PLC0415
            from jaxmon.agent.sampling.part import Sampling  # noqa: PLC0415

            found.append(sampling := Sampling(context, spanning))
            run_ahead = sampling.run_ahead.look
            found.append(Charts(context, indicators, memory.snapshot))
            found.append(
                SpeedHistory(
                    context,
                    indicators.loops,
                    programs=programs.snapshot if programs is not None else dict,
                    devices=devices.collect if devices is not None else tuple,
                )
            )
        if wanted.figures_dir is not None:
            from jaxmon.agent.sampling.exact import ExactTiming  # noqa: PLC0415

            found.append(ExactTiming(context))
    reading = Watcher("numerics", context.scheduler)
    found += [
        Handoffs(indicators.routes, context.guard),
        DeterminismPart(context),
        LoggedValues(context, indicators.logged, reading),
        NumericsPart(context, reading),
        KeyPart(context, reading),
        DeviceIdentity(context),
    ]
    found += _for_others(
        context,
        indicators,
        compiles=compiles,
        programs=programs,
        run_ahead=run_ahead,
        errors=errors,
    )
    if devices is not None:
        found.append(devices)
    found += _for_opentelemetry(context, indicators)
    found += [
        Profiler(context, indicators.routes, loaded),
        Trackers(
            context,
            indicators.loops,
            indicators.timeline,
            [one.collect for one in (memory, devices) if one is not None],
            _nothing if utilization is None else utilization.ideal_seconds,
        ),
    ]
    return found


def _for_others(  # noqa: PLR0913 - what it is to show
    context: Context,
    indicators: Indicators,
    *,
    compiles: Compiles,
    programs: Programs | None,
    run_ahead: Callable[[], tuple[float, float]],
    errors: ErrorPart,
) -> list[Part]:
    """Return what shows how this process gets on, to people and to a whole job."""
    found = list[Part]()
    spanning = programs.spanning if programs is not None else tuple
    doing: Callable[[], Rank] = Rank
    if context.settings.time_interval:
        from jaxmon.agent.walltime.part import WallTimePart  # noqa: PLC0415

        timeline, routes = indicators.timeline, indicators.routes
        time = WallTimePart(
            context, timeline, routes, spanning, run_ahead, gone=errors.gone.latest
        )
        doing = time.doing
        errors.words.doing = time.position
        found.append(time)
    record: Callable[[], Fact] = Fact
    if is_run(context.settings):
        from jaxmon.agent.goodput.part import RunGoodput  # noqa: PLC0415

        timeline, loops = indicators.timeline, indicators.loops
        run = RunGoodput(context, timeline, loops, crashed=errors.words.crashed)
        record = run.describe
        found.append(run)
    rank = RankPart(
        context,
        doing=doing,
        run=record,
        loops=indicators.loops,
        programs=programs.snapshot if programs is not None else dict,
        spanning=spanning,
        compiling=compiles.in_progress,
    )
    return [*found, rank]


def _for_opentelemetry(context: Context, indicators: Indicators) -> list[Part]:
    wanted, found = context.settings, list[Part]()
    if wanted.traces is not False:
        from jaxmon.agent.traces import TracePart  # noqa: PLC0415

        found.append(TracePart(context, indicators))
    if wanted.log_events:
        from jaxmon.agent.eventlog import EventLogging  # noqa: PLC0415

        found.append(EventLogging(context))
    return found


def _unknown() -> tuple[float, float]:
    """Stand for what no sample shows."""
    return 0.0, 0.0


def _nothing() -> None:
    """Stand for what is not counted."""
