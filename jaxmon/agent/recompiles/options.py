"""What `jax.jit` and `jax.pmap` were given that makes a difference to the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from jaxmon.agent.inspection import name_of, package_of
from jaxmon.agent.recompiles.placements import placement_of
from jaxmon.agent.recompiles.values import text_of, value_of


Options: TypeAlias = tuple[tuple[str, str, object], ...]
"""
Options that are not the default: name, words, and what differs where those do not.
"""

MADE_BY = "transformation"
"""The option that says which function of JAX made what is called."""

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


_LEAVES = (
    ("in_shardings", "in_shardings_leaves"),
    ("out_shardings", "out_shardings_leaves"),
    ("in_layouts", "in_layouts_leaves"),
    ("out_layouts", "out_layouts_leaves"),
)


def of_jit(info: Any) -> Options:
    """
    Return the options of a `jax.jit`.

    Args:
        info: JAX's ``PjitInfo``.
    """
    found: list[tuple[str, str, object]] = [(MADE_BY, "jax.jit", None)]
    # JAX works out the names for the numbers, where there are names.
    if given := info.donate_argnames or info.donate_argnums:
        found.append(("donated arguments", _list(given), None))
    if given := info.static_argnames or info.static_argnums:
        found.append(("static arguments", _list(given), None))
    if given := getattr(info, "compiler_options_kvs", ()):
        found.append(("compiler_options", _list(given), value_of(given).key))
    for name, attribute in _LEAVES:
        words, differs = _leaves(getattr(info, attribute, ()))
        if words:
            found.append((name, words, differs))
    for name in ("device", "backend", "keep_unused", "inline"):
        given = getattr(info, name, None)
        if given is not None and given is not False and not _is_auto(given):
            found.append((name, *_named(given)))
    return tuple(found)


def of_pmap(given: Mapping[str, Any]) -> Options:
    """
    Return the options of a `jax.pmap`.

    Args:
        given: what it was given, by the names of JAX's variables.
    """
    given = dict(given)
    if "out_axes" not in given and "out_axes_flat" in given:  # since 0.9
        axes = given["out_axes_flat"]
        given["out_axes"] = axes[0] if len(axes) == 1 else axes
    options = [
        (shown, *_named(value))
        for name, shown in _PMAP.items()
        if not _is_default(value := given.get(name)) and not _made_up(value)
    ]
    return ((MADE_BY, "jax.pmap", None), *options)


def _named(given: object) -> tuple[str, object]:
    value = value_of(given)
    return value.text, value.key


def _is_auto(given: object) -> bool:
    """Tell whether *given* is what JAX since 0.12 takes for `False`."""
    kind = type(given)
    return package_of(kind) == "jax" and getattr(given, "name", "") == "AUTO"


def _is_default(value: object) -> bool:
    kind = type(value)
    return (
        value is None or (kind is int and value == 0) or (kind is tuple and not value)
    )


def _made_up(value: object) -> bool:
    """Tell whether *value* is the name that JAX makes up for an axis without one."""
    return name_of(type(value)) == "_TempAxisName" or (
        type(value) is str and value.startswith(("<axis 0x", "_internal_"))
    )


def _list(given: Iterable[object]) -> str:
    return ", ".join([one if type(one) is str else text_of(one) for one in given])


def _leaves(leaves: Iterable[Any]) -> tuple[str, object]:
    """Return shardings or layouts in words, none if none was given."""
    if not any(map(_is_given, leaves)):
        return "", None
    found = [_leaf(leaf) for leaf in leaves]
    words = ", ".join([words or "any" for words, _ in found])
    return words, tuple([differs for _, differs in found])


def _is_given(leaf: object) -> bool:
    # What JAX puts where nothing was.
    return leaf is not None and name_of(type(leaf)) != "UnspecifiedValue"


def _leaf(leaf: Any) -> tuple[str, object]:
    if not _is_given(leaf):
        return "", None
    if package_of(type(leaf)) in ("jax", "jaxlib") and hasattr(leaf, "device_set"):
        placement = placement_of(leaf)
        return str(placement), (placement.order, placement.hash)
    return _named(leaf)
