"""
Modules of Python's own C code, as Python has them.

gevent, eventlet and debuggers replace functions in the modules that programs import,
before or after jaxmon is. A thread of ours that waited in one of these would become a
greenlet, or wait for one.
"""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec
from types import ModuleType


def original(name: str) -> ModuleType:
    """Return a new copy of the C module *name*, in which nothing is replaced."""
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(name=name)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
