"""Entry points of the commands: Ctrl-C stops them silently, even during import."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def main() -> None:
    """Run ``jaxmon``."""
    with _loading():
        from jaxmon.cli.main import main as command

    command(prog_name="jaxmon")


def exporter() -> None:
    """
    Run ``jaxmon exporter`` under its own name, ``jaxmon-exporter``.

    Loads it with the garbage collector off, which the command turns on once it
    serves: modules stay alive, and scanning them repeatedly while they are loaded takes
    a tenth of the startup time.
    """
    gc.disable()
    with _loading():
        from jaxmon.cli.main import main as command

    command(["exporter", *sys.argv[1:]], prog_name="jaxmon")


@contextmanager
def _loading() -> Iterator[None]:
    """
    Let Ctrl-C in the block terminate the process with the default action. Python would
    print where it was importing.
    """
    # Not where it is ignored, as for jobs in the background of a script.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
