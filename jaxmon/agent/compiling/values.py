"""
Values in words, without running any code of the user's.

A ``__repr__`` may raise, be huge, take seconds or wait for a device. So none is called:
what is said of a value is built here from its type and, for plain objects, its fields.
Of a value only its text and its hash are kept.
"""

from __future__ import annotations

import enum
import functools
import types
from dataclasses import dataclass, field
from typing import Any

from jaxmon import interrupts


LIMIT = 80
"""Characters of a value that are shown."""

NO_MESH = "no mesh"
"""Text of a mesh without axes, which JAX since 0.11 has where none is set."""

_ITEMS = 6
_DEPTH = 3
# Long enough to tell two values apart that are shown alike.
_DIGEST_LIMIT = 2000
# Whose own short texts are quick: dtypes, devices, slices.
_TRUSTED = ("builtins", "jaxlib", "ml_dtypes", "numpy")
_PLAIN = (type(None), bool, int, float, complex)
_MESHES = ("Mesh", "AbstractMesh")


@dataclass(frozen=True, slots=True)
class Value:
    """
    What is remembered of a value.

    Attributes:
        key: differs where JAX would take two values for different.
        text: at most `LIMIT` characters.
        by_identity: another object with the same content is not equal to it.
    """

    key: tuple[Any, ...]
    text: str = field(compare=False)
    by_identity: bool = field(compare=False)


def value_of(value: object) -> Value:
    """
    Return what to remember of *value*. Costs microseconds; calls its ``__hash__``.
    """
    kind = type(value)
    if kind in (int, bool, type(None)):
        # -1 and -2 have one hash, and so has what contains them.
        text = text_of(value)
        return Value((kind.__name__, hash(value), text), text, by_identity=False)
    whole = text_of(value, _DIGEST_LIMIT)
    key = (kind.__qualname__, _identity(value), hash(whole))
    return Value(key, _cut(whole, LIMIT), is_by_identity(value))


def _identity(value: object, depth: int = 0) -> object:
    """
    Return what is equal for equal values: of a tuple with objects that are compared by
    identity, which ones these are, for tuples are made anew at each call.
    """
    if not is_by_identity(value, depth):
        try:
            return hash(value)
        except Exception as error:  # noqa: BLE001 - the user's __hash__ may raise anything
            interrupts.pass_on(error, theirs=True)
            return None
    if isinstance(value, tuple | frozenset):
        kind = frozenset if isinstance(value, frozenset) else tuple
        return kind(_identity(item, depth + 1) for item in value)
    return id(value)


def is_by_identity(value: object, depth: int = 0) -> bool:
    """
    Tell whether *value* is only equal to itself, or an item of it is: it is compared or
    hashed by identity.

    Classes and modules are too, but there is one of each, and so of `None`.
    """
    if isinstance(value, tuple | frozenset) and depth < _DEPTH:
        return any(is_by_identity(item, depth + 1) for item in value)
    if value is None or isinstance(value, type | types.ModuleType | enum.Enum):
        return False
    kind = type(value)
    return kind.__hash__ is object.__hash__ or kind.__eq__ is object.__eq__


def text_of(value: object, limit: int = LIMIT) -> str:
    """
    Return *value* in at most *limit* characters.
    """
    return _cut(_text(value, limit, 0), limit)


def place_of(fun: object) -> str | None:
    """
    Return ``file.py:12`` of the function inside *fun*, if there is one.
    """
    code = getattr(inner(fun), "__code__", None)
    if not isinstance(code, types.CodeType):
        return None
    file = code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{file}:{code.co_firstlineno}"


def bare_name(qualname: str) -> str:
    """
    Return ``<lambda>``, or ``Model.step``: the name, without the functions around it.
    """
    return qualname.rpartition("<locals>.")[2]


def device_text(device: Any) -> str:
    """
    Return ``cpu:0``.
    """
    return f"{device.platform}:{device.id}"


def mesh_text(mesh: Any) -> str:
    """
    Return ``mesh d=8``; an axis whose arrays have their sharding in their type is
    ``d=8 explicit``.
    """
    kinds = getattr(mesh, "axis_types", None)
    if isinstance(kinds, dict):  # to 0.5: axes by kind
        kinds = None
    axes = [
        f"{axis}={size}{_kind_text(kind)}"
        for (axis, size), kind in zip(
            mesh.shape.items(), kinds or (None,) * len(mesh.shape), strict=False
        )
    ]
    return f"mesh {','.join(axes)}" if axes else NO_MESH


def _kind_text(kind: Any) -> str:
    name = str(getattr(kind, "name", "Auto"))
    return "" if name == "Auto" else f" {name.lower()}"


