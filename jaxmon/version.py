"""The version; also read by the build."""

from __future__ import annotations


VERSION = "0.1.0.dev0"


def version() -> str:
    """Return the version of the running code, installed or from a source tree."""
    return VERSION
