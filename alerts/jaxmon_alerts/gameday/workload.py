"""
The processes of one scenario: its programs, and the sidecar that observes them.

Faults of GPUs come from a stand-in for NVIDIA's driver library: a ``libnvidia-ml.so.1``
that reads its orders from files, as the fake in jaxmon's own tests does; jaxmon does
not ship one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from jaxmon.errors import CommandError
from jaxmon_alerts.gameday import children as programs
from jaxmon_alerts.gameday.children import ChildProcess, Children
from jaxmon_alerts.gameday.scenarios import Scenario


_LEAVE_SECONDS = 10.0
_BROKEN = "--broken"
LIBRARY = "libnvidia-ml.so.1"
_GPUS = "2"


class Workload:
    """A host for one scenario, in a new *directory*; nothing here blocks."""

    def __init__(
        self,
        scenario: Scenario,
        children: Children,
        directory: Path,
        *,
        scale: float,
        host: str = programs.HOST,
        library: Path | None = None,
    ) -> None:
        self.scenario = scenario
        self._children = children
        self._directory = directory
        self._scale = scale
        self._host = host
        directory.mkdir()
        self._driver = (
            Driver(library, directory) if library and scenario.needs_driver else None
        )
        self._environ = {
            **programs.environ(str(directory), scale=scale),
            # Reports of a drill are no use to anyone.
            "JAXMON_REPORT_DIR": str(directory / "reports"),
        }
        self._sidecar: ChildProcess | None = None
        self._running: dict[int, ChildProcess] = {}
        self._leaving: list[ChildProcess] = []
        self._leave_by = 0.0
        self._due: list[int] = []
        self._broken = False
        self._launches = 0
        self._coordinator = ""

    @property
    def address(self) -> str | None:
        """``host:port`` to scrape, once the sidecar listens."""
        url = self._sidecar and self._sidecar.printed(programs.SIDECAR_READY)
        return url.removeprefix("http://") if url else None

    def start(self) -> None:
        """Start the sidecar and all programs."""
        driver = self._driver
        options = ("--nvml-interval", "1") if driver else ("--disable", "nvml")
        self._sidecar = programs.start_sidecar(
            self._children,
            str(self._directory),
            *(*options, "--disable", "gpm", "--disable", "tpu"),
            name=f"{self.scenario.name}-sidecar",
            host=self._host,
            environ={**self._environ, **(driver.environ if driver else {})},
        )
        self._deploy(broken=False)

    def is_ready(self) -> bool:
        """Return whether all are up; `CommandError` if one exited."""
        is_over = not (self._due or self._leaving)
        return self.address is not None and is_over and self._are_launched_up()

    def begin(self) -> None:
        """Begin the fault."""
        scenario = self.scenario
        self._broken = True
        if self._driver is not None:
            self._driver.obey(scenario.orders)
            self._driver.report(scenario.xids)
        elif scenario.means in ("deploy", "redeploy"):
            self._deploy(broken=True)
        elif scenario.means == "kill":
            self._signal(signal.SIGKILL)
            self._leave()
        elif scenario.means == "freeze":
            self._signal(signal.SIGSTOP)
        else:
            self._signal(signal.SIGUSR1)

    def mend(self) -> None:
        """End the fault."""
        means = self.scenario.means
        self._broken = False
        if self._driver is not None:
            self._driver.obey(())
        elif means in ("signal", "deploy"):
            self._signal(signal.SIGUSR2)
        elif means == "freeze":
            self._signal(signal.SIGCONT)
        elif means != "crash":
            self._deploy(broken=False)

    def keep(self) -> None:
        """Start what is due; `CommandError` if one exited that should not."""
        if self._sidecar is not None:
            self._sidecar.check()
        self._dismiss()
        for index, child in list(self._running.items()):
            if child.process.poll() is None:
                continue
            if self.scenario.means != "crash":
                child.check()
            # What runs programs restarts those that exit.
            self._children.forget(child)
            del self._running[index]
            self._due.append(index)
        if self._due and not self._leaving:
            first, *rest = self._due
            # Replicas start one by one; ranks wait for each other.
            alone = self.scenario.program != "rank" and not self._broken
            if alone and not self._are_launched_up():
                return
            for index in (first, *(() if alone else rest)):
                self._launch(index)
            self._due = rest if alone else []

    def stop(self) -> None:
        """End everything; `keep` sees to it."""
        self._due = []
        if self._sidecar is not None:
            self._running[-1] = self._sidecar
            self._sidecar = None
        self._leave()

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it runs."""
        return not (self._running or self._leaving or self._sidecar)

    def _deploy(self, *, broken: bool) -> None:
        self._broken = broken
        self._leave()
        self._due = list(range(self.scenario.processes if self.scenario.program else 0))
        self._coordinator = f"{programs.HOST}:{programs.free_ports(1)[0]}"

    def _launch(self, index: int) -> None:
        scenario = self.scenario
        self._launches += 1
        broken = self._broken and scenario.means in ("deploy", "redeploy", "crash")
        options = ("--fault", scenario.name, *([_BROKEN] if broken else []))
        self._running[index] = programs.start_program(
            self._children,
            scenario.program,
            *options,
            name=f"{scenario.name}-{self._launches}",
            environ={**self._environ, **self._variables(index, broken=broken)},
        )

    def _variables(self, index: int, *, broken: bool) -> Mapping[str, str]:
        given = self.scenario.broken_environ if broken else self.scenario.environ
        named = {
            name: value.replace("{directory}", str(self._directory))
            for name, value in given
        }
        cluster = {"COORDINATOR": self._coordinator, "JAX_PROCESS_ID": str(index)}
        return {
            "JAXMON_PORT": "0",
            **(cluster if self.scenario.program == "rank" else {}),
            **named,
        }

    def _are_launched_up(self) -> bool:
        return all(
            child.printed(programs.PROGRAM_READY) for child in self._running.values()
        )

    def _signal(self, number: signal.Signals) -> None:
        for child in self._running.values():
            child.process.send_signal(number)

    def _leave(self) -> None:
        for child in self._running.values():
            child.terminate()
        self._leaving += self._running.values()
        self._running = {}
        self._leave_by = time.monotonic() + _LEAVE_SECONDS

    def _dismiss(self) -> None:
        """Forget the programs that have exited; kill those that take too long."""
        late = time.monotonic() > self._leave_by
        for child in list(self._leaving):
            if child.process.poll() is not None:
                self._children.forget(child)
                self._leaving.remove(child)
            elif late:
                child.process.kill()


