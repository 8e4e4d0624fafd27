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
        if sys.argv[1:2] == ["run"]:
            from jaxmon.cli.launch import launch_plain

            launch_plain(sys.argv[2:])
        from jaxmon.cli.main import main as command

    command(prog_name="jaxmon")


def exporter() -> None:
    """
    Run ``jaxmon exporter`` as ``jaxmon-exporter``. Modules stay alive: scanning them
    for garbage while they load takes a tenth of the start, so it is off until the
    command serves.
    """
    gc.disable()
    with _loading():
        from jaxmon.cli.main import main as command

    command(["exporter", *sys.argv[1:]], prog_name="jaxmon")


@contextmanager
def _loading() -> Iterator[None]:
    """Let Ctrl-C end the process silently, not with a traceback of imports."""
    # Not where it is ignored, as for jobs in the background of a script.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
