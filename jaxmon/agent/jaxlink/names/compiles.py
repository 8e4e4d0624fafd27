"""Names on the way of a compile: who asked, what JAX reports, what came of it."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_COMPILES: Costs = (
    catalog.COMPILES,
    catalog.COMPILES_IN_PROGRESS,
    catalog.COMPILE_SECONDS,
)
_OUTCOME: Costs = ("outcomes of compiles of which no events were heard",)
_AHEAD: Costs = ("the function label of compiles ahead of time",)
_PROGRAMS: Costs = (
    catalog.PROGRAMS,
    catalog.PROGRAM_INFO,
    catalog.PROGRAM_FLOPS,
    catalog.PROGRAM_ACCESSED_BYTES,
)
_CACHE: Costs = (catalog.PERSISTENT_CACHE_REQUESTS,)
_LISTENERS: Costs = (catalog.COMPILE_SECONDS, *_CACHE)
_REPEATED: Costs = ("determinism checks of sampled calls",)

COMPILES = (
    Name(
        "jax._src.compiler.compile_or_get_cached",
        "timed; a Python function, of which each call runs a copy",
        _COMPILES,
        hook="compiles",
        replaced=True,
    ),
    Name(
        "jax._src.compiler.backend_compile",
        "has XLA build a program",
        _OUTCOME,
        "yyy--",
        "builds",
        replaced=True,
    ),
    Name(
        "jax._src.compiler.backend_compile_and_load",
        "the same since 0.6",
        _OUTCOME,
        "-yyyy",
        "builds",
        replaced=True,
    ),
    *each(
        "jax._src.interpreters.pxla:_cached_compilation(*)",
        "name xla_executable",
        "asks for the compile: the program's name, and what came of it",
        (*_PROGRAMS, "labels of compiles that no call caused"),
    ),
    *each(
        "jax._src.interpreters.pxla:UnloadedPmapExecutable.from_hlo(*)",
        "pci compiled",
        "the same for pmap",
        ("programs of what jax.pmap makes",),
        seen="yyy--",
    ),
    Name(
        "jax._src.interpreters.pxla:UnloadedMeshExecutable.from_hlo(all_args_info)",
        "what JAX knows of the traced function",
        _AHEAD,
    ),
    *each(
        "jax._src.interpreters.pxla:lower_sharding_computation(*)",
        "closed_jaxpr",
        "the same while the program is lowered",
        _AHEAD,
    ),
    Name(
        "jax._src.interpreters.pxla:lower_sharding_computation(fun_name)",
        "the program's name where its report has none, to 0.6.0",
        _AHEAD,
    ),
    Name(
        "<jaxpr>.debug_info.func_src_info",
        "name and line of the traced function",
        _AHEAD,
    ),
)

MONITORING = (
    *each(
        "jax._src.monitoring.*",
        "register_event_listener register_event_duration_secs_listener "
        "get_event_listeners get_event_duration_listeners",
        "our listeners: put in place, and looked for",
        _LISTENERS,
        hook="monitoring",
    ),
    *each(
        "jax._src.monitoring.*",
        "unregister_event_listener unregister_event_duration_listener",
        "our listeners: taken off",
        _LISTENERS,
        seen="--yyy",
        group="taking listeners off",
        hook="monitoring",
    ),
    *each(
        "jax._src.monitoring.*",
        "_unregister_event_listener_by_callback "
        "_unregister_event_duration_listener_by_callback",
        "the same, to 0.8.0",
        _LISTENERS,
        seen="yy---",
        group="taking listeners off",
        hook="monitoring",
    ),
    Name(
        "/jax/core/compile/jaxpr_trace_duration",
        "how long a trace took",
        (catalog.COMPILE_SECONDS,),
    ),
    Name(
        "/jax/core/compile/jaxpr_to_mlir_module_duration",
        "how long lowering took",
        (catalog.COMPILE_SECONDS, catalog.TIME_SECONDS),
    ),
    Name(
        "/jax/core/compile/backend_compile_duration",
        "how long a compile took, and that it ended",
        (catalog.COMPILES, *_PROGRAMS),
    ),
    Name(
        "/jax/compilation_cache/cache_retrieval_time_sec",
        "how long it took to read a program",
        (catalog.COMPILE_SECONDS,),
    ),
    Name(
        "/jax/compilation_cache/compile_requests_use_cache",
        "a program was looked for in the persistent cache",
        _CACHE,
    ),
    Name(
        "/jax/compilation_cache/cache_hits",
        "it was found there",
        (*_CACHE, catalog.COMPILES),
    ),
    Name(
        "/jax/compilation_cache/cache_misses",
        "an entry is about to be written, whatever the name says",
        (catalog.PERSISTENT_CACHE_WRITES,),
    ),
    Name(
        "/jax/compilation_cache/compile_time_saved_sec",
        "whole seconds of compiling that a hit saved",
        (catalog.PERSISTENT_CACHE_SAVED_SECONDS,),
    ),
)

PROGRAMS = (
    *each(
        "<executable>.*",
        "hlo_modules cost_analysis get_compiled_memory_stats",
        "what XLA says about a program",
        _PROGRAMS,
    ),
    *each(
        "<memory>.*",
        "argument_size_in_bytes output_size_in_bytes temp_size_in_bytes "
        "generated_code_size_in_bytes",
        "memory that a program needs",
        (
            catalog.PROGRAM_ARGUMENT_BYTES,
            catalog.PROGRAM_OUTPUT_BYTES,
            catalog.PROGRAM_TEMPORARY_BYTES,
            catalog.PROGRAM_CODE_BYTES,
        ),
    ),
    Name(
        "<memory>.peak_memory_in_bytes",
        "memory that it needs at most",
        (catalog.PROGRAM_PEAK_BYTES,),
        "--yyy",
    ),
    Name(
        "jax._src.lib.xla_client.hlo.HloPrintOptions",
        "prints HLO without source lines",
        (catalog.PROGRAM_INFO, catalog.PROGRAMS),
        "---yy",
        "print options",
    ),
    Name(
        "jax._src.lib.xla_client._xla.HloPrintOptions",
        "the same, to 0.8",
        (catalog.PROGRAM_INFO, catalog.PROGRAMS),
        "yyy--",
        "print options",
    ),
    Name("<traced>.donate_argnums", "whether a call may be repeated", _REPEATED),
    Name("<jaxpr>.effects", "the same", _REPEATED),
    Name("<jaxpr>.eqns", "the same", _REPEATED),
)
