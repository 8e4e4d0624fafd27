"""Detects whether something is listening at an address, without gRPC."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable
from errno import EAGAIN, EINPROGRESS
from typing import Any

from jaxmon_exporter.collectors.tpu.channel import GONE, SLOW, Failure, Target


# On the same host a port accepts or refuses immediately.
_SECONDS = 0.2


def unreachable(targets: Iterable[Target]) -> dict[Target, Failure]:
    """
    Return the *targets* where nothing is listening, and why.

    All others may be listening: a host name is not resolved, and a slow host is left to
    gRPC.
    """
    found: dict[Target, Failure] = {}
    end = time.monotonic() + _SECONDS
    with selectors.DefaultSelector() as waiting, contextlib.ExitStack() as stack:
        for target in targets:
            try:
                family, address = _address(target)
            except (OSError, UnicodeError):
                continue
            try:
                sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                sock.setblocking(False)  # noqa: FBT003 - the standard library's
                error = sock.connect_ex(address)
            except OSError:  # such as a path that is too long
                found[target] = GONE
                continue
            if error == EINPROGRESS:
                waiting.register(sock, selectors.EVENT_WRITE, target)
            elif error:  # of a Unix socket the queue may be full
                found[target] = SLOW if error == EAGAIN else GONE
        while waiting.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                waiting.unregister(key.fileobj)
                if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):  # type: ignore[union-attr]  # a socket
                    found[key.data] = GONE
    return found


def _address(target: Target) -> tuple[int, Any]:
    """
    Return the family and the address of *target*.

    Raises:
        OSError: its host is a name.
        UnicodeError: likewise, and the name is invalid.
    """
    if isinstance(target, str):
        return socket.AF_UNIX, target
    host, port = target
    numeric = socket.AI_NUMERICHOST
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=numeric
    )[0]
    return family, address
