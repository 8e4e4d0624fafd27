"""One sidecar process, what it watches, and the means to break that."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError

import pytest

from jaxmon.exposition.parse import parse
from tests.fakes.nvml.build import build
from tests.helpers.processes import clean_environ, http_get


UUID = "GPU-5f0c9d2e-1a2b-3c4d-5e6f-{:012d}"
# However loaded the machine: a scrape that waits for what is broken takes longer.
SCRAPE_SECONDS = 5.0
PATIENCE_SECONDS = 120.0
# The second signal would kill it, and a hung call ends nothing.
STOP_SECONDS = 60.0
MAIN = "from jaxmon.cli.main import main; main()"

Page = Mapping[str, float]
_library_lock = threading.Lock()


class Unexpected(AssertionError):  # noqa: N818 - an outcome
    """The page said something else than it should."""


@dataclass(frozen=True)
class Outcome:
    """
    What became of one row.

    Args:
        said: the output during the fault.
        recovery: seconds until the page was whole again; `None` where there is nothing
            to recover from.
        slowest: the slowest scrape, in seconds.
        failed: what was not as expected, ``""`` if all was.
        skipped: why the row could not be tried here.
    """

    said: str = ""
    recovery: float | None = None
    slowest: float = 0.0
    failed: str = ""
    skipped: str = ""


class Sidecar:
    """``jaxmon exporter`` as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self.url = ""
        self.slowest = 0.0
        assert process.stderr is not None
        for line in process.stderr:
            self.log.append(line)
            if found := re.search(r"exporter: (https?)://\S+:(\d+)/$", line):
                self.url = f"{found[1]}://127.0.0.1:{found[2]}"
                break
        self._reader = threading.Thread(
            target=self.log.extend, args=(process.stderr,), daemon=True
        )
        self._reader.start()

    def says(self, text: str) -> int:
        """Return how many lines of its log have *text*; they come a moment late."""
        return sum(text in line for line in self.log)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str = "/metrics", **headers: str) -> str:
        began = time.monotonic()
        try:
            text = http_get(f"{self.url}{path}", seconds=SCRAPE_SECONDS, **headers)
        except TimeoutError as error:
            msg = f"{path} took more than {SCRAPE_SECONDS:g} s"
            raise Unexpected(msg) from error
        self.slowest = max(self.slowest, time.monotonic() - began)
        return text

    def page(self, **headers: str) -> Page:
        found: dict[str, float] = {}
        for family in parse(self.get(**headers)):
            for name, labels, value in family.samples:
                series = f"{name}{{{labels}}}" if labels else name
                if series in found:
                    msg = f"{series} is there twice"
                    raise Unexpected(msg)
                found[series] = value
        return found

    def collector(self, name: str) -> Any:
        """Return how a collector is doing."""
        every = json.loads(self.get("/api/summary"))["collectors"]
        (one,) = (each for each in every if each["name"] == name)
        return one

    def ready(self) -> bool:
        try:
            return self.get("/-/ready") == "ready\n"
        except HTTPError as error:
            error.close()
            return False

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> int:
        """End it as a supervisor would, and return its exit code."""
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            return self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()


