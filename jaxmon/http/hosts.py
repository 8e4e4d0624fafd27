"""
By which names a server may be asked: protection from DNS rebinding.

A page of some other site can have its name resolve to this machine, and its script then
reads what we serve as if it came from there. What gives it away is the ``Host`` header,
which has that site's name, for a browser writes it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Mapping


# Nobody outside can register these, nor what stands beneath: RFC 6761, 6762, 8375 and
# ICANN's .internal; .svc is what Kubernetes calls services.
_OURS = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
# The last label of an address, also in its odd forms (127.1, 0x7f.1).
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
# A browser sends some of these with each request, and no script can take all away; no
# scraper sends any.
_BROWSER = (
    "accept-language",
    "cookie",
    "origin",
    "referer",
    "sec-fetch-mode",
    "sec-fetch-site",
    "upgrade-insecure-requests",
)
_PATTERN = re.compile(r"\*|(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", re.IGNORECASE)


class Hosts:
    """
    Names that a server goes by. Always: addresses, names without a dot, names under
    domains that nobody can register, and the name of this machine. Any thread.

    Args:
        allowed: more names; ``*.example.com`` for all beneath one, ``*`` for all.

    Raises:
        ValueError: one of them is no name.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        names = [one.lower() for one in allowed]
        for name in names:
            if not _PATTERN.fullmatch(name.removesuffix(".")) or name == "*.":
                msg = (
                    f"{name!r} is no name of a host; give one such as "
                    "gpu-7.example.com, *.example.com or *"
                )
                raise ValueError(msg)
        names = [name.removesuffix(".") for name in names]
        self._any = "*" in names
        self._names = {*names, os.uname().nodename.lower()}
        self._suffixes = _OURS + tuple(
            name[1:] for name in names if name.startswith("*.")
        )

    def admits(self, headers: Mapping[str, str], sock: socket.socket) -> bool:
        """
        Tell whether a request may be answered.

        One by a foreign name may not if it came over loopback, where no name but this
        machine's leads, nor if a browser may have sent it. Else it may: a scraper
        elsewhere uses whatever name its site has for this machine.

        Args:
            headers: of the request, by lower-case name.
            sock: where it came in.
        """
        return self._known(headers.get("host", "")) or not (
            _is_loopback(sock)
            or any(name in headers for name in _BROWSER)
            or headers.get("user-agent", "").startswith("Mozilla/")
        )

    def _known(self, host: str) -> bool:
        if self._any or host.startswith("["):
            return True
        name = host.partition(":")[0].lower().rstrip(".")
        head, dot, label = name.rpartition(".")
        return (
            not dot
            or name in self._names
            or name.endswith(self._suffixes)
            or (bool(head) and _NUMBER.fullmatch(label) is not None)
        )


def _is_loopback(sock: socket.socket) -> bool:
    try:
        address: str = sock.getsockname()[0]
    except OSError:  # closed meanwhile
        return True
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"
