"""
Inspects a value and its contents without running its code.

No method of a value is called, not even ``__hash__``: it may raise anything, take
seconds or wait for a device. Only items of containers and fields are inspected, at most
`_LOOKED` values of a microsecond or two each. The result consists of text and hashes;
no value is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.inspection import name_of


LIMIT = 80
"""Maximum number of characters shown of a value."""

SHOWN = 3
"""Maximum depth shown."""

_LOOKED = 1000
_DEEPEST = 12
_HASHES = (1 << 61) - 1


class InspectedValue(NamedTuple):
    """
    Result of inspecting a value: its text, a hash by value, and a hash of parts
    compared by identity.
    """

    text: str
    words: int
    identity: int = 0


class Inspection:
    """
    Inspection of one value.

    Args:
        exact: inspectors by id of the exact type: a dict of types would call their
            metaclasses.
        find: returns the inspector for any other type.

    Attributes:
        alone: whether something was compared by identity.
        hidden: a hash of parts that may or may not make two values different.
        whole: whether everything was inspected.
    """

    __slots__ = ("_exact", "_find", "_left", "alone", "hidden", "whole")

    def __init__(self, exact: Mapping[int, How], find: Callable[[type], How]) -> None:
        self._exact = exact
        self._find = find
        self._left = _LOOKED
        self.alone = False
        self.hidden = 0
        self.whole = True

    def inspect(
        self, value: Any, depth: int = 0, *, sure: bool = True
    ) -> InspectedValue:
        """
        Inspect *value*.

        Args:
            value: of any type.
            depth: number of values that contain it.
            sure: whether its container is equal only if it is.
        """
        self._left -= 1
        kind = type(value)
        how = self._exact.get(id(kind)) or self._find(kind)
        if self._left < 0 or depth > _DEEPEST:
            self.whole = False
            return InspectedValue(name_of(kind), 0)
        return how(self, value, depth, sure)

    def within_budget(self, count: int) -> int:
        """Return how many of *count* values fit the inspection budget."""
        if count > self._left:
            self.whole = False
            return max(self._left, 0)
        return count

    def identity_of(self, value: object, *, sure: bool) -> int:
        """Return the identity of *value*, for values compared by identity."""
        if sure:
            self.alone = True
            return id(value)
        self.add_hidden(id(value))
        return 0

    def inspect_texts(self, values: Iterable[Any], depth: int) -> list[InspectedValue]:
        """
        Inspect *values* for their texts only: their container is compared by identity.
        """
        before = self.alone, self.hidden, self.whole
        seen = [self.inspect(value, depth) for value in values]
        self.alone, self.hidden, self.whole = before
        return seen

    def add_hidden(self, part: int) -> None:
        """Add a part that may make a difference, in any order."""
        self.hidden = (self.hidden + hash((part,))) & _HASHES


How: TypeAlias = "Callable[[Inspection, Any, int, bool], InspectedValue]"
"""
An inspector: takes the inspection, the value, its depth, and whether it surely counts
for equality.
"""


class InspectedItems(NamedTuple):
    """Items of a container; in a large one only some are *seen*."""

    length: int
    seen: list[InspectedValue]

    def hashes(self, name: str) -> tuple[int, int]:
        """Return the hashes for an ordered container called *name*."""
        found = tuple([one.identity for one in self.seen])
        words = hash((name, self.length, *[one.words for one in self.seen]))
        return words, hash(found) if any(found) else 0

    def texts(self) -> str:
        """Return the texts of the items as one line."""
        more = len(self.seen) < self.length
        return joined([one.text for one in self.seen], more=more)


def inspected_items(
    inspection: Inspection, base: Any, value: Any, depth: int, *, sure: bool
) -> InspectedItems:
    """
    Inspect the items of *value*, an ordered container of class *base* or a subclass.
    """
    count = base.__len__(value)
    some = inspection.within_budget(count)
    if some == count:
        items = list(base.__iter__(value))
    else:  # both ends: new items are at one of them
        items = list(base.__getitem__(value, slice(some - some // 2)))
        items += base.__getitem__(value, slice(count - some // 2, None))
    return InspectedItems(
        count, [inspection.inspect(item, depth + 1, sure=sure) for item in items]
    )


def joined(texts: Iterable[str], *, more: bool = False) -> str:
    """Return *texts* as a line of about `LIMIT` characters; *more* were omitted."""
    shown: list[str] = []
    length = 0
    for text in texts:
        if length > LIMIT:
            more = True
            break
        shown.append(text)
        length += len(text)
    if more:
        shown.append("…")
    return ", ".join(shown)
