"""
``jaxmon demo``: two instrumented programs, a sidecar, and what they show.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast
from urllib.request import ProxyHandler, build_opener

import click

from jaxmon.cli.children import Children
from jaxmon.cli.extras import require
from jaxmon.cli.overview import Style, one_line, steps, table, totals_table
from jaxmon.cli.screen import Screen, is_terminal, wants_colour
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon_exporter.summary import Summary

_PORT = 9467
_PORTS = 64
_HOST = "127.0.0.1"
_START_SECONDS = 90.0
_FETCH_SECONDS = 5.0
_REDRAW_SECONDS = 1.0
_SNAPSHOT_SECONDS = 10.0
_WIDTH, _HEIGHT = 80, 24
_SIDECAR_READY = re.compile(r"exporter: (http://\S+)/")
_AGENT_READY = re.compile(r"metrics: (http://\S+)")
# -P: files in the current directory are no part of the demo.
_PYTHON = (sys.executable, "-P")
_EXPORTER = "from jaxmon.cli.main import exporter; exporter()"


@click.command(
    epilog="""
\b
Example:
  jaxmon demo --duration 60
"""
)
@click.option(
    "--duration",
    type=click.FloatRange(min=1),
    help="Seconds to show, once everything has started; default: until Ctrl-C.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=_PORT,
    show_default=True,
    help="TCP port of the sidecar; the next free one where it is taken.",
)
def command(*, duration: float | None, port: int) -> None:
    """
    Show jaxmon at work on this machine.

    Starts a training loop (Flax and Optax) and a model server (plain JAX), both
    instrumented, and a sidecar; then shows live what the sidecar knows. At the end
    all of them are stopped and nothing is left behind.
    """
    require("demo", "jax", "flax", "optax")
    with (
        _signals_interrupt(),
        TemporaryDirectory(prefix="jaxmon-demo-") as directory,
        Children(_environ(directory), Path(directory)) as children,
    ):
        places = _start(children, directory, port=port)
        summary = _watch(children, places, duration)
        click.echo("\nStopping ...", err=True)
    _conclude(summary)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """
    Make SIGTERM and SIGHUP end the demo as Ctrl-C does, children included.
    """
    ours = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in ours]
    try:
        yield
    finally:
        for number, handler in zip(ours, before, strict=True):
            signal.signal(number, handler)


def _environ(run_dir: str) -> Mapping[str, str]:
    """
    Return the children's environment: default settings, a run directory of its own.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("JAXMON_")
    }
    return {
        # Two programs share each accelerator; one must not reserve it all.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **inherited,
        "JAXMON_RUN_DIR": run_dir,
        "JAXMON_MEMORY_INTERVAL": "2",
    }


def _start(children: Children, run_dir: str, *, port: int) -> dict[str, str]:
    """
    Start everything, and return the URLs of what there is to look at.
    """
    click.echo("Starting a training loop, a model server and a sidecar ...")
    sidecar = children.start(
        "sidecar",
        [
            *(*_PYTHON, "-c", _EXPORTER, "--host", _HOST),
            *("--port", str(_free_port(port)), "--run-dir", run_dir),
            *("--agents-interval", "1", "--log-level", "warning"),
        ],
    )
    # The agents take free ports; the sidecar was promised its own.
    url = sidecar.says(_SIDECAR_READY, seconds=_START_SECONDS)
    training = children.start("training", [*_PYTHON, "-m", "jaxmon.demo.train"])
    serving = children.start("serving", [*_PYTHON, "-m", "jaxmon.demo.serve"])
    return {
        "live page": f"{url}/",
        "sidecar metrics": f"{url}/metrics",
        "training metrics": training.says(_AGENT_READY, seconds=_START_SECONDS),
        "serving metrics": serving.says(_AGENT_READY, seconds=_START_SECONDS),
    }


def _free_port(first: int) -> int:
    """
    Return the first port from *first* on that nobody listens on.

    Raises:
        CommandError: there is none near it.
    """
    last = min(first + _PORTS, 65535)
    for port in range(first, last + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return port
    msg = f"ports {first} to {last} are all taken; choose another with --port"
    raise CommandError(msg)


def _watch(
    children: Children, places: Mapping[str, str], duration: float | None
) -> Summary:
    """
    Show the figures until *duration* is over or Ctrl-C; return the last ones.
    """
    sidecar = places["live page"]
    where = [f"  {name:<18}{url}" for name, url in places.items()]
    live = is_terminal(sys.stdout)
    started = time.monotonic()
    end = float("inf") if duration is None else started + duration
    with _Live(where, duration) if live else nullcontext(_Log(where)) as view:
        summary = _fetch(sidecar)
        try:
            while (now := time.monotonic()) < end:
                children.check()
                summary = _fetch(sidecar)
                view.show(summary, now - started)
                time.sleep(max(0.0, min(_REDRAW_SECONDS, end - time.monotonic())))
        except KeyboardInterrupt:
            pass
        view.finish(summary, time.monotonic() - started)
    return summary


def _fetch(sidecar: str) -> Summary:
    """
    Return what the sidecar knows now.

    Raises:
        CommandError: it does not answer.
    """
    direct = build_opener(ProxyHandler({}))
    try:
        with direct.open(f"{sidecar}api/summary", timeout=_FETCH_SECONDS) as answer:
            return cast("Summary", json.load(answer))
    except (OSError, ValueError) as error:
        msg = f"the sidecar at {sidecar} does not answer: {error}"
        raise CommandError(msg) from error


class _Live(Screen):
    """
    A table that is drawn in place.
    """

    def __init__(self, where: Sequence[str], duration: float | None) -> None:
        super().__init__(sys.stdout)
        self._where = where
        self._duration = duration
        self._style = Style(colour=wants_colour(sys.stdout))

    def show(self, summary: Summary, elapsed: float) -> None:
        """
        Draw the figures of now.
        """
        width, height = self.size()
        clock = f"  {_clock(elapsed)}"
        if self._duration is not None:
            clock += f" of {_clock(self._duration)}"
        above = [*self._where, "", self._style.quiet(f"{clock}   Ctrl-C ends")]
        room = height - len(above) - 1
        self.draw(
            [*above, *table(summary, width=width, height=room, style=self._style)]
        )

    def finish(self, summary: Summary, elapsed: float) -> None:
        """
        Draw the last figures; they stay on the screen.
        """
        self.show(summary, elapsed)


class _Log:
    """
    A line now and then, where nothing can be drawn in place.
    """

    def __init__(self, where: Sequence[str]) -> None:
        for line in where:
            click.echo(line)
        self._next = 0.0

    def show(self, summary: Summary, elapsed: float) -> None:
        """
        Print a line when one is due.
        """
        if elapsed >= self._next:
            self._next = elapsed + _SNAPSHOT_SECONDS
            click.echo(f"  {_clock(elapsed)}  {one_line(summary)}")

    def finish(self, summary: Summary, elapsed: float) -> None:
        """
        Print the table, once.
        """
        click.echo(f"\n  After {_clock(elapsed)}")
        style = Style(colour=False)
        for line in table(summary, width=_WIDTH, height=_HEIGHT, style=style):
            click.echo(line)


def _conclude(summary: Summary) -> None:
    """
    Print the totals.

    Raises:
        CommandError: nothing was measured.
    """
    totals = summary["totals"]
    click.echo("Totals")
    for line in totals_table(summary):
        click.echo(line)
    if not (totals["calls"] and totals["compiles"] and steps(summary)):
        msg = (
            "nothing was measured: calls, compiles and steps must be above 0; "
            "give it more time with --duration"
        )
        raise CommandError(msg)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
