"""
Names of cipher suites: Go's, as Prometheus's web configuration has them, to OpenSSL's.
"""

from __future__ import annotations

import re
import ssl


# Suites of TLS 1.3 cannot be chosen, here or in Go.
ALWAYS_ON = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)


def is_possible(cipher: str) -> bool:
    """Return whether this OpenSSL has a suite of that OpenSSL name."""
    # A name, not a list of them nor a rule, such as HIGH:!aNULL@SECLEVEL=0.
    if not re.fullmatch(r"[A-Za-z0-9_-]+", cipher):
        return False
    try:
        # One at a time: OpenSSL silently drops unknown names from a list.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(cipher)
    except ssl.SSLError:
        return False
    return True


def openssl_name(name: str) -> str:
    """
    Return OpenSSL's name of a suite of TLS 1.2 that is given by Go's.

    ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` is ``ECDHE-RSA-AES128-GCM-SHA256``, and
    ``TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA`` is ``ECDHE-RSA-AES128-SHA``.
    """
    match = re.fullmatch(r"TLS_(\w+?)_WITH_(\w+)", name)
    if match is None:
        return name
    exchange, rest = match.groups()
    rest = re.sub(r"AES_(\d+)", r"AES\1", rest).replace("_CBC", "")
    rest = rest.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + rest.replace("_", "-")
