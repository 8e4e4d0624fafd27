"""Calls of gRPC: to a server of grpcio, and to others that are none or misbehave."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jaxmon_exporter.collectors.tpu import messages
from jaxmon_exporter.collectors.tpu.messages import (
    CUT_OFF,
    GONE,
    SLOW,
    GrpcCall,
    GrpcFailure,
    Target,
    call_all,
)
from jaxmon_exporter.collectors.tpu.runtimes import unreachable
from tests.fakes.http2 import (
    Http2Server,
    reply,
)
from tests.fakes.tpu import shapes
from tests.fakes.tpu.hosts import Runtime
from tests.helpers.processes import run_python, until


pytest.importorskip("grpc")

LONG = 90.0
SHORT = 0.5
UNKNOWN = GrpcFailure("UNKNOWN")


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """A server of grpcio, in a process of its own."""
    runtime = Runtime("127.0.0.1:0", shapes.host("v4"))
    yield runtime
    runtime.end()


def metric(target: Target, name: str) -> GrpcCall:
    request = messages.metric_request(name, single=False)
    return GrpcCall(target, messages.METRIC, request)


def one(server: Http2Server, seconds: float = LONG) -> Any:
    """Return what one request comes to."""
    (reply,) = call_all(
        [GrpcCall(server.target, "/package.Service/Method", b"x")], seconds
    )
    return reply


def test_replies_come_in_the_order_of_the_calls(runtime: Runtime) -> None:
    """Many calls are under way at once, and the server answers in any order."""
    names = [shapes.MEMORY_USED, shapes.QUEUE, shapes.DUTY_CYCLE] * 5
    runtime.tell({**shapes.host("v4"), "delays": {shapes.MEMORY_USED: 0.3}})
    calls = [metric(("127.0.0.1", runtime.port), name) for name in names]
    alone = {call.request: call_all([call], LONG) for call in calls[:3]}
    assert [[reply] for reply in call_all(calls, LONG)] == [
        alone[call.request] for call in calls
    ]
    assert len({bytes(*replies) for replies in alone.values()}) == 3


@pytest.mark.parametrize("code", ["NOT_FOUND", "UNIMPLEMENTED", "INTERNAL"])
def test_a_status_says_why(runtime: Runtime, code: str) -> None:
    """A call that fails costs itself alone."""
    runtime.tell({**shapes.host("v4"), "fail": {shapes.QUEUE: code}})
    target = ("127.0.0.1", runtime.port)
    bad, good = call_all(
        [metric(target, shapes.QUEUE), metric(target, shapes.MEMORY_USED)], LONG
    )
    assert bad == GrpcFailure(code)
    assert isinstance(good, bytes)


def test_silence_costs_the_deadline_and_others_nothing(runtime: Runtime) -> None:
    """One that never answers, and one that never even greets, beside one that does."""
    runtime.tell({**shapes.host("v4"), "delays": {shapes.QUEUE: 4}})
    target = ("127.0.0.1", runtime.port)
    with socket.create_server(("127.0.0.1", 0)) as rude:
        calls = [
            metric(rude.getsockname(), shapes.QUEUE),
            metric(target, shapes.QUEUE),
            metric(target, shapes.MEMORY_USED),
        ]
        no_greeting, no_answer, answer = call_all(calls, 2.0)
    assert (no_greeting, no_answer) == (SLOW, SLOW)
    assert isinstance(answer, bytes)


def test_nobody_there() -> None:
    """A port and a path where nothing is listening are gone at once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        target = free.getsockname()
    targets = [target, ("::1", target[1]), "/nowhere/at/all", "nowhere"]
    assert (
        call_all([GrpcCall(there, "/a/b", b"") for there in targets], LONG)
        == [GONE] * 4
    )
    assert call_all([], LONG) == []


