"""Copies of dashboards that are about to be replaced."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import count
from pathlib import Path

from jaxmon.files import whole as whole_file
from jaxmon.grafana.client import Stored


def save(stored: Stored, *, uid: str, directory: Path, now: datetime) -> Path:
    """
    Write the dashboard *uid* to a new file of *directory* and return its path.

    Only this user can read it. Grafana's "Import" takes it as it is.

    Raises:
        OSError: it could not be written, down to the disk; nothing is left of it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = f"{uid}-v{stored.version}-{now:%Y%m%dT%H%M%SZ}"
    text = json.dumps(stored.body, indent=2, ensure_ascii=False) + "\n"
    # Of a lone surrogate that is the escape that JSON has for it.
    data = text.encode("utf-8", "backslashreplace")
    for number in count(1):
        path = directory / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        try:
            whole_file.write(path, data, private=True, replace=False)
        except FileExistsError:
            continue
        return path
    raise AssertionError(stem)  # numbers do not end
