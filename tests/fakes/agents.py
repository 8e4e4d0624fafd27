"""Agents on Unix sockets, for a collector to read: well-behaved and others."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jaxmon.host.http.server import Handler, Response, Server
from jaxmon_exporter.collectors.agents import Agents


GOOD = b"""\
# HELP jaxmon_jit_calls_total Calls.
# TYPE jaxmon_jit_calls_total counter
jaxmon_jit_calls_total{function="f"} 7
"""

Serve = Callable[..., Server]
Raw = Callable[[int, Callable[[socket.socket], object]], None]


@contextmanager
def serving(run_dir: Path) -> Iterator[Serve]:
    """Give a function that serves a page in a slot, with the agent's own server."""
    with ExitStack() as stack:

        def start(
            slot: int, page: bytes | Handler, *, target: str = "/metrics"
        ) -> Server:
            handler = (lambda _: Response(page)) if isinstance(page, bytes) else page
            server = Server({target: handler}, name=f"agent-{slot}")
            server.listen_unix(run_dir / f"agent-{slot}.sock")
            server.start()
            stack.callback(server.stop)
            return server

        yield start


@contextmanager
def behaving(run_dir: Path) -> Iterator[Raw]:
    """Give a function that lets *behave* answer each connection to a slot."""
    with ExitStack() as stack:

        def start(slot: int, behave: Callable[[socket.socket], object]) -> None:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(run_dir / f"agent-{slot}.sock"))
            listener.listen()

            def accept() -> None:
                while True:
                    try:
                        client, _ = listener.accept()
                    except OSError:
                        return
                    with client:
                        try:
                            behave(client)
                        except OSError:
                            continue

            thread = threading.Thread(target=accept, daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(listener.close)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)

        yield start


def page_of(agents: Agents) -> dict[str, float]:
    """Return what a round of the collector finds."""
    return {
        name: value for family in agents.collect() for name, value in family.samples
    }


def up(page: dict[str, float]) -> dict[str, float]:
    """Return which agents answered, by worker."""
    return {
        name.partition('worker="')[2].rstrip('"}'): value
        for name, value in page.items()
        if name.startswith("jaxmon_agent_up")
    }


def failures(page: dict[str, float]) -> dict[str, float]:
    """Return failures that were counted, by reason."""
    return {
        name.partition('reason="')[2].rstrip('"}'): value
        for name, value in page.items()
        if name.startswith("jaxmon_collector_errors_total") and value
    }
