"""
A host with TPUs: the kernel's files in a directory, runtimes and the collector as
processes.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.fakes.tpu.shapes import GENERATIONS, Told
from tests.helpers.processes import clean_environ


UUID = "TPU-0000:00:{:02x}.0"

# Polls as often as it is told to and prints what came of it.
COLLECTOR = """
import json, logging, sys
from pathlib import Path
from jaxmon.exposition.encode import encode
from jaxmon_exporter.collectors.tpu.collector import Tpus
from jaxmon_exporter.polling import Poller

lines, now = [], [1000.0]
class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("jaxmon.exporter").addHandler(Lines())
logging.getLogger("jaxmon.exporter").setLevel(logging.INFO)
root, environ = sys.argv[1:]
tpus = Tpus(root=Path(root), environ=json.loads(environ), clock=lambda: now[0])
poller = Poller(tpus)
for line in sys.stdin:
    now[0] += float(line)
    poller.poll()
    status = poller.status()
    families = poller.families()
    print(json.dumps({
        "page": {name: value for family in families for name, value in family.samples},
        "text": encode(families).decode(), "success": status.success,
        "reason": status.reason, "message": status.message, "log": lines,
        "loaded": "grpc" in sys.modules,
    }), flush=True)
tpus.close()
"""


class Program:
    """A process that takes a line and answers with one."""

    def __init__(self, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environ(None, **(env or {})),
        )

    def ask(self, line: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Runtime(Program):
    """A process that holds TPUs."""

    def __init__(self, address: str, told: Told, *, secured: str = "local") -> None:
        super().__init__(str(Path(__file__).with_name("runtime.py")), address, secured)
        self.port = 0
        self.tell(told)

    def tell(self, told: Told) -> None:
        self.port = self.ask(json.dumps(told))["port"]
        assert self.port, "the address is taken"

    def calls(self, method: str, name: str = "") -> list[bool]:
        """Return, for each request so far, whether it was for this process alone."""
        return [
            own
            for one, of, own in self.ask("{}")["calls"]
            if (one, of) == (method, name)
        ]


class Host:
    """
    A host, for the length of a ``with`` block.

    Args:
        root: an empty directory.
        generation: of its TPUs, `None` if it has none.
    """

    def __init__(self, root: Path, generation: str | None = None) -> None:
        self.root = root
        self.environ: dict[str, str] = {}
        self._stack = ExitStack()
        self._collector: Program | None = None
        (root / "sys/bus/pci/devices").mkdir(parents=True)
        pci(root, "0000:00:01.0", vendor="0x8086")
        pci(root, "0000:00:02.0", vendor="0x1ae0", device="0x0042")  # a network card
        if generation:
            self.add_chips(generation)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add_chips(self, generation: str) -> None:
        device, board, _, chips, _ = GENERATIONS[generation]
        for chip in range(chips):
            address = f"0000:00:{chip + 4:02x}.0"
            pci(self.root, address, device=device, board=board)
            if generation in ("v2", "v3", "v4"):
                node = self.root / f"dev/accel{chip}"
            else:
                # Groups do not count from 0, and not in one width.
                node = self.root / f"dev/vfio/{chip + 7}"
                link = self.root / f"sys/bus/pci/devices/{address}/iommu_group"
                link.symlink_to(f"../../../../kernel/iommu_groups/{chip + 7}")
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch()

    def serve(
        self, told: Told, address: str = "", *, secured: str = "local"
    ) -> tuple[Runtime, str]:
        """Start a runtime; return it and its port, of which the collector will know."""
        runtime = Runtime(address or "127.0.0.1:0", told, secured=secured)
        self._stack.callback(runtime.end)
        port = str(runtime.port)
        if not address:
            known = self.environ.get("TPU_RUNTIME_METRICS_PORTS", "").split(",")
            ports = [one for one in (*known, port) if one]
            self.environ["TPU_RUNTIME_METRICS_PORTS"] = ",".join(ports)
        return runtime, port

    def poll(self, after: float = 0.0, **env: str) -> Any:
        """Poll once, *after* seconds more."""
        if self._collector is None:
            arguments = (str(self.root), json.dumps(self.environ))
            self._collector = Program("-c", COLLECTOR, *arguments, env=env)
            self._stack.callback(self._collector.end)
        return self._collector.ask(str(after))


def pci(
    root: Path,
    address: str,
    *,
    vendor: str = "0x1ae0",
    device: str = "0x0001",
    board: str = "0x0000",
) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir()
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "device").write_text(f"{device}\n")
    (folder / "subsystem_device").write_text(f"{board}\n")


def of(page: Mapping[str, float], metric: str) -> dict[str, float]:
    """Return the samples of *metric* by their labels."""
    return {
        series.partition("{")[2].rstrip("}"): value
        for series, value in page.items()
        if series.partition("{")[0] == metric
    }


def chip(index: int) -> str:
    return f'uuid="{UUID.format(index + 4)}"'


def core(number: int, per_chip: int = 1) -> str:
    """Return the labels of a core, by its number on the host."""
    return f'{chip(number // per_chip)},core="{number % per_chip}"'


def up(state: Any) -> list[float]:
    return list(of(state["page"], "jaxmon_tpu_runtime_up").values())


def failures(state: Any) -> dict[str, float]:
    """Return what went wrong so far, by the labels of its counter."""
    return of(state["page"], "jaxmon_collector_errors_total")
