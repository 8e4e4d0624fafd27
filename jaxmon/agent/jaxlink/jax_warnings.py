"""
Warnings of JAX: where it issues them, and what they are about.

JAX's modules look ``warnings`` up in their globals, so a proxy there observes each
warning without a frame and without its text, which only C passes on: its kind and the
words for it come from the variables of the function that warns. What JAX logs is
observed by filters of its loggers that let every record pass.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from types import FrameType, ModuleType

from jaxmon.agent.jaxlink.jit import is_module
from jaxmon.tuples import NamedTuple


# Those of the persistent cache are failures, which are counted there.
_OF_THE_CACHE = (
    "jax._src.compiler",
    "jax._src.lru_cache",
    "jax._src.compilation_cache",
)
_KINDS = {
    "dtypes": "dtype_unavailable",
    "scatter": "dtype_cast",
    "deprecations": "deprecated",
}
# Other loggers warn of what a setting of the program asks for, such as compiles.
_LOGGERS = {
    "jax._src.xla_bridge": "backend",
    "jax._src.callback": "callback",
    "jax._src.debugging": "callback",
    "jax._src.distributed": "other",
}


class JaxWarning(NamedTuple):
    """
    A warning.

    Attributes:
        kind: one of `catalog.WARNING_KINDS`.
        text: what it is about.
    """

    kind: str
    text: str


def modules() -> list[ModuleType]:
    """Return the modules of JAX that may warn, of those imported so far."""
    return [
        module
        for name, module in sys.modules.copy().items()
        if is_module(name)
        and name not in _OF_THE_CACHE
        and getattr(module, "__dict__", {}).get("warnings") is warnings
    ]


def loggers() -> list[logging.Logger]:
    """Return the loggers of JAX that report problems."""
    return [logging.getLogger(name) for name in _LOGGERS]


def warned_at(frame: FrameType) -> JaxWarning:
    """Return what *frame*, a function of JAX, warns of."""
    code, variables = frame.f_code, frame.f_locals
    if unused := variables.get("unused_donations"):
        given = ", ".join(map(str, unused))
        return JaxWarning("donation", f"Some donated buffers were not usable: {given}")
    module = Path(code.co_filename).stem
    kind = _KINDS.get(module, "other")
    if kind == "dtype_unavailable" and "dtype" in variables:
        dtype = getattr(variables["dtype"], "__name__", variables["dtype"])
        return JaxWarning(
            kind, f"dtype {dtype} is not available while jax_enable_x64 is not set"
        )
    if kind == "dtype_cast":
        return JaxWarning(kind, "a value is cast to the dtype of the array it updates")
    if kind == "deprecated" and isinstance(variables.get("message"), str):
        return JaxWarning(kind, variables["message"])
    return JaxWarning(kind, f"JAX warned in {module}.{code.co_name}")


def warned_by(record: logging.LogRecord) -> JaxWarning:
    """Return what a *record* of one of `loggers` warns of."""
    return JaxWarning(_LOGGERS.get(record.name, "other"), record.getMessage())
