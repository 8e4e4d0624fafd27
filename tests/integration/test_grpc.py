"""The client of gRPC, against servers of HTTP/2 that behave, and others that do not."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxmon_exporter.grpc.ask import ask
from jaxmon_exporter.grpc.call import CANCELLED, GONE, SLOW, UNSAID, Call, Failure


pytest.importorskip("h2")

from h2.events import StreamEnded

from tests.fakes import http2
from tests.fakes.http2 import DONE, OK, Peer, Server, message, on_request


METHOD = "/package.Service/Method"
LONG = 20.0
SHORT = 0.3


def put(server: Server, *requests: bytes, seconds: float = LONG) -> list[Any]:
    return ask([Call(server.target, METHOD, one) for one in requests], seconds)


def one(act: Callable[[Peer, int], None], seconds: float = LONG) -> Any:
    """Return what one request comes to that *act* answers."""
    with Server(on_request(act)) as server:
        (reply,) = put(server, b"request", seconds=seconds)
    return reply


def test_replies_come_in_the_order_of_the_calls() -> None:
    """Many calls share a connection, and servers answer in any order."""
    asked: list[int] = []

    def last_first(peer: Peer, stream: int) -> None:
        asked.append(stream)
        if len(asked) == 20:
            for each in reversed(asked):
                peer.reply(each, str(each).encode())

    with Server(on_request(last_first)) as server:
        replies = put(server, *(bytes([number]) for number in range(20)))
    assert replies == [str(stream).encode() for stream in sorted(asked)]
    assert server.connections == 1


def test_a_server_takes_as_many_at_a_time_as_it_likes() -> None:
    """Calls wait for their turn; none is refused."""
    open_at_once: list[int] = []

    def slowly(peer: Peer, stream: int) -> None:
        open_at_once.append(peer.http.open_inbound_streams)
        peer.reply(stream, b"yes")

    with Server(on_request(slowly), most=1) as server:
        assert put(server, *[b"x"] * 7) == [b"yes"] * 7
    assert max(open_at_once) <= 1


def test_the_server_sees_a_call_of_grpc() -> None:
    """
    Method, kind, and how long it has, in the headers; the request behind its length.
    """
    seen: dict[str, Any] = {"body": b""}

    def look(peer: Peer, event: Any) -> None:
        seen.update({k.decode(): v for k, v in getattr(event, "headers", None) or ()})
        seen["body"] += getattr(event, "data", None) or b""
        if isinstance(event, StreamEnded):
            peer.reply(event.stream_id, b"")

    with Server(look) as server:
        assert put(server, b"request", seconds=61.5) == [b""]
    assert seen[":path"] == METHOD.encode()
    assert (seen[":method"], seen["te"]) == (b"POST", b"trailers")
    assert seen["content-type"] == b"application/grpc"
    assert seen["grpc-timeout"] == b"61500m"
    assert seen["body"] == b"\0\0\0\0\x07request"


def test_a_large_reply_arrives_whole() -> None:
    """In as many frames as the server makes of it."""
    payload = bytes(range(256)) * 4000

    def act(peer: Peer, stream: int) -> None:
        peer.http.send_headers(stream, OK)
        rest = message(payload)
        while rest:
            size = peer.http.max_outbound_frame_size
            peer.http.send_data(stream, rest[:size])
            rest = rest[size:]
        peer.http.send_headers(stream, DONE, end_stream=True)

    assert one(act) == payload


def test_bytes_may_drip() -> None:
    """A reply that comes byte by byte is the same reply."""

    def act(peer: Peer, stream: int) -> None:
        peer.reply(stream, b"drop by drop")
        for byte in peer.http.data_to_send():
            peer.sock.sendall(bytes([byte]))

    assert one(act) == b"drop by drop"


@pytest.mark.parametrize(
    ("number", "code"),
    [("5", "NOT_FOUND"), ("12", "UNIMPLEMENTED"), ("13", "INTERNAL")],
)
@pytest.mark.parametrize("alone", [False, True])
def test_a_status_says_why(number: str, code: str, alone: bool) -> None:  # noqa: FBT001
    """After a response, or instead of one."""

    def act(peer: Peer, stream: int) -> None:
        said = [("grpc-status", number), ("grpc-message", "because")]
        if alone:
            peer.http.send_headers(stream, OK + said, end_stream=True)
        else:
            peer.http.send_headers(stream, OK)
            peer.http.send_headers(stream, said, end_stream=True)

    assert one(act) == Failure(code)


@pytest.mark.parametrize(
    ("body", "trailers", "expected"),
    [
        (message(b"x"), None, UNSAID),
        (message(b"x"), [("grpc-status", "99")], UNSAID),
        (message(b"x"), [("grpc-status", "-1")], UNSAID),
        (message(b"x"), [("other", "header")], UNSAID),
        (message(b"x", flag=b"\1"), DONE, Failure("INTERNAL")),
        (message(b"x", length=2), DONE, Failure("INTERNAL")),
        (message(b"xy", length=1), DONE, Failure("INTERNAL")),
        (b"\0\0", DONE, Failure("INTERNAL")),
        (b"", DONE, Failure("INTERNAL")),
    ],
)
def test_half_a_reply_is_none(body: bytes, trailers: Any, expected: Failure) -> None:
    """Without a status, compressed, cut off, or too long: a failure."""

    def act(peer: Peer, stream: int) -> None:
        peer.http.send_headers(stream, OK)
        peer.http.send_data(stream, body, end_stream=trailers is None)
        if trailers:
            peer.http.send_headers(stream, trailers, end_stream=True)

    assert one(act) == expected


def test_a_web_server_is_a_stranger() -> None:
    """HTTP/2 without gRPC is nobody to ask again."""

    def act(peer: Peer, stream: int) -> None:
        peer.http.send_headers(stream, [(":status", "404")], end_stream=True)

    assert one(act) == GONE


def test_what_is_reset_costs_itself_alone() -> None:
    """Other calls of the connection are answered."""

    def act(peer: Peer, stream: int) -> None:
        if stream == 3:
            peer.http.reset_stream(stream)
        else:
            peer.reply(stream, b"yes")

    with Server(on_request(act)) as server:
        assert put(server, b"1", b"2", b"3") == [b"yes", CANCELLED, b"yes"]


@pytest.mark.parametrize("how", ["goaway", "close"])
def test_a_server_that_leaves_keeps_what_it_said(how: str) -> None:
    """Replies before the end count; the rest is gone, at once."""

    def act(peer: Peer, stream: int) -> None:
        if stream == 1:
            peer.reply(stream, b"yes")
            return
        peer.flush()
        if how == "goaway":
            peer.http.close_connection()
        else:
            peer.sock.shutdown(socket.SHUT_RDWR)

    with Server(on_request(act)) as server:
        assert put(server, b"1", b"2", b"3") == [b"yes", GONE, GONE]


def test_silence_costs_the_deadline_and_others_nothing() -> None:
    """One that never answers, and one that never even greets, beside one that does."""
    idle = on_request(lambda *_: None)
    good = on_request(lambda peer, stream: peer.reply(stream, b"yes"))
    with Server(idle) as mute, Server(good, greet=False) as rude, Server(good) as well:
        calls = [Call(each.target, METHOD, b"") for each in (mute, rude, well)]
        assert ask(calls, SHORT) == [SLOW, SLOW, b"yes"]


def test_nobody_there() -> None:
    """A port and a path where nobody listens are gone at once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        target = free.getsockname()
    calls = [Call(target, METHOD, b""), Call("/nowhere/at/all", METHOD, b"")]
    assert ask(calls, LONG) == [GONE, GONE]
    assert ask([], LONG) == []


