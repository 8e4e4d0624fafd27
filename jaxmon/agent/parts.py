"""
The parts of an agent, and what each hooks into JAX.

| hook | part | what it attaches to | what it yields |
|---|---|---|---|
| monitoring | compiles | `jax.monitoring` | phases, outcomes, persistent cache |
| compiles | compiles | ``compiler.compile_or_get_cached`` | compiles, in progress |
| persistent_cache | cache | ``compiler._cache_write``, warnings | what is not kept |
| misses | misses | ``pjit._infer_params`` and others | misses, and why |
| causes | recompiles | what *misses* and *compiles* see | why a call compiled again |
| errors | errors | ``traceback_util._filtering_mode`` | errors that leave a call |
| uncaught | errors | `sys.excepthook` and its like | errors nobody caught |
| out_of_memory | errors | `jax.errors.JaxRuntimeError` | errors a wait ends with |
| transfers | transfers | JAX's array class, what sends arrays | transfers, waits |
| calls | calls | ``pjit._cpp_pjit``, `jax.pmap` | calls and hits |
| sampling | sampling | JAX's hook after a cached call | dispatch, execution times |

The only module that knows them all. They attach and start in the order of the list, and
stop in the opposite one; what settings switch off is not imported.
"""

from __future__ import annotations

from jaxmon.agent.cache.part import PersistentCache
from jaxmon.agent.calls.part import CallLayer
from jaxmon.agent.checks.determinism import Determinism
from jaxmon.agent.checks.numerics import Numerics
from jaxmon.agent.compiles.misses import Misses
from jaxmon.agent.compiles.part import Compiles
from jaxmon.agent.compiles.payers import Payers
from jaxmon.agent.context import Context
from jaxmon.agent.devices.part import Identity
from jaxmon.agent.errors.part import Errors
from jaxmon.agent.memory.lines import Allocations
from jaxmon.agent.memory.part import Memory
from jaxmon.agent.oom.part import OomReports
from jaxmon.agent.part import Part
from jaxmon.agent.recompiles.part import Recompiles
from jaxmon.agent.reports.profile import Profiler
from jaxmon.indicators.timeline import Timeline


def parts_of(context: Context, timeline: Timeline) -> list[Part]:
    """
    Return the parts of one agent.

    Args:
        context: what they share.
        timeline: of the program's activities, which compiles are charged to.
    """
    wanted = context.settings
    programs = None
    if wanted.programs:
        from jaxmon.agent.compiles.programs import Programs  # noqa: PLC0415

        programs = Programs(context)
    payers = Payers(timeline)
    lines = Allocations(context)
    cache = PersistentCache(context)
    recompiles = Recompiles(context)
    calls = CallLayer(context)
    misses = Misses(context, calls, payers)
    found: list[Part] = [
        Memory(context),
        lines,
        *([programs] if programs is not None else []),
        Compiles(context, misses, payers, recompiles, cache),
        cache,
        misses,
        recompiles,
        Errors(context, function_of=misses.function_of, on_left=misses.on_left),
        OomReports(
            context,
            lines=lines,
            programs=programs.snapshot if programs is not None else dict,
        ),
    ]
    if wanted.transfers:
        from jaxmon.agent.transfers.part import Transfers  # noqa: PLC0415

        found.append(Transfers(context))
    if wanted.calls:
        found.append(calls)
        if wanted.sample_rate:
            from jaxmon.agent.sampling.part import Sampling  # noqa: PLC0415

            found.append(Sampling(context))
    found += [Determinism(context), Numerics(context), Identity(context)]
    if wanted.device_figures:
        from jaxmon.agent.devices.figures import DeviceFigures  # noqa: PLC0415

        found.append(DeviceFigures(context))
    found.append(Profiler(context))
    return found
