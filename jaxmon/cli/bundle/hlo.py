"""The HLO of the newest programs of a process, for a bundle that is to have it."""

from __future__ import annotations

import re
from typing import Any

from jaxmon.cli.bundle.archive import Archive
from jaxmon.cli.workers import Worker
from jaxmon.errors import CommandError


# XLA prints them on a thread of the agent, which may be analysing others.
_SECONDS = 60.0
_MOST_NAME = 80


def add(archive: Archive, worker: Worker, newest: int) -> None:
    """
    Add the HLO of the *newest* programs of *worker* to *archive*, a file for each, and
    a list of them.
    """
    try:
        answer = worker.fetch(f"/debug/hlo?newest={newest}", timeout=_SECONDS)
    except CommandError as error:
        archive.missing[f"worker {worker.number}, HLO"] = error.message
        return
    place = f"worker-{worker.number}/hlo"
    listed: list[dict[str, Any]] = []
    programs = answer.get("programs")
    for program in programs if isinstance(programs, list) else ():
        if not isinstance(program, dict):
            continue
        function, text = str(program.get("function")), program.get("hlo")
        entry = {"function": function, "finished": program.get("finished")}
        if isinstance(text, str):
            name = re.sub(r"[^\w.-]", "_", function, flags=re.ASCII)[-_MOST_NAME:]
            file = f"{place}/{len(listed) + 1:02}-{name}.txt"
            archive.add(file, text)
            entry["file"] = file
        else:
            entry["omitted"] = str(program.get("omitted"))
        listed.append(entry)
    archive.add_json(f"{place}/programs.json", listed)
