"""
The clocks, as they were when jaxmon was imported.

Tests replace functions of `time`, some by mocks with so many readings. Whatever runs in
the program's process reads the clocks here, also from modules that are imported late.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from time import monotonic, perf_counter, process_time, thread_time
from time import time as wall_time
from types import ModuleType
from typing import Any, Final


def original(name: str) -> ModuleType:
    """
    Return a new copy of the C module *name*, in which nothing is replaced: a thread of
    ours that waited in a function of gevent's would become a greenlet, or wait for one.
    """
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(name=name)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
