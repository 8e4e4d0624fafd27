"""Constants in which two programs differ that are the same otherwise."""

from __future__ import annotations

import os
import re
import sys
from types import ModuleType

from jaxmon import interrupts
from jaxmon.host.sources import display_path


_CONSTANT = r"( *(?:ROOT )?%?(\S+) = \S+ constant\().*(\).*)"


def varying_constant(text: str, other: str, since: float) -> str:
    """
    Return the line of the program with the first constant in which the HLO *text* of a
    module differs from *other*; empty if they differ otherwise, if it has no line, or
    if a file of the program has changed *since*, a Unix time.
    """
    # The first line may have a digest of the rest.
    pairs = zip(text.splitlines()[1:], other.splitlines()[1:], strict=False)
    found = [
        [re.fullmatch(_CONSTANT, line) for line in pair]
        for pair in pairs
        if pair[0] != pair[1]
    ]
    same = text.count("\n") == other.count("\n") and all(
        new and old and new.groups() == old.groups() for new, old in found
    )
    first = found[0][0] if found and same else None
    return _line_of(text, first[2]) if first and not _edited(since) else ""


def _line_of(text: str, name: str) -> str:
    """Return the line that has or uses the constant *name* in HLO *text*."""
    used = re.search(rf"\b{re.escape(name)}(?: = |[,)]).* metadata=(.*)", text)
    metadata = used[1] if used else ""
    if line := re.search(r'source_file="(.*?)" source_line=(\d+)', metadata):
        return f"{display_path(line[1])}:{line[2]}"
    # Tables before the computations: of files, locations, and frames.
    frame = re.search(r"stack_frame_id=(\d+)", metadata)
    at = re.search(rf"(?m)^{frame and frame[1]} {{file_location_id=(\d+)", text)
    row = rf"(?m)^{at and at[1]} {{file_name_id=(\d+) .*? line=(\d+)"
    line = re.search(row, text)
    file = re.search(rf'(?m)^{line and line[1]} "(.*)"', text)
    return f"{display_path(file[1])}:{line[2]}" if line and file else ""


def _edited(since: float) -> bool:
    """Return whether the file of a module has changed; takes milliseconds."""
    for module in sys.modules.copy().values():
        file = module.__dict__.get("__file__") if type(module) is ModuleType else None
        with interrupts.expected(OSError, TypeError, ValueError):
            times = os.stat(file)  # type: ignore[arg-type]  # noqa: PTH116 - of thousands
            if max(times.st_mtime, times.st_ctime) > since:
                return True
    return False
