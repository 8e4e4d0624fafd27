"""Agents that report ranks, and what a sidecar makes of them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from jaxmon.host.http.server import Response, Server
from jaxmon_exporter.collectors.registry import NAMES
from jaxmon_exporter.options import SidecarOptions
from jaxmon_exporter.ranks import Ranks
from jaxmon_exporter.service import Service


class Agent:
    """An agent on a Unix socket that reports *rank*."""

    def __init__(self, run_dir: Path, slot: int, rank: object) -> None:
        self.rank = rank
        self.asked: list[str] = []
        self.server = Server(
            {"/debug/rank": self._respond, "/debug/stacks": self._stacks},
            name=f"agent-{slot}",
        )
        self.server.listen_unix(run_dir / f"agent-{slot}.sock")
        self.server.start()

    def _respond(self, _: object) -> Response:
        return Response(json.dumps(self.rank).encode(), "application/json")

    def _stacks(self, _: object) -> Response:
        self.asked.append("stacks")
        thread = {"name": "MainThread", "stack": ["train.py:58 in main"]}
        return Response(json.dumps({"threads": [thread]}).encode(), "application/json")


def agent(stack: ExitStack, run_dir: Path, slot: int, rank: object) -> Agent:
    made = Agent(run_dir, slot, rank)
    stack.callback(made.server.stop)
    return made


def ranks_of(run_dir: Path, stack: ExitStack, **options: Any) -> Ranks:
    """Return what follows the ranks of *run_dir* until the test ends."""
    found = Ranks(run_dir, fail, **options)
    stack.callback(found.close)
    return found


def fail(error: BaseException) -> None:
    raise error


def read(ranks: Ranks, *, stacks: bool = False) -> dict[str, Any]:
    """Return what is served, after the agents have been read again."""
    (ranks._read_stacks if stacks else ranks._read)()
    return ranks.document(stacks=stacks)


@contextmanager
def sidecar(run_dir: Path, *, enabled: str = "", **options: Any) -> Iterator[str]:
    """Run a sidecar of *run_dir*, with one collector at most; yield its address."""
    disabled = tuple(name for name in NAMES if name != enabled)
    service = Service(
        SidecarOptions(
            host="127.0.0.1", port=0, run_dir=run_dir, disabled=disabled, **options
        )
    )
    port = service.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        service.stop()
