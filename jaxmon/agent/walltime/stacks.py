"""The stacks of the program's threads, for ``/debug/stacks``."""

from __future__ import annotations

import threading
from typing import Any

from jaxmon.agent.jaxlink.activity import ActivityReader
from jaxmon.agent.jaxlink.other_threads import frames_by_thread
from jaxmon.agent.jaxlink.source_lines import SourceLine, display_path


_MOST_THREADS = 500
_MOST_LINES = 100
_OURS = "jaxmon-"


def stacks(reader: ActivityReader) -> dict[str, Any]:
    """
    Return the stack of each thread of the program, innermost line first, and what it is
    doing. Those of ours are left out. Takes 20 µs per thread.
    """
    known = {thread.ident: thread for thread in threading.enumerate()}
    main = threading.main_thread().ident
    with frames_by_thread() as frames:
        threads = [(ident, known.get(ident)) for ident in frames]
        found = [
            {
                **_describe(ident, thread, main=ident == main),
                "state": reader.read(frames[ident]).state,
                "stack": [
                    as_text(one) for one in reader.stack(frames[ident])[:_MOST_LINES]
                ],
            }
            for ident, thread in threads[:_MOST_THREADS]
            if thread is None or not thread.name.startswith(_OURS)
        ]
    found.sort(key=lambda one: not one["main"])
    return {"threads": found, "left_out": max(len(threads) - _MOST_THREADS, 0)}


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
