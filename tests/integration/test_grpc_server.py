"""The gRPC interceptors on real servers, against what the clients saw."""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from jaxmon.catalog import REQUEST_SECONDS, REQUESTS_IN_PROGRESS
from jaxmon.grpc import Interceptor, aio_interceptor
from jaxmon.indicators.work import mark_cold
from tests.helpers.indicators import Recorded, recording
from tests.helpers.processes import until


SERVICE = "models.Predict"
CODES = {
    "OK": "success",
    "INVALID_ARGUMENT": "client_error",
    "NOT_FOUND": "client_error",
    "CANCELLED": "client_error",
    "UNKNOWN": "error",
    "UNAVAILABLE": "error",
    "DEADLINE_EXCEEDED": "error",
}


def parse(request: bytes) -> int:
    """Return the number in *request*; raises for garbage."""
    return int(request)


def encode(response: int) -> bytes:
    """Return *response* as text; raises for what is no number."""
    return b"%d" % response


# --- behaviours: what happens depends on the number that is sent --------------------


def decide(number: int, context: Any) -> int:
    """Do what *number* says."""
    if number == 1:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
    if number == 2:
        raise LookupError
    if number == 3:
        context.set_code(grpc.StatusCode.UNAVAILABLE)
    if number == 4:
        mark_cold()
    if number in (5, 99):  # no statuses
        context.set_code(number)
    if number == 6:
        sys.exit("no")
    if number == 9:  # until the client has left
        until(lambda: not context.is_active(), "the client to leave")
    return number


async def decide_async(number: int, context: Any) -> int:
    if number == 1:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
    if number == 2:
        raise LookupError
    if number == 3:
        context.set_code(grpc.StatusCode.UNAVAILABLE)
    if number == 4:
        mark_cold()
    if number in (5, 99):  # the first is NOT_FOUND
        context.set_code(number)
    if number == 6:
        raise asyncio.CancelledError
    if number == 9:
        await asyncio.sleep(600)
    return number


def unary(number: int, context: Any) -> int:
    return decide(number, context)


def stream(number: int, context: Any) -> Iterator[int]:
    yield 0
    yield decide(number, context)


def collect(numbers: Iterator[int], context: Any) -> int:
    return [decide(number, context) for number in numbers][-1]


def echo(numbers: Iterator[int], context: Any) -> Iterator[int]:
    for number in numbers:
        yield decide(number, context)


async def unary_async(number: int, context: Any) -> int:
    return await decide_async(number, context)


async def stream_async(number: int, context: Any) -> Any:
    yield 0
    yield await decide_async(number, context)


async def collect_async(numbers: Any, context: Any) -> int:
    return [await decide_async(number, context) async for number in numbers][-1]


async def echo_async(numbers: Any, context: Any) -> None:
    async for number in numbers:
        await context.write(await decide_async(number, context))


METHODS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def handlers(*behaviours: Callable[..., Any]) -> Any:
    """Return the handlers of the service, one for each kind of method."""
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            name: getattr(grpc, f"{name}_rpc_method_handler")(
                behaviour, request_deserializer=parse, response_serializer=encode
            )
            for name, behaviour in zip(METHODS, behaviours, strict=True)
        },
    )


