"""A host with agents of which a test sets the pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jaxmon.facts.status import HostVerdict
from jaxmon.host.http.server import Request, Response, Server
from jaxmon.limits import Limits
from jaxmon_exporter.judge import judge
from tests.fakes.agents import GOOD


# Long: on a busy machine honest agents may be slow. Short: those that hang are waited
# for.
LONG, SHORT = 60.0, 1.0


class Host:
    """Agents in a run directory whose debug endpoints a test sets."""

    def __init__(self, run_dir: Path, stack: ExitStack) -> None:
        self.run_dir = run_dir
        self.asked: list[str] = []
        self._stack = stack

    def agent(
        self, slot: int, overview: Any, events: Any = None, *, metrics: bytes = GOOD
    ) -> None:
        """Serve *overview* and *events*: bytes as they are, others as JSON."""

        def page(name: str, content: Any) -> Callable[[Request], Response]:
            body = content if isinstance(content, bytes) else json.dumps(content)

            def handle(_: Request) -> Response:
                self.asked.append(f"{slot} {name}")
                raw = body if isinstance(body, bytes) else body.encode()
                return Response(raw, "application/json")

            return handle

        empty = {"events": [], "left_out": 0}
        server = Server(
            {
                "/metrics": lambda _: Response(metrics),
                "/debug/overview": page("overview", overview),
                "/debug/functions": page("functions", overview),
                "/debug/events": page("events", empty if events is None else events),
            },
            name=f"agent-{slot}",
        )
        server.listen_unix(self.run_dir / f"agent-{slot}.sock")
        server.start()
        self._stack.callback(server.stop)

    def judge(self, *, timeout: float = LONG) -> HostVerdict:
        return judge(self.run_dir, Limits(), timeout=timeout)
