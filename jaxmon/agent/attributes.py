"""
Attributes of the user's objects, without running any code of the user's.

`getattr` asks properties and ``__getattr__``, which may raise, or take long, or answer
with anything at all.
"""

from __future__ import annotations

import types
from typing import Any


_MRO = type.__dict__["__mro__"].__get__
_TYPE_DICT = type.__dict__["__dict__"].__get__
_C_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def looked_up(kind: type, name: str) -> Any:
    """
    Return what *kind* or the nearest base has under *name*, as it stands there.
    """
    for base in _MRO(kind):
        variables = _TYPE_DICT(base)
        if name in variables:
            return variables[name]
    return None


def variables(thing: object) -> dict[str, Any]:
    """
    Return the ``__dict__`` of *thing*, past what its class may have to say.
    """
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def text(thing: object, name: str) -> str | None:
    """
    Return the attribute of *thing* called *name* if it is text, else `None`.
    """
    found = variables(thing).get(name)
    if found is None:
        found = looked_up(type(thing), name)
        if type(found) in _C_DESCRIPTORS:
            try:
                found = found.__get__(thing)
            except AttributeError:
                return None
    # A subclass may lie, even about what it is equal to.
    return str.__str__(found) if issubclass(type(found), str) else None


def module_of(kind: type) -> str:
    """
    Return the name of the module of the class *kind*, empty if it has none.
    """
    return text(kind, "__module__") or ""
