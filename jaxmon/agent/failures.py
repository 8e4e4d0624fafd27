"""
What kind of failure an exception is.
"""

from __future__ import annotations

from types import TracebackType


_RUNTIME_ERRORS = ("XlaRuntimeError", "JaxRuntimeError")
_STATUS = {
    "RESOURCE_EXHAUSTED": "oom",
    "INVALID_ARGUMENT": "invalid_argument",
    "FAILED_PRECONDITION": "invalid_argument",
    "INTERNAL": "internal",
}


def is_runtime_error(error: BaseException) -> bool:
    """
    Tell whether *error* comes from XLA; the class was renamed between versions.
    """
    return any(base.__name__ in _RUNTIME_ERRORS for base in type(error).__mro__)


def kind_of(error: BaseException) -> str:
    """
    Return one of `catalog.ERROR_KINDS` for an exception that left a jitted call.
    """
    if isinstance(error, FloatingPointError):
        return "nan"
    if is_runtime_error(error):
        text = str(error)
        if "out of memory" in text[:2000].lower():
            return "oom"
        return _STATUS.get(text.partition(":")[0], "other")
    if isinstance(error, MemoryError):
        return "oom"
    if _passed(error.__traceback__, "_infer_params"):
        return "trace_error"
    arguments = isinstance(error, TypeError | ValueError | RuntimeError)
    return "invalid_argument" if arguments else "other"


def _passed(traceback: TracebackType | None, name: str) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == name:
            return True
        traceback = traceback.tb_next
    return False
