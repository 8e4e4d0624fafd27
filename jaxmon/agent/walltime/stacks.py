"""The stacks of the program's threads, for ``/debug/stacks``."""

from __future__ import annotations

import threading
from collections.abc import Collection
from functools import partial
from typing import Any

from jaxmon.agent.jaxlink import orbax
from jaxmon.agent.jaxlink.activity import ActivityReader
from jaxmon.agent.jaxlink.locks import waits_for_lock
from jaxmon.agent.jaxlink.meetings import barrier, calls_back
from jaxmon.agent.jaxlink.other_threads import Stack, read_stacks, repeatedly
from jaxmon.agent.jaxlink.source_lines import SourceLine
from jaxmon.sources import display_path
from jaxmon.threads import is_ours, main_ident


_MOST_THREADS = 500
_MOST_LINES = 100
_AT_ONCE = 50


def stacks(reader: ActivityReader) -> dict[str, Any]:
    """
    Return the stack of each thread of the program, innermost line first, what it is
    doing, and whether it is in a call that acquires a lock, in a barrier of all
    processes, in a callback, or in a save or restore of Orbax. Those of ours are left
    out.
    Takes 50 µs per thread.
    """
    known = {thread.ident: thread for thread in threading.enumerate()}
    main = main_ident()
    threads: list[int] = []

    def choose(idents: Collection[int]) -> list[int]:
        threads[:] = [one for one in idents if not is_ours(one)]
        return []

    read_stacks(choose)
    found = [
        {
            **_describe(ident, known.get(ident), main=ident == main),
            "state": reader.read(stack).state,
            "lock": waits_for_lock(stack),
            "barrier": barrier(stack),
            "callback": calls_back(stack),
            "activity": orbax.activity_of(stack),
            "stack": [as_text(one) for one in reader.lines(stack)[:_MOST_LINES]],
        }
        for few in range(0, min(len(threads), _MOST_THREADS), _AT_ONCE)
        for ident, stack in _read(threads[few : few + _AT_ONCE]).items()
    ]
    found.sort(key=lambda one: not one["main"])
    return {"threads": found, "left_out": max(len(threads) - _MOST_THREADS, 0)}


def _read(idents: list[int]) -> dict[int, Stack]:
    return repeatedly(partial(read_stacks, lambda _: idents))


def _describe(
    ident: int, thread: threading.Thread | None, *, main: bool
) -> dict[str, Any]:
    return {
        "name": "" if thread is None else thread.name,
        "ident": ident,
        "native_id": None if thread is None else thread.native_id,
        "main": main,
        "daemon": thread is not None and thread.daemon,
    }


def as_text(line: SourceLine) -> str:
    """Return ``file.py:12 in function``."""
    return f"{display_path(line.file)}:{line.line} in {line.function}"
