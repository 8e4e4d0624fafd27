"""
The sockets that a server listens on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from ssl import SSLContext


_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Listener:
    """
    A listening socket, non-blocking, and how its clients are spoken to.

    Args:
        sock: bound and listening.
        ssl: speak TLS.
        handshake_timeout: seconds for the TLS handshake.
    """

    sock: socket.socket
    ssl: SSLContext | None = None
    handshake_timeout: float = 5.0


def tcp(
    host: str, port: int, *, ssl: SSLContext | None = None, handshake_timeout: float
) -> Listener:
    """
    Listen on *host*, an address: names are not resolved.

    Raises:
        OSError: the address is not one, not of this host, or in use.
    """
    family, address = _numeric_address(host, port)
    sock = socket.create_server(
        address,
        family=family,
        backlog=_BACKLOG,
        dualstack_ipv6=address[0] == "::" and socket.has_dualstack_ipv6(),
    )
    sock.settimeout(0)
    return Listener(sock, ssl, handshake_timeout)


def unix(path: Path, mode: int) -> Listener:
    """
    Listen on a new Unix socket that never has more permissions than *mode*.

    Raises:
        OSError: the path exists, is too long, or cannot be written.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux gives the file the mode of the unbound socket, less the umask;
        # without this it would be open to others until the chmod.
        with contextlib.suppress(OSError):
            os.fchmod(sock.fileno(), mode)
        sock.bind(os.fspath(path))
        path.chmod(mode)
        sock.listen(_BACKLOG)
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return Listener(sock)


def _numeric_address(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """
    Return what binds *host*; the scope of a link-local address included.
    """
    try:
        found = socket.getaddrinfo(
            "127.0.0.1" if host == "localhost" else host,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE,
        )
    except (socket.gaierror, ValueError):  # or one that no name can have
        msg = (
            f"cannot listen on {host!r}: not an IP address; "
            "use one such as 127.0.0.1, 0.0.0.0 or ::"
        )
        raise OSError(errno.EADDRNOTAVAIL, msg) from None
    family, _, _, _, address = found[0]
    return family, address
