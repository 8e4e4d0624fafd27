"""
A program that collects garbage nearly everywhere, while functions become
generators and exceptions keep frames.
"""

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator

import jax

import jaxmon


def pairs_of(item: list[int]) -> Callable[[], Iterator[object]]:
    """Return a generator function that holds variables in cells."""

    def pairs() -> Iterator[object]:
        kept = [item]
        try:
            yield lambda: (item, kept)
            yield [kept]
        finally:
            kept.append(item)

    return pairs


@contextlib.contextmanager
def renamed(item: list[int]) -> Iterator[list[list[int]]]:
    """Raise a `KeyError` in place of a `ValueError`."""
    kept = [item]
    try:
        yield kept
    except ValueError:
        raise KeyError(kept) from None


def fail(depth: int) -> list[object]:
    """Fail below so many calls."""
    if depth:
        return [fail(depth - 1)]
    try:
        with renamed([depth]):
            raise ValueError([depth])
    except KeyError as error:
        return [str(error), sys.exc_info()]


jaxmon.instrument()
jax.jit(abs)(1.0)
for turn in range(6000):
    gc.set_threshold(1 + turn % 3, 10, 10)
    first, second = pairs_of([turn])(), pairs_of([turn])()
    next(first)
    fail(turn % 30)
    list(first), next(second)
    tuple([number] for number in range(5))
gc.set_threshold(700, 10, 10)
print("ended")
