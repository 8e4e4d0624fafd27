"""Exit with 0 while this container's sidecar is serving; for images without curl."""

from __future__ import annotations

import os
import sys
from http.client import HTTPException

from jaxmon.host.http import client
from jaxmon.host.http.stream import Bounds, connected


_SECONDS = 4.0
_MAX_BYTES = 1 << 16
_OK = 200


def main() -> int:
    """Query the health endpoint, or only connect if TLS may be enabled."""
    host = os.environ.get("JAXMON_EXPORTER_HOST") or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared
        host = "127.0.0.1"
    try:
        port = int(os.environ.get("JAXMON_EXPORTER_PORT") or "9467")
        if os.environ.get("JAXMON_EXPORTER_WEB_CONFIG"):
            with connected((host, port), Bounds(_SECONDS, _MAX_BYTES)):
                return 0
        response = client.get(
            (host, port), "/-/healthy", seconds=_SECONDS, max_bytes=_MAX_BYTES
        )
        return int(response.status != _OK)
    except (OSError, HTTPException, OverflowError, ValueError):
        return 1


if __name__ == "__main__":
    sys.exit(main())
