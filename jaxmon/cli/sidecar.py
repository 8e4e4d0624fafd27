"""``jaxmon-exporter``: the sidecar under its own name."""

from __future__ import annotations

import gc

from jaxmon.cli.entry import loading


def main() -> None:
    """
    Run ``jaxmon exporter``.

    Loads it with the garbage collector off, which the command turns on once it
    serves: modules stay alive, and scanning them repeatedly while they are loaded takes
    a tenth of the startup time.
    """
    gc.disable()
    with loading():
        from jaxmon.cli.main import exporter

    exporter()
