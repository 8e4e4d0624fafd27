"""
Copies of dashboards that are about to be replaced.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from itertools import count
from pathlib import Path

from jaxmon.grafana.client import Stored


def save(stored: Stored, *, uid: str, directory: Path, now: datetime) -> Path:
    """
    Write the dashboard *uid* to a new file of *directory* and return its path.

    Only this user can read it. Grafana's "Import" takes it as it is.

    Raises:
        OSError: it could not be written, down to the disk.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = f"{uid}-v{stored.version}-{now:%Y%m%dT%H%M%SZ}"
    for number in count(1):
        path = directory / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(stored.body, file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        return path
    raise AssertionError(stem)  # numbers do not end
