"""Names for calls, their arguments and their samples."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.name import Costs, names


_EVAL_SHAPE: Costs = ("static arguments in jax.eval_shape of a counted function",)
_AHEAD: Costs = ("the function label of compiles ahead of time",)
_MISSES: Costs = (catalog.JIT_CACHE_MISSES, catalog.JIT_CACHE_HITS, catalog.RECOMPILES)
_REASONS: Costs = ("reasons of misses without a compile",)
_CAUSES: Costs = (catalog.RECOMPILES,)
_PMAP: Costs = ("label and causes of functions from jax.pmap",)
_OPTIONS: Costs = ("recompiles by the cause options",)
_CONTEXT: Costs = ("recompiles by the cause context",)
_SHARDING: Costs = ("recompiles by the causes sharding and committed",)
_SAMPLES: Costs = (
    catalog.DISPATCH_SECONDS,
    catalog.EXECUTION_SECONDS,
    catalog.NONFINITE,
)

CALLS = (
    *names(
        (
            catalog.JIT_CACHE_MISSES,
            catalog.JIT_CACHE_HITS,
            catalog.RECOMPILES,
            catalog.COMPILES,
            catalog.ERRORS,
            catalog.HOST_TRANSFERS,
            catalog.DISPATCH_SECONDS,
            catalog.EXECUTION_SECONDS,
            catalog.NONFINITE,
        ),
        "yyyyy jax._src.core.trace_state_clean",
        hook="misses",
    ),
    *names(
        (catalog.JIT_CALLS, catalog.JIT_CACHE_HITS),
        "yyyyy jax._src.pjit._cpp_pjit",
        hook="calls",
        replaced=True,
    ),
    *names(("calls of functions from jax.pmap",), "yyyyy jax.pmap"),
    *names(_EVAL_SHAPE, "yyyyy jax._src.api.jit", hook="calls"),
    *names(_EVAL_SHAPE, "yyyyy jax._src.api:eval_shape(fun)"),
    *names(
        ("libraries that recognise jitted functions by that name",),
        "yyyyy <jitted>.__class__.PjitFunction",
    ),
    *names(("compiles before a budget started",), "yyyyy <jitted>._cache_size"),
    *names(_AHEAD, "yyyyy <jitted>._fun", "-yyyy <jitted>._jit_info"),
    *names(
        ("the line that jits: whose function it is, and new_function",),
        "yyyyy jax._src.pjit:make_jit",
    ),
    *names(
        ("the label of such functions",),
        "yyyyy jax._src.tree_util._HashableCallableShim",
    ),
    *names(
        ("the label of exported programs",),
        "yyyyy jax._src.export._export.Exported.fun_name",
    ),
)

MISSES = (
    *names(_MISSES, "yyyyy jax._src.pjit._infer_params", hook="misses", replaced=True),
    *names(
        ("calls and misses of functions from jax.pmap",),
        "yyy-- jax._src.api._cpp_pmap",
        replaced=True,
    ),
    *names(
        ("misses of functions from jax.pmap",),
        "yyy-- jax._src.api._prepare_pmap",
        replaced=True,
    ),
    *names(_REASONS, "yyyyy jax._src.pjit._get_fastpath_data", replaced=True),
    *names(
        ("the function label of misses and compiles",),
        "yyyyy jax._src.pjit:_cpp_pjit.cache_miss",
    ),
    *names(
        ("the function label of misses and compiles", catalog.RECOMPILES),
        "yyyyy jax._src.pjit:_cpp_pjit.cache_miss({fun jit_info args kwargs "
        "executable})",
    ),
    *names(
        ("recompiles under transformations", catalog.RECOMPILES),
        "yyyyy jax._src.pjit:_pjit_call_impl_python",
        "yyyyy jax._src.pjit:_pjit_call_impl_python({args jaxpr name})",
    ),
    *names(_CAUSES, "yyyyy jax._src.core.Tracer"),
    *names(
        ("the function label for jax.pmap",), "yyy-- jax._src.api:_cpp_pmap.cache_miss"
    ),
    *names(
        _MISSES,
        "yyy-- jax._src.pjit:_python_pjit_helper",
        "---yy jax._src.pjit:_run_python_pjit",
        group="helper",
    ),
    *names(
        _REASONS,
        "yyyyy <jitted call>.unsafe_call.{ordered_effects has_unordered_effects "
        "has_host_callbacks}",
    ),
)

ARGUMENTS = (
    *names(
        _CAUSES,
        "yyy-- jax._src.pjit:_python_pjit_helper({p args_flat})",
        "---yy jax._src.pjit:_run_python_pjit({p args_flat})",
        group="leaves of a call",
    ),
    *names(_CAUSES, "yyyyy jax._src.pjit.PjitParams.{in_avals in_tree}"),
    *names(
        ("names of arguments in the differences of a recompile",),
        "yyyyy jax._src.pjit.PjitParams.arg_names",
        'y---- "<flat index "',
    ),
    *names(
        _PMAP,
        "-yyyy jax._src.core.shaped_abstractify",
        "y---- jax._src.api_util.shaped_abstractify",
        group="abstract value",
    ),
    *names(
        ("recompiles by the cause new_function", "labels of compiles ahead of time"),
        "yyyyy jax._src.pjit.PjitInfo.fun_sourceinfo",
    ),
    *names(
        ("recompiles by the cause options", "recompiles by the cause static_argument"),
        "yyyyy jax._src.pjit.PjitInfo.{static_argnums static_argnames}",
    ),
    *names(
        _OPTIONS,
        "yyyyy jax._src.pjit.PjitInfo.{donate_argnums donate_argnames "
        "in_shardings_leaves out_shardings_leaves in_layouts_leaves "
        "out_layouts_leaves device backend keep_unused inline}",
        "-yyyy jax._src.pjit.PjitInfo.compiler_options_kvs",
        "yyyyy jax._src.sharding_impls.UnspecifiedValue",
        "----y jax._src.api.Inline.AUTO",
    ),
)

PMAP = (
    *names(
        _PMAP,
        "-yy-- jax._src.api:_cpp_pmap.cache_miss(prepare_pmap_fn)",
        "y---- jax._src.api:_cpp_pmap.cache_miss({fun in_axes out_axes "
        "static_broadcasted_tuple donate_tuple devices axis_size})",
        group="options of pmap",
    ),
    *names(
        _PMAP,
        "yyy-- jax._src.api:_cpp_pmap.cache_miss({axis_name backend p})",
        "yyy-- jax._src.api.PmapCallInfo.{flat_args in_tree}",
        '---yy "jax._src.pmap"',
        '--y-- "jax._src.linear_util"',
        "--yyy jax._src.pmap:pmap.wrapped({infer_params args kwargs})",
        "---yy jax._src.pmap.CachedShardMap.pmapped",
        "--yyy jax._src.pmap:pmap.lower(infer_params)",
        "--yyy jax._src.pmap:pmap.infer_params({static_broadcasted_tuple "
        "in_axes donate_tuple devices backend axis_size axis_name})",
    ),
    *names(
        _PMAP,
        "--y-- jax._src.pmap:pmap.wrapped(p)",
        "---yy jax._src.pmap:pmap.wrapped({cached dyn_args_flat})",
        group="leaves of a pmap",
    ),
    *names(
        _PMAP,
        "--y-- jax._src.pmap:pmap.infer_params(f)",
        "---yy jax._src.pmap:pmap.infer_params(wrapped_fun)",
        group="function of a pmap",
    ),
    *names(
        _OPTIONS,
        "--y-- jax._src.pmap:pmap.infer_params(out_axes)",
        "---yy jax._src.pmap:pmap.infer_params(out_axes_flat)",
        group="out_axes of a pmap",
    ),
    *names(
        _OPTIONS,
        "yyyyy jax._src.core._TempAxisName",
        '---yy "_internal_"',
        'yyyyy "<axis 0x"',
    ),
)

CONFIGURATION = (
    *names(
        _CONTEXT,
        "yyyyy jax._src.config.trace_context",
        "---yy jax._src.config.trace_context_names",
        "yyyyy jax._src.config.enable_x64.value",
    ),
    *names(
        _CONTEXT,
        "--yyy jax._src.config.enable_x64.name",
        "yyyyy jax._src.config.enable_x64._name",
        group="name of a setting",
    ),
    *names(
        _CONTEXT,
        "--yyy jax._src.xla_metadata_lib.XlaMetadata",
        "-y--- jax._src.xla_metadata.XlaMetadata",
        group="metadata",
    ),
)

ARRAYS = (
    *names(
        _SHARDING,
        "yyyyy <array>._committed",
        "yyyyy <sharding>._internal_device_list",
        "yyyyy jax.sharding.{NamedSharding SingleDeviceSharding Mesh AbstractMesh}",
        "yyyyy jax._src.sharding_impls.GSPMDSharding",
        "-yyyy <mesh>.axis_types",
    ),
    *names(
        _SHARDING,
        "---yy <spec>.__class__.P",
        "yyy-- <spec>.__class__.PartitionSpec",
        group="class of a specification",
    ),
    *names(
        ("text of static arguments that are trees",), "yyyyy <tree>.__class__.PyTreeDef"
    ),
    *names(
        ("text of static arguments that are devices",),
        "yyyyy <device>.__class__.Device",
    ),
    *names(
        ("warm-up of signatures with such objects",),
        "yyyyy jax._src.tree_util._registry",
    ),
    *names((catalog.LIVE_ARRAY_BYTES,), "yyyyy <array>.on_device_size_in_bytes"),
)

AHEAD = (
    *names(
        _AHEAD,
        "-yyyy jax._src.pjit:jit_trace(jit_func)",
        "y---- jax._src.pjit:_make_jit_wrapper.trace({fun jit_info})",
        group="ahead of time",
    ),
)

SAMPLING = (
    *names(
        _SAMPLES,
        "yyyyy jax._src.api._nan_check_posthook",
        "yyyyy jax._src.config.{debug_nans debug_infs}",
        hook="sampling",
    ),
    *names(
        _SAMPLES,
        "--yyy jax._src.api._post_hook_state.{get_global set_global get_local "
        "set_local}",
        "yy--- jax._src.lib.jax_jit.{global_state thread_local_state}",
        group="hook after a call",
        hook="sampling",
    ),
    *names(_SAMPLES, "-yyyy jax._src.config.config_ext.unset"),
    *names(
        _SAMPLES,
        "-yyyy jax._src.config.debug_nans.get_global",
        "y---- jax._src.config.debug_nans._value",
        group="value of a setting",
    ),
    *names((catalog.EXECUTION_SECONDS,), "yyyyy <key>._base_array"),
    *names(("determinism checks of calls that donate keys",), "yyyyy <key>._impl"),
    *names(
        (catalog.EXECUTION_SECONDS, catalog.NONFINITE),
        "yyyyy <array>.{is_deleted is_ready}",
    ),
    *names(
        ("inspection of values that missed calls return",),
        "yyyyy jax._src.pjit:_cpp_pjit.cache_miss(outs)",
    ),
)
