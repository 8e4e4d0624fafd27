"""The addresses of this host, as the kernel lists them."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path


_MOST = 64
_MOST_BYTES = 1 << 20
_LOCAL = r"\|-- ([\d.]{7,15})\n\s+/32 host LOCAL"


def addresses(root: Path = Path("/")) -> list[str]:
    """Return those of all interfaces, loopback included; without a resolver."""
    net = root / "proc/net"
    found = dict.fromkeys(re.findall(_LOCAL, _text(net / "fib_trie")))
    for line in _text(net / "if_inet6").splitlines():
        digits = line.split(" ", 1)[0]
        if re.fullmatch(r"[0-9a-f]{32}", digits):
            found[str(ipaddress.IPv6Address(int(digits, 16)))] = None
    return list(found)[:_MOST]


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return ""
