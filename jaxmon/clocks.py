"""
The clocks, as they were when jaxmon was imported.

Tests replace functions of `time`, some by mocks with so many readings. Whatever runs in
the program's process reads the clocks here, also from modules that are imported late.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, perf_counter, process_time, thread_time
from time import time as wall_time
from typing import Any, Final

from jaxmon.originals import original


__all__ = [
    "monotonic",
    "perf_counter",
    "process_time",
    "sleep",
    "thread_time",
    "wall_time",
]

_time: Final[Any] = original("time")
# gevent's, on a thread of ours, would start an event loop there.
sleep: Final[Callable[[float], None]] = _time.sleep
