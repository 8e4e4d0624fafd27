"""
``jaxmon gameday``, with programs and sidecars that find JAX and jaxmon imported.

Only what has another environment for the dynamic linker starts as it does for users.
Arguments: those of the command.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from jaxmon.cli.gameday import command
from jaxmon.cli.main import main
from jaxmon_alerts.gameday.children import Children
from tests.helpers.preloaded import Preloaded


# What the programs and the sidecar import besides JAX and the agent.
MODULES = ("flax.nnx", "optax", "jaxmon.cli.exporter", "jaxmon_exporter.service")


class Launcher:
    """Starts processes, most of the Python ones as forks of *preloaded*."""

    def __init__(self, preloaded: Preloaded, *, optimised: bool = True) -> None:
        self._preloaded = preloaded
        self._optimised = optimised

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: IO[bytes],
        stderr: IO[bytes],
        start_new_session: bool,
    ) -> Any:
        """Start a process, as `subprocess.Popen` does."""
        python, *rest = arguments
        if python != sys.executable or not self._preloaded.suits(env):
            return subprocess.Popen(
                arguments,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=start_new_session,
            )
        with Path(os.devnull).open("rb") as nothing:
            return self._preloaded.start(
                rest[1:],
                env,
                optimised=self._optimised,
                files=(nothing.fileno(), stdout.fileno(), stderr.fileno()),
                session=start_new_session,
            )


def run(arguments: Sequence[str]) -> None:
    """Run the command."""
    preloaded = Preloaded(*MODULES, environ=os.environ)
    vars(command)["Children"] = partial(Children, launch=Launcher(preloaded))
    try:
        main(["gameday", *arguments])
    finally:
        preloaded.stop()


if __name__ == "__main__":
    run(sys.argv[1:])
