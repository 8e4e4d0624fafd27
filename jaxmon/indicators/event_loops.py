"""Event loops and tasks of this thread, if the program uses asyncio."""

from __future__ import annotations

import sys
from threading import get_ident
from types import CodeType


def runs_loop() -> bool:
    """Return whether an event loop runs on this thread."""
    asyncio = sys.modules.get("asyncio.events")
    return asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001 - the public function raises


def here() -> tuple[int, int]:
    """Return what identifies this thread, and the task that runs on it, if any."""
    asyncio = sys.modules.get("asyncio.events")
    if asyncio is None or (loop := asyncio._get_running_loop()) is None:  # noqa: SLF001 - likewise
        return get_ident(), 0
    return get_ident(), id(sys.modules["asyncio.tasks"].current_task(loop))


def task_runs(code: CodeType) -> bool:
    """Return whether the task on this thread was created to run *code* alone."""
    asyncio = sys.modules["asyncio.tasks"]
    task = asyncio.current_task()
    return getattr(task.get_coro(), "cr_code", None) is code