@contextmanager
def sync_server() -> Iterator[int]:
    """Run a server with threads; give its port."""
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, interceptors=[Interceptor()])
        server.add_generic_rpc_handlers((handlers(*THREADED),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(grace=None).wait()


ASYNC = unary_async, stream_async, collect_async, echo_async
THREADED = unary, stream, collect, echo


@contextmanager
def async_server(behaviours: Any = ASYNC) -> Iterator[int]:
    """Run a server in an event loop on a thread; give its port."""
    ports: list[int] = []
    pool = ThreadPoolExecutor(8)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def serve() -> None:
        server = grpc.aio.server(pool, interceptors=[aio_interceptor()])
        server.add_generic_rpc_handlers((handlers(*behaviours),))
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        ready.set()
        await stopping.wait()
        await server.stop(None)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()
        pool.shutdown()


@contextmanager
def threaded_server() -> Iterator[int]:
    """Run a server in an event loop, whose plain functions it runs on threads."""
    with async_server(THREADED) as port:
        yield port


SERVERS = pytest.mark.parametrize("server", [sync_server, async_server])


@pytest.fixture(scope="module", autouse=True)
def poller() -> Iterator[None]:
    """Keep the poller that asynchronous servers share, a thread of gRPC's."""

    async def run(function: Callable[[], None]) -> None:
        function()

    # It belongs to a loop, of which an earlier test may have left none.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(run(grpc.aio.init_grpc_aio))
    yield
    loop.run_until_complete(run(grpc.aio.shutdown_grpc_aio))
    loop.close()


class Client:
    """Calls the service, and notes the status of each RPC."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.truth: Counter[tuple[str, str, str]] = Counter()
        self._channel = channel

    def call(self, method: str, number: int, **options: Any) -> str:
        """Make one RPC; return its status."""
        code = self.code(method, str(number).encode(), **options)
        start = "cold" if number == 4 else "warm"
        self.truth[f"/{SERVICE}/{method}", CODES[code], start] += 1
        return code

    def code(self, method: str, request: bytes, **options: Any) -> str:
        """Return the status of one RPC."""
        kind = method if method in METHODS else "unary_unary"
        make = getattr(self._channel, kind)(f"/{SERVICE}/{method}")
        given = iter([b"0", request]) if kind.startswith("stream") else request
        try:
            if kind.endswith("stream"):
                list(make(given, **options))
            else:
                make(given, **options)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"


@SERVERS
def test_rpcs_equal_what_the_clients_counted(recorded: Recorded, server: Any) -> None:
    """Under load, RPCs of all kinds count once, by method, status and start."""
    with server() as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        client = Client(channel)
        calls = [(m, n) for m in METHODS for n in range(5) for _ in range(15)]
        with ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(lambda call: client.call(*call), calls))
        assert set(codes) == {"OK", "INVALID_ARGUMENT", "UNKNOWN", "UNAVAILABLE"}
        until(lambda: recorded.requests() == client.truth, "the end of all RPCs")

    assert recorded.value(REQUESTS_IN_PROGRESS.name) == 0
    assert recorded.value(f"{REQUEST_SECONDS.name}_count") == len(calls)
    assert not recorded.failures.failures()


def test_plain_functions_of_an_asynchronous_server(recorded: Recorded) -> None:
    """Their status counts as well; with streams, gRPC itself may wait forever."""
    with threaded_server() as port, grpc.insecure_channel(f"127.0.0.1:{port}") as one:
        client = Client(one)
        codes = [client.call("unary_unary", number, timeout=60) for number in range(5)]
        assert codes == ["OK", "INVALID_ARGUMENT", "UNKNOWN", "UNAVAILABLE", "OK"]
        until(lambda: recorded.requests() == client.truth, "the end of all RPCs")

    assert not recorded.failures.failures()


@SERVERS
def test_deadlines_and_cancellation(recorded: Recorded, server: Any) -> None:
    """An RPC past its deadline is an error, one that is canceled a client error."""
    with server() as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        client = Client(channel)
        grpc.channel_ready_future(channel).result(60)
        with ThreadPoolExecutor(len(METHODS)) as pool:
            # Long enough for a busy server to have begun.
            codes = pool.map(lambda one: client.call(one, 9, timeout=8), METHODS)
            assert set(codes) == {"DEADLINE_EXCEEDED"}
        route = f"/{SERVICE}/unary_stream"
        until(lambda: recorded.requests() == client.truth, "the deadlines")
        call = channel.unary_stream(route)(b"9")
        assert next(call) == b"0"
        call.cancel()
        client.truth[route, "client_error", "warm"] += 1
        until(lambda: recorded.requests() == client.truth, "the cancelled RPC")

    assert recorded.value(REQUESTS_IN_PROGRESS.name) == 0


@SERVERS
def test_odd_ends_are_what_the_clients_saw(recorded: Recorded, server: Any) -> None:
    """Numbers for statuses; a behaviour that ends its task or thread is an error."""
    with server() as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        client = Client(channel)
        grpc.channel_ready_future(channel).result(60)
        assert client.call("unary_unary", 99) == "UNKNOWN"
        client.call("unary_unary", 5)
        assert client.call("unary_unary", 6, timeout=2) == "DEADLINE_EXCEEDED"
        until(lambda: recorded.requests() == client.truth, "the end of all RPCs")

    assert not recorded.failures.failures()


@SERVERS
def test_garbage_and_unknown_methods(recorded: Recorded, server: Any) -> None:
    """Unparsable requests and unknown methods are client errors, and no routes."""
    with server() as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        client = Client(channel)
        assert client.code("unary_unary", b"garbage") in ("INTERNAL", "UNKNOWN")
        assert client.code("made-up", b"1") == "UNIMPLEMENTED"
        assert client.code("unary_unary", b"0") == "OK"
        until(lambda: sum(recorded.requests().values()) == 3, "three RPCs")

    assert recorded.requests() == {
        (f"/{SERVICE}/unary_unary", "client_error", "warm"): 1,
        ("unmatched", "client_error", "warm"): 1,
        (f"/{SERVICE}/unary_unary", "success", "warm"): 1,
    }


def odd_stream(number: int, context: Any) -> Iterator[Any]:
    yield number
    yield "odd"


async def odd_stream_async(number: int, context: Any) -> Any:
    yield number
    yield "odd"


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_responses_of_a_stream_that_cannot_be_serialized(recorded, kind, monkeypatch):
    """They are errors at once; a single response is a success, as documented."""
    name = "THREADED" if kind == "threads" else "ASYNC"
    behaviours: list[Any] = list(globals()[name])
    behaviours[1] = odd_stream if kind == "threads" else odd_stream_async
    monkeypatch.setitem(globals(), name, tuple(behaviours))
    serve = sync_server() if kind == "threads" else async_server(ASYNC)
    with serve as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert Client(channel).code("unary_stream", b"7") in ("INTERNAL", "UNKNOWN")
        route = f"/{SERVICE}/unary_stream"
        until(lambda: bool(recorded.requests()), "the end of the RPC")

    assert recorded.requests() == {(route, "error", "warm"): 1}
    assert recorded.value(REQUESTS_IN_PROGRESS.name) == 0


def fails_when_called(number: int, context: Any) -> Iterator[int]:
    raise LookupError(number)


def fails_later(number: int, context: Any) -> Iterator[int]:
    yield number
    raise LookupError(number)


class Incomparable(int):
    """Like an array, whose comparison has no truth value."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError


STREAMS: list[Callable[..., Any]] = [
    fails_when_called,
    fails_later,
    lambda number, _: iter([number, Incomparable(number)]),
    lambda number, _: [number],  # no iterator, as the server asks
    lambda *_: None,
]


def test_messages_are_as_without_the_interceptor(recorded: Recorded) -> None:
    """Clients of streams see the same responses, statuses and messages."""

    def seen(*interceptors: Any) -> list[Any]:
        found: list[Any] = []
        with ThreadPoolExecutor(1) as pool:
            server = grpc.server(pool, interceptors=interceptors)
            handler = grpc.unary_stream_rpc_method_handler
            methods = {
                str(number): handler(one, parse, encode)
                for number, one in enumerate(STREAMS)
            }
            served = grpc.method_handlers_generic_handler("S", methods)
            server.add_generic_rpc_handlers((served,))
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                for name in methods:
                    call = channel.unary_stream(f"/S/{name}")(b"7")
                    try:
                        found += call
                    except grpc.RpcError as error:
                        found += [error.code(), error.details()]
            server.stop(grace=None).wait()
        return found

    plain = seen()
    assert seen(Interceptor()) == plain
    assert sum(recorded.requests().values()) == len(STREAMS)
    assert plain.count(b"7") == 3


def test_without_an_agent_nothing_is_wrapped() -> None:
    """The handler is the program's own."""
    handler = grpc.unary_unary_rpc_method_handler(unary)
    passed = Interceptor().intercept_service(lambda _: handler, None)
    assert passed is handler
    with recording():
        details = type("Details", (), {"method": "/a/b"})()
        replaced = Interceptor().intercept_service(lambda _: handler, details)
    assert replaced is not handler
    assert replaced.unary_unary.__wrapped__ is not None
