"""Entry point of the commands: Ctrl-C stops them silently, even during import."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def main() -> None:
    """Run ``jaxmon``."""
    with loading():
        from jaxmon.cli.main import main as command

    command(prog_name="jaxmon")


@contextmanager
def loading() -> Iterator[None]:
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
