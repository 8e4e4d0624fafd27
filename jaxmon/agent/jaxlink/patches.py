"""Attribute patches that can be undone."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from jaxmon.agent.guard import log


class _Patch(NamedTuple):
    owner: ModuleType | type
    name: str
    original: object
    ours: object


class Patches:
    """
    Replaced attributes of modules and classes, restored last in, first out.

    An attribute that other code replaced after us is left alone: their wrapper keeps
    calling ours, so ours must keep working when inactive.
    """

    def __init__(self) -> None:
        self._patches: list[_Patch] = []

    def replace(self, owner: ModuleType | type, name: str, ours: object) -> None:
        """Set ``owner.name`` to *ours* until `undo`."""
        self._patches.append(_Patch(owner, name, owner.__dict__[name], ours))
        setattr(owner, name, ours)

    @property
    def number(self) -> int:
        """Number of attributes replaced now."""
        return len(self._patches)

    def undo(self, *, after: int = 0) -> None:
        """
        Restore every attribute that is still ours, except the first *after*.
        Idempotent.
        """
        while len(self._patches) > after:
            # Removed last: if interrupted, it is undone again.
            patch = self._patches[-1]
            if patch.owner.__dict__.get(patch.name) is patch.ours:
                setattr(patch.owner, patch.name, patch.original)
            else:
                log.debug(
                    "%s.%s was patched again after jaxmon; leaving it in place",
                    patch.owner.__name__,
                    patch.name,
                )
            del self._patches[-1]


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
