"""
The summary of a run: what is kept of a process, and what two of them are compared by.

Written by the agent at the end of a process, and by commands while it is running.
"""

from __future__ import annotations

import time


SCHEMA = 1
"""
Version of ``summary.json``: raised when a reader of the one before would be misled.
Fields may be added at any time.
"""

MOST_BYTES = 2 << 20
"""Maximum size of a summary, and of its page."""


def stem(moment: float, pid: int) -> str:
    """Return the name of the files, without suffix, of a report of a process."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))
    return f"run-{when}-{pid}"
