"""How the sidecar and the programs of the demo are started."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from jaxmon.cli.demo.children import Child, Children


HOST = "127.0.0.1"
SIDECAR_READY = re.compile(r"exporter: (http://\S+)/")
AGENT_READY = re.compile(r"metrics: (http://\S+)")
PROGRAM_READY = re.compile(r"^(ready)$", re.MULTILINE)

# Settings of the agent that are durations, which shrink as the rules' do: seconds.
_DURATIONS = {
    "JAXMON_MEMORY_INTERVAL": 10.0,
    "JAXMON_MEMORY_LINES_INTERVAL": 60.0,
    "JAXMON_LEAK_WINDOW": 600.0,
}
# Taking snapshots more often would be all that the programs do.
_LEAST_SECONDS = 1.0

# -P: files in the current directory are no part of the demo.
_PYTHON = (sys.executable, "-P")
_EXPORTER = "from jaxmon.cli.main import exporter; exporter()"


def environ(run_dir: str, *, scale: float) -> Mapping[str, str]:
    """
    Return the environment of programs: default settings and a private run directory.

    Args:
        run_dir: of their agents.
        scale: speed-up of the rules that judge them.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("JAXMON_")
    }
    durations = {
        name: f"{max(seconds / scale, _LEAST_SECONDS):g}"
        for name, seconds in _DURATIONS.items()
    }
    return {
        # Programs share each accelerator; one must not reserve it all.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **inherited,
        **durations,
        "JAXMON_RUN_DIR": run_dir,
    }


def start_sidecar(
    children: Children,
    run_dir: str,
    *options: str,
    name: str = "sidecar",
    host: str = HOST,
    port: int = 0,
    environ: Mapping[str, str] | None = None,
) -> Child:
    """Start a sidecar for the agents in *run_dir*; it prints `SIDECAR_READY`."""
    return children.start(
        name,
        [
            *(*_PYTHON, "-c", _EXPORTER, "--host", host),
            *("--port", str(port), "--run-dir", run_dir),
            *("--agents-interval", "1", "--log-level", "warning", *options),
        ],
        environ,
    )


def start_program(
    children: Children,
    program: str,
    *options: str,
    name: str,
    environ: Mapping[str, str] | None = None,
) -> Child:
    """Start a module of `jaxmon.demo`; it prints where its agent is, then that."""
    command = [*_PYTHON, "-m", f"jaxmon.demo.{program}", *options]
    return children.start(name, command, environ)
