"""
Exit with 0 while the sidecar of this container serves; for images without curl.
"""

from __future__ import annotations

import os
import socket
import sys
from http.client import HTTPConnection, HTTPException


_TIMEOUT_SECONDS = 4.0
_OK = 200


def main() -> int:
    """
    Ask for the health page, or only connect where TLS may stand before it.
    """
    host = os.environ.get("JAXMON_EXPORTER_HOST", "127.0.0.1")
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared
        host = "127.0.0.1"
    port = int(os.environ.get("JAXMON_EXPORTER_PORT", "9467"))
    try:
        if os.environ.get("JAXMON_EXPORTER_WEB_CONFIG"):
            socket.create_connection((host, port), _TIMEOUT_SECONDS).close()
            return 0
        connection = HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", "/-/healthy")
            return int(connection.getresponse().status != _OK)
        finally:
            connection.close()
    except (OSError, HTTPException):
        return 1


if __name__ == "__main__":
    sys.exit(main())
