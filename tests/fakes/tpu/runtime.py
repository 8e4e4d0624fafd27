"""
A stand-in for the metrics service of libtpu, as a program.

Takes one JSON order per line and answers each with one line. It serves what it was set
up with last: metrics in the shapes that libtpu 0.0.51 has, states of cores, and faults.
"""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc


sys.path.insert(0, str(Path(__file__).parents[3]))

from jaxmon.host.formats import protobuf as wire
from tests.fakes.tpu.encoding import measure, state
from tests.helpers.traces import field, signed


SERVICE = "tpu.monitoring.runtime.RuntimeMetricService"


class Runtime:
    """What is served, and who asked for what."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.calls: list[tuple[str, str, bool]] = []

    def handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        return {
            name: grpc.unary_unary_rpc_method_handler(answer, None, None)
            for name, answer in (
                ("GetRuntimeMetric", self.metric),
                ("ListSupportedMetrics", self.names),
                ("GetTpuRuntimeStatus", self.status),
            )
        }

    def metric(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        given = dict(wire.fields(request))
        name = wire.text(given[1])
        self.take("GetRuntimeMetric", name, context, own=bool(given.get(2)))
        if name not in self.told["metrics"]:
            context.abort(grpc.StatusCode.NOT_FOUND, f"metric not supported: {name}")
        told = self.told["metrics"][name]
        if isinstance(told, str):
            return bytes.fromhex(told)
        text = field(1, name) + field(2, "described")
        return field(1, text + b"".join(field(3, measure(one)) for one in told))

    def names(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.take("ListSupportedMetrics", "", context)
        return b"".join(field(1, field(1, name)) for name in self.told["metrics"])

    def status(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        words = request == b"\x08\x01"
        self.take("GetTpuRuntimeStatus", "words" if words else "", context)
        if isinstance(states := self.told.get("states", []), str):
            return bytes.fromhex(states)
        return field(1, "host") + b"".join(
            field(2, signed(1, one["id"]) + field(2, state(one)))
            for one in (without(states) if not words else states)
        )

    def take(
        self,
        method: str,
        name: str,
        context: grpc.ServicerContext,
        *,
        own: bool = False,
    ) -> None:
        self.calls.append((method, name, own))
        delays = self.told.get("delays", {})
        time.sleep(self.told.get("delay", delays.get(name, 0)))
        for what in (method, name):
            if code := self.told.get("fail", {}).get(what):
                context.abort(grpc.StatusCode[code], "as ordered")


def without(states: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in states:
        yield {key: value for key, value in one.items() if key != "location"}


def main() -> None:
    runtime = Runtime()
    address, secured = sys.argv[1:]
    server = grpc.server(ThreadPoolExecutor(32))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, runtime.handlers()),)
    )
    if secured == "local":
        kind = grpc.LocalConnectionType
        way = kind.UDS if address.startswith("unix:") else kind.LOCAL_TCP
        port = server.add_secure_port(address, grpc.local_server_credentials(way))
    else:
        port = server.add_insecure_port(address)
    for line in sys.stdin:
        order = json.loads(line)
        if "metrics" in order:
            if not runtime.told:
                server.start()
            runtime.told = order
        answer = json.dumps({"port": port, "calls": runtime.calls})
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    server.stop(None)


if __name__ == "__main__":
    main()
