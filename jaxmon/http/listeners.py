"""The sockets that a server listens on."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol


if TYPE_CHECKING:
    from concurrent.futures import Future
    from ssl import SSLContext


# As many as the kernel grants (net.core.somaxconn): where it overflows, a client hears
# nothing, and tries again after one second, three, seven.
_BACKLOG = 4096
# A client that does not read would have the kernel hold megabytes for it.
_SEND_BUFFER = 128 << 10


class Gate(Protocol):
    """Decides who is let in."""

    @property
    def encrypted(self) -> bool:
        """Whether clients must speak TLS."""
        ...

    @property
    def guards(self) -> bool:
        """Whether clients must speak TLS or have a password."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers for every response."""
        ...

    def context(self) -> SSLContext:
        """Return what the next connection is encrypted with."""
        ...

    def admits_certificate(self, certificate: Mapping[str, object] | None) -> bool:
        """Tell whether a verified client certificate, if there is one, lets in."""
        ...

    def admits(self, path: str, authorization: str | None) -> bool | Future[bool]:
        """Tell whether a request for *path* with that header may be answered."""
        ...


class Listener(NamedTuple):
    """
    A listening socket, non-blocking, and how its clients are spoken to.

    Args:
        sock: bound and listening.
        ssl: speak TLS.
        gate: decides who is let in, and holds the newest certificates.
        handshake_timeout: seconds for the TLS handshake.
        local: a Unix socket, guarded by the permissions of its file.
    """

    sock: socket.socket
    ssl: SSLContext | None = None
    gate: Gate | None = None
    handshake_timeout: float = 5.0
    local: bool = False

    @property
    def guarded(self) -> bool:
        """
        Whether a page that pretends to be of this host is kept out: a browser has no
        certificate of ours for it, and no password, and cannot reach a Unix socket.
        """
        gate = self.gate
        return self.local or bool(self.ssl) or (gate is not None and gate.guards)

    def context(self) -> SSLContext | None:
        """Return what the next connection is encrypted with, if it is."""
        if self.gate is not None and self.gate.encrypted:
            return self.gate.context()
        return self.ssl


def tcp(
    host: str,
    port: int,
    *,
    ssl: SSLContext | None = None,
    gate: Gate | None = None,
    handshake_timeout: float,
) -> Listener:
    """
    Listen on *host*, an address: names are not resolved.

    Raises:
        OSError: the address is not one, not of this host, or in use.
    """
    family, address = numeric_address(host, port)
    everywhere = address[0] == "::"
    if everywhere and not socket.has_dualstack_ipv6():
        # A kernel without IPv6 has no other addresses than these.
        family, address, everywhere = socket.AF_INET, ("0.0.0.0", port), False  # noqa: S104
    sock = socket.create_server(
        address, family=family, backlog=_BACKLOG, dualstack_ipv6=everywhere
    )
    try:
        # Connections inherit it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        sock.settimeout(0)
        return Listener(sock, ssl, gate, handshake_timeout)
    except BaseException:
        sock.close()
        raise


def unix(path: Path, mode: int) -> Listener:
    """
    Listen on a new Unix socket that never has more permissions than *mode*.

    Raises:
        OSError: the path exists, is too long, or cannot be written.
    """
    if os.path.lexists(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    hidden = path.with_name(f".{path.name}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux gives the file the mode of the unbound socket, less the umask;
        # without this it would be open to others until the chmod.
        with contextlib.suppress(OSError):
            os.fchmod(sock.fileno(), mode)
        # Under another name until it listens: a client that looks in between would
        # find a socket that refuses it, as a killed process leaves one.
        hidden.unlink(missing_ok=True)
        sock.bind(os.fspath(hidden))
        hidden.chmod(mode)
        sock.listen(_BACKLOG)
        sock.settimeout(0)
        listener = Listener(sock, local=True)
        hidden.rename(path)
    except BaseException:
        try:
            hidden.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        finally:
            sock.close()
        raise
    return listener


def numeric_address(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Return what binds *host*; the scope of a link-local address included."""
    try:
        found = socket.getaddrinfo(
            # As bytes: for a text it would load the tables of international names.
            b"127.0.0.1" if host == "localhost" else host.encode("ascii"),
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE,
        )
    except (socket.gaierror, ValueError):  # or one that no name can have
        msg = f"{host!r} is not an IP address; use one such as 127.0.0.1, 0.0.0.0 or ::"
        raise OSError(errno.EINVAL, msg) from None
    family, _, _, _, address = found[0]
    return family, address
