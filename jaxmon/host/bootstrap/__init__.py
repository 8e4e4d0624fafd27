"""
Loads jaxmon into the fresh interpreter started by `jaxmon run`, before the program.

This directory goes first on ``PYTHONPATH``, so that Python imports its
``sitecustomize`` while starting. That module runs the existing ``sitecustomize`` and
waits for the import of JAX. It restores the environment first, unless processes that
the program starts are to be observed as well: these find it in theirs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


VARIABLE = "JAXMON_BOOTSTRAP"
"""Settings for one process, which removes the variable."""
OF_CHILDREN = "JAXMON_BOOTSTRAP_CHILDREN"
"""Settings for a process and all that it starts."""


def programs(root: Path = Path("/proc")) -> Iterator[tuple[int, dict[str, str], Any]]:
    """
    Yield the Python processes of this user that `jaxmon run` has started, whether they
    have imported JAX or not: pid, environment at the start, and settings.
    """
    for process in root.glob("[0-9]*"):
        with suppress(OSError, ValueError, AttributeError):  # gone, another user's
            raw = (process / "environ").read_bytes()
            if VARIABLE.encode() not in raw:
                continue
            words = raw.decode(errors="replace").split("\0")
            environ = dict(word.split("=", 1) for word in words if "=" in word)
            text = environ.get(VARIABLE)
            settings = json.loads(text or environ[OF_CHILDREN])
            if (process / "exe").readlink().name.startswith("python"):
                yield (
                    int(process.name),
                    environ,
                    settings["settings"] if text else settings,
                )


def environment(
    environ: Mapping[str, str], settings: Mapping[str, Any], *, children: bool = False
) -> dict[str, str]:
    """
    Return *environ* for an interpreter that starts jaxmon with *settings*, and with
    *children*, for all that it starts. It may be within another `jaxmon run`.
    """
    here = str(Path(__file__).parent)
    given = environ.get("PYTHONPATH")
    original = given and os.pathsep.join(
        entry for entry in given.split(os.pathsep) if entry != here
    )
    # Without its own entry, an inherited path is as if it had not been set.
    original = None if given and not original else original
    found = {
        **environ,
        "PYTHONPATH": f"{here}{os.pathsep}{original}" if original else here,
    }
    for name in (VARIABLE, OF_CHILDREN):
        found.pop(name, None)
    if children:
        found[OF_CHILDREN] = json.dumps(dict(settings))
    else:
        message = {"pythonpath": original, "settings": dict(settings)}
        found[VARIABLE] = json.dumps(message)
    return found
