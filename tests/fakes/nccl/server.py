"""
The port of NCCL's RAS.

The protocol is that of ``rasClientEventLoop`` in ``src/ras/client_support.cc`` and of
``src/ras/client.cc`` of NCCL 2.24.3 to 2.30.7, which all have protocol 2.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.fakes.nccl.jobs import Job
from tests.fakes.nccl.json_reply import as_json
from tests.fakes.nccl.text_reply import as_text


_INPUT = 1024
# The format is optional.
_ORDER = (
    ("CLIENT PROTOCOL 2",),
    ("TIMEOUT ",),
    ("SET FORMAT json", "STATUS"),
    ("STATUS",),
)


@dataclass
class Ras:
    """
    The RAS of the processes of a host; may be changed at any time.

    Args:
        job: what it describes.
        speaks_json: NCCL 2.28.7 or later.
        old: NCCL before 2.26, if it does not speak JSON.
        unheard: this many of the next greetings reach a process that is stopped.
        body: returned instead of a description.
        silent: does not return the status.
        commands: of each connection that sent some.
        violations: what a client of NVIDIA would not do.
    """

    job: Job
    speaks_json: bool = True
    old: bool = False
    unheard: int = 0
    body: bytes | None = None
    silent: bool = False
    address: str = ""
    commands: list[list[str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def queries(self) -> int:
        """Number of times that it sent messages through the job."""
        return sum("STATUS" in each for each in self.commands)

    def status(self, *, json: bool) -> bytes:
        if self.body is not None:
            return self.body
        text = as_json(self.job) if json else as_text(self.job, old=self.old)
        return text.encode()


@contextmanager
def ras(job: Job, **options: object) -> Iterator[Ras]:
    """Serve the RAS of *job* at a port of the loopback interface."""
    state = Ras(job, **options)  # type: ignore[arg-type] # as the class says
    over = threading.Event()
    threads: list[threading.Thread] = []

    def start(serve: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=serve, args=arguments)
        threads.append(thread)
        thread.start()

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if over.is_set():
                client.close()
                return
            start(serve, client)

    def serve(client: socket.socket) -> None:
        # The client may have enough at any time.
        with client, suppress(OSError):
            _Connection(state, client, over).run()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        state.address = f"127.0.0.1:{place[1]}"
        start(accept)
        try:
            yield state
        finally:
            over.set()
            socket.create_connection(place).close()
            for thread in threads:
                thread.join()
    assert state.violations == []


class _Connection:
    """Responds to the commands of one client, one line for each."""

    def __init__(
        self, state: Ras, client: socket.socket, over: threading.Event
    ) -> None:
        self._state = state
        self._client = client
        self._over = over
        self._commands: list[str] = []
        self._json = False

    def run(self) -> None:
        client, state = self._client, self._state
        client.settimeout(0.05)
        received = b""
        while not self._over.is_set():
            try:
                data = client.recv(_INPUT)
            except TimeoutError:
                continue
            if not data:
                return
            if not received and not self._commands:
                if state.unheard:
                    state.unheard -= 1
                    self._over.wait(60)
                    return
                state.commands.append(self._commands)
            received += data
            if len(received) > _INPUT:
                state.violations.append("an endless line")
                return
            while b"\n" in received:
                line, _, received = received.partition(b"\n")
                if not self._respond(line.decode()):
                    return

    def _respond(self, command: str) -> bool:
        """Respond to *command*; return whether more may follow."""
        self._commands.append(command)
        if not any(command.startswith(one) for one in _ORDER[len(self._commands) - 1]):
            self._state.violations.append(command)
        if command.startswith("CLIENT PROTOCOL "):
            return self._send(b"SERVER PROTOCOL 2\n")
        if command.startswith("TIMEOUT "):
            if int(command.removeprefix("TIMEOUT ")) < 1:
                self._state.violations.append("a query without end")
            return self._send(b"OK\n")
        if command == "SET FORMAT json" and self._state.speaks_json:
            self._json = True
            return self._send(b"OK\n")
        if command == "STATUS":
            if self._state.silent:
                self._over.wait(60)
            else:
                self._send(self._state.status(json=self._json))
            return False
        return self._send(f"ERROR: Unknown command {command}\n".encode())

    def _send(self, data: bytes) -> bool:
        """Send *data* in pieces, as they may arrive."""
        self._client.settimeout(60)
        size = max(5, len(data) // 7)
        for start in range(0, len(data), size):
            self._client.sendall(data[start : start + size])
        self._client.settimeout(0.05)
        return True
