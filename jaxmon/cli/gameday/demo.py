"""``jaxmon demo``: two programs, a sidecar, what they show, and alerts of a fault."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.gameday.scene import (
    DisplayState,
    SceneLog,
    clock,
    drawn,
    finish,
    steps,
    totals_table,
    view,
)
from jaxmon.cli.main import require
from jaxmon.cli.options import BASE_URL, Number, Whole, option, subcommand
from jaxmon.errors import CommandError
from jaxmon.host.files import whole as scratch
from jaxmon.host.formats.layout import clean
from jaxmon.settings import SIDECAR_PORT
from jaxmon_alerts.gameday import children as programs
from jaxmon_alerts.gameday import stack
from jaxmon_alerts.gameday.children import ChildProcess, Children
from jaxmon_alerts.gameday.scenarios import BY_NAME, SCENARIOS
from jaxmon_alerts.gameday.stack import (
    SCALE,
    MonitoringPrograms,
    MonitoringStack,
    active,
    alerts_of,
    fetch,
)


if TYPE_CHECKING:
    from jaxmon.facts.status import Summary

_JOB = "demo"
_PORT = SIDECAR_PORT
_PORTS = 64
_START_SECONDS = 90.0
_REDRAW_SECONDS = 1.0
_BREAK_AFTER = 30.0
_PROGRAMS = {"serve": "serving", "train": "training"}

PLACES = {
    scenario.name: _PROGRAMS[scenario.program]
    for scenario in SCENARIOS
    if not scenario.needs
}
"""In which of the demo's programs each fault is."""
_SIGNALS = {
    "signal": (signal.SIGUSR1, signal.SIGUSR2),
    "freeze": (signal.SIGSTOP, signal.SIGCONT),
}


@subcommand()
def command(
    *,
    duration: float | None = option(Number(min=1)),
    port: int = option(Whole(1, 65535), default=_PORT),
    fault: str | None = option(
        click.Choice(sorted(BY_NAME)), "--break", metavar="FAULT"
    ),
    break_after: float | None = option(Number(min=0)),
    break_for: float = option(Number(min=1), default=60.0),
    alerting: bool = option(bool, "--prometheus/--no-prometheus", default=True),
    webhook: str | None = option(BASE_URL),
) -> None:
    """
    Demonstrate jaxmon on this machine.

    Starts a training loop (Flax and Optax) and a model server (plain JAX), both
    instrumented, and a sidecar; then shows the sidecar's metrics live. Everything is
    stopped and cleaned up at the end.

    If prometheus and prometheus-alertmanager are installed, they run with the rules of
    `jaxmon alerts build`, 60 times as fast as in production: a minute represents an
    hour. Pending and firing alerts are listed; use --break to watch them fire and
    resolve.

    Options:
        duration: Run for this many seconds after startup; default: until Ctrl-C.
        port: TCP port of the sidecar; if taken, the next free one.
        fault: Inject a fault, one of `jaxmon gameday --list`. Some need more than the
            demo has, and are for a game day.
        break_after: Seconds until the fault starts; by default, 30, or as many as it
            takes to know what is usual.
        break_for: Duration of the fault in seconds.
        alerting: Run Prometheus and Alertmanager if installed.
        webhook: Base URL for Alertmanager notifications; /page and /ticket are
            appended. Default: none are sent.

    Examples:
      jaxmon demo --duration 60
      jaxmon demo --break stall
    """
    if fault and (missing := BY_NAME[fault].needs):
        driver = " --driver DIRECTORY" if BY_NAME[fault].needs_driver else ""
        msg = (
            f"{fault} needs {missing}, which the demo lacks; run: jaxmon gameday "
            f"{fault}{driver}"
        )
        raise click.UsageError(msg)
    require("demo", "jax", "flax", "optax")
    if break_after is None:
        break_after = max(_BREAK_AFTER, BY_NAME[fault].usual_for) if fault else 0.0
    if fault and duration is not None and duration <= break_after:
        msg = (
            f"--duration {duration:g} ends before the fault starts, after "
            f"{break_after:g} seconds; use a longer --duration or a smaller "
            "--break-after"
        )
        raise click.UsageError(msg)
    broken = Fault(fault, after=break_after, lasting=break_for) if fault else None
    with (
        scratch.directory("jaxmon-demo-") as directory,
        Children(programs.environ(str(directory), scale=SCALE), directory) as children,
    ):
        demo = _start(children, str(directory), port=port, fault=broken)
        if alerting:
            demo.stack = _start_stack(children, str(directory), demo, webhook)
        summary = demo.watch(duration)
        output.lines("\nStopping ...", err=True)
    _conclude(summary)