class Driver:
    """The stand-in in *library*, as one sidecar sees it."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._library = library
        self._control = directory / "driver-orders"
        self._xids = directory / "driver-xids"
        self.obey(())

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that make a process load and obey it."""
        return {
            "LD_LIBRARY_PATH": str(self._library),
            "FAKE_NVML_GPUS": _GPUS,
            "FAKE_NVML_CONTROL": str(self._control),
            "FAKE_NVML_XIDS": str(self._xids),
        }

    def obey(self, orders: Iterable[str]) -> None:
        """Replace its orders."""
        # Replaced at once: it reads the file at every call.
        fresh = self._control.with_suffix(".new")
        fresh.write_text("".join(f"{order}\n" for order in orders), encoding="utf-8")
        fresh.replace(self._control)

    def report(self, xids: Iterable[str]) -> None:
        """Have it report Xid errors, each a device and a number."""
        with self._xids.open("a", encoding="utf-8") as file:
            file.writelines(f"{xid}\n" for xid in xids)


def require_driver(library: Path) -> Path:
    """Return the directory *library*, absolute; `CommandError` if it has none."""
    if not (library / LIBRARY).is_file():
        msg = (
            f"{library} holds no {LIBRARY}; give the directory of a stand-in for the "
            "driver, built from tests/fakes/nvml in jaxmon's repository"
        )
        raise CommandError(msg)
    return library.resolve()
