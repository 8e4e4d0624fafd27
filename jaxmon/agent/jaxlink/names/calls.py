"""Names on the path of a call: creation of jitted functions, and the miss path."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_MISSES: Costs = (catalog.JIT_CACHE_MISSES, catalog.JIT_CACHE_HITS, catalog.RECOMPILES)
_LABEL: Costs = ("the function label of misses and compiles",)
_AHEAD: Costs = ("the function label of compiles ahead of time",)
_JIT_LINE: Costs = ("the line that jits: whose function it is, and new_function",)
_TRANSFORMED: Costs = ("recompiles under transformations", catalog.RECOMPILES)
_PMAP: Costs = ("the function label for jax.pmap",)
_EVAL_SHAPE: Costs = ("static arguments in jax.eval_shape of a counted function",)
_SAMPLES: Costs = (
    catalog.DISPATCH_SECONDS,
    catalog.EXECUTION_SECONDS,
    catalog.NONFINITE,
)

CALLS = (
    Name(
        "jax._src.core.trace_state_clean",
        "distinguishes calls of the program from those that JAX makes while tracing",
        (*_MISSES, catalog.COMPILES, catalog.ERRORS, catalog.HOST_TRANSFERS, *_SAMPLES),
        hook="misses",
    ),
    Name(
        "jax._src.pjit._cpp_pjit",
        "creates each jitted object; ours counts its calls",
        (catalog.JIT_CALLS, catalog.JIT_CACHE_HITS),
        hook="calls",
        replaced=True,
    ),
    Name(
        "jax.pmap",
        "the same for pmap, inside JAX's wrapper; public, but may be removed",
        ("calls of functions from jax.pmap",),
    ),
    Name(
        "jax._src.api.jit",
        "called by eval_shape; ours passes JAX's own object to it",
        _EVAL_SHAPE,
        hook="calls",
    ),
    Name(
        "jax._src.api:eval_shape(fun)",
        "contains the counted function to unwrap",
        _EVAL_SHAPE,
    ),
    Name(
        "<jitted>.__class__.PjitFunction",
        "the name of JAX's class, which ours has as well",
        ("libraries that recognise jitted functions by that name",),
    ),
    Name(
        "<jitted>._cache_size",
        "whether JAX has compiled a function",
        ("compiles before a budget started",),
    ),
    Name(
        "<jitted>._fun",
        "the user's function of a jitted object",
        _AHEAD,
    ),
    Name(
        "<jitted>._jit_info",
        "its PjitInfo: whether it donates arguments",
        _AHEAD,
        "-yyyy",
    ),
    Name(
        "jax._src.pjit:make_jit",
        "between the line that jits and _cpp_pjit, like api.jit and pjit.pjit",
        _JIT_LINE,
    ),
    Name(
        "jax._src.tree_util._HashableCallableShim",
        "what a Partial holds, such as a result of jax.linearize",
        ("the label of such functions",),
    ),
    Name(
        "jax._src.export._export.Exported.fun_name",
        "identifies exported programs",
        ("the label of exported programs",),
    ),
)

MISSES = (
    Name(
        "jax._src.pjit._infer_params",
        "called on each miss of jit",
        _MISSES,
        hook="misses",
        replaced=True,
    ),
    Name(
        "jax._src.api._cpp_pmap",
        "present if pmap has its own cache; up to 0.7 creates each pmap",
        ("calls and misses of functions from jax.pmap",),
        "yyy--",
        replaced=True,
    ),
    Name(
        "jax._src.api._prepare_pmap",
        "called on each miss of a pmap with its own cache",
        ("misses of functions from jax.pmap",),
        "yyy--",
        replaced=True,
    ),
    Name(
        "jax._src.pjit._get_fastpath_data",
        "called when a missed call has succeeded",
        ("reasons of misses without a compile",),
        replaced=True,
    ),
    Name(
        "jax._src.pjit:_cpp_pjit.cache_miss",
        "serves a missed call of jit; a copy of its code identifies the function",
        _LABEL,
    ),
    *each(
        "jax._src.pjit:_cpp_pjit.cache_miss(*)",
        "fun jit_info args kwargs executable",
        "the function, its PjitInfo, the arguments and the program of a missed call",
        (*_LABEL, catalog.RECOMPILES),
    ),
    Name(
        "jax._src.pjit:_pjit_call_impl_python",
        "compiles a program of jit, also one of a transformed function",
        _TRANSFORMED,
    ),
    *each(
        "jax._src.pjit:_pjit_call_impl_python(*)",
        "args jaxpr name",
        "the operands, the program and its name",
        _TRANSFORMED,
    ),
    Name(
        "jax._src.core.Tracer",
        "distinguishes arrays from the arguments of a transformed call",
        (catalog.RECOMPILES,),
    ),
    Name(
        "jax._src.api:_cpp_pmap.cache_miss",
        "serves a missed call of a pmap with its own cache",
        _PMAP,
        "yyy--",
    ),
    Name(
        "jax._src.pjit:_python_pjit_helper",
        "called by cache_miss, with the arguments as JAX sees them",
        _MISSES,
        "yyy--",
        "helper",
    ),
    Name(
        "jax._src.pjit:_run_python_pjit",
        "the same since 0.10",
        _MISSES,
        "---yy",
        "helper",
    ),
    *each(
        "<jitted call>.unsafe_call.*",
        "ordered_effects has_unordered_effects has_host_callbacks",
        "effects of a program, which keep its calls off the fast path",
        ("reasons of misses without a compile",),
    ),
)

AHEAD = (
    Name(
        "jax._src.pjit:jit_trace(jit_func)",
        "the jitted object traced or lowered ahead of time",
        _AHEAD,
        "-yyyy",
        "ahead of time",
    ),
    *each(
        "jax._src.pjit:_make_jit_wrapper.trace(*)",
        "fun jit_info",
        "the same, as separate parts",
        _AHEAD,
        seen="y----",
        group="ahead of time",
    ),
)

SAMPLING = (
    Name(
        "jax._src.api._nan_check_posthook",
        "JAX's own check of each call, restored when enabled",
        _SAMPLES,
        hook="sampling",
    ),
    *each(
        "jax._src.api._post_hook_state.*",
        "get_global set_global get_local set_local",
        "the hook after each cached call",
        _SAMPLES,
        seen="--yyy",
        group="hook after a call",
        hook="sampling",
    ),
    Name(
        "jax._src.config.config_ext.unset",
        "the value of that hook on a thread where it is not set",
        _SAMPLES,
        "-yyyy",
    ),
    *each(
        "jax._src.lib.jax_jit.*",
        "global_state thread_local_state",
        "the same hook, as an attribute of these",
        _SAMPLES,
        seen="yy---",
        group="hook after a call",
        hook="sampling",
    ),
    *each(
        "jax._src.config.*",
        "debug_nans debug_infs",
        "settings that enable JAX's own check",
        _SAMPLES,
        hook="sampling",
    ),
    Name(
        "jax._src.config.debug_nans.get_global",
        "their global values",
        _SAMPLES,
        "-yyyy",
        "value of a setting",
    ),
    Name(
        "jax._src.config.debug_nans._value",
        "the same, up to 0.4",
        _SAMPLES,
        "y----",
        "value of a setting",
    ),
    Name(
        "<key>._base_array",
        "the array inside an array of PRNG keys, which has is_ready",
        (catalog.EXECUTION_SECONDS,),
    ),
    Name(
        "<key>._impl",
        "its kind of generator, for a copy",
        ("determinism checks of calls that donate keys",),
    ),
    *each(
        "<array>.*",
        "is_deleted is_ready",
        "read together: up to 0.10 the second crashes for a deleted array",
        (catalog.EXECUTION_SECONDS, catalog.NONFINITE),
    ),
    Name(
        "jax._src.pjit:_cpp_pjit.cache_miss(outs)",
        "what a missed call returns",
        ("inspection of values that missed calls return",),
    ),
)
