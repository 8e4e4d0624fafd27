"""
Functions and classes of JAX that jaxmon stands in for, by release.

Each of these raises `AttributeError` where the JAX at hand lacks what it is asked for.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from jaxmon.agent.jaxlink.configuration import is_calling


class Place(NamedTuple):
    """An attribute of a module of JAX, which looks it up there at each use."""

    owner: ModuleType
    name: str


def misses(jax: Any) -> list[Place]:
    """Return what is asked on every miss, and ahead of time."""
    source: Any = jax._src  # noqa: SLF001 - no public way, here and below
    found = [_place(jax, source.pjit, "_infer_params")]
    # pmap had its own cache to 0.7; since 0.8 _prepare_pmap only checks arguments.
    if hasattr(source.api, "_cpp_pmap") and hasattr(source.api, "_prepare_pmap"):
        found.append(Place(source.api, "_prepare_pmap"))
    return found


def settled(jax: Any) -> list[Place]:
    """Return what is asked when a missed call has succeeded, if anything is."""
    pjit: Any = jax._src.pjit  # noqa: SLF001
    name = "_get_fastpath_data"
    return [Place(pjit, name)] if hasattr(pjit, name) else []


def compiles(jax: Any) -> Place:
    """Return what compiles a program, or finds it in the persistent cache."""
    return _place(jax, jax._src.compiler, "compile_or_get_cached")  # noqa: SLF001


def builds(jax: Any) -> list[Place]:
    """Return what calls XLA, for a program that was not found there."""
    compiler: Any = jax._src.compiler  # noqa: SLF001
    names = ("backend_compile", "backend_compile_and_load")  # to 0.8; since 0.6
    return [Place(compiler, name) for name in names if hasattr(compiler, name)]


def cache_writes(jax: Any) -> Place:
    """Return what writes a program to the persistent cache."""
    return _place(jax, jax._src.compiler, "_cache_write")  # noqa: SLF001


def warners(jax: Any) -> tuple[Place, Place]:
    """
    Return where the ``warnings`` are looked up that tell of entries which could not be
    read or written, and of those that are too large.
    """
    source: Any = jax._src  # noqa: SLF001
    return Place(source.compiler, "warnings"), Place(source.lru_cache, "warnings")


def leaving(jax: Any) -> Place:
    """Return what is asked as an error leaves a function of JAX."""
    return _place(jax, jax._src.traceback_util, "_filtering_mode")  # noqa: SLF001


def jit_maker(jax: Any) -> Place:
    """Return what makes each jitted object."""
    return Place(jax._src.pjit, "_cpp_pjit")  # noqa: SLF001


def _place(jax: Any, owner: Any, name: str) -> Place:
    """Return a place whose observers ask whether the program itself is calling."""
    is_calling(jax)
    getattr(owner, name)
    return Place(owner, name)