def test_who_cannot_be_reached_is_known_without_grpc(run_dir: Path) -> None:
    """Refused addresses and full queues are found first; the rest is left to gRPC."""
    full = str(run_dir / "full")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        somebody = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        with socket.create_server(("127.0.0.1", 0)) as free:
            refused = free.getsockname()
        listener.bind(full)
        listener.listen(0)
        waiting.connect(full)
        targets = [
            *(refused, somebody.getsockname(), full, "/nowhere", "/x" * 100),
            *(("tpu-0", 8431), ("x" * 100, 8431)),
        ]
        assert unreachable(targets) == {
            refused: GONE,
            full: SLOW,
            "/nowhere": GONE,
            "/x" * 100: GONE,
        }


def test_more_than_fits_is_not_received(runtime: Runtime) -> None:
    """A reply has a largest size; one above it is a failure, and others arrive."""
    told = shapes.host("v4")
    told["metrics"][shapes.QUEUE] = "00" * ((1 << 20) + 1)
    runtime.tell(told)
    target = ("127.0.0.1", runtime.port)
    large, other = call_all(
        [metric(target, shapes.QUEUE), metric(target, shapes.MEMORY_USED)], LONG
    )
    assert large == GrpcFailure("RESOURCE_EXHAUSTED")
    assert isinstance(other, bytes)


@pytest.mark.parametrize(
    ("message", "trailers", "expected"),
    [
        (b"\0\0\0\0\1x", True, b"x"),
        (b"\0\0\0\0\0", True, b""),
        (b"\0\0\0\0\1x", False, UNKNOWN),
        (b"\0\0\0\0\2x", True, CUT_OFF),
        (b"\0\0", True, CUT_OFF),
        (b"", True, CUT_OFF),
    ],
)
def test_half_a_reply_is_none(message: bytes, trailers: bool, expected: Any) -> None:  # noqa: FBT001
    """Without a status, or cut off: a failure, and no empty message."""
    with Http2Server(
        lambda stream: reply(stream, message, trailers=trailers)
    ) as server:
        assert one(server) == expected


def test_nothing_is_left_behind(runtime: Runtime) -> None:
    """Calls leave no threads and connections, also those to one that hangs."""

    def held() -> list[int]:
        own = Path("/proc/self")
        return [len(list((own / what).iterdir())) for what in ("task", "fd")]

    with socket.create_server(("127.0.0.1", 0)) as mute:
        targets = [("127.0.0.1", runtime.port), mute.getsockname()]
        calls = [metric(target, shapes.QUEUE) for target in targets]
        # What gRPC keeps for a while, it keeps once.
        call_all(calls, SHORT)
        before = held()
        for _ in range(3):
            call_all(calls, SHORT)
        until(lambda: held() <= before, "threads and descriptors are gone")


QUIET = """
import os, sys
from jaxmon_exporter.collectors.tpu.messages import GrpcCall, call_all
print(call_all([GrpcCall("/x" * 100, "/a/b", b"")], 60))
print(os.environ["GRPC_VERBOSITY"])
"""


def test_standard_error_is_left_alone() -> None:
    """Messages of gRPC's core are not in the log, unless requested."""
    quiet = run_python("-c", QUIET).ok()
    assert "GrpcFailure" in quiet.out
    assert quiet.err == ""
    loud = run_python("-c", QUIET, env={"GRPC_VERBOSITY": "ERROR"}).ok()
    assert loud.out.endswith("ERROR\n")
    assert "Path name" in loud.err


FORKED = """
import os, sys
from jaxmon_exporter.collectors.tpu.messages import GrpcCall, call_all
calls = [GrpcCall(("127.0.0.1", int(sys.argv[1])), "/a/b", b"")]
first = call_all(calls, 60)
if (child := os.fork()) == 0:
    os._exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), call_all(calls, 60) == first)
"""


def test_a_process_that_asked_may_fork(runtime: Runtime) -> None:
    """Between two polls a child starts and ends as ever, and the parent goes on."""
    result = run_python("-W", "ignore", "-c", FORKED, str(runtime.port)).ok()
    assert (result.out, result.err) == ("7 True\n", "")