def inner(fun: object) -> Any:
    """
    Return the function inside partials, bound methods and decorators.
    """
    if type(fun) is types.FunctionType and not fun.__dict__:  # as most are
        return fun
    for _ in range(16):
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif isinstance(fun, types.MethodType):
            fun = fun.__func__
        else:
            fields = _fields_of(fun)
            if not fields or "__wrapped__" not in fields:
                break
            fun = fields["__wrapped__"]
    return fun


def _fields_of(value: object) -> dict[str, Any] | None:
    """
    Return the ``__dict__`` of *value*, if it has one, past any ``__getattr__``.
    """
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError as error:
        interrupts.pass_on(error)
        return None
    return fields if isinstance(fields, dict) else None


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(value: Any, limit: int, depth: int) -> str:
    kind = type(value)
    if kind is int and abs(value) > 1 << 64:
        # Its decimal text may be refused, or take seconds.
        return f"int of {value.bit_length()} bits"
    if kind in _PLAIN:
        return repr(value)
    if kind in (str, bytes):
        return repr(value[:limit])
    if kind in (tuple, list, set, frozenset, dict):
        return _container(value, limit, depth)
    return (
        _named(value)
        or _array(value)
        or _callable(value, limit, depth)
        or _fields(value, depth)
    )


def _named(value: object) -> str | None:
    """
    Return the name of what there is one of, or is one wherever it is equal.
    """
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value._name_}"
    if isinstance(value, type):
        return value.__qualname__
    if type(value).__name__ in _MESHES and _module(value) == "jax":
        return mesh_text(value)
    return f"module {value.__name__}" if isinstance(value, types.ModuleType) else None


def _module(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _container(value: Any, limit: int, depth: int) -> str:
    kind = type(value)
    if depth >= _DEPTH:
        return f"{kind.__name__} of {len(value)}"
    items: list[str] = []
    if kind in (set, frozenset):
        # In an order of its own: equal sets are one value.
        value = sorted(value, key=lambda item: _text(item, limit, depth + 1))
    for number, item in enumerate(value):
        if (number == _ITEMS and limit <= LIMIT) or sum(map(len, items)) > limit:
            items.append("…")
            break
        text = _text(item, limit, depth + 1)
        if kind is dict:
            text = f"{text}: {_text(value[item], limit, depth + 1)}"
        items.append(text)
    inside = ", ".join(items)
    if kind is tuple:
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if kind is list:
        return f"[{inside}]"
    braced = f"{{{inside}}}"
    return f"frozenset({braced})" if kind is frozenset else braced


def _array(value: Any) -> str | None:
    """
    Return ``float32[3,4]`` for anything with a shape and a dtype.
    """
    names = ("shape", "dtype")
    if not all(any(n in vars(k) for k in type(value).__mro__) for n in names):
        return None
    try:
        if type(value).__module__ == "numpy" and value.shape == ():
            return repr(value)
        shape = ",".join(map(str, value.shape))
    except Exception as error:  # noqa: BLE001 - a property may raise anything
        interrupts.pass_on(error, theirs=True)
        return type(value).__qualname__
    return f"{value.dtype}[{shape}]"


def _callable(value: object, limit: int, depth: int) -> str | None:
    if isinstance(value, functools.partial):
        values = [*value.args, *value.keywords.values()]
        given = (
            [_text(one, limit, depth + 1) for one in values] if depth < _DEPTH else []
        )
        return f"partial({', '.join([_text(value.func, limit, depth + 1), *given])})"
    if isinstance(value, types.FunctionType | types.MethodType):
        name, place = bare_name(value.__qualname__), place_of(value)
        return f"{name} at {place}" if place else name
    if isinstance(value, types.BuiltinFunctionType):
        return str(value.__qualname__)
    if "__wrapped__" in (_fields_of(value) or {}):  # jax.jit's objects, custom_jvp's
        return _text(inner(value), limit, depth + 1) if depth < _DEPTH else None
    return None


def _fields(value: object, depth: int) -> str:
    name = type(value).__qualname__
    if depth >= _DEPTH:
        return name
    fields = _fields_of(value)
    if fields is None:
        return _known(value) or name
    shown = [
        f"{field}={_text(one, LIMIT, depth + 1)}"
        for field, one in list(fields.items())[: 4 * _ITEMS]
        if not field.startswith("_")
    ]
    return f"{name}({', '.join(shown)})"


def _known(value: Any) -> str | None:
    """
    Return the text of objects without fields that have a short one of their own.
    """
    if isinstance(value, tuple):  # a named tuple
        names = getattr(value, "_fields", ())
        items = [
            f"{n}={_text(v, LIMIT, 1)}" for n, v in zip(names, value, strict=False)
        ]
        return f"{type(value).__qualname__}({', '.join(items)})"
    if type(value).__module__.startswith("jaxlib") and hasattr(value, "device_kind"):
        return device_text(value)
    if _module(value) in _TRUSTED:
        return repr(value)
    return None