class Fault:
    """The fault *name* of `PLACES`, *after* some seconds; signals start and end it."""

    def __init__(self, name: str, *, after: float, lasting: float) -> None:
        self.name = name
        self._begin, self._end = after, after + lasting
        self._applied = False

    @property
    def place(self) -> str:
        """The name of the affected program."""
        return PLACES[self.name]

    def apply(self, child: ChildProcess, elapsed: float) -> None:
        """Signal *child* if the fault starts or ends now, *elapsed* seconds on."""
        if (broken := self.is_active(elapsed)) != self._applied:
            self._applied = broken
            begin, end = _SIGNALS[BY_NAME[self.name].means]
            child.process.send_signal(begin if broken else end)

    def is_active(self, elapsed: float) -> bool:
        """Return whether the fault is active."""
        return self._begin <= elapsed < self._end

    def description(self, elapsed: float) -> str:
        """Describe the current state of the fault."""
        if elapsed < self._begin:
            return f"fault {self.name} starts in {clock(self._begin - elapsed)}"
        if self.is_active(elapsed):
            left = clock(self._end - elapsed)
            return f"fault {self.name}: {BY_NAME[self.name].summary}; ends in {left}"
        return f"fault {self.name} ended {clock(elapsed - self._end)} ago"


def _start(
    children: Children, run_dir: str, *, port: int, fault: Fault | None
) -> _Demo:
    output.line("Starting a training loop, a model server and a sidecar ...")
    sidecar = programs.start_sidecar(children, run_dir, port=_free_port(port))
    # The agents take free ports; the sidecar was promised its own.
    url = sidecar.says(programs.SIDECAR_READY, seconds=_START_SECONDS)
    workloads = {}
    for name, module in (("training", "train"), ("serving", "serve")):
        faulty = fault is not None and fault.place == name
        arguments = ["--fault", fault.name] if fault and faulty else []
        environ = dict(BY_NAME[fault.name].environ) if fault and faulty else {}
        workloads[name] = programs.start_program(
            children, module, *arguments, name=name, environ=environ
        )
    agents = {
        f"{name} metrics": child.says(programs.AGENT_READY, seconds=_START_SECONDS)
        for name, child in workloads.items()
    }
    places = {"live page": f"{url}/", "sidecar metrics": f"{url}/metrics", **agents}
    places["explanation"] = f"jaxmon explain 0 --run-dir {run_dir}"
    if fault is None:
        places["a fault to find"] = "jaxmon demo --break recompile"
    return _Demo(children, workloads, places, url, fault)


def _start_stack(
    children: Children, directory: str, demo: _Demo, webhook: str | None
) -> MonitoringStack | None:
    if (installed := MonitoringPrograms.installed()) is None:
        output.line(
            "Alerts are not shown: install prometheus and prometheus-alertmanager "
            "to see them here."
        )
        return None
    output.line(
        f"Starting Prometheus and Alertmanager, {SCALE} times as fast as in "
        "production ..."
    )
    # The sidecar has what the agents have: scraping both would count twice.
    targets = {_JOB: demo.sidecar.removeprefix("http://")}
    found = stack.start(
        installed, children, Path(directory), targets=targets, webhook=webhook
    )
    demo.places |= {
        "prometheus": f"{found.prometheus}/",
        "alertmanager": f"{found.alertmanager}/",
    }
    return found


def _free_port(first: int) -> int:
    last = min(first + _PORTS, 65535)
    for port in range(first, last + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((programs.HOST, port))
            except OSError:
                continue
            return port
    msg = f"ports {first} to {last} are all taken; choose another with --port"
    raise CommandError(msg)


@dataclass
class _Demo:
    """The running demo: *places* has a URL or command by what it shows."""

    children: Children
    workloads: Mapping[str, ChildProcess]
    places: dict[str, str]
    sidecar: str
    fault: Fault | None
    stack: MonitoringStack | None = None

    def watch(self, duration: float | None) -> Summary:
        """Show the summary for *duration* or until Ctrl-C; return the last one."""
        started = time.monotonic()
        end = float("inf") if duration is None else started + duration
        draw = partial(drawn, places=self.places, duration=duration)
        with view(draw, lambda: SceneLog(self.places).show) as show:
            scene = self._scene(0.0)
            try:
                while (now := time.monotonic()) < end:
                    self.children.check()
                    scene = self._scene(now - started)
                    show(scene)
                    time.sleep(max(0.0, min(_REDRAW_SECONDS, end - time.monotonic())))
            except KeyboardInterrupt:
                with suppress(CommandError):  # what was shown may be a second old
                    scene = self._scene(time.monotonic() - started)
        finish(scene)
        return scene.summary

    def _scene(self, elapsed: float) -> DisplayState:
        alerts = (
            active(alerts_of(self.stack.prometheus)) if self.stack is not None else None
        )
        from jaxmon.facts.reader import from_json
        from jaxmon.facts.status import Summary

        summary = fetch("the sidecar", f"{self.sidecar}/api/summary")
        scene = DisplayState(elapsed, from_json(Summary, summary), alerts)
        if (fault := self.fault) is None:
            return scene
        fault.apply(self.workloads[fault.place], elapsed)
        return replace(
            scene, fault=fault.description(elapsed), broken=fault.is_active(elapsed)
        )


def _conclude(summary: Summary) -> None:
    totals, answer = summary.totals, summary.answer
    output.line("Totals")
    output.lines(totals_table(summary))
    output.lines(f"\n{answer.question}")
    output.lines(
        map(clean, (answer.text, *(reason.text for reason in answer.reasons[1:])))
    )
    if not (totals.calls and totals.compiles and steps(summary)):
        msg = (
            "nothing was measured: calls, compiles and steps must be above 0; use "
            "a longer --duration"
        )
        raise CommandError(msg)
