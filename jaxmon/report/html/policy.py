"""The style that all pages of jaxmon share, and what a page may contain."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path


BASE = Path(__file__).parent / "base.css"
"""Colours, text, tables and cards, for light and dark, and for phones."""


def source_hash(text: str) -> str:
    """Return the source of a content security policy that allows only *text*."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
