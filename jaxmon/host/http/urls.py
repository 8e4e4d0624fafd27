"""URLs: validation and parts; secrets in what is shown, which a server may echo."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from urllib.parse import SplitResult, quote, quote_plus, unquote, urlsplit


# Characters allowed in a URL; all others are percent-encoded.
_PLAIN = r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+"
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*\.?"
_PORTS = {"http": 80, "https": 443}


def parts_of(address: str) -> SplitResult:
    """Return the parts of *address*. Raises `ValueError`: it is no URL with a host."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    # An address in brackets has been validated already.
    named = ":" in host or re.fullmatch(_NAME, host)
    usable = parts.scheme in _PORTS and named and port != 0
    if not usable or not re.fullmatch(_PLAIN, address):
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
    import ipaddress  # noqa: PLC0415 - most commands have no URL

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


_HIDDEN = "[secret]"
# By how many bytes preceding data may shift a text in base64, and how many digits then
# hold some of that as well.
_SHIFTS = ((0, 0), (1, 2), (2, 3))
# Fewer digits occur in ordinary words as well.
_LEAST_DIGITS = 8
_ASCII = 128
# Between two bytes in hexadecimal digits.
_BETWEEN = r"[\s:,-]{0,2}(?:0x|\\x)?"


class Secrets:
    """Passwords and tokens in all forms in which they may be echoed; none if empty."""

    def __init__(self, *secrets: str, hidden: str = _HIDDEN) -> None:
        given = list(filter(None, secrets))
        forms = {form for secret in given for form in _forms(secret)}
        # If one is a prefix of another, the longer one first, so that nothing of it
        # remains.
        longest = sorted(forms, key=lambda form: (-len(form), form))
        spelled = [pattern for secret in given for pattern in _spelled(secret)]
        self._pattern = re.compile(
            "|".join([*map(re.escape, longest), *spelled]), re.IGNORECASE
        )
        self._any = bool(forms)
        self._hidden = hidden

    def redacted(self, text: str) -> str:
        """Return *text* without them: verbatim, in base64, digits, or escaped."""
        return self._pattern.sub(lambda _: self._hidden, text) if self._any else text


def _spelled(secret: str) -> Iterator[str]:
    """Yield patterns of *secret* by byte: encoded in a URL or not; digits with gaps."""
    raw = secret.encode("utf-8", "surrogateescape")
    yield "".join(
        f"(?:{re.escape(chr(byte))}|%{byte:02x})" if byte < _ASCII else f"%{byte:02x}"
        for byte in raw
    )
    if 2 * len(raw) >= _LEAST_DIGITS:
        yield _BETWEEN.join(f"{byte:02x}" for byte in raw)


def _forms(secret: str) -> Iterator[str]:
    # Most commands have no secret.
    import html  # noqa: PLC0415 - see above
    import json  # noqa: PLC0415 - see above

    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield html.escape(secret)
    raw = secret.encode("utf-8", "surrogateescape")
    if 2 * len(raw) >= _LEAST_DIGITS:
        yield raw.hex()
    for shift, before in _SHIFTS:
        encoded = base64.b64encode(bytes(shift) + raw).decode()
        # The last digit before the padding holds some of what follows.
        end = -1 if encoded.endswith("=") else None
        digits = encoded.rstrip("=")[before:end]
        if len(digits) >= _LEAST_DIGITS:
            yield digits
            yield digits.replace("+", "-").replace("/", "_")
