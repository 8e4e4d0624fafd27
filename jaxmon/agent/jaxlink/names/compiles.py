"""Names on the path of a compile: its cause, JAX's reports, its result."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_COMPILES: Costs = (
    catalog.COMPILES,
    catalog.COMPILES_IN_PROGRESS,
    catalog.COMPILE_SECONDS,
)
_FLOPS: Costs = (catalog.FLOPS, catalog.IDEAL_SECONDS, catalog.PROGRAM_MATRIX_FLOPS)
_LOOPS: Costs = ("what bounds programs with loops",)
_OUTCOME: Costs = ("outcomes of compiles whose events were missed",)
_AHEAD: Costs = ("the function label of compiles ahead of time",)
_PROGRAMS: Costs = (
    catalog.PROGRAMS,
    catalog.PROGRAM_INFO,
    catalog.PROGRAM_FLOPS,
    catalog.PROGRAM_ACCESSED_BYTES,
)
_CACHE: Costs = (catalog.PERSISTENT_CACHE_REQUESTS,)
_LISTENERS: Costs = (catalog.COMPILE_SECONDS, *_CACHE)
_SCALARS: Costs = (catalog.CHECKPOINT_BYTES,)
_REPEATED: Costs = ("determinism checks of sampled calls",)

COMPILES = (
    Name(
        "jax._src.compiler.compile_or_get_cached",
        "timed; a Python function, replaced by a copy for each call",
        _COMPILES,
        hook="compiles",
        replaced=True,
    ),
    Name(
        "jax._src.compiler.backend_compile",
        "calls XLA to compile a program",
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
        "requests the compile: the program's name and the result",
        (*_PROGRAMS, "labels of compiles not caused by a call"),
    ),
    *each(
        "jax._src.interpreters.pxla:UnloadedPmapExecutable.from_hlo(*)",
        "pci compiled",
        "the same for pmap",
        ("programs of jax.pmap",),
        seen="yyy--",
    ),
    Name(
        "jax._src.interpreters.pxla:UnloadedMeshExecutable.from_hlo(all_args_info)",
        "JAX's information about the traced function",
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
        "the program's name if the report has none, up to 0.6.0",
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
        "our listeners: registering and looking them up",
        _LISTENERS,
        hook="monitoring",
    ),
    *each(
        "jax._src.monitoring.*",
        "unregister_event_listener unregister_event_duration_listener",
        "our listeners: removing them",
        _LISTENERS,
        seen="--yyy",
        group="removing listeners",
        hook="monitoring",
    ),
    *each(
        "jax._src.monitoring.*",
        "_unregister_event_listener_by_callback "
        "_unregister_event_duration_listener_by_callback",
        "the same, up to 0.8.0",
        _LISTENERS,
        seen="yy---",
        group="removing listeners",
        hook="monitoring",
    ),
    *each(
        "jax._src.monitoring.*",
        "register_scalar_listener get_scalar_listeners",
        "bytes and start of checkpoints",
        _SCALARS,
        seen="-yyyy",
    ),
    Name(
        "jax._src.monitoring.unregister_scalar_listener",
        "removing that listener",
        _SCALARS,
        "--yyy",
        "removing scalar listeners",
    ),
    Name(
        "jax._src.monitoring._unregister_scalar_listener_by_callback",
        "the same, up to 0.8.0",
        _SCALARS,
        "-y---",
        "removing scalar listeners",
    ),
    Name(
        "/jax/core/compile/jaxpr_trace_duration",
        "duration of a trace",
        (catalog.COMPILE_SECONDS,),
    ),
    Name(
        "/jax/core/compile/jaxpr_to_mlir_module_duration",
        "duration of lowering",
        (catalog.COMPILE_SECONDS, catalog.TIME_SECONDS),
    ),
    Name(
        "/jax/core/compile/backend_compile_duration",
        "duration and end of a compile",
        (catalog.COMPILES, *_PROGRAMS),
    ),
    Name(
        "/jax/compilation_cache/cache_retrieval_time_sec",
        "time to load a program",
        (catalog.COMPILE_SECONDS,),
    ),
    Name(
        "/jax/compilation_cache/compile_requests_use_cache",
        "lookup in the persistent cache",
        _CACHE,
    ),
    Name(
        "/jax/compilation_cache/cache_hits",
        "persistent cache hit",
        (*_CACHE, catalog.COMPILES),
    ),
    Name(
        "/jax/compilation_cache/cache_misses",
        "an entry is about to be written, despite the name",
        (catalog.PERSISTENT_CACHE_WRITES,),
    ),
    Name(
        "/jax/compilation_cache/compile_time_saved_sec",
        "whole seconds of compile time that a hit saved",
        (catalog.PERSISTENT_CACHE_SAVED_SECONDS,),
    ),
)

PROGRAMS = (
    *each(
        "<executable>.*",
        "hlo_modules cost_analysis get_compiled_memory_stats",
        "XLA's information about a program",
        _PROGRAMS,
    ),
    *each(
        "<memory>.*",
        "argument_size_in_bytes output_size_in_bytes temp_size_in_bytes "
        "generated_code_size_in_bytes",
        "memory requirements of a program",
        (
            catalog.PROGRAM_ARGUMENT_BYTES,
            catalog.PROGRAM_OUTPUT_BYTES,
            catalog.PROGRAM_TEMPORARY_BYTES,
            catalog.PROGRAM_CODE_BYTES,
        ),
    ),
    Name(
        "<memory>.peak_memory_in_bytes",
        "peak memory of a program",
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
        "the same, up to 0.8",
        (catalog.PROGRAM_INFO, catalog.PROGRAMS),
        "yyy--",
        "print options",
    ),
    Name(
        "<device>.client.live_executables",
        "the programs that are loaded",
        ("source lines in profiles; the HLO of programs in a bundle",),
    ),
    Name(
        "<traced>.donate_argnums",
        "which arguments of a call must be copied for a re-run",
        _REPEATED,
    ),
    Name("<traced>.args_info", "their tree, without static ones", _REPEATED),
    Name("<jaxpr>.effects", "the same", _REPEATED),
    Name("<jaxpr>.eqns", "the same; FLOPs", (*_REPEATED, *_FLOPS)),
    Name(
        "jax._src.lib.xla_client._xla.hlo_module_cost_analysis",
        "XLA's analysis of the body of a loop",
        _LOOPS,
    ),
    Name(
        "jax._src.lib.xla_client.hlo.hlo_module_from_text",
        "reads the body of a loop",
        _LOOPS,
        "---yy",
        "reading HLO",
    ),
    Name(
        "jax._src.lib.xla_client._xla.hlo_module_from_text",
        "the same, up to 0.8",
        _LOOPS,
        "yyy--",
        "reading HLO",
    ),
    Name(
        "jax.extend.core.primitives",
        "JAX's own operations, of which few multiply matrices",
        _FLOPS,
    ),
    Name('"rematted_computation"', "what `jax.checkpoint` computes once more", _FLOPS),
    Name(
        "<shard_map>.newly_manual_axes",
        "on how many shards a shard_map runs, since 0.10",
        _FLOPS,
        "---yy",
        "axes of a shard_map",
    ),
    Name(
        "<shard_map>.manual_axes",
        "the same, up to 0.10.1",
        _FLOPS,
        "-yy--",
        "axes of a shard_map",
    ),
    Name(
        "<shard_map>.auto",
        "the other axes, up to 0.6.0",
        _FLOPS,
        "y----",
        "axes of a shard_map",
    ),
    Name("<product>.precision", "how precise a product is", _FLOPS),
    Name(
        "<ragged product>.ragged_dot_dimension_numbers",
        "what is multiplied in groups of rows, since 0.5",
        _FLOPS,
        "-yyyy",
    ),
    *each(
        "jax._src.pallas.pallas_call:_pallas_call_jvp_rule(*)",
        "grid_mapping cost_estimate",
        "how often a kernel runs, or what its author says of it",
        _FLOPS,
    ),
    Name("jax._src.pallas.core.GridMapping.grid", "the same", _FLOPS),
    Name("jax._src.pallas.core.CostEstimate.flops", "the same", _FLOPS),
    Name(
        "<equation>.source_info.traceback.frames",
        "the line of an operation whose FLOPs are unknown",
        _FLOPS,
    ),
    Name(
        "<literal>.val",
        "constants in a jaxpr: trips of loops, keys",
        (*_FLOPS, catalog.KEY_REUSE),
    ),
    Name("<jaxpr>.invars", "which arguments are keys", (catalog.KEY_REUSE,)),
    Name('"bytes accessed"', "XLA's analysis of the body of a loop", _LOOPS),
    Name(
        "jax._src.ffi:ffi_call(has_side_effect)",
        "calls that are not repeated",
        _REPEATED,
        "-yyyy",
        "side effects of foreign functions",
    ),
    Name(
        "jax._src.extend.ffi:ffi_call(has_side_effect)",
        "the same before 0.6",
        _REPEATED,
        "y----",
        "side effects of foreign functions",
    ),
)
