"""
Ask Prometheus and Alertmanager what they think of the files.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from jaxmon.artifacts.alerts.build import ALERTMANAGER, ALERTS, RECORDING


_TIMEOUT = 60.0

# With whom to check, and what to run on which files.
_TOOLS = (
    ("promtool", ("check", "rules", "--lint=all", "--lint-fatal"), (RECORDING, ALERTS)),
    ("amtool", ("check-config",), (ALERTMANAGER,)),
)


def missing_tools() -> list[str]:
    """
    Return the programs that `problems` would run and cannot.
    """
    return [tool for tool, _, _ in _TOOLS if shutil.which(tool) is None]


def problems(files: Mapping[str, str]) -> Iterator[str]:
    """
    Yield what promtool and amtool, as far as installed, find wrong with *files*.
    """
    with TemporaryDirectory(prefix="jaxmon-") as directory:
        for name, text in files.items():
            Path(directory, name).write_text(text, encoding="utf-8")
        for tool, arguments, names in _TOOLS:
            if (program := shutil.which(tool)) is None:
                continue
            done = subprocess.run(  # noqa: S603 - a tool with arguments of ours
                [program, *arguments, *names],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
                check=False,
            )
            if done.returncode:
                yield f"{tool}: {done.stdout}{done.stderr}"
