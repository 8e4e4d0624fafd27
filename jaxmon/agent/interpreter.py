"""Whether the agent can count in this Python."""

from __future__ import annotations

import sys


def problem() -> str | None:
    """
    Return why the agent must not start in this interpreter; `None` if it may.

    A free-threaded Python gets its lock back for good when a library is imported that
    needs it, so ask once JAX has been imported.
    """
    # Since 3.13; before, there is always a lock.
    has_lock = getattr(sys, "_is_gil_enabled", None)
    if has_lock is None or has_lock():
        return None
    version = ".".join(map(str, sys.version_info[:3]))
    return (
        f"Python {version} runs without its global interpreter lock (GIL), which "
        "jaxmon needs to count correctly; set PYTHON_GIL=1, or use a Python that is "
        "not free-threaded"
    )
