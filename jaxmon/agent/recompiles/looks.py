"""
Inspects a value and its contents without running its code.

No method of a value is called, not even ``__hash__``: it may raise anything, be huge,
take seconds or wait for a device. Only what lies in containers and fields is looked at,
of at most `_LOOKED` values a microsecond or two each. Nothing of it is kept: what comes
out are texts and hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.inspection import name_of


LIMIT = 80
"""Characters of a value that are shown."""

SHOWN = 3
"""So deep is what is shown."""

_LOOKED = 1000
_DEEPEST = 12
_HASHES = (1 << 61) - 1


class Seen(NamedTuple):
    """
    Result of inspecting a value: its text, a hash by value, and a hash of parts
    compared by identity.
    """

    text: str
    words: int
    identity: int = 0


class Look:
    """
    Inspection of one value.

    Args:
        exact: how to look at values of a type, by its id: a dict of types would ask
            their metaclasses.
        find: how to look at values of any other.

    Attributes:
        alone: something was compared by identity.
        hidden: a hash of what may make two values different, or may not.
        whole: nothing was left out.
    """

    __slots__ = ("_exact", "_find", "_left", "alone", "hidden", "whole")

    def __init__(self, exact: Mapping[int, How], find: Callable[[type], How]) -> None:
        self._exact = exact
        self._find = find
        self._left = _LOOKED
        self.alone = False
        self.hidden = 0
        self.whole = True

    def at(self, value: Any, depth: int = 0, *, sure: bool = True) -> Seen:
        """
        Look at *value*.

        Args:
            value: of any type.
            depth: how many others it is in.
            sure: what it is in is equal only where this is.
        """
        self._left -= 1
        kind = type(value)
        how = self._exact.get(id(kind)) or self._find(kind)
        if self._left < 0 or depth > _DEEPEST:
            self.whole = False
            return Seen(name_of(kind), 0)
        return how(self, value, depth, sure)

    def some(self, count: int) -> int:
        """Return how many of *count* values fit the inspection budget."""
        if count > self._left:
            self.whole = False
            return max(self._left, 0)
        return count

    def own(self, value: object, *, sure: bool) -> int:
        """Return the identity of *value*, by which it is compared."""
        if sure:
            self.alone = True
            return id(value)
        self.hide(id(value))
        return 0

    def aside(self, values: Iterable[Any], depth: int) -> list[Seen]:
        """
        Look at *values* for their texts only: what they are in is compared by identity.
        """
        before = self.alone, self.hidden, self.whole
        seen = [self.at(value, depth) for value in values]
        self.alone, self.hidden, self.whole = before
        return seen

    def hide(self, part: int) -> None:
        """Take note of what may make a difference, in any order."""
        self.hidden = (self.hidden + hash((part,))) & _HASHES


How: TypeAlias = "Callable[[Look, Any, int, bool], Seen]"
"""How to look at a value: at which depth, and whether it is sure to count."""


class Parts(NamedTuple):
    """What a container has in it; fewer are *seen* than there are where it is large."""

    length: int
    seen: list[Seen]

    def hashes(self, name: str) -> tuple[int, int]:
        """Return those of the container called *name*, whose order matters."""
        found = tuple([one.identity for one in self.seen])
        words = hash((name, self.length, *[one.words for one in self.seen]))
        return words, hash(found) if any(found) else 0

    def texts(self) -> str:
        """Return their texts in a line."""
        more = len(self.seen) < self.length
        return joined([one.text for one in self.seen], more=more)


def parts_of(look: Look, base: Any, value: Any, depth: int, *, sure: bool) -> Parts:
    """Look at what is in *value*, of *base* or below, which keeps an order."""
    count = base.__len__(value)
    some = look.some(count)
    if some == count:
        items = list(base.__iter__(value))
    else:  # both ends: what was added stands at one
        items = list(base.__getitem__(value, slice(some - some // 2)))
        items += base.__getitem__(value, slice(count - some // 2, None))
    return Parts(count, [look.at(item, depth + 1, sure=sure) for item in items])


def joined(texts: Iterable[str], *, more: bool = False) -> str:
    """Return *texts* in a line of about `LIMIT` characters; *more* were left out."""
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
