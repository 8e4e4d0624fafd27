"""
The version, from the installed distribution.
"""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """
    Return the installed version, ``"unknown"`` when run from a bare tree.
    """
    try:
        return metadata.version("jaxmon")
    except metadata.PackageNotFoundError:
        return "unknown"
