"""A real Prometheus that receives a fleet and evaluates rules, and what it uses."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import yaml

from jaxmon.host.resources.process import resident_bytes
from tests.helpers import prometheus


Sample: TypeAlias = tuple[dict[str, str], float]
Matrix: TypeAlias = list[tuple[dict[str, str], list[tuple[float, float]]]]

_PATIENCE_SECONDS = 600.0


class ServerError(Exception):
    """Prometheus rejects a request, or is busy for too long."""


@dataclass
class Server(prometheus.Server):
    """
    Prometheus, for the length of a ``with`` block.

    Args:
        directory: for its configuration, data and log.
        program: path of the binary.
        head: length of the blocks in memory; samples may be half as old.
        config: its configuration.
        most: samples that a query may load; Prometheus's own limit is 50 million.
    """

    directory: Path
    program: str = "prometheus"
    head: str = "2h"
    config: dict[str, Any] = field(default_factory=dict)
    most: int = 500_000_000
    url: str = field(default="", init=False)

    name: ClassVar[str] = "Prometheus"
    patience: ClassVar[float] = _PATIENCE_SECONDS

    def __enter__(self) -> Self:
        self._configure()
        return super().__enter__()

    def command(self, port: int) -> list[str]:
        """Return what starts it on *port*."""
        return [
            self.program,
            f"--config.file={self._file}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            "--storage.tsdb.retention.time=90d",
            f"--storage.tsdb.min-block-duration={self.head}",
            "--storage.tsdb.max-block-duration=9d",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-lifecycle",
            "--web.enable-remote-write-receiver",
            "--query.timeout=10m",
            f"--query.max-samples={self.most}",
        ]

    def reload(self, config: dict[str, Any]) -> None:
        """Take another configuration, which stays when the server is started again."""
        self.config = config
        self._configure()
        self._fetch("/-/reload", data=b"")

    def query(self, expression: str, at: float) -> list[Sample]:
        """Return labels and values of *expression* at the moment *at*."""
        data = self.api("query", query=expression, time=at)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def range(self, expression: str, first: float, last: float, step: float) -> Matrix:
        """Return the samples of *expression* from *first* to *last*."""
        data = self.api(
            "query_range", query=expression, start=first, end=last, step=step
        )
        return [
            (one["metric"], [(at, float(value)) for at, value in one["values"]])
            for one in data["result"]
        ]

    def api(self, path: str, **parameters: object) -> Any:
        """
        Return the data of a response of the API.

        Raises:
            ServerError: with Prometheus's reason.
        """
        return json.loads(self.response(path, **parameters))["data"]

    def response(self, path: str, **parameters: object) -> bytes:
        """
        Return a response of the API as it is.

        Raises:
            ServerError: with Prometheus's reason.
        """
        body = urlencode(parameters).encode() if parameters else None
        return self._fetch(f"/api/v1/{path}", data=body)

    def own(self) -> dict[str, float]:
        """Return the metrics that the server exports about itself."""
        found = {}
        for line in self._fetch("/metrics").decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def cpu_seconds(self) -> float:
        """Return the CPU time that the server has used."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Return the resident memory of the server."""
        return resident_bytes(Path(f"/proc/{self._process.pid}")) or 0

    @property
    def _file(self) -> Path:
        return self.directory / "prometheus.yml"

    def _configure(self) -> None:
        self._file.write_text(yaml.safe_dump({"global": {}, **self.config}))

    def _fetch(self, path: str, data: bytes | None = None) -> bytes:
        request = Request(self.url + path, data=data)  # noqa: S310 - our own server
        try:
            with urlopen(request, timeout=_PATIENCE_SECONDS) as response:  # noqa: S310 - likewise
                found: bytes = response.read()
                return found
        except HTTPError as error:
            with error:
                msg = f"{path}: status {error.code}: {error.read().decode()[:500]}"
            raise ServerError(msg) from None
