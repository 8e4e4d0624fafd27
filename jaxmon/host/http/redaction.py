"""Redacts secrets from output, since a server may echo them."""

from __future__ import annotations

import re
from collections.abc import Iterator


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
    import base64  # noqa: PLC0415 - see above
    import html  # noqa: PLC0415 - see above
    import json  # noqa: PLC0415 - see above
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 - see above

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
