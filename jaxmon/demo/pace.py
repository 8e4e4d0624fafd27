"""
How fast a demo program goes, and when it ends.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator


def ticks(description: str, *, pause: float) -> Iterator[int]:
    """
    Count from 1, *pause* seconds of sleep after each, until told to end.

    That is after ``--seconds`` of the command line, or at SIGTERM. The sleep leaves
    the machine to others: nothing here is worth a core.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, help="how long to run; default: ever")
    seconds = parser.parse_args().seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    end = float("inf") if seconds is None else time.monotonic() + seconds
    tick = 0
    while time.monotonic() < end:
        tick += 1
        yield tick
        time.sleep(pause)
