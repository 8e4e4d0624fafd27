"""Names on the path of a call: what makes jitted functions, and what a miss runs."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_MISSES: Costs = (catalog.JIT_CACHE_MISSES, catalog.JIT_CACHE_HITS, catalog.RECOMPILES)
_LABEL: Costs = ("the function label of misses and compiles",)
_AHEAD: Costs = ("the function label of compiles ahead of time",)
_PMAP: Costs = ("the function label of what jax.pmap makes",)
_EVAL_SHAPE: Costs = ("static arguments in jax.eval_shape of a counted function",)
_SAMPLES: Costs = (
    catalog.DISPATCH_SECONDS,
    catalog.EXECUTION_SECONDS,
    catalog.NONFINITE,
)

CALLS = (
    Name(
        "jax._src.core.trace_state_clean",
        "tells calls of the program from those that JAX makes while it traces",
        (*_MISSES, catalog.COMPILES, catalog.ERRORS, catalog.HOST_TRANSFERS, *_SAMPLES),
        hook="misses",
    ),
    Name(
        "jax._src.pjit._cpp_pjit",
        "makes each jitted object; ours counts its calls",
        (catalog.JIT_CALLS, catalog.JIT_CACHE_HITS),
        hook="calls",
        replaced=True,
    ),
    Name(
        "jax.pmap",
        "the same for pmap; public, but may go",
        ("calls of what jax.pmap makes",),
        replaced=True,
    ),
    Name(
        "jax._src.api.jit",
        "hands JAX's own object to eval_shape",
        _EVAL_SHAPE,
        hook="calls",
        replaced=True,
    ),
    Name(
        "jax._src.api:eval_shape(fun)",
        "holds the counted function that is to be unwrapped",
        _EVAL_SHAPE,
    ),
    Name(
        "<jitted>.__class__.PjitFunction",
        "the name of JAX's class, which ours has as well",
        ("libraries that know a jitted function by that name",),
    ),
    Name(
        "<jitted>._cache_size",
        "says whether JAX has programs of a function",
        ("compiles before a budget began",),
    ),
    Name(
        "<jitted>._fun",
        "the user's function of a jitted object",
        _AHEAD,
    ),
    Name(
        "<jitted>._jit_info",
        "its PjitInfo, which says whether it donates arguments",
        _AHEAD,
        "-yyyy",
    ),
    Name(
        "jax._src.export._export.Exported.fun_name",
        "names exported programs",
        ("the label of exported programs",),
    ),
)

MISSES = (
    Name(
        "jax._src.pjit._infer_params",
        "asked at each miss of jit",
        _MISSES,
        hook="misses",
        replaced=True,
    ),
    Name(
        "jax._src.api._cpp_pmap",
        "there where pmap has a cache of its own",
        ("misses of what jax.pmap makes",),
        "yyy--",
    ),
    Name(
        "jax._src.api._prepare_pmap",
        "asked at each miss of a pmap with a cache of its own",
        ("misses of what jax.pmap makes",),
        "yyy--",
        replaced=True,
    ),
    Name(
        "jax._src.pjit._get_fastpath_data",
        "asked when a missed call has succeeded",
        ("why a call missed that compiled nothing",),
        replaced=True,
    ),
    Name(
        "jax._src.pjit:_cpp_pjit.cache_miss",
        "serves a missed call of jit; a copy of its code tells whose",
        _LABEL,
    ),
    *each(
        "jax._src.pjit:_cpp_pjit.cache_miss(*)",
        "fun jit_info args kwargs executable",
        "the function, its PjitInfo, the arguments and the program of a missed call",
        (*_LABEL, catalog.RECOMPILES),
    ),
    Name(
        "jax._src.api:_cpp_pmap.cache_miss",
        "serves a missed call of a pmap with a cache of its own",
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
        ("why a call missed that compiled nothing",),
    ),
)

AHEAD = (
    Name(
        "jax._src.pjit:jit_trace(jit_func)",
        "the jitted object that is traced or lowered ahead of time",
        _AHEAD,
        "-yyyy",
        "ahead of time",
    ),
    *each(
        "jax._src.pjit:_make_jit_wrapper.trace(*)",
        "fun jit_info",
        "the same, as its parts",
        _AHEAD,
        seen="y----",
        group="ahead of time",
    ),
)

SAMPLING = (
    Name(
        "jax._src.api._nan_check_posthook",
        "JAX's own look at each call, put back when it is asked for",
        _SAMPLES,
        hook="sampling",
    ),
    *each(
        "jax._src.api._post_hook_state.*",
        "get_global set_global get_local set_local",
        "the place for a look at each cached call",
        _SAMPLES,
        seen="--yyy",
        group="place after a call",
        hook="sampling",
    ),
    Name(
        "jax._src.config.config_ext.unset",
        "what that place holds on a thread where nothing is set",
        _SAMPLES,
        "-yyyy",
    ),
    *each(
        "jax._src.lib.jax_jit.*",
        "global_state thread_local_state",
        "the same place, as an attribute of these",
        _SAMPLES,
        seen="yy---",
        group="place after a call",
        hook="sampling",
    ),
    *each(
        "jax._src.config.*",
        "debug_nans debug_infs",
        "settings that ask for JAX's own look",
        _SAMPLES,
        hook="sampling",
    ),
    Name(
        "jax._src.config.debug_nans.get_global",
        "their values for all threads",
        _SAMPLES,
        "-yyyy",
        "value of a setting",
    ),
    Name(
        "jax._src.config.debug_nans._value",
        "the same, to 0.4",
        _SAMPLES,
        "y----",
        "value of a setting",
    ),
    Name(
        "<key>._base_array",
        "the array inside an array of keys, which can say whether it is ready",
        (catalog.EXECUTION_SECONDS,),
    ),
    *each(
        "<array>.*",
        "is_deleted is_ready",
        "asked together: to 0.10 a deleted array crashes when asked the second",
        (catalog.EXECUTION_SECONDS, catalog.NONFINITE),
    ),
)
