"""
One page of one Unix socket, whatever it holds. For many at once see `fetch`.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Answer:
    """
    Args:
        status: of HTTP.
        headers: by lower-case name.
        body: as it came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


def get(path: Path, target: str, *, timeout: float) -> Answer:
    """
    GET *target* from the server that listens on *path*.

    Args:
        path: of the Unix socket.
        target: path and query.
        timeout: seconds for each wait; the server may send a long answer slowly.

    Raises:
        OSError: nobody listens, or a wait took too long.
        http.client.HTTPException: the answer is no HTTP, or was cut off.
    """
    connection = _Connection(path, timeout)
    try:
        connection.request("GET", target, headers={"Connection": "close"})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """
        Connect to the Unix socket instead of a host.
        """
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
