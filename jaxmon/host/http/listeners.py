"""The sockets that a server listens on."""

from __future__ import annotations

import _socket
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jaxmon.host.files.descriptor import OwnedSocket
from jaxmon.host.http.messages import Request, Response
from jaxmon.host.http.sockets import Socket, Transport
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from concurrent.futures import Future


# As many as the kernel grants (net.core.somaxconn): if the queue overflows, a client
# gets no response, and retries after one, three and seven seconds.
_BACKLOG = 4096
# A client that does not read would have the kernel hold megabytes for it.
_SEND_BUFFER = 128 << 10


class Gate(Protocol):
    """Guards a listener; used on the server's thread."""

    @property
    def guards(self) -> bool:
        """Whether it keeps out websites in a browser."""
        ...

    @property
    def authenticates(self) -> bool:
        """Whether clients must give a password or a certificate."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers for every response."""
        ...

    def open(self, sock: socket.socket) -> Transport:
        """Return the transport of a client just accepted; `OSError` if it is gone."""
        ...

    def check(self, request: Request) -> Response | Future[Response | None] | None:
        """Return the response that rejects *request*, `None` if it is admitted."""
        ...


class Listener(NamedTuple):
    """
    A non-blocking listening socket and the gate that admits clients, `None` for all. A
    *local* one is a Unix socket, guarded by the permissions of its file.
    """

    sock: OwnedSocket
    gate: Gate | None = None
    local: bool = False

    @property
    def guarded(self) -> bool:
        """Whether websites that pretend to be this host are kept out."""
        return self.local or (self.gate is not None and self.gate.guards)

    @property
    def authenticated(self) -> bool:
        """Whether clients have shown that they may read what not everyone may."""
        return self.local or (self.gate is not None and self.gate.authenticates)

    def open(self, sock: socket.socket) -> Transport:
        """Return the transport of a client that was accepted here."""
        return Transport(sock) if self.gate is None else self.gate.open(sock)


def tcp(host: str, port: int, *, gate: Gate | None = None) -> Listener:
    """
    Listen on *host*, an address: names are not resolved. Raises `OSError`: the address
    is invalid, not of this host, or in use.
    """
    family, address = numeric_address(host, port)
    everywhere = address[0] == "::"
    if everywhere and not socket.has_dualstack_ipv6():
        # A kernel without IPv6 has no other addresses than these.
        family, address, everywhere = socket.AF_INET, ("0.0.0.0", port), False  # noqa: S104
    sock = Socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not everywhere)
        sock.bind(address)
        sock.listen(_BACKLOG)
        # Connections inherit both.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(0)
        name = f"jaxmon's TCP port {sock.getsockname()[1]}, which is no longer served"
        return Listener(OwnedSocket(sock, name), gate)
    except BaseException:
        sock.close()
        raise


def unix(path: Path, mode: int) -> Listener:
    """
    Listen on a new Unix socket that never has more permissions than *mode*. Raises
    `OSError`: the path exists, is too long, or cannot be written.
    """
    if os.path.lexists(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    hidden = path.with_name(f".{path.name}")
    sock = OwnedSocket(Socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        # Linux gives the file the mode of the unbound socket, less the umask;
        # without this it would be open to others until the chmod.
        with contextlib.suppress(OSError):
            os.fchmod(sock.get().fileno(), mode)
        # Under a different name until it listens: a client that connects in between
        # would find a socket that refuses it, as a killed process leaves one.
        hidden.unlink(missing_ok=True)
        sock.get().bind(os.fspath(hidden))
        _set_mode(hidden, mode)
        sock.get().listen(_BACKLOG)
        sock.get().settimeout(0)
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


def _set_mode(path: Path, mode: int) -> None:
    """
    Give the new socket *path* the permissions *mode*, which the umask may have reduced.
    What others put in its place keeps its own.
    """
    if not hasattr(os, "O_PATH"):  # not Linux
        path.chmod(mode)
        return
    number = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid():
            os.chmod(f"/proc/self/fd/{number}", mode)  # noqa: PTH101 - it is open
    finally:
        os.close(number)


def numeric_address(host: str, port: int) -> tuple[int, Any]:
    """Return the address to bind for *host*, with the scope of a link-local address."""
    try:
        found = _socket.getaddrinfo(
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
