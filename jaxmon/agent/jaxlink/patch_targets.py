"""
Functions and classes of JAX that jaxmon replaces, by release.

Each function raises `AttributeError` if the installed JAX lacks its target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmon.agent.jaxlink.configuration import is_calling


class Target(NamedTuple):
    """An attribute that JAX looks up in its module, or class, on each use."""

    owner: Any
    name: str


def misses(jax: Any) -> list[Target]:
    """Return the functions called on every miss, and ahead of time."""
    source: Any = jax._src  # noqa: SLF001 - no public way, here and below
    found = [_place(jax, source.pjit, "_infer_params")]
    # pmap had its own cache up to 0.7; since 0.8 _prepare_pmap only checks arguments.
    if hasattr(source.api, "_cpp_pmap") and hasattr(source.api, "_prepare_pmap"):
        found.append(Target(source.api, "_prepare_pmap"))
    return found


def completed_misses(jax: Any) -> list[Target]:
    """Return the function called when a missed call has succeeded, if there is one."""
    pjit: Any = jax._src.pjit  # noqa: SLF001
    name = "_get_fastpath_data"
    return [Target(pjit, name)] if hasattr(pjit, name) else []


def compiles(jax: Any) -> Target:
    """
    Return the function that compiles a program or finds it in the persistent cache.
    """
    return _place(jax, jax._src.compiler, "compile_or_get_cached")  # noqa: SLF001


def builds(jax: Any) -> list[Target]:
    """Return the functions that call XLA for a program not found there."""
    compiler: Any = jax._src.compiler  # noqa: SLF001
    names = ("backend_compile", "backend_compile_and_load")  # up to 0.8; since 0.6
    return [Target(compiler, name) for name in names if hasattr(compiler, name)]


def cache_writes(jax: Any) -> Target:
    """Return the function that writes a program to the persistent cache."""
    return _place(jax, jax._src.compiler, "_cache_write")  # noqa: SLF001


def warners(jax: Any) -> tuple[Target, Target]:
    """
    Return where JAX looks up ``warnings`` to report entries that could not be read or
    written, and entries that are too large.
    """
    source: Any = jax._src  # noqa: SLF001
    return Target(source.compiler, "warnings"), Target(source.lru_cache, "warnings")


def traceback_filter(jax: Any) -> Target:
    """Return the function called when an error leaves a function of JAX."""
    return _place(jax, jax._src.traceback_util, "_filtering_mode")  # noqa: SLF001


def deleted_check(jax: Any) -> Target:
    """Return the method that raises if an array read from Python is deleted."""
    kind: Any = jax._src.array.ArrayImpl  # noqa: SLF001
    return Target(kind, "_check_if_deleted")


def jit_maker(jax: Any) -> Target:
    """Return the function that creates jitted objects."""
    return Target(jax._src.pjit, "_cpp_pjit")  # noqa: SLF001


def pmap_maker(jax: Any) -> Target | None:
    """
    Return the function that creates pmaps: up to 0.7 ``_cpp_pmap``, since then
    `jax.pmap` inside the wrapper that filters its tracebacks; `None` without a
    `jax.pmap`, which may be removed, with calls still to count.
    """
    if "pmap" not in vars(jax):
        return None
    source: Any = jax._src  # noqa: SLF001
    # JAX's own: the program may have wrapped the public name.
    pmap = source.api.pmap if hasattr(source.api, "pmap") else source.pmap.pmap
    if not hasattr(pmap, "__wrapped__"):
        return Target(source.api, "_cpp_pmap")
    for cell in pmap.__closure__:
        if cell.cell_contents is pmap.__wrapped__:
            return Target(cell, "cell_contents")
    msg = "jax.pmap is made in a different way"
    raise AttributeError(msg)


def _place(jax: Any, owner: Any, name: str) -> Target:
    """Return a target whose observers need `is_calling`."""
    is_calling(jax)
    getattr(owner, name)
    return Target(owner, name)
