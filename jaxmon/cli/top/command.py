"""``jaxmon top``: the processes of a host, live."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmon.cli import options
from jaxmon.cli.servers import ACCESS, Access


if TYPE_CHECKING:
    from jaxmon.cli.host import HostSource, ProcessView
    from jaxmon.cli.top.state import Reader, State
    from jaxmon.cli.top.terminal import Terminal

_SECONDS = 1.0
_LEAST_COLUMNS = 24


@options.subcommand()
def command(
    *,
    url: str | None = options.option(options.BASE_URL),
    every: float = options.option(options.Number(0.5, 3600), default=2.0),
    run_dir: Path | None = options.JUDGED_RUN_DIR,
    access: Access = ACCESS,
) -> None:
    """
    Show live whether users are all right, and what processes do.

    The answer stands at the top, with its reasons. Each process follows, with what is
    wrong with it, its rates, errors, latency, compiles and memory, and the accelerators
    at the bottom. Keys: Enter opens a process, s sorts, ? explains all, q quits.
    Nothing needs to be installed or to run besides the programs.

    Options:
        url: Read from this sidecar, which knows accelerators, instead of the agents.
        every: Seconds between two readings.

    Examples:
      jaxmon top
      jaxmon top --url http://127.0.0.1:9467
    """
    from jaxmon.cli.host import HostReader, Sidecar, Sockets
    from jaxmon.cli.top.state import Reader
    from jaxmon.cli.top.terminal import Terminal
    from jaxmon.cli.workers import directory_of, hints

    source: HostSource
    if url is not None:
        source = Sidecar(access.session("sidecar", url), url)
    else:
        run_dir = directory_of(run_dir)
        source = Sockets(run_dir)
    terminal = Terminal()
    reader = Reader(
        HostReader(source, options.chosen()),
        terminal.wake,
        every=every,
        hints=partial(hints, run_dir) if run_dir and not url else tuple,
    )
    name = platform.node() if url is None else url
    try:
        with terminal:
            reader.start()
            _show(terminal, reader, name)
    finally:
        reader.stop()


def _show(terminal: Terminal, reader: Reader, name: str) -> None:
    from jaxmon.cli.top.state import State
    from jaxmon.cli.top.views import help_view, host_view, process_view

    state = State()
    seen, last = reader.seen, None
    while True:
        if not state.paused:
            seen = reader.seen
        width, height = terminal.size
        # What is laid out for more is cut.
        width = max(width, _LEAST_COLUMNS)
        if state.opened:
            last = _opened(seen.processes, state, last)
        if state.helped:
            lines = help_view(width, height)
        elif state.opened:
            lines = process_view(last, seen, state, width=width, height=height)
        else:
            last = None
            lines = host_view(seen, state, name=name, width=width, height=height)
        terminal.draw(lines)
        try:
            keys = terminal.keys(_SECONDS)
        except (EOFError, OSError):  # the terminal is gone
            return
        for key in keys:
            if key == "redraw":
                terminal.redraw()
            elif not state.press(key, seen.processes):
                return


def _opened(
    processes: Sequence[ProcessView], state: State, last: ProcessView | None
) -> ProcessView | None:
    found = [process for process in processes if process.number == state.chosen]
    if last is not None and last.number == state.chosen:
        found = [process for process in found if process.agent.up] or [last]
    return found[0] if found else None
