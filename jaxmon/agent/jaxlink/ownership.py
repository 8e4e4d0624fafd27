"""Whether a file, module or class belongs to JAX."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType, FunctionType, ModuleType

from jaxmon.agent.inspection import package_of


_PACKAGES = ("jax", "jaxlib")
INSIDE = os.path.join("jax", "_src", "")  # noqa: PTH118 - part of a path
"""Part of the path of each file of JAX's private code."""

_BINDINGS = os.path.join("jaxlib", "")  # noqa: PTH118 - part of a path


def is_inside(frame: FrameType) -> bool:
    """Return whether *frame* runs private code of JAX, whose variables may be read."""
    return INSIDE in frame.f_code.co_filename


def is_binding(frame: FrameType) -> bool:
    """Return whether *frame* runs Python code of jaxlib, which wraps the runtime."""
    return _BINDINGS in frame.f_code.co_filename


def is_class(kind: type) -> bool:
    """Return whether *kind* is a class of JAX, whose code can be trusted."""
    return package_of(kind) in _PACKAGES


def is_code(fun: FunctionType) -> bool:
    """Return whether *fun* runs code of JAX, whatever it says of itself."""
    module = dict.get(fun.__globals__, "__name__")
    return type(module) is str and is_module(module)


def is_module(name: str) -> bool:
    """Return whether a module called *name* would be JAX's; the name proves nothing."""
    return name.partition(".")[0] in _PACKAGES


def directories(jax: ModuleType) -> tuple[str, ...]:
    """Return the path prefixes of JAX's files."""
    found = [*jax.__path__, *getattr(sys.modules.get("jaxlib"), "__path__", ())]
    return tuple([f"{Path(path)}{os.sep}" for path in found])
