"""A server of HTTP/2, frame by frame, that answers each request as a test says."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


DATA, HEADERS, RESET, SETTINGS, PING = 0, 1, 3, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1
# Indexed fields of HPACK, RFC 7541 appendix A.
STATUS_200, STATUS_404 = b"\x88", b"\x8d"

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field that is in no table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def page(stream: int, status: bytes = STATUS_404) -> bytes:
    """Return what a web server answers."""
    kind = literal(b"content-type", b"text/html")
    return frame(HEADERS, END_HEADERS, stream, status + kind) + frame(
        DATA, END_STREAM, stream, b"<html>"
    )


def reply(stream: int, message: bytes, *, trailers: bool = True) -> bytes:
    """Return what a server of gRPC answers; *message* as it is framed."""
    kind = literal(b"content-type", b"application/grpc")
    answer = frame(HEADERS, END_HEADERS, stream, STATUS_200 + kind)
    answer += frame(DATA, 0 if trailers else END_STREAM, stream, message)
    if trailers:
        flags, done = END_HEADERS | END_STREAM, literal(b"grpc-status", b"0")
        answer += frame(HEADERS, flags, stream, done)
    return answer


class Http2Server:
    """
    Listens for the length of a ``with`` block.

    Args:
        answer: returns the frames that answer the request of a stream; `None` hangs up.
        port: to listen on; 0 takes any free one.
    """

    def __init__(self, answer: Callable[[int], bytes | None], port: int = 0) -> None:
        self._answer = answer
        self._sock = socket.create_server(("127.0.0.1", port))
        self._threads = [threading.Thread(target=self._accept)]
        self._ends: list[socket.socket] = []

    @property
    def target(self) -> tuple[str, int]:
        host, port = self._sock.getsockname()
        return host, port

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._sock, *self._ends):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(90)
        for sock in (self._sock, *self._ends):
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self._ends.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock.makefile("rb") as received:
            sock.sendall(frame(SETTINGS, 0, 0))
            received.read(len(_PREFACE))
            while head := received.read(9):
                payload = received.read(int.from_bytes(head[:3], "big"))
                kind, flags = head[3], head[4]
                stream = int.from_bytes(head[5:], "big")
                if kind in (SETTINGS, PING) and not flags & ACK:
                    body = payload if kind == PING else b""
                    sock.sendall(frame(kind, ACK, 0, body))
                elif kind == DATA and flags & END_STREAM:
                    answer = self._answer(stream)
                    if answer is None:
                        sock.shutdown(socket.SHUT_RDWR)
                        return
                    sock.sendall(answer)
