"""Names for compiles, programs and the persistent cache."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.name import Costs, names


_LISTENERS: Costs = (catalog.COMPILE_SECONDS, catalog.PERSISTENT_CACHE_REQUESTS)
_SCALARS: Costs = (catalog.CHECKPOINT_BYTES,)
_REPEATED: Costs = ("determinism checks of sampled calls",)
_LOOPS: Costs = ("what bounds programs with loops",)
_FLOPS: Costs = (catalog.FLOPS, catalog.IDEAL_SECONDS, catalog.PROGRAM_MATRIX_FLOPS)
_WRITES: Costs = (catalog.PERSISTENT_CACHE_WRITES, catalog.PERSISTENT_CACHE_OBSTACLE)
_CACHE_ERRORS: Costs = (catalog.PERSISTENT_CACHE_ERRORS,)
_TOO_LARGE: Costs = ("the obstacle too_large",)

COMPILES = (
    *names(
        (catalog.COMPILES, catalog.COMPILES_IN_PROGRESS, catalog.COMPILE_SECONDS),
        "yyyyy jax._src.compiler.compile_or_get_cached",
        hook="compiles",
        replaced=True,
    ),
    *names(
        ("outcomes of compiles whose events were missed",),
        "yyy-- jax._src.compiler.backend_compile",
        "-yyyy jax._src.compiler.backend_compile_and_load",
        group="builds",
        replaced=True,
    ),
    *names(
        (
            catalog.PROGRAMS,
            catalog.PROGRAM_INFO,
            catalog.PROGRAM_FLOPS,
            catalog.PROGRAM_ACCESSED_BYTES,
            "labels of compiles not caused by a call",
        ),
        "yyyyy jax._src.interpreters.pxla:_cached_compilation({name xla_executable})",
    ),
    *names(
        ("programs of jax.pmap",),
        "yyy-- jax._src.interpreters.pxla:UnloadedPmapExecutable.from_hlo({pci "
        "compiled})",
    ),
    *names(
        ("the function label of compiles ahead of time",),
        "yyyyy jax._src.interpreters.pxla:"
        "UnloadedMeshExecutable.from_hlo(all_args_info)",
        "yyyyy jax._src.interpreters.pxla:lower_sharding_computation(closed_jaxpr)",
        "yyyyy jax._src.interpreters.pxla:lower_sharding_computation(fun_name)",
        "yyyyy <jaxpr>.debug_info.func_src_info",
    ),
)

MONITORING = (
    *names(
        _LISTENERS,
        "yyyyy jax._src.monitoring.{register_event_listener "
        "register_event_duration_secs_listener get_event_listeners "
        "get_event_duration_listeners}",
        hook="monitoring",
    ),
    *names(
        _LISTENERS,
        "--yyy jax._src.monitoring.{unregister_event_listener "
        "unregister_event_duration_listener}",
        "yy--- jax._src.monitoring.{_unregister_event_listener_by_callback "
        "_unregister_event_duration_listener_by_callback}",
        group="removing listeners",
        hook="monitoring",
    ),
    *names(
        _SCALARS,
        "-yyyy jax._src.monitoring.{register_scalar_listener get_scalar_listeners}",
    ),
    *names(
        _SCALARS,
        "--yyy jax._src.monitoring.unregister_scalar_listener",
        "-y--- jax._src.monitoring._unregister_scalar_listener_by_callback",
        group="removing scalar listeners",
    ),
    *names(
        (catalog.COMPILE_SECONDS,),
        "yyyyy /jax/core/compile/jaxpr_trace_duration",
        "yyyyy /jax/compilation_cache/cache_retrieval_time_sec",
    ),
    *names(
        (catalog.COMPILE_SECONDS, catalog.TIME_SECONDS),
        "yyyyy /jax/core/compile/jaxpr_to_mlir_module_duration",
    ),
    *names(
        (
            catalog.COMPILES,
            catalog.PROGRAMS,
            catalog.PROGRAM_INFO,
            catalog.PROGRAM_FLOPS,
            catalog.PROGRAM_ACCESSED_BYTES,
        ),
        "yyyyy /jax/core/compile/backend_compile_duration",
    ),
    *names(
        (catalog.PERSISTENT_CACHE_REQUESTS,),
        "yyyyy /jax/compilation_cache/compile_requests_use_cache",
    ),
    *names(
        (catalog.PERSISTENT_CACHE_REQUESTS, catalog.COMPILES),
        "yyyyy /jax/compilation_cache/cache_hits",
    ),
    *names(
        (catalog.PERSISTENT_CACHE_WRITES,), "yyyyy /jax/compilation_cache/cache_misses"
    ),
    *names(
        (catalog.PERSISTENT_CACHE_SAVED_SECONDS,),
        "yyyyy /jax/compilation_cache/compile_time_saved_sec",
    ),
)

PROGRAMS = (
    *names(
        (
            catalog.PROGRAMS,
            catalog.PROGRAM_INFO,
            catalog.PROGRAM_FLOPS,
            catalog.PROGRAM_ACCESSED_BYTES,
        ),
        "yyyyy <executable>.{hlo_modules cost_analysis get_compiled_memory_stats}",
    ),
    *names(
        (
            catalog.PROGRAM_ARGUMENT_BYTES,
            catalog.PROGRAM_OUTPUT_BYTES,
            catalog.PROGRAM_TEMPORARY_BYTES,
            catalog.PROGRAM_CODE_BYTES,
        ),
        "yyyyy <memory>.{argument_size_in_bytes output_size_in_bytes "
        "temp_size_in_bytes generated_code_size_in_bytes}",
    ),
    *names((catalog.PROGRAM_PEAK_BYTES,), "--yyy <memory>.peak_memory_in_bytes"),
    *names(
        (catalog.PROGRAM_INFO, catalog.PROGRAMS),
        "---yy jax._src.lib.xla_client.hlo.HloPrintOptions",
        "yyy-- jax._src.lib.xla_client._xla.HloPrintOptions",
        group="print options",
    ),
    *names(
        ("source lines in profiles; the HLO of programs in a bundle",),
        "yyyyy <device>.client.live_executables",
    ),
    *names(
        _REPEATED,
        "yyyyy <traced>.donate_argnums",
        "yyyyy <traced>.args_info",
        "yyyyy <jaxpr>.effects",
    ),
    *names(
        (
            "determinism checks of sampled calls",
            catalog.FLOPS,
            catalog.IDEAL_SECONDS,
            catalog.PROGRAM_MATRIX_FLOPS,
        ),
        "yyyyy <jaxpr>.eqns",
    ),
    *names(
        _LOOPS,
        "yyyyy jax._src.lib.xla_client._xla.hlo_module_cost_analysis",
        'yyyyy "bytes accessed"',
    ),
    *names(
        _LOOPS,
        "---yy jax._src.lib.xla_client.hlo.hlo_module_from_text",
        "yyy-- jax._src.lib.xla_client._xla.hlo_module_from_text",
        group="reading HLO",
    ),
    *names(
        _FLOPS,
        "yyyyy jax.extend.core.primitives",
        'yyyyy "rematted_computation"',
        "yyyyy <product>.precision",
        "-yyyy <ragged product>.ragged_dot_dimension_numbers",
        "yyyyy jax._src.pallas.pallas_call:_pallas_call_jvp_rule({grid_mapping "
        "cost_estimate})",
        "yyyyy jax._src.pallas.core.GridMapping.grid",
        "yyyyy jax._src.pallas.core.CostEstimate.flops",
        "yyyyy <equation>.source_info.traceback.frames",
    ),
    *names(
        _FLOPS,
        "---yy <shard_map>.newly_manual_axes",
        "-yy-- <shard_map>.manual_axes",
        "y---- <shard_map>.auto",
        group="axes of a shard_map",
    ),
    *names(
        (
            catalog.FLOPS,
            catalog.IDEAL_SECONDS,
            catalog.PROGRAM_MATRIX_FLOPS,
            catalog.KEY_REUSE,
        ),
        "yyyyy <literal>.val",
    ),
    *names((catalog.KEY_REUSE,), "yyyyy <jaxpr>.invars"),
    *names(
        ("keys that are drawn from outside of jitted functions",),
        "yyy-- jax._src.random._check_prng_key",
        "---yy jax._src.random.core._check_prng_key",
        group="keys",
        hook="draws",
        replaced=True,
    ),
    *names(
        ("copies of arguments by a donation that has no effect",),
        "yyyyy <jitted inside>.donated_invars",
    ),
    *names(
        _REPEATED,
        "-yyyy jax._src.ffi:ffi_call(has_side_effect)",
        "y---- jax._src.extend.ffi:ffi_call(has_side_effect)",
        group="side effects of foreign functions",
    ),
)

CACHE = (
    *names(
        _WRITES,
        "yyyyy jax._src.compiler._cache_write",
        hook="persistent_cache",
        replaced=True,
    ),
    *names(
        _WRITES,
        "yyyyy jax._src.compiler:_compile_and_write_cache({cache_key "
        "module_name compile_time host_callbacks})",
    ),
    *names(
        _CACHE_ERRORS,
        "yyyyy jax._src.compiler.warnings",
        hook="persistent_cache",
        replaced=True,
    ),
    *names(
        _CACHE_ERRORS,
        "yyyyy jax._src.compiler:_cache_write({cache_key module_name})",
        "yyyyy jax._src.compiler:_cache_read(cache_key)",
        "yyyyy jax._src.compiler:_is_executable_in_cache(cache_key)",
    ),
    *names(
        _TOO_LARGE,
        "yyyyy jax._src.lru_cache.warnings",
        hook="persistent_cache",
        replaced=True,
    ),
    *names(_TOO_LARGE, "yyyyy jax._src.lru_cache:LRUCache.put"),
    *names(
        ("obstacles not_in_use and unusable_directory",),
        "yyyyy jax._src.compilation_cache.{_cache _cache_initialized "
        "_cache_checked _cache_used}",
        "yyyyy jax._src.path.epath_installed",
        "yyyyy <persistent cache>._path",
        "---yy jax.config.jax_compilation_cache_check_contents",
    ),
    *names(
        ("the obstacle path_in_key",),
        "yyyyy jax._src.compilation_cache.decompress_executable",
        "yyyyy jax._src.lib.xla_client.CompileOptions",
        "yyyyy jax._src.cache_key._hash_serialized_compile_options",
        "yyyyy <compile options>.executable_build_options.debug_options."
        "{xla_gpu_per_fusion_autotune_cache_dir xla_gpu_kernel_cache_file}",
    ),
    *names(
        ("the obstacle not_writer", "the place of a process in its job"),
        "yyyyy jax._src.distributed.global_state.process_id",
    ),
    *names(
        ("the cause of compiles of a job that a shared cache does not save",),
        "yyyyy jax._src.lib.xla_client.get_topology_for_devices",
    ),
)
