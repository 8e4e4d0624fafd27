"""Describes the options of `jax.jit` and `jax.pmap`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from jaxmon.agent.jaxlink.jit_options import JitOptions, Option
from jaxmon.agent.jaxlink.ownership import is_class
from jaxmon.agent.recompiles.placements import placement_of
from jaxmon.agent.recompiles.values import text_of, value_of


Options: TypeAlias = tuple[tuple[str, str, object], ...]
"""
Options that are not the default: name, text, and a key that differs if equal texts do.
"""

MADE_BY = "transformation"
"""The option for the JAX function that created the callable."""


def options_of(given: JitOptions) -> Options:
    """Return the options in *given*, without user objects."""
    words = [(one.name, *_in_words(one)) for one in given.options]
    return ((MADE_BY, given.maker, None), *words)


def _in_words(option: Option) -> tuple[str, object]:
    value = option.value
    if option.how == "names":
        return _list(value), None
    if option.how == "pairs":
        return _list(value), value_of(value).key
    if option.how == "shardings":
        found = [_sharding(leaf) for leaf in value]
        words = ", ".join([words or "any" for words, _ in found])
        return words, tuple([differs for _, differs in found])
    return _named(value)


def _named(given: object) -> tuple[str, object]:
    value = value_of(given)
    return value.text, value.key


def _list(given: Iterable[object]) -> str:
    return ", ".join([one if type(one) is str else text_of(one) for one in given])


def _sharding(leaf: Any) -> tuple[str, object]:
    if leaf is None:
        return "", None
    if is_class(type(leaf)) and hasattr(leaf, "device_set"):
        placement = placement_of(leaf)
        return str(placement), (placement.order, placement.hash)
    return _named(leaf)
