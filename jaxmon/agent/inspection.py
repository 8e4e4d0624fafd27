"""
Inspects user types and objects without running their code.

`isinstance`, `getattr`, ``==``, `hash`, `repr` and dict lookups may all run code of a
class or its metaclass, which may raise anything, block, or lie. So types are compared
by identity here, and attributes are read from where objects store them, with the
descriptors of `type` and of C. Thread-safe; about a microsecond each.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from jaxmon import interrupts
from jaxmon.tuples import NamedTuple


AnyCall: TypeAlias = Callable[..., Any]
"""A function of JAX or of the program, or what is called as one."""

_MRO: Callable[[type], tuple[type, ...]] = vars(type)["__mro__"].__get__
_NAMESPACE: Callable[[type], Mapping[str, Any]] = vars(type)["__dict__"].__get__
_NAME = vars(type)["__qualname__"].__get__
_MODULE = vars(type)["__module__"].__get__
_HASH, _EQ = vars(object)["__hash__"], vars(object)["__eq__"]
_PARTIAL = [vars(functools.partial)[n].__get__ for n in ("func", "args", "keywords")]
_FIELDS = 1000
"""Maximum number of attributes read from one object."""

# The types of a real ``__dict__`` descriptor, not a property of that name.
_GETTERS = frozenset(map(id, (types.GetSetDescriptorType, types.MemberDescriptorType)))
_VOUCHED = (
    *("builtins", "jax", "jaxlib", "ml_dtypes", "numpy"),
    *("datetime", "decimal", "fractions", "pathlib", "uuid"),
)
_MAX_KNOWN = 1000

# By id, with the type itself, so that the id cannot be reused.
_packages: dict[int, tuple[type, str]] = {}
# By id, as long as the type lives.
_layouts: dict[int, tuple[weakref.ref[type], AttributeLayout]] = {}


class _AbsentField:
    """The type of `ABSENT`."""


ABSENT = _AbsentField()


def name_of(kind: type) -> str:
    """Return the qualified name of *kind*."""
    name = _NAME(kind)
    return name if type(name) is str else "?"


def module_of(kind: type) -> str:
    """Return the module name claimed by *kind*, unverified."""
    try:
        module = _MODULE(kind)
    except AttributeError as error:  # it was deleted
        interrupts.pass_on(error)
        return ""
    return module if type(module) is str else ""


def is_instance(value: object, base: type) -> bool:
    """Return whether *value* is an instance of *base* or a subclass."""
    return is_subclass(type(value), base)


def is_subclass(kind: type, base: type) -> bool:
    """Return whether *kind* is *base* or a subclass."""
    # `in` would call the metaclass's ``__eq__``.
    if kind is base:
        return True
    for ancestor in _MRO(kind):  # noqa: SIM110 - three times as quick as any()
        if ancestor is base:
            return True
    return False


def found_in(kind: type, name: str) -> Any:
    """Return the attribute *name* of *kind* as its body defined it, or `ABSENT`."""
    for base in _MRO(kind):
        found = _NAMESPACE(base).get(name, ABSENT)
        if found is not ABSENT:
            return found
    return ABSENT


def package_of(kind: type) -> str:
    """
    Return ``numpy``, ``jax`` or another package of `_VOUCHED` if *kind* belongs to it
    and can be trusted; otherwise an empty string.

    A class's ``__module__`` is not trusted: the module must contain the class.
    """
    vouched = _packages.get(id(kind))
    if vouched is not None:
        return vouched[1]
    module = module_of(kind)
    package = module.partition(".")[0]
    if package not in _VOUCHED:
        return ""
    found: Any = sys.modules.get(module)
    if not is_instance(found, types.ModuleType):
        return ""
    found = types.ModuleType.__getattribute__(found, "__dict__")
    for name in name_of(kind).split("."):
        found = found.get(name)
        if type(found) is not type and not is_instance(found, type):
            return ""
        last, found = found, _NAMESPACE(found)
    if last is not kind:
        return ""
    if len(_packages) < _MAX_KNOWN:
        _packages[id(kind)] = kind, package
    return package


def partial_parts(value: object) -> list[Any]:
    """Return function, arguments and keywords of a partial, of whatever subclass."""
    return [get(value) for get in _PARTIAL]


def bases_of(kind: type) -> tuple[type, ...]:
    """Return *kind* and its base classes, in method resolution order."""
    return _MRO(kind)


class AttributeLayout(NamedTuple):
    """
    Where objects of a class store their attributes, as indices of base classes: *held*
    of that with the ``__dict__``, -1 if none. *by_identity*: an object equals only
    itself, or is hashed that way; *compared* are the fields that a dataclass compares.
    """

    held: int
    slotted: tuple[int, ...]
    by_identity: bool
    compared: frozenset[str] | None

    @property
    def is_open(self) -> bool:
        """Whether the attributes of an object can be read."""
        return self.held >= 0 or bool(self.slotted)


def layout_of(kind: type) -> AttributeLayout:
    """Return where objects of *kind* store their attributes."""
    kept = _layouts.get(id(kind))
    if kept is not None and kept[0]() is kind:
        return kept[1]
    held, slotted = -1, []
    for index, namespace in enumerate(map(_NAMESPACE, _MRO(kind))):
        # A property of that name would be user code.
        getter = type(namespace.get("__dict__"))
        if held < 0 and id(getter) in _GETTERS:
            held = index
        if "__slots__" in namespace:
            slotted.append(index)
    if len(_layouts) >= _MAX_KNOWN:
        _layouts.clear()
    equal = found_in(kind, "__eq__")
    alone = equal is _EQ or found_in(kind, "__hash__") is _HASH
    layout = AttributeLayout(held, tuple(slotted), alone, _compared(kind, equal))
    _layouts[id(kind)] = weakref.ref(kind), layout
    return layout


def _compared(kind: type, equal: Any) -> frozenset[str] | None:
    fields = found_in(kind, "__dataclass_fields__")
    # Methods written by dataclasses are compiled from text without a file.
    if type(fields) is not dict or type(equal) is not types.FunctionType:
        return None
    if equal.__code__.co_filename != "<string>":
        return None
    return frozenset(
        [
            field.name
            for field in fields.values()
            if type(field) is dataclasses.Field
            and field.compare
            and type(field.name) is str
        ]
    )


def fields_of(value: object) -> dict[str, Any]:
    """Return the attributes of *value* itself, with those in ``__slots__``."""
    kind = type(value)
    held, slotted, *_ = layout_of(kind)
    found: dict[str, Any] = {}
    if held >= 0:
        of = _NAMESPACE(_MRO(kind)[held])["__dict__"].__get__(value)
        if type(of) is dict:  # a subclass may do anything
            fields = list(itertools.islice(of.items(), _FIELDS))
            found = {name: field for name, field in fields if type(name) is str}
    for index in slotted:
        namespace = _NAMESPACE(_MRO(kind)[index])
        for name, member in list(itertools.islice(namespace.items(), _FIELDS)):
            if type(member) is types.MemberDescriptorType and type(name) is str:
                try:
                    found[name] = member.__get__(value)
                except AttributeError as error:  # not set
                    interrupts.pass_on(error)
    return found


def field_of(value: object, wanted: str) -> Any:
    """Return the attribute *wanted* of *value* itself, or `ABSENT`."""
    return fields_of(value).get(wanted, ABSENT)
