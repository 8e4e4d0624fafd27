"""An event loop inside somebody else's program."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    import asyncio
    import selectors


# The program may put something else in the place of `time.monotonic`, by which a loop
# goes: with NaN, all that was to happen later happens at once.
_monotonic = functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC)


def new_loop(
    selector: selectors.BaseSelector, report: Callable[[str, BaseException], None]
) -> asyncio.AbstractEventLoop:
    """
    Return a loop of our own on *selector*, silent and without debugging.

    Args:
        selector: belongs to the loop from now on.
        report: told of what nobody caught, as a failure of ``server``.
    """
    import asyncio  # noqa: PLC0415 - 40 ms that only a running server pays

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        report("server", error or RuntimeError(context["message"]))

    # Not the policy's loop: that may be another library's.
    loop = None
    try:
        with _silent_asyncio():
            loop = asyncio.SelectorEventLoop(selector)
        loop.time = _monotonic  # type: ignore[method-assign]
        loop.set_debug(False)
        loop.set_exception_handler(unhandled)
    except BaseException:  # the program's
        if loop is not None:
            loop.close()
        raise
    return loop


@contextlib.contextmanager
def _silent_asyncio() -> Iterator[None]:
    """Keep asyncio from logging "Using selector" in the user's process."""
    ours = get_ident()

    def is_theirs(record: logging.LogRecord) -> bool:
        return record.thread != ours

    logger = logging.getLogger("asyncio")
    logger.addFilter(is_theirs)
    try:
        yield
    finally:
        logger.removeFilter(is_theirs)
