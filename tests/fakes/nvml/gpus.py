"""
The NVML collector in a process of its own, with a C library in the driver's place.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.processes import clean_environ


# Polls as often as it is told to and prints what came of it, so that a test can
# change the driver between two polls of one process.
DRIVER = """
import json, logging, os, sys, threading
from pathlib import Path
from jaxmon.exposition.encode import encode
from jaxmon_exporter.collectors.nvidia import collector as nvml, gpm
from jaxmon_exporter.polling import Poller

lines = []
class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("jaxmon.exporter").addHandler(Lines())
logging.getLogger("jaxmon.exporter").setLevel(logging.INFO)
collector = eval(sys.argv[1])
collector.deadline = 0.2
poller = Poller(collector)
joined = None
for command in sys.stdin:
    if command == "poll\\n":
        poller.poll()
    elif command == "background\\n":
        threading.Thread(target=poller.poll, daemon=True).start()
    elif command == "start\\n":
        poller.start()
    elif command == "stop\\n":
        poller.stop()
        joined = poller.join(90)
    status = poller.status()
    families = poller.families()
    text = encode(families).decode() if command == "text\\n" else ""
    page = {name: value for family in families for name, value in family.samples}
    print(json.dumps({
        "page": page, "success": status.success, "reason": status.reason,
        "message": status.message, "log": lines, "joined": joined,
        "text": text,
    }), flush=True)
collector.close()
"""

# Figures of a healthy H100, Xid errors aside.
FIGURES = 78
UUID = "GPU-5f0c9d2e-1a2b-3c4d-5e6f-{:012d}"


class Gpus:
    """A process with the collector and a fake driver that a test controls."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self._process = process
        self._control = directory / "control"
        self._calls = directory / "calls"
        self._xids = directory / "xids"
        self._fields = directory / "fields"

    def order(self, *lines: str) -> None:
        """Replace the driver's orders."""
        scratch = self._control.with_suffix(".new")
        scratch.write_text("".join(f"{line}\n" for line in lines))
        scratch.rename(self._control)

    def report(self, device: int, xid: int, times: int = 1) -> None:
        """Let the driver report an Xid error of a device."""
        with self._xids.open("a") as file:
            file.write(f"{device} {xid} {times}\n")

    def tell(self, command: str) -> Any:
        """Send *command* and return the collector's state after it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def poll(self) -> Any:
        """Poll once and return what came of it."""
        return self.tell("poll")

    def calls(self, name: str, device: int = -1) -> int:
        """Return how often the driver was asked for *name*, of *device* or of none."""
        return self._calls.read_text().splitlines().count(f"{name} {device}")

    def all_calls(self) -> list[str]:
        """Return what the driver was asked, each with its device, in this order."""
        return self._calls.read_text().splitlines()

    def fields(self, number: int, device: int) -> int:
        """Return how often the driver was asked for a numbered figure of a device."""
        return self._fields.read_text().splitlines().count(f"{number} {device}")


@contextmanager
def fake_gpus(
    library: Path, directory: Path, *, collector: str = "nvml.NvidiaGpus()"
) -> Iterator[Callable[..., Gpus]]:
    """Give a function that starts the *collector* on a number of fake devices."""
    with ExitStack() as stack:

        def start(count: int = 2, *orders: str, profile: str = "h100") -> Gpus:
            environ = clean_environ(
                FAKE_NVML_PROFILE=profile,
                FAKE_NVML_FIELDS=str(directory / "fields"),
                LD_LIBRARY_PATH=str(library),
                FAKE_NVML_GPUS=str(count),
                FAKE_NVML_CONTROL=str(directory / "control"),
                FAKE_NVML_LOG=str(directory / "calls"),
                FAKE_NVML_XIDS=str(directory / "xids"),
            )
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-W", "error", "-c", DRIVER, collector],
                    env=environ,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            gpus = Gpus(process, directory)
            gpus.order(*orders)
            return gpus

        yield start


def of(page: dict[str, float], device: int) -> dict[str, float]:
    """Return the figures of one device by metric and further labels, without Xids."""
    label = f'uuid="{UUID.format(device)}"'
    return {
        name.replace(label, "").replace("{,", "{").replace("{}", ""): value
        for name, value in page.items()
        if label in name and "_info" not in name and "_xid_" not in name
    }


def failures(page: dict[str, float]) -> dict[str, float]:
    """Return the failures that cost figures but not the poll, by reason."""
    return {
        name.partition('reason="')[2].rstrip('"}'): value
        for name, value in page.items()
        if name.startswith("jaxmon_collector_errors_total")
    }
