"""URLs: validation and parts."""

from __future__ import annotations

import base64
import ipaddress
import re
from urllib.parse import SplitResult, unquote, urlsplit


# Characters allowed in a URL; all others are percent-encoded.
_PLAIN = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_PORTS = {"http": 80, "https": 443}


def parts_of(address: str) -> SplitResult:
    """Return the parts of *address*. Raises `ValueError`: it is no URL with a host."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    # An address in brackets has been validated already.
    named = ":" in host or _NAME.fullmatch(host)
    usable = parts.scheme in _PORTS and named and port != 0
    if not usable or not _PLAIN.fullmatch(address):
        msg = f"{without_user(address)!r} is not a URL; give http(s)://HOST/PATH"
        raise ValueError(msg)
    return parts


def without_user(address: str) -> str:
    """Return *address* without credentials, for display."""
    user, _, rest = address.rpartition("@")
    scheme, separator, _ = user.partition("://")
    return f"{scheme}{separator}{rest}" if separator else rest


def shown(parts: SplitResult) -> str:
    """Return the address for display: without user, password and query."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def place_of(parts: SplitResult) -> tuple[str, int]:
    """Return host and port; the scheme's default port if none is given."""
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)


def target_of(parts: SplitResult) -> str:
    """Return the request target: path and query."""
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def authority(host: str, port: int) -> str:
    """Return host and port as written in URLs and in ``Host``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(parts: SplitResult) -> bool:
    """Return whether an address belongs to this host."""
    host = (parts.hostname or "").rstrip(".")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def basic(parts: SplitResult) -> str:
    """Return the value of a basic authentication header."""
    return f"Basic {_credentials(parts)}"


def secrets_of(parts: SplitResult) -> tuple[str, ...]:
    """Return the password and its form in a header; nothing if there is none."""
    return (unquote(parts.password), _credentials(parts)) if parts.password else ()


def _credentials(parts: SplitResult) -> str:
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return base64.b64encode(user.encode()).decode()
