"""
What `jax.jit` and `jax.pmap` were given that makes a difference to the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from jaxmon.agent.compiling.placements import placement_of
from jaxmon.agent.compiling.values import text_of


Options: TypeAlias = tuple[tuple[str, str], ...]
"""Options that are not the default, by name, in words."""

# JAX's variables, and what they are called here.
_PMAP = {
    "axis_name": "axis_name",
    "in_axes": "in_axes",
    "out_axes": "out_axes",
    "devices": "devices",
    "backend": "backend",
    "axis_size": "axis_size",
    "donate_tuple": "donated arguments",
}


def of_jit(info: Any) -> Options:
    """
    Return the options of a `jax.jit`.

    Args:
        info: JAX's ``PjitInfo``.
    """
    found = []
    # JAX works out the names for the numbers, where there are names.
    if given := info.donate_argnames or info.donate_argnums:
        found.append(("donated arguments", _list(given)))
    if given := info.static_argnames or info.static_argnums:
        found.append(("static arguments", _list(given)))
    if given := getattr(info, "compiler_options_kvs", ()):
        found.append(("compiler_options", _list(given)))
    if given := _shardings(info.in_shardings_leaves):
        found.append(("in_shardings", given))
    if given := _shardings(info.out_shardings_leaves):
        found.append(("out_shardings", given))
    for name in ("device", "backend", "keep_unused", "inline"):
        given = getattr(info, name, None)
        if given not in (None, False):
            found.append((name, text_of(given)))
    return tuple(found)


def of_pmap(given: Mapping[str, Any]) -> Options:
    """
    Return the options of a `jax.pmap`.

    Args:
        given: what it was given, by the names of JAX's variables.
    """
    return tuple(
        [
            (shown, text_of(value))
            for name, shown in _PMAP.items()
            if (value := given.get(name)) not in (None, (), 0) and not _made_up(value)
        ]
    )


def _made_up(value: object) -> bool:
    """
    Tell whether *value* is the name that JAX makes up for an axis without one.
    """
    return type(value).__name__ == "_TempAxisName" or (
        type(value) is str and value.startswith(("<axis 0x", "_internal_"))
    )


def _list(given: Iterable[object]) -> str:
    return ", ".join(map(str, given))


def _shardings(leaves: Iterable[Any]) -> str:
    texts = [
        # What JAX puts where nothing was given.
        ""
        if leaf is None or type(leaf).__name__ == "UnspecifiedValue"
        else placement_of(leaf).text
        if hasattr(leaf, "device_set")
        else text_of(leaf)
        for leaf in leaves
    ]
    return ", ".join(text or "any" for text in texts) if any(texts) else ""
