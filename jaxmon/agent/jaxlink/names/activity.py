"""Names of functions on stacks, which show what a thread is doing."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_TIME: Costs = (catalog.WALL_SECONDS,)
_JOB: Costs = ("who is late at a barrier, in `jaxmon job why`",)

ACTIVITY = (
    Name(
        "jax._src.interpreters.partial_eval:trace_to_jaxpr_dynamic",
        "traces",
        _TIME,
    ),
    Name(
        "jax._src.interpreters.partial_eval:trace_to_jaxpr",
        "the same for jit since 0.10",
        _TIME,
        "y-yy-",
    ),
    Name(
        "jax._src.interpreters.partial_eval:trace_to_jaxpr_nocache",
        "the same since 0.12",
        _TIME,
        "----y",
    ),
    *each(
        "jax._src.interpreters.pxla:*",
        "lower_sharding_computation _cached_compilation",
        "lowers and compiles",
        _TIME,
    ),
    Name("jax._src.compiler:compile_or_get_cached", "compiles", _TIME),
    Name(
        "jax._src.interpreters.pxla:ExecuteReplicated.__call__",
        "runs a program just compiled, or one with effects",
        _TIME,
    ),
    Name(
        "jax._src.pmap:pmap.wrapped",
        "runs a program of pmap",
        _TIME,
        "--yyy",
    ),
    *each(
        "jax._src.api:*",
        "block_until_ready device_get",
        "waits for results",
        _TIME,
    ),
    Name("jax._src.array:ArrayImpl._value", "reads an array", _TIME),
    *each(
        "jax._src.distributed:State.*",
        "initialize shutdown",
        "waits for all processes of a job",
        _JOB,
    ),
    Name(
        "jax._src.xla_bridge:_init_backend",
        "waits for the devices of all processes",
        _JOB,
    ),
    Name(
        "jax._src.callback:_FlatCallback.__call__",
        "runs a callback of a running program",
        ("whose callback holds up a job, in `jaxmon job why`",),
    ),
    Name("jax._src.lib:_xla_gc_callback", "is called by the garbage collector", _TIME),
)