class Stage:
    """Where a row plays: a run directory, a fake driver, and what the row starts."""

    def __init__(self, library: Path | None = None) -> None:
        self._library = library
        self._stack = ExitStack()
        self.recovery: float | None = None
        self.said: list[str] = []
        self.sidecars: list[Sidecar] = []

    def __enter__(self) -> Self:
        # Short: the path of a Unix socket has at most 106 bytes.
        directory = tempfile.TemporaryDirectory(prefix="jm-", dir="/tmp")
        self.directory = Path(self._stack.enter_context(directory))
        self.run_dir = self.directory / "run"
        self.run_dir.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def later(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have *call* made when the row is over."""
        self._stack.callback(call, *arguments)

    # --- the sidecar -----------------------------------------------------------------

    def sidecar(
        self,
        *arguments: str,
        main: str = MAIN,
        environ: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> Sidecar:
        """
        Start a sidecar that looks five times a second, *through* another program if
        need be, and wait until it looked.
        """
        process = subprocess.Popen(
            [
                *(*through, sys.executable, "-c", main, "exporter"),
                *("--host", "127.0.0.1", "--port", "0"),
                *("--agents-interval", "0.2", "--host-interval", "0.2"),
                *("--nvml-interval", "0.2", *arguments),
            ],
            env=clean_environ(self.run_dir, **(environ or {})),
            stderr=subprocess.PIPE,
            text=True,
        )
        found = Sidecar(process)
        self.sidecars.append(found)
        self.later(found.stop)
        if not found.url:
            msg = f"it did not start: {''.join(found.log)[-300:]}"
            raise Unexpected(msg)
        self.until(found.ready, "it to be ready")
        return found

    def with_gpus(self, count: int = 2, *arguments: str, **environ: str) -> Sidecar:
        """Start a sidecar on a host with fake GPUs."""
        self.order()
        variables = {
            "LD_LIBRARY_PATH": str(self.driver()),
            "FAKE_NVML_GPUS": str(count),
            "FAKE_NVML_CONTROL": str(self.directory / "control"),
            "FAKE_NVML_XIDS": str(self.directory / "xids"),
            **environ,
        }
        return self.sidecar("--disable", "host", *arguments, environ=variables)

    def driver(self) -> Path:
        pytest.importorskip("pynvml")
        if self._library is None:
            self._library = self.directory
        with _library_lock:
            if not any(self._library.glob("libnvidia-ml*")):
                build(self._library)
        return self._library

    def order(self, *lines: str) -> None:
        control = self.directory / "control"
        scratch = control.with_suffix(".new")
        scratch.write_text("".join(f"{line}\n" for line in lines))
        scratch.rename(control)

    def report(self, device: int, xid: int, times: int = 1) -> None:
        with (self.directory / "xids").open("a") as file:
            file.write(f"{device} {xid} {times}\n")

    # --- what a row says -------------------------------------------------------------

    def say(self, text: str) -> None:
        """Put something into the table."""
        self.said.append(text)

    def expect(self, condition: object, text: str) -> None:
        """Say *text*, which must be true."""
        if not condition:
            msg = f"not so: {text}"
            raise Unexpected(msg)
        self.say(text)

    def until(
        self, probe: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS
    ) -> float:
        """Wait for *probe*, and return how long it took."""
        began = time.monotonic()
        while not probe():
            if time.monotonic() - began > seconds:
                msg = f"waited {seconds:g} s for {what}"
                raise Unexpected(msg)
            time.sleep(0.02)
        return time.monotonic() - began

    def shows(self, probe: Callable[[], Any], text: str) -> None:
        """Wait until the output contains *text*."""
        self.until(probe, text)
        self.say(text)

    def recovers(self, probe: Callable[[], Any], what: str = "recovery") -> None:
        """Wait until the page is whole again."""
        self.recovery = self.until(probe, what)

    def slowest(self) -> float:
        return max((one.slowest for one in self.sidecars), default=0.0)


def figures(page: Page, device: int) -> set[str]:
    """Return the metrics that the page has of a GPU, identity and Xids aside."""
    label = f'"{UUID.format(device)}"'
    names = {name.partition("{")[0] for name in page if label in name}
    return {name for name in names if "_info" not in name and "_xid_" not in name}


def up(page: Page, device: int) -> float | None:
    return page.get(f'jaxmon_accelerator_up{{uuid="{UUID.format(device)}"}}')


def errors(page: Page, collector: str, reason: str) -> float:
    """Return the failures counted under *reason*."""
    name = "jaxmon_collector_errors_total"
    return page.get(f'{name}{{collector="{collector}",reason="{reason}"}}', 0)


def success(page: Page, collector: str) -> float | None:
    return page.get(f'jaxmon_collector_success{{collector="{collector}"}}')


def age(page: Page, collector: str) -> float | None:
    return page.get(f'jaxmon_collector_age_seconds{{collector="{collector}"}}')
