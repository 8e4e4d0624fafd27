"""
How limits reach the processes of a host.

The sidecar writes those that it was given into the run directory, and agents and
commands there judge by them. ``JAXMON_LIMITS`` names a file of one process. It is JSON:
a program that is observed need not have a parser of YAML.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmon import interrupts
from jaxmon.errors import ConfigFileError
from jaxmon.host import rundir
from jaxmon.host.files import bounded, whole
from jaxmon.host.formats import durations, json_text
from jaxmon.limits import LIMITS, Limits


SCHEMA = 1
NAME = "limits.json"
"""Of the file in the run directory."""

VARIABLE = "JAXMON_LIMITS"

_MOST_BYTES = 1 << 16
log = logging.getLogger("jaxmon")


def publish(directory: Path, limits: Limits) -> None:
    """Let all in the run *directory* judge by *limits*, in a file unless defaults."""
    path = directory / NAME
    if limits.changed:
        document = {"schema": SCHEMA, "limits": dict(limits.changed)}
        mode = rundir.prepare(directory)
        text = f"{json.dumps(document, indent=1)}\n"
        whole.write(path, text.encode(), private=True, follow=False)
        path.chmod(mode)
    else:
        path.unlink(missing_ok=True)


def current(run_dir: Path | str | None = None) -> Limits:
    """Return the limits of ``JAXMON_LIMITS``, or the run directory's; 15 to 40 µs."""
    directory = rundir.locate(None if run_dir is None else os.fspath(run_dir))
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else directory / NAME
    try:
        return read(path)
    except FileNotFoundError as error:
        if not named:
            return Limits()
        problem = str(error.strerror)
    except (OSError, ConfigFileError) as error:
        interrupts.pass_on(error)
        problem = str(error)
    _complain(f"{path}: {problem}; judging by the default limits")
    return Limits()


def read(path: Path) -> Limits:
    """Return the limits in the file *path*; `FileNotFoundError`, `ConfigFileError`."""
    if not path.exists():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    text = bounded.read_text(path, most=_MOST_BYTES)
    try:
        document = json_text.parse(text)
        if not isinstance(document, dict) or not isinstance(
            found := document.get("limits"), dict
        ):
            msg = 'expected {"schema": 1, "limits": {…}}'
            raise ValueError(msg)  # noqa: TRY301, TRY004 - as for what is no JSON
        json_text.require_schema(document, SCHEMA)
        return checked(found)
    except ValueError as error:
        raise ConfigFileError(str(error)) from error


def checked(found: Mapping[str, Any]) -> Limits:
    """Return the limits *found* in JSON that this release has, or `ValueError`."""
    for name, value in found.items():
        if name not in LIMITS:
            continue
        form = LIMITS[name].form
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if form == "duration":
            durations.seconds(value if isinstance(value, str) else "")
        elif not number or not 0 < value < (1 if form == "ratio" else math.inf):
            kind = "ratio between 0 and 1" if form == "ratio" else "number above 0"
            msg = f"{name} is {value!r:.40}, not a {kind}"
            raise ValueError(msg)
    return Limits(**{name: value for name, value in found.items() if name in LIMITS})


_complaints: set[str] = set()


def _complain(text: str) -> None:
    if text not in _complaints:
        _complaints.add(text)
        log.warning("%s", text)