def test_a_unix_socket(run_dir: Path) -> None:
    """A path is a target; one whose queue is full is slow."""
    path = str(run_dir / "s")
    good = on_request(lambda peer, stream: peer.reply(stream, b"yes"))
    with Server(good, family=socket.AF_UNIX, address=path) as server:
        assert put(server, b"") == [b"yes"]
    full = str(run_dir / "full")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as a:
        listener.bind(full)
        listener.listen(0)
        a.connect(full)
        assert ask([Call(full, METHOD, b"")], SHORT) == [SLOW]


def test_more_than_fits_is_not_received() -> None:
    """
    A server that floods is stopped by the window; the memory of a reply is bounded.
    """
    sent = []

    def act(peer: Peer, stream: int) -> None:
        peer.http.send_headers(stream, OK)
        while (left := peer.http.local_flow_control_window(stream)) > 0:
            size = min(left, peer.http.max_outbound_frame_size)
            peer.http.send_data(stream, b"\0" * size)
            sent.append(size)
            peer.flush()

    assert one(act, seconds=1.0) == SLOW
    assert sum(sent) <= 8 << 20


def test_who_asks_and_does_not_listen_is_left(run_dir: Path) -> None:
    """Answers to pings that nobody reads are not kept without end."""

    def act(peer: Peer, _: int) -> None:
        while True:
            peer.http.ping(b"12345678")
            peer.flush()

    # There the kernel keeps less for somebody who does not read.
    path = str(run_dir / "s")
    with Server(on_request(act), family=socket.AF_UNIX, address=path) as server:
        assert put(server, b"") == [GONE]


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0" * 65536,
        b"\xff" * 65536,
        b"\x16\x03\x03\x00\x02\x02\x28",
        b"",
    ],
)
def test_what_is_no_http2_is_gone(garbage: bytes) -> None:
    """A stranger costs no exception, and no waiting."""

    def stranger(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(65536)
            sock.sendall(garbage)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=stranger, args=(listener,))
        thread.start()
        assert ask([Call(listener.getsockname(), METHOD, b"")], LONG) == [GONE]
        thread.join()


def test_damage_is_never_an_exception() -> None:
    """
    Conversations with bytes changed, dropped or repeated come to a reply or a failure.
    """
    from jaxmon_exporter.grpc.call import Pending, SessionError
    from jaxmon_exporter.grpc.session import Session

    chance = random.Random(11)  # noqa: S311 - chooses bytes, no secret
    whole = conversation()
    for _ in range(2000):
        raw = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(raw))
            if chance.random() < 0.6:
                raw[at] = chance.randrange(256)
            else:
                raw[at:at] = raw[at : at + chance.randrange(40)]
        pending = [Pending(Call("", METHOD, b"x"), 1.0) for _ in range(3)]
        session = Session(pending)
        try:
            for start in range(0, len(raw), 50):
                session.receive(bytes(raw[start : start + 50]))
                session.to_send()
        except SessionError:
            pass
        assert all(each.done is (each.reply != SLOW) for each in pending)


def conversation() -> bytes:
    """Return what a server sends that answers three calls."""
    near, far = socket.socketpair()
    with near, far:
        peer = http2.Peer(far)
        peer.http.initiate_connection()
        sent = peer.http.data_to_send()
        from jaxmon_exporter.grpc.call import Pending
        from jaxmon_exporter.grpc.session import Session

        session = Session([Pending(Call("", METHOD, b"x"), 1.0) for _ in range(3)])
        session.receive(sent)
        peer.http.receive_data(session.to_send())
        for stream in (1, 3, 5):
            peer.reply(stream, b"answer" * 5)
        return bytes(sent + peer.http.data_to_send())
