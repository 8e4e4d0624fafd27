"""
A receiver of traces: OTLP over HTTP and gRPC, by the official protocol buffers.

    python -m tests.fakes.otlp_traces [SECONDS]

Prints its two ports, HTTP first, then each span that it receives as a line of JSON.
Waits SECONDS before each response. Ends when its standard input does.
"""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import (
    trace_service_pb2,
    trace_service_pb2_grpc,
)


def said(request: Any) -> None:
    """Print the spans in *request*."""
    for of_resource in request.resource_spans:
        resource = attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                line = {
                    "name": span.name,
                    "trace": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "kind": span.kind,
                    "began": span.start_time_unix_nano,
                    "ended": span.end_time_unix_nano,
                    "attributes": attributes(span.attributes),
                    "links": [link.span_id.hex() for link in span.links],
                    "failed": span.status.code == 2,
                    "scope": of_scope.scope.name,
                    "service": resource.get("service.name"),
                }
                # One write: `print` makes two, and other threads come between them.
                sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def attributes(given: Any) -> dict[str, Any]:
    return {
        one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in given
    }


def main() -> None:
    wait = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            time.sleep(wait)
            said(request)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - its name
            del context
            time.sleep(wait)
            said(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(http.server_port, port, flush=True)  # noqa: T201 - its output
    sys.stdin.read()


if __name__ == "__main__":
    main()
