"""A server behind a web configuration."""

from __future__ import annotations

import base64
import http.client
import ssl
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import trustme

from jaxmon.host.http.server import Response, Server
from jaxmon_exporter.web.gate import AccessGate


PAGE = b"the page\n"


def page(_: Any) -> Response:
    return Response(PAGE)


class Site:
    """A server behind a web configuration, and those who may sign certificates."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self.path = directory / "web.yml"
        self._stack = stack
        self.port = 0
        self.gate: AccessGate
        self.errors: list[tuple[str, BaseException]] = []

    def certify(self, name: str = "localhost", **options: Any) -> None:
        """Write ``cert.pem`` and ``key.pem`` for the server."""
        issued = self.authority.issue_cert(name, **options)
        issued.private_key_pem.write_to_path(str(self.directory / "key.pem"))
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (self.directory / "cert.pem").write_bytes(chain)

    def serve(self, config: str, *, read_timeout: float = 60) -> None:
        self.path.write_text(config)
        self.gate = AccessGate(self.path)
        self._stack.callback(self.gate.close)
        server = Server(
            {"/metrics": page, "/-/healthy": page},
            max_connections=64,
            read_timeout=read_timeout,
            on_error=lambda *error: self.errors.append(error),
        )
        self.port = server.listen_tcp("127.0.0.1", 0, gate=self.gate)
        server.start()
        self._stack.callback(server.stop)

    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def get(
        self,
        path: str = "/metrics",
        *,
        context: ssl.SSLContext | None = None,
        user: tuple[str, str] | None = None,
        **headers: str,
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        if user is not None:
            encoded = base64.b64encode(":".join(user).encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        connection = (
            http.client.HTTPConnection("localhost", self.port, timeout=60)
            if context is None
            else http.client.HTTPSConnection(
                "localhost", self.port, timeout=60, context=context
            )
        )
        with closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(), response.headers


TLS = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
CLIENTS = TLS + "  client_ca_file: ca.pem\n"
