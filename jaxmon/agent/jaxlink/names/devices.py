"""Names of devices, of JAX's backends, and of its profiler."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_DEVICES: Costs = (
    catalog.DEVICE_MEMORY_BYTES,
    catalog.LIVE_ARRAYS,
    catalog.DEVICE_INFO,
    catalog.RUNTIME_INFO,
    catalog.ACCELERATOR_UP,
)
_PROFILE: Costs = ("traces by /debug/profile",)

DEVICES = (
    *each(
        "jax._src.xla_bridge.*",
        "_backends _backend_lock",
        "whether devices are initialised, without initialising or waiting",
        _DEVICES,
    ),
    Name("jaxlib.__version__", "its release", (catalog.RUNTIME_INFO,)),
    *each(
        "jax._src.distributed.global_state.*",
        "client coordinator_address num_processes",
        "the place of this process in its cluster, before devices are initialised",
        ("the place of a process in its job",),
    ),
)

PROFILER = (
    Name(
        "jax._src.profiler._profile_state.lock",
        "held while the program starts or stops its own profile",
        _PROFILE,
    ),
    Name(
        "jax._src.profiler._profile_state.profile_session",
        "the program's own profile",
        _PROFILE,
        "yyyy-",
        "session of the program",
    ),
    Name(
        "jax._src.profiler._profile_state.session",
        "the same since 0.12",
        _PROFILE,
        "----y",
        "session of the program",
    ),
    Name(
        "jax._src.lib._profiler.ProfilerSession",
        "records a trace",
        _PROFILE,
        "-yyyy",
        "profiler",
        replaced=True,
    ),
    Name(
        "jax._src.lib.xla_client.profiler.ProfilerSession",
        "the same before 0.6",
        _PROFILE,
        "y----",
        "profiler",
        replaced=True,
    ),
    Name(
        "jax._src.lib._profiler.ProfileOptions",
        "selects what is recorded",
        _PROFILE,
        "-yyyy",
        "options of the profiler",
    ),
    Name(
        "jax._src.lib.xla_client.profiler.ProfileOptions",
        "the same before 0.6",
        _PROFILE,
        "y----",
        "options of the profiler",
    ),
    *each(
        "<profile options>.*",
        "python_tracer_level host_tracer_level enable_hlo_proto",
        "what is recorded",
        _PROFILE,
    ),
    Name(
        "<profile options>.raise_error_on_start_failure",
        "reports a busy profiler as an error",
        _PROFILE,
        "-yyyy",
    ),
)
