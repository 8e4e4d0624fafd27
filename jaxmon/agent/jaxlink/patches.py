"""Attribute patches that can be undone."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from types import CellType, ModuleType
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.guard import log


Owner: TypeAlias = ModuleType | type | CellType


class Patch(NamedTuple):
    """An attribute, and what was there before ours."""

    owner: Owner
    name: str
    original: object
    ours: object


class Patches:
    """
    Replaced attributes of modules and classes, and contents of cells, restored last in,
    first out.

    An attribute that other code replaced after us is left alone: their wrapper keeps
    calling ours, so ours must keep working when inactive.
    """

    def __init__(self) -> None:
        self._patches: list[Patch] = []

    def replace(self, owner: Owner, name: str, ours: object) -> None:
        """Set ``owner.name`` to *ours* until `undo`."""
        original = _found(owner, name)
        if original is None:
            raise AttributeError(name)
        self._patches.append(Patch(owner, name, original, ours))
        setattr(owner, name, ours)

    @property
    def number(self) -> int:
        """Number of attributes replaced now."""
        return len(self._patches)

    def undo(self, *, after: int = 0) -> list[Patch]:
        """
        Restore every attribute that is still ours, except the first *after*, and return
        them. Idempotent.
        """
        undone = self._patches[after:]
        while len(self._patches) > after:
            # Removed last: if interrupted, it is undone again.
            patch = self._patches[-1]
            if _found(patch.owner, patch.name) is patch.ours:
                setattr(patch.owner, patch.name, patch.original)
            else:
                log.debug(
                    "%s.%s was patched again after jaxmon; leaving it in place",
                    getattr(patch.owner, "__name__", ""),
                    patch.name,
                )
            del self._patches[-1]
        return undone


def restore_copies(patches: Iterable[Patch]) -> None:
    """
    Restore the variables of modules that have imported ours by ``from ... import``.
    Takes some 10 ms.
    """
    originals = {id(patch.ours): patch.original for patch in patches}
    for module in list(sys.modules.values()):
        # Not `isinstance`, to which libraries of cffi pretend to be modules.
        if issubclass(type(module), ModuleType):
            # Without loading a module that waits for its first use.
            variables = object.__getattribute__(module, "__dict__")
            for name, value in variables.copy().items():
                if id(value) in originals:
                    variables[name] = originals[id(value)]


def _found(owner: Owner, name: str) -> Any:
    """Return the attribute as it is kept, `None` if there is none."""
    if isinstance(owner, ModuleType | type):
        return owner.__dict__.get(name)
    return getattr(owner, name)


class ModuleProxy(ModuleType):
    """
    Proxy of the module *original* for one importing module, with some *attributes*
    replaced.
    """

    def __init__(self, original: ModuleType, attributes: dict[str, object]) -> None:
        super().__init__(original.__name__, original.__doc__)
        self._original = original
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name == "_original":
            raise AttributeError(name)
        return getattr(self._original, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Cloudpickle pickles functions of JAX with the modules that they use.
        return import_module, (self.__name__,)
