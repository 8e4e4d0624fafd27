"""Places in source files."""

from __future__ import annotations


def place(file: str, line: int) -> str:
    """Return file and line, as far as they are known."""
    return f"{file}:{line}" if file and line else file
