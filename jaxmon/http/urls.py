"""Addresses on the web, as somebody writes them."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit


# All that an address consists of; the rest is written with a percent sign.
_PLAIN = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_SCHEMES = ("http", "https")


def parts_of(address: str) -> SplitResult:
    """
    Return the parts of *address*, which is one of HTTP or HTTPS and names a host.

    Raises:
        ValueError: it is none; the text says what one looks like.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    # In brackets there is an address already, which has been looked at.
    named = ":" in host or _NAME.fullmatch(host)
    usable = parts.scheme in _SCHEMES and named and port != 0
    if not usable or not _PLAIN.fullmatch(address):
        msg = f"{without_user(address)!r} is no address; give http(s)://HOST/PATH"
        raise ValueError(msg)
    return parts


def without_user(address: str) -> str:
    """Return *address*, whatever it is, as it may be shown: without a password."""
    user, _, rest = address.rpartition("@")
    scheme, separator, _ = user.partition("://")
    return f"{scheme}{separator}{rest}" if separator else rest
