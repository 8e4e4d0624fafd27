"""
Values that a signature holds as they are: static arguments, and what a pytree class
keeps beside its leaves. JSON, whose format is in docs/persistent-cache.md.

Functions, classes and constants of modules are recorded by reference, so that another
process finds them where the program had them. Describing runs no user code.
"""

from __future__ import annotations

import math
import sys
import types
from typing import Any

from jaxmon.agent import inspection
from jaxmon.agent.inspection import ABSENT
from jaxmon.agent.jaxlink.jit import is_class
from jaxmon.errors import SignaturesError
from jaxmon.host import disclosure


_DEEP = 32
_LONGEST = 200
_LARGEST = 1 << 63


class NotExportableError(Exception):
    """The call cannot be described; the message says why."""


def described(value: Any, what: str, depth: int = 0) -> Any:
    """
    Return *value* as JSON; *what* it is, is the subject of the error.

    Raises:
        NotExportableError: it is neither plain data nor an object of a module.
    """
    kind = type(value)
    if kind is str and disclosure.text(value) != value:
        msg = f"{what} may hold a secret"
        raise NotExportableError(msg)
    plain = (
        value is None
        or kind is bool
        or (kind is int and abs(value) < _LARGEST)
        or (kind is float and math.isfinite(value))
        or (kind is str and len(value) <= _LONGEST)
    )
    if plain:
        return value
    # By identity: a metaclass may compare its classes by any code.
    several = kind is tuple or kind is list or kind is dict
    if several and depth < _DEEP and len(value) <= _LONGEST:
        if kind is dict:
            return {"dict": described(list(value.items()), what, depth)["list"]}
        inner = [described(item, what, depth + 1) for item in value]
        return inner if kind is tuple else {"list": inner}
    path = path_of(value)
    if not path:
        msg = f"{what} is a {inspection.name_of(kind)}, which only its program can make"
        raise NotExportableError(msg)
    return {"name": path}


def path_of(value: Any) -> str:
    """Return where *value* is, as ``module:name``; empty if no module has it."""
    kind = type(value)
    if inspection.is_instance(value, type):
        module, name = inspection.module_of(value), inspection.name_of(value)
    elif kind is types.FunctionType or kind is types.BuiltinFunctionType:
        module, name = value.__module__, value.__qualname__
    elif is_class(kind):
        module = getattr(value, "__module__", "")
        name = getattr(value, "__qualname__", "")
    else:
        module, name = (
            inspection.field_of(value, "__module__"),
            inspection.field_of(value, "__qualname__"),
        )
    if type(module) is not str or type(name) is not str:
        # Such as a marker of its own class, beside which it stands.
        module = inspection.module_of(kind)
        names = _names_in(module).copy()
        name = next((name for name, item in names.items() if item is value), "")
    path = f"{module}:{name}"
    return path if len(path) <= _LONGEST and _object_at(path) is value else ""


def rebuilt(node: Any, main: str) -> Any:
    """
    Return the value that `described` returned as *node*, with *main* for ``__main__``.

    Raises:
        SignaturesError: there is no such object any more.
    """
    if isinstance(node, list):
        return tuple(rebuilt(item, main) for item in node)
    if not isinstance(node, dict):
        return node
    if "list" in node:
        return [rebuilt(item, main) for item in node["list"]]
    if "dict" in node:
        return dict(rebuilt(item, main) for item in node["dict"])
    return object_at(node["name"], main)


def object_at(path: str, main: str) -> Any:
    """
    Return the object at *path*, as of `path_of`, with *main* for ``__main__``; only
    modules that the program has loaded are searched.

    Raises:
        SignaturesError: there is none.
    """
    module, _, name = path.partition(":")
    found = _object_at(f"{main if module == '__main__' else module}:{name}")
    if found is ABSENT:
        msg = f"there is no {path} any more"
        raise SignaturesError(msg)
    return found


def _object_at(path: str) -> Any:
    module, _, name = path.partition(":")
    first, *rest = name.split(".")
    found = _names_in(module).get(first, ABSENT)
    for part in rest:
        found = (
            inspection.found_in(found, part)
            if inspection.is_instance(found, type)
            else ABSENT
        )
    return found


def _names_in(module: str) -> dict[str, Any]:
    """Return the variables of a loaded *module*, empty if it is none."""
    found: Any = sys.modules.get(module)
    if not inspection.is_instance(found, types.ModuleType):
        return {}
    names: dict[str, Any] = types.ModuleType.__getattribute__(found, "__dict__")
    return names
