"""Text for budget results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TypeVar

from jaxmon.agent.events import Event
from jaxmon.agent.ledger import UNSEEN, Cost, FunctionCost
from jaxmon.agent.memory.array_snapshot import Growth


_T = TypeVar("_T")

_MOST = 10


def message(exceeded: Mapping[str, tuple[int, int]], details: str) -> str:
    """
    Return the message of the error.

    Args:
        exceeded: spent and allowed, by name of the limit.
        details: see `details`.
    """
    counts = ", ".join(
        f"{_plain(name)}: {spent:,} (allowed: {limit:,})"
        for name, (spent, limit) in exceeded.items()
    )
    return f"{counts}\n{details}"


def details(cost: Cost) -> str:
    """Return lines that name the causes of each value in *cost*."""
    sections = (
        _recompiled(cost),
        _compiled(cost.functions),
        _transferred(cost),
        _grown(cost.memory, cost.holders),
    )
    return "\n".join(line for section in sections for line in section) or "nothing"


def _recompiled(cost: Cost) -> Iterator[str]:
    functions = [one for one in cost.functions if one.recompiles]
    if functions:
        yield "recompiles:"
        for one in _some(functions):
            yield from _recompiles(one, cost.recompiles)
        yield from _rest(functions, "functions")


def _compiled(functions: Sequence[FunctionCost]) -> Iterator[str]:
    if functions:
        yield "compiles:"
        for one in _some(functions):
            yield f"  {one.name}: {one.compiles} in {one.seconds:.3f} s"
        yield from _rest(functions, "functions")


def _transferred(cost: Cost) -> Iterator[str]:
    if cost.transfers and any(cost.transfers.values()):
        yield "transfers:"
        for direction, count in cost.transfers.items():
            if count:
                yield f"  {_plain(direction)}: {count}"
        for (file, number, direction, how), count in _some(cost.lines.items()):
            yield f"  {file}:{number}: {count} {_plain(direction)}, {how}"
        yield from _rest(cost.lines, "lines")


def _grown(memory: Growth | None, holders: Mapping[str, int]) -> Iterator[str]:
    if memory is not None and memory.bytes:
        yield f"live arrays: {memory.bytes:+,} bytes"
        for kind, count in _some(memory.arrays.items()):
            yield f"  {kind}: {count:+} {_plural(count, 'array')}"
        yield from _rest(memory.arrays, "types")
        for line, size in _some(holders.items()):
            yield f"  {size:+,} bytes at {line}"
        yield from _rest(holders, "lines")


def _recompiles(one: FunctionCost, events: Iterable[Event]) -> Iterator[str]:
    causes = dict(one.causes)
    unseen = causes.pop(UNSEEN, 0)
    if causes:
        counts = ", ".join(f"{_plain(cause)} {n}" for cause, n in causes.items())
        yield f"  {one.name}: {counts}"
    if unseen:
        yield (
            f"  {one.name}: was compiled before jaxmon started, so the cause of "
            "its first recompile is unknown; call jaxmon.instrument() earlier to "
            "see it"
        )
    related = [event for event in events if event.function == one.name]
    for event in _some(related):
        texts = [each["text"] for each in event.details.get("differences", ())]
        for text in texts or [event.message]:
            yield f"    {text}"
    yield from _rest(related, "recompiles", indent=4)


def _some(items: Iterable[_T]) -> list[_T]:
    return list(items)[:_MOST]


def _rest(items: Sized, what: str, *, indent: int = 2) -> Iterator[str]:
    if len(items) > _MOST:
        yield f"{' ' * indent}... and {len(items) - _MOST} more {what}"


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _plural(count: int, noun: str) -> str:
    return noun if abs(count) == 1 else f"{noun}s"
