"""The version, once: what builds the distribution reads it here."""

from __future__ import annotations


VERSION = "0.1.0.dev0"


def version() -> str:
    """Return the version of what runs, installed or from a bare tree."""
    return VERSION
