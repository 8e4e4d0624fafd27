"""Ask Prometheus and Alertmanager what they think of the files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping

from jaxmon import subprocesses
from jaxmon.artifacts.alerts.build import ALERTMANAGER, ALERTS, RECORDING
from jaxmon.files import scratch


_SECONDS = 60.0

# With whom to check, and what to run on which files.
_TOOLS = (
    ("promtool", ("check", "rules", "--lint=all", "--lint-fatal"), (RECORDING, ALERTS)),
    ("amtool", ("check-config",), (ALERTMANAGER,)),
)


def missing_tools() -> list[str]:
    """Return the programs that `problems` would run and cannot."""
    return [tool for tool, _, _ in _TOOLS if shutil.which(tool) is None]


def problems(files: Mapping[str, str]) -> Iterator[str]:
    """Yield what promtool and amtool, as far as installed, find wrong with *files*."""
    with scratch.directory("jaxmon-") as directory:
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
        for tool, arguments, names in _TOOLS:
            if (program := shutil.which(tool)) is None:
                continue
            command = [program, *arguments, *names]
            try:
                done = subprocesses.run(command, seconds=_SECONDS, cwd=directory)
            except OSError as error:  # TimeoutError, too
                yield f"{tool}: {error}\n"
                continue
            if done.code:
                yield f"{tool}: {done.out}{done.err}"
