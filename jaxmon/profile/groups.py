"""Operations that belong together: of one line, one function, one scope."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from jaxmon.profile.operations import Operation
from jaxmon.profile.origins import Place


By: TypeAlias = Literal["line", "function", "scope", "op"]
BY: tuple[By, ...] = ("line", "function", "scope", "op")

# As many groups are enough as have so much of the time together, and those that have so
# much each.
_ENOUGH, _WORTH = 0.9, 0.01


class Kind(NamedTuple):
    """JAX's primitive, and the function of a library that it is in."""

    primitive: str
    library: str


@dataclass
class Group:
    """
    Operations, with the time of each.

    Attributes:
        scope: named scopes, or else the function of a library; ``""`` if none.
        operation: XLA's name, if it is a single one.
        count: how often they ran.
        seconds: that they took.
        backward: seconds of those in a backward pass.
        recomputed: seconds of those that a backward pass computes again.
        functions: seconds by jitted function.
        kinds: seconds by what they do.
        places: seconds by line.
    """

    scope: str = ""
    operation: str = ""
    count: int = 0
    seconds: float = 0.0
    backward: float = 0.0
    recomputed: float = 0.0
    functions: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kinds: dict[Kind, float] = field(default_factory=lambda: defaultdict(float))
    places: dict[Place | None, float] = field(
        default_factory=lambda: defaultdict(float)
    )

    @property
    def function(self) -> str:
        """The jitted function that most of the time belongs to."""
        return max(self.functions, key=self.functions.__getitem__, default="")

    @property
    def kind(self) -> Kind:
        """What takes most of the time."""
        return max(self.kinds, key=self.kinds.__getitem__, default=Kind("", ""))

    @property
    def place(self) -> Place | None:
        """The line of most of the time, `None` if it is unknown."""
        return max(self.places, key=self.places.__getitem__, default=None)

    def add(self, operation: Operation, function: str) -> None:
        """Add *operation*."""
        origin = operation.origin
        self.count += operation.count
        self.seconds += operation.seconds
        self.backward += operation.seconds if origin.path.backward else 0.0
        self.recomputed += operation.seconds if origin.path.recomputed else 0.0
        place = origin.place
        self.places[place and place._replace(library="")] += operation.seconds
        self.functions[function] += operation.seconds
        kind = Kind(origin.path.primitive, _library(operation))
        self.kinds[kind] += operation.seconds


def grouped(
    operations: Iterable[Operation], by: By, labels: Mapping[str, str]
) -> list[Group]:
    """
    Return *operations* in groups, the one with the most time first.

    Args:
        operations: in order of their time.
        by: what the operations of a group have in common.
        labels: names of jitted functions by XLA's names of programs.
    """
    key_of = _KEYS[by]
    found: dict[Hashable, Group] = {}
    for one in operations:
        function = labels.get(one.program, one.program)
        key = key_of(one, function)
        group = found.get(key)
        if group is None:
            group = found[key] = Group(
                scope=scope_of(one), operation=one.name if by == "op" else ""
            )
        group.add(one, function)
    return sorted(found.values(), key=lambda group: -group.seconds)


def enough(groups: Sequence[Group], most: int) -> int:
    """
    Return how many of *groups* have nine tenths of the time, and more if each has a
    hundredth; *most* at most.
    """
    total, seen = sum(group.seconds for group in groups), 0.0
    for count, group in enumerate(groups[:most]):
        if seen >= _ENOUGH * total and group.seconds < _WORTH * total:
            return count
        seen += group.seconds
    return min(len(groups), most)


def scope_of(operation: Operation) -> str:
    """Return the named scopes of *operation*, or else its function of a library."""
    return operation.origin.path.scope or _library(operation)


def _library(operation: Operation) -> str:
    place = operation.origin.place
    return "" if place is None else place.library


def _line(operation: Operation, function: str) -> Hashable:
    del function
    place = operation.origin.place
    return None if place is None else (place.file, place.line)


_KEYS: Mapping[By, Callable[[Operation, str], Hashable]] = {
    "line": _line,
    "function": lambda _, function: function,
    "scope": lambda operation, _: scope_of(operation),
    "op": lambda operation, _: (operation.program, operation.name),
}
