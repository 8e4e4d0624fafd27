"""
Loads jaxmon into the fresh interpreter started by `jaxmon run`, before the program.

This directory goes first on ``PYTHONPATH``, so that Python imports its
``sitecustomize`` while starting. That module restores the environment, runs the
existing ``sitecustomize``, and installs `jaxmon.autostart`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


VARIABLE = "JAXMON_BOOTSTRAP"


def environment(
    environ: Mapping[str, str], settings: Mapping[str, Any]
) -> dict[str, str]:
    """Return *environ* for an interpreter that starts jaxmon with *settings*."""
    original = environ.get("PYTHONPATH")
    here = str(Path(__file__).parent)
    return {
        **environ,
        "PYTHONPATH": f"{here}{os.pathsep}{original}" if original else here,
        VARIABLE: json.dumps({"pythonpath": original, "settings": dict(settings)}),
    }
