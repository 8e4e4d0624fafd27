"""
A receiver of OTLP over gRPC and HTTP, from the official protocol buffers.

    python -m tests.fakes.otlp DIRECTORY [CERTIFICATE KEY]

Prints both ports. Each request becomes a file in DIRECTORY: a line of JSON, then the
message. While DIRECTORY has a file ``trouble``, requests are refused as it says: with
an HTTP status, the gRPC status of that name, or not at all (``hang``).
"""

import gzip
import itertools
import json
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (
    LogsServiceServicer,
    add_LogsServiceServicer_to_server,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)


class Book:
    """What came, in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count()

    def trouble(self) -> str:
        path = self._directory / "trouble"
        return path.read_text() if path.exists() else ""

    def note(self, about: dict[str, Any], body: bytes, *, kind: str = "got") -> None:
        name = f"{kind}-{next(self._numbers):05}"
        new = self._directory / f"new-{name}"
        new.write_bytes(json.dumps(about).encode() + b"\n" + body)
        new.rename(self._directory / name)


class Logs(LogsServiceServicer):
    def __init__(self, book: Book) -> None:
        self._book = book

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's
        del context
        self._book.note({"protocol": "grpc"}, request.SerializeToString(), kind="logs")
        return ExportLogsServiceResponse()


class Service(MetricsServiceServicer):
    def __init__(self, book: Book) -> None:
        self._book = book

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's
        headers = {one.key: one.value for one in context.invocation_metadata()}
        about = {"protocol": "grpc", "headers": headers}
        if trouble := self._book.trouble():
            self._book.note(about, b"", kind="refused")
            if trouble == "hang":
                time.sleep(60)
            context.abort(grpc.StatusCode[trouble], "as told")
        self._book.note(about, request.SerializeToString())
        return ExportMetricsServiceResponse()


class Handler(BaseHTTPRequestHandler):
    book: Book

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers["content-length"]))
        about = {"protocol": "http", "path": self.path, "headers": headers}
        if trouble := self.book.trouble():
            self.book.note(about, b"", kind="refused")
            if trouble == "hang":
                time.sleep(60)
            self._respond(int(trouble), b"")
            return
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/logs":
            self.book.note(about, body, kind="logs")
            self._respond(200, ExportLogsServiceResponse().SerializeToString())
            return
        if self.path == "/v1/traces":  # tests of spans have another receiver
            self.book.note(about, body, kind="traces")
            self._respond(200, b"")
            return
        request = ExportMetricsServiceRequest.FromString(body)
        self.book.note(about, request.SerializeToString())
        self._respond(200, ExportMetricsServiceResponse().SerializeToString())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(directory: str, *pair: str) -> None:
    book = Book(Path(directory))
    server = grpc.server(ThreadPoolExecutor(4))
    add_MetricsServiceServicer_to_server(Service(book), server)
    add_LogsServiceServicer_to_server(Logs(book), server)
    web = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (Handler,), {"book": book}))
    if pair:
        certificate, key = pair
        chain, secret = Path(certificate).read_bytes(), Path(key).read_bytes()
        credentials = grpc.ssl_server_credentials([(secret, chain)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        web.socket = context.wrap_socket(web.socket, server_side=True)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    threading.Thread(target=web.serve_forever, daemon=True).start()
    print(port, web.server_port, flush=True)  # noqa: T201 - for who started it
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
