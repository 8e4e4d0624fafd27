"""Names for transfers, threads, errors, devices and the profiler."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.name import Costs, names


_TRANSFERS: Costs = (
    catalog.HOST_TRANSFERS,
    catalog.HOST_TRANSFER_BYTES,
    catalog.HOST_TRANSFER_SECONDS,
)
_SYNCS: Costs = (catalog.HOST_SYNCS, catalog.HOST_SYNC_SECONDS)
_ERRORS: Costs = (catalog.ERRORS,)
_ERRORS_OF_SYNCS: Costs = (
    catalog.ERRORS,
    catalog.OOM_REPORTS,
    "errors raised by syncs",
)
_STAGE: Costs = ("stage of a failure",)
_PROFILE: Costs = ("traces by /debug/profile",)

TRANSFERS = (
    *names(
        (
            catalog.HOST_TRANSFERS,
            catalog.HOST_TRANSFER_BYTES,
            catalog.HOST_TRANSFER_SECONDS,
            catalog.HOST_SYNCS,
            catalog.HOST_SYNC_SECONDS,
        ),
        "yyyyy jax._src.array.ArrayImpl",
        hook="transfers",
    ),
    *names(
        _TRANSFERS,
        "y---- jax._src.array.ArrayImpl._single_device_array_to_np_array",
        "-yyyy jax._src.array.ArrayImpl._single_device_array_to_np_array_did_copy",
        "----y jax._src.array.ArrayImpl._to_np_array_did_copy",
        group="reads",
        hook="transfers",
        replaced=True,
    ),
    *names(
        ("each shard would count as a transfer",),
        "yyyyy jax._src.array:ArrayImpl._value({self i})",
    ),
    *names(
        _SYNCS,
        "yyyyy jax._src.array.ArrayImpl.block_until_ready",
        hook="transfers",
        replaced=True,
    ),
    *names(
        _TRANSFERS,
        "--yyy jax._src.interpreters.pxla._jax.batched_device_put",
        "yyyyy jax._src.interpreters.pxla.xc.batched_device_put",
        group="sends",
        hook="transfers",
        replaced=True,
    ),
    *names(
        _TRANSFERS,
        "---yy jax._src.dispatch._jax.batched_device_put",
        "yyyyy jax._src.dispatch.xc.batched_device_put",
        group="sends, for dispatch",
        replaced=True,
    ),
    *names(
        _TRANSFERS,
        "yyyyy jax._src.interpreters.pxla:batched_device_put(xs)",
        "----y jax._src.interpreters.pxla:_shard_np_array(batch_xs)",
    ),
    *names(
        _TRANSFERS, "----y jax._src.interpreters.pxla._jax.shard_args", replaced=True
    ),
    *names(
        _SYNCS,
        "---yy jax._src.api._jax.batched_block_until_ready",
        "yyyyy jax._src.api.xc.batched_block_until_ready",
        group="block_until_ready of several",
        hook="transfers",
        replaced=True,
    ),
    *names(
        _TRANSFERS,
        "yyyyy jax._src.lax.lax._convert_element_type",
        "---yy jax._src.lax.lax.stage",
        group="last step of jnp.array",
        replaced=True,
    ),
    *names(
        _TRANSFERS,
        "--yyy jax._src.numpy.array_constructors:array({out object})",
        "-y--- jax._src.numpy.array:array({out object})",
        "y---- jax._src.numpy.lax_numpy:array({out object})",
        group="what jnp.array sends",
    ),
    *names(
        ("the name of the function that the program called",),
        "yyyyy jax._src.array:ArrayImpl.__array__",
        "yyyyy jax._src.api:_device_get",
        "yyyyy jax._src.api:block_until_ready.try_to_block",
        "yyyyy jax._src.numpy.array_methods:_item",
    ),
    *names(
        ("transfers of numbers",),
        "yyyyy jax._src.api:{device_put device_put_sharded device_put_replicated}",
    ),
    *names(
        ("calls that transfer nothing would be counted",),
        "yyyyy jax._src.interpreters.{mlir partial_eval}",
        "yyyyy jax._src.{callback debugging}",
    ),
)

ACTIVITY = (
    *names(
        (catalog.WALL_SECONDS,),
        "yyyyy jax._src.interpreters.partial_eval:trace_to_jaxpr_dynamic",
        "y-yy- jax._src.interpreters.partial_eval:trace_to_jaxpr",
        "----y jax._src.interpreters.partial_eval:trace_to_jaxpr_nocache",
        "yyyyy jax._src.interpreters.pxla:{lower_sharding_computation "
        "_cached_compilation}",
        "yyyyy jax._src.compiler:compile_or_get_cached",
        "yyyyy jax._src.interpreters.pxla:ExecuteReplicated.__call__",
        "--yyy jax._src.pmap:pmap.wrapped",
        "yyyyy jax._src.api:{block_until_ready device_get}",
        "yyyyy jax._src.array:ArrayImpl._value",
        "yyyyy jax._src.lib:_xla_gc_callback",
    ),
    *names(
        ("who is late at a barrier, in `jaxmon job why`",),
        "yyyyy jax._src.distributed:State.{initialize shutdown}",
        "yyyyy jax._src.xla_bridge:_init_backend",
    ),
    *names(
        ("whose callback holds up a job, in `jaxmon job why`",),
        "yyyyy jax._src.callback:_FlatCallback.__call__",
    ),
)

ERRORS = (
    *names(
        _ERRORS,
        "yyyyy jax._src.traceback_util._filtering_mode",
        hook="errors",
        replaced=True,
    ),
    *names(
        ("errors would be counted twice: on construction and on leaving JAX",),
        "yyyyy jax._src.traceback_util:api_boundary.reraise_with_filtered_traceback",
    ),
    *names(_ERRORS_OF_SYNCS, "yyyyy jax.errors.JaxRuntimeError", hook="runtime_errors"),
    *names(
        _ERRORS_OF_SYNCS,
        "yyyyy jax.errors.JaxRuntimeError.__init__",
        hook="runtime_errors",
        replaced=True,
    ),
    *names(
        _ERRORS,
        "yyyyy jax._src.array.ArrayImpl._check_if_deleted",
        hook="deleted_arrays",
        replaced=True,
    ),
    *names(
        ("the kind of some errors",),
        "---yy jax.errors.JaxRuntimeError.{error_code error_code_string}",
        "yyyyy jax._src.checkify",
        'yyyyy "Leaked trace"',
        'yyyyy "nan generated by primitive"',
        'yyyyy "Could not allocate"',
    ),
    *names(
        _ERRORS,
        'yy--- "XlaRuntimeError"',
        'yyyyy "Array has been deleted"',
        'yyyyy "invalid value ("',
        'yyyyy "Non-hashable static arguments are not supported"',
        'yyyyy "static arguments should be comparable using __eq__"',
        'yyyyy "Comparator raised exception while sorting pytree dictionary keys"',
        'yyyyy "std::bad_alloc"',
    ),
    *names(
        (catalog.JAX_WARNINGS, "the text of such a warning"),
        "yyyyy jax._src.interpreters.mlir:lower_jaxpr_to_module(unused_donations)",
        "yyyyy jax._src.deprecations:warn(message)",
    ),
    *names(
        ("errors would be counted twice",),
        "yyyyy jax._src.traceback_util.{UnfilteredStackTrace SimplifiedTraceback}",
        "yyyyy jax._src.source_info_util.JaxStackTraceBeforeTransformation",
    ),
    *names(
        ("the kind of some errors", catalog.KEY_REUSE),
        "yyyyy jax.errors.{KeyReuseError JAXTypeError JAXIndexError}",
    ),
    *names(
        _STAGE,
        "yyyyy jax._src.interpreters.mlir:lower_jaxpr_to_module",
        "yyyyy jax._src.dispatch:{_batched_device_put_impl _device_put_impl}",
    ),
    *names(
        _STAGE,
        "yyy-- jax._src.pjit:_create_pjit_jaxpr",
        "---yy jax._src.pjit:_trace_for_jit",
        group="traces",
    ),
    *names(
        (catalog.GRADIENT_CHECKS,),
        "yyyyy jax._src.public_test_util:{check_close _check_dtypes_match}",
    ),
)

DEVICES = (
    *names(
        (
            catalog.DEVICE_MEMORY_BYTES,
            catalog.LIVE_ARRAYS,
            catalog.DEVICE_INFO,
            catalog.RUNTIME_INFO,
            catalog.ACCELERATOR_UP,
        ),
        "yyyyy jax._src.xla_bridge.{_backends _backend_lock}",
    ),
    *names((catalog.RUNTIME_INFO,), "yyyyy jaxlib.__version__"),
    *names(
        ("the place of a process in its job",),
        "yyyyy jax._src.distributed.global_state.{client coordinator_address "
        "num_processes}",
    ),
)

PROFILER = (
    *names(
        _PROFILE,
        "yyyyy jax._src.profiler._profile_state.lock",
        "yyyyy <profile options>.{python_tracer_level host_tracer_level "
        "enable_hlo_proto}",
        "-yyyy <profile options>.raise_error_on_start_failure",
    ),
    *names(
        _PROFILE,
        "yyyy- jax._src.profiler._profile_state.profile_session",
        "----y jax._src.profiler._profile_state.session",
        group="session of the program",
    ),
    *names(
        _PROFILE,
        "-yyyy jax._src.lib._profiler.ProfilerSession",
        "y---- jax._src.lib.xla_client.profiler.ProfilerSession",
        group="profiler",
        replaced=True,
    ),
    *names(
        _PROFILE,
        "-yyyy jax._src.lib._profiler.ProfileOptions",
        "y---- jax._src.lib.xla_client.profiler.ProfileOptions",
        group="options of the profiler",
    ),
)
