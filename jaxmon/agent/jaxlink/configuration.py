"""
The part of JAX's configuration that compiled programs depend on, with names.

JAX keys its caches by ``config.trace_context()``, a tuple. Since 0.10.2 JAX provides
the names; up to 0.7 the function is Python and its code lists what it reads; in
between, known settings are read one by one, followed by the whole tuple without names,
for settings that JAX has added and contexts that a program creates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.inspection import field_of, name_of
from jaxmon.agent.jaxlink.jit import is_class
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder, set_at
from jaxmon.tuples import NamedTuple


class Configuration(NamedTuple):
    """Settings by public name, empty if it is there twice, and their current values."""

    names: tuple[str, ...]
    values: Callable[[], tuple[Any, ...]]


# Settings in the trace context of 0.6.2 and 0.10.2 that a program may change.
_KNOWN = (
    *("mesh_context_manager", "abstract_mesh_context_manager"),
    *("compute_on_context_manager", "xla_metadata_context_manager", "debug_key_reuse"),
    *("random_seed_offset", "threefry_partitionable", "threefry_gpu_kernel_lowering"),
    *("use_direct_linearize", "_check_vma", "softmax_custom_jvp", "enable_pgle"),
    *("pgle_profiling_runs", "explicit_x64_dtypes", "numpy_dtype_promotion"),
    *("error_checking_behavior_nan", "error_checking_behavior_divide"),
    *("error_checking_behavior_oob", "enable_x64", "default_device", "disable_jit"),
    *("numpy_rank_promotion", "default_matmul_precision", "eager_constant_folding"),
    *("no_execution", "jax_xla_profile_version", "use_shardy_partitioner"),
    "use_high_dynamic_range_gumbel",
)


def context_of(jax: Any) -> Configuration:
    """Return the configuration that compiled programs depend on."""
    config = getattr(jax._src, "config", None)  # noqa: SLF001 - no public way
    context = getattr(config, "trace_context", None)
    if context is None:
        return _read_one_by_one(config, tuple)
    count = len(context())
    tell = getattr(config, "trace_context_names", None)
    if tell is not None:
        names: tuple[str, ...] = ()
        with interrupts.expected(NotImplementedError):  # with an older jaxlib
            names = tuple(tell())
        if len(names) == count:
            return Configuration(names, context)
    code = getattr(context, "__code__", None)
    read = [name for name in code.co_names if name != "value"] if code else []
    names = tuple(_public(config, name) for name in read[len(read) - count :])
    if len(names) == count:
        return Configuration(names, context)
    return _read_one_by_one(config, context)


DEBUGGING = (
    *("jax_debug_nans", "jax_debug_infs", "jax_disable_jit", "jax_enable_checks"),
    "jax_debug_key_reuse",
)
"""Settings for debugging, which are slow."""


def debugging(jax: Any) -> dict[str, str]:
    """Return settings for debugging that are on, with the one line that sets each."""
    found = {}
    for name in DEBUGGING:
        if getattr(jax.config, name, False) is True:
            found[name] = set_at(name, SourceLineFinder(jax))
    return found


def surroundings(jax: Any) -> Callable[[], object]:
    """Return a function that returns the configuration of the calling thread."""
    values, config = context_of(jax).values, jax.config
    return lambda: (values(), config.jax_default_device)


def inside(value: object) -> object:
    """Return the user's value behind *value* of the configuration."""
    kind = type(value)
    if name_of(kind) == "XlaMetadata" and is_class(kind):
        return field_of(value, "val")
    return value


def _read_one_by_one(
    config: Any, context: Callable[[], tuple[Any, ...]]
) -> Configuration:
    states = [
        (_public(config, name), getattr(config, name))
        for name in _KNOWN
        if hasattr(getattr(config, name, None), "value")
    ]

    def values() -> tuple[Any, ...]:
        return (*[state.value for _, state in states], *context())

    names = [name for name, _ in states]
    return Configuration((*names, *[""] * len(context())), values)


def _public(config: Any, name: str) -> str:
    state = getattr(config, name, None)
    found = (getattr(state, attribute, None) for attribute in ("name", "_name"))
    return next((public for public in found if isinstance(public, str)), name)
